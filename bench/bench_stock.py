# SPDX-License-Identifier: Apache-2.0
"""Is the report right about today's jobs, as people write them?

Jobs of bench/jobs/stock run with stock PyTorch from PyPI under `diesel-analyze record`, some of them once more with
--unprivileged. Each has a clock of its own around next(loader) and its checkpoints. The report is right if data wait and
checkpoints are within 3 points of that clock, the verdict is the one that the job was made for, and the advice helps there. A wrong report
must not claim high confidence. Each job runs 3 times, and a row shows the run in the middle.

usage: bench_stock.py [JOB ...] [--rounds N] [--python PYTHON]... [--keep FOLDER] | --table
"""
import argparse
import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import support
from peers.stock_python import Pythons
from serving import Daemon, pack

POINTS = 3.0
SEEN = 0.95  # minimum share of a short job that must be recorded
ROUNDS = 3
SECONDS = 12
LIMIT_S = 150
JOB_PROGRAM = support.ROOT / "bench" / "jobs" / "stock" / "run.py"
CLIENT = support.ROOT / "client" / "python"
# One thread per process: then the machine's other programs change how long a step takes, and nothing else.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
SLOW_IOPS, N_FILES, FILE_BYTES = 100, 1500, 110_000


class Job:
    """verdict: the only right one. advice: required advice; never: forbidden advice. unprivileged: also run without privilege."""

    def __init__(self, verdict, what, needs="torch", unprivileged=False, advice=None, never=None, seconds=SECONDS):
        self.verdict, self.what, self.needs, self.unprivileged = verdict, what, needs, unprivileged
        self.advice, self.never, self.seconds = advice, never, seconds


PREP, DEVICE, CHECKPOINT = "prep-bound", "device-bound", "checkpoint-bound"
JOBS = {
    "trainer": Job(PREP, "Hugging Face Trainer, its default of 0 workers", "transformers", unprivileged=True),
    "plain": Job(PREP, "plain loop, samples in memory, 0 workers", unprivileged=True),
    "arrow": Job(PREP, "Arrow files by mmap (datasets), 0 workers", "datasets", unprivileged=True),
    "spawn": Job(PREP, "2 workers by spawn"),
    "renewed": Job(PREP, "2 workers started again each short epoch", advice="persistent_workers"),
    "compile": Job(PREP, "torch.compile, then short steps, 0 workers"),
    "validation": Job(PREP, "a validation pass between epochs"),
    "inference": Job(PREP, "inference under no_grad", unprivileged=True),
    "numpy": Job(PREP, "NumPy only, own loader of files", "numpy"),
    "sklearn": Job(PREP, "scikit-learn, partial_fit on a DataLoader", "sklearn torch"),
    "jax": Job(PREP, "JAX fed by a thread that reads files", "jax"),
    "lightning-0": Job(PREP, "Lightning Trainer, 0 workers", "lightning"),
    "lightning-2": Job(PREP, "Lightning Trainer, 2 workers", "lightning"),
    "accelerate": Job(PREP, "accelerate, 0 workers", "accelerate"),
    "dcp-thread": Job(CHECKPOINT, "DCP async_save by a thread, every 10 steps", never="[Ww]rite checkpoints in the background", seconds=20),
    "dcp-process": Job(CHECKPOINT, "DCP async_save by a process, every 10 steps", never="[Ww]rite checkpoints in the background", seconds=20),
    "save": Job(CHECKPOINT, "torch.save, every 10 steps"),
    "save-cloned": Job(CHECKPOINT, "torch.save of a clone by a thread, every 10 steps", never="[Ww]rite checkpoints in the background"),
    "safetensors": Job(CHECKPOINT, "safetensors, every 10 steps", "safetensors torch"),
    "diesel-0": Job(PREP, "diesel_loader, num_workers=0", unprivileged=True, advice='"?auto"?'),
    "diesel-auto": Job(PREP, 'diesel_loader, "auto"', unprivileged=True),
    "diesel-ddp": Job(PREP, "Lightning ddp, 2 ranks, diesel_loader", "lightning"),
    "device": Job(DEVICE, "control: computing, a quick loader"),
    "fetch": Job("fetch-bound", "control: files of a slow disk, 2 workers"),
}


class Ground:
    """A folder with the jobs' data, each made when it is first needed, and a dieseld where a job needs one."""

    def __init__(self, folder, pythons):
        self.folder, self.pythons, self.made = folder, pythons, set()

    def prepare(self, name, python):
        if name in self.made:
            return
        self.made.add(name)
        if name == "fetch":
            self.files = support.random_files(self.folder / "files", N_FILES, FILE_BYTES)
        self.call([python, str(JOB_PROGRAM), name, str(self.folder), "--prepare"])
        if name.startswith("diesel") and not (self.folder / "packed").exists():
            pack(self.folder / "raw", self.folder / "packed")
        # Reads a job's first files and its libraries from disk now, so that the measurement does not include this.
        with self.served(name):
            self.call([python, str(JOB_PROGRAM), name, str(self.folder), str(self.folder / "clock"), "1"], check=False)

    def environment(self, name):
        own = dict(ENVIRONMENT, TORCHINDUCTOR_CACHE_DIR=str(self.folder / f"inductor-{time.monotonic_ns()}"))
        if name.startswith("diesel"):
            own["PYTHONPATH"] = str(CLIENT)
            own["DIESEL_LIB"] = os.environ.get("DIESEL_LIB", str(support.ROOT / "build" / "release" / "lib"))
        return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | own

    def call(self, argv, name="", check=True):
        done = subprocess.run(argv, env=self.environment(argv[2]), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              text=True, check=False, timeout=LIMIT_S)
        if check and done.returncode:
            sys.exit(f"{' '.join(argv)}: {done.stderr[-800:]}")
        return done

    @contextlib.contextmanager
    def served(self, name):
        with Daemon(self.folder, "--metrics", "off", "--cache", "256M") if name.startswith("diesel") else contextlib.nullcontext():
            yield

    @contextlib.contextmanager
    def storage(self, name):
        """Yields environment variables that tell the job about its storage: for the control job `fetch` the disk is slow, once its
        libraries are loaded."""
        if name != "fetch":
            yield {}
            return
        support.evict(self.files)
        with support.Throttle(self.folder, iops=SLOW_IOPS, bps=200_000_000) as slow:
            yield {"STOCK_SLOW": str(slow.group / "cgroup.procs")}


def run_once(ground, name, python, unprivileged, keep):
    job, folder = JOBS[name], ground.folder
    ground.prepare(name, python)
    for old in folder.glob("clock*"):
        old.unlink()
    recording = folder / "stock.db"
    recording.unlink(missing_ok=True)
    argv = [support.program("diesel-analyze"), "record", *(["--unprivileged"] if unprivileged else []), "-o", str(recording),
            "--", python, str(JOB_PROGRAM), name, str(folder), str(folder / "clock"), str(job.seconds)]
    with support.Steal() as steal, ground.served(name), ground.storage(name) as storage:
        failed = run_limited([*support.PREFERRED, *argv], ground.environment(name) | storage)
    if keep and recording.exists():
        (keep / f"{name}{'-unprivileged' if unprivileged else ''}.db").write_bytes(recording.read_bytes())
    clocks = [json.loads(path.read_text()) for path in sorted(folder.glob("clock*"))]
    report = subprocess.run([support.program("diesel-analyze"), "report", "--format", "json", str(recording)],
                            capture_output=True, text=True, check=False)
    run = {"steal": steal.ratio, "failed": failed, "clocks": clocks, "ranks_right": ranks_right(clocks)}
    for clock in clocks:
        del clock["samples"]
    if report.stdout:
        run["report"] = shorten(json.loads(report.stdout))
    elif not failed:
        run["failed"] = report.stderr.strip()[-300:]
    return run


def run_limited(argv, environment):
    """Returns why the job failed, or None. All its processes end with it."""
    with subprocess.Popen(argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          start_new_session=True) as process:
        try:
            message = process.communicate(timeout=LIMIT_S)[1]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"took more than {LIMIT_S} s"
    return f"ended with {process.returncode}: {message.strip()[-300:]}" if process.returncode else None


def ranks_right(clocks):
    """Returns whether the ranks together got each sample once per epoch. None: unknown."""
    if len(clocks) < 2:
        return None
    epochs = [sum(parts, []) for parts in zip(*(clock["samples"] for clock in clocks))]
    return bool(epochs) and all(len(names) == len(set(names)) == len(set(epochs[0])) for names in epochs)


KEPT = ("wall_s", "observed_s", "recorded_s", "startup_s", "shares", "verdict", "insufficient", "note", "steps", "loader",
        "method", "actions", "coverage", "lost_events", "confidence", "phases", "checkpoints", "validation", "compile")


def shorten(report):
    kept = {key: report[key] for key in KEPT if report.get(key) not in (None, [], {})}
    if isinstance(kept.get("checkpoints"), dict):
        kept["checkpoints"] = {k: v for k, v in kept["checkpoints"].items() if not isinstance(v, list)}
    return kept | {"trainer": report.get("job", {}).get("trainer_tgid")}


def slowed(report):
    """Returns (the part of the time by which steps during a save were longer, the part of that in data waits). The share of checkpoints
    contains both, but the job's own clock is around its calls."""
    found = report.get("checkpoints") or {}
    if not found.get("slowed_s"):
        return 0, 0
    waits = found["tail"]["shares_s"]
    return (found["slowed_s"] / report["observed_s"],
            (max(0, waits["fetch_stall"]) + max(0, waits["prep_stall"])) / report["observed_s"])


def judged(name, run):
    """Returns the figures of a run for the table: shares in percent, and all errors, in words."""
    job, report = JOBS[name], run.get("report") or {}
    clock = next((c for c in run["clocks"] if c["pid"] == report.get("trainer")), run["clocks"][0] if run["clocks"] else None)
    row = {"wrong": [], "steps": report.get("steps"), "verdict": report.get("verdict") or "-"}
    if run["failed"]:
        row["wrong"].append("the job failed: " + run["failed"].splitlines()[-1])
    if not clock:
        return row
    row |= {"own_wait": 100 * clock["wait"], "own_checkpoint": 100 * clock["checkpoint"], "own_steps": clock["steps"],
            "own_s": clock["wall_s"]}
    shares = report.get("shares") or {}
    if shares.get("prep_stall") is None:
        row["wrong"].append("no shares: " + str(report.get("insufficient")))
        return row
    longer, waits = slowed(report)
    row |= {"wait": 100 * (shares["fetch_stall"] + shares["prep_stall"] + waits), "checkpoint": 100 * (shares["checkpoint_stall"] - longer),
            "seen": 100 * report["observed_s"] / clock["wall_s"]}
    for kind in ("wait", "checkpoint"):
        if abs(row[kind] - row[f"own_{kind}"]) > POINTS:
            row["wrong"].append(f"{kind} {row[kind] - row[f'own_{kind}']:+.1f}")
    if row["verdict"] != job.verdict:
        row["wrong"].append(f"verdict {row['verdict']}, not {job.verdict}")
    sure = [action["text"] for action in report.get("actions", ()) if action.get("confidence") == "high"]
    if row["wrong"] and (sure or report.get("confidence") == "high"):
        row["wrong"].append("and sure of it")
    advice = " / ".join(action["text"] for action in report.get("actions", ()))
    if job.advice and not re.search(job.advice, advice):
        row["wrong"].append(f"does not advise {job.advice}")
    if job.never and re.search(job.never, advice):
        row["wrong"].append(f"advises something that the job already does ({job.never})")
    if row["seen"] < 100 * SEEN:
        row["wrong"].append(f"saw {row['seen']:.0f} %")
    if run["ranks_right"] is False:
        row["wrong"].append("the ranks did not get each sample exactly once")
    return row


def middle(name, runs):
    """Returns the run whose error of the wait is the median. A failed run counts as the worst."""
    rows = [judged(name, run) for run in runs]
    return sorted(rows, key=lambda row: abs(row["wait"] - row["own_wait"]) if "wait" in row else 1000)[len(rows) // 2]


def figure(row, key, form="{:.1f}"):
    return form.format(row[key]) if row.get(key) is not None else "-"


def show(raw):
    """Prints the table in the layout of bench/README.md."""
    print("| job | with | wait: own clock, report (%) | checkpoints | steps | recorded (%) | verdict | wrong |\n|---|---|---|---|---|---|---|---|")
    for key, entry in raw.items():
        row = middle(entry["job"], entry["runs"])
        print(f"| {label(entry)} | {entry['versions'].removeprefix('Python ')} | {figure(row, 'own_wait')}, {figure(row, 'wait')} | "
              f"{figure(row, 'own_checkpoint')}, {figure(row, 'checkpoint')} | "
              f"{figure(row, 'own_steps', '{}')}, {figure(row, 'steps', '{}')} | {figure(row, 'seen', '{:.0f}')} | "
              f"{row['verdict']} | {'; '.join(row['wrong']) or '-'} |")


def label(entry):
    return JOBS[entry["job"]].what + (", without privilege" if entry["unprivileged"] else "")


def summary(raw):
    rows = [middle(entry["job"], entry["runs"]) for entry in raw.values()]
    points = [abs(row["wait"] - row["own_wait"]) for row in rows if "wait" in row]
    return {"rows": len(rows), "right": sum(not row["wrong"] for row in rows), "without_shares": len(rows) - len(points),
            "worst_wait_points": max(points, default=float("nan")),
            "wrong_verdicts": sum(row["verdict"] != JOBS[entry["job"]].verdict for row, entry in zip(rows, raw.values()))}


def place(item):
    entry = item[1]
    return list(JOBS).index(entry["job"]), entry["unprivileged"], entry["versions"]


def main():
    parser = argparse.ArgumentParser(description="Compares reports with the own clocks of jobs that use stock PyTorch.")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"one or more of: {', '.join(JOBS)}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs per job (default: %(default)s)")
    parser.add_argument("--python", action="append", help="a Python with PyTorch; may be repeated, and each job takes the first that has "
                        "what it needs (default: $DIESEL_STOCK_PYTHON, split by colons, or an environment in build/peers)")
    parser.add_argument("--privileged-only", action="store_true", help="leave out the runs without privilege")
    parser.add_argument("--unprivileged-only", action="store_true", help="leave out the runs with privilege")
    parser.add_argument("--table", action="store_true", help="measure nothing, but print the table of earlier runs")
    parser.add_argument("--keep", metavar="FOLDER", type=pathlib.Path, help="keep the last recording of each job in FOLDER")
    options = parser.parse_args()
    if unknown := set(options.jobs) - set(JOBS):
        parser.error(f"no job {', '.join(sorted(unknown))}; known: {', '.join(JOBS)}")
    raw = support.raw_read("stock")
    if options.table:
        show(raw)
        return 0
    if os.geteuid():
        support.skip("recording by BPF needs root")
    pythons = Pythons(options.python)
    with support.Scratch() as folder:
        ground = Ground(folder, pythons)
        for name in options.jobs or JOBS:
            measure(ground, name, options, raw)
            raw = dict(sorted(raw.items(), key=place))
            support.result_write("stock", raw, quiet=True, **summary(raw))
    support.result_write("stock", raw, **summary(raw))
    show(raw)
    return 0


def measure(ground, name, options, raw):
    if name == "fetch" and (why := support.Throttle.why_not(ground.folder)):
        print(f"{name}: left out: {why}")
        return
    python, versions = ground.pythons.for_job(JOBS[name].needs)
    for unprivileged in (False, True):
        if options.privileged_only if unprivileged else options.unprivileged_only:
            continue
        if unprivileged and not JOBS[name].unprivileged:
            continue
        entry = {"job": name, "unprivileged": unprivileged, "versions": versions, "commit": support.commit(),
                 "runs": [run_once(ground, name, python, unprivileged, options.keep) for _ in range(options.rounds)]}
        raw[f"{name}{' unprivileged' if unprivileged else ''}, {versions}"] = entry
        for run in entry["runs"]:
            row = judged(name, run)
            print(f"{name}{' unprivileged' if unprivileged else ''}: wait {figure(row, 'own_wait')} own, {figure(row, 'wait')} "
                  f"report; checkpoint {figure(row, 'own_checkpoint')}, {figure(row, 'checkpoint')}; {figure(row, 'own_s')} s; "
                  f"{row['verdict']}; steal {100 * run['steal']:.1f} %; {'; '.join(row['wrong']) or 'right'}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
