# SPDX-License-Identifier: Apache-2.0
"""Tests checkpoints when processes are killed, the disk is full or the folder is away.

Option: --kills N (default 40): how often the trainer is killed."""
import contextlib
import errno
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
import unittest
from unittest import mock

from checkpoint_support import Case, read, saver_of, support

import torch

from diesel_loader.checkpoint import Checkpointer, newest, persist, persister

N_KILLS = 40
STEP_S = 0.002


class Value:
    """An object with a state of some tensors, which all have the number of steps in them."""

    def __init__(self):
        self.tensors = {"small": torch.zeros(3), "large": torch.zeros(1 << 20), "whole": torch.zeros(1 << 18, dtype=torch.int64)}

    def state_dict(self):
        return self.tensors

    def load_state_dict(self, state):
        for name, tensor in state.items():
            self.tensors[name].copy_(tensor)

    def step(self):
        for tensor in self.tensors.values():
            tensor.add_(1)

    def number(self):
        numbers = {int(value) for tensor in self.tensors.values() for value in (tensor.min(), tensor.max())}
        assert len(numbers) == 1, numbers
        return numbers.pop()


class Killed(Case):
    MOST_S = 0.15   # until the trainer is killed

    def trainer(self, told):
        """A trainer, until it is killed. Writes the step of each snapshot to the descriptor."""
        torch.set_num_threads(1)
        value = Value()
        checkpointer = Checkpointer(self.folder, every=3, value=value)
        restored = checkpointer.restore()
        n = restored.step if restored else 0
        assert value.number() == n
        begun = checkpointer.figures()["checkpoints"]
        os.write(told, b"restored %d\n" % n)
        while True:
            value.step()
            n += 1
            checkpointer.step()
            now = checkpointer.figures()["checkpoints"]
            if now > begun:
                begun = now
                os.write(told, b"snapshot %d\n" % n)
            time.sleep(STEP_S)

    def kill_one(self, seconds, also_saver):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(read_end)
                self.trainer(write_end)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        os.close(write_end)
        with open(read_end, "rb") as lines:
            first = lines.readline().split()
            self.assertEqual(first[:1], [b"restored"])
            time.sleep(seconds)
            saver = saver_of(pid)
            os.kill(pid, signal.SIGKILL)
            if also_saver and saver:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(saver, signal.SIGKILL)
            snapshots = [int(line.split()[1]) for line in lines if line.startswith(b"snapshot") and line.endswith(b"\n")]
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), -signal.SIGKILL)
        return int(first[1]), snapshots

    def test_what_was_snapshotted_survives_the_trainer(self):
        """And with both processes killed, as with the machine, no torn checkpoint is restored and only the last one is lost."""
        rng = random.Random(os.environ.get("SEED"))
        expected, taken = 0, [0]
        for i in range(N_KILLS):
            both = i % 4 == 3
            restored, snapshots = self.kill_one(rng.uniform(0, self.MOST_S), both)
            # The snapshot may be complete before the trainer could say so. It is later if the one before took long to write.
            self.assertTrue(restored in taken or restored >= taken[-1] + 3, (restored, taken))
            self.assertGreaterEqual(restored, expected)
            taken = [restored, *snapshots]
            expected = taken[max(0, len(taken) - 2)] if both else taken[-1]
        self.assertGreater(expected, 0)
        end = Value()
        with Checkpointer(self.folder, value=end) as checkpointer:
            self.assertEqual(checkpointer.restore().step, end.number())
        self.assertTrue(all(" is half-written: removed" in line for line in self.lines), self.lines)

    def test_a_signal_to_the_whole_job_does_not_end_the_writing(self):
        read_end, write_end = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.setpgid(0, 0)
            os.close(read_end)
            try:
                self.trainer(write_end)
            finally:
                os._exit(1)
        os.close(write_end)
        with open(read_end, "rb") as lines:
            while not lines.readline().startswith(b"snapshot"):
                pass
            os.kill(saver_of(pid), signal.SIGTERM)
            os.kill(saver_of(pid), signal.SIGINT)
            os.killpg(pid, signal.SIGTERM)
            last = [int(line.split()[1]) for line in lines][-1:]
        os.waitpid(pid, 0)
        with Checkpointer(self.folder, value=Value()) as checkpointer:
            self.assertGreaterEqual(checkpointer.restore().step, *last or [3])


class Failing(Case):
    def checkpointer(self, state=None, **options):
        state = state or {"a": torch.arange(1 << 20)}
        checkpointer = Checkpointer(self.folder, state=lambda: state, **options)
        self.addCleanup(checkpointer.close)
        return checkpointer

    def save(self, checkpointer):
        checkpointer.save()
        checkpointer.wait()

    def works_again(self, checkpointer):
        self.save(checkpointer)
        self.assertEqual(self.lines, [])
        path = newest(self.folder)
        self.assertEqual(checkpointer.figures()["newest"], path)
        self.assertEqual(len(read(path)["a"]), 1 << 20)
        self.assertEqual([name for name in self.names() if name.startswith(".")], [])

    def test_the_process_that_writes_is_killed(self):
        checkpointer = self.checkpointer(every=1)
        self.save(checkpointer)
        os.kill(saver_of(os.getpid()), signal.SIGSTOP)
        checkpointer.step()
        os.kill(saver_of(os.getpid()), signal.SIGKILL)
        checkpointer.wait()
        self.said("checkpoint of step 1 is not written: the process that writes was killed by signal 9. Training goes on")
        self.works_again(checkpointer)
        os.kill(saver_of(os.getpid()), signal.SIGKILL)
        support.wait_for(lambda: saver_of(os.getpid()) is None, "the end of the process")
        checkpointer.save()
        self.said("the process that writes was killed by signal 9. Training goes on")
        self.works_again(checkpointer)
        self.assertEqual(checkpointer.figures()["failed"], 2)

    def test_a_process_that_writes_and_is_stopped_holds_nobody_up(self):
        for name, value in (("SILENT_S", 0.5), ("PATIENCE_S", 0.05)):
            self.enterContext(mock.patch.object(persister, name, value))
        checkpointer = self.checkpointer(every=1)
        self.save(checkpointer)
        saver = saver_of(os.getpid())
        os.kill(saver, signal.SIGSTOP)
        checkpointer.step()
        checkpointer.wait()
        self.said(rf"step 1 is not written yet, .*pid {saver}\) has got no further.*Training goes on.*kill -KILL {saver}$")
        checkpointer.step()
        checkpointer.save()
        self.said("step 2 is not written: the one before is still not written")
        os.kill(saver, signal.SIGCONT)
        support.wait_for(lambda: self.names()[-1].endswith("-step-1"), "the checkpoint")
        self.works_again(checkpointer)
        saver = saver_of(os.getpid())
        os.kill(saver, signal.SIGSTOP)
        checkpointer.step()
        checkpointer.close()
        self.assertEqual(len(self.lines), 2)
        self.assertRegex(self.lines.pop(), rf"pid {saver}\) has got no further for .* and is left alone")
        os.kill(saver, signal.SIGCONT)
        support.wait_for(lambda: newest(self.folder).endswith("-step-3"), "the last checkpoint")

    def test_a_forked_worker_that_lives_on_holds_nobody_up(self):
        self.enterContext(mock.patch.object(persister, "SILENT_S", 5))
        checkpointer = self.checkpointer()
        pid = os.fork()
        if pid == 0:
            signal.pause()
        self.addCleanup(os.waitpid, pid, 0)
        self.addCleanup(os.kill, pid, signal.SIGKILL)
        self.save(checkpointer)
        saver = saver_of(os.getpid())
        checkpointer.close()
        self.assertEqual(self.lines, [])
        self.assertFalse(os.path.exists(f"/proc/{saver}"))

    def test_a_file_that_may_not_grow(self):
        checkpointer = self.checkpointer()
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(saver_of(os.getpid()), resource.RLIMIT_FSIZE, (1 << 20, hard))
        self.save(checkpointer)
        self.said(f"step 0 is not written: {self.folder}/000001-step-0/state.pt: File too large. Training goes on")
        resource.prlimit(saver_of(os.getpid()), resource.RLIMIT_FSIZE, (hard, hard))
        self.works_again(checkpointer)

    @unittest.skipIf(os.getuid() != 0, "needs root to mount a small disk")
    def test_a_full_disk(self):
        os.mkdir(self.folder)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "none", self.folder], capture_output=True).returncode:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.folder])
        checkpointer = self.checkpointer(keep=1)
        self.save(checkpointer)
        other = pathlib.Path(self.folder, "other")
        other.write_bytes(bytes(8 << 20))
        self.save(checkpointer)
        self.said(f"{self.folder}/000002-step-0/state.pt: No space left on device. Training goes on")
        self.assertEqual(newest(self.folder), os.path.join(self.folder, "000001-step-0"))   # keep=1 removed nothing
        other.unlink()
        self.works_again(checkpointer)

    def test_a_folder_that_goes_away_and_comes_back(self):
        checkpointer = self.checkpointer()
        self.save(checkpointer)
        os.rename(self.folder, self.folder + ".away")
        self.save(checkpointer)
        self.said(f"{self.folder}: No such file or directory. Training goes on")
        os.rename(self.folder + ".away", self.folder)
        self.works_again(checkpointer)

    def test_a_folder_without_locks_is_named(self):
        ours, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        os.mkdir(self.folder)
        with ours, other, mock.patch("fcntl.flock", side_effect=OSError(errno.ENOLCK, "No locks available")):
            process = persist.Process(other, os.getppid())
            self.assertIsNone(process._lock({"folder": self.folder, "trainer": os.getpid(), "wait_s": 1}))
            os.close(process._lock_fd)
            self.assertEqual(json.loads(ours.recv(1000)), {"do": "unlocked", "why": "No locks available"})
        with mock.patch.object(persister.Persister, "replies", side_effect=[[{"do": "unlocked", "why": "no locks"}], [{"do": "lock", "error": None}]]):
            process = persister.Persister()
            process.lock(self.folder)
        process.close()
        self.said(f"{self.folder}: its file system has no locks .*: give each job a folder of its own")

    def test_a_job_that_is_gone_with_its_process_leaves_the_folder_free(self):
        checkpointer = self.checkpointer()
        self.save(checkpointer)
        shutil.copyfile(os.path.join(self.folder, ".lock"), os.path.join(self.scratch, "lock"))
        checkpointer.close()
        shutil.copyfile(os.path.join(self.scratch, "lock"), os.path.join(self.folder, ".lock"))
        self.works_again(self.checkpointer())


if __name__ == "__main__":
    if "--kills" in sys.argv:
        at = sys.argv.index("--kills")
        N_KILLS = int(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    unittest.main(verbosity=2)
