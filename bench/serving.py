# SPDX-License-Identifier: Apache-2.0
"""Packs a dataset, and runs a dieseld for the time of a benchmark or test."""
import contextlib
import os
import pathlib
import subprocess
import threading

import support


def pack(source, dataset, *options):
    """Runs dieselctl pack, and returns the dataset's path."""
    subprocess.run([support.program("dieselctl"), "pack", source, dataset, *map(str, options)], check=True,
                   stdout=subprocess.DEVNULL)
    return dataset


def grouped(options):
    """Turns flat options into the option groups that a DataLoader takes."""
    from diesel_loader.options import GROUP_OF, GROUPS
    plain = {name: value for name, value in options.items() if name not in GROUP_OF}
    of_groups = {}
    for name, value in options.items():
        if name in GROUP_OF:
            of_groups.setdefault(GROUP_OF[name], {})[name] = value
    return {**plain, **{group: GROUPS[group](**told) for group, told in of_groups.items()}}


class Daemon:
    """dieseld on a socket of its own in `folder`; sets DIESEL_SOCKET while it runs.

    prefix: command(argv) of a Throttle, to put the daemon in its group. log: a file for its messages. Also samples the daemon's resident
    memory: peak_rss_bytes."""

    def __init__(self, folder, *options, prefix=None, log=None):
        self.socket = pathlib.Path(folder) / "dieseld.sock"
        argv = [support.program("dieseld"), "--socket", str(self.socket), *map(str, options)]
        self.argv = prefix(argv) if prefix else argv
        self.peak_rss_bytes, self.log = 0, log

    def __enter__(self):
        read, write = os.pipe()
        with open(self.log, "ab") if self.log else contextlib.nullcontext() as log:
            self.process = subprocess.Popen([*self.argv, "--ready-fd", str(write)], pass_fds=[write], stderr=log)
        os.close(write)
        with open(read, "rb") as ready:
            if ready.read(6) != b"ready\n":
                status, said = self.process.wait(), pathlib.Path(self.log).read_text().splitlines()[-1:] if self.log else []
                raise RuntimeError(": ".join([f"dieseld exited immediately with exit status {status}", *said]))
        self._previous = os.environ.get("DIESEL_SOCKET")
        os.environ["DIESEL_SOCKET"] = str(self.socket)
        self._stop = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        return self

    def _sample(self):
        while not self._stop.wait(0.05):
            self.peak_rss_bytes = max(self.peak_rss_bytes, self.rss_bytes())

    def rss_bytes(self):
        try:
            for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        except OSError:
            pass
        return 0

    def cpu_s(self):
        """Returns the CPU seconds that the daemon has used so far."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __exit__(self, *_):
        self._stop.set()
        self._sampler.join()
        if self._previous is None:
            os.environ.pop("DIESEL_SOCKET", None)
        else:
            os.environ["DIESEL_SOCKET"] = self._previous
        self.process.terminate()
        self.process.wait()
