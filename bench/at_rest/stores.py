# SPDX-License-Identifier: Apache-2.0
"""Shared by the benchmarks of datasets: programs in C that are linked with the dataset's modules, servers for comparison, and CPU time."""
import json
import os
import pathlib
import resource
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import support
from jobs import usage

os.environ.setdefault("DIESEL_BIN", os.path.dirname(support.program("dieselctl")))
sys.path.insert(0, str(support.ROOT / "tests" / "integration" / "redis"))
import servers


def build(folder, source, *options):
    """Returns the path of the program built from a C source of this folder. The linker leaves out modules that it does not call."""
    made = pathlib.Path(support.program("dieselctl")).parent.parent
    modules = [*sorted((made / "dataset").glob("*/*.a")), made / "sqlite/libdiesel_sqlite.a", made / "lib/libdiesel_base.a"]
    includes = [f"-I{support.ROOT / module / 'include'}" for module in ("lib", "dataset", "sqlite")]
    return support.build(folder, HERE / source, "-D_GNU_SOURCE", *includes, "-Wl,--start-group",
                         *(module for module in modules if module.parent.name != "remote"), "-Wl,--end-group",
                         "-lsqlite3", "-lhiredis", "-lssl", "-lcrypto", "-lxxhash", "-lm", "-pthread", *options)


def timed(*command, **options):
    """Runs a command. Returns its seconds, and the CPU seconds of it and its children. No other child of this process may end meanwhile."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(list(map(str, command)), check=True, **{"stdout": subprocess.DEVNULL} | options)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"s": seconds, "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def told(*command):
    """Returns the JSON that a command prints."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{pathlib.Path(command[0]).name} failed")
    return json.loads(done.stdout)


def tell(steal):
    print(f"steal {steal.ratio:.1%}; other processes, including the servers, {steal.neighbours:.1%} of {os.cpu_count()} CPUs", flush=True)


class Redis(servers.Server):
    """Redis without a log of writes; also on a Unix socket, which is faster."""

    def __init__(self, folder):
        if not shutil.which("redis-server"):
            support.skip("needs redis-server (apt install redis-server)")
        self.socket = pathlib.Path(folder) / "redis.sock"
        super().__init__(folder, "--unixsocket", str(self.socket), "--appendonly", "no")
        support.wait_for(self.socket.exists, "redis-server starts")

    def cpu_s(self):
        return usage.cpu_of([self.process.pid])

    def count(self):
        return int(self.cli("dbsize"))

    def clear(self):
        self.cli("flushall", "sync")


class Memcached:
    """memcached with enough memory for all values."""

    def __init__(self, folder, mib):
        self.socket = pathlib.Path(folder) / "memcached.sock"
        self.process = subprocess.Popen(["memcached", "-u", "root", "-m", str(mib), "-s", str(self.socket)], start_new_session=True)
        support.wait_for(self.socket.exists, "memcached starts")

    @staticmethod
    def why_not():
        return None if shutil.which("memcached") else "memcached is not installed (apt install memcached)"

    def ask(self, command, end):
        import socket
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(self.socket))
            s.sendall(command + b"\r\n")
            said = b""
            while not said.endswith(end):
                said += s.recv(1 << 16)
            return said

    def cpu_s(self):
        return usage.cpu_of([self.process.pid])

    def count(self):
        said = self.ask(b"stats", b"END\r\n").split()
        return int(said[said.index(b"curr_items") + 1])

    def clear(self):
        self.ask(b"flush_all", b"OK\r\n")

    def stop(self):
        self.process.kill()
        self.process.wait()
