"""Logins with raw PDUs (RFC 7143, sections 6, 11.12, 11.13, 13): iscsi_login.py ADDRESS TARGET PID [digests]"""
from iscsi_initiator import *


@case("RFC 7143, 6.2: C bit; pairs span PDUs; TargetPortalGroupTag in the first answer to C=0")
def a_login_split_in_the_middle_of_a_key(rig):
    s = rig.connect()
    text = ("InitiatorName=%s\0TargetName=%s\0SessionType=Normal\0MaxBurstLength=65536\0ImmediateData=Yes\0" % (s.name, rig.target)).encode()
    for cut in (text[:9], text[9:40], text[40:100]):
        s.login_send(cut, OPERATIONAL | C)
        p = s.login_answer()
        assert p.login_status == 0 and p.data == b"" and p.flags == OPERATIONAL, p
    s.login_send(text[100:], OPERATIONAL | TO_FULL)
    p = s.login_answer()
    assert p.login_status == 0 and p.flags == OPERATIONAL | TO_FULL, p
    assert p.keys["MaxBurstLength"] == "65536" and p.keys["ImmediateData"] == "Yes" and p.keys["TargetPortalGroupTag"] == "1", p.keys
    s.make_ready()


@case("RFC 7143, 6.2, 13.23, 13.25: keys of the standard are understood, others NotUnderstood; 6.1: upper case counts")
def keys_of_the_standard_and_others(rig):
    offers = {"TaskReporting": ("RFC3720", ["RFC3720"]), "IFMarker": ("Yes", ["No", "Reject"]), "OFMarker": ("No", ["No", "Reject"]),
              "IFMarkInt": ("1~2048", ["Reject"]), "OFMarkInt": ("2048", ["Reject"]), "MaxConnections": ("8", ["1"]),
              "ErrorRecoveryLevel": ("2", ["0"]), "InitialR2T": ("No", ["No"]), "ImmediateData": ("No", ["No"]),
              "MaxOutstandingR2T": ("4", ["4"]), "DataPDUInOrder": ("No", ["Yes"]), "DataSequenceInOrder": ("No", ["Yes"]),
              "DefaultTime2Wait": ("5", ["5"]), "DefaultTime2Retain": ("7", ["0"]), "MaxBurstLength": ("16384", ["16384"]),
              "FirstBurstLength": ("8192", ["8192"]), "HeaderDigest": ("None", ["None"]), "DataDigest": ("CRC32C,None", ["CRC32C"]),
              "X-org.example.key": ("1", ["NotUnderstood"]), "headerdigest": ("None", ["NotUnderstood"]),
              "maxburstlength": ("1", ["NotUnderstood"]), "NodeArchitecture": ("x", ["NotUnderstood", None])}
    s = rig.connect()
    p = s.login(["%s=%s" % (k, v) for k, (v, _) in offers.items()] + ["InitiatorAlias=a", "MaxRecvDataSegmentLength=8192"])
    assert p.login_status == 0, p
    for key, (_, right) in offers.items():
        assert p.keys.get(key) in right, (key, p.keys.get(key))
    asked = [k for k, _ in p.pairs if k in offers]
    assert asked == [k for k in offers if k in asked], "answers in another order than the questions"
    assert "InitiatorAlias" not in p.keys and int(p.keys["MaxRecvDataSegmentLength"]) >= 8192


@case("RFC 7143, 6.3; case 12: a key sent twice is a login reject, also in another request")
def a_key_sent_twice(rig):
    for twice in (["MaxBurstLength=65536", "MaxBurstLength=65536"], ["HeaderDigest=None", "HeaderDigest=CRC32C"]):
        s = rig.connect()
        assert s.login(twice).login_status == 0x0200 and s.closed(), twice
    s = rig.connect()
    assert s.login(flags=OPERATIONAL).login_status == 0
    assert s.login(["InitiatorName=" + s.name], names=False).login_status == 0x0200 and s.closed()


@case("RFC 7143, 6.2.2: a value that cannot be is answered by Reject or by one that can")
def values_that_cannot_be(rig):
    offers = ["MaxBurstLength=1", "FirstBurstLength=99999999999", "MaxOutstandingR2T=0", "InitialR2T=Maybe", "ImmediateData=yes",
              "HeaderDigest=SHA", "ErrorRecoveryLevel=3", "MaxConnections=0", "DefaultTime2Wait=4000", "DataPDUInOrder="]
    p = rig.connect().login(offers)
    assert p.login_status == 0 and {p.keys[o.split("=")[0]] for o in offers} == {"Reject"}, p.keys


@case("RFC 7143, 13.14: FirstBurstLength above MaxBurstLength, in either order; alone it is held against the default")
def first_burst_above_max_burst(rig):
    for keys in (["FirstBurstLength=65536", "MaxBurstLength=8192"], ["MaxBurstLength=8192", "FirstBurstLength=65536"]):
        p = rig.connect().login(keys)
        assert p.login_status == 0x0200 or int(p.keys["FirstBurstLength"]) <= int(p.keys["MaxBurstLength"]), p
    p = rig.connect().login(["FirstBurstLength=16777215"])
    assert p.login_status == 0 and int(p.keys["FirstBurstLength"]) <= 262144, p.keys


@case("RFC 7143, 13.21: SessionType may be missing, Normal is meant")
def no_session_type(rig):
    s = rig.connect()
    assert s.login().login_status == 0
    s.make_ready()
    assert rig.connect().login(["SessionType=Other"]).login_status == 0x0200


@case("RFC 7143, 6.3.1, 11.12.5: the table of ISID and TSIH")
def isid_and_tsih(rig):
    one = rig.session()
    other = rig.connect(name=one.name)
    assert other.login(tsih=one.tsih).login_status == 0x020A and other.closed(), "a new ISID with the TSIH of another"
    lost = rig.connect(name=one.name, isid=one.isid)
    assert lost.login(tsih=(one.tsih + 1000) & 0xFFFF).login_status == 0x020A, "a TSIH nobody has"
    one.fence()
    again = rig.session(name=one.name, isid=one.isid)
    assert one.closed() and again.tsih not in (0, one.tsih), "the same ISID, TSIH 0: reinstated"
    beside = rig.session(name=one.name)
    again.fence()
    assert beside.tsih != again.tsih


@case("RFC 7143, 11.13.5: 0206, one connection a session; the session goes on")
def a_second_connection(rig):
    one = rig.session("MaxConnections=4")
    assert one.agreed["MaxConnections"] == "1"
    second = rig.connect(name=one.name, isid=one.isid)
    assert second.login(tsih=one.tsih, ref_itt=1 << 16).login_status == 0x0206 and second.closed()
    one.fence()


@case("RFC 7143, 6.3.1, 11.13.3, 11.13.6: TSIH in the last response only; T only if asked; straight to full feature, or by stages")
def stages(rig):
    s = rig.connect()
    p = s.login(["AuthMethod=None"], flags=SECURITY)
    assert p.flags == SECURITY and p.tsih == 0 and p.login_status == 0, p
    p = s.login([], names=False, flags=SECURITY | TO_OPERATIONAL)
    assert p.flags == SECURITY | TO_OPERATIONAL and p.tsih == 0, p
    p = s.login(["ImmediateData=Yes"], names=False, flags=OPERATIONAL)
    assert p.flags == OPERATIONAL and p.tsih == 0, p
    p = s.login([], names=False, flags=OPERATIONAL | TO_FULL)
    assert p.flags == OPERATIONAL | TO_FULL and p.tsih != 0, p
    s.make_ready()
    assert rig.connect().login(["AuthMethod=None"], flags=SECURITY | TO_FULL).login_status == 0
    for flags in (T | SECURITY, OPERATIONAL | T | 1, OPERATIONAL | T | 2, 8 | TO_FULL, OPERATIONAL | TO_FULL | C):
        p = rig.connect().login(flags=flags)
        assert p.login_status == 0x0200, "%02x: %r" % (flags, p)


@case("RFC 7143, 11.12.8: ExpCmdSN is the CmdSN of the leading login; logins do not advance it")
def exp_cmd_sn_of_a_login(rig):
    for first in (1, 77, 0xFFFFFFFF):
        s = rig.connect()
        s.cmdsn = first
        for flags in (SECURITY, SECURITY | TO_OPERATIONAL, OPERATIONAL | TO_FULL):
            p = s.login(names=flags == SECURITY, flags=flags)
            assert p.expcmdsn == first, p
        assert s.do(READY).status in (GOOD, CHECK)


@case("RFC 7143, 11.13.5: 0203 no such target, 0207 a name is missing, 0205 version, 0200 for what cannot be")
def statuses(rig):
    names = ["InitiatorName=iqn.2026-01.org.example:c", "TargetName=iqn.2026-01.org.example:none"]
    for keys, status in ((names, 0x0203), (names[:1], 0x0207), (["TargetName=" + rig.target], 0x0207), ([], 0x0207),
                         (["SessionType=Discovery"], 0x0207), (["InitiatorName=", "TargetName=x"], 0x0200), (["nonsense"], 0x0200),
                         (["=x"], 0x0200)):
        s = rig.connect()
        s.login_send(keys)
        p = s.login_answer()
        assert p.login_status == status and not p.flags & T and s.closed(), (keys, p)
    assert rig.connect().login(version_min=1, version_max=1).login_status == 0x0205
    assert rig.connect().login(version_min=0, version_max=3).login_status == 0, "a range that holds ours"


@case("RFC 7143, 6.1, 6.3: segments of 8,192 bytes, 8 KiB of keys at least, and an end at 64 KiB")
def much_text(rig):
    s = rig.connect()
    s.login_send(b"X-a=" + b"y" * 8188 + b"\0" * 100)
    assert s.login_answer().login_status == 0x0200, "a segment longer than 8,192 bytes"
    s = rig.connect()
    filler = b"".join(b"X-%03d=%s\0" % (n, b"z" * 240) for n in range(32))
    assert len(filler) < 8192
    s.login_send(filler, OPERATIONAL | C)
    assert s.login_answer().login_status == 0
    p = s.login()
    while not p.flags & T:
        assert p.login_status == 0 and p.flags & C, p
        s.login_send([])
        p = s.login_answer()
    assert s.agreed["X-031"] == "NotUnderstood"
    s = rig.connect()
    for _ in range(20):
        s.login_send(filler, OPERATIONAL | C)
        p = s.login_answer()
        if p.login_status:
            break
    assert p.login_status == 0x0200 and s.closed(), p


@case("case 1: what is no login, first of all: closed, and nothing else happens")
def first_pdu_is_no_login(rig):
    for opcode in (NOP_OUT, I | NOP_OUT, COMMAND, TASK, TEXT, DATA_OUT, LOGOUT, SNACK, NOP_IN, 0x1C, REJECT):
        s = rig.connect()
        s.send(pdu(opcode, itt=1, ttt=NO_TAG))
        assert s.closed(5), hex(opcode)
    s = rig.connect()
    assert s.login(flags=OPERATIONAL).login_status == 0
    s.send(pdu(NOP_OUT, itt=1, ttt=NO_TAG))
    assert s.closed(5), "in the middle of a login"


@case("RFC 7143, 4.2.1, 11.12: no login in full feature phase, and fields that must not change in one")
def misplaced_logins(rig):
    s = rig.session()
    s.login_send(["InitiatorName=" + s.name])
    s.rejected(4, 0x0B)
    s.fence()
    for fields in ({"itt": 8}, {"tsih": 5}, {"ref_itt": 5 << 16}):
        s = rig.connect()
        assert s.login(flags=OPERATIONAL).login_status == 0
        assert s.login([], names=False, **fields).login_status == 0x0200, fields


@case("case 13: a digest is chosen from the initiator's list, in its order")
def digests_are_chosen_from_the_list(rig):
    for offer, choice in (("None", "None"), ("CRC32C", "CRC32C"), ("None,CRC32C", "None"), ("CRC32C,None", "CRC32C"),
                          ("X,None", "None"), ("X", "Reject")):
        s = rig.connect()
        p = s.login(["HeaderDigest=" + offer, "DataDigest=" + offer])
        assert p.login_status == 0 and p.keys["HeaderDigest"] == p.keys["DataDigest"] == choice, (offer, p.keys)
        s.make_ready()
        s.fence()


@case("case 14; digests: what was agreed works in discovery, from the first PDU on")
def digests_in_discovery(rig):
    s = rig.discovery("HeaderDigest=CRC32C,None", "DataDigest=CRC32C,None")
    assert s.header_digest and s.data_digest
    assert ("TargetName", rig.target) in s.text("SendTargets=All").pairs
    assert s.logout() == 0 and s.closed()


@case("case 15: sessions that were cut count no more, and what is being replaced does not count against its heir")
def as_many_sessions_as_may_be(rig):
    sessions = [rig.session(ready=False)]
    while True:
        s = rig.connect()
        p = s.login()
        if p.login_status:
            break
        sessions.append(s)
        assert len(sessions) < 1000
    assert p.login_status == 0x0302 and len(sessions) > 10, (p, len(sessions))
    for old in sessions[::2]:
        old.reset()
    for old in sessions:
        new = rig.connect(name=old.name, isid=old.isid)
        assert new.login().login_status == 0
    rig.clean()


@case("case 16: a login of twelve bytes, and one that stops after a request, delay nobody")
def logins_that_stall(rig):
    for n in range(20):
        s = rig.connect()
        s.socket.sendall(b"\x43\x87" + bytes(10)) if n % 2 else s.login(flags=OPERATIONAL)
    start = time.monotonic()
    for _ in range(10):
        rig.session()
    assert time.monotonic() - start < 1


@case("RFC 7143, 7.4.1, 13.21: discovery has ErrorRecoveryLevel 0, and SendTargets and logout only")
def discovery_takes_two_requests(rig):
    s = rig.discovery("ErrorRecoveryLevel=2")
    assert s.agreed["ErrorRecoveryLevel"] == "0"
    for opcode in (COMMAND, TASK, NOP_OUT):
        s.send(s.request(opcode, F | (1 if opcode == TASK else 0), immediate=True, ttt=NO_TAG))
        s.rejected(4, 5, 0x0B)
    assert ("TargetName", rig.target) in s.text("SendTargets=All").pairs
    assert s.logout() == 0 and s.closed()


@case("RFC 7143, 7.4.2: discovery sessions are unique by name, ISID and portal")
def discovery_sessions_of_one_name(rig):
    one = rig.discovery()
    beside = rig.discovery(name=one.name)
    same = rig.discovery(name=one.name, isid=one.isid)
    assert one.closed(), "the same name and ISID at the same portal"
    for s in (beside, same):
        assert s.text("SendTargets=All").opcode == TEXT_RESPONSE


@case("RFC 7143, 7.4.2, appendix C: two portals of one portal group: each tells of both, and discovery sessions at both stand")
def two_portals(rig):
    one, other = rig.discovery(), None
    for s, address in ((one, rig.address), (None, rig.second)):
        s = s or rig.discovery(name=one.name, isid=one.isid, address=address)
        addresses = [v for k, v in s.text("SendTargets=" + rig.target).pairs if k == "TargetAddress"]
        assert addresses[0] == address + ",1" and {rig.address + ",1", rig.second + ",1"} <= set(addresses), addresses
    assert one.text("SendTargets=All").opcode == TEXT_RESPONSE, "it is still there"
    session = rig.session(address=rig.second)
    again = rig.session(name=session.name, isid=session.isid)
    assert session.closed(), "a session belongs to the portal group: reinstated through the other portal"


@case("case 9, RFC 7143, 11.13.5: AuthMethod lists; nobody wants CHAP here; access.py has those who do")
def authentication_methods(rig):
    for offer in ("None", "CHAP,None", "KRB5,None", "X,CHAP,None"):
        p = rig.connect().login(["AuthMethod=" + offer], flags=SECURITY | TO_FULL)
        assert p.login_status == 0 and p.keys["AuthMethod"] == "None", (offer, p)


main()
