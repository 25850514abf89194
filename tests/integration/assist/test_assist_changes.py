# SPDX-License-Identifier: Apache-2.0
"""Tests dieseld --assist next to a job that changes its files and their order while it runs."""
import sys
import time

import assist_support
from assist_support import FILES, SOMEBODY, wait_for

# Reads FOLDER/train and FOLDER/test alternately, then follows the file FOLDER/now. `order`: another order, and other batches. `data`:
# FOLDER/more instead, also from index 0 on. `lies`: each index opens any file.
JOB = """
import os, random, sys, threading
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __init__(self, folder, lies=False):
        self.names, self.lies = sorted(entry.path for entry in os.scandir(folder)), lies
    def __len__(self):
        return len(self.names)
    def __getitem__(self, index):
        with open(random.choice(self.names) if self.lies else self.names[index], "rb") as file:
            return len(file.read())

def go(files, **order):
    for name in files.names:
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    for batch in DataLoader(files, num_workers=2, **order):
        pass

folder, now = sys.argv[1], sys.argv[2]
threading.Thread(target=lambda: (os.read(0, 1), os._exit(0)), daemon=True).start()
while True:
    with open(now) as file:
        kind = file.read()
    if kind == "order":
        train = Files(f"{folder}/train")
        go(train, sampler=[i * 7 % len(train) for i in range(len(train))], batch_size=12)
    elif kind == "data":
        go(Files(f"{folder}/more"), shuffle=True, batch_size=16)
    elif kind == "lies":
        go(Files(f"{folder}/more", lies=True), shuffle=True, batch_size=16)
    else:
        go(Files(f"{folder}/train"), shuffle=True, batch_size=16)
        go(Files(f"{folder}/test"), batch_size=16)
"""
TEST = 128
SEEN = TEST - 32  # dieseld does not see the end of each worker's last batch


class Changes(assist_support.Case):
    def setUp(self):
        super().setUp()
        for name, n in (("train", FILES), ("test", TEST), ("more", FILES)):
            (self.folder / name).mkdir()
            for i in range(n):
                (self.folder / name / f"{i:05}").write_bytes(b"x" * 9000)

    def after(self, daemon, process, what, predicate):
        """Returns dieseld's report of the job when predicate(report) holds."""
        seen = {}

        def look():
            job = self.of(daemon, process)
            seen.update(job or {})
            return job if job and predicate(job) else None
        try:
            return wait_for(what, look, daemon)
        except AssertionError as error:
            raise AssertionError(f"{seen}: {error}") from None

    def test_what_changes_is_seen_and_what_lies_is_given_up(self):
        now = self.folder.with_name(self.folder.name + "-now")
        now.write_text("both")
        daemon = self.daemon("--assist", "--history", "off")
        command = ["setpriv", "--reuid", str(SOMEBODY), "--regid", str(SOMEBODY), "--clear-groups", sys.executable, "-c", JOB,
                   str(self.mirror().mount), str(now)]
        process = self.start(command)
        told = self.after(daemon, process, "help with both", lambda j: j["state"] == "helps" and j["known_samples"] >= FILES + SEEN)
        self.assertLessEqual(told["misses"], TEST)  # at the first switch to the other data

        now.write_text("order")
        end = told["batches"] + 96
        told = self.after(daemon, process, "another order", lambda j: j["batches"] > end or j["state"] == "stopped")
        self.assertIn(told["state"], ("helps", "tries"), told)
        self.assertLessEqual(told["misses"], TEST)

        now.write_text("data")
        told = self.after(daemon, process, "another data set", lambda j: j["known_samples"] >= 2 * FILES + SEEN or j["state"] == "stopped")
        before = told["bytes_read_ahead"] + FILES * 9000 // 2
        told = self.after(daemon, process, "help with it", lambda j: j["bytes_read_ahead"] > before or j["state"] == "stopped")
        self.assertIn(told["state"], ("helps", "tries"), told)
        self.assertEqual((told["failed"], told["misses"] <= TEST), (0, True), told)

        now.write_text("lies")
        told = self.after(daemon, process, "the end of it", lambda j: j["state"] == "stopped")
        self.assertIn("opens different files", told["why"])
        self.assertLess(told["misses"], 4 * FILES)
        time.sleep(2)  # lets outstanding reads end
        before = self.of(daemon, process)["bytes_read_ahead"]
        time.sleep(1.5)
        self.assertEqual(self.of(daemon, process)["bytes_read_ahead"], before)


if __name__ == "__main__":
    assist_support.main()
