# SPDX-License-Identifier: Apache-2.0
"""Looks at the subjects of the commits that main does not have yet, or of the newest commit where there are none.

subjects.py FILE looks at that of a message, as the hook commit-msg does."""
import pathlib
import re
import subprocess
import sys

CHARACTERS = 72
FORM = re.compile(r"\w[\w.*+-]*(?:[/,] ?[\w.*+-]+)*: \S.*")
NOT_IMPERATIVE = re.compile(r"\w+[^\Wsu]s|\w+(?:ed|ing)")
IMPERATIVE = {"embed", "feed", "need", "seed", "shed", "speed", "exceed", "proceed", "shred", "bring", "string", "ping", "bias", "alias"}


def faults(subject):
    """Returns what is wrong with a subject, one text for each fault."""
    found = []
    if len(subject) > CHARACTERS:
        found.append(f"{len(subject)} characters: at most {CHARACTERS}")
    if ";" in subject:
        found.append("a semicolon: two things are two commits")
    if not FORM.fullmatch(subject) or subject.endswith("."):
        found.append('expected "area: imperative summary", without a full stop')
    elif NOT_IMPERATIVE.fullmatch(word := subject.partition(": ")[2].split()[0]) and word not in IMPERATIVE:
        found.append(f"'{word}': expected an imperative, such as \"add\"")
    return found


def git(*arguments):
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout


def subjects():
    """Returns [(where, subject)]."""
    if len(sys.argv) > 1:
        return [("", pathlib.Path(sys.argv[1]).read_text().partition("\n")[0])]
    head = git("rev-parse", "HEAD").strip()
    bases = [base for name in ("main", "origin/main") if (base := git("rev-parse", "--quiet", "--verify", name).strip())]
    new = [] if head in bases or not bases else git("log", "--no-merges", "--format=%h %s", "HEAD", "--not", *bases).splitlines()
    lines = new or git("log", "-1", "--no-merges", "--format=%h %s").splitlines()
    return [(f"commit {commit}: ", subject) for commit, _, subject in (line.partition(" ") for line in lines)]


def main():
    refused = [f"{where}subject: {fault}" for where, subject in subjects() for fault in faults(subject)]
    print("\n".join(refused), end="\n" if refused else "")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
