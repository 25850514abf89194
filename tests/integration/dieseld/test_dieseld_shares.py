# SPDX-License-Identifier: Apache-2.0
"""Tests the shares of storage bandwidth: among users with and without assigned shares, and of prefetch next to checkpoints."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

from dieseld_support import BIN, CTL, MIB, SCRATCH, Case, free_port, main, make_source, pack, probe_command
from common.commands import needs
from common.mirror import Mirror
from common.processes import end
from common.users import ALICE, MALLORY, Other, become, run_as, user_probe
from common.waiting import wait_until
from common.wire_client import Client, Refused

N_SESSIONS, N_DATASETS, N_SAMPLES, SAMPLE = 50, 3, 1024, 256 << 10
DAEMON = ("--tune", "off", "--batches", "3", "--user-share", "95")
TRAINER = """
import os, sys, time
import diesel_loader.numpy as diesel, diesel_loader
path, socket, checkpoint, control = sys.argv[1:]
loader = diesel.DataLoader(diesel_loader.Dataset(path, socket=socket), batch_size=16, order=diesel.Order(window_chunks=1), shuffle=True)
while True:
    for batch in loader:
        time.sleep(0.01)
        if os.path.exists(control):
            with open(checkpoint, "wb") as f:
                f.write(bytes(24 << 20))
"""

TELLS = """
import itertools, sys, time
import diesel_loader.numpy as diesel, diesel_loader
from diesel_loader import session
path, socket, control = sys.argv[1:]
loader = diesel.DataLoader(diesel_loader.Dataset(path, socket=socket), batch_size=16, order=diesel.Order(window_chunks=1), shuffle=True)
begun, before = 0, None
while True:
    for batch in loader:
        time.sleep(0.01)
        try:
            with open(control) as file:
                told = storage, writing = [int(word) for word in file.read().split()]
        except FileNotFoundError:
            continue
        if told != before:
            begun, before = begun + writing, told
            session.report_checkpoints({"n_begun": begun, "writing": writing, "storage": storage})
"""


def counts_writes(folder):
    """Returns whether the kernel counts writes there."""
    def written():
        with open("/proc/self/io", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("write_bytes"))
    before = written()
    with tempfile.TemporaryFile(dir=folder) as f:
        f.write(bytes(MIB))
        f.flush()
    return written() >= before + MIB


class Shares(Case):
    def start(self, command, uid=0):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   preexec_fn=(lambda: become(uid)) if uid else None)
        self.addCleanup(end, process)
        return process

    def jobs(self, daemon):
        done = subprocess.run([CTL, "status", "--json", "--socket", daemon.socket], capture_output=True, text=True, timeout=60, check=True)
        return json.loads(done.stdout)["jobs"]

    def read_bytes(self, daemon, uid):
        return sum(job["read_bytes"] for job in self.jobs(daemon) if job["uid"] == uid)

    def mirror(self, path):
        """Mounts the folder on slow storage."""
        slow = Mirror(path, 120)
        self.addCleanup(slow.close)
        return slow.mount

    def share_of(self, daemon, place):
        """Returns the share of the user with the single job in all bytes read while both users need more than they get."""
        others = [self.start(probe_command(daemon, f"{place}/{i % N_DATASETS}", "--batch", 1, "--window", 1, "--epochs", 1000, "--seed", i,
                                           program=user_probe()), MALLORY) for i in range(N_SESSIONS)]
        wait_until("fifty sessions", lambda: len(self.jobs(daemon)) == N_SESSIONS)
        own = self.start(probe_command(daemon, f"{place}/own", "--batch", 1, "--window", 1, "--epochs", 1000, program=user_probe()), ALICE)
        wait_until("the single job reads", lambda: self.read_bytes(daemon, ALICE) > 0)
        alice, mallory = self.read_bytes(daemon, ALICE), self.read_bytes(daemon, MALLORY)
        wait_until("enough is read", lambda: self.read_bytes(daemon, ALICE) + self.read_bytes(daemon, MALLORY) > alice + mallory + 160 * MIB, 240)
        alice, mallory = self.read_bytes(daemon, ALICE) - alice, self.read_bytes(daemon, MALLORY) - mallory
        self.assertTrue(all(process.poll() is None for process in (*others, own)))
        return alice / (alice + mallory)

    def datasets(self):
        """Makes more data than the cache has space for, so that reading never ends. All samples are one file."""
        place = tempfile.mkdtemp(dir=SCRATCH)
        os.chmod(place, 0o755)
        source = make_source("shares", 1, lambda rng: SAMPLE)
        for i in range(1, N_SAMPLES):
            os.link(f"{source}/class0/000000.bin", f"{source}/class0/{i:06d}.bin")
        for name in [*range(N_DATASETS), "own"]:
            subprocess.run([CTL, "pack", source, f"{place}/{name}", "--chunk-size", "4M"], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
        shutil.rmtree(source)
        self.addCleanup(shutil.rmtree, place)
        return place

    def test_fifty_sessions_leave_one_its_share(self):
        place = self.mirror(self.datasets())
        self.assertGreater(self.share_of(self.daemon(*DAEMON, cache="512M"), place), 0.3)  # three readers, one other: a quarter without turns

    def test_fifty_sessions_leave_one_its_share_under_a_limit(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        daemon = self.daemon(*DAEMON, "--read-limit", "64M", cache="512M")
        self.assertGreater(self.share_of(daemon, self.datasets()), 0.35)

    def test_reading_ahead_gives_way_to_a_checkpoint(self):
        if not counts_writes(SCRATCH):
            self.skipTest(f"the kernel does not count what is written to {SCRATCH}")
        dataset = pack(make_source("ahead", 1024, lambda rng: 65536), "ahead", chunk="4M")
        daemon, control = self.daemon(cache="32M"), os.path.join(SCRATCH, "writes")
        self.start([sys.executable, "-c", TRAINER, dataset, daemon.socket, os.path.join(SCRATCH, "checkpoint"), control])
        if os.geteuid() == 0:
            self.start(probe_command(daemon, dataset, "--batch", 16, "--window", 1, "--epochs", 100000, "--pause-us", 10000, program=user_probe()),
                       ALICE)
        wait_until("the jobs read", lambda: any(job["read_bytes"] > 40 * MIB and job["uid"] == os.geteuid() for job in self.jobs(daemon)))
        self.assertEqual([job["held"] for job in self.jobs(daemon)], [None] * len(self.jobs(daemon)))
        with open(control, "w", encoding="ascii"):
            pass

        def writer():
            return next(job for job in self.jobs(daemon) if job["uid"] == os.geteuid())
        wait_until("reading ahead is held back", lambda: (writer()["held"] or {}).get("now"))
        n = writer()["batches"]
        wait_until("batches of the waiting job", lambda: writer()["batches"] > n + 10)
        wait_until("it is for a bounded time, though the job writes on", lambda: not writer()["held"]["now"])
        self.assertEqual(writer()["held"]["writer"], writer()["id"])
        why = subprocess.run([CTL, "why", "--socket", daemon.socket], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertRegex(why, r"prefetch (was|is) held back \d+ times?, .* in total, while job \d+ wrote a checkpoint to the same file system")
        for job in self.jobs(daemon):
            if job["uid"] != os.geteuid():
                self.assertIsNone(job["held"], "another user's")

    def test_reading_ahead_gives_way_to_a_checkpoint_that_another_process_writes(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        storage = os.stat(dataset := pack(make_source("ahead", 1024, lambda rng: 65536), "told", chunk="4M")).st_dev
        daemon, control = self.daemon(cache="32M"), os.path.join(SCRATCH, "tells")
        self.start([sys.executable, "-c", TELLS, dataset, daemon.socket, control])
        self.start(probe_command(daemon, dataset, "--batch", 16, "--window", 1, "--epochs", 100000, "--pause-us", 10000, program=user_probe()), ALICE)

        def held(uid=0):
            return next(job["held"] for job in self.jobs(daemon) if job["uid"] == uid)

        def tell(storage, writing):
            with open(control + "~", "w", encoding="ascii") as file:
                file.write(f"{storage} {writing}")
            os.rename(control + "~", control)
        wait_until("the jobs read", lambda: len(self.jobs(daemon)) == 2 and all(job["read_bytes"] > 40 * MIB for job in self.jobs(daemon)))
        tell(storage + 1, 1)   # elsewhere
        wait_until("it is known", lambda: any((job["checkpoints"] or {}).get("writing") for job in self.jobs(daemon)))
        self.assertIsNone(held())
        tell(storage, 1)
        wait_until("reading ahead is held back", lambda: (held() or {}).get("now"))
        tell(storage, 0)
        wait_until("reading ahead goes on when it is written", lambda: not held()["now"])
        self.assertIsNone(held(ALICE), "another user's")


BOB, PHYSICS = 12346, 12350


class Quotas(Case):
    """Tests --cache-quota: the memory that two users hold, and how much of it others can take."""
    made = []

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")

    def start(self, daemon, uid, path, *options):
        process = subprocess.Popen(probe_command(daemon, path, "--batch", 16, "--window", 1, *options, program=user_probe()),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: become(uid))
        self.addCleanup(end, process)
        return process

    def datasets(self):
        """Makes datasets of 48 MiB and twice 64 MiB."""
        if not self.made:
            self.made.extend(pack(make_source(f"quota{i}", 1024 if i else 768, lambda rng: 65536, seed=2 + i), f"quota{i}")
                             for i in range(3))
        return self.made[0], self.made[1:]

    @staticmethod
    def used(status, name):
        return next(q["used_bytes"] for q in status["quotas"] if q["name"] == name)

    @staticmethod
    def cache_bytes(status, uid):
        return next((u["cache_bytes"] for u in status["users"] if u["uid"] == uid), 0)

    @staticmethod
    def cached(status, path):
        return next(((d["cached_chunks"], d["chunks"]) for d in status["datasets"] if d["path"] == path), (0, 1))

    def test_others_give_way_and_take_nothing(self):
        own, many = self.datasets()
        metrics = f"127.0.0.1:{free_port()}"
        daemon = self.daemon("--tune", "off", "--batches", "3", "--cache-quota", f"{ALICE}=50%", "--metrics", metrics, cache="112M")
        others = [self.start(daemon, uid, path, "--epochs", 100000) for uid in (MALLORY, BOB) for path in many]
        daemon.wait_for("the cache is full", lambda s: self.used(s, "others") > 96 * MIB)
        alice = self.start(daemon, ALICE, own, "--epochs", 100000, "--pause-us", 1000)
        status = daemon.wait_for("all of hers is in memory", lambda s: len(set(self.cached(s, own))) == 1)
        self.assertEqual([q["name"] for q in status["quotas"]], ["others", str(ALICE)])
        self.assertEqual([q["bytes"] for q in status["quotas"]], [56 * MIB, 56 * MIB])
        self.assertGreater(self.used(status, str(ALICE)), 48 * MIB)

        def jobs(status, uid):
            return [job for job in status["jobs"] if job["uid"] == uid]
        read = sum(job["read_bytes"] for job in status["jobs"] if job["uid"] != ALICE)
        before, batches = (jobs(status, ALICE)[0][name] for name in ("read_bytes", "batches"))
        self.assertEqual(len(self.attack(daemon, many[0])), 10)
        status = daemon.wait_for("the others read on, and she goes on", lambda s: (
            sum(job["read_bytes"] for job in s["jobs"] if job["uid"] != ALICE) > read + 400 * MIB
            and jobs(s, ALICE)[0]["batches"] > batches + 64 and self.cache_bytes(s, ALICE) > 48 * MIB))
        self.assertEqual(jobs(status, ALICE)[0]["read_bytes"], before)
        self.assertEqual(len(set(self.cached(status, own))), 1)
        self.assertEqual({u["uid"] for u in status["users"]}, {ALICE, BOB, MALLORY})
        self.assertTrue(all(process.poll() is None for process in (*others, alice)))
        with urllib.request.urlopen(f"http://{metrics}/metrics", timeout=60) as answer:
            figures = dict(re.findall(r'(?m)^diesel_cache_quota_(\w+\{quota="\w+"\}) (\d+)$', answer.read().decode()))
        self.assertEqual({name for name in figures if name.startswith("bytes")}, {f'bytes{{quota="{name}"}}' for name in ("others", ALICE)})
        self.assertEqual(int(figures[f'bytes{{quota="{ALICE}"}}']), 56 * MIB)
        self.assertGreater(int(figures[f'used_bytes{{quota="{ALICE}"}}']), 48 * MIB)
        # She sees only her own row.
        told = json.loads(subprocess.run([CTL, "status", "--json", "--socket", daemon.socket], capture_output=True, text=True, timeout=60,
                                         check=True, user=ALICE, group=ALICE, extra_groups=[]).stdout)
        self.assertEqual([q["name"] for q in told["quotas"]], [str(ALICE)])
        self.assertEqual([u["uid"] for u in told["users"]], [ALICE])
        text = subprocess.run([CTL, "status", "--socket", daemon.socket], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertRegex(text, rf"quotas +others of the cache 50 %, 56 MiB: .* used\n +{ALICE} of the cache 50 %, 56 MiB: .* used\n")
        self.assertRegex(text, rf"uid {ALICE}: 1 job with .* of the cache and up to [0-9]+ workers?; ")

    def attack(self, daemon, path):
        """Makes Mallory's requests, which fail: space for a snapshot, and for batches."""
        sparse = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "sparse")
        os.makedirs(os.path.join(sparse, "chunks"))
        with open(os.path.join(sparse, "snapshot"), "wb") as f:
            f.truncate(50 << 20)
        os.chmod(os.path.dirname(sparse), 0o755)

        def ask():
            told = []
            for _ in range(5):
                client = Client(daemon.socket)
                try:
                    client.open_dataset(sparse)
                except Refused as error:
                    told.append(error.text)
                client.open_dataset(path)
                try:
                    client.open_session(batch=256, window=1)
                except Refused as error:
                    told.append(error.text)
                client.close()
            return told
        return run_as(ask, MALLORY)

    def test_what_is_refused_costs_nobody_anything(self):
        own, many = self.datasets()
        daemon = self.daemon("--tune", "off", "--batches", "3", "--user-share", "30", cache="128M")
        for path in (own, many[0]):
            self.start(daemon, ALICE, path, "--epochs", 100000, "--pause-us", 1000)
        before = daemon.wait_for("all is in memory", lambda s: all(len(set(self.cached(s, path))) == 1 for path in (own, many[0])))
        told = self.attack(daemon, own)
        self.assertEqual(len(told), 10)
        for text in told:
            self.assertIn("--user-share", text)
        after = daemon.status()
        self.assertEqual(after["cache"]["evictions"], before["cache"]["evictions"])

    def test_what_sessions_need_is_taken_from_their_user(self):
        """Users without a row share the rest, however many they are; a user with a row may use all of it."""
        path = self.datasets()[1][0]
        daemon = self.daemon("--batches", "3", "--cache-quota", f"{ALICE}=80%", cache="160M")

        def sessions(channel):
            kept, told = [], ""
            for opened in range(40):
                client = Client(daemon.socket)
                try:
                    client.open_dataset(path)
                    kept += [client, *client.open_session(batch=16, window=1)]
                except Refused as error:
                    told = error.text
                    break
            channel.send([opened, told])
            channel.receive()
        first = Other(sessions, MALLORY)
        opened, told = first.receive()
        self.assertGreater(opened, 0)
        self.assertIn("cache-quota leaves them 31 MiB", told)
        second = Other(sessions, BOB)
        opened, told = second.receive()
        self.assertEqual(opened, 0)
        self.assertIn("cache-quota", told)
        alice = Other(sessions, ALICE)
        opened, told = alice.receive()
        self.assertGreater(opened, 3)
        self.assertIn(f"charged to {ALICE}, whose quota is 124 MiB", told)
        for other in (first, second, alice):
            other.send("close them")
            other.finish()

    def test_names_that_are_known_later_get_their_quota(self):
        """A directory service starts after dieseld, which serves, and applies the row when the name is known."""
        users = os.path.join(SCRATCH, "passwd")
        shutil.copy("/etc/passwd", users)
        options = ["--tune", "off", "--cache-quota", f"late-user=40%, {BOB}=10%", "--admin-user", "late-admin"]
        prefix = ["unshare", "-m", "sh", "-c", f'mount --bind {users} /etc/passwd && exec "$@"', "sh"]
        daemon = self.daemon(*options, prefix=lambda command: prefix + command)
        self.assertIn("does not know late-user (cache-quota), late-admin (admin-user), so the settings for these names", daemon.output())

        def names(uid):
            def ask():
                with contextlib.closing(Client(daemon.socket)) as client:
                    return [q["name"] for q in client.status()["quotas"]]
            return run_as(ask, uid) if uid else ask()
        self.assertEqual(names(ALICE), ["others"])
        self.assertEqual(names(BOB), [str(BOB)])
        self.assertEqual(names(0), ["others"])  # there is no administrator meanwhile
        check = subprocess.run(prefix + [os.path.join(BIN, "dieseld"), "--check-config", *options], capture_output=True, text=True)
        self.assertEqual(check.returncode, 2)
        self.assertIn('cache-quota: "late-user" is not a user of this machine', check.stderr)
        with open(users, "a", encoding="ascii") as f:
            f.write(f"late-user:x:{ALICE}:{ALICE}::/:/bin/false\nlate-admin:x:{BOB + 1}:{BOB + 1}::/:/bin/false\n")
        wait_until("the names", lambda: "all names in cache-quota and admin-user are known now" in daemon.output())
        self.assertEqual(names(ALICE), ["late-user"])
        self.assertEqual(names(BOB + 1), ["others", "late-user", str(BOB)])
        check = subprocess.run(prefix + [os.path.join(BIN, "dieseld"), "--check-config", *options], capture_output=True, text=True)
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_the_kernel_says_which_group_pays(self):
        """Only the kernel tells the group: neither an account that a client names nor a user namespace counts."""
        config = os.path.join(SCRATCH, "quotas.conf")

        def write(quotas):
            with open(config, "w", encoding="ascii") as f:
                f.write(f"[dieseld]\ncache-quota = {quotas}\n")
        write(f"@{PHYSICS}=40%, {ALICE}=10%")
        daemon = self.daemon("--config", config, "--tune", "off")

        def names(client):
            return [q["name"] for q in client.status()["quotas"]]

        def connect(channel):
            client = Client(daemon.socket)
            channel.send(names(client))
            channel.receive()
            return names(client)

        def as_bob(channel):
            os.setgroups([PHYSICS])
            os.setresgid(BOB, BOB, BOB)
            os.setresuid(BOB, BOB, BOB)
            os.environ["SLURM_JOB_ACCOUNT"] = "physics"
            return connect(channel)
        member, others = Other(as_bob, 0), [Other(connect, uid) for uid in (MALLORY, ALICE)]
        self.assertEqual(member.receive(), [f"@{PHYSICS}"])
        self.assertEqual([other.receive() for other in others], [["others"], [str(ALICE)]])
        self.assertEqual(run_as(lambda: names(Client(daemon.socket)), BOB), ["others", f"@{PHYSICS}"])  # both are his connections'
        self.assertEqual(run_as(lambda: names(Client(daemon.socket)), MALLORY, namespaces=True), ["others"])
        # Another list applies to connected users; one with a mistake changes nothing.
        write(f"{MALLORY - 1}=5%, {BOB}=30%")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("the reload", lambda s: [q["name"] for q in s["quotas"]] == ["others", str(MALLORY - 1), str(BOB)])
        write(f"{BOB}=101%")
        daemon.process.send_signal(signal.SIGHUP)
        wait_until("the refusal", lambda: "101%" in daemon.output())
        self.assertRegex(daemon.output(), rf"quotas.conf:2:\d+: cache-quota: .*101%.*: must be from 1% to 100%")
        member.send("ask again")
        self.assertEqual(member.finish(), [str(BOB)])
        for other in others:
            other.send("ask again")
            self.assertEqual(other.finish(), ["others"])
    def group_of_one_core(self):
        """Makes a control group of the operator with one of the machine's cores."""
        first, second = "/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"
        group = os.path.join(first if os.path.isdir(first) else second, f"diesel-test-{os.getpid()}")
        try:
            os.mkdir(group)
            self.addCleanup(lambda: wait_until("the group is empty", lambda: remove_group(group)))
            if os.path.isdir(first):
                shutil.copyfile(f"{first}/cpuset.mems", f"{group}/cpuset.mems")
            with open(f"{group}/cpuset.cpus", "w", encoding="ascii") as f:
                f.write(str(min(os.sched_getaffinity(0))))
        except OSError as error:
            self.skipTest(f"no control group of CPUs can be made here: {error}")
        return group

    def test_workers_use_no_cores_of_others(self):
        """No worker works for one user on cores of another's job, unless the number of workers is set."""
        n, path = len(os.sched_getaffinity(0)), self.datasets()[0]
        if n < 2:
            self.skipTest("needs two cores")
        group, daemon = self.group_of_one_core(), self.daemon()

        def workers(status):
            return {user["uid"]: user["workers"] for user in status["users"]}
        self.start(daemon, BOB, path, "--epochs", 100000, "--pause-us", 1000)
        daemon.wait_for("a job", lambda s: workers(s) == {BOB: n})
        with open(f"{group}/cgroup.procs", "w", encoding="ascii") as f:
            f.write(str(os.getpid()))
        try:
            job = self.start(daemon, ALICE, path, "--epochs", 100000, "--pause-us", 1000)
        finally:
            with open(f"{os.path.dirname(group)}/cgroup.procs", "w", encoding="ascii") as f:
                f.write(str(os.getpid()))
        daemon.wait_for("her core is hers", lambda s: workers(s) == {BOB: n - 1, ALICE: n})
        subprocess.run([CTL, "set", "--limit", f"workers-max={n}", "--socket", daemon.socket], stdout=subprocess.DEVNULL, check=True)
        daemon.wait_for("a number counts as it is", lambda s: workers(s) == {BOB: n, ALICE: n})
        subprocess.run([CTL, "set", "--unset", "workers-max", "--socket", daemon.socket], stdout=subprocess.DEVNULL, check=True)
        daemon.wait_for("the default again", lambda s: workers(s) == {BOB: n - 1, ALICE: n})
        job.kill()
        job.wait()
        daemon.wait_for("she ends", lambda s: workers(s) == {BOB: n})


def remove_group(group):
    try:
        os.rmdir(group)
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


if __name__ == "__main__":
    needs("numpy")
    main()
