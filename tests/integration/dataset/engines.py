# SPDX-License-Identifier: Apache-2.0
"""A dataset in a folder, in a folder with its metadata on a real Redis server, and in a bucket of a real S3 server."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / name) for name in ("", "redis", "s3")]

import s3_support
from common.commands import dieselctl
from dieseld_support import SCRATCH
from servers import Server

DIESELCTL = s3_support.DIESELCTL
SOURCE = SCRATCH + "/source"


class Folder:
    """A dataset in a folder. The other engines override the differences."""

    def __init__(self):
        self.dataset, self.env = SCRATCH + "/set", dict(os.environ, TMPDIR=SCRATCH + "/tmp")
        os.makedirs(SCRATCH + "/tmp", exist_ok=True)

    def new(self, name):
        self.dataset = f"{SCRATCH}/{name}"
        return self

    def pack_words(self, *words):
        return ["pack", "-c", "4M", *words, SOURCE, self.dataset]

    def pack(self, *words, **more):
        return self.ctl(*self.pack_words(*words), **more)

    def ctl(self, *words, fails=False):
        """Returns standard output, or the one line of a command that has to fail."""
        done = dieselctl(*words, check=int(fails), env=self.env)
        if fails:
            assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr if fails else done.stdout

    def start(self, *words):
        return subprocess.Popen([DIESELCTL, *words], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                start_new_session=True)

    def json(self, *words):
        return json.loads(self.ctl(*words[:1], "--json", *words[1:]))

    def n_chunks(self):
        return len([name for name in os.listdir(self.dataset + "/chunks") if name.endswith(".chunk")])

    def stop(self):
        pass


class Redis(Folder):
    def __init__(self):
        super().__init__()
        self.server = Server(pathlib.Path(SCRATCH))

    def pack_words(self, *words):
        name = os.path.basename(self.dataset)
        return super().pack_words(*([] if os.path.exists(self.dataset) else ["--meta", self.server.url(name)]), *words)

    def stop(self):
        self.server.stop()


class Bucket(Folder):
    def __init__(self):
        super().__init__()
        self.proxy = s3_support.Proxy(s3_support.juicefs())
        self.env = s3_support.environment(self.proxy.port)

    def new(self, name):
        self.dataset = f"s3://bucket/{name}"
        return self

    def n_chunks(self):
        """Counts the chunks by listing the bucket, as any client may."""
        done = subprocess.run(["curl", "-s", "-f", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user",
                               f"{s3_support.KEY_ID}:{s3_support.SECRET}",
                               f"http://127.0.0.1:{self.proxy.upstream}/bucket?list-type=2&prefix={self.dataset[12:]}%2Fchunks%2F"],
                              capture_output=True, text=True, check=True)
        return done.stdout.count(".chunk</Key>")

    def stop(self):
        s3_support.stop_all()


ENGINES = {"folder": Folder, "redis": Redis, "bucket": Bucket}


@contextlib.contextmanager
def running():
    """Yields the engine that the command line names, and its name."""
    name = sys.argv[1]
    os.makedirs(SOURCE, exist_ok=True)
    engine = ENGINES[name]()
    try:
        yield engine, name
    finally:
        engine.stop()


def write(path, data):
    os.makedirs(os.path.dirname(f"{SOURCE}/{path}"), exist_ok=True)
    with open(f"{SOURCE}/{path}", "wb") as file:
        file.write(data)
