# SPDX-License-Identifier: Apache-2.0
"""Tests the rights of each process of dieseld while all kinds of them work: capabilities, no new privileges, filters of system calls
(docs/explanation/security.md)."""
import array
import contextlib
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import threading
import unittest

import assist_support
import dieseld_support as support
from common.mirror import Mirror
from common.processes import ancestors
from common.wire_client import Client
from free_ports import free_port

ROOT = pathlib.Path(__file__).resolve().parents[3]
DAC_OVERRIDE, READ_ALL, FOWNER, KILL, SETGID, SETUID, NET_BIND, SYS_CHROOT, SYS_PTRACE, SYS_ADMIN, PERFMON, BPF = (
    1 << number for number in (1, 2, 3, 5, 6, 7, 10, 18, 19, 21, 38, 39))
SENSES = BPF | PERFMON | SYS_PTRACE | READ_ALL
ASSISTS = BPF | PERFMON | SYS_PTRACE | SYS_ADMIN | SYS_CHROOT | SETUID | SETGID

# By name: (capabilities, number of filters) once a process has begun its work, in any of these ways, and the capabilities that it may have
# before. A filter of its own is added to those of its ancestors.
TABLE = {
    "dieseld": ({(DAC_OVERRIDE | READ_ALL | FOWNER, 1)}, None),
    "dieseld-forks": ({(READ_ALL, 1)}, READ_ALL),
    "dieseld-reader": ({(READ_ALL, 3), (READ_ALL, 2)}, READ_ALL),
    "dieseld-unpack": ({(0, 3)}, 0),
    "dieseld-opener": ({(READ_ALL, 2), (0, 3)}, READ_ALL),
    "dieseld-closer": ({(0, 2)}, 0),
    "dieseld-codec": ({(0, 3)}, 0),
    "dieseld-plugin": ({(0, 3)}, 0),
    "dieseld-stager": ({(0, 2)}, READ_ALL),
    "dieseld-ksensor": ({(SENSES, 1)}, None),
    "dieseld-kassist": ({(ASSISTS, 1)}, None),
    "dieseld-kpeer": ({(SETUID | SETGID | KILL, 1)}, SETUID | SETGID | KILL | NET_BIND),
    "dieseld-sensor": ({(SENSES & ~BPF, 2)}, SENSES),
    "dieseld-assist": ({(0, 2)}, ASSISTS),
    "dieseld-ahead": ({(0, 2)}, ASSISTS),
    "dieseld-peer": ({(0, 2)}, SETUID | SETGID),
}

CODEC = r"""
#include <diesel/diesel_codec.h>
#include <time.h>

/* So that it is seen at work, without asking the system for anything. */
static int open_codec(const char *options, struct diesel_codec_output *output, void **state, struct diesel_codec_error *error)
{
	clock_t end = clock() + CLOCKS_PER_SEC;

	*output = (struct diesel_codec_output){.type = DIESEL_CODEC_UINT8, .n_dimensions = 1, .dimensions = {1}};
	while (clock() < end)
		;
	return 0;
}

static int decode(void *state, const struct diesel_codec_sample *sample, void *out, struct diesel_codec_error *error)
{
	*(uint8_t *)out = 7;
	return 0;
}

const struct diesel_codec DIESEL_CODEC = {
	.abi = DIESEL_CODEC_ABI, .bytes = sizeof(struct diesel_codec), .name = "slow", .open = open_codec, .decode = decode};
"""

DECODES = """
import sys
import diesel_loader
from diesel_loader.torch import DataLoader
loader = DataLoader(sys.argv[1], transform=diesel_loader.codec("slow"), batch_size=4)
for data, labels in loader:
    assert set(data.reshape(-1).tolist()) == {7}
print("decoded", flush=True)
sys.stdin.read()
"""


def status_of(path):
    lines = (line.partition(":\t") for line in (path / "status").read_text().splitlines())
    return {name: value.strip() for name, _, value in lines}


class Watch:
    """Repeatedly reads all descendants of this process: pid -> observed states of it, in order."""

    def __init__(self):
        self.seen, self.ended = {}, threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.ended.wait(0.005):
            self.look()

    def look(self):
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, KeyError, ValueError):  # the process has ended
                if not (path / "comm").read_text().startswith("dieseld") or os.getpid() not in ancestors(int(path.name)):
                    continue
                status = status_of(path)
                status["Title"] = (path / "cmdline").read_bytes().rstrip(b"\0").decode()
                if not status["State"].startswith("Z") and status["Title"] and status["Name"].startswith("dieseld"):
                    self.seen.setdefault(int(path.name), []).append(status)

    def names(self):
        return {statuses[-1]["Name"] for statuses in list(self.seen.values())}

    def close(self):
        self.ended.set()
        self.thread.join()


def printed(table):
    return subprocess.run([os.path.join(support.BIN, "dieseld"), "--print-helpers", table], check=True, capture_output=True, text=True).stdout


def titles():
    """Returns {name: title} of all kinds."""
    rows = (re.fullmatch(r"\| `(dieseld-\w+)` \| `(dieseld: [\w ]+)` \| .*", line) for line in printed("ends").splitlines()[2:])
    return {row[1]: row[2] for row in rows}


class Tables(unittest.TestCase):
    def test_the_docs_have_the_table(self):
        for table, page in (("rights", "explanation/security.md"), ("ends", "reference/processes.md")):
            text = (ROOT / "docs" / page).read_text()
            self.assertTrue(f"\n\n{printed(table)}\n" in text, f"docs/{page} has another table than dieseld --print-helpers {table}")

    def test_no_two_kinds_are_called_the_same(self):
        kinds = titles()
        self.assertEqual(len(kinds), len(printed("ends").splitlines()) - 2)
        self.assertEqual(len(set(kinds.values())), len(kinds))
        self.assertEqual(set(kinds), set(TABLE) - {"dieseld"})
        for name in kinds:
            self.assertLess(len(name), 16, "the kernel cuts it")


class Processes(assist_support.Case):
    def codec(self):
        include = self.folder.with_name(self.folder.name + "-include")
        subprocess.run(["cmake", f"-DCMAKE_INSTALL_PREFIX={include}", "-P",
                        pathlib.Path(support.BIN).parent / "daemon/sandboxed/cmake_install.cmake"], check=True, stdout=subprocess.DEVNULL)
        path = include / "slow.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-I", include / "include", "-x", "c", "-o", path, "-"], input=CODEC, text=True,
                       check=True)
        path.chmod(0o644)
        return str(path)

    @contextlib.contextmanager
    def opening(self, daemon, path):
        """Opens the same folder on a file system that does not answer meanwhile, so that an opener is at work."""
        storage, client = Mirror(path), Client(daemon.socket)
        self.addCleanup(storage.close)
        self.addCleanup(client.close)
        fds = os.open(storage.mount, os.O_PATH), os.open(os.path.join(storage.mount, "snapshot"), os.O_RDONLY)
        storage.stop()
        try:
            client.send("OPEN_DATASET", struct.pack("<QII", 0, 0, 0), fds)
            yield
        finally:
            storage.go_on()
            for fd in fds:
                os.close(fd)
        for fd in client.receive()[2]:
            os.close(fd)

    def send_what_nobody_takes(self, daemon):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client, open("/dev/null", "rb") as file:
            client.connect(daemon.socket)
            client.sendmsg([b"12345678"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [file.fileno()]))])

    def job_of(self, command, socket_path):
        process = subprocess.Popen([sys.executable, *map(str, command)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   env=dict(os.environ, DIESEL_SOCKET=socket_path))
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def settled(self, watch, name):
        """Returns whether a process of this name matches the table."""
        states, _ = TABLE[name]
        return any(statuses[-1]["Name"] == name and self.state_of(statuses[-1]) in self.possible(states)
                   for statuses in list(watch.seen.values()))

    def at_work(self, watch, name, daemon):
        def look():
            if name == "dieseld-closer":  # a closer ends soon after its last message
                self.send_what_nobody_takes(daemon)
            return self.settled(watch, name)
        assist_support.wait_for(f"{name} at work", look, daemon)

    @staticmethod
    def state_of(status):
        return int(status["CapEff"], 16), int(status.get("Seccomp_filters", 0))

    @staticmethod
    def possible(states):
        """Returns the states that this machine can show: a container lacks some capabilities, and kernels before Linux 5.9 lack the
        count."""
        here, counts = int(status_of(pathlib.Path("/proc/self"))["CapPrm"], 16), "Seccomp_filters" in status_of(pathlib.Path("/proc/self"))
        return {(capabilities & here, n if counts else 0) for capabilities, n in states}

    def test_each_process_is_as_the_table_says(self):
        source = pathlib.Path(support.SCRATCH, "processes.src", "class")
        source.mkdir(parents=True)
        for i in range(400):
            (source / f"{i:03}").write_bytes((b"%d words " % i * 4000)[:20_000])
        path = support.pack(str(source.parent), "processes", "--zstd", "3")
        watch = Watch()
        self.addCleanup(watch.close)
        daemon = self.daemon("--assist", "--stage", str(self.folder) + "-stage", "--stage-when", "always", "--codec", self.codec(),
                             "--cluster", f"redis://127.0.0.1:{free_port()}", "--cluster-listen", "127.0.0.1:0", cache="1G")
        if "refuses seccomp filters" in daemon.output():
            self.skipTest("no seccomp filters here")
        with self.opening(daemon, path):
            self.at_work(watch, "dieseld-opener", daemon)
        support.probe(daemon, path)
        decodes = self.job_of(["-c", DECODES, path], daemon.socket)
        self.assertEqual(decodes.stdout.readline(), "decoded\n")
        self.job_of([ROOT / "tests/integration/dieseld/sensed_job.py", path], daemon.socket)
        self.job(self.mirror().mount)
        wanted = set(TABLE)
        if not os.path.exists("/sys/kernel/btf/vmlinux"):
            wanted -= {"dieseld-sensor", "dieseld-assist", "dieseld-ahead"}
        for name in sorted(wanted):
            self.at_work(watch, name, daemon)
        watch.close()
        self.check(watch)
        self.check_titles(watch)

    def check_titles(self, watch):
        for name, title in titles().items():
            seen = {statuses[-1]["Title"] for statuses in watch.seen.values() if statuses[-1]["Name"] == name}
            self.assertTrue(seen or name not in watch.names(), name)
            for text in seen:
                self.assertRegex(text, rf"^{title}( \d+)?$")
        readers = {statuses[-1]["Title"] for statuses in watch.seen.values() if statuses[-1]["Name"] == "dieseld-reader"}
        self.assertIn(f"dieseld: reader {os.getuid()}", readers)

    def check(self, watch):
        for pid, statuses in watch.seen.items():
            for status in statuses:
                name = status["Name"]
                self.assertIn(name, TABLE, status)
                _, most = TABLE[name]
                if most is not None:
                    with self.subTest(name, pid=pid):
                        self.assertEqual(int(status["CapEff"], 16) & ~most, 0)
                        self.assertEqual((status["Seccomp"], status["NoNewPrivs"]), ("2", "1"))
            for kind in ("CapInh", "CapAmb"):
                self.assertEqual(int(statuses[-1][kind], 16) & ~int(statuses[-1]["CapPrm"], 16), 0)
            self.assertEqual(statuses[-1]["CapPrm"], statuses[-1]["CapEff"], statuses[-1])


if __name__ == "__main__":
    assist_support.main()
