"""What initiators hear when the daemon is told to stop, and that is the last they hear: iscsi_drain.py ADDRESS TARGET PID [digests]"""
import signal

from iscsi_initiator import *


@case("case 30; RFC 7143, 4.2.6, 11.9.1: a logout request with the time there is; then, to those who stay, the drop is announced")
def stop(rig):
    leaving, staying = rig.session(), rig.session("InitialR2T=Yes", "ImmediateData=No")
    discovery, half = rig.discovery(), rig.connect()
    assert half.login(flags=OPERATIONAL).login_status == 0
    command, r2t = staying.write_waiting(64)
    os.kill(rig.pid, signal.SIGTERM)
    for s in (leaving, staying):
        p = s.receive(ASYNC)
        assert p.event == 1 and 0 < p.parameter3 <= 5 and p.itt == NO_TAG, p
    staying.send(staying.data_out(command, r2t.ttt, 0, 0, bytes(4096)))
    staying.answer(command).is_good()
    assert leaving.do(read10(0, 8), read=4096).status == GOOD, "what is asked meanwhile is done"
    assert leaving.logout() == 0 and leaving.closed()
    assert discovery.closed(2) and half.closed(2)
    try:
        late = rig.connect()
        late.login_send(["InitiatorName=" + late.name, "TargetName=" + rig.target])
        assert late.closed(), "a login while the target is being stopped"
    except OSError:
        pass
    p = staying.receive(ASYNC)
    assert p.event in (2, 3), p
    assert staying.closed()
    rig.gone = True


main()
