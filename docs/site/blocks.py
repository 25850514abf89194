#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of pages for users, and compares the outputs that the pages show with the real ones.

    blocks.py [--write] PAGE.md ...      --write puts real outputs where a page shows others, or none

A page has a line `<!-- run: NEED ... -->`: names of NEEDS, and ports, for which free ones are taken. Its blocks run in one bash:

- `console` has commands, each after "$ ", and below each its output. Numbers, units and the ends of lines are not compared, and a
  line "...", or one that ends so, stands for any text.
- `sh` is run, and each of its commands must succeed.
- A block after `<!-- file: NAME -->` is written to that file, and one after `<!-- patch: NAME -->` changes it, by lines "-" and "+".
- `<!-- wait: COMMAND -->` waits until the command succeeds.
- A block after `<!-- not run: REASON -->` is left as it is, like a block of another kind.
"""
import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.setdefault("DIESEL_BIN", str(ROOT / "build" / "release" / "bin"))).resolve()
STEP = re.compile(r"^<!-- wait: (?P<wait>.*) -->$|(?:^<!-- (?P<mark>file|patch|not run): (?P<name>.*) -->\n)?"
                  r"^```(?P<kind>\w*)\n(?P<text>(?:.*\n)*?)```$", re.M)
END = "--- end of a command ---\n"
DIFFERS = (  # text that differs from run to run: bars, users, identifiers, times, and numbers with their units
    (r"[█▓▒░━]+|#{2,}", "|"), (r"\b[\w-]+@[\w.-]+", "USER"), (r"\b[0-9a-f]{8,}\b", "0"), (r"\b\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\b", "0"),
    (r"[+-]?(?<![A-Za-z])\d[\d.,:]*(?: ?(?:[KMG]i?B(?:/s)?|B|us|ms|s|min)\b)?", "0"), (r"\s+", " "))
# A torchrun for Python 3.11: PyTorch 1's own does not run there, as an Enum's flags leave out the value 0.
TORCHRUN = """#!/usr/bin/python3
from torch.distributed import run
from torch.distributed.elastic.multiprocessing import Std
Std.from_str = classmethod(lambda cls, text: cls(int(text)))
run.main()
"""


def files_of(page, folder):
    for step in STEP.finditer((ROOT / "docs" / page).read_text()):
        if step["mark"] == "file":
            (folder / step["name"]).write_text(step["text"])


def first_verdict(folder, _):
    """Copies the files of first-verdict.md, which another page continues to use."""
    files_of("get-started/first-verdict.md", folder)


def profiles(folder, _):
    """Copies the files of share-a-cluster.md, which it uses before it shows them."""
    files_of("how-to/share-a-cluster.md", folder)


def photos(folder, _):
    subprocess.run([sys.executable, ROOT / "demo" / "photos.py", folder / "photos", "480"], check=True)


def rclone(_, tools):
    sys.path[:0] = [str(ROOT / "tests" / "integration" / name) for name in ("", "s3", "wheel")]
    import s3_support
    (tools / "rclone").symlink_to(s3_support.tools() / "rclone")


def torchrun(_, tools):
    (tools / "torchrun").write_text(TORCHRUN)
    (tools / "torchrun").chmod(0o755)


NEEDS = {need.__name__: need for need in (first_verdict, photos, profiles, rclone, torchrun)}


class Page:
    def __init__(self, path, folder, tools):
        self.path, self.folder, self.tools, self.wrong, self.text = path, folder, tools, [], path.read_text()
        needs = re.search(r"^<!-- run: ?(.*?) ?-->$", self.text, re.M)[1].split()
        with contextlib.ExitStack() as stack:
            free = {need: stack.enter_context(socket.create_server(("127.0.0.1", 0))) for need in needs if need.isdigit()}
            self.ports = {port: str(server.getsockname()[1]) for port, server in free.items()}
        for need in needs:
            if need not in self.ports:
                NEEDS[need](folder, tools)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("DIESEL_", "AWS_", "TORCHELASTIC_"))}
        environment.update(PATH=f"{tools}:{BIN}:/usr/bin:{environment['PATH']}", HOME=str(folder), XDG_RUNTIME_DIR=str(tools), COLUMNS="80",
                           PYTHONPATH=str(ROOT / "client" / "python"), DIESEL_LIB=str(BIN.parent / "lib"), DIESEL_DAEMON=str(BIN / "dieseld"),
                           C_INCLUDE_PATH=str(ROOT / "daemon/sandboxed/include"), PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1")
        self.bash = subprocess.Popen(["bash"], cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, text=True, start_new_session=True)

    def run(self, command):
        """Returns the output of the command."""
        for port, free in self.ports.items():
            command = re.sub(rf"\b{port}\b", free, command)
        self.bash.stdin.write(f"{{ {command}\n}} </dev/null\necho; echo '{END[:-1]}'\n")
        self.bash.stdin.flush()
        printed = ""
        while not printed.endswith(END):
            line = self.bash.stdout.readline()
            assert line, f"{self.path.name}: failed: {command}\n{printed}"
            printed += line
        printed = printed.removesuffix(END).rstrip("\n")
        for real, shown in (*((free, port) for port, free in self.ports.items()), (f"{self.folder}/", ""), (f"{BIN}/", "")):
            printed = printed.replace(real, shown)
        return printed + "\n" * bool(printed)

    def step(self, match):
        new, run = match["text"], not match["mark"]
        if match["wait"]:
            self.run(f"timeout 60 bash -c 'until {match['wait']}\ndo sleep 0.1\ndone' >/dev/null 2>&1 || exit")
        elif match["mark"] == "file":
            (self.folder / match["name"]).write_text(new)
        elif match["mark"] == "patch":
            change(self.folder / match["name"], new)
        elif run and match["kind"] == "sh":
            self.run(f"set -e\n{new}set +e")
        elif run and match["kind"] == "console":
            new, *parts = re.split(r"^(\$ (?:.*\\\n)*.*\n)", new, flags=re.M)
            for command, shown in zip(parts[::2], parts[1::2]):
                real = self.run(command[2:])
                if not matches(shown, real):
                    self.wrong.append(f"{self.path.name}: {command}the page shows:\n{shown}and the command prints:\n{real}")
                new += command + (shown if matches(shown, real) else real)
        return match[0] if new == match["text"] else match[0].removesuffix(match["text"] + "```") + new + "```"

    def close(self):
        for lock in self.tools.rglob("dieseld-*.lock"):  # stops daemons that a loader started
            subprocess.run(["kill", *lock.read_text().split()], check=False, stderr=subprocess.DEVNULL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.bash.pid, signal.SIGTERM)
        self.bash.communicate(timeout=60)


def matches(shown, real):
    parts = [*re.split(r"(?:^| ) *\.\.\.$", shown, flags=re.M), real]
    for pattern, alike in DIFFERS:
        parts = [re.sub(pattern, alike, part).strip() for part in parts]
    return re.fullmatch(r"[\s\S]*".join(map(re.escape, parts[:-1])), parts[-1]) is not None


def change(path, diff):
    for part in re.finditer(r"((?:^-.*\n)+)((?:^\+.*\n)*)", diff, re.M):
        old, new = (re.sub(r"^.", "", lines, flags=re.M) for lines in part.groups())
        assert old in path.read_text(), f"{path.name} does not have: {old}"
        path.write_text(path.read_text().replace(old, new))


@contextlib.contextmanager
def ran(path, python=None):
    """Returns the page, once its commands have run. python: the program to use as python3."""
    with tempfile.TemporaryDirectory(prefix="diesel-docs-", ignore_cleanup_errors=True) as name:
        folder, tools = pathlib.Path(name, "page"), pathlib.Path(name, "tools")
        folder.mkdir()
        tools.mkdir(mode=0o700)
        if python:
            (tools / "python3").symlink_to(python)
        page = Page(path, folder, tools)
        try:
            page.text = STEP.sub(page.step, page.text)
            yield page
        finally:
            page.close()


def main():
    write, failed = sys.argv[1] == "--write", []
    for path in map(pathlib.Path, sys.argv[1 + write:]):
        with ran(path) as page:
            failed += page.wrong
            if write:
                path.write_text(page.text)
    print("\n".join(failed))
    sys.exit(bool(failed) and not write)


if __name__ == "__main__":
    main()
