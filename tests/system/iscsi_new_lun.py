"""A LUN appears together with a list of who may use it: iscsi_new_lun.py ADDRESS TARGET PID COMMAND..., which makes the change"""
import subprocess

from iscsi_initiator import *

CHANGE = sys.argv[4:]
del sys.argv[4:]
OPTED = "iqn.2026-01.org.example:a"


@case("a LUN that is new is seen by nobody whom the list that comes with it keeps out, not even for a moment")
def new_lun_and_its_list(rig):
    s = rig.session()
    change = subprocess.Popen(CHANGE)
    asked = 0
    while True:
        s.send(*[s.command(READY, lun=1) for _ in range(16)])
        answers = []
        while len(answers) < 16 and (not answers or answers[-1].opcode != ASYNC):
            answers.append(s.receive(RESPONSE, ASYNC))
        assert all(Answer([p]).asc == "5/25/00" for p in answers if p.opcode == RESPONSE)
        asked += len(answers)
        if answers[-1].opcode == ASYNC:
            break
    assert s.closed()
    assert change.wait() == 0 and asked > 0, asked
    s = rig.session()
    s.do(READY, lun=1).failed("5/25/00")
    s.do(read10(0, 8), read=4096).is_good()
    chosen = rig.session(name=OPTED)
    chosen.make_ready(1)
    chosen.do(read10(0, 8), read=4096, lun=1).is_good()


main()
