# SPDX-License-Identifier: Apache-2.0
"""Does a job gain what its advice says?

Each job of advised.py is recorded as it is, `diesel-analyze what-if` predicts the speed-up of a change from that recording, and
then the job really runs both ways, alternately, several times. The error is that of the predicted speed-up against the medians.

usage: bench_advised.py [JOB ...] [--python PYTHON] [--rounds N]
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import support  # pylint: disable=wrong-import-position

JOB_PROGRAM = pathlib.Path(__file__).with_name("advised.py")
MOST_PERCENT = 15.0
# (job, steps, as it is, options of what-if, as it would be)
CHANGES = [
    ("naps", 200, {"workers": 0}, ["--workers", "1"], {"workers": 1}),
    ("naps", 200, {"workers": 0}, ["--workers", "2"], {"workers": 2}),
    ("naps", 200, {"workers": 1}, ["--workers", "3"], {"workers": 3}),
    ("naps", 200, {"workers": 3}, ["--workers", "1"], {"workers": 1}),
    ("python", 150, {"workers": 0}, ["--workers", "1"], {"workers": 1}),
    ("python", 150, {"workers": 0}, ["--workers", "3"], {"workers": 3}),
    ("python", 150, {"workers": 2}, ["--workers", "1"], {"workers": 1}),
    ("tokens", 100, {"workers": 0}, ["--workers", "1"], {"workers": 1}),
    ("tokens", 100, {"workers": 0}, ["--workers", "3"], {"workers": 3}),
    ("threads", 100, {"workers": 0}, ["--workers", "1"], {"workers": 1}),
    ("threads", 100, {"workers": 1}, ["--workers", "2"], {"workers": 2}),
]


def command(python, kind, steps, settings):
    return [*support.PREFERRED, python, str(JOB_PROGRAM), kind, str(steps), *(f"{name}={value}" for name, value in settings.items())]


def really(python, kind, steps, settings):
    """Steps a second by the job's own clock."""
    done = subprocess.run(command(python, kind, steps, settings), stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return float(done.stdout)


def predicted(python, kind, steps, settings, what_if, recording):
    recording.unlink(missing_ok=True)
    subprocess.run([*support.PREFERRED, support.program("diesel-analyze"), "record", "-o", recording, "--",
                    *command(python, kind, steps, settings)[len(support.PREFERRED):]], stdout=subprocess.DEVNULL, check=True, timeout=300)
    done = subprocess.run([support.program("diesel-analyze"), "what-if", recording, "--json", *what_if], stdout=subprocess.PIPE, check=False)
    return json.loads(done.stdout)["answer"]["speedup"] if done.returncode == 0 else None


def measure(options, change, folder):
    kind, steps, before, what_if, after = change
    speedup = predicted(options.python, kind, steps, before, what_if, folder / "advised.db")
    rates = [[really(options.python, kind, steps, settings) for settings in (before, after)] for _ in range(options.rounds)]
    real = statistics.median(rate[1] for rate in rates) / statistics.median(rate[0] for rate in rates)
    error = 100 * (speedup["value"] / real - 1) if speedup else None
    print(f"{kind:8} {before} -> {after}: predicted {speedup['value'] if speedup else float('nan'):.2f}, really {real:.2f}"
          + (f": {error:+.1f} %" if speedup else ": no prediction"), flush=True)
    return {"job": kind, "before": before, "after": after, "predicted": speedup, "real": real, "rates": rates, "error_percent": error}


def main():
    parser = argparse.ArgumentParser(description="advice against what it brings")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(sorted({change[0] for change in CHANGES})))
    parser.add_argument("--python", default=support.PYTHON, help="with torch, and tokenizers for the job tokens")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    changes = [change for change in CHANGES if not options.jobs or change[0] in options.jobs]
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    with support.Steal() as steal, support.Scratch(None) as folder:
        results = [measure(options, change, pathlib.Path(folder)) for change in changes]
    errors = [abs(result["error_percent"]) for result in results if result["error_percent"] is not None]
    support.result_write("advised", results, changes=len(results), predicted=len(errors), steal=steal.ratio,
                         mean_error_percent=statistics.mean(errors), worst_error_percent=max(errors))
    return 0 if len(errors) == len(results) and max(errors) <= MOST_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
