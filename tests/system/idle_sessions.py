"""Idle sessions beside active ones: idle_sessions.py ADDRESS TARGET PID COUNT KIB ROUNDS LOAD...

LOAD is a program that does its work on other sessions and prints `iops=N ... errors=0`. Rounds with COUNT idle sessions
and without take turns; what an idle session holds is asserted, the ratios of rates and of CPU time are printed."""
import os, re, socket, statistics, struct, subprocess, sys, time

from scsi_client import GOOD, Session

address, target, pid, count, kib, rounds = *sys.argv[1:3], *map(int, sys.argv[3:7])
load = sys.argv[7:]


def resident():
    with open("/proc/%d/statm" % pid) as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_ns():
    """Of all threads."""
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, task)) as stat:
            total += int(stat.read().split()[0])
    return total


def run_load():
    """Operations a second, and the daemon's CPU time for one."""
    before = cpu_ns()
    done = subprocess.run(load, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "errors=0" in done.stdout.split(), done.stdout + done.stderr
    iops = float(re.search(r"\biops=([0-9.]+)", done.stdout).group(1))
    return iops, (cpu_ns() - before) / iops


def idle_sessions():
    before = resident()
    idle = [Session(address, target, name="iqn.2026-01.org.example:idle%d" % n, isid=n + 1) for n in range(count)]
    held.append((resident() - before) / count)
    return idle


def end(idle):
    for s in idle:
        assert s.command(bytes(6))[0] == GOOD, "an idle session is still served"
        s.socket.close()


run_load()  # what the daemon takes once and keeps
ratios, held = [], []
for turn in range(rounds):  # with and without take turns in coming first
    if turn % 2 == 0:
        alone = run_load()
    idle = idle_sessions()
    beside = run_load()
    end(idle)
    if turn % 2 == 1:
        alone = run_load()
    ratios.append((beside[0] / alone[0], beside[1] / alone[1]))
assert max(held) <= kib * 1024, "%.1f KiB for each idle session" % (max(held) / 1024)
rate, cpu = (sorted(r[i] for r in ratios) for i in (0, 1))
print("%d idle sessions hold %.1f KiB each; beside them the active ones did %.2f times what they did alone (%s)," %
      (count, max(held) / 1024, statistics.median(rate), ", ".join("%.2f" % r for r in rate)))
print("with %.2f times the CPU time for an operation (%s)" % (statistics.median(cpu), ", ".join("%.2f" % r for r in cpu)))
