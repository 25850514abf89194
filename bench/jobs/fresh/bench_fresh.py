# SPDX-License-Identifier: Apache-2.0
"""Is the report right about jobs that load their data in ways of their own?

Jobs of bench/jobs/fresh run under `diesel-analyze record`, each as root and once more with --unprivileged. Each has a clock of
its own around the code that gets a batch. The report is right if its data wait is within 3 points of that clock (10 without privilege),
or if its verdict is "unclear". It is wrong if it calls a job "device-bound" whose device worked for less than half of the time.

usage: bench_fresh.py [JOB ...] [--python PYTHON] [--seconds S] [--data FOLDER]
"""
import argparse
import io
import json
import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
import support  # pylint: disable=wrong-import-position

JOB_PROGRAM = support.ROOT / "bench" / "jobs" / "fresh" / "run.py"
POINTS = {False: 3.0, True: 10.0}  # tolerance in points, by whether the recorder runs without privilege
NEEDS = {"batchgenerators": "batchgenerators", "nodes-thread": "torchdata.nodes", "nodes-process": "torchdata.nodes",
         "thread-buffer": "monai", "background-generator": "prefetch_generator", "tokenizer": "tokenizers"}
LIMIT_S = 150
NO_VERDICT = ("unclear", "insufficient data")


def pictures(folder, n=200):
    import numpy
    from PIL import Image

    folder.mkdir(exist_ok=True)
    draw = numpy.random.default_rng(1)
    for i in range(n):
        image = Image.fromarray(draw.integers(0, 255, (40, 50, 3), dtype=numpy.uint8)).resize((500, 400), Image.BICUBIC)
        data = io.BytesIO()
        image.save(data, "JPEG", quality=92)
        (folder / f"{i:05}.jpg").write_bytes(data.getvalue())
    return folder


def kinds(python):
    done = subprocess.run([python, "-c", "import kinds; print(*kinds.KINDS)"], cwd=JOB_PROGRAM.parent, check=True,
                          capture_output=True, text=True)
    return done.stdout.split()


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def run_once(name, options, folder, unprivileged):
    recording = folder / f"{name}.db"
    recording.unlink(missing_ok=True)
    record = [*support.PREFERRED, support.program("diesel-analyze"), "record", *(["--unprivileged"] if unprivileged else []), "-o", str(recording),
              "--", options.python, str(JOB_PROGRAM), name, "--data", str(options.data), "--seconds", str(options.seconds)]
    with support.Steal() as steal:
        done = subprocess.run(record, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env=dict(os.environ, OMP_NUM_THREADS="1"))
    report = subprocess.run([support.program("diesel-analyze"), "report", "--format", "json", str(recording)],
                            stdout=subprocess.PIPE, check=False).stdout
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return {"job": name, "unprivileged": unprivileged, "steal": steal.ratio, "report": json.loads(report),
            "clock": json.loads(lines[-1]) if lines else None}


def shares_of(report):
    """Returns the shares that users see, without the first steps, which import modules. The job's clock includes validation, and the steady
    phase does not."""
    if report["validation"] and report["validation"]["passes"]:
        return report["shares"]
    return (report["steady"] or {}).get("shares") or report["shares"]


def failures(run):
    report, clock = run["report"], run["clock"]
    verdict, shares = report["verdict"], shares_of(report)
    wrong = []
    if verdict == "device-bound" and (not shares or shares["device"] < 0.5):
        wrong.append("verdict device-bound, although the device works less than half of the time")
    if not clock:
        return wrong if verdict == "insufficient data" else [*wrong, f"verdict {verdict}, although the job ended before its first step"]
    if verdict in NO_VERDICT:
        return wrong
    error = 100 * (shares["fetch_stall"] + shares["prep_stall"] - clock["wait"])
    if abs(error) > POINTS[run["unprivileged"]]:
        wrong.append(f"data wait off by {error:+.1f} points")
    return wrong


def show(run):
    report, clock = run["report"], run["clock"]
    shares = shares_of(report) or {}
    shares = {name: share or 0 for name, share in shares.items()}
    said = 100 * (shares.get("fetch_stall", 0) + shares.get("prep_stall", 0))
    print(f"{run['job']:22} {'user' if run['unprivileged'] else 'root'} "
          f"own clock {100 * clock['wait'] if clock else 0:5.1f} %, report {said:5.1f} % (fetch "
          f"{100 * shares.get('fetch_stall', 0):.0f}), {report['loader']}, {report['verdict']}; device "
          f"{100 * shares.get('device', 0):.0f}, starved {100 * shares.get('cpu_starved', 0):.0f}, other "
          f"{100 * shares.get('other', 0):.0f}; {'; '.join(failures(run)) or 'right'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Compares reports with the own clocks of jobs that load data in their own ways.")
    parser.add_argument("jobs", nargs="*", metavar="JOB")
    parser.add_argument("--python", default=support.PYTHON, help="a Python with torch and the jobs' other modules")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--data", help="folder of JPEG files (default: generated)")
    parser.add_argument("--mode", choices=["root", "user", "both"], default="both")
    options = parser.parse_args()
    names = options.jobs or [name.replace("_", "-") for name in kinds(options.python)]
    with support.Scratch(None) as folder:
        options.data = options.data or pictures(folder / "pictures")
        runs = []
        for name in names:
            if name in NEEDS and not has(options.python, NEEDS[name]):
                print(f"{name}: {options.python} has no {NEEDS[name]}", flush=True)
                continue
            for unprivileged in {"root": [False], "user": [True], "both": [False, True]}[options.mode]:
                runs.append(run_once(name, options, pathlib.Path(folder), unprivileged))
                show(runs[-1])
    wrong = sum(bool(failures(run)) for run in runs)
    support.result_write("fresh", runs, jobs=len(names), runs=len(runs), wrong=wrong,
                         unclear=sum(run["report"]["verdict"] == "unclear" for run in runs))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
