# SPDX-License-Identifier: Apache-2.0
"""Nodes with only their registry: processes of registry_node, and the events that they reported."""
import os
import subprocess
import threading

from common.waiting import PATIENCE_S, wait_until
from servers import BIN, URGENT

class Node:
    def __init__(self, url, name, address, **env):
        self.name, self.address, self.lines = name, address, []
        environment = {k: v for k, v in os.environ.items() if not k.startswith("DIESEL_REDIS")} | env
        self.process = subprocess.Popen([*URGENT, BIN / "registry_node", url, name, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, encoding="utf-8", errors="surrogateescape", env=environment)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def join(self, job, uid=1000, weight=1 << 30):
        self.say(f"join {uid} {job} {weight}")

    def leave(self, job, uid=1000):
        self.say(f"leave {uid} {job}")

    def views(self, job):
        """Returns all reported views of this job: a list of {name: (address, incarnation, weight)}."""
        views = []
        for line in list(self.lines):
            words = line.split(" ")
            if words[:2] == ["members", job]:
                views.append({w.split("@")[0]: tuple(w.split("@")[1].split("/")) for w in words[2:]})
        return views

    def view(self, job):
        views = self.views(job)
        return views[-1] if views else None

    def sees(self, job, *names):
        wait_until(lambda: f"{self.name} sees {self.view(job)}, not {names}: {self.lines[-5:]}", lambda: self.view(job) is not None and sorted(self.view(job)) == sorted(names))

    def server(self):
        return next((line for line in reversed(self.lines) if line.startswith("server ")), None)

    def server_is(self, text):
        wait_until(lambda: f"{self.name}: {self.lines}", lambda: (self.server() or "").startswith("server " + text))

    def stop(self):
        """Ends the node as it stops by itself."""
        if self.process.poll() is None:
            self.say("stop")
        return self.end()

    def kill(self):
        self.process.kill()
        return self.end()

    def end(self):
        status = self.process.wait(PATIENCE_S)
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        return status
