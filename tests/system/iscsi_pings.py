"""Pings of the target, each second, an answer within another (RFC 7143, 11.18, 11.19): iscsi_pings.py ADDRESS TARGET PID [digests]"""
from iscsi_initiator import *


@case("cases 31 and 32; RFC 7143, 11.19: a ping has a tag, no data and a LUN that is there; whoever answers, with whatever LUN, or says anything else, lives")
def pings_of_the_target(rig):
    answering, talking, silent = rig.session(), rig.session(), rig.session()
    talking.answers_pings = False
    start = time.monotonic()
    while time.monotonic() - start < 4:
        try:
            answering.receive(timeout=0.3)
        except socket.timeout:
            pass
        talking.fence()
    assert len(answering.unasked) >= 2, "it was pinged %d times" % len(answering.unasked)
    assert all(p.ttt != NO_TAG and p.lun == 0 and p.data == b"" for p in answering.unasked)
    for p in answering.unasked[-1:]:
        answering.send(pdu(I | NOP_OUT, F, itt=NO_TAG, ttt=p.ttt, lun=1 << 48, cmdsn=answering.cmdsn))
    answering.fence()
    talking.fence()
    assert silent.closed(1), "it never said anything"


@case("case 5: pings that are answered cost no memory")
def a_hundred_sessions_are_pinged(rig):
    sessions = [rig.session() for _ in range(100)]

    def serve(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for s in sessions:
                try:
                    s.receive(timeout=0.001)
                except socket.timeout:
                    pass
    serve(2.5)
    before, pinged = rig.resident(), sum(len(s.unasked) for s in sessions)
    serve(3)
    pinged = sum(len(s.unasked) for s in sessions) - pinged
    assert pinged >= 200, pinged
    assert rig.resident() - before < 512 << 10, "%d bytes for %d pings" % (rig.resident() - before, pinged)


main()
