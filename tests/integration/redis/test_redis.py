# SPDX-License-Identifier: Apache-2.0
"""Tests datasets whose metadata is on a real Redis server: the same as with SQLite, and failures of the server."""
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from common.commands import one_line
from servers import BIN, Case, content, dieselctl, main, make_source

PASSWORD = "a secret: 100%"
URL_PASSWORD = "a%20secret%3a%20100%25"


class RedisTest(Case):
    def setUp(self):
        super().setUp()
        self.server = self.serve()
        self.source, self.dataset = self.root / "src", self.root / "ds"
        make_source(self.source, 60)

    def pack(self, *args, check=0, **env):
        return dieselctl("pack", "--meta", self.server.url("team/ds"), *args, self.source, self.dataset, check=check, **env)

    def one_line(self, done, *words):
        one_line(done, *words)
        self.assertNotIn(PASSWORD, done.stderr)

    def sound(self):
        told = dieselctl("verify", self.dataset)
        self.assertEqual(told.stderr, "")
        return told

    def test_it_passes_what_every_engine_passes(self):
        """Runs the tests that every engine passes, and the writer's own. In one of them a second writer waits that long."""
        env = dict(os.environ, DIESEL_TEST_REDIS=f"redis://127.0.0.1:{self.server.port}", DIESEL_REDIS_WAIT="5")
        for program in ("test_dataset_meta", "test_dataset_writer"):
            self.server.cli("flushall")
            done = subprocess.run([BIN / program], env=env, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertGreater(int(self.server.cli("dbsize")), 1000)

    def test_each_verb_does_the_same_as_with_sqlite(self):
        plain = self.root / "plain"
        self.pack()
        dieselctl("pack", self.source, plain)
        self.assertFalse((self.dataset / "meta.db").exists())
        for change in (lambda d: dieselctl("rm", d, "class0/0.bin"), lambda d: dieselctl("rm", "-r", d, "class1"),
                       lambda d: dieselctl("pack", "--append", self.source, d), lambda d: dieselctl("rebuild", d),
                       lambda d: dieselctl("rebuild", "--digest", "sha256", d), lambda d: dieselctl("rm", d, "class2/2.bin"),
                       lambda d: dieselctl("snapshot", d)):
            self.assertEqual(change(self.dataset).stdout.split(" in ")[0].split(" into ")[0],
                             change(plain).stdout.split(" in ")[0].split(" into ")[0])
            self.assertEqual(content(self.dataset), content(plain))
            self.sound()
        facts = [json.loads(dieselctl("stat", "--json", d).stdout) for d in (self.dataset, plain)]
        for key in ("version", "samples", "bytes", "chunks", "digest", "meta_version", "pending"):
            self.assertEqual(facts[0][key], facts[1][key], key)
        # Entries that rebuild made again do not exist twice.
        self.assertEqual(int(self.server.cli("dbsize")), 1041)

    def test_paths_are_found_without_a_snapshot(self):
        """Finds paths in the metadata of both engines: directly where there is no snapshot, or on request. The results are those of the
        last commit, or of the snapshot."""
        plain = self.root / "plain"
        (self.source / "class0" / "deeper").mkdir(parents=True)
        (self.source / "class0" / "deeper" / "x").write_bytes(b"x" * 5)
        (self.source / "class0-more").mkdir()
        (self.source / "class0-more" / "y").write_bytes(b"")
        (self.source / "top").write_bytes(b"top")
        self.pack()
        dieselctl("pack", self.source, plain)
        for dataset in (self.dataset, plain):
            dieselctl("rm", dataset, "class1/1.bin")
            asked = [("ls",), ("ls", "-R"), ("ls", "-l", "class0"), ("ls", "class0/", "class0-more"), ("ls", "-l", "top"), ("ls", "class0/deeper")]
            listed = [dieselctl(verb, *[a for a in args if a[0] == "-"], dataset, *[a for a in args if a[0] != "-"]).stdout
                      for verb, *args in asked]
            stat = json.loads(dieselctl("stat", "--json", dataset, "class0/deeper/x").stdout)
            told = {key: value for key, value in stat.items() if key != "class"}
            names, data = content(dataset)
            for gone in (False, True):
                if gone:
                    (dataset / "snapshot").unlink()
                meta = [] if gone else ["--meta"]
                for (verb, *args), wanted in zip(asked, listed):
                    self.assertEqual(dieselctl(verb, *meta, *[a for a in args if a[0] == "-"], dataset, *[a for a in args if a[0] != "-"]).stdout,
                                     wanted)
                self.assertEqual(json.loads(dieselctl("stat", "--json", *meta, dataset, "class0/deeper/x").stdout), told)
                self.assertEqual(subprocess.run([BIN / "dieselctl", "cat", *meta, dataset, *names], check=True, capture_output=True).stdout, data)
                entry = json.loads(dieselctl("ls", "--json", *meta, dataset, "top").stdout)[0]
                self.assertEqual((entry["path"], entry["bytes"], "sample" in entry), ("top", 3, False))
                for verb in ("cat", "ls", "stat"):
                    self.one_line(dieselctl(verb, *meta, dataset, "class1/1.bin", check=1), "there is no", "class1/1.bin")
            self.one_line(dieselctl("cat", "--meta", "--version", "1", dataset, "top", check=1), "--version")
            chunk = max((dataset / "chunks").iterdir(), key=lambda path: path.stat().st_size)
            chunk.write_bytes(chunk.read_bytes().replace(b"x" * 5, b"x" * 4 + b"y"))
            self.one_line(dieselctl("cat", dataset, "class0/deeper/x", check=1), "class0/deeper/x", "damaged")
        dieselctl("stat", "--meta", plain, check=2)
        self.server.stop()
        self.one_line(dieselctl("cat", "--meta", self.dataset, "top", check=1), "Connection refused")
        self.one_line(dieselctl("cat", self.root, "top", check=1), "dieselctl pack")

    def test_a_password_is_needed_and_never_shown(self):
        self.server.cli("config", "set", "requirepass", PASSWORD)
        self.server.password = PASSWORD
        self.one_line(self.pack(check=1), "password", "DIESEL_REDIS")
        self.assertFalse(self.dataset.exists())
        address = f"127.0.0.1:{self.server.port}"
        self.one_line(self.pack(check=1, DIESEL_REDIS=f"redis://:wrong@{address}"), "refuses this user")
        secret = self.root / "secret"
        secret.write_text(f"redis://:{URL_PASSWORD}@{address}\n")
        self.pack(DIESEL_REDIS_FILE=str(secret))
        self.assertNotIn("secret", (self.dataset / "meta.redis").read_text())
        dieselctl("rm", self.dataset, "class0/0.bin", DIESEL_REDIS=f"redis://default:{URL_PASSWORD}@{address}")
        # A dataset folder cannot choose who gets a password: the password of another server is not sent.
        self.one_line(dieselctl("rm", self.dataset, "class0/3.bin", check=1,
                                DIESEL_REDIS=f"redis://default:{URL_PASSWORD}@127.0.0.1:{self.server.port % 60000 + 1}"), "password")
        url = f"redis://:{URL_PASSWORD}@{address}/team/ds"
        dieselctl("pack", "--meta", url, "--append", self.source, self.dataset)

    def test_bad_urls_are_usage_errors(self):
        for url in ("", "redis://", "redis://host", "redis://host/", "redis:///x", "redis://host:0/x", "redis://host:99999/x",
                    "redis://host/{x}", "redis://host/a b", "redis://u@host/x", "redis://u:%0@host/x", "http://host/x",
                    "redis://[::1/x", "redis://u:" + "p" * 300 + "@host/x"):
            done = dieselctl("pack", "--meta", url, self.source, self.dataset, check=2)
            self.assertIn("--meta", done.stderr)
            self.assertFalse(self.dataset.exists())

    def test_a_dataset_stays_at_its_place(self):
        self.pack()
        other = self.root / "other"
        self.one_line(dieselctl("pack", "--meta", self.server.url("team/ds"), self.source, other, check=1), "another dataset")
        self.assertFalse(other.exists())
        self.one_line(dieselctl("pack", "--meta", self.server.url("else"), "--append", self.source, self.dataset, check=1), "not on")
        dieselctl("pack", self.source, other)
        self.one_line(dieselctl("pack", "--meta", self.server.url("else"), "--append", self.source, other, check=1), "meta.db")
        self.sound()

    def test_a_copy_of_the_folder_shares_no_keys(self):
        """A copy shares no keys: each command that would read or change the original's reports that, and the fix in its message works."""
        self.pack()
        names, copy = content(self.dataset), self.root / "copy"
        for how in (["-r"], ["-a"], ["-al"]):
            shutil.rmtree(copy, ignore_errors=True)
            subprocess.run(["cp", *how, self.dataset, copy], check=True)
            url = self.server.url("team/ds")
            for words in (("rm", copy, "class0/0.bin"), ("rm", "-r", copy, "class0"), ("pack", "--append", self.source, copy),
                          ("pack", "--append", "--meta", url, self.source, copy), ("purge", "--keep", "1", copy), ("snapshot", copy),
                          ("snapshot", "--frozen", copy), ("rebuild", copy), ("rebuild", "--meta", url, copy),
                          ("ls", "--meta", copy), ("log", copy), ("cat", "--meta", copy, "class0/0.bin"), ("ls", "--version", "7", copy)):
                self.one_line(dieselctl(*words, check=1), f"{copy} is a copy", "dieselctl rebuild --meta")
            self.assertIn(f"{copy} is a copy", dieselctl("stat", copy).stdout)
            for words in ([], ["--repair"]):
                self.assertIn(f"{copy} is a copy", dieselctl("verify", *words, copy, check=1).stdout)
            self.assertEqual(content(copy), names)  # its snapshot belongs to the copy
        dieselctl("rm", self.dataset, "class0/3.bin")
        self.assertIn("dieselctl rebuild --meta", dieselctl("stat", copy).stdout)
        self.assertNotIn("dieselctl snapshot", dieselctl("stat", copy).stdout + dieselctl("verify", copy, check=1).stdout)
        changed = content(self.dataset)
        command, = set(re.findall("`([^`]*rebuild --meta [^`]*)`", dieselctl("rm", copy, "class0/0.bin", check=1).stderr))
        subprocess.run(command.replace("redis://HOST[:PORT]/PREFIX", self.server.url("team/copy")), shell=True, check=True, capture_output=True)
        self.assertEqual((content(copy), content(self.dataset)), (names, changed))
        dieselctl("rm", copy, "class0/0.bin")
        for dataset in (self.dataset, copy):
            self.assertEqual(dieselctl("verify", dataset).stderr, "")
        self.assertEqual(content(self.dataset), changed)
        self.one_line(dieselctl("rebuild", "--meta", self.server.url("else"), copy, check=1), "not on")

    def test_a_folder_that_was_moved_is_no_copy(self):
        """The same folder at another path is no copy; its file is checked."""
        self.pack()
        moved = self.root / "elsewhere" / "moved"
        moved.parent.mkdir()
        self.dataset.rename(moved)
        dieselctl("rm", moved, "class0/0.bin")
        place = moved / "meta.redis"
        self.assertEqual(dieselctl("verify", moved).stderr, "")
        good = place.read_text()
        for harm in ("diesel-metadata 3\n", good[:good.rindex("folder")], "diesel-metadata 2\nx\ny\n"):
            place.write_text(harm)
            self.one_line(dieselctl("rm", moved, "class0/6.bin", check=1), str(place))
        self.assertIn("dieselctl rebuild --meta", dieselctl("rm", moved, "class0/6.bin", check=1).stderr)
        place.unlink()
        dieselctl("rebuild", "--meta", self.server.url("team/again"), moved)
        self.assertEqual(dieselctl("verify", moved).stderr, "")

    def test_lost_keys_are_told_and_rebuilt(self):
        """Keys are flushed, evicted, of the wrong type, or truncated: one line of error, no wrong answer, and rebuild repairs it."""
        self.pack()
        names = content(self.dataset)

        def generation():
            return self.server.cli("hget", "team/ds:state", "generation").decode()

        def full_bucket():
            return next(f"team/ds:{generation()}:{i}" for i in range(1024)
                        if int(self.server.cli("hlen", f"team/ds:{generation()}:{i}")) > 1)

        def cut():
            bucket = full_bucket()
            field = next(f for f in self.server.cli("hkeys", bucket).decode().splitlines() if f)
            self.server.cli("hdel", bucket, field)

        def retype(key):
            self.server.cli("del", key)
            self.server.cli("set", key, "x")

        for harm in (lambda: self.server.cli("flushall"), lambda: self.server.cli("del", full_bucket()), cut,
                     lambda: retype("team/ds:state"), lambda: retype(full_bucket()),
                     lambda: self.server.cli("hset", "team/ds:state", "version", "many"),
                     lambda: self.server.cli("del", f"team/ds:{generation()}:1030")):
            harm()
            told = dieselctl("verify", self.dataset, check=1)
            self.assertIn("dieselctl rebuild", told.stdout + told.stderr)
            self.one_line(dieselctl("snapshot", self.dataset, check=1), "dieselctl rebuild")
            self.assertEqual(content(self.dataset), names)
            dieselctl("rebuild", self.dataset)
            self.sound()
            self.assertEqual(content(self.dataset), names)

    def test_an_older_state_of_the_server_is_told(self):
        """A server came back with an older state."""
        self.pack()
        before = {f: self.server.cli("hget", "team/ds:state", f) for f in ("version", "committed", "chunks", "paths", "newest", "marks")}
        dieselctl("rm", self.dataset, "class0/0.bin")
        for field, value in before.items():
            self.server.cli("hset", "team/ds:state", field, value)
        self.one_line(dieselctl("rm", self.dataset, "class0/3.bin", check=1), "newer than its metadata", "dieselctl rebuild")
        for told in (dieselctl("stat", self.dataset).stdout, dieselctl("verify", self.dataset, check=1).stdout):
            self.assertIn("dieselctl rebuild", told)
            self.assertNotIn("dieselctl snapshot", told)
        dieselctl("rebuild", self.dataset)
        self.sound()

    def test_a_full_server_changes_nothing(self):
        self.server.cli("config", "set", "maxmemory-policy", "noeviction")
        self.server.cli("config", "set", "maxmemory", "1")
        self.one_line(self.pack(check=1), "no memory left")
        self.server.cli("config", "set", "maxmemory", "0")
        self.pack()
        self.server.cli("config", "set", "maxmemory", "1")
        before = content(self.dataset)
        self.one_line(dieselctl("rm", self.dataset, "class0/0.bin", check=1), "no memory left")
        self.assertEqual(content(self.dataset), before)
        self.server.cli("config", "set", "maxmemory", "0")
        dieselctl("rm", self.dataset, "class0/0.bin")
        self.sound()

    def test_a_server_that_is_gone_is_an_error(self):
        self.pack()
        self.server.stop()
        self.one_line(dieselctl("rm", self.dataset, "class0/0.bin", check=1), "cannot connect", "Connection refused")
        self.assertIn("cannot connect", dieselctl("stat", self.dataset).stdout)
        self.assertEqual(len(content(self.dataset)[0]), 60)

    def test_a_server_that_is_no_redis_is_an_error(self):
        """A server with another protocol listens there."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()
            url = f"redis://127.0.0.1:{s.getsockname()[1]}/x"
            process = subprocess.Popen([BIN / "dieselctl", "pack", "--meta", url, self.source, self.dataset], stderr=subprocess.PIPE, text=True)
            peer, _ = s.accept()
            peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            _, told = process.communicate(timeout=120)
            peer.close()
        self.assertEqual(process.returncode, 1)
        self.assertEqual(len(told.splitlines()), 1, told)
        self.assertFalse(self.dataset.exists())

    def test_a_harmful_server_harms_nobody(self):
        """A hostile Redis server: one line of error, soon, and within bounds of memory."""
        def serve(peer, name):
            peer.recv(1 << 16)
            try:
                while True:
                    peer.sendall({"huge array": b"*2000000000\r\n", "nested": b"*1000000\r\n" * 7, "endless": b"+" + b"x" * 65536,
                                  "endless string": b"$500000000\r\n" + b"x" * 65536, "slow": b"+"}[name])
                    if name == "slow":
                        time.sleep(0.1)
                    elif name in ("huge array", "nested"):
                        break
                peer.recv(1)
            except OSError:
                pass

        for name in ("huge array", "nested", "endless", "endless string", "slow"):
            with socket.socket() as s, self.subTest(name):
                s.bind(("127.0.0.1", 0))
                s.listen()
                url = f"redis://127.0.0.1:{s.getsockname()[1]}/x"
                process = subprocess.Popen(["bash", "-c", 'ulimit -v 1000000; exec "$@"', "-", BIN / "dieselctl", "pack", "--meta", url,
                                            self.source, self.dataset], stderr=subprocess.PIPE, text=True,
                                           env=os.environ | {"DIESEL_REDIS_WAIT": "1"})
                self.addCleanup(process.kill)
                peer, _ = s.accept()
                thread = threading.Thread(target=serve, args=(peer, name))
                thread.start()
                _, told = process.communicate(timeout=60)
                peer.close()
                thread.join()
                self.assertEqual(process.returncode, 1, told)
                self.assertEqual(len(told.splitlines()), 1, told)
                self.assertIn("does not answer", told)
                self.assertFalse(self.dataset.exists())

    def test_a_server_that_stalls_is_an_error_and_loses_nothing(self):
        """The server's machine hangs: no command waits for it endlessly, and acknowledged commits stay."""
        self.pack()
        before = content(self.dataset)
        self.server.send(signal.SIGSTOP)
        self.one_line(dieselctl("rm", self.dataset, "class0/0.bin", check=1, DIESEL_REDIS_WAIT="1"), "does not answer", "timed out")
        self.assertEqual(content(self.dataset), before)
        self.server.send(signal.SIGCONT)
        dieselctl("rm", self.dataset, "class0/0.bin")
        self.sound()
        for wrong in ("0", "soon", "-1"):
            self.one_line(dieselctl("rm", self.dataset, "class0/3.bin", check=1, DIESEL_REDIS_WAIT=wrong), "DIESEL_REDIS_WAIT")

    def test_a_server_that_may_evict_is_refused(self):
        self.server.cli("config", "set", "maxmemory-policy", "allkeys-lru")
        self.server.cli("config", "set", "maxmemory", "1gb")
        self.one_line(self.pack(check=1), "noeviction")
        self.assertFalse(self.dataset.exists())
        for policy in ("volatile-lru", "noeviction"):
            self.server.cli("config", "set", "maxmemory-policy", policy)
            self.pack(*(["--append"] if self.dataset.exists() else []))
        self.server.cli("config", "set", "maxmemory-policy", "allkeys-random")
        self.one_line(dieselctl("rm", self.dataset, "class0/0.bin", check=1), "noeviction")
        self.sound()

    def test_flushed_scripts_are_sent_again(self):
        """While a pack runs, the server forgets the scripts, and drops all clients."""
        self.pack()
        make_source(self.source, 2000, 2)
        process = subprocess.Popen([BIN / "dieselctl", "pack", "--append", self.source, self.dataset], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True)
        pause_s = 0.02
        while process.poll() is None:
            self.server.cli("script", "flush")
            self.server.cli("client", "kill", "type", "normal")
            time.sleep(pause_s)
            pause_s *= 1.3  # on a busy machine, one command may take longer than any constant pause
        self.assertEqual((process.returncode, process.communicate()[1]), (0, ""))
        self.assertEqual(len(content(self.dataset)[0]), 2000)
        self.sound()

    def test_a_bucket_of_an_older_state_is_told(self):
        """One of the keys comes back as it was before the last commit: from a lagging replica, or a backup."""
        self.pack()
        generation = self.server.cli("hget", "team/ds:state", "generation").decode()
        keys = [f"team/ds:{generation}:{i}" for i in range(1024)]
        before = self.server.ask(*(("dump", key) for key in keys))
        os.utime(self.source / "class0" / "0.bin", (1, 1))
        dieselctl("pack", "--append", self.source, self.dataset)
        self.sound()
        changed = [(key, old) for key, old, new in zip(keys, before, self.server.ask(*(("dump", key) for key in keys))) if old != new]
        self.assertEqual(len(changed), 1)
        self.assertEqual(self.server.ask(*(("restore", key, "0", old, "replace") for key, old in changed)), [b"OK"])
        self.one_line(dieselctl("rm", self.dataset, "class0/3.bin", check=1), "dieselctl rebuild")
        self.assertIn("dieselctl rebuild", dieselctl("verify", self.dataset, check=1).stdout)
        dieselctl("rebuild", self.dataset)
        self.sound()

    def killed(self, engine, *options):
        """Runs kill -9 at random moments: the dataset has the version before or after, and the same command completes it."""
        dieselctl("pack", *options, self.source, self.dataset)
        old = content(self.dataset)
        make_source(self.source, 400, 2)
        generator = random.Random(3)
        n_killed = 0
        span = 0.2
        for i in range(300):
            if n_killed == 12:
                break
            process = subprocess.Popen([BIN / "dieselctl", "pack", "--append", self.source, self.dataset], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, start_new_session=True)
            try:
                process.wait(generator.uniform(0, span))
                span = max(span * 0.8, 0.01)  # too late: the command was done
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                n_killed += process.wait() == -signal.SIGKILL
            now = content(self.dataset)
            self.assertTrue(now == old or len(now[0]) == 400, f"{engine}: {len(now[0])} samples")
            dieselctl("verify", self.dataset)
            if now != old:  # and return to the old version
                dieselctl("rm", self.dataset, *(n for n in now[0] if n not in old[0]))
                for path in self.source.rglob("*.bin"):
                    os.utime(path, (i + 1, i + 1))
                old = content(self.dataset)
        self.assertEqual(n_killed, 12, "seldom killed")
        dieselctl("pack", "--append", self.source, self.dataset)
        self.assertEqual(len(content(self.dataset)[0]), 400)
        self.sound()

    def test_a_killed_writer_loses_nothing_with_redis(self):
        self.killed("redis", "--meta", self.server.url("team/ds"))

    def test_a_killed_writer_loses_nothing_with_sqlite(self):
        self.killed("sqlite")

    def test_a_server_killed_while_packing_loses_nothing_that_was_told(self):
        """With a log of all writes the server comes back with them. The writer waits for it, or the next one continues."""
        self.server.stop()
        self.server.options = ("--appendonly", "yes", "--appendfsync", "always")
        self.server.start()
        self.pack()
        make_source(self.source, 3000, 2)
        for delay in (0.02, 0.05, 0.1, 0.2, 0.3):
            process = subprocess.Popen([BIN / "dieselctl", "pack", "--append", self.source, self.dataset], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.PIPE, text=True, start_new_session=True)
            time.sleep(delay)
            self.server.stop()
            self.server.start()
            _, told = process.communicate(timeout=300)
            if process.returncode:
                self.assertEqual(len(told.splitlines()), 1, told)
            dieselctl("verify", self.dataset)
        dieselctl("pack", "--append", self.source, self.dataset)
        self.assertEqual(len(content(self.dataset)[0]), 3000)
        self.sound()


if __name__ == "__main__":
    main()
