# SPDX-License-Identifier: Apache-2.0
"""Tests which samples a batch holds (return_ids), and the batch log (record) of loaders on a real dieseld."""
import errno
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

# Imported first: adds the path of the other modules, and skips where modules are missing.
from loader_support import LoaderCase, flat, numpy, support
from diesel_loader import batch_log

JOB = """
import sys, diesel_loader.numpy as diesel
batches = iter(diesel.DataLoader(sys.argv[1], 16, batches=diesel.Batches(record=sys.argv[2])))
next(batches), next(batches)
"""


def same(data):
    return data.copy()


class Log(LoaderCase):
    def setUp(self):
        self.path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "batches.jsonl"

    def lines(self, path=None):
        return [json.loads(line) for line in (path or self.path).read_text().splitlines()]

    def test_a_line_for_each_batch_with_its_samples(self):
        for name, options in (("equal", {}), ("ragged", {"transform": len, "num_workers": 0}),
                              ("equal", {"transform": same, "num_workers": 2})):
            with self.subTest(name=name, **options):
                path = self.path.with_name(f"{name}{len(options)}{options.get('num_workers')}.jsonl")
                loader = self.loader(name, record=path, return_ids=True, **options)
                ids = [[batch[2].tolist() for batch in loader] for _ in range(2)]
                self.assertEqual(ids, [self.numbers(loader, 0), self.numbers(loader, 1)])
                lines = self.lines(path)
                self.assertEqual([(line["epoch"], line["batch"]) for line in lines],
                                 [(epoch, k) for epoch in range(2) for k in range(len(loader))])
                self.assertEqual([line["samples"] for line in lines], ids[0] + ids[1])
                self.assertEqual({(line["rank"], line["world_size"]) for line in lines}, {(0, 1)})
                by = {"daemon"} if not options else {"worker"} if options["num_workers"] else {"trainer"}
                self.assertEqual({line["by"] for line in lines}, by)

    def test_what_a_batch_cost(self):
        for workers in (0, 1):
            path = self.path.with_name(f"{workers}.jsonl")
            loader = self.loader(record=path, transform=same, num_workers=workers)
            list(loader)
            for line in self.lines(path):
                self.assertEqual(line["pid"] == os.getpid(), workers == 0)
                self.assertEqual(len(line["sample_ns"]), len(line["samples"]))
                self.assertLessEqual(0 < sum(line["sample_ns"]), line["wall_ns"])
                self.assertGreaterEqual(min(line["wait_ns"], line["cpu_ns"], line["time"]), 0)

    def test_each_rank_has_a_file_of_its_own(self):
        seen = []
        for rank in range(2):
            list(self.loader(record=self.path, rank=rank, world_size=2))
            lines = self.lines(self.path.with_name(f"batches.rank{rank}.jsonl"))
            self.assertEqual({(line["rank"], line["world_size"]) for line in lines}, {(rank, 2)})
            seen += [sample for line in lines for sample in line["samples"]]
        self.assertEqual(sorted(seen), list(range(len(seen))))
        self.assertFalse(self.path.exists())

    def test_a_resumed_run_appends(self):
        loader = self.loader(record=self.path)
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        state = loader.state_dict()
        loader.close()
        self.assertEqual(len(self.lines()), 3)  # close() writes the pending lines
        with self.path.open("a") as file:
            file.write('{"epoch": 0, "ba')  # by a killed process
        resumed = self.loader(record=self.path)
        resumed.load_state_dict(state)
        list(resumed)
        lines = self.path.read_text().splitlines()
        self.assertEqual([json.loads(line)["batch"] for line in lines[:3] + lines[4:]], list(range(len(loader))))

    def test_what_is_left_is_written_at_exit(self):
        subprocess.run([sys.executable, "-c", JOB, self.sets["equal"], self.path], check=True, timeout=120)
        self.assertEqual([line["batch"] for line in self.lines()], [0, 1])

    def test_what_was_not_handed_out_is_not_in_it(self):
        loader = self.loader(record=self.path, transform=same, num_workers=2)
        next(iter(loader))
        loader.close()
        self.assertEqual([line["batch"] for line in self.lines()], [0])

    def test_a_full_disk_is_one_warning(self):
        want = flat(self.loader())
        loader = self.loader(record="/dev/full")
        with self.assertLogs("diesel_loader", "WARNING") as logs:
            self.assertEqual(flat(loader), want)
            list(loader)
        self.assertEqual(len(logs.output), 1)
        self.assertIn("/dev/full: No space left on device", logs.output[0])

    def test_a_full_disk_leaves_whole_lines(self):
        write, space = os.write, [1000]

        def small(fd, data):
            if not space[0]:
                raise OSError(errno.ENOSPC, "No space left on device")
            n = write(fd, data[:space[0]])
            space[0] -= n
            return n

        self.path.write_text('{"old": 1}\n')
        with mock.patch.object(batch_log.os, "write", small), self.assertLogs("diesel_loader", "WARNING"):
            list(self.loader(record=self.path))
        self.assertEqual(self.lines(), [{"old": 1}])

    def test_a_path_that_cannot_be_opened(self):
        with self.assertRaises(FileNotFoundError):
            iter(self.loader(record=self.path.parent / "none" / "batches.jsonl"))

    def test_a_forked_child_writes_nothing_of_its_parent(self):
        loader = self.loader(record=self.path)
        batches = iter(loader)
        next(batches)
        child = os.fork()
        if child == 0:
            loader._batch_log.flush()
            os._exit(0)
        os.waitpid(child, 0)
        self.assertEqual(self.path.read_text(), "")
        loader.close()
        self.assertEqual(len(self.lines()), 1)


class Ids(LoaderCase):
    def test_they_name_the_samples(self):
        for name, options in (("equal", {}), ("ragged", {"transform": same, "num_workers": 1})):
            loader = self.loader(name, return_ids=True, **options)
            for data, labels, ids in loader:
                self.assertEqual((ids.dtype, ids.shape), (numpy.int64, labels.shape))
                self.assertEqual(flat([[data, labels]]), self.contents(loader, ids))

    def test_collate_fn_gets_them(self):
        loader = self.loader(return_ids=True, collate_fn=lambda samples: [sample[2] for sample in samples], num_workers=1)
        self.assertEqual(list(loader), self.numbers(loader))

    def test_they_are_those_of_dieselctl(self):
        for options in ((), ("class0/000.bin", "class3")):
            done = subprocess.run([support.program("dieselctl"), "ls", "-R", "--json", self.sets["ragged"], *options],
                                  capture_output=True, text=True, check=True)
            listed = {entry["sample"]: entry["path"] for entry in json.loads(done.stdout)}
            self.assertGreater(len(listed), 50)
            loader = self.loader("ragged", return_ids=True)
            seen = {int(i): loader.dataset.sample_path(int(i)) for _, _, ids in loader for i in ids}
            self.assertEqual({i: seen[i] for i in listed}, listed)


if __name__ == "__main__":
    unittest.main()
