# SPDX-License-Identifier: Apache-2.0
"""A training job of plain PyTorch that does not use dieseld: a DataLoader with 2 workers reads whole files, shuffled.

    plain_files.py FOLDER memory|cold EPOCHS SECONDS computes|bare [DIESELCTL]

memory: the files are in the page cache from the start. cold: the caches of the machine are dropped before each epoch (root). It runs for at
least EPOCHS and SECONDS. computes: a step of a small network on each batch. Prints, as JSON: the samples of an epoch, the seconds of
each, CPU seconds of all, the sum over all bytes of one, and the figures of DIESELCTL at the end about prefetching for this process."""
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import support
import torch

BATCH, WORKERS, FEATURES = 32, 2, 4096


class Files(torch.utils.data.Dataset):
    def __init__(self, folder):
        self.names = sorted(str(path) for path in pathlib.Path(folder).rglob("*.bin"))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        with open(self.names[index], "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


class Network:
    def __init__(self):
        self.model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self, batch):
        self.optimizer.zero_grad()
        self.model(batch[:, :FEATURES].float() / 255).square().mean().backward()
        self.optimizer.step()


def epoch(loader, network):
    """Returns seconds, and the sum over all bytes."""
    begin, total = time.perf_counter(), 0
    for batch in loader:
        total += int(batch.view(torch.int64).sum())
        if network:
            network.step(batch)
    return time.perf_counter() - begin, total % (1 << 64)


def cpu_s():
    """Returns CPU seconds of this process and of the workers of past epochs."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(use.ru_utime + use.ru_stime for use in used)


def told(dieselctl):
    done = subprocess.run([dieselctl, "why", "--json"], stdout=subprocess.PIPE, check=True)
    return next((job for job in json.loads(done.stdout)["assist"]["jobs"] if job["pid"] == os.getpid()), None)


def main():
    folder, where, epochs, seconds, computes = sys.argv[1:6]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    files = Files(folder)
    loader = torch.utils.data.DataLoader(files, batch_size=BATCH, shuffle=True, num_workers=WORKERS)
    network = Network() if computes == "computes" else None
    if where == "memory":
        for name in files.names:
            pathlib.Path(name).read_bytes()
    took, sums, cpu = [], set(), 0.0
    while len(took) < int(epochs) or sum(took) < float(seconds):
        if where == "cold":
            support.drop_caches()
        before = cpu_s()
        spent, total = epoch(loader, network)
        cpu += cpu_s() - before
        took.append(spent)
        sums.add(total)
    if len(sums) > 1:
        sys.exit("the epochs did not read the same bytes")
    print(json.dumps({"samples": len(files), "seconds": took, "cpu_s": cpu, "sum": sums.pop(),
                      "assist": told(sys.argv[6]) if len(sys.argv) > 6 else None}), flush=True)


if __name__ == "__main__":
    main()
