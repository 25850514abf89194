# SPDX-License-Identifier: Apache-2.0
"""The daemon ends, or stops, while a client opens a dataset or a session."""
import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys


from common.commands import needs
from common.waiting import wait_until
from dieseld_support import Case, dataset, finish_probe, main, start_probe

ITERATE = """
import sys
import diesel_loader, diesel_loader.numpy as diesel
dataset = diesel_loader.Dataset(sys.argv[1], socket=sys.argv[2])
loader = diesel.DataLoader(dataset, batch_size=64, batches=diesel.Batches(return_ids=True), timeout=float(sys.argv[3]))
print("opened", flush=True)
sys.stdin.readline()
print(sorted(i for _, _, ids in loader for i in ids.tolist()) == list(range(len(dataset))))
"""


def waits_for_an_answer(process):
    """Returns true if the process sleeps in a call that waits for the daemon: connect, recvfrom or recvmsg (x86-64 numbers)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return pathlib.Path(f"/proc/{process.pid}/syscall").read_text().split()[0] in ("42", "45", "47")
    return False


class Opening(Case):
    def stop(self, node):
        node.process.send_signal(signal.SIGSTOP)
        self.addCleanup(node.process.send_signal, signal.SIGCONT)

    def asks(self, client):
        wait_until("the client asks the daemon", lambda: client.poll() is not None or waits_for_an_answer(client))
        self.assertIsNone(client.poll())

    def probe(self, node, *options):
        client = start_probe(node, dataset("packed")[0], "--batch", 64, *options)
        self.addCleanup(lambda: (client.kill(), client.communicate()))
        return client

    def iterate(self, node, timeout):
        client = subprocess.Popen([sys.executable, "-c", ITERATE, dataset("packed")[0], node.socket, str(timeout)], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (client.kill(), client.communicate()))
        self.assertEqual(client.stdout.readline(), "opened\n")
        return client

    def test_a_client_opens_its_dataset_though_the_daemon_is_killed(self):
        node = self.daemon()
        self.stop(node)
        client = self.probe(node, "--source", dataset("packed")[1])
        self.asks(client)
        node.kill()
        node.start()
        finish_probe(client)

    def test_a_client_opens_its_session_though_the_daemon_is_killed(self):
        node = self.daemon()
        client = self.iterate(node, 60)
        self.stop(node)
        client.stdin.write("\n")
        client.stdin.flush()
        self.asks(client)
        node.kill()
        node.start()
        out, said = client.communicate(timeout=120)
        self.assertEqual((client.returncode, out), (0, "True\n"), said)

    def test_a_daemon_that_stays_away_is_an_error_after_a_bounded_time(self):
        node = self.daemon()
        opened = self.iterate(node, 1)
        self.stop(node)
        client = self.probe(node)
        self.asks(client)
        node.kill()
        said = client.communicate(timeout=60)[1]
        self.assertEqual(client.returncode, 1)
        self.assertIn("went away while it opened ", said)
        self.assertIn("did not come back within 10 s: start it and try again", said)
        said = opened.communicate("\n", timeout=60)[1]
        self.assertEqual(opened.returncode, 1)
        self.assertIn(f"dieseld at {node.socket} went away before the session was open, and did not come back within 1.0 s", said)

    def test_a_stopped_daemon_with_a_full_queue_is_an_error(self):
        node = self.daemon()
        self.stop(node)
        waiting = []
        with contextlib.suppress(BlockingIOError):
            while len(waiting) < 100_000:
                waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
                self.addCleanup(waiting[-1].close)
                waiting[-1].setblocking(False)
                waiting[-1].connect(node.socket)
        client = self.probe(node)
        said = client.communicate(timeout=120)[1]
        self.assertEqual((client.returncode, said.count("\n")), (1, 1), said)
        self.assertIn("accepts no connections for 10 s: it is stopped, or hangs", said)


if __name__ == "__main__":
    if os.uname().machine != "x86_64":
        print("skipped: knows the numbers of system calls of x86-64 alone")
        sys.exit(77)
    needs("numpy")
    main()
