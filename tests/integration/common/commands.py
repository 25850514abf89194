# SPDX-License-Identifier: Apache-2.0
"""Runs of dieselctl and other programs, and checks of what they print."""
import importlib.util
import os
import pathlib
import pty
import subprocess
import sys

DIESELCTL = pathlib.Path(os.environ.get("DIESEL_BIN", "build/release/bin")).resolve() / "dieselctl"


def needs(*modules):
    """Ends the test program as skipped where Python has not these modules."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            print(f"skipped: needs {module}")
            sys.exit(77)


def run(*words, check=None, timeout=300, **more):
    """Runs a program. check: the exit status that it must have."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, errors="surrogateescape", timeout=timeout, check=False, **more)
    if check is not None and done.returncode != check:
        raise AssertionError(f"{words}: exit status {done.returncode}, not {check}\n{done.stdout}{done.stderr}")
    return done


def dieselctl(*words, **more):
    return run(DIESELCTL, *words, **more)


def one_line(done, *words):
    """Asserts that the program complained in one line, which has these words."""
    assert len(done.stderr.splitlines()) == 1, f"not one line: {done.stderr!r}"
    for word in words:
        assert word in done.stderr, f"'{word}' is missing in: {done.stderr}"


def on_terminal(*words, stdout=None, **more):
    """Returns (exit status, standard output, bytes that the terminal got).

    Standard output is the terminal, too, unless stdout says otherwise."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(list(map(str, words)), stdin=subprocess.DEVNULL, stdout=stdout or theirs, stderr=theirs, **more)
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        seen += data
    out = process.communicate(timeout=60)[0]
    os.close(ours)
    return process.returncode, out, seen
