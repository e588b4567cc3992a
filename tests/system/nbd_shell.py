"""For nbdsh: libnbd by hand on the URI in $URI, 8 MiB from the start; h is its handle."""
import os, random

uri = os.environ["URI"]
tls = os.environ.get("TLS_DIR")
MIB = 1 << 20


def connect(structured=True):
    c = nbd.NBD()
    c.set_request_structured_replies(structured)
    c.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    if tls:
        c.set_tls_certificates(tls)
    c.set_uri_allow_local_file(True)
    c.connect_uri(uri)
    return c


for structured in (True, False):
    c, other = connect(structured), connect()
    assert c.get_structured_replies_negotiated() == structured and c.get_size() >= 8 * MIB
    assert c.can_flush() and c.can_fua() and c.can_trim() and c.can_zero() and c.can_multi_conn() and c.can_df() == structured
    rng, shadow = random.Random(1), bytearray(random.Random(2).randbytes(8 * MIB))
    c.pwrite(shadow, 0)
    for n in range(80):
        at, length = rng.randrange(0, 15000) * 512, rng.choice((512, 4096, 65536, 300 * 512))
        kind = n % 5
        if kind < 2:
            data = rng.randbytes(length)
            c.pwrite(data, at, nbd.CMD_FLAG_FUA if kind else 0)
            shadow[at:at + length] = data
        elif kind == 2:
            c.zero(length, at, nbd.CMD_FLAG_NO_HOLE if n % 2 else 0)
            shadow[at:at + length] = bytes(length)
        elif kind == 3:
            c.trim(length, at)
            shadow[at:at + length] = c.pread(length, at)
        else:
            c.flush()
        assert other.pread(length, at) == shadow[at:at + length], (kind, at, length)
    assert c.pread(8 * MIB, 0) == shadow == other.pread(8 * MIB, 0)
    buffers = [nbd.Buffer(65536) for _ in range(64)]  # all in flight at once
    cookies = [c.aio_pread(b, n * 65536) for n, b in enumerate(buffers)]
    while c.aio_in_flight() > 0:
        c.poll(-1)
    assert all(c.aio_command_completed(k) for k in cookies)
    assert b"".join(bytes(b.to_bytearray()) for b in buffers) == shadow[:64 * 65536]
    c.set_strict_mode(0)
    for what, errors in ((lambda: c.pread(512, c.get_size()), ("EINVAL",)), (lambda: c.pwrite(bytes(512), c.get_size()), ("ENOSPC",)),
                         (lambda: c.zero(512, c.get_size()), ("ENOSPC",)), (lambda: c.trim(512, c.get_size()), ("EINVAL",)),
                         (lambda: c.pread(512, 0, 0x8000), ("EINVAL",)), (lambda: c.flush(nbd.CMD_FLAG_NO_HOLE), ("EINVAL",))):
        try:
            what()
            raise AssertionError("taken, %s was expected" % (errors,))
        except nbd.Error as error:
            assert error.errno in errors, error
    assert c.pread(512, 0) == shadow[:512]
    c.shutdown()
    other.shutdown()
