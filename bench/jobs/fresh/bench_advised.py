# SPDX-License-Identifier: Apache-2.0
"""Does a job gain as much as its advice predicts?

Each job of advised.py is recorded unchanged. Then the job alternately runs unchanged and, where it can, with its report's advice,
several times. The error is that of the predicted speed-up compared with the medians.

PyTorch has one thread in all of them (OMP_NUM_THREADS=1). With more, a step's own time depends on the wait before
it, as its threads sleep after a long one. On a virtual machine of two cores a step took 12.5 ms after a wait of 34 ms, and 2.4 ms without
a wait.

usage: bench_advised.py [JOB ...] [--python PYTHON] [--rounds N]
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import support  # pylint: disable=wrong-import-position

JOB_PROGRAM = pathlib.Path(__file__).with_name("advised.py")
MOST_PERCENT = 15.0
# name: kind, steps, settings of the unchanged job
JOBS = {
    "naps": ("naps", 200, {"workers": 0}),
    "naps-worker": ("naps", 200, {"workers": 1}),
    "python": ("python", 250, {"workers": 0}),
    "python-worker": ("python", 250, {"workers": 1}),
    "images": ("images", 250, {"workers": 0}),
    "images-worker": ("images", 250, {"workers": 1}),
    "tokens": ("tokens", 150, {"workers": 0}),
    "threads": ("threads", 200, {"workers": 0}),
    "epochs": ("epochs", 240, {"workers": 2}),
    "clones": ("clones", 200, {"every": 4}),
    "deepcopies": ("deepcopies", 200, {"every": 4}),
}
# Patterns of an action's text, each with the setting of the job that the action changes.
DOES = [
    (r"num_workers=(\d+)", "workers"),
    (r"^Use (\d+) workers", "workers"),
    (r"persistent_workers=(True)", "persistent"),
    (r"(by half)", "half"),
    (r"^Write a checkpoint every (\d+) steps", "every"),
]


def command(python, kind, steps, settings):
    return [*support.PREFERRED, python, str(JOB_PROGRAM), kind, str(steps), *(f"{name}={value}" for name, value in settings.items())]


def really(python, kind, steps, settings):
    """Returns steps per second by the job's own clock."""
    done = subprocess.run(command(python, kind, steps, settings), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                          check=True, timeout=300)
    return float(done.stdout)


def advised(python, kind, steps, settings, recording):
    """Returns [(text, predicted speed-up, settings)] of the actions that the job can take."""
    recording.unlink(missing_ok=True)
    subprocess.run([*support.PREFERRED, support.program("diesel-analyze"), "record", "-o", recording, "--",
                    *command(python, kind, steps, settings)[len(support.PREFERRED):]], stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL, check=True, timeout=300)
    done = subprocess.run([support.program("diesel-analyze"), "report", "--format", "json", recording], stdout=subprocess.PIPE, check=True)
    taken = []
    for action in json.loads(done.stdout)["actions"]:
        for pattern, name in DOES:
            found = re.search(pattern, action["text"])
            if found:
                value = int(found[1]) if found[1].isdigit() else 1
                # A longer interval gains exactly the bound, by arithmetic.
                gain = action["gain"] or ({"value": action["gain_at_most"]} if name == "every" else None)
                taken.append((action["text"], gain, {**settings, name: value}))
                break
    return taken


def measure(options, name, folder):
    kind, steps, before = JOBS[name]
    actions = advised(options.python, kind, steps, before, folder / "advised.db")
    results = []
    for text, gain, after in actions:
        rates = [[really(options.python, kind, steps, settings) for settings in (before, after)] for _ in range(options.rounds)]
        real = statistics.median(rate[1] for rate in rates) / statistics.median(rate[0] for rate in rates)
        error = 100 * (gain["value"] / real - 1) if gain else None
        print(f"{name:13} {before} -> {after}: predicted {gain['value'] if gain else float('nan'):.2f}, really {real:.2f}"
              + (f": {error:+.1f} %" if gain else ": no prediction"), flush=True)
        results.append({"job": name, "action": text, "before": before, "after": after, "predicted": gain, "real": real, "rates": rates,
                        "error_percent": error})
    if not actions:
        print(f"{name:13} {before}: nothing is advised", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description="Compares the speed-ups that reports predict with real ones.")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=", ".join(JOBS))
    parser.add_argument("--python", default=support.PYTHON, help="a Python with torch, and with tokenizers for the job `tokens`")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    with support.Steal() as steal, support.Scratch(None) as folder:
        results = [result for name in options.jobs or JOBS for result in measure(options, name, pathlib.Path(folder))]
    errors = [abs(result["error_percent"]) for result in results if result["error_percent"] is not None]
    support.result_write("advised", results, actions=len(results), jobs=len({result["job"] for result in results}), predicted=len(errors), steal=steal.ratio,
                         mean_error_percent=statistics.mean(errors), worst_error_percent=max(errors))
    return 0 if len(errors) == len(results) and max(errors) <= MOST_PERCENT else 1


if __name__ == "__main__":
    sys.exit(main())
