# SPDX-License-Identifier: Apache-2.0
"""Tests processes that start, end and are killed."""
import ctypes
import os
import select
import signal
import socket
import struct
import subprocess
import time

from dieseld_support import BIN, Case, Daemon, SCRATCH, dataset, finish_probe, main, probe, start_probe
from common.wire_client import MAGIC, REVISION, VERSION

# In a second of an idle daemon: a look at the node, whose reads of /proc wait for the kernel's locks on a busy machine. A process that polls
# has hundreds.
QUIET_WAKE_UPS = 40


class Clients(Case):
    def test_a_killed_client_leaves_nothing(self):
        daemon = self.daemon()
        for kind in ("packed", "views"):
            path, _ = dataset(kind)
            p = start_probe(daemon, path, "--hold", 4, "--max-batches", 6, "--wait")
            self.assertEqual(p.stdout.readline(), "holding\n")
            status = daemon.wait_for("holding", lambda s: s["sessions"][0]["held"] == 4)
            if kind == "views":
                self.assertGreater(status["cache"]["pinned_chunks"], 0)
            p.send_signal(signal.SIGKILL)
            p.communicate()
            # A worker may still work on the next batch when the session ends.
            daemon.wait_for("the end of session, pins and slots", lambda s: not s["sessions"] and
                            s["cache"]["pinned_chunks"] == 0 and s["cache"]["slot_bytes"] == 0)
        self.assertEqual(probe(daemon, dataset("views")[0], "--source", dataset("views")[1])["samples"], 2000)

    def test_a_client_that_sleeps_costs_nothing(self):
        """A full ring makes the daemon idle."""
        daemon = self.daemon()
        p = start_probe(daemon, dataset("packed")[0], "--max-batches", 1, "--wait")
        self.assertEqual(p.stdout.readline(), "holding\n")
        daemon.wait_for("a full ring", lambda s: s["sessions"][0]["waits_for"] == "client")

        def wake_ups():
            with open(f"/proc/{daemon.process.pid}/status") as f:
                return next(int(line.split()[1]) for line in f if line.startswith("voluntary_ctxt"))

        for _ in range(5):  # work left from the opening ends in the first of these seconds
            before = wake_ups()
            time.sleep(1)
            woken = wake_ups() - before
            if woken <= QUIET_WAKE_UPS:
                break
        self.assertLessEqual(woken, QUIET_WAKE_UPS)
        p.communicate()

    def test_a_client_that_talks_nonsense_is_cut_off(self):
        daemon = self.daemon()
        path, source = dataset("views")
        p = start_probe(daemon, path, "--source", source, "--pause-us", 2000)
        for message in (b"", b"x", b"\0" * 8, os.urandom(64), os.urandom(4000), struct.pack("<IHHQII", 3, 24, 1, 0, 0, 0)):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
                s.connect(daemon.socket)
                s.settimeout(10)
                s.send(message)
                if message:
                    self.assertEqual(s.recv(1000), b"")
        hello = b"".join(v.to_bytes(4, "little") for v in (1, 24, MAGIC, VERSION, 0, REVISION))
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(daemon.socket)
            s.send(hello)
            s.recv(1000)
            # Descriptors that are no dataset: a pipe and the daemon's own socket path.
            read, write = os.pipe()
            request = struct.pack("<IHHQII", 3, 24, 1, 0, 0, 0)
            socket.send_fds(s, [request], [read, write])
            self.assertEqual(s.recv(1000)[:4], bytes(4))  # an ERROR message
            os.close(read)
            os.close(write)
        self.assertEqual(finish_probe(p)[0]["samples"], 2000)

    def test_another_version_is_told_so(self):
        daemon = self.daemon()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(daemon.socket)
            s.send(b"".join(v.to_bytes(4, "little") for v in (1, 24, MAGIC, 99, 0, 0)))
            self.assertIn(f"to {VERSION} and the client 99".encode(), s.recv(1000))


class Restart(Case):
    def test_epochs_go_on_though_the_daemon_is_killed_twice_and_then_drained(self):
        for kind, samples in (("packed", 12288), ("views", 2000)):
            with self.subTest(kind=kind):
                daemon = self.daemon()
                path, source = dataset(kind)
                p = start_probe(daemon, path, "--source", source, "--pause-us", 10000, "--reconnect-ms", 60000, "--hold", 2, "--epochs", 3)
                for pause_s in (0.3, 0):
                    self.progress(daemon)
                    daemon.kill()
                    time.sleep(pause_s)
                    daemon.start()
                self.progress(daemon)
                self.assertEqual(daemon.stop(), 0, daemon.output())
                self.assertFalse(os.path.exists(daemon.socket))
                daemon.start()
                result, said = finish_probe(p)
                # The probe compares each batch with the plan: no sample lost or repeated.
                self.assertEqual(result["samples"], 3 * samples)
                self.assertIn("went away", said)
                self.assertIn("is back", said)

    def progress(self, daemon, batches=12):
        daemon.wait_for("progress", lambda s: s["sessions"] and s["sessions"][0]["delivered"] > batches)

    def test_batches_that_are_held_stay_as_they_are(self):
        """Batches stay unchanged while the daemon ends, with chunks being loaded into a full cache."""
        import diesel_loader.session as client
        from diesel_loader import Dataset
        from diesel_loader.native import SHUFFLE
        daemon, (path, _) = self.daemon("--tune", "off", "--prefetch", "4", cache="24M"), dataset("views")
        for i in range(30):
            session = client.Session(Dataset(path, daemon.socket), world=1, batch=16, window_chunks=1, seed=i, flags=SHUFFLE)
            for _ in range(20 + i):
                lease = session.next_batch()
            items = [lease.batch.items[k] for k in range(lease.batch.n_items)]
            seen = [ctypes.string_at(item.data, item.bytes) for item in items]
            self.assertEqual(daemon.stop(), 0)
            self.assertTrue([ctypes.string_at(item.data, item.bytes) for item in items] == seen, i)
            daemon.start()
            del lease
            session.close()

    def test_a_daemon_that_stays_away_ends_its_clients(self):
        daemon = self.daemon()
        p = start_probe(daemon, dataset("packed")[0], "--pause-us", 10000, "--reconnect-ms", 300)
        daemon.wait_for("progress", lambda s: s["sessions"] and s["sessions"][0]["delivered"] > 12)
        daemon.kill()
        out, said = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 1)
        self.assertIn("did not come back within 0.3 s", said)


class Starting(Case):
    def start_fails(self, *options):
        result = subprocess.run([os.path.join(BIN, "dieseld"), *options], capture_output=True, text=True, timeout=60)
        self.assertEqual(result.stdout, "")
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        return result.returncode, result.stderr

    def test_a_second_daemon_on_a_socket_is_refused(self):
        daemon = self.daemon()
        code, text = self.start_fails("--socket", daemon.socket)
        self.assertEqual(code, 1)
        self.assertIn(f"pid {daemon.process.pid}", text)
        self.assertEqual(probe(daemon, dataset("views")[0])["samples"], 2000)

    def test_a_dead_daemons_socket_is_replaced(self):
        daemon = self.daemon()
        daemon.kill()
        self.assertTrue(os.path.exists(daemon.socket))
        self.assertEqual(probe(self.daemon(socket=daemon.socket), dataset("views")[0])["samples"], 2000)

    def test_bad_places_are_errors(self):
        code, text = self.start_fails("--socket", os.path.join(SCRATCH, "missing/s"))
        self.assertEqual(code, 1)
        self.assertIn("directory does not exist", text)
        file = os.path.join(SCRATCH, "file")
        with open(file, "w") as f:
            f.write("precious")
        self.assertIn("is not a socket", self.start_fails("--socket", file)[1])
        with open(file) as f:
            self.assertEqual(f.read(), "precious")
        self.assertEqual(self.start_fails("--workers", "many")[0], 2)

    def test_a_daemon_ends_while_it_serves(self):
        daemon = Daemon()
        p = start_probe(daemon, dataset("packed")[0], "--pause-us", 5000)
        daemon.wait_for("progress", lambda s: s["sessions"] and s["sessions"][0]["delivered"] > 2)
        self.assertEqual(daemon.stop(), 0, daemon.output())
        self.assertFalse(os.path.exists(daemon.socket))
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 1)


class Log(Case):
    def test_a_log_that_nobody_reads_holds_up_nothing(self):
        """Simulates a journal that hangs: lines are left out, and serving does not wait."""
        path = os.path.join(SCRATCH, "log")
        os.mkfifo(path)
        end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, end)
        try:
            while True:
                os.write(end, bytes(4096))
        except BlockingIOError:
            pass
        daemon = self.daemon(prefix=lambda command: ["sh", "-c", 'exec "$@" 2>"$0"', path, *command])
        data, source = dataset("views")
        self.assertEqual(probe(daemon, data, "--source", source)["samples"], 2000)
        said = b""
        while not said and select.select([end], [], [], 0)[0]:
            said = os.read(end, 1 << 20).strip(b"\0")
        self.assertEqual(daemon.stop(), 0)
        said = (said + os.read(end, 1 << 20)).decode()
        self.assertRegex(said, r"^dieseld: warning: \d+ lines left out: nobody read the log\n(.*\n)*.*: stopping\n")


if __name__ == "__main__":
    main()
