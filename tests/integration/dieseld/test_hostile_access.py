# SPDX-License-Identifier: Apache-2.0
"""Tests that users get no byte that they may not read, and no byte that another user chose. The daemon runs as root, and the users have
uids and mount namespaces of their own (docs/explanation/security.md)."""
import mmap
import os
import shutil
import time

from dieseld_support import MIB, SCRATCH, Case, chunk_files, dataset, main, make_source, pack, probe
from common.mirror import Mirror
from common.users import ACL, ALICE, MALLORY, Other, bind, run_as, set_acl
from common.waiting import wait_until
from common.wire_client import Client, Refused

SECRET = b"only root may read this line, and nobody else on the node....!\n"


def owned(path, uid):
    for folder, folders, files in os.walk(path):
        for name in [".", *files]:
            os.chown(os.path.join(folder, name), uid, uid)
    return path


def private_copy(kind, name, uid=MALLORY):
    path, source = dataset(kind)
    target = os.path.join(SCRATCH, name)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(path, target)
    return owned(target, uid), source


def batch_segments(client, wanted, seconds=5):
    """Requests segments until one is given, or the time is up."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for number in range(wanted):
            try:
                yield client.segment(number)
            except Refused:
                pass


class Hostile(Case):
    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to become other users")

    def works(self, daemon):
        path, source = dataset("packed")
        self.assertEqual(probe(daemon, path, "--source", source, "--max-batches", 20)["batches"], 20)


class Leaks(Hostile):
    """One giant sample: reading its chunk takes so long that other requests arrive in time."""

    def setUp(self):
        super().setUp()
        self.path = os.path.join(SCRATCH, "giant")
        if not os.path.exists(self.path):
            owned(pack(make_source("giant", 1, lambda rng: 48 * MIB), "giant"), MALLORY)
        self.chunk = chunk_files(self.path)[0]
        self.secret = os.path.join(SCRATCH, "secret")
        with open(self.secret, "wb") as f:
            f.write((SECRET * (os.path.getsize(self.chunk) // len(SECRET) + 1))[:os.path.getsize(self.chunk)])
        os.chmod(self.secret, 0o600)

    def steal(self, socket, prepare):
        prepare()
        client, found, maps = Client(socket), False, []
        client.open_dataset(self.path)
        client.open_session()
        for fd in batch_segments(client, 4, seconds=1):
            maps.append(mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ))
            os.close(fd)
            found = found or any(m.find(SECRET[:16], 0, 1 << 20) >= 0 for m in maps[-64:])
            if found or len(maps) > 500:
                break
        return found

    def test_a_mount_over_a_chunk_leads_nowhere(self):
        daemon = self.daemon("--user-share", "100")
        self.assertFalse(run_as(lambda: self.steal(daemon.socket, lambda: bind(self.secret, self.chunk)),
                                namespaces=True))
        self.assertIn("separate mount", daemon.output())
        self.works(daemon)

    def test_a_hard_link_leads_nowhere(self):
        # The kernel forbids the link itself where fs.protected_hardlinks is set; not every node sets it.
        daemon, saved = self.daemon("--user-share", "100"), self.chunk + ".saved"
        os.rename(self.chunk, saved)
        try:
            os.link(self.secret, self.chunk)
            self.assertFalse(run_as(lambda: self.steal(daemon.socket, lambda: None)))
        finally:
            os.rename(saved, self.chunk)
        self.assertIn("chmod", daemon.output())
        self.works(daemon)

    def test_a_mount_over_chunks_leads_nowhere(self):
        daemon, other = self.daemon("--user-share", "100"), os.path.join(SCRATCH, "private")
        os.makedirs(other, mode=0o700, exist_ok=True)

        def attack():
            bind(other, os.path.join(self.path, "chunks"))
            Client(daemon.socket).open_dataset(self.path)

        with self.assertRaisesRegex(AssertionError, "mount"):
            run_as(attack, namespaces=True)
        self.works(daemon)

    def test_a_chunk_stricter_than_the_snapshot_is_refused(self):
        """Root packed for all users and then closed a chunk: the snapshot's mode does not open the chunk."""
        path, _ = private_copy("views", "closed", uid=0)
        for chunk in chunk_files(path):
            os.chmod(chunk, 0o600)
        daemon = self.daemon("--user-share", "100")
        result = probe(daemon, path)
        self.assertEqual(result["samples"], 0)
        self.assertIn("chmod", result["error"])
        for chunk in chunk_files(path):
            os.chmod(chunk, 0o644)
        self.assertEqual(probe(daemon, path)["samples"], 2000)


class Lists(Hostile):
    """Tests access control lists. With one, the mode's bits for the group are its mask, and those for others do not show which user is
    excluded."""

    def setUp(self):
        super().setUp()
        self.path, _ = private_copy("views", "listed", uid=0)
        os.chmod(self.path, 0o755)
        self.chunks = os.path.join(self.path, "chunks")
        try:
            set_acl(os.path.join(self.path, "meta.db"), {ALICE: 4})
        except OSError as error:
            self.skipTest(f"no access control lists here: {error}")

    def refused_to_mallory(self, daemon, *words):
        def attack():
            client = Client(daemon.socket)
            client.open_dataset(self.path)
            client.open_session()
            self.assertEqual(len(list(batch_segments(client, 20, seconds=0.5))), 0)

        try:
            run_as(attack)
        except AssertionError as error:
            said = str(error)
        else:
            said = daemon.output()
        for word in words:
            self.assertIn(word, said)

    def unreadable_to_mallory(self, path):
        def read():
            with self.assertRaises(PermissionError):
                os.close(os.open(path, os.O_RDONLY))

        run_as(read)

    def test_a_chunk_that_leaves_one_user_out_is_refused(self):
        for chunk in chunk_files(self.path):
            set_acl(chunk, {MALLORY: 0})
            self.assertEqual(os.stat(chunk).st_mode & 0o777, 0o644)
        self.unreadable_to_mallory(chunk)
        daemon = self.daemon("--user-share", "100")
        self.refused_to_mallory(daemon, "access control list", "setfacl")
        # The same list on both is as good as none.
        set_acl(os.path.join(self.path, "snapshot"), {MALLORY: 0})
        self.assertEqual(probe(daemon, self.path)["samples"], 2000)

    def test_a_mask_is_not_taken_for_the_group(self):
        """Mallory's group may read the snapshot; in the chunk's mode that bit is the mask."""
        snapshot = os.path.join(self.path, "snapshot")
        os.chown(snapshot, 0, MALLORY)
        os.chmod(snapshot, 0o640)
        for chunk in chunk_files(self.path):
            os.chown(chunk, 0, MALLORY)
            os.chmod(chunk, 0o640)
            set_acl(chunk, {ALICE: 4}, group=0, mask=4, others=0)
            self.assertEqual(os.stat(chunk).st_mode & 0o777, 0o640)
        self.unreadable_to_mallory(chunk)
        self.refused_to_mallory(self.daemon("--user-share", "100"), "access control list")

    def test_a_snapshot_that_lets_one_user_in_opens_no_chunks(self):
        set_acl(os.path.join(self.path, "snapshot"), {MALLORY: 4}, others=0)
        for chunk in chunk_files(self.path):
            os.chmod(chunk, 0o640)
        self.unreadable_to_mallory(chunk)
        daemon = self.daemon("--user-share", "100")
        self.refused_to_mallory(daemon, "access control list")
        for chunk in chunk_files(self.path):
            os.chmod(chunk, 0o644)
        self.assertEqual(probe(daemon, self.path)["samples"], 2000)

    def test_a_folder_of_chunks_that_not_all_may_enter_is_refused(self):
        daemon = self.daemon("--user-share", "100")
        set_acl(self.chunks, {MALLORY: 0}, group=5, mask=5, others=5)
        self.unreadable_to_mallory(chunk_files(self.path)[0])
        self.refused_to_mallory(daemon, "chunks", "access control list")
        os.removexattr(self.chunks, ACL)
        os.chmod(self.chunks, 0o700)
        self.refused_to_mallory(daemon, "chunks", "chmod")
        os.chmod(self.chunks, 0o755)
        self.assertEqual(probe(daemon, self.path)["samples"], 2000)


class Segments(Hostile):
    def test_nothing_is_shown_before_it_is_verified(self):
        mirror = Mirror(dataset("views")[0])
        self.addCleanup(mirror.close)
        daemon = self.daemon("--no-io-uring")
        client = Client(daemon.socket)
        self.addCleanup(client.close)
        client.open_dataset(mirror.mount)
        mirror.stop()
        try:
            client.open_session()
            for number in range(8):
                with self.assertRaises(Refused):
                    os.close(client.segment(number))
        finally:
            mirror.go_on()
        wait_until("a chunk in memory", lambda: list(batch_segments(client, 8, 0.05)))

    def test_memory_that_was_given_out_has_nothing_unverified(self):
        """A client keeps memory that it once mapped. Other chunks of its dataset may be loaded there, but not a byte of a damaged one."""
        path, _ = private_copy("views", "marked", uid=0)
        daemon = self.daemon(cache="24M")
        client, seen = Client(daemon.socket), []
        client.open_dataset(path)
        session = client.open_session(batch=8)
        wait_until("a chunk", lambda: any(True for _ in batch_segments(client, 8, 0.05)))
        for fd in batch_segments(client, 8, 0.2):
            seen.append(mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ))
            os.close(fd)
        client.close()
        for fd in session:
            os.close(fd)
        mark, place = b"not what was packed" * 8192, 2 * MIB
        for chunk in chunk_files(path):
            with open(chunk, "r+b") as f:
                f.seek(place)
                f.write(mark)
        other = Other(lambda channel: probe(daemon, path, "--epochs", 2, "--batch", 8, "--window", 1), uid=ALICE)
        self.addCleanup(other.kill)
        found = False
        while not other.is_over():
            for _ in range(50):
                found = found or any(memory[place + 4096:place + 4096 + 19] in mark[:4096 + 38] for memory in seen)
        self.assertGreater(other.finish()["bad"], 0)
        self.assertFalse(found, "bytes of a damaged chunk were seen")


class Namespaces(Hostile):
    def test_a_chunk_mounted_over_hurts_only_its_own(self):
        """Mallory sees another file in place of one chunk; Alice, who shares the dataset, must not notice."""
        path, source = private_copy("packed", "shared", uid=ALICE)
        chunk, daemon = chunk_files(path)[1], self.daemon()

        def attack(channel):
            bind(chunk_files(path)[0], chunk)
            client = Client(daemon.socket)
            client.open_dataset(path)
            client.open_session(batch=64)
            channel.send("open")
            channel.receive()

        mallory = Other(attack, namespaces=True)
        try:
            self.assertEqual(mallory.receive(), "open")
            wait_until("the failing open", lambda: "separate mount" in daemon.output())
            result = run_as(lambda: probe(daemon, path), uid=ALICE)
            self.assertEqual((result["samples"], result["bad"]), (12288, 0))
        finally:
            mallory.kill()

    def test_the_same_snapshot_with_other_chunks_is_another_dataset(self):
        """The user who comes first must not decide which data the others train on."""
        path, source = private_copy("packed", "swapped", uid=ALICE)
        forged = os.path.join(SCRATCH, "forged")
        shutil.rmtree(forged, ignore_errors=True)
        shutil.copytree(os.path.join(path, "chunks"), forged)
        os.unlink(os.path.join(forged, os.path.basename(chunk_files(path)[1])))
        daemon = self.daemon()

        def attack(channel):
            bind(forged, os.path.join(path, "chunks"))
            client = Client(daemon.socket)
            try:
                client.open_dataset(path)
                client.open_session(batch=64)
                channel.send("open")
            except Refused as e:
                channel.send(e.text)
            channel.receive()

        mallory = Other(attack, namespaces=True)
        try:
            self.assertIn("mount", mallory.receive())
            result = run_as(lambda: probe(daemon, path), uid=ALICE)
            self.assertEqual((result["samples"], result["bad"]), (12288, 0))
        finally:
            mallory.kill()

    def test_chunks_replaced_are_another_dataset(self):
        path, source = private_copy("views", "exchanged", uid=ALICE)
        daemon = self.daemon()
        self.assertEqual(probe(daemon, path, "--source", source)["samples"], 2000)
        shutil.copytree(os.path.join(path, "chunks"), os.path.join(path, "chunks.new"))
        shutil.rmtree(os.path.join(path, "chunks"))
        os.rename(os.path.join(path, "chunks.new"), os.path.join(path, "chunks"))
        self.assertEqual(probe(daemon, path, "--source", source)["samples"], 2000)


if __name__ == "__main__":
    main()
