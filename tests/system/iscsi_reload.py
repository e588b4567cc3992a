"""The configuration changes while commands run: iscsi_reload.py ADDRESS TARGET PID COMMAND..., which makes the change"""
import subprocess

from iscsi_initiator import *

CHANGE = sys.argv[4:]
del sys.argv[4:]


@case("case 33: no BUSY and no TASK SET FULL, no lost session and no unit attention, for a change of what others may use")
def reads_and_writes_go_on(rig):
    s = rig.session()
    change = subprocess.Popen(CHANGE)
    after = 0
    while after < 20:
        after += change.poll() is not None
        s.do(write10(64, 8), write=bytes(4096)).is_good()
        s.do(read10(64, 8), read=4096).is_good()
    assert change.wait() == 0
    for name, status in (("more-1", 0x0202), ("more-21", 0)):
        other = rig.connect()
        other.login_send(["InitiatorName=" + other.name, "TargetName=iqn.2026-01.org.example:" + name])
        assert other.login_answer().login_status == status, "the change did not come: " + name
    s.fence()


main()
