# SPDX-License-Identifier: Apache-2.0
"""Reads recordings for tests: facts from SQLite, records of bpf/event.h by `diesel-analyze dump`."""
import os
import sqlite3
import struct
import subprocess
from collections import namedtuple

SWITCH, SYSCALL, STEP, MARK, FORK, EXEC, EXIT, NAME, LIBRARY, ALIVE, TOTALS, CALLS = range(1, 13)
PAGES, PLACE, READ_SIZES, FAULT, READS = range(13, 18)
STACK = 18
GPU_WAIT, GPU_WORK, GPU_TOTALS, PHASE = range(20, 24)
PREEMPTED, IOWAIT, IN_SYSCALL, CLIPPED, MAJOR_FAULT = (1 << i for i in range(5))
WRITEBACK, FOLDER, NEIGHBOUR, CODE = (1 << i for i in range(5, 9))
WAKER_TASK, WAKER_HARDIRQ, WAKER_SOFTIRQ, WAKER_TIMER, WAKER_NONE = 0, 1, 2, 3, 255

_HEAD = struct.Struct("<QQIIHHI")
_PAYLOADS = {
    SWITCH: ("waking_ns exec_ns waker_tid state syscall_nr waker_context waker_detail", struct.Struct("<QQIHHBB6x")),
    SYSCALL: ("result inode argument fd nr file_type source", struct.Struct("<qQQiHBB")),
    CALLS: ("inode bytes busy_ns n_calls n_reads n_opens file_type source", struct.Struct("<QIIHHHBB8x")),
    PAGES: ("accessed missed n_minor n_major fault_ns", struct.Struct("<4I8xQ")),
    PLACE: ("inode device accessed missed n_reads used_kib direct_kib", struct.Struct("<Q6I")),
    READ_SIZES: ("n0 n1 n2 n3 n4 n5 n6 first", struct.Struct("<8I")),
    FAULT: ("inode page device added_pages sleep_ns n_sleeps n_wakeups", struct.Struct("<QQIIIHH")),
    READS: ("used_bytes direct_bytes network_bytes n_reads", struct.Struct("<QQQI4x")),
    STACK: ("native python syscall_nr in_kernel", struct.Struct("<qqHB13x")),
    MARK: ("value kind", struct.Struct("<Q16xI4x")),
    FORK: ("child_tid child_tgid clone_flags child_start_ns", struct.Struct("<IIQQ8x")),
    EXIT: ("exec_ns queue_ns sleep_ns block_ns", struct.Struct("<QQQQ")),
    NAME: ("comm boot_ns ns_tid parent_tgid", struct.Struct("<16sQII")),
    LIBRARY: ("inode device name", struct.Struct("<QQ16s")),
}
_PAYLOADS[GPU_WAIT] = _PAYLOADS[GPU_WORK] = ("n_launches n_copies stream function gpu_flags",
                                             struct.Struct("<QQQHH4x"))
_PAYLOADS[GPU_TOTALS] = ("n_launches n_copies n_waits wait_ns", struct.Struct("<QQQQ"))
_PAYLOADS[PHASE] = ("name kind", struct.Struct("<Q16xI4x"))
_PAYLOADS[TOTALS] = _PAYLOADS[EXIT]
_PAYLOADS[ALIVE] = _PAYLOADS[NAME]
_CLASSES = {
    kind: namedtuple("Event", "start_ns end_ns tid tgid type flags cpu " + names)
    for kind, (names, _) in _PAYLOADS.items()
}
_PLAIN = namedtuple("Event", "start_ns end_ns tid tgid type flags cpu")


def _decode(record):
    head = _HEAD.unpack_from(record)
    kind = head[4]
    if kind not in _PAYLOADS:
        return _PLAIN(*head)
    return _CLASSES[kind](*head, *_PAYLOADS[kind][1].unpack_from(record, 32))


class Recording:
    def __init__(self, path):
        with sqlite3.connect("file:%s?mode=ro" % path, uri=True) as db:
            self.info = dict(db.execute("SELECT key, value FROM info"))
        db.close()
        program = os.path.join(os.environ.get("DIESEL_BIN", "build/release/bin"), "diesel-analyze")
        records = subprocess.run([program, "dump", path], check=True, capture_output=True).stdout
        self.events = [_decode(records[i : i + 64]) for i in range(0, len(records), 64)]

    def of(self, kind, tid=None):
        return [e for e in self.events if e.type == kind and tid in (None, e.tid)]

    def number(self, key):
        return int(self.info[key])
