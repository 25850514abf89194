# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints in a bucket: what is written and restored, servers that fail, and processes that are killed."""
import json
import os
import pathlib
import resource
import signal
import sys
import unittest
import unittest.mock

import test_checkpoint_faults as faults
from checkpoint_support import Case, saver_of
from common.users import MALLORY, become

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "s3"))
from s3_support import DIESELCTL, Proxy, environment, juicefs, stop_all  # noqa: E402

import torch

from diesel_loader.checkpoint import Checkpointer, bucket, newest, persister, processes, uploads

faults.N_KILLS = 8


def setUpModule():
    global PROXY
    PROXY = Proxy(juicefs())
    os.environ.update({name: value for name, value in environment(PROXY.port).items() if name.startswith("AWS_")} | {"DIESEL_DIESELCTL": DIESELCTL})
    unittest.addModuleCleanup(stop_all)


def changed(text, values):
    return json.dumps({**json.loads(text), **values}).encode()


class Bucket(Case):
    def setUp(self):
        super().setUp()
        PROXY.reset()
        self.folder = f"s3://bucket/{self.id().rpartition('.')[2]}"
        self.objects = self.enterContext(bucket.Bucket(self.folder, DIESELCTL))

    def names(self):
        return list(self.objects.checkpoints())

    def checkpointer(self, state=None, **options):
        state = state or {"a": torch.arange(1 << 18)}
        checkpointer = Checkpointer(self.folder + "/", state=lambda: state, **options)
        self.addCleanup(checkpointer.close)
        return checkpointer

    def save(self, checkpointer, **values):
        checkpointer.save(**values)
        checkpointer.wait()


class Written(Bucket):
    def test_what_was_saved_is_restored_and_the_last_ones_stay(self):
        state = {"large": torch.arange(5000, dtype=torch.uint8), "small": torch.ones(3)}
        with Checkpointer(self.folder, keep=2, state=lambda: state) as checkpointer:
            for epoch in range(3):
                self.save(checkpointer, epoch=epoch)
                state["small"] += 1
                if epoch < 2:
                    state["large"] = state["large"][:1000].clone() if epoch == 0 else torch.randint(0, 255, (70 << 20,), dtype=torch.uint8)   # in two parts
            self.assertEqual(checkpointer.figures()["newest"], newest(self.folder))
        self.assertEqual(self.lines, [])
        self.assertEqual(self.objects.checkpoints(), {f"00000{i}-step-0": ["manifest.json", "state.pt"] for i in (2, 3)})
        self.assertNotIn(".job", self.objects.keys())
        self.assertEqual(newest(self.folder + "/"), self.folder + "/000003-step-0")
        checkpointer = self.checkpointer()
        PROXY.reset()
        found = checkpointer.restore()
        self.assertEqual(sum("list-type=" in path for _, path in PROXY.seen), 1)
        self.assertEqual((found.path, found.step, found.state["epoch"]), (self.folder + "/000003-step-0", 0, 2))
        self.assertTrue(torch.equal(found.state["small"], state["small"] - 1))
        self.assertTrue(torch.equal(found.state["large"], state["large"]))

    def test_damaged_ones_are_named_and_half_written_ones_removed(self):
        with Checkpointer(self.folder, keep=0, state=lambda: {"a": torch.arange(100000)}) as checkpointer:
            for _ in range(6):
                checkpointer.save()
        good, cut, bent, long, torn, half = self.names()
        with open(self.objects.read(f"{good}/state.pt", 1 << 30), "rb") as file:
            file.seek(0)
            data = file.read()
        for name, changed in ((cut, data[:5000]), (bent, data[:300000] + b"!" + data[300001:]), (long, data + b"!")):
            self.objects.put_bytes(f"{name}/state.pt", changed, replace=True)
        self.objects.put_bytes(f"{torn}/manifest.json", b"{}\n00000000\n", replace=True)
        self.objects.delete(f"{half}/manifest.json")
        checkpointer = self.checkpointer()
        self.said(f"checkpoint {self.folder}/{half} is half-written: removed")
        self.assertEqual(checkpointer.restore().path, f"{self.folder}/{good}")
        for line, name, why in zip(self.lines, (torn, long, bent, cut), ("does not match", "instead of at most", "do not match their checksum", "5000 bytes")):
            self.assertRegex(line, f"^checkpoint {self.folder}/{name} is damaged .*{why}.*: passed over$")
        self.assertEqual(len(self.lines), 4)

    @unittest.skipIf(os.getuid() != 0, "needs root to become another user")
    def test_another_user_can_neither_read_the_credentials_nor_stop_the_writing(self):
        checkpointer = self.checkpointer()
        self.save(checkpointer)
        saver = saver_of(os.getpid())
        writer = int(pathlib.Path(f"/proc/{saver}/task/{saver}/children").read_text())
        self.assertEqual(resource.prlimit(writer, resource.RLIMIT_CORE), (0, 0))
        pid = os.fork()
        if pid == 0:
            become(MALLORY)
            n_open = 0
            for door in (lambda: open(f"/proc/{writer}/environ", "rb").read(), lambda: open(f"/proc/{writer}/mem", "rb"),
                         lambda: os.listdir(f"/proc/{writer}/fd"), lambda: os.kill(writer, signal.SIGSTOP)):
                try:
                    door()
                    n_open += 1
                except PermissionError:
                    pass
            os._exit(n_open)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)


class Failing(Bucket):
    def test_a_bucket_that_is_away_costs_one_line_and_the_next_checkpoint_is_written(self):
        checkpointer = self.checkpointer(keep=1)
        self.save(checkpointer)
        for file in ("state.pt", "manifest.json"):
            PROXY.reset(lambda method, path, *_, file=file: (403, "<Error><Code>AccessDenied</Code></Error>")
                        if method == "PUT" and path.endswith(file) else None)
            self.save(checkpointer)
            self.said(rf"step 0 is not written: {self.folder}/00000\d-step-0/{file}: http://.* answered 403 \(AccessDenied\): .*s3:PutObject.*Training goes on")
        PROXY.reset()
        self.assertIsNotNone(newest(self.folder))   # keep=1 has removed nothing
        self.lines.clear()
        self.save(checkpointer)
        self.assertEqual(self.lines, [])
        self.assertEqual(self.objects.checkpoints(), {"000004-step-0": ["manifest.json", "state.pt"]})   # halves are gone
        PROXY.reset(lambda *_: (403, "<Error><Code>AccessDenied</Code></Error>"))
        with self.assertRaisesRegex(OSError, "403"):
            self.checkpointer()

    def test_answers_that_are_lost_and_servers_that_are_busy_cost_nothing(self):
        checkpointer = self.checkpointer()
        for fault in ((503, "<Error><Code>SlowDown</Code></Error>"), "after"):
            PROXY.reset(lambda method, path, headers, count, fault=fault: fault if method == "PUT" and count == 1 else None)
            self.save(checkpointer)
        self.assertEqual((self.lines, len(self.names())), ([], 2))
        self.assertTrue(torch.equal(checkpointer.restore().state["a"], torch.arange(1 << 18)))

    def test_one_job_uses_a_prefix(self):
        checkpointer = self.checkpointer()
        with self.assertRaisesRegex(OSError, rf"another job's checkpoints \(pid {os.getpid()}\): give this one a prefix of its own"):
            Checkpointer(self.folder, state=dict)
        with self.assertRaisesRegex(OSError, rf"another job's checkpoints \(pid {os.getppid()}\): give this one a prefix of its own"):
            mine = self.objects.read_bytes(".job", 4096)
            self.objects.put_bytes(".job", changed(mine, processes.identity(os.getppid())), replace=True)
            Checkpointer(self.folder, state=dict)
        self.objects.put_bytes(".job", changed(mine, {"trainer": 0}), replace=True)   # killed, and its process still writes
        with unittest.mock.patch.object(persister, "LOCK_S", 0), self.assertRaisesRegex(OSError, "still written by the job before after 0 s: end it"):
            Checkpointer(self.folder, state=dict)
        self.lines.clear()
        self.objects.put_bytes(".job", changed(mine, {"host": "elsewhere"}), replace=True)
        self.save(checkpointer)
        self.said(f"step 0 is not written: another job has begun to write to {self.folder}: give each job a prefix of its own")
        self.assertEqual(self.names(), [])
        other = self.checkpointer()
        self.said(f"^{self.folder} was last used by a job on elsewhere that has not ended it: if that job still runs, it cannot write there any more")
        self.save(other)
        self.assertEqual(self.names(), ["000001-step-0"])

    def test_a_turn_that_is_lost_while_the_manifest_is_written_removes_nothing(self):
        job = uploads.Uploads.__new__(uploads.Uploads)
        job.url, job._bucket, job._turn, job._old = self.folder, unittest.mock.Mock(), unittest.mock.Mock(), []
        job._turn.is_mine.side_effect = [True, False]
        order = {"name": "000002-step-2", "file": "state.pt", "bytes": 1, "later": False, "about": {}, "remove": ["000001-step-1"]}
        self.assertRegex(job.write(order, 0, [[1, 1]]), "another job has begun to write")
        job._bucket.remove.assert_not_called()

    def test_the_process_that_writes_is_killed(self):
        checkpointer = self.checkpointer(every=1)
        os.kill(saver_of(os.getpid()), signal.SIGSTOP)
        checkpointer.step()
        os.kill(saver_of(os.getpid()), signal.SIGKILL)
        checkpointer.wait()
        self.said("step 1 is not written: the process that writes was killed by signal 9. Training goes on")
        self.save(checkpointer)
        self.assertEqual((self.lines, self.names()), ([], ["000002-step-1"]))

    def test_a_program_may_be_named_from_the_present_folder(self):
        with unittest.mock.patch.dict(os.environ, DIESEL_DIESELCTL=os.path.relpath(DIESELCTL)):
            self.save(self.checkpointer())
        self.assertEqual(self.names(), ["000001-step-0"])

    def test_places_that_cannot_work(self):
        with self.assertRaisesRegex(ValueError, "cannot go to 'gs://a/b': pass a folder or s3://BUCKET/PREFIX"):
            Checkpointer("gs://a/b", state=dict)
        for use in (lambda path: Checkpointer(path, state=dict), newest):
            with self.assertRaisesRegex(ValueError, "pass s3://BUCKET/PREFIX as a text, because a Path makes one slash of two"):
                use(pathlib.Path("s3://a/b"))
        with unittest.mock.patch.dict(os.environ, DIESEL_DIESELCTL="/nowhere"), self.assertRaisesRegex(OSError, "program /nowhere cannot be started, .*: apt install diesel"):
            Checkpointer(self.folder, state=dict)


class Killed(faults.Killed):
    MOST_S = 0.6

    def setUp(self):
        super().setUp()
        PROXY.reset()
        # On a busy machine the process that still writes for the trainer before takes more than its minute.
        self.enterContext(unittest.mock.patch.object(persister, "LOCK_S", 600))
        self.folder = "s3://bucket/killed/" + self.id().rpartition(".")[2]


if __name__ == "__main__":
    unittest.main(verbosity=2)
