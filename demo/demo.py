# SPDX-License-Identifier: Apache-2.0
"""./dev demo: an unmodified PyTorch training job on slow storage is measured, then its loader line is
swapped for one served by dieseld, and the same training is measured again.

If the machine does not allow a throttled disk or eBPF, the demo says so and shows the rest without it.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import photos  # noqa: E402
import support  # noqa: E402

WORK = pathlib.Path(os.environ.get("DIESEL_DEMO_DIR", ROOT / "build" / "demo"))
IOPS = 120                # reads per second, typical of a loaded disk array or a shared file system
BANDWIDTH = 200_000_000   # bytes/s
SHARES = (("device", "computing"), ("fetch_stall", "waiting for storage"),
          ("prep_stall", "waiting for decode and transform"), ("checkpoint_stall", "writing checkpoints"),
          ("cpu_starved", "runnable without a core"), ("compiling", "compiling, once"), ("other", "none of these"))
BAR = 20


class NoThrottle:
    """Stands in for support.Throttle where the disk cannot be throttled."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @staticmethod
    def command(argv):
        return [str(arg) for arg in argv]


def say(text):
    print(f"\033[1m{text}\033[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text, flush=True)


def note(text):
    print(textwrap.fill(text, 100, initial_indent="  note: ", subsequent_indent="        "), flush=True)


def progress(label, done, total):
    if sys.stderr.isatty():
        print(f"\r\033[K{label} {100 * done // total} %", end="" if done < total else "\n", file=sys.stderr)


def make_photos(n_files):
    folder = WORK / f"photos-{n_files}"
    if folder.exists():
        return folder
    say(f"Making {n_files} photographs of about 110 KB in class folders (cropped from packaged wallpapers)")
    half_made = WORK / "photos.tmp"
    shutil.rmtree(half_made, ignore_errors=True)
    photos.make(half_made, n_files, lambda done: progress("  photographs", done + 1, n_files))
    half_made.rename(folder)
    return folder


def pack(source):
    dataset = WORK / (source.name + ".diesel")
    shutil.rmtree(dataset, ignore_errors=True)
    say(f"dieselctl pack {source.name} {dataset.name}")
    subprocess.run([support.program("dieselctl"), "pack", source, dataset], check=True)
    return dataset


class Daemon:
    """A dieseld with its own socket, under the same throttle as the jobs."""

    def __init__(self, slow):
        self.socket = WORK / "dieseld.sock"
        self.process = subprocess.Popen(slow.command([support.program("dieseld"), "--socket", self.socket]))

    def __enter__(self):
        for _ in range(100):
            if self.socket.exists() or self.process.poll() is not None:
                break
            time.sleep(0.05)
        if self.process.poll() is not None:
            sys.exit("demo: dieseld did not start (its message is above)")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def why_no_measuring():
    """Returns None if this kernel permits measuring, else the last line that diesel-analyze printed."""
    recording = WORK / "probe.db"
    run = subprocess.run([support.program("diesel-analyze"), "record", "-o", recording, "--", "true"],
                         capture_output=True, text=True, check=False)
    recording.unlink(missing_ok=True)
    return None if run.returncode == 0 else (run.stderr.strip().splitlines() or ["no reason given"])[-1]


def train(slow, name, measured, arguments, environment=None):
    """Runs the job with cold caches. Returns its output, and the report or None if it was not measured."""
    recording = WORK / f"{name}.db"
    recording.unlink(missing_ok=True)
    command = slow.command([support.PYTHON, ROOT / "demo" / "train.py", *arguments])
    if measured:
        command = [support.program("diesel-analyze"), "record", "-o", recording, "--", *command]
    print("  $", " ".join(map(str, ["diesel-analyze", "--"] * measured + ["python3", "train.py"]
                              + [pathlib.Path(a).name if os.sep in str(a) else a for a in arguments])), flush=True)
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False,
                         env={**os.environ, **(environment or {})})
    if run.returncode:
        sys.exit(f"demo: the training job failed with exit status {run.returncode} (its message is above)")
    job = json.loads(run.stdout.splitlines()[-1])
    report = None
    if measured:
        text = subprocess.run([support.program("diesel-analyze"), "report", recording, "--format", "json"],
                              stdout=subprocess.PIPE, text=True, check=True).stdout
        report = json.loads(text)
    print(f"  {job['samples']} samples in {job['seconds']:.1f} s: {job['samples_per_s']:.0f} samples/s\n")
    return job, report


def side_by_side(before, after):
    (job_a, report_a), (job_b, report_b) = before, after
    print(f"{'':34}{'ImageFolder + DataLoader':>30}{'served by dieseld':>30}")
    print(f"{'samples/s':34}{job_a['samples_per_s']:>30.0f}{job_b['samples_per_s']:>30.0f}")
    if report_a and report_b:
        print(f"{'verdict':34}{report_a['verdict']:>30}{report_b['verdict']:>30}")
        for share, meaning in SHARES:
            cells = ""
            for report in (report_a, report_b):
                value = report["shares"][share]
                bar = "#" * round(value * BAR)
                cells += f"{bar:>{BAR + 2}} {100 * value:>5.1f} %"
            print(f"{meaning:34}{cells}")
        print(f"{'measured steps, lost events':34}"
              + "".join(f"{str(r['steps']) + ', ' + str(r['lost_events']):>30}" for r in (report_a, report_b)))
    print()


def conclude(before, after):
    (job_a, report_a), (job_b, report_b) = before, after
    ratio = job_b["samples_per_s"] / job_a["samples_per_s"]
    say(f"The same training runs {ratio:.1f}x as fast.")
    if report_a and report_b:
        waits = [100 * (r["shares"]["fetch_stall"] + r["shares"]["prep_stall"]) for r in (report_a, report_b)]
        fetch = [100 * r["shares"]["fetch_stall"] for r in (report_a, report_b)]
        print(f"Result: the wait for storage went from {fetch[0]:.0f} % of the time to {fetch[1]:.0f} %, "
              f"the whole wait for data from {waits[0]:.0f} % to {waits[1]:.0f} %.")
        print(f"Full reports: {support.program('diesel-analyze')} report {WORK}/plain.db   (and diesel.db)")
    print("In train.py only the loader line differs:")
    print("  - DataLoader(ImageFolder(data, transform), batch_size, shuffle=True, num_workers=2)")
    print("  + diesel_loader.torch.DataLoader(data, batch_size, shuffle=True, transform=transform, num_workers=2)")


def main():
    parser = argparse.ArgumentParser(prog="./dev demo", description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=2080, help="photographs to train on")
    parser.add_argument("--iops", type=int, default=IOPS, help="limit of the slowed-down disk, in reads per second")
    args = parser.parse_args()

    WORK.mkdir(parents=True, exist_ok=True)
    source = make_photos(args.files)
    dataset = pack(source)
    no_measuring = why_no_measuring()
    if no_measuring:
        note(f"the breakdown of the time is left out: {no_measuring}")
    no_throttle = support.Throttle.why_not(WORK)
    if no_throttle:
        note(f"the disk is not slowed down, so there is less to gain: {no_throttle}")
        slow = NoThrottle()
    else:
        note(f"simulated slow storage: a blkio group holds this disk to {args.iops} reads/s and "
             f"{BANDWIDTH // 1_000_000} MB/s, for both jobs alike")
        slow = support.Throttle(WORK, iops=args.iops, bps=BANDWIDTH)
    measured = no_measuring is None
    print()
    support.warm("torch", "torchvision", "PIL.Image")
    with slow:
        say("1. The job as it is: torchvision's ImageFolder, PyTorch's DataLoader, 2 workers")
        support.evict(source.rglob("*.jpg"))
        before = train(slow, "plain", measured, [source])
        say("2. The same job with diesel_loader in place of the loader line, and the dataset served by dieseld")
        support.evict(dataset.rglob("*.chunk"))
        with Daemon(slow) as daemon:
            after = train(slow, "diesel", measured, [dataset, "--diesel"], {"DIESEL_SOCKET": str(daemon.socket)})
    side_by_side(before, after)
    conclude(before, after)


if __name__ == "__main__":
    main()
