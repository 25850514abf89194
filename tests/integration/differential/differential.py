# SPDX-License-Identifier: Apache-2.0
"""Runs random scripts with PyTorch's DataLoader and with ours, and compares the samples, labels, lengths, and the order's meaning.
Ours may refuse instead, with an error of one line.

differential.py [--seed N] [--scripts K] runs the scripts N to N + K - 1. A script whose results differ is printed, and can be run again as
a file: differential.py FILE. Scripts use frameworks where all of them are installed."""
import argparse
import collections
import contextlib
import os
import pathlib
import re
import sys
import tempfile

# Imported first, as it skips where other modules are missing.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "loader"))
from torch_support import Daemon, pack  # noqa: E402
import numpy  # noqa: E402
import torch  # noqa: E402
from PIL import Image  # noqa: E402

import scripts  # noqa: E402
import sides  # noqa: E402
import trained  # noqa: E402

N_CLASSES, EQUAL = 4, 8
FEW = 8  # with fewer samples, two orders may be equal by chance


def make_parts(folder):
    """Returns {part: path of its files}; the packed dataset is next to it."""
    rng, roots = numpy.random.default_rng(3), {}
    for part, n in scripts.SIZES.items():
        root = folder / part
        for i in range(n):
            (root / f"class{i * N_CLASSES // n}").mkdir(parents=True, exist_ok=True)
            name = root / f"class{i * N_CLASSES // n}" / f"{i:02}"
            if part == "images":
                Image.fromarray(rng.integers(0, 255, (3, 3, 3), "uint8")).save(f"{name}.png")
            else:
                data = rng.bytes(EQUAL - 1 if part != "ragged" else int(rng.integers(1, 12)))
                name.with_suffix(".bin").write_bytes(bytes([i]) + data + bytes([i]))
        pack(root, f"{root}.diesel", "-o", "source")  # samples get ImageFolder's numbers
        roots[part] = str(root)
    return roots


def flat(record):
    return [sample for batch in record["batches"] for sample in (batch if record["shuffled"] else [batch])]


def differs(theirs, ours):
    """Returns the difference in one line, or None."""
    if theirs["error"] and theirs["error"][0] == "died":
        return f"PyTorch's side died: {theirs['error'][1]}"
    for a, b in zip(theirs["seen"], ours["seen"]):
        if found := record_differs(a, b):
            return found
    if ours["error"] and (ours["error"][2] or theirs["error"]):
        return None
    if ours["error"]:
        return f"ours stops, and not with one line that says why: {ours['error'][0]}: {ours['error'][1]}\n{ours['error'][3]}"
    if theirs["error"]:
        return f"ours goes on where PyTorch stops: {theirs['error'][0]}: {theirs['error'][1]}"
    return orders_differ(theirs["seen"], ours["seen"])


def record_differs(a, b):
    if "note" in a or "note" in b:
        return None if a == b else f"a note differs: {a} is {b}"
    name = a["epoch"]
    if a["kinds"] != b["kinds"]:
        return f"epoch {name}: batches are {a['kinds']}, and ours {b['kinds']}"
    sizes = [[len(batch) for batch in record["batches"]] for record in (a, b)]
    if sizes[0] != sizes[1]:
        return f"epoch {name}: sizes of batches are {sizes[0]}, and ours {sizes[1]}"
    if not a["shuffled"]:
        for k, (batch, ours) in enumerate(zip(a["batches"], b["batches"])):
            if batch != ours:
                return f"epoch {name}: batch {k} is {batch}, and ours {ours}"
        return None
    had, ours = (collections.Counter(flat(record)) for record in (a, b))
    may_be = collections.Counter(a["all"]) if "all" in a else had
    if extra := ours - may_be:
        return f"epoch {name}: ours has {dict(extra)}, which PyTorch has not or has less often: {dict(may_be - ours)}"
    return None


def orders_differ(theirs, ours):
    """Returns whether epochs of one order in PyTorch have different orders here, or the other way round."""
    both = [(a, b) for a, b in zip(theirs, ours) if a.get("shuffled")]
    for i, (a, b) in enumerate(both):
        for c, d in both[:i]:
            n = min(len(flat(a)), len(flat(c)))
            if a["tag"] != c["tag"] or n < FEW:
                continue
            is_same, ours_is = (flat(x)[:n] == flat(y)[:n] for x, y in ((a, c), (b, d)))
            if is_same != ours_is:
                return f"epochs {c['epoch']} and {a['epoch']}: {'the same order' if is_same else 'different orders'} in PyTorch, and not in ours"
    return None


def compare(text, roots):
    """Returns (the difference or None, the records of each side)."""
    def begin(name):
        def run():
            torch.manual_seed(11)  # without a seed by the script, a new process's seed is random
            with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere), contextlib.redirect_stdout(nowhere):
                return sides.Side(name, roots).run(text)
        return sides.forked(run)
    theirs, ours = begin("theirs"), begin("ours")
    theirs, ours = theirs(), ours()
    return differs(theirs, ours), theirs, ours


def kind_of(message):
    return re.sub(r"/\S+?(?=[:,. ]|$)", "PATH", re.sub(r"\d+", "N", message))[:110]


@contextlib.contextmanager
def parts():
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name, Daemon(pathlib.Path(name), log=os.devnull):
        yield make_parts(pathlib.Path(name))


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scripts", type=int, default=1000)
    parser.add_argument("--verbose", action="store_true", help="say what ours refused, script by script")
    parser.add_argument("file", nargs="?", type=pathlib.Path)
    options = parser.parse_args()
    refused, n_different = collections.Counter(), 0
    with parts() as roots:
        if options.file:
            texts = {options.file: options.file.read_text()}
        else:
            texts = {number: scripts.Script(number, trained.PRESENT).text for number in range(options.seed, options.seed + options.scripts)}
        for number, text in texts.items():
            found, theirs, ours = compare(text, roots)
            if found:
                n_different += 1
                print(f"# script {number}: {found}\n{text}\n", flush=True)
            elif ours["error"] and not theirs["error"]:
                refused[kind_of(ours["error"][1])] += 1
            if options.verbose:
                print(number, "differs" if found else ours["error"] or "agrees", theirs["error"], flush=True)
    for kind, n in refused.most_common():
        print(f"refused {n} times: {kind}")
    print(f"{len(texts)} scripts, {sum(refused.values())} refused, {n_different} different")
    return n_different > 0


if __name__ == "__main__":
    sys.exit(main())
