# SPDX-License-Identifier: Apache-2.0
"""Resources that processes use, from /proc: CPU seconds of the whole machine and of processes with their descendants, and memory."""
import os
import pathlib

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def busy_s():
    """Returns the CPU seconds that all processes of the machine have used."""
    with open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _, _, irq, softirq = (int(x) for x in stat.readline().split()[1:8])
    return (user + nice + system + irq + softirq) * TICK_S


def tree(pid):
    """Returns the process ids of the descendants of pid."""
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                found += [int(child), *tree(int(child))]
    except OSError:
        pass
    return found


def cpu_of(roots):
    """Returns the CPU seconds of these processes, of all that they have waited for, and of living children."""
    total = 0.0
    for root in roots:
        for pid in (root, *tree(root)):
            try:
                fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                total += sum(int(field) for field in fields[11:15]) * TICK_S
            except OSError:
                pass
    return total


def smaps(pid, field):
    try:
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
