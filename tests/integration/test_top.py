# SPDX-License-Identifier: Apache-2.0
"""Tests diesel-top on a real terminal (tmux, and a pty) and real jobs: the contents of the screen, and the terminal's state afterwards."""
import fcntl
import importlib.util
import json
import os
import pty
import re
import resource
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

from common.processes import children, family, send
from common.waiting import wait_until
import dieseld_support as dieseld

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
TOP = os.path.abspath(os.path.join(BIN, "diesel-top"))
PATIENCE_S = 60  # for a slow and loaded machine; nothing here takes that long otherwise

# Sleeps at each step, and so leaves the cores to other tests, and does not end before a slow start of diesel-top.
JOB = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 1 << 20
    def __getitem__(self, i):
        x = torch.full((64,), float(i % 7))
        for _ in range(20): x = x.sin()
        return x
w = torch.ones(64, requires_grad=True)
print("ready", flush=True)
for x in DataLoader(Data(), batch_size=8, num_workers=int(sys.argv[1])):
    (x * w).sum().backward()
    time.sleep(0.01)
"""


def require():
    for program in ("tmux", TOP):
        if not shutil.which(program):
            print(f"skipped: there is no {program}")
            sys.exit(77)
    if not importlib.util.find_spec("torch"):  # not imported, as this process would be a training job, too
        print("skipped: there is no PyTorch")
        sys.exit(77)


def once(*options, status=0):
    done = subprocess.run([TOP, "--once", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=PATIENCE_S)
    if done.returncode != status:
        raise AssertionError(f"{options}: {done.returncode}: {done.stderr}")
    return json.loads(done.stdout) if status == 0 else done.stderr


class Terminal:
    """diesel-top, or a shell that runs it, in a terminal of its own server."""

    def __init__(self, command, rows=24, cols=80, env=None):
        self.server = f"diesel-top-{os.getpid()}-{time.monotonic_ns()}"
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", str(cols), "-y", str(rows),
                  "env " + " ".join(f"{k}={v}" for k, v in {"LC_ALL": "C.UTF-8", "TERM": "screen-256color",
                                                            **(env or {})}.items()) + " " + command)

    def tmux(self, *arguments):
        return subprocess.run(["tmux", "-L", self.server, *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S).stdout

    def screen(self, *options):
        return self.tmux("capture-pane", "-p", *options)

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def panes(self):
        """Returns the process ids of what runs there: none after its end, with which the server ends."""
        return [int(pid) for pid in self.tmux("list-panes", "-F", "#{pane_pid}").split()]

    def wait(self, pattern, gone=False):
        """Returns the screen with the pattern, or without it."""
        def holds():
            self.shown = self.screen()
            return bool(re.search(pattern, self.shown)) != gone
        wait_until(f"{pattern!r} {'gone from' if gone else 'on'} the screen", holds, PATIENCE_S, lambda: "\n" + self.shown)
        return self.shown

    def quit(self):
        """Ends diesel-top, which runs without a shell."""
        self.keys("q")
        wait_until("the end of diesel-top", lambda: not self.panes(), PATIENCE_S)

    def close(self):
        """Kills what runs there first. With the hang-up comes SIGCONT, and a program that LeakSanitizer is just stopping, to find leaks at
        its end, would never stop, and use a core for ever."""
        for pane in self.panes():
            for pid in family(pane):
                send(pid)
        self.tmux("kill-server")


class Pty:
    """diesel-top at the other end of a pseudoterminal: every byte that it sent, and how it ended."""

    def __init__(self, *options):
        self.sent = b""
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.slave = slave  # the terminal's modes outlive the program while this is open
        self.process = subprocess.Popen([TOP, *options], stdin=slave, stdout=slave, stderr=slave,
                                        env={**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"},
                                        preexec_fn=self.own_terminal)

    @staticmethod
    def own_terminal():
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    def read(self, wanted=None):
        """Reads until these bytes were sent, or, without them, as long as there is output."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end and (wanted is None or wanted not in self.sent):
            if select.select([self.master], [], [], 0 if wanted is None else 1)[0]:
                self.sent += os.read(self.master, 65536)
            elif wanted is None:
                return
        if wanted and wanted not in self.sent:
            raise AssertionError(f"{wanted!r} was not sent: {self.sent!r}")

    def modes(self):
        return termios.tcgetattr(self.slave)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for fd in (self.master, self.slave):
            if fd >= 0:
                os.close(fd)


class OnTerminal(unittest.TestCase):
    def open(self, command, **options):
        terminal = Terminal(command, **options)
        self.addCleanup(terminal.close)
        return terminal


class Top(OnTerminal):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="diesel-top-")
        cls.script = os.path.join(cls.folder, "训练\x1b[2J.py")  # wide characters, and a sequence that clears screens
        with open(cls.script, "w") as file:
            file.write(JOB)
        cls.job = subprocess.Popen(["/usr/bin/python3", cls.script, "1"], stdout=subprocess.PIPE, text=True)
        assert cls.job.stdout.readline() == "ready\n"
        cls.pid = str(cls.job.pid)

    @classmethod
    def tearDownClass(cls):
        cls.job.kill()
        cls.job.wait()
        cls.job.stdout.close()
        shutil.rmtree(cls.folder, ignore_errors=True)

    def test_once_finds_the_job(self):
        for seconds in ("4", "20", "40"):  # a busy machine may give the job no core in the first
            sample = once("--node", "-d", seconds)
            job = {str(job["pid"]): job for job in sample["jobs"]}[self.pid]
            if sample["self"]["source"] != "BPF" or job.get("steps_per_s"):
                break
        self.assertEqual(sample["schema"], "diesel.top/1")
        self.assertEqual(job["state"], "running")
        self.assertIn(job["n_processes"], (2, 3))
        self.assertNotIn("prefetch_chunks", job)  # unknown values are left out, not 0
        if sample["self"]["source"] == "BPF":
            shares = ("device", "fetch_stall", "prep_stall", "checkpoint_stall", "cpu_starved", "compiling", "other")
            self.assertAlmostEqual(sum(job.get(share, 0) for share in shares), 1, places=3)
            self.assertGreater(job["steps_per_s"], 0)
            self.assertTrue([hop for hop in sample["hops"] if hop["job"] == job["id"]])
        roles = [w["role"] for w in sample["workers"] if w["job"] == job["id"]]
        self.assertIn("trainer", roles)
        self.assertIn("worker", roles)

    def test_once_without_privilege(self):
        sample = once("--node", "--unprivileged", "-p", self.pid, "-d", "1")
        self.assertIn("approximate", sample["self"]["source"])
        self.assertEqual([str(job["pid"]) for job in sample["jobs"]], [self.pid])

    def test_why_it_samples_is_told_whole(self):
        if os.geteuid() != 0:
            self.skipTest("is without privilege already")
        folder = tempfile.mkdtemp(prefix="diesel-top-")  # other users may have no access to the build folder
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        os.chmod(folder, 0o755)
        program = shutil.copy(TOP, folder)
        done = subprocess.run([program, "--once", "--node", "-d", "1"], capture_output=True, text=True, timeout=120,
                              user=65534, group=65534, extra_groups=[], cwd="/")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(json.loads(done.stdout)["self"]["source"], r"approximate \(.*CAP_SYS_PTRACE\)$")

    def test_screen_views_and_keys(self):
        t = self.open(f"{TOP} --node -d 0.5 -p {self.pid}")
        shown = t.wait(rf"(?m)^ *{self.pid} ")
        self.assertIn("训练", shown)
        self.assertIn("?[2J.py", shown)  # harmless
        self.assertIn("no dieseld", shown)
        t.keys("Tab")
        t.wait(r"(?m)^ *\d+ worker ")
        t.keys("t")
        t.wait(r"(?m)^ *\d+   worker ")
        t.keys("3")
        t.wait("FILE OR FOLDER")
        t.keys("4")
        t.wait("MOST TIME IN")
        t.keys("6")
        t.wait("BPF programs")
        t.keys("1")
        t.keys("F1")
        t.wait("Keys")
        t.keys("Escape")
        t.wait("STEP/S")
        t.keys("Enter")
        t.wait("wait/step")
        t.quit()

    def test_resize(self):
        t = self.open(f"{TOP} --node -d 0.5 -p {self.pid}")
        t.wait("STEP/S")
        t.tmux("resize-window", "-x", "200", "-y", "50")
        # A resize may show the new width before the height.
        shown = t.wait(r"(?s)\A(?=.*LAST DECISION)([^\n]*\n){49}[^\n]*\S")
        self.assertEqual(len(shown.rstrip("\n").split("\n")), 50)
        t.tmux("resize-window", "-x", "30", "-y", "5")
        t.wait("too small")
        t.tmux("resize-window", "-x", "80", "-y", "24")
        t.wait("STEP/S")
        t.quit()

    def test_ascii_and_no_colour(self):
        t = self.open(f"{TOP} --node -d 0.5 -p {self.pid}", env={"LC_ALL": "C", "NO_COLOR": "1"})
        shown = t.wait(r"\[[FPCSod]{5,}\]|N/A")
        self.assertNotRegex(shown, r"[^\x00-\x7f]")
        self.assertIn("?", shown)
        self.assertNotRegex(t.screen("-e"), r"\x1b\[[0-9;]*3[0-7]m")  # no colour is set
        t.quit()
        t = self.open(f"{TOP} --node -d 0.5 -p {self.pid}")
        t.wait("STEP/S")
        self.assertRegex(t.screen("-e"), r"\x1b\[[0-9;]*[34][0-7]m")

    def test_stop_and_go_on(self):
        t = self.open("bash --norc --noprofile", rows=30)
        t.keys(f"{TOP} --node -p {self.pid}", "Enter")
        t.wait("STEP/S")
        t.keys("C-z")
        t.wait("Stopped")
        t.keys("fg", "Enter")
        t.wait("STEP/S")
        t.keys("q")
        t.wait("STEP/S", gone=True)

    def test_record_and_replay(self):
        path = os.path.join(self.folder, "reel")
        done = subprocess.run([TOP, "--node", "-p", self.pid, "-b", "-n", "4", "-d", "0.2", "-w", path],
                              stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True)
        self.assertEqual(done.stdout.count("STEP/S"), 4)
        with open(path, "r+b") as file:  # the machine died while the last one was written
            file.truncate(os.path.getsize(path) - 5)
        done = subprocess.run([TOP, "-r", path, "--batch"], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S,
                              check=True)
        self.assertEqual(done.stdout.count("STEP/S"), 3)
        t = self.open(f"{TOP} -r {path} -d 0.1")
        shown = t.wait("REPLAY end")
        self.assertIn("SKIPPED 1", shown)
        self.assertIn("PAUSED", shown)
        t.keys("r")
        shown = t.wait("REPLAY end", gone=True)
        first = re.search(r"\d\d:\d\d:\d\d", shown).group()
        t.keys("b", "soon", "Enter")
        t.wait("is not a time")
        t.keys("b", first, "Enter")
        t.wait(first)
        t.quit()

    def test_exited_job_is_shown_for_a_while(self):
        path = os.path.join(self.folder, "short.py")
        with open(path, "w") as file:
            file.write(JOB)
        with subprocess.Popen(["/usr/bin/python3", path, "0"], stdout=subprocess.PIPE, text=True) as job:
            self.addCleanup(job.kill)
            self.assertEqual(job.stdout.readline(), "ready\n")
            t = self.open(f"{TOP} --node -d 0.3 -p {job.pid}")
            t.wait(rf"(?m)^ *{job.pid} +short\.py")  # the interpreter's name until its first step is seen
            job.kill()
        t.wait("short.py: exited")
        t.wait(rf"(?m)^ *{job.pid} ", gone=True)
        t.quit()


class Death(OnTerminal):
    """However it dies, the terminal is restored: modes, the previous screen, the cursor. (SIGKILL cannot be caught.)"""

    ENTER, LEAVE, SHOW_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"  # smcup, rmcup, cnorm of xterm

    def start(self):
        top = Pty("--node", "--unprivileged", "-p", str(os.getpid()))
        self.addCleanup(top.close)
        top.read(b"STEP/S")
        self.assertIn(self.ENTER, top.sent)
        self.assertNotEqual(top.modes(), top.before)
        return top

    def check(self, top, status):
        self.assertEqual(top.process.wait(PATIENCE_S), status)
        top.read()
        self.assertEqual(top.modes(), top.before)
        after = top.sent[top.sent.rindex(self.ENTER):]
        self.assertEqual(after.count(self.LEAVE), 1)
        self.assertGreater(after.rindex(self.SHOW_CURSOR), after.rindex(b"\x1b[?25l"))
        self.assertNotIn(b"STEP/S", after[after.index(self.LEAVE):])

    def test_signals(self):
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGUSR1",
                     "SIGALRM", "SIGXCPU"):
            with self.subTest(name):
                top, number = self.start(), int(getattr(signal, name))
                top.process.send_signal(number)
                self.check(top, -number)

    def test_key(self):
        top = self.start()
        os.write(top.master, b"q")
        self.check(top, 0)

    def test_interrupt_key(self):
        top = self.start()
        os.write(top.master, b"\x03")
        self.check(top, -signal.SIGINT)

    def test_closed_terminal(self):
        top = self.start()
        os.close(top.master)  # the window is closed: the program must end although no terminal is left
        top.master = -1
        self.assertEqual(top.process.wait(PATIENCE_S), -signal.SIGHUP)

    def test_on_a_real_terminal(self):
        t = self.open("sh")
        t.keys(f"echo bef''ore; {TOP} --node --unprivileged -p {os.getpid()}; echo aft''er $?", "Enter")
        t.wait("STEP/S")
        os.kill(children(t.panes()[0])[0], signal.SIGSEGV)
        shown = t.wait("after 139")
        self.assertIn("before", shown)  # the previous screen is back
        self.assertNotIn("STEP/S", shown)
        self.assertEqual(t.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").strip(), "0 1")


class Gpus(OnTerminal):
    """NVML's stand-in (tests/standin): there is no GPU here, and nothing below claims one."""

    def setUp(self):
        self.library = os.path.join(os.path.abspath(os.environ.get("DIESEL_STANDIN", "build/release/standin")), "nvml")
        if not os.path.exists(self.library):
            self.skipTest(f"there is no {self.library}")
        if "libasan" in subprocess.run(["ldd", TOP], stdout=subprocess.PIPE, text=True, check=False).stdout:
            self.skipTest("LD_LIBRARY_PATH and sanitizers")

    def once(self, **environment):
        done = subprocess.run([TOP, "--once", "--node", "--unprivileged", "-d", "0.2", "-p", str(os.getpid())],
                              stdout=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=True,
                              env={**os.environ, "LD_LIBRARY_PATH": self.library, **environment})
        return json.loads(done.stdout)

    def test_figures_and_jobs(self):
        sample = self.once(DIESEL_STANDIN_UTILIZATION="37", DIESEL_STANDIN_PID=str(os.getpid()))
        first, second = sample["gpus"]
        self.assertEqual((first["name"], first["busy_ratio"], first["power_w"]), ("stand-in 1", 0.37, 250.5))
        self.assertEqual((first["memory_used_bytes"], first["memory_bytes"]), (16 << 30, 64 << 30))
        self.assertEqual(first["jobs"], sample["jobs"][0]["name"])
        self.assertEqual((second["busy_ratio"], second.get("jobs", "")), (1, ""))
        self.assertNotIn("memory_bytes", second)  # unknown, which is not 0

    def test_driver_that_does_not_start(self):
        sample = self.once(DIESEL_STANDIN_NVML="broken")
        self.assertEqual(sample["gpus"], [])
        self.assertIn("Driver Not Loaded", sample["host"]["gpus"])


class BadInput(OnTerminal):
    def check(self, *options, status=1, says=""):
        done = subprocess.run([TOP, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(says, done.stderr)
        self.assertEqual(done.stdout, "")

    def test_command_lines(self):
        for options, says in ((("-d", "0"), "0.1 to 60"), (("-p", "x"), "process numbers"), (("-n", "0", "-b"), "-n 0"),
                              (("-F", "-resnet", "-b", "-n", "0"), "-n 0"),
                              (("-s", "speed"), "no column 'speed'"), (("-e", "10:00"), "-r FILE"),
                              (("-r", "a", "-w", "b"), "give only one of them"), (("now",), "no arguments"),
                              (("--once", "--batch"), "give only one of them"), (("--nonsense",), "no option --nonsense"),
                              (("--bacth",), "do you mean --batch?"), (("--samples",), "needs an argument")):
            with self.subTest(options):
                self.check(*options, status=2, says=says)

    def test_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x")
            self.check("-r", path, "--batch", says="No such file")
            with open(path, "w") as file:
                file.write("no recording\n")
            self.check("-r", path, "--batch", says="not a recording")
            self.check("-w", path, "--once", says="not a recording")
            with open(path) as file:
                self.assertEqual(file.read(), "no recording\n")
            self.check("-w", folder, "--once")

    def test_damaged_recordings(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "reel")
            subprocess.run([TOP, "--node", "--unprivileged", "-p", str(os.getpid()), "-b", "-n", "3", "-d", "0.1", "-w",
                            path], stdout=subprocess.DEVNULL, check=True, timeout=PATIENCE_S)
            with open(path, "rb") as file:
                whole = file.read()
            second = whole.index(b"DSLREEL\n", 8)
            for what, data, n in (("a byte flipped", whole[:second - 9] + b"\xff\xfe" + whole[second - 7:], 2),
                                  ("noise between", whole[:second] + os.urandom(999) + whole[second:], 3),
                                  ("cut in the header", whole[:second + 11], 1)):
                with self.subTest(what):
                    with open(path, "wb") as file:
                        file.write(data)
                    done = subprocess.run([TOP, "-r", path, "--batch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True, timeout=PATIENCE_S, check=True)
                    self.assertEqual(done.stdout.count("STEP/S"), n)
            with open(path, "wb") as file:
                file.write(whole[:20])
            self.check("-r", path, "--once", says=path)

    def test_recording_that_hits_a_limit(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertIn("File too large", self.limited(os.path.join(folder, "reel")))

    @staticmethod
    def limited(path):
        done = subprocess.run([TOP, "--node", "--unprivileged", "-p", str(os.getpid()), "-b", "-n", "9", "-d", "0.1", "-w",
                               path], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600)))
        if done.returncode != 1 or done.stderr.count("\n") != 1:
            raise AssertionError(f"{done.returncode}: {done.stderr}")
        return done.stderr

    def test_no_terminal(self):
        self.check("--node", says="not a terminal")

    def test_unknown_terminal(self):
        t = self.open(f"sh -c '{TOP} --node; echo status $?; sleep 60'", env={"TERM": "nonsense"})
        shown = t.wait("status 1")
        self.assertIn('terminal of type "nonsense"', shown.replace("\n", ""))


class Daemon(OnTerminal):
    def test_daemon_that_goes_and_comes_back(self):
        dieseld.require(os.path.join(BIN, "dieseld"))
        daemon = dieseld.Daemon()
        self.addCleanup(daemon.stop)
        self.addCleanup(daemon.process.send_signal, signal.SIGCONT)
        sample = once("--daemon", "--socket", daemon.socket, "-d", "0.2")
        self.assertEqual(sample["daemon"]["state"], "up")
        self.assertEqual(sample["daemon"]["cache_budget_bytes"], 256 << 20)
        t = self.open(f"{TOP} --daemon --socket {daemon.socket} -d 0.2", cols=120)
        t.keys("5")
        t.wait("cache .* of 256M")
        daemon.process.send_signal(signal.SIGSTOP)  # the daemon hangs, and the screen does not
        t.keys("1")
        t.wait("STEP/S")
        t.keys("5")
        silent = "(does|did) not answer"  # the latter if it was stopped during a greeting
        t.wait(silent)
        daemon.process.send_signal(signal.SIGCONT)
        t.wait(silent, gone=True)
        daemon.stop()
        t.wait("went away")
        daemon.start()
        t.wait("cache .* of 256M")
        t.quit()

    def test_daemon_of_another_version(self):
        """The daemon answers the greeting in its own format: an error that names the versions, or other bytes."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "s")
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.addCleanup(listener.close)
            listener.bind(path)
            listener.listen()

            def answer():
                while True:
                    try:
                        client, _ = listener.accept()
                        client.recv(4096)
                        client.send(b"\xee" * 64)
                        client.close()
                    except OSError:
                        return
            threading.Thread(target=answer, daemon=True).start()
            sample = once("--daemon", "--socket", path, "-d", "0.2")
            self.assertEqual(sample["daemon"]["state"], "none")
            self.assertIn("the same version", sample["daemon"]["problem"])
            said = subprocess.run([TOP, "--socket", path, "-d", "0.2", "-b", "-n", "2"], capture_output=True, text=True, check=True)
            self.assertIn("of the same version", said.stdout)
            t = self.open(f"{TOP} --daemon --socket {path} -d 0.2")
            t.keys("5")
            t.wait("of the same version")
            t.quit()

    def test_no_daemon(self):
        sample = once("--daemon", "--socket", "/nonexistent/socket", "-d", "0.1")
        self.assertEqual(sample["daemon"]["state"], "none")
        self.assertIn("no dieseld at /nonexistent/socket", sample["daemon"]["problem"])


if __name__ == "__main__":
    require()
    unittest.main(verbosity=2)
