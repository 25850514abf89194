# SPDX-License-Identifier: Apache-2.0
"""A newcomer's first minute: two commands, `pip install` of both wheels and `diesel-analyze -- python train.py`, timed.

The wheels are those of `./dev wheel` and `./dev wheel tools`, installed from files into a new virtual environment that has torch already: a
download takes as long as the network does. The job is stock PyTorch over files, and ends by itself after about 10 s of training.
diesel-analyze runs as root, where it measures by BPF, and as a user without privilege, where it samples. `own` is the time of the two
commands beyond the same job without diesel-analyze: pip, attaching and the report.

    DIESEL_PYTHON=ENVIRONMENT/bin/python ./dev bench first_verdict [--rounds N] [--seconds S]
"""
import argparse
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import support

NAME, ROUNDS, SECONDS, UID = "first_verdict", 3, 10.0, 65534
JOB = """\
import os, sys, time
begin = time.monotonic()
import torch
from torch.utils.data import DataLoader, Dataset
class Files(Dataset):
    def __init__(self, top):
        self.paths = sorted(os.path.join(folder, name) for folder, _, names in os.walk(top) for name in names)
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, i):
        with open(self.paths[i], "rb") as file:
            data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).float()
        for _ in range(20):
            data = data.sort().values.roll(1)
        return data / 255, i % 10
model = torch.nn.Linear(4096, 10)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
loader = DataLoader(Files(sys.argv[1]), batch_size=32, shuffle=True, num_workers=1)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for data, labels in loader:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(data), labels).backward()
        optimizer.step()
        if time.monotonic() > end:
            break
print(time.monotonic() - begin)
"""


def wheels():
    folder = support.ROOT / "build" / "wheel" / "dist"
    found = [max(folder.glob(f"{name}-*.whl"), key=os.path.getmtime, default=None) for name in ("diesel_loader", "diesel_tools")]
    if None in found:
        support.skip("the wheels are missing. To build them: ./dev wheel && ./dev wheel tools")
    return found


def as_user(user, command):
    drop = [] if user == "root" or os.geteuid() else ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", "--bounding-set=-all",
                                      "--inh-caps=-all", "--no-new-privs"]
    return [*drop, "env", "-i", "PATH=/usr/bin:/bin", "HOME=/nonexistent", "LANG=C.UTF-8", *map(str, command)]


def timed(command):
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - begin
    if done.returncode:
        raise SystemExit(f"{command}: {done.stdout}{done.stderr}")
    return seconds, done


def environment(folder):
    """Makes a virtual environment that sees this Python's torch. This is not timed, because users of torch have an environment already."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    torch = importlib.util.find_spec("torch")
    if not torch:
        support.skip(f"{sys.executable} has no torch")
    site, = folder.glob("lib/python3*/site-packages")
    (site / "torch.pth").write_text(f"{pathlib.Path(torch.origin).parents[1]}\n")
    return folder / "bin"


def first_minute(top, user, seconds):
    bin_folder = environment(top / "venv")
    job = [bin_folder / "python", top / "train.py", top / "data", seconds]
    with support.Steal() as steal:
        install_s, _ = timed([bin_folder / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index",
                              *wheels()])
        verdict_s, done = timed(as_user(user, [bin_folder / "diesel-analyze", "--", *job]))
    verdict = next((line for line in done.stderr.splitlines() if "-bound" in line.partition(":")[0]), None)
    if not verdict:
        raise SystemExit(f"no verdict: {done.stderr}")
    alone_s, _ = timed(as_user(user, job))
    shutil.rmtree(top / "venv")
    return {"install_s": install_s, "analyze_s": verdict_s, "total_s": install_s + verdict_s, "job_s": float(done.stdout),
            "alone_s": alone_s, "verdict": verdict, "steal": steal.ratio, "neighbours": steal.neighbours}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="seconds for which the job trains (default: %(default)s)")
    options = parser.parse_args()
    users = ["root", "unprivileged"] if os.geteuid() == 0 else ["unprivileged"]
    if os.geteuid() != 0:
        print("not root, so the rounds that need root are left out", flush=True)
    raw = {user: [] for user in users}
    with tempfile.TemporaryDirectory() as folder:
        top = pathlib.Path(folder)
        top.chmod(0o755)
        (top / "train.py").write_text(JOB)
        support.random_files(top / "data", 600, 4096)
        for _ in range(options.rounds):
            for user in users:
                run = first_minute(top, user, options.seconds)
                raw[user].append(run)
                print(f"  {user}: {run['total_s']:.1f} s until the verdict \"{run['verdict'].partition(':')[0]}\"; pip took {run['install_s']:.1f} s, "
                      f"the job {run['job_s']:.1f} s; steal {run['steal']:.3f}, neighbours {run['neighbours']:.2f}", flush=True)
    figures = {}
    for user, runs in raw.items():
        figures |= {f"{user}_median_s": support.median([run["total_s"] for run in runs]),
                    f"{user}_worst_s": max(run["total_s"] for run in runs),
                    f"{user}_own_s": support.median([run["total_s"] - run["alone_s"] for run in runs])}
    support.result_write(NAME, raw, **figures)


if __name__ == "__main__":
    main()
