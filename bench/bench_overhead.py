# SPDX-License-Identifier: Apache-2.0
"""What does recording cost the job, and which resources does the recorder itself need?

One training job keeps running, and alternately it is recorded (`diesel-analyze record -p`) and not recorded for one
second each. Its own trace shows how many steps it made in each slice. Each recorded slice is compared with the mean of
the slices before and after it, and the median of these ratios is the result. (Whole runs with and without recording
differ by 20 % among themselves on a virtual machine, which hides the effect.)

  jpeg         photographs, decoded by PIL in two workers, files in the page cache      at least 0.98
  small_reads  one trainer, one worker: at least 100,000 records/s of 4 KiB, pread   at least 0.95
  threads      63 loader threads and the trainer: recorded for three minutes; the recorder's peak resident memory
               under 64 MiB, the recording file under 16 MiB after the first minute, and then under 1.4 MiB per minute: 1 MiB, and budget left over
               from earlier

Needs root, BPF, PIL and the photographs of mate-backgrounds.

usage: bench_overhead.py [--slices N] [--job NAME] [--lock FILE]
"""
import argparse
import bisect
import contextlib
import fcntl
import json
import os
import sqlite3
import subprocess
import sys
import time

import support

sys.path.insert(0, str(support.ROOT / "demo"))
import photos  # noqa: E402

LIMITS = {"jpeg": 0.98, "small_reads": 0.95}
RSS_MIB_MAX, FIRST_MINUTE_MIB_MAX, DISK_MIB_PER_MIN_MAX = 64, 16.0, 1.4
SLICE_S = 2.0
SETTLE_S = 0.2  # pause after the recorder has ended, because unloading its programs takes CPU time, too
START_S = 9.0  # time for imports and first batches
MINUTE_S, N_MINUTES = 60, 3
N_PHOTOS, READS_FILE_BYTES = 600, 512 << 20
READS_PER_STEP = 16 * 256  # bench/jobs/loads.py

JOBS = {"jpeg": "jpeg", "small_reads": "reads", "threads": "threads"}


def start(name, folder, seconds):
    data = {"jpeg": "photos", "small_reads": "big", "threads": "small"}[name]
    return subprocess.Popen([support.PYTHON, str(support.ROOT / "bench/jobs/loads.py"), JOBS[name],
                             "--data", str(folder / data), "--seconds", str(seconds), "--trace", str(folder / "trace")],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(job):
    _, text = job.communicate()
    if job.returncode:
        sys.exit(f"the job failed: {text.decode()[-500:]}")


def peak_mib(pid, so_far):
    """Returns the largest resident memory so far. The value of wait4 is never below its parent's at the fork."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as status:
            return next((int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")), so_far)
    except (FileNotFoundError, ProcessLookupError):
        return so_far


def record(pid, recording, seconds):
    """Returns the recorder's peak memory (MiB) and resource usage. It has no children, as it did not start the job."""
    recorder = subprocess.Popen([support.program("diesel-analyze"), "record", "-o", str(recording), "-d", f"{seconds}s",
                                 "-p", str(pid)], stderr=subprocess.DEVNULL)
    peak, ended, usage, status = 0.0, 0, None, 0
    while not ended:
        peak = peak_mib(recorder.pid, peak)
        time.sleep(0.02)
        ended, status, usage = os.wait4(recorder.pid, os.WNOHANG)
    recorder.returncode = os.waitstatus_to_exitcode(status)
    if recorder.returncode:
        sys.exit(f"diesel-analyze record failed with exit status {recorder.returncode}")
    with contextlib.closing(sqlite3.connect(recording)) as database:
        return peak, usage, dict(database.execute("SELECT key, value FROM info"))


def quiet_slice():
    time.sleep(SETTLE_S)
    begin = time.monotonic()
    time.sleep(SLICE_S)
    return begin, time.monotonic()


def recorded_slice(pid, recording):
    """Records one slice. Returns its begin and end, without loading and unloading the programs, and the number of lost events."""
    _, _, info = record(pid, recording, SLICE_S)
    recording.unlink()
    return int(info["start_ns"]) / 1e9, int(info["stop_ns"]) / 1e9, int(info["lost_events"])


def steps_per_second(begins, begin, end):
    """begins: the time at which each step began. Steps at the edges count as fractions."""
    def position(at):
        i = bisect.bisect_right(begins, at) - 1
        return i + (at - begins[i]) / (begins[i + 1] - begins[i])
    return (position(end) - position(begin)) / (end - begin)


def measure(name, folder, n_slices):
    slices, lost = [], 0
    with support.Steal() as steal:
        job = start(name, folder, START_S + (n_slices + 1) * (2 * SLICE_S + SETTLE_S + 3))
        time.sleep(START_S)
        slices.append(quiet_slice())
        for _ in range(n_slices):
            begin, end, n_lost = recorded_slice(job.pid, folder / "overhead.db")
            lost += n_lost
            slices += [(begin, end), quiet_slice()]
        finish(job)
    begins = json.loads((folder / "trace").read_text())
    rates = [steps_per_second(begins, begin, end) for begin, end in slices]
    ratios = [2 * rates[i] / (rates[i - 1] + rates[i + 1]) for i in range(1, len(rates), 2)]
    ratio, alone = support.median(ratios), support.median(rates[::2])
    reads = f", {alone * READS_PER_STEP:,.0f} reads/s" if name == "small_reads" else ""
    print(f"{name:12} {alone:6.1f} steps/s alone{reads}, {support.median(rates[1::2]):6.1f} recorded: ratio {ratio:.3f} "
          f"(median of {n_slices}, quartiles {sorted(ratios)[n_slices // 4]:.3f} to "
          f"{sorted(ratios)[3 * n_slices // 4]:.3f}); {lost} events lost; steal {100 * steal.ratio:.1f} %, neighbours "
          f"{100 * steal.neighbours:.1f} %", flush=True)
    return {"job": name, "ratio": ratio, "ratios": ratios, "steps_per_s": rates, "lost_events": lost,
            "reads_per_s": alone * READS_PER_STEP if name == "small_reads" else None,
            "steal": steal.ratio, "neighbours": steal.neighbours}


def measure_recorder(folder):
    """Measures the recorder of a job of 64 threads, over some minutes."""
    recording = folder / "minutes.db"
    job = start("threads", folder, START_S + N_MINUTES * MINUTE_S + 5)
    time.sleep(START_S)
    threads = len(os.listdir(f"/proc/{job.pid}/task"))
    peak, usage, info = record(job.pid, recording, N_MINUTES * MINUTE_S)
    finish(job)
    size = sum(path.stat().st_size for path in folder.glob("minutes.db*"))
    with contextlib.closing(sqlite3.connect(recording)) as database:
        first = database.execute("SELECT sum(length(records)) FROM events WHERE min_end_ns < ?",
                                 [int(info["start_ns"]) + MINUTE_S * 10 ** 9]).fetchone()[0]
    minutes = (int(info["stop_ns"]) - int(info["start_ns"])) / 60e9 - 1
    result = {"job": "threads", "n_threads": threads, "rss_mib": peak,
              "first_minute_mib": first / (1 << 20),
              "disk_mib_per_min": (size - first) / (1 << 20) / minutes, "recorder_cpu_s": usage.ru_utime + usage.ru_stime,
              "lost_events": int(info["lost_events"])}
    print(f"{'threads':12} {threads} threads: recorder {result['rss_mib']:.1f} MiB resident at most, recording "
          f"{result['first_minute_mib']:.2f} MiB in the first minute, then {result['disk_mib_per_min']:.2f} MiB per minute, recorder's CPU {result['recorder_cpu_s']:.1f} s, "
          f"{result['lost_events']} events lost", flush=True)
    return result


def make_data(folder, names):
    if "jpeg" in names:
        photos.make(folder / "photos", N_PHOTOS)
        for path in (folder / "photos").rglob("*.jpg"):
            path.read_bytes()
    if "small_reads" in names:
        with open(folder / "big", "wb") as file:
            for _ in range(READS_FILE_BYTES >> 20):
                file.write(os.urandom(1 << 20))
    if "threads" in names:
        support.random_files(folder / "small", 2000, 16_000)
    os.sync()


def main():
    parser = argparse.ArgumentParser(description="Measures the cost of recording to the job, and the resources that the recorder uses.")
    parser.add_argument("--slices", type=int, default=25, help="recorded slices per job (default: %(default)s)")
    parser.add_argument("--job", choices=JOBS, help="measure only this job")
    parser.add_argument("--lock", metavar="FILE", help="hold a lock on FILE while a job is measured")
    options = parser.parse_args()
    if os.geteuid() != 0:
        support.skip("recording by BPF needs root")
    if not photos.SOURCE.exists():
        support.skip(f"no photographs in {photos.SOURCE} (apt install mate-backgrounds)")
    names, runs, figures = [options.job] if options.job else list(JOBS), [], {}
    with support.Scratch() as folder, open(options.lock or os.devnull, "a", encoding="ascii") as lock:
        make_data(folder, names)
        for name in names:
            if options.lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
            runs.append(measure_recorder(folder) if name == "threads" else measure(name, folder, options.slices))
            fcntl.flock(lock, fcntl.LOCK_UN)
            if name == "threads":
                figures |= {"rss_mib": runs[-1]["rss_mib"], "first_minute_mib": runs[-1]["first_minute_mib"],
                            "disk_mib_per_min": runs[-1]["disk_mib_per_min"]}
            else:
                figures[name] = runs[-1]["ratio"]
    support.result_write("overhead-part" if options.job else "overhead", runs, **figures,
                         lost_events=sum(run["lost_events"] for run in runs))
    good = all(figures[name] >= limit for name, limit in LIMITS.items() if name in figures)
    good = good and figures.get("rss_mib", 0) < RSS_MIB_MAX and figures.get("disk_mib_per_min", 0) < DISK_MIB_PER_MIN_MAX
    good = good and figures.get("first_minute_mib", 0) < FIRST_MINUTE_MIB_MAX
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
