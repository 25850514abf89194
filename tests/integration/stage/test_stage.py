# SPDX-License-Identifier: Apache-2.0
"""Tests chunks on a local disk below memory: later epochs, other jobs and the next daemon get them from there, always with the bytes of
storage. A disk that is full, fails or hangs loses only its own chunks, and is reported once."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import time


from dieseld_support import MIB, SCRATCH, Case, BIN, chunk_files, dataset, finish_probe, main, probe, start_probe
from common import mirror
from common.commands import dieselctl
from common.mirror import Mirror
from common.processes import family, named, send
from common.users import MALLORY, as_user, user_probe
from common.waiting import wait_until
from common.wire_client import Client

SMALL = "24M"  # less than half of "packed"


def staged(folder):
    """Returns the files in it that a daemon made."""
    return sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.count(".") == 9)


class Staged(Case):
    def setUp(self):
        self.folder = os.path.join(SCRATCH, "stage" + os.urandom(4).hex())

    def staging(self, *options, folder=None, cache=SMALL, size="1G", when="always"):
        """Starts a daemon. A test's disk is no faster than the storage, so it always stages."""
        return self.daemon("--stage", folder or self.folder, "--stage-size", size, "--stage-when", when, "--tune", "off", *options,
                           cache=cache)

    def opened(self, daemon):
        daemon.wait_for("the folder", lambda s: s["stage"]["open"])

    def steps(self, daemon, path, source, *steps):
        """Takes each step with all chunks in the folder."""
        for step in steps:
            with self.subTest(step.__name__):
                self.fill(daemon, path, source)
                step(daemon, path, source)

    def epoch(self, daemon, path, source):
        """Runs an epoch. Returns the chunks read from storage, and from staging."""
        before = daemon.status()
        probe(daemon, path, "--source", source)
        after = daemon.status()
        return (after["cache"]["reads"] - before["cache"]["reads"], after["stage"]["hits"] - before["stage"]["hits"])

    def fill(self, daemon, path, source):
        """Runs epochs until all of it is staged."""
        self.opened(daemon)
        for _ in range(20):
            self.epoch(daemon, path, source)
            if daemon.status()["stage"]["chunks"] == len(chunk_files(path)):
                # A chunk under way is complete when it has its name.
                wait_until("the files", lambda: len(staged(self.folder)) == len(chunk_files(path)))
                return
        self.fail(f"not all is staged: {daemon.status()['stage']}")

    def disk(self, **more):
        """Puts the folder on a disk that hangs, fails or is slow on command."""
        disk = Mirror(tempfile.mkdtemp(prefix="disk", dir=SCRATCH), **more)
        self.addCleanup(disk.close)
        self.folder = os.path.join(disk.mount, "stage")
        return disk

    def check_once(self, daemon, path, source, word):
        """Checks that epochs continue, and that the line is written once."""
        for _ in range(4):
            self.epoch(daemon, path, source)
        wait_until("a warning", lambda: word in daemon.output())
        for _ in range(4):
            self.epoch(daemon, path, source)
        self.assertEqual(daemon.output().count(word), 1, daemon.output())

    def served_from_staging(self, daemon, path, source):
        """Waits until an epoch reads nothing from storage. A disk that is sometimes late is no failure."""
        for _ in range(20):
            reads, hits = self.epoch(daemon, path, source)
            if reads == 0:
                self.assertGreater(hits, 0)
                return
        self.fail(f"storage is still read: {daemon.status()}")


class Serves(Staged):
    def test_what_is_staged_serves_later_epochs_other_users_and_the_next_daemon(self):
        daemon = self.staging()
        self.steps(daemon, *dataset("packed"), self.later_epochs_read_nothing_from_storage, self.a_job_of_another_user_has_it_too,
                   self.the_next_daemon_has_it, self.an_end_of_the_process_is_told_once, self.a_smaller_size_holds_at_once)

    def test_a_deleted_dataset_leaves_memory_and_disk_once_no_job_uses_it(self):
        daemon, (path, source), copy = self.staging(), dataset("packed"), os.path.join(SCRATCH, "deleted")
        dieselctl("copy", path, copy, check=0)
        self.fill(daemon, copy, source)
        of_copy = set(staged(self.folder))  # the other's chunks have the same numbers, but another folder
        probe(daemon, path, "--source", source)
        user = Client(daemon.socket)
        user.open_dataset(copy)
        dieselctl("delete", "--yes", copy, check=0)
        probe(daemon, path, "--source", source)  # takes longer than the daemon needs to notice
        self.assertEqual(len(daemon.status()["datasets"]), 2)
        user.socket.close()
        daemon.wait_for("the removal", lambda s: [d["path"] for d in s["datasets"]] == [path])
        wait_until("the end of the files", lambda: not of_copy & set(staged(self.folder)))
        self.assertLessEqual(daemon.status()["stage"]["chunks"], len(chunk_files(path)))
        probe(daemon, path, "--source", source)

    def later_epochs_read_nothing_from_storage(self, daemon, path, source):
        self.served_from_staging(daemon, path, source)
        stage = daemon.status()["stage"]
        self.assertEqual(stage["damaged"], 0)
        self.assertEqual(stage["bytes"], sum(os.stat(file).st_size for file in staged(self.folder)))
        self.assertEqual(os.stat(self.folder).st_mode & 0o777, 0o700)
        for file in staged(self.folder):
            self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)

    def the_next_daemon_has_it(self, daemon, path, source):
        for end in (daemon.kill, daemon.stop):
            end()
            daemon.start()
            self.opened(daemon)
            self.assertEqual(daemon.status()["stage"]["chunks"], len(chunk_files(path)))
            self.served_from_staging(daemon, path, source)

    def an_end_of_the_process_is_told_once(self, daemon, path, source):
        for pid in named("dieseld-stager", family(daemon.process.pid)):
            send(pid)
        self.check_once(daemon, path, source, "is not used: the process that uses this folder has exited")
        daemon.stop()
        daemon.start()

    def a_smaller_size_holds_at_once(self, daemon, path, source):
        daemon.stop()
        daemon.command[daemon.command.index("1G")] = "20M"
        daemon.start()
        daemon.wait_for("less", lambda s: s["stage"]["open"] and s["stage"]["bytes"] <= 20 * MIB)
        wait_until("fewer files", lambda: sum(os.stat(file).st_size for file in staged(self.folder)) <= 20 * MIB)
        self.epoch(daemon, path, source)

    def test_a_daemon_that_is_killed_while_it_writes_leaves_nothing_half_written(self):
        path, source = dataset("packed")
        daemon = self.staging()
        for _ in range(5):
            p = start_probe(daemon, path, "--source", source, "--epochs", 100, "--reconnect-ms", 30000)
            daemon.wait_for("a write", lambda s: s["stage"]["written"] > 0 or
                            s["stage"]["chunks"] == len(chunk_files(path)))
            daemon.kill()
            p.kill()
            p.communicate()
            daemon.start()
            self.opened(daemon)
            wait_until("no file that is not whole",
                       lambda: not [name for name in os.listdir(self.folder) if name.startswith("unfinished")])
        self.fill(daemon, path, source)
        self.served_from_staging(daemon, path, source)

    def test_what_fits_in_memory_is_not_written(self):
        path, source = dataset("packed")
        daemon = self.staging(cache="256M")
        self.opened(daemon)
        for _ in range(3):
            self.epoch(daemon, path, source)
        self.assertEqual(daemon.status()["stage"]["written"], 0)
        self.assertEqual(staged(self.folder), [])

    def a_job_of_another_user_has_it_too(self, daemon, path, source):
        before = daemon.status()["stage"]["hits"]
        finish_probe(start_probe(daemon, path, "--source", source, program=user_probe(), **as_user(MALLORY)))
        self.assertGreater(daemon.status()["stage"]["hits"], before)


class Worth(Staged):
    """Tests the measurement of storage and staging."""

    def storage(self, read_ms):
        """Returns "packed" on storage that takes so long for each read."""
        storage = Mirror(dataset("packed")[0], read_ms)
        self.addCleanup(storage.close)
        return storage.mount

    def test_slow_storage_is_staged(self):
        path, source = self.storage(500), dataset("packed")[1]
        daemon = self.staging(when="slower")
        self.fill(daemon, path, source)
        self.served_from_staging(daemon, path, source)
        self.assertNotIn("not staged", daemon.output())

    def test_a_slow_disk_is_given_up(self):
        self.disk(read_ms=500)
        path, source = dataset("packed")
        daemon = self.staging(when="slower")
        self.opened(daemon)

        def is_given_up():
            self.epoch(daemon, path, source)
            return "not staged: storage delivers chunks at" in daemon.output()

        for _ in range(100):
            if is_given_up():
                break
        self.assertTrue(is_given_up(), daemon.output())
        written = daemon.status()["stage"]["written"]
        self.assertEqual(self.epoch(daemon, path, source)[1], 0)
        # Only the writes that were under way then complete.
        self.assertLessEqual(daemon.status()["stage"]["written"], written + 2)


class Bounded(Staged):
    def test_the_folder_never_takes_more_than_its_size(self):
        path, source = dataset("packed")
        daemon = self.staging(size="16M")
        for _ in range(4):
            self.epoch(daemon, path, source)
            self.assertLessEqual(sum(os.stat(file).st_size for file in staged(self.folder)), 16 * MIB)
        daemon.wait_for("a full folder", lambda s: s["stage"]["chunks"] >= 3)
        # Staged chunks stay: in a cycle, other chunks would gain nothing.
        self.assertEqual(daemon.status()["stage"]["evicted"], 0)
        self.assertGreater(daemon.status()["stage"]["hits"], 0)

    def test_a_dataset_that_nobody_uses_goes_first(self):
        first, second = dataset("packed"), self.copy("small", "second")
        daemon = self.staging(size="52M")
        self.fill(daemon, *first)
        self.fill_with_eviction(daemon, *second)
        self.served_from_staging(daemon, *second)
        self.assertLessEqual(daemon.status()["stage"]["bytes"], 52 * MIB)

    def fill_with_eviction(self, daemon, path, source):
        for _ in range(20):
            if self.epoch(daemon, path, source)[0] == 0:
                self.assertGreater(daemon.status()["stage"]["evicted"], 0)
                return
        self.fail(f"not staged: {daemon.status()['stage']}")


class Changed(Staged):
    def test_what_was_changed_behind_its_back_is_read_from_storage_again(self):
        daemon = self.staging(cache="16M")
        self.steps(daemon, *self.copy("small", "changed"), self.other_bytes_are_noticed, self.files_that_were_cut_or_are_foreign,
                   self.files_that_were_cut_while_they_are_used, self.chunks_that_were_replaced_are_read,
                   self.chunks_that_are_gone_closed_or_damaged_are_not_hidden)

    def other_bytes_are_noticed(self, daemon, path, source):
        for file in staged(self.folder):
            with open(file, "r+b") as f:
                f.seek(MIB)
                f.write(b"\xff" * 4096)
        reads, _ = self.epoch(daemon, path, source)
        stage = daemon.status()["stage"]
        self.assertGreater(reads, 0)
        self.assertEqual(stage["damaged"], reads)
        self.assertIn("(a staged copy); reading the chunk from storage", daemon.output())
        # Those are written again.
        self.fill(daemon, path, source)
        for _ in range(20):
            if self.epoch(daemon, path, source)[0] == 0:
                return
        self.fail(f"storage is still read: {daemon.status()}")

    def files_that_were_cut_or_are_foreign(self, daemon, path, source):
        daemon.stop()
        files = staged(self.folder)
        os.truncate(files[0], MIB)
        os.truncate(files[1], 0)
        for name in ("notes.txt", os.path.basename(files[2]) + ".x", "unfinished-0"):
            with open(os.path.join(self.folder, name), "w") as f:
                f.write("text")
        os.symlink("/etc/passwd", os.path.join(self.folder, "link"))
        daemon.start()
        self.opened(daemon)
        self.assertEqual(daemon.status()["stage"]["damaged"], 2)
        self.assertIn("dieseld ignores 3 files there", daemon.output())
        wait_until("an end of what is not whole",
                   lambda: not os.path.exists(os.path.join(self.folder, "unfinished-0")) and
                   not os.path.exists(files[0]) and not os.path.exists(files[1]))
        self.fill(daemon, path, source)
        self.served_from_staging(daemon, path, source)
        self.assertEqual(pathlib.Path(self.folder, "notes.txt").read_text(), "text")

    def files_that_were_cut_while_they_are_used(self, daemon, path, source):
        for file in staged(self.folder)[::2]:
            os.truncate(file, MIB)
        for file in staged(self.folder)[1::2]:
            os.unlink(file)
        self.assertGreater(self.epoch(daemon, path, source)[0], 0)
        self.assertTrue(daemon.status()["stage"]["open"])
        self.fill(daemon, path, source)

    def chunks_that_were_replaced_are_read(self, daemon, path, source):
        daemon.stop()
        for chunk in chunk_files(path):
            shutil.copyfile(chunk, chunk + ".new")
            os.rename(chunk + ".new", chunk)
        daemon.start()
        self.opened(daemon)
        # In addition to the chunks that the epoch has staged itself, it may prefetch chunks of the next one.
        self.assertEqual(self.epoch(daemon, path, source)[0], len(chunk_files(path)))
        self.fill(daemon, path, source)
        self.served_from_staging(daemon, path, source)

    def chunks_that_are_gone_closed_or_damaged_are_not_hidden(self, daemon, path, source):
        """One of three chunks at a time has the fault, and then is restored."""
        def damage():
            with open(damaged, "r+b") as f:
                f.seek(MIB)
                f.write(b"\0" * 4096)

        closed, damaged, gone = chunk_files(path)[2:5]
        whole = pathlib.Path(damaged).read_bytes()
        for word, chunk, change, mend in (
                ("may be read by fewer users", closed, lambda: os.chmod(closed, 0o600), lambda: os.chmod(closed, 0o644)),
                ("checksum", damaged, damage, lambda: pathlib.Path(damaged).write_bytes(whole)),
                ("No such file", gone, lambda: os.unlink(gone), lambda: None)):
            with self.subTest(word):
                daemon.stop()
                change()
                daemon.start()
                self.opened(daemon)
                error = probe(daemon, path, "--source", source)["error"]
                self.assertIn(word if chunk == gone else os.path.basename(chunk), error)
                mend()


class Refused(Staged):
    """A folder of another user is not used, and the daemon still serves."""

    def refuse(self, word, folder=None):
        path, source = dataset("packed")
        daemon = self.staging(folder=folder)
        wait_until("a warning", lambda: word in daemon.output())
        self.epoch(daemon, path, source)
        self.epoch(daemon, path, source)
        self.assertEqual(daemon.output().count(word), 1)
        self.assertFalse(daemon.status()["stage"]["open"])
        self.assertEqual(daemon.status()["stage"]["written"], 0)
        return daemon

    def test_a_folder_that_others_may_use_is_refused(self):
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o755)
        self.refuse("others have access to this folder")

    def test_a_folder_of_another_user_is_refused(self):
        os.mkdir(self.folder, 0o700)
        os.chown(self.folder, MALLORY, MALLORY)
        self.refuse("others have access to this folder")

    def test_a_link_is_refused(self):
        os.mkdir(self.folder + "x", 0o700)
        os.symlink(self.folder + "x", self.folder)
        self.refuse("cannot open this folder")

    def test_a_file_and_a_path_that_cannot_be_made_are_refused(self):
        with open(self.folder, "w"):
            pass
        self.refuse("cannot open this folder")
        self.refuse("cannot be made", os.path.join(SCRATCH, "no", "such", "folder"))

    def test_a_folder_that_others_can_exchange_is_refused(self):
        """The folder is ours and closed, but a user who may write above it can replace it."""
        above = self.folder + "above"
        os.makedirs(above + "/between")
        folder = above + "/between/stage"
        os.chmod(above, 0o777)
        self.refuse("others could replace this folder", folder).stop()
        self.assertFalse(os.path.exists(folder))
        os.chmod(above, 0o755)
        os.chown(above, MALLORY, MALLORY)
        self.refuse(f"{above} belongs to another user", folder).stop()
        os.chown(above, 0, 0)
        os.chmod(above, 0o1777)  # like /tmp: users may add files, but not replace others'
        daemon = self.staging(folder=folder)
        self.opened(daemon)

    def test_the_folder_of_another_daemon_is_refused(self):
        first = self.staging()
        first.wait_for("the folder", lambda s: s["stage"]["open"])
        second = self.refuse("another dieseld uses this folder")
        self.assertTrue(first.status()["stage"]["open"])
        second.stop()

    def test_options_out_of_range_are_usage_errors(self):
        for options, word in ((("--stage", "here"), "neither an absolute path nor off"),
                              (("--stage-when", "never"), "must be slower or always"),
                              (("--stage-size", "1M"), "must be a size of at least 16M")):
            result = subprocess.run([os.path.join(BIN, "dieseld"), *options], capture_output=True, text=True,
                                    timeout=60, check=False)
            self.assertEqual(result.returncode, 2)
            self.assertIn(word, result.stderr)


class Faults(Staged):
    def test_a_full_disk_is_told_once_and_its_chunks_are_used(self):
        mount = os.path.join(SCRATCH, "full" + os.urandom(4).hex())
        os.mkdir(mount)
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=18m", "none", mount], check=False).returncode != 0:
            self.skipTest("no tmpfs can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", mount], check=True)
        self.folder = os.path.join(mount, "stage")
        path, source = dataset("packed")
        daemon = self.staging()
        self.check_once(daemon, path, source, "the disk is full before --stage-size is reached")
        # Chunks for which there was space are used.
        self.assertGreater(daemon.status()["stage"]["hits"], 0)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("unfinished")], [])

    def test_a_disk_that_fails_is_told_once_and_no_longer_used(self):
        disk, (path, source) = self.disk(), dataset("packed")
        daemon = self.staging()
        self.fill(daemon, path, source)
        disk.begin("fail")
        self.check_once(daemon, path, source, "is not used: ")
        self.assertFalse(daemon.status()["stage"]["open"])

    def test_a_disk_that_cannot_be_written_is_told_once_and_still_read(self):
        disk, (path, source) = self.disk(), dataset("packed")
        daemon = self.staging()
        self.opened(daemon)
        disk.begin("readonly")
        self.check_once(daemon, path, source, "no chunks are added for now")
        self.assertTrue(daemon.status()["stage"]["open"])

    def test_a_disk_that_hangs_in_reads_holds_up_neither_epochs_nor_the_end(self):
        disk, (path, source) = self.disk(), dataset("packed")
        daemon = self.staging()
        self.fill(daemon, path, source)
        disk.begin("read")
        self.check_once(daemon, path, source, "is not used: a read has taken more than")
        self.ends_and_begins(daemon, disk, path, source)

    def test_a_disk_that_hangs_in_writes_holds_up_neither_epochs_nor_the_end(self):
        disk, (path, source) = self.disk(), dataset("packed")
        disk.begin("write")
        daemon = self.staging()
        self.opened(daemon)
        for _ in range(4):
            self.epoch(daemon, path, source)
        self.assertEqual(daemon.status()["stage"]["written"], 0)
        self.ends_and_begins(daemon, disk, path, source)

    def ends_and_begins(self, daemon, disk, path, source):
        """While the disk hangs, a daemon ends and the next one begins."""
        begin = time.monotonic()
        self.assertEqual(daemon.stop(), 0, daemon.output())
        self.assertLess(time.monotonic() - begin, 20)
        daemon.start()
        probe(daemon, path, "--source", source)
        disk.end("read" if os.path.exists(os.path.join(disk.control, "read")) else "write")
        self.opened(daemon)
        self.served_from_staging(daemon, path, source)

    def test_a_disk_that_takes_seconds_is_no_longer_used(self):
        """At least five seconds per chunk: no job waits that long."""
        _, (path, source) = self.disk(read_ms=5000), dataset("packed")
        daemon = self.staging()
        self.opened(daemon)
        for _ in range(20):  # before or after all is staged
            self.epoch(daemon, path, source)
            if not daemon.status()["stage"]["open"]:
                break
        self.check_once(daemon, path, source, "is not used: a read has taken more than")


if __name__ == "__main__":
    mirror.require()
    main()
