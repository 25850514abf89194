# SPDX-License-Identifier: Apache-2.0
"""Makes what docs/tutorials/three-slow-jobs.md shows: three ordinary training jobs, each recorded as it is and with the fix that its
report asks for. Needs root (the disk is throttled), Chromium for the pictures, and some minutes.

    python3 docs/tutorials/three-slow-jobs/make.py [JOB ...]

Reports as text and pictures go to docs/tutorials/three-slow-jobs/, recordings to build/tour/.
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
WORK = ROOT / "build" / "tour"
sys.path += [str(ROOT / "bench"), str(ROOT / "demo")]
import photos  # noqa: E402
import serving  # noqa: E402
import support  # noqa: E402

BANDWIDTH = 20_000_000  # bytes/s of the slow disk
READ_AHEAD_KB = 128     # the kernel's default; machines in a cloud are often set to far more
ANALYZE = support.program("diesel-analyze")
os.environ["PYTHONPATH"] = str(ROOT / "client" / "python")
os.environ.setdefault("DIESEL_LIB", str(ROOT / "build" / "release" / "lib"))


def make_photos():
    """Makes large photographs, as from a camera: crops of the packaged ones."""
    folder = WORK / "photos"
    if folder.exists():
        return folder
    from PIL import Image
    for path in photos.photographs():
        group = folder / path.stem.lower()
        group.mkdir(parents=True)
        with Image.open(path) as opened:
            picture = opened.convert("RGB").resize((1600, 1200))
        for i in range(60):
            picture.crop((i, i, 1440 + i, 1080 + i)).save(group / f"{i:03d}.jpg", quality=90)
    return folder


def serve():
    """Packs the photographs. Returns the dieseld that is to run meanwhile, and the job's additional arguments."""
    dataset = WORK / "photos.diesel"
    if not dataset.exists():
        serving.pack(make_photos(), dataset)
    return serving.Daemon(WORK), ["--dieseld", dataset]


def make_records():
    path = WORK / "records.lmdb"
    if not path.exists():
        subprocess.run([support.PYTHON, HERE / "records.py", path, "--make", "200000"], check=True)
    return path


# name: (function that makes its data, its arguments, function that returns what runs meanwhile and the fix's arguments,
# whether it runs on the slow disk)
JOBS = {
    "photographs": (make_photos, ["--epochs", "2"], serve, False),
    "records": (make_records, ["--steps", "40"], lambda: (contextlib.nullcontext(), ["--no-readahead"]), True),
    "checkpoints": (lambda: WORK / "checkpoint.pt", [], lambda: (contextlib.nullcontext(), ["--every", "100"]), False),
}


class ReadAhead:
    """Sets the disk's read-ahead to the kernel's default while the block runs."""

    def __enter__(self):
        number = support.disk_of(WORK)
        self.setting = pathlib.Path(f"/sys/dev/block/{number}/queue/read_ahead_kb")
        self.before = self.setting.read_text()
        self.setting.write_text(str(READ_AHEAD_KB))

    def __exit__(self, *_):
        self.setting.write_text(self.before)


def evict(path):
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    support.evict(file for file in files if file.exists())


def run(name, path, arguments, slow, label):
    recording = WORK / f"{name}-{label}.db"
    recording.unlink(missing_ok=True)
    command = [ANALYZE, "record", "-o", recording, "--", support.PYTHON, HERE / f"{name}.py", path, *arguments]
    if slow:
        evict(path)
        with ReadAhead(), support.Throttle(WORK, bps=BANDWIDTH) as disk:
            output = subprocess.run(disk.command(command), check=True, stdout=subprocess.PIPE, text=True).stdout
    else:
        output = subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True).stdout
    rate = float(output.split()[0])
    text = subprocess.run([ANALYZE, "report", recording], check=True, stdout=subprocess.PIPE, text=True).stdout
    text = text.replace(f"{ROOT}/", "")
    (HERE / f"{name}-{label}.txt").write_text(text)
    print(f"--- {name}, {label}: {rate:.0f} samples/s\n{text}", flush=True)
    if label == "before":
        picture(recording, HERE / f"{name}.png")
    return rate


def picture(recording, target):
    page = recording.with_suffix(".html")
    subprocess.run([ANALYZE, "report", recording, "-o", page], check=True)
    page.write_text(page.read_text().replace(f"{ROOT}/", ""))  # removes this machine's paths
    if chromium := (shutil.which("chromium") or shutil.which("chromium-headless-shell")):
        subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                        "--window-size=1100,1500", f"--screenshot={target}", f"file://{page}"], check=True,
                       capture_output=True)


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    support.warm("torch", "torchvision", "PIL.Image", "numpy", "lmdb")
    for name in sys.argv[1:] or JOBS:
        make, arguments, fix, slow = JOBS[name]
        path = make()
        before = run(name, path, arguments, slow, "before")
        meanwhile, more = fix()
        with meanwhile:
            after = run(name, path, arguments + more, slow, "after")
        print(f"=== {name}: {before:.0f} to {after:.0f} samples/s, {after / before:.2f}x\n", flush=True)


if __name__ == "__main__":
    main()
