# SPDX-License-Identifier: Apache-2.0
"""Runs a thousand short epochs with a cache that is too small: memory and descriptors of daemon and client must not grow."""
import os
import pathlib
import subprocess

try:
    import diesel_loader
    import diesel_loader.numpy as diesel
except ImportError as error:
    print(f"skipped: needs {error.name}")
    raise SystemExit(77)
from dieseld_support import BIN, Case, SCRATCH, main

N, BYTES, CLASSES, BATCH = 96, 250 << 10, 4, 8
WARM, EPOCHS = 100, 1000
SLACK = 6 << 20  # memory for allocators and page tables, not a growth per epoch


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def private_bytes(pid):
    """Returns its own memory: mapped segments come and go as the cache is used."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) << 10
    raise ValueError(pid)


class Endurance(Case):
    def test_a_thousand_epochs(self):
        files, path = pathlib.Path(SCRATCH, "files"), pathlib.Path(SCRATCH, "endurance")
        for i in range(N):
            folder = files / f"class{i % CLASSES}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{i:04d}.bin").write_bytes(i.to_bytes(8, "little") + os.urandom(BYTES - 8))
        subprocess.run([os.path.join(BIN, "dieselctl"), "pack", "--chunk-size", "4M", files, path], check=True, stdout=subprocess.DEVNULL)
        daemon = self.daemon(cache="22M")
        dataset = diesel_loader.Dataset(path, socket=daemon.socket)
        loader = diesel.DataLoader(dataset, batch_size=BATCH, shuffle=True, seed=3, order=diesel.Order(window_chunks=1), num_workers=0)
        figures = {}
        for epoch in range(EPOCHS):
            seen = set()
            for data, _ in loader:
                seen.update(data[:, :8].copy().view("<u8").ravel().tolist())
            self.assertEqual(len(seen), N)
            if epoch + 1 in (WARM, EPOCHS):
                figures[epoch + 1] = [(descriptors(pid), private_bytes(pid)) for pid in (daemon.process.pid, os.getpid())]
        self.assertGreater(daemon.status()["cache"]["evictions"], EPOCHS)
        for (fds, memory), (late_fds, late_memory) in zip(figures[WARM], figures[EPOCHS]):
            self.assertLessEqual(late_fds, fds + 16)  # the number of chunks under way varies
            self.assertLess(late_memory, memory + SLACK)


if __name__ == "__main__":
    main()
