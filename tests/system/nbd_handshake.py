"""The handshake and its options, raw: nbd_handshake.py ADDRESS PID [simple|structured|extended] [tls]

Exports: v, with the description "test volume"; ro, read-only; secret, hidden."""
from nbd_client import *

KNOWN = (EXPORT_NAME, ABORT, LIST, STARTTLS, INFO, GO, STRUCTURED_REPLY, LIST_META, SET_META, EXTENDED_HEADERS)


def still_negotiates(c):
    """In step: the next option is understood and answered."""
    assert c.accepted(LIST)
    return c


@case("handshake: the server speaks first: NBDMAGIC, IHAVEOPT, flags FIXED_NEWSTYLE and NO_ZEROES, no others")
def greeting(rig):
    c = rig.dial()
    assert c.exactly(18) == b"NBDMAGICIHAVEOPT\0\3"
    c.silent()


@case("handshake: an unknown client flag: dropped")
def unknown_client_flags(rig):
    for flags in (4, 7, 0x80000003, 0xFFFFFFFF):
        c = rig.dial()
        c.exactly(18)
        assert c.refused(struct.pack(">I", flags)), hex(flags)


@case("handshake: without FIXED_NEWSTYLE EXPORT_NAME works, as without TLS; other options end it or are answered")
def not_fixed(rig):
    for flags in (0, NO_ZEROES):
        if not rig.tls:
            c = rig.dial().greet(flags).export_name(rig.export)
            assert len(c.read(0, 512)) == 512
        for number in (LIST, STARTTLS):
            c = rig.dial().greet(flags)
            c.send(c.option(number))
            try:
                assert number == LIST or c.reply(number).is_error
            except (EOFError, ConnectionError):
                pass


@case("EXPORT_NAME, case 24: 10 bytes and 124 zeroes, not one more; without zeroes if both say NO_ZEROES")
def export_name_and_zeroes(rig):
    for flags in (FIXED, FIXED | NO_ZEROES):
        c = rig.connect(flags)
        c.export_name(rig.export)
        c.silent()
        assert c.flags & HAS_FLAGS and c.size == rig.size and len(c.read(0, 512)) == 512
        c = rig.connect(flags)
        c.negotiate(STRUCTURED)
        c.export_name(rig.export)
        assert c.flags & SEND_DF and len(c.read(0, 512)) == 512


@case("EXPORT_NAME: no error reply is possible, an unknown export ends the connection; so does a name too long")
def export_name_unknown(rig):
    for name in (b"nothere", b"v\0", b"n" * 4096, b"n" * 4097, b"n" * 70000, b"\xff\xfe"):
        c = rig.connect()
        assert c.refused(c.option(EXPORT_NAME, name)), name[:10]


@case("EXPORT_NAME: not after EXTENDED_HEADERS")
def export_name_after_extended_headers(rig):
    c = rig.connect()
    c.negotiate(EXTENDED)
    c.send(c.option(EXPORT_NAME, b"v"))
    try:
        assert c.reply(EXPORT_NAME).type == ERR_EXT_HEADER_REQD or c.closed()
    except (EOFError, ConnectionError):
        pass


@case("ABORT: ACK, its data ignored, then the end; a client that does not wait for it is no trouble")
def abort(rig):
    for data in (b"", b"why", b"x" * 4000):
        c = rig.connect()
        assert c.accepted(ABORT, data) == [] and c.closed()
    for _ in range(20):
        c = rig.connect()
        c.send(c.option(ABORT))
        c.socket.close()


@case("LIST: SERVER with name and description for each export that is not hidden, ACK; and again")
def list_exports(rig):
    c = rig.connect()
    for _ in range(2):
        found = {}
        for reply in c.accepted(LIST):
            assert reply.type == SERVER, reply
            size = struct.unpack(">I", reply.data[:4])[0]
            assert size <= len(reply.data) - 4
            name = reply.data[4:4 + size].decode("utf-8")
            assert name not in found
            found[name] = reply.data[4 + size:].decode("utf-8")
        assert found.get("v") == "test volume" and "ro" in found and "secret" not in found, found


@case("hidden exports are not listed and open by their name; a name of 255 bytes does, too")
def hidden_exports(rig):
    for name in ("secret", "long-" + "n" * 250):
        c = rig.connect()
        infos = c.info(name, INFO_NAME)
        assert infos.get(INFO_NAME, name.encode()) == name.encode()
        assert len(c.go(name).read(0, 512)) == 512


@case("the name \"\" is the default export: opened by GO and EXPORT_NAME if there is one, else unknown")
def default_export(rig):
    c = rig.connect()
    last = c.ask(GO, c.info_data(""))[-1]
    assert last.type in (ACK, ERR_UNKNOWN), last
    old = rig.connect()
    if last.type == ACK:
        assert len(c.read(0, 512)) == 512
        assert len(old.export_name("").read(0, 512)) == 512
    else:
        assert old.refused(old.option(EXPORT_NAME))


@case("LIST with data: ERR_INVALID, and the next option is understood")
def list_with_data(rig):
    c = rig.connect()
    for data in (b"x", struct.pack(">I", 1) + b"v", b"x" * 5000):
        c.refusal(LIST, data, ERR_INVALID)
    still_negotiates(c)


@case("STARTTLS: with data it is an error; twice it is ERR_INVALID; without TLS ERR_POLICY or ERR_UNSUP; it goes on in clear")
def start_tls_refused(rig):
    c = rig.connect()
    c.refusal(STARTTLS, b"x", ERR_INVALID, ERR_POLICY, ERR_UNSUP)
    if rig.tls:
        c.refusal(STARTTLS, b"", ERR_INVALID)
        still_negotiates(c)
    elif os.environ.get("NBD_TLS", "off") == "off":
        c.refusal(STARTTLS, b"", ERR_POLICY, ERR_UNSUP)
        still_negotiates(c)


@case("INFO, fault 7: INFO_EXPORT always, with the size; what was asked and is known; what is not known is ignored; then ACK")
def info(rig):
    c = rig.connect()
    infos = c.info()
    assert infos[INFO_EXPORT][0] == rig.size > 0
    every = range(0, 20), (INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE, 77, 0xFFFF), [INFO_BLOCK_SIZE] * 3, range(300)
    for asked in every:
        infos = c.info(None, *asked)
        assert INFO_BLOCK_SIZE in infos and set(infos) <= {0, 1, 2, 3}, infos
        if INFO_NAME in asked:
            assert infos[INFO_NAME] == b"v" and infos[INFO_DESCRIPTION] == b"test volume", infos
    c.info("ro", INFO_DESCRIPTION)
    still_negotiates(c)


@case("INFO, then GO with the same arguments: the same answer, in any mode, again and again")
def info_and_go_agree(rig):
    for name in ("v", "ro", "secret"):
        c = rig.connect()
        c.negotiate(rig.mode)
        for asked in ((), (INFO_BLOCK_SIZE,), (INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE)):
            first = c.info(name, *asked)
            assert first == c.info(name, *asked)
        assert c.go(name, *asked).infos == first


@case("INFO and GO: ERR_UNKNOWN for an export that is not there; the same connection may then choose another")
def unknown_exports(rig):
    c = rig.connect()
    for name in (b"nothere", b"V", b"v ", b"v/", b"/v", b"vv", b"n" * 3000, b"n" * 4096):
        for number in (INFO, GO):
            c.refusal(number, c.info_data(name), ERR_UNKNOWN)
    assert len(c.go().read(0, 512)) == 512


@case("fault 8: \"v\\0\" is not the export v, and neither is \"v\\0x\"; a name that is no UTF-8 is refused")
def names_that_cannot_be(rig):
    c = rig.connect()
    for name in (b"v\0", b"v\0x", b"\0v", b"\xff\xfe", b"v\xc3", b"\xed\xa0\x80"):
        for number in (INFO, GO):
            c.refusal(number, c.info_data(name), ERR_INVALID, ERR_UNKNOWN)
    still_negotiates(c)


@case("cases 2, 3; names of 3,000 to 4,096 bytes are unknown, longer ones an error; the connection goes on")
def long_names(rig):
    c = rig.connect()
    for size in (256, 257, 1024, 3000, 4095, 4096):
        c.refusal(GO, c.info_data(b"n" * size), ERR_UNKNOWN)
    for size in (4097, 5000, 9000, 70000):
        c.refusal(GO, c.info_data(b"n" * size), ERR_INVALID, ERR_TOO_BIG, ERR_UNKNOWN)
    still_negotiates(c)


@case("cases 1, 2: a length of the name, or a number of requests, that the data do not hold: ERR_INVALID, in step")
def lengths_that_lie(rig):
    c = rig.connect()
    good = c.info_data("v", INFO_BLOCK_SIZE)
    lies = [struct.pack(">I", n) + b"v" + struct.pack(">H", 0) for n in (0xFFFFFFFF, 0xFFFFFFFE, 0x80000000, 2, 3, 4, 1000)]
    lies += [good + b"x", good + b"xx", good[:-1], good[:5], good[:4], good[:3], b"", struct.pack(">IH", 0, 1), struct.pack(">I", 1) + b"v" +
             struct.pack(">H", 0xFFFF), struct.pack(">I", 1) + b"v" + struct.pack(">HH", 0, 3)]
    for lie in lies:
        for number in (INFO, GO):
            c.refusal(number, lie, ERR_INVALID)
    still_negotiates(c)


@case("INFO_BLOCK_SIZE: minimum a power of 2 up to 65536, preferred one of at least 512, maximum at least 1 MiB; the size fits")
def block_sizes(rig):
    def power(n):
        return n > 0 and n & (n - 1) == 0

    for name in ("v", "ro", "secret"):
        c = rig.connect()
        infos = c.info(name, INFO_BLOCK_SIZE)
        least, preferred, most = infos[INFO_BLOCK_SIZE]
        assert power(least) and least <= 65536 and power(preferred) and preferred >= max(512, least), infos
        assert most >= max(preferred, MIB) and most % least == 0 and infos[INFO_EXPORT][0] % least == 0, infos
        assert preferred > 512, "the preferred size of a volume with chunks"


@case("GO: transmission starts right behind the ACK, no padding; requests may be in the same segment")
def go_and_requests_in_one_segment(rig):
    for flags in (FIXED, FIXED | NO_ZEROES):
        c = rig.connect(flags)
        c.negotiate(rig.mode)
        out = [c.submit(READ, n * 4096, 4096) for n in range(20)]
        c.send(c.option(GO, c.info_data("v")), *(bytes for _, bytes in out))
        c.take_infos(c.replies(GO)[:-1])
        for cookie, _ in out:
            c.answer(cookie).ok()
        c.silent()


@case("STRUCTURED_REPLY: ACK; with data ERR_INVALID; a second one is answered")
def structured_reply(rig):
    c = rig.connect()
    c.refusal(STRUCTURED_REPLY, b"x", ERR_INVALID)
    assert not c.info()[INFO_EXPORT][1] & SEND_DF, "SEND_DF though it was refused"
    c.negotiate(STRUCTURED)
    assert c.ask(STRUCTURED_REPLY)[-1].type in (ACK, ERR_INVALID)
    assert c.go().flags & SEND_DF
    c.read(0, 512)


@case("EXTENDED_HEADERS: ACK, without STRUCTURED_REPLY before or after it; with data ERR_INVALID; a second one is answered")
def extended_headers(rig):
    c = rig.connect()
    c.refusal(EXTENDED_HEADERS, b"x", ERR_INVALID)
    c.negotiate(EXTENDED)
    assert c.ask(EXTENDED_HEADERS)[-1].type in (ACK, ERR_INVALID)
    assert len(c.go().read(0, 512)) == 512
    c = rig.connect()
    c.negotiate(STRUCTURED)
    c.negotiate(EXTENDED)
    assert len(c.go().read(0, 512)) == 512


@case("STRUCTURED_REPLY after EXTENDED_HEADERS: ERR_EXT_HEADER_REQD, and extended headers stay")
def structured_after_extended(rig):
    c = rig.connect()
    c.negotiate(EXTENDED)
    c.refusal(STRUCTURED_REPLY, b"", ERR_EXT_HEADER_REQD)
    assert len(c.go().read(0, 512)) == 512


@case("transmission flags: HAS_FLAGS always; DF only with structured replies, BLOCK_STATUS_PAYLOAD only with extended headers; cases 23, 26")
def transmission_flags(rig):
    always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES | CAN_MULTI_CONN
    known = (BLOCK_STATUS_PAYLOAD << 1) - 1
    for mode in (SIMPLE, STRUCTURED, EXTENDED):
        for name in ("v", "ro"):
            c = rig.connect()
            c.negotiate(mode)
            flags = c.go(name).flags
            assert flags & ~known == 0 and not flags & SEND_RESIZE, hex(flags)
            assert bool(flags & SEND_DF) == (mode != SIMPLE), hex(flags)
            assert mode == EXTENDED or not flags & BLOCK_STATUS_PAYLOAD, hex(flags)
            assert not flags & SEND_FAST_ZERO or flags & SEND_WRITE_ZEROES, hex(flags)
            assert bool(flags & READ_ONLY) == (name == "ro"), hex(flags)
            assert name == "ro" or flags & always == always, hex(flags)


@case("an option nobody knows: ERR_UNSUP, its data skipped, the next one is understood")
def unknown_options(rig):
    c = rig.connect()
    inner = c.option(GO, c.info_data("v"))
    for number in (0, 4, 12, 13, 77, 0xFFFF, 1 << 31, 0xFFFFFFFF):
        for data in (b"", b"x", inner, inner * 50, bytes(16384), bytes(16385), pattern(300000)):
            c.refusal(number, data, ERR_UNSUP)
    still_negotiates(c)


@case("fault 1: whole options hidden in the data of others are not executed; ERR_INVALID, in step")
def options_inside_options(rig):
    c = rig.connect()
    inner = c.option(ABORT) + c.option(GO, c.info_data("v"))
    for number, data in ((LIST_META, c.meta_data("v")), (SET_META, c.meta_data("v")), (INFO, c.info_data("v")), (GO, c.info_data("v")), (LIST, b"")):
        for extra in (inner, c.option(LIST_META, c.meta_data("v")), inner * 100):
            c.refusal(number, data + extra, ERR_INVALID, ERR_UNSUP)
    still_negotiates(c)


@case("option data are bounded: 64 MiB of them are skipped or end the connection, and are never held")
def bounded_option_data(rig):
    before = rig.resident()
    for number in (GO, LIST, SET_META, 77):
        c = rig.connect()
        try:
            c.send(c.option(number, length=64 * MIB))
            for _ in range(64):
                c.send(bytes(MIB))
            assert c.reply(number).is_error
            still_negotiates(c)
        except (EOFError, ConnectionError, ssl.SSLError):
            pass
        assert rig.resident() - before < SLACK, rig.resident() - before
    for number in KNOWN + (77,):
        c = rig.connect()
        c.send(c.option(number, b"x" * 1000, length=0xFFFFFFFF))
    assert rig.resident() - before < SLACK


@case("what is no option where one should be: dropped")
def wrong_option_magic(rig):
    for junk in (bytes(16), b"GET / HTTP/1.1\r\n", struct.pack(">QII", INIT, LIST, 0), struct.pack(">QII", OPTION_REPLY, LIST, 0)):
        c = rig.connect()
        assert c.refused(junk), junk
    c = rig.connect()
    c.accepted(LIST)
    assert c.refused(struct.pack("<QII", OPTION, LIST, 0))


@case("case 16: a whole handshake and a request in segments of one byte")
def one_byte_at_a_time(rig):
    c = rig.dial()
    c.exactly(18)

    def trickle(data):
        for byte in data:
            c.socket.sendall(bytes([byte]))

    trickle(struct.pack(">I", 3))
    if rig.tls:
        c.start_tls()
    trickle(c.option(77, b"data"))
    assert c.replies(77)[0].type == ERR_UNSUP
    if rig.mode != SIMPLE:
        number = STRUCTURED_REPLY if rig.mode == STRUCTURED else EXTENDED_HEADERS
        trickle(c.option(number))
        assert c.replies(number)[0].type == ACK
        c.mode = rig.mode
    trickle(c.option(INFO, c.info_data("v", INFO_BLOCK_SIZE)))
    c.take_infos(c.replies(INFO)[:-1])
    trickle(c.option(GO, c.info_data("v")))
    c.take_infos(c.replies(GO)[:-1])
    for out in (c.submit(READ, 0, 512), c.submit(WRITE, 8192, data=pattern(700, 3)[:512]), c.submit(READ, 8192, 512)):
        trickle(out[1])
        answer = c.answer(out[0]).ok()
    assert answer.data == pattern(700, 3)[:512]


@case("many options in one segment: answered in order, each by its number")
def many_options_in_one_segment(rig):
    c = rig.connect()
    order = [LIST, INFO, 77, STRUCTURED_REPLY, LIST, 78, INFO] * 40
    c.send(*(c.option(n, c.info_data("v", INFO_NAME) if n == INFO else b"") for n in order))
    for number in order:
        last = c.replies(number)[-1]
        assert last.type == (ERR_UNSUP if number > 70 else ACK) or number == STRUCTURED_REPLY, last


@case("cases 6, 8, 13: clients that come and go, at every byte of the handshake")
def clients_that_leave(rig):
    whole = struct.pack(">I", 3) + Connection.option(LIST) + Connection.option(INFO, Connection.info_data("v")) + Connection.option(
        GO, Connection.info_data("nothere"))
    for n in list(range(0, 60)) + [len(whole)]:
        c = rig.dial()
        c.send(whole[:n])
        c.socket.close() if n % 2 else c.reset()
    for n in range(20):
        c = rig.connect()
        c.send(c.option(EXPORT_NAME, b"nothere"))
        c.reset() if n % 2 else c.socket.close()
        c = rig.session()
        c.reset() if n % 2 else c.socket.close()


@case("cases 7, 8: bytes of other protocols, and no bytes at all, then the end of the input")
def scanners(rig):
    rng = random.Random(5)
    for junk in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"", b"\0", rng.randbytes(4096)):
        c = rig.dial()
        try:
            c.send(junk)
            c.socket.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        assert c.closed(5), junk[:10]


@case("case 12: the client's side shut down while it negotiates: what was asked is answered or not, then the end, at once")
def half_closed_in_negotiation(rig):
    for data in (b"", Connection.option(LIST), Connection.option(LIST)[:10], Connection.option(INFO, b"x" * 10, length=1000)):
        c = rig.dial().greet()
        c.send(data)
        c.socket.shutdown(socket.SHUT_WR)
        assert c.closed(3), data


@case("the connection chosen by GO serves that export: offsets of one are not those of another")
def exports_are_not_mixed_up(rig):
    rig.write(0, pattern(4096, 8))
    other = rig.session(name="secret")
    other.write(0, pattern(4096, 9))
    assert rig.read(0, 4096) == pattern(4096, 8) and rig.session(name="ro").read(0, 4096) == pattern(4096, 9)


main()
