"""What clients are told when the disk beneath fails: nbd_errors.py ADDRESS PID [simple|structured|extended] [tls]

v lies on one disk, which is served by faulty_nbd_server.py; FAULTS is its file of faults."""
from nbd_client import *

FAULTS = os.environ["FAULTS"]
DATA = int(os.environ["DATA"])  # where the volume begins on the disk


class Faults:
    def __init__(self, *lines):
        self.lines = lines

    def __enter__(self):
        with open(FAULTS + ".new", "w") as file:
            file.write("".join(line + "\n" for line in self.lines))
        os.rename(FAULTS + ".new", FAULTS)

    def __exit__(self, *_):
        os.unlink(FAULTS)


@case("READ of a block that is lost: EIO, no data after a simple header; in chunks with the offset of the first bad byte; others are read")
def lost_blocks(rig):
    c = rig.session()
    c.write(MIB, pattern(MIB, 95))
    bad = MIB + 64 * 512
    with Faults("bad %d 512" % (DATA + bad)):
        for offset, length in ((bad, 512), (MIB, MIB), (bad - 4096, 8192)):
            answer = c.do(READ, offset, length).failed(EIO)
            assert c.mode == SIMPLE or answer.bad_offset is None or bad - 4096 < answer.bad_offset <= bad, answer.bad_offset
            assert c.mode == SIMPLE or answer.text
        assert c.read(MIB, 64 * 512 - 4096) == pattern(MIB, 95)[:64 * 512 - 4096]
        out = [c.submit(READ, MIB + n * 65536, 65536) for n in range(16)]
        c.send(*(bytes for _, bytes in out))
        assert [c.answer(cookie).error for cookie, _ in out] == [EIO] + [0] * 15, "one of sixteen fails, each by its cookie"
        c.write(bad - 64 * 512, pattern(MIB, 95)[:65536])
        assert c.read(MIB, MIB) == pattern(MIB, 95), "a write mends"


@case("case 22: FLUSH while the disk cannot: EIO, each time, to all; the array is frozen then, and says so to each request, in step")
def flush_errors(rig):
    c, other = rig.session(), rig.session()
    with Faults("no-flush"):
        c.do(WRITE, 0, data=pattern(4096, 96)).error
        for client in (c, other, c):
            client.do(FLUSH).failed(EIO)
        assert c.do(WRITE, 4096, data=pattern(4096, 97), flags=FUA).error in (0, EIO)
    for client in (other, rig.session()):
        client.do(FLUSH).failed(EIO)
        client.do(WRITE, 0, data=bytes(4096)).failed(EIO)
        client.do(READ, client.size, 512).failed(EINVAL)
    rig.gone = True  # there is nothing that a fresh client could read


main()
