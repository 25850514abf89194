#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that dieselctl and diesel-top find the daemon that the loader started for the user, by the loader's rule, and no other user's."""
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import unittest
from unittest import mock

from dieseld_support import BIN, require
from common.commands import DIESELCTL, dieselctl, run
from common.users import ALICE, CLONE_NEWNS, MALLORY, Other, become, run_as
from common.waiting import wait_until
from on_demand_support import OnDemand, daemons_in, mallory, needs_root, opened, private

import diesel_loader
from diesel_loader import on_demand

DIESELD, DIESEL_TOP = (os.path.abspath(os.path.join(BIN, name)) for name in ("dieseld", "diesel-top"))


def ctl(*arguments):
    """Returns (exit status, output, errors)."""
    done = dieselctl(*arguments)
    return done.returncode, done.stdout, done.stderr


def top_of_daemon():
    """Returns diesel-top's figures of a daemon."""
    return json.loads(run(DIESEL_TOP, "--daemon", "--once", "-d", "0.1", check=0).stdout)["daemon"]


def hide_tmp():
    """Hides the daemons' folders in /tmp from this process and its children."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS):
        raise OSError("no mounts of one's own")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for folder in pathlib.Path("/tmp").glob("diesel-[0-9]*"):
        subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=True)


class Tools(OnDemand):
    """Tests in the loader's order of folders. If root runs this, the user is another one, who has no daemon yet in /tmp."""

    def setUp(self):
        super().setUp()
        self.uid = ALICE if os.geteuid() == 0 else os.geteuid()
        os.chown(self.runtime, self.uid, self.uid)
        parent = private(os.path.join(self.top, "t"), self.uid)
        self.temporary = os.path.join(parent, f"diesel-{self.uid}")
        self.enterContext(mock.patch.dict(os.environ, TMPDIR=parent))

    def mine(self, function, *arguments):
        """Returns the function's result, as the user."""
        return run_as(lambda: function(*arguments), self.uid)

    def refused(self, *words):
        """Returns dieselctl's one line of error."""
        status, text, problem = self.mine(ctl, *words)
        self.assertEqual((status, text, len(problem.splitlines())), (1, "", 1))
        return problem

    def test_each_verb_finds_it_and_says_so(self):
        path = self.mine(opened, self.dataset)[1]
        for words in (["status"], ["jobs"], ["why"], ["set", "--dry-run", "on"]):
            with self.subTest(words):
                status, text, problem = self.mine(ctl, *words)
                self.assertEqual((status, problem), (0, ""))
                self.assertIn(path, text.splitlines()[0])
                self.assertEqual(json.loads(self.mine(ctl, *words, "--json")[1])["socket"], path)
        daemon = self.mine(top_of_daemon)
        self.assertEqual((daemon["state"], daemon["socket"]), ("up", path))
        table = self.mine(lambda: subprocess.run([DIESEL_TOP, "--daemon", "-b", "-n", "1", "-d", "0.1"], timeout=60,
                                                 capture_output=True, text=True, check=True).stdout)
        self.assertIn(f"dieseld at {path}", table.splitlines()[0])
        self.assertEqual(self.mine(diesel_loader.status)["socket"], path)

    def test_what_is_given_is_the_only_one(self):
        self.mine(opened, self.dataset)
        nowhere = os.path.join(self.top, "nowhere")
        self.assertIn(nowhere, self.refused("status", "--socket", nowhere))
        os.environ["DIESEL_SOCKET"] = nowhere
        self.assertIn(nowhere, self.refused("jobs"))
        self.assertEqual(self.mine(top_of_daemon)["state"], "none")

    @needs_root  # otherwise the user may have one in /tmp
    def test_where_there_is_none_the_line_names_each_place(self):
        def status():
            try:
                return str(diesel_loader.status())
            except ConnectionRefusedError as error:
                return error.strerror

        lines = [self.refused("status"), self.mine(top_of_daemon)["problem"], self.mine(status)]
        for place in (on_demand.NODE_SOCKET, self.folder, self.temporary, f"/tmp/diesel-{self.uid}"):
            for line in lines:
                self.assertIn(place, line)
        self.assertFalse(os.path.exists(self.folder), "nothing is started")

    @needs_root
    def test_a_dead_one_is_none(self):
        os.kill(self.mine(opened, self.dataset)[0], signal.SIGKILL)
        wait_until("its end", lambda: not daemons_in(self.folder))
        self.assertIn(f"{on_demand._socket_in(self.folder)}: Connection refused", self.refused("status"))

    def test_a_folder_that_the_loader_does_not_take_is_refused(self):
        """The tools find the daemon that the loader takes next."""
        for spoil, restore in ((lambda: os.mkdir(self.folder, 0o755), lambda: os.rmdir(self.folder)),
                               (lambda: os.symlink(self.top, self.folder), lambda: os.unlink(self.folder)),
                               (lambda: os.mknod(self.folder), lambda: os.unlink(self.folder)),
                               (lambda: os.chmod(self.runtime, 0o777), lambda: os.chmod(self.runtime, 0o700))):
            spoil()
            path = self.mine(opened, self.dataset)[1]
            self.assertEqual(path, on_demand._socket_in(self.temporary))
            self.assertIn(path, self.mine(ctl, "status")[1].splitlines()[0])
            self.end_daemons()
            restore()

    @needs_root
    def test_the_line_says_why_a_folder_is_not_taken(self):
        os.mkdir(self.folder)
        os.chown(self.folder, self.uid, self.uid)
        os.chmod(self.folder, 0o755)
        self.assertIn(f"{self.folder} is accessible to other users; run: chmod 700 {self.folder}", self.refused("status"))
        os.rmdir(self.folder)
        os.chmod(self.runtime, 0o777)
        self.assertIn(f"others can change {self.runtime}", self.refused("status"))
        long = private(os.path.join(self.top, "x" * 100), self.uid)
        private(os.path.join(long, "diesel"), self.uid)
        os.environ["XDG_RUNTIME_DIR"] = long
        self.assertIn("File name too long", self.refused("status"))
        os.environ["XDG_RUNTIME_DIR"] = "relative"
        self.assertNotIn("relative", self.refused("status"))

    def test_a_link_on_the_way_is_resolved(self):
        path = self.mine(opened, self.dataset)[1]
        link = os.path.join(self.top, "link")
        os.symlink(self.runtime, link)
        os.environ["XDG_RUNTIME_DIR"] = link
        self.assertIn(path, self.mine(ctl, "status")[1].splitlines()[0])


@needs_root
class Neighbours(OnDemand):
    """Mallory waits for Alice, or root, to connect to him."""

    def setUp(self):
        super().setUp()
        self.shared = os.path.join(self.top, "shared")  # with the mode of /tmp
        os.mkdir(self.shared)
        os.chmod(self.shared, 0o1777)
        self.squatted = os.path.join(self.shared, f"diesel-{ALICE}")
        self.elsewhere = os.path.join(self.top, "m", "dieseld.sock")
        os.environ.update(XDG_RUNTIME_DIR="", TMPDIR=self.shared)
        os.mkdir(os.path.dirname(self.elsewhere))
        os.chown(os.path.dirname(self.elsewhere), MALLORY, MALLORY)

    def lines(self, uid=ALICE):
        """Returns the lines of dieselctl and diesel-top, where no user has a daemon in /tmp."""
        def ask():
            hide_tmp()
            become(uid)
            return ctl("status"), top_of_daemon()

        (status, text, problem), daemon = run_as(ask, 0)
        self.assertEqual((status, text, len(problem.splitlines())), (1, "", 1))
        self.assertEqual(daemon["state"], "none")
        return problem, daemon["problem"]

    def assert_nobody_came(self, neighbour):
        neighbour.send("done")
        self.assertIsNone(neighbour.finish(), "nobody came")

    def test_a_squatted_folder_is_not_used(self):
        neighbour = mallory(self, on_demand._socket_in(self.squatted))
        for line in self.lines():
            self.assertIn(f"belongs to another user (uid {MALLORY})", line)
        self.assert_nobody_came(neighbour)

    def test_a_link_of_another_user_is_not_followed(self):
        """His link leads to a folder of hers, or to one of his."""
        hers = private(os.path.join(self.top, "hers"), ALICE)
        neighbour = mallory(self, self.elsewhere)
        for folder in (hers, os.path.dirname(self.elsewhere)):
            run_as(lambda: os.symlink(folder, self.squatted), MALLORY)
            for line in self.lines():
                self.assertIn("is no folder", line)
            os.unlink(self.squatted)
        self.assert_nobody_came(neighbour)

    def test_a_folder_that_is_open_to_others_is_not_used(self):
        neighbour = mallory(self, self.elsewhere)
        private(self.squatted, ALICE)
        os.chmod(self.squatted, 0o777)
        os.rename(self.elsewhere, on_demand._socket_in(self.squatted))
        for line in self.lines():
            self.assertIn("is accessible to other users", line)
        self.assert_nobody_came(neighbour)

    def test_a_socket_of_another_user_in_the_folder_is_not_used(self):
        private(self.squatted, ALICE)
        for ask in (lambda: ctl("set", "workers=1")[2], lambda: top_of_daemon()["problem"]):
            neighbour = mallory(self, self.elsewhere)
            os.rename(self.elsewhere, on_demand._socket_in(self.squatted))
            self.assertIn(f"served by another user (uid {MALLORY})", run_as(ask, ALICE))
            neighbour.send("done")
            self.assertEqual(neighbour.finish(), "", "somebody came, and said nothing")

    def test_a_socket_of_another_user_in_the_folder_of_the_node_is_not_used(self):
        """The folder is writable for others, by mistake: neither the tools nor the loader connect to him, however the socket is named."""
        node = os.path.join(self.top, "node")
        os.mkdir(node)
        os.chmod(node, 0o777)
        given = os.path.join(node, os.path.basename(on_demand.NODE_SOCKET))

        def as_node():
            if ctypes.CDLL(None).unshare(CLONE_NEWNS):
                raise OSError("no mounts of one's own")
            place = os.path.dirname(on_demand.NODE_SOCKET)
            subprocess.run(["mount", "--make-rprivate", "/"], check=True)
            if not os.path.isdir(place):
                subprocess.run(["mount", "-t", "tmpfs", "none", os.path.dirname(place)], check=True)
                os.mkdir(place)
            subprocess.run(["mount", "--bind", node, place], check=True)

        def load():
            try:
                return str(opened(self.dataset))
            except PermissionError as error:
                return error.strerror

        for uid in (ALICE, 0):
            for ask in (lambda: ctl("set", "workers=1")[2], lambda: top_of_daemon()["problem"], load):
                for socket in (given, ""):
                    def told(socket=socket, uid=uid, ask=ask):
                        if not socket:
                            as_node()
                        os.environ["DIESEL_SOCKET"] = socket
                        become(uid)
                        return ask()

                    neighbour = mallory(self, self.elsewhere)
                    os.rename(self.elsewhere, given)
                    said = run_as(told, 0)
                    self.assertIn(f"{socket or on_demand.NODE_SOCKET} is served by another user (uid {MALLORY})", said)
                    self.assertEqual(len(said.splitlines()), 1)
                    neighbour.send("done")
                    self.assertEqual(neighbour.finish(), "", "somebody came, and said nothing")

    def test_a_daemon_of_the_owner_of_its_folder_is_used(self):
        """Like the node's daemon: user diesel's, in a folder of that user."""
        folder = os.path.join(self.top, "hers")
        os.mkdir(folder)
        os.chown(folder, ALICE, ALICE)
        path = os.path.join(folder, "dieseld.sock")
        read, write = os.pipe()
        with subprocess.Popen([DIESELD, "--socket", path, "--metrics", "off", "--cache", "64M", "--tune", "off", "--ready-fd", str(write)],
                              pass_fds=[write], stderr=subprocess.DEVNULL, user=ALICE, group=ALICE, extra_groups=[]) as daemon:
            os.close(write)
            self.assertEqual(os.read(read, 6), b"ready\n")
            os.close(read)
            for uid in (0, ALICE, MALLORY):
                self.assertEqual(run_as(lambda: ctl("status", "--socket", path), uid)[0], 0)
            os.chown(folder, 0, 0)
            self.assertIn("is served by another user", run_as(lambda: ctl("status", "--socket", path), MALLORY)[2])
            # In a user namespace the daemon's uid is unmapped, and root's would be, too.
            self.assertEqual(Other(lambda channel: ctl("status", "--socket", path), MALLORY, namespaces=True).finish()[0], 0)
            daemon.terminate()

    def test_root_is_not_led_to_others(self):
        """Root is led neither to a user's own daemon, though sudo kept XDG_RUNTIME_DIR, nor to a socket in root's name."""
        os.environ["XDG_RUNTIME_DIR"] = private(os.path.join(self.top, "hers"), ALICE)
        path = run_as(lambda: opened(self.dataset), ALICE)[1]
        self.assertTrue(path.startswith(os.environ["XDG_RUNTIME_DIR"]))
        self.assertEqual(run_as(lambda: ctl("status"), ALICE)[0], 0)
        neighbour = mallory(self, on_demand._socket_in(os.path.join(self.shared, "diesel-0")))
        for line in self.lines(uid=0):
            self.assertIn(f"others can change {os.environ['XDG_RUNTIME_DIR']}", line)
            self.assertIn(f"belongs to another user (uid {MALLORY})", line)
        self.assert_nobody_came(neighbour)
        self.assertEqual(ctl("status", "--socket", path)[0], 0)


if __name__ == "__main__":
    for program in (DIESELD, DIESELCTL, DIESEL_TOP):
        require(program)
    unittest.main(verbosity=2)
