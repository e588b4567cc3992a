"""Idle sessions beside active ones: idle_sessions.py ADDRESS TARGET PID COUNT KIB ROUNDS LOAD...

LOAD is a program that does its work on other sessions and prints `iops=N ... errors=0`. Rounds with COUNT idle sessions
and without take turns; what an idle session holds is asserted, the ratio of the loads is printed."""
import os, re, socket, statistics, struct, subprocess, sys, time

from scsi_client import GOOD, Session

address, target, pid, count, kib, rounds = *sys.argv[1:3], *map(int, sys.argv[3:7])
load = sys.argv[7:]


def resident():
    with open("/proc/%d/statm" % pid) as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run_load():
    done = subprocess.run(load, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "errors=0" in done.stdout.split(), done.stdout + done.stderr
    return float(re.search(r"\biops=([0-9.]+)", done.stdout).group(1))


def idle_session(number):
    return Session(address, target, name="iqn.2026-01.org.example:idle%d" % number, isid=number)


run_load()  # what the daemon takes once and keeps
ratios, held = [], []
for _ in range(rounds):
    alone = run_load()
    before = resident()
    idle = [idle_session(n + 1) for n in range(count)]
    held.append((resident() - before) / count)
    beside = run_load()
    for s in idle:
        assert s.command(bytes(6))[0] == GOOD, "an idle session is still served"
        s.socket.close()
    ratios.append(beside / alone)
assert max(held) <= kib * 1024, "%.1f KiB for each idle session" % (max(held) / 1024)
print("%d idle sessions hold %.1f KiB each; beside them the active ones did %.2f times what they did alone (%s)" %
      (count, max(held) / 1024, statistics.median(ratios), ", ".join("%.2f" % r for r in ratios)))
