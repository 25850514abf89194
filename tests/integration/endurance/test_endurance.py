# SPDX-License-Identifier: Apache-2.0
"""A thousand epochs in miniature, with a cache that is too small: memory and descriptors of daemon and client stay what they were."""
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
SLACK = 6 << 20  # of memory: allocators and page tables, not something an epoch


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def private_bytes(pid):
    """Memory of its own: segments that it maps come and go as the cache is used."""
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
            self.assertLessEqual(late_fds, fds + 16)  # as many chunks are on their way as it happens
            self.assertLess(late_memory, memory + SLACK)


if __name__ == "__main__":
    main()
