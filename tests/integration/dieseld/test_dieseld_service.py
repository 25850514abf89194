# SPDX-License-Identifier: Apache-2.0
"""Tests dieseld as a service: metrics, reloads of its configuration, the service manager."""
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from dieseld_support import BIN, CTL, MIB, SCRATCH, Case, dataset, finish_probe, free_port, main, probe, start_probe


ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")


def config(text):
    with tempfile.NamedTemporaryFile("w", dir=SCRATCH, suffix=".conf", delete=False) as file:
        file.write(text)
    return file.name


class Metrics(Case):
    def setUp(self):
        self.address = f"127.0.0.1:{free_port()}"

    def fetch(self):
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=60) as answer:
            self.assertIn("version=0.0.4", answer.headers["Content-Type"])
            return answer.read().decode()

    @staticmethod
    def value(text, name):
        return float(re.search(rf"^{re.escape(name)} (\S+)$", text, re.M).group(1))

    def test_figures_are_those_of_the_work_done(self):
        daemon = self.daemon("--metrics", self.address)
        before = self.fetch()
        path, source = dataset("packed")
        done = probe(daemon, path, "--source", source, "--batch", 64)
        text = self.fetch()
        self.assertEqual(self.value(before, "diesel_batches_total"), 0)
        n_batches = -(-done["samples"] // 64)  # the last ones are ready batches of the next epoch
        self.assertIn(self.value(text, "diesel_batches_total"), range(n_batches, n_batches + 9))
        status = daemon.status()
        self.assertEqual(self.value(text, "diesel_chunk_reads_total"), status["cache"]["reads"])
        self.assertEqual(self.value(text, 'diesel_cache_bytes{kind="chunks"}'), status["cache"]["segment_bytes"])
        self.assertEqual(self.value(text, "diesel_cache_limit_bytes"), 256 * MIB)
        self.assertEqual(self.value(text, "diesel_cache_borrowed_bytes"), status["cache"]["borrowed_bytes"])
        self.assertGreater(self.value(text, "process_resident_memory_bytes"), MIB)

    def test_the_start_is_one_moment(self):
        """The value is not the sum of two clocks, one of which has whole seconds: Prometheus would see a restart in each scrape."""
        before = time.time()
        self.daemon("--metrics", self.address)
        after = time.time()
        said = set()
        for _ in range(3):
            said.add(self.value(self.fetch(), "process_start_time_seconds"))
            time.sleep(0.3)
        start, = said
        self.assertTrue(before - 0.1 <= start <= after + 0.1, (before, start, after))

    def test_promtool_finds_nothing_to_say(self):
        if not shutil.which("promtool"):
            self.skipTest("no promtool")
        self.daemon("--metrics", self.address)
        done = subprocess.run(["promtool", "check", "metrics"], input=self.fetch(), text=True, capture_output=True,
                              check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_prometheus_scrapes_the_daemon(self):
        if not shutil.which("prometheus"):
            self.skipTest("no prometheus")
        self.daemon("--metrics", self.address)
        port = free_port()
        settings = config(f"global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: diesel\n"
                          f"  static_configs: [{{targets: ['{self.address}']}}]\n")
        folder = tempfile.mkdtemp(dir=SCRATCH)
        server = subprocess.Popen(["prometheus", f"--config.file={settings}", f"--storage.tsdb.path={folder}",
                                   f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        for _ in range(600):
            try:
                url = f"http://127.0.0.1:{port}/api/v1/query?query=diesel_cache_limit_bytes"
                with urllib.request.urlopen(url, timeout=60) as answer:
                    found = json.load(answer)["data"]["result"]
                if found:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        else:
            self.fail("Prometheus never had the figure")
        self.assertEqual(float(found[0]["value"][1]), 256 * MIB)

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def test_probes_see_whether_the_daemon_works(self):
        daemon = self.daemon("--metrics", self.address)
        self.assertEqual((self.ask("/healthz"), self.ask("/readyz")), ((200, "ok\n"), (200, "ok\n")))
        # A pod with write access to the folder can do this: clients then reach another server, or none.
        os.rename(daemon.socket, daemon.socket + ".away")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
            for someone in (False, True):
                if someone:
                    other.bind(daemon.socket)
                status, said = self.ask("/readyz")
                self.assertEqual((status, said.count("\n")), (503, 1))
                self.assertIn(daemon.socket, said)
                self.assertEqual(self.ask("/healthz"), (200, "ok\n"))
        os.rename(daemon.socket + ".away", daemon.socket)
        self.assertEqual(self.ask("/readyz"), (200, "ok\n"))

    def test_metrics_have_settings_and_history(self):
        daemon = self.daemon("--metrics", self.address, "--history", os.path.join(SCRATCH, "no folder", "history.db"))
        self.assertEqual(self.value(self.fetch(), "diesel_history_writable"), 0)
        daemon.stop()
        daemon = self.daemon("--metrics", self.address, "--history", tempfile.mktemp(dir=SCRATCH))
        text = self.fetch()
        self.assertEqual(self.value(text, "diesel_history_writable"), 1)
        self.assertEqual(set(re.findall(r"(?m)^diesel_setting_overridden\{.*\} (\d)$", text)), {"0"})
        for setting, more in (("workers-max", ("--limit", "workers-max=1")), ("prefetch", ("prefetch=3",))):
            subprocess.run([CTL, "set", "--socket", daemon.socket, *more], check=True, capture_output=True, timeout=60)
            self.assertEqual(self.value(self.fetch(), f'diesel_setting_overridden{{setting="{setting}"}}'), 1)
        subprocess.run([CTL, "set", "--socket", daemon.socket, "--limit", "workers-max=auto"], check=True, capture_output=True, timeout=60)
        self.assertEqual(self.value(self.fetch(), 'diesel_setting_overridden{setting="workers-max"}'), 0)
        daemon.stop()
        self.daemon("--metrics", self.address, "--history", "off")
        self.assertNotIn("\ndiesel_history", self.fetch())

    def test_only_get_of_metrics_is_answered(self):
        self.daemon("--metrics", self.address)
        for method, path, status in (("GET", "/", 404), ("POST", "/metrics", 405), ("HEAD", "/metrics", 200)):
            connection = http.client.HTTPConnection(self.address, timeout=60)
            connection.request(method, path)
            self.assertEqual(connection.getresponse().status, status)
            connection.close()

    def test_clients_that_say_nothing_do_not_hold_up_serving(self):
        daemon = self.daemon("--metrics", self.address)
        host, port = self.address.split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(30)]
        self.addCleanup(lambda: [s.close() for s in silent])
        path, source = dataset("packed")
        self.assertEqual(probe(daemon, path, "--source", source)["samples"], 12288)

    def test_a_port_that_is_taken_costs_only_the_metrics(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            daemon = self.daemon("--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
            self.assertIn("Address already in use", daemon.output())
            path, source = dataset("packed")
            self.assertEqual(probe(daemon, path, "--source", source)["samples"], 12288)


class Accounting(Case):
    """Tests accounting per user and job, by the environment that Slurm and Kubernetes give a job, also after its end."""

    def setUp(self):
        self.address = f"127.0.0.1:{free_port()}"
        self.path, self.source = dataset("packed")

    def run_job(self, daemon, **variables):
        job = self.start_probe(daemon, self.path, "--batch", 64, env={**os.environ, **variables})
        done, _ = finish_probe(job)
        return done["samples"], job.pid

    def fetch(self):
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=60) as answer:
            return answer.read().decode()

    def wait(self, daemon, word, times):
        deadline = time.monotonic() + 60
        while daemon.output().count(word) < times:
            self.assertLess(time.monotonic(), deadline, daemon.output())
            time.sleep(0.02)
        return [line for line in daemon.output().splitlines() if word in line]

    def test_a_job_is_counted_for_its_account_after_its_end(self):
        daemon = self.daemon("--metrics", self.address)
        slurm = {"SLURM_JOB_ID": "4711", "SLURM_JOB_ACCOUNT": "physics"}
        n, _ = self.run_job(daemon, **slurm)
        _, pid = self.run_job(daemon, **slurm)
        self.run_job(daemon, KUBERNETES_SERVICE_HOST="10.0.0.1", HOSTNAME="train-0", POD_NAMESPACE="team-a")
        begins, ends = self.wait(daemon, "job begins:", 3), self.wait(daemon, "job ends:", 3)
        self.assertRegex(begins[1], rf"job begins: job=2 uid={os.getuid()} client_pid={pid} rank=0 world=1 program=daemon_probe "
                                    "slurm_job=4711 account=physics$")
        self.assertRegex(ends[1], rf" slurm_job=4711 account=physics seconds=[\d.]+ samples=\d+ bytes=\d+ read_bytes=\d+ cpu_seconds=")
        self.assertRegex(ends[2], " pod=train-0 namespace=team-a ")
        text = self.fetch()
        self.assertNotIn("diesel_job_info{", text)
        labels = f'uid="{os.getuid()}",account="physics",job_namespace=""'
        self.assertEqual(Metrics.value(text, f"diesel_user_jobs_total{{{labels}}}"), 2)
        self.assertGreaterEqual(Metrics.value(text, f"diesel_user_samples_total{{{labels}}}"), 2 * n)
        self.assertGreater(Metrics.value(text, f"diesel_user_cpu_seconds_total{{{labels}}}"), 0)
        self.assertEqual(Metrics.value(text, f'diesel_user_jobs_total{{uid="{os.getuid()}",account="",job_namespace="team-a"}}'), 1)
        self.assertEqual(Metrics.value(text, f"diesel_user_cache_bytes{{{labels}}}"), 0)
        self.assertEqual(Metrics.value(text, f"diesel_user_node_bytes_total{{{labels}}}"), 0)
        self.assertRegex(ends[1], r" node_bytes=0 cache_gib_seconds=[\d.]+ ")

    def test_a_running_job_is_counted(self):
        daemon = self.daemon("--metrics", self.address)
        self.start_probe(daemon, self.path, "--batch", 64, "--pause-us", 2000, "--epochs", 100000,
                         env={**os.environ, "SLURM_JOB_ID": "12", "SLURM_JOB_ACCOUNT": 'a"} 1\nb', "POD_NAME": "p" * 300})
        self.wait(daemon, "job begins:", 1)
        labels = f'uid="{os.getuid()}",account="a___1_b",job_namespace=""'
        deadline = time.monotonic() + 60
        while Metrics.value(self.fetch(), f"diesel_user_cache_byte_seconds_total{{{labels}}}") < 40 * MIB:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.assertGreater(Metrics.value(self.fetch(), f"diesel_user_cache_bytes{{{labels}}}"), 40 * MIB)
        info = re.search(r"(?m)^diesel_job_origin_info\{(.*)\} 1$", self.fetch())
        self.assertEqual(dict(re.findall(r'(\w+)="([^"]*)"', info[1])),
                         {"training_job": "1", "rank": "0", "slurm_job": "12", "account": "a___1_b", "job_pod": "p" * 255, "pod_uid": "",
                          "job_namespace": ""})

    def test_names_can_be_hidden(self):
        """No user of the node learns others' program names from the port; figures of jobs stay. A reload changes it."""
        config = os.path.join(tempfile.mkdtemp(dir=SCRATCH), "names.conf")
        with open(config, "w") as file:
            file.write("[dieseld]\nmetrics-names = hidden\ncache-quota = 4242=5%\n")
        daemon = self.daemon("--metrics", self.address, "--config", config)
        self.start_probe(daemon, self.path, "--batch", 64, "--pause-us", 2000, "--epochs", 100000,
                         env={**os.environ, "SLURM_JOB_ID": "4711", "SLURM_JOB_ACCOUNT": "physics", "POD_NAME": "train-0"})
        self.wait(daemon, "job begins:", 1)
        text = self.fetch()
        self.assertIn('diesel_job_info{training_job="1",rank="0",world="1",uid="",program=""} 1', text)
        self.assertIn('diesel_job_samples_total{training_job="1",rank="0"}', text)
        for name in ("physics", "train-0", "4711", "4242", "daemon_probe", "diesel_user_", "diesel_job_origin_info", f'uid="{os.getuid()}"'):
            self.assertNotIn(name, text)
        with open(config, "w") as file:
            file.write("[dieseld]\nmetrics-names = shown\n")
        daemon.process.send_signal(signal.SIGHUP)
        self.wait(daemon, "configuration read again", 1)
        self.assertIn('program="daemon_probe"', self.fetch())
        self.assertIn('account="physics"', self.fetch())

    @unittest.skipUnless(os.geteuid() == 0, "takes root, for a journal of its own")
    def test_the_journal_gets_fields(self):
        folder = tempfile.mkdtemp(dir=SCRATCH)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
            journal.bind(os.path.join(folder, "socket"))
            journal.settimeout(60)
            shell = ('mount -t tmpfs none /run && mkdir -p /run/systemd/journal && mount --bind "$0" /run/systemd/journal && '
                     'export JOURNAL_STREAM=1:1 && exec "$@"')
            daemon = self.daemon(prefix=lambda command: ["unshare", "-m", "sh", "-c", shell, folder, *command])
            self.run_job(daemon, SLURM_JOB_ID="4711")
            said = [dict(line.split("=", 1) for line in journal.recv(65536).decode().splitlines()) for _ in range(2)]
        self.assertEqual([fields["DIESEL_EVENT"] for fields in said], ["job_begin", "job_end"])
        for fields in said:
            self.assertEqual((fields["DIESEL_SLURM_JOB"], fields["DIESEL_JOB"], fields["PRIORITY"], fields["SYSLOG_IDENTIFIER"]),
                             ("4711", "1", "6", "dieseld"))
            self.assertIn("slurm_job=4711", fields["MESSAGE"])
        self.assertNotIn("job begins", daemon.output())  # once, not twice


class PodProfile(Case):
    """Tests the seccomp profile of the pod, as the kernel applies it, on a daemon that serves a job."""
    # Loads a filter and executes the command, which has only the calls of the profile.
    LOAD = """
import ctypes, json, os, re, struct, sys
profile = json.load(open(sys.argv[1]))
header = open("/usr/include/x86_64-linux-gnu/asm/unistd_64.h").read()
numbers = {name: int(number) for name, number in re.findall(r"#define __NR_(\\w+) (\\d+)", header)}
code = [(0x20, 0, 0, 0)]
for rule in profile["syscalls"]:
    verdict = 0x7fff0000 if rule["action"] == "SCMP_ACT_ALLOW" else 0x50000 | rule["errnoRet"]
    for name in rule["names"]:
        if name in numbers:
            code += [(0x15, 0, 1, numbers[name]), (0x06, 0, 0, verdict)]
code.append((0x06, 0, 0, 0x50000 | profile["defaultErrnoRet"]))
bytes_ = b"".join(struct.pack("<HBBI", *line) for line in code)
memory = ctypes.create_string_buffer(bytes_, len(bytes_))
class Program(ctypes.Structure):
    _fields_ = [("n", ctypes.c_ushort), ("code", ctypes.c_void_p)]
program = Program(len(code), ctypes.addressof(memory))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execv(sys.argv[2], sys.argv[2:])
"""
    PROFILE = os.path.join(ROOT, "packaging/kubernetes/components/seccomp/dieseld.json")

    @unittest.skipUnless(os.path.exists("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), "not x86-64")
    def test_it_serves_a_job(self):
        path, source = dataset("packed")
        said = {}
        # A search for leaks needs a debugger's calls, which a pod does not have.
        no_leaks = f"ASAN_OPTIONS={os.environ.get('ASAN_OPTIONS', '')}:detect_leaks=0"
        for name, prefix in (("without", lambda command: command),
                             ("with", lambda command: ["env", no_leaks, sys.executable, "-c", self.LOAD, self.PROFILE, *command])):
            address = f"127.0.0.1:{free_port()}"
            daemon = self.daemon("--metrics", address, prefix=prefix)
            self.assertEqual(probe(daemon, path, "--source", source, "--batch", 64)["samples"], 12288)
            with urllib.request.urlopen(f"http://{address}/readyz", timeout=60) as answer:
                self.assertEqual(answer.status, 200)
            job = self.start_probe(daemon, path, "--batch", 64, "--pause-us", 2000, "--epochs", 100000)
            status = daemon.wait_for("sensing", lambda status: status["tune"]["sensing"]["active"] or status["tune"]["sensing"]["why"])
            job.kill()
            # io_uring, its own filters, and BPF, or messages that they are missing: the same as without the profile.
            said[name] = [re.sub(r"\d+", "N", line.replace(daemon.socket, "SOCKET")) for line in daemon.output().splitlines()
                          if "job " not in line]
            said[name] += [status["tune"]["sensing"][key] for key in ("active", "why")]
            daemon.stop()
        self.assertEqual(said["with"], said["without"])

    def test_it_has_what_processes_of_the_daemon_may_call(self):
        with open(os.path.join(ROOT, "lib/sandbox.c")) as file:
            calls = set(re.findall(r"\bSYS_(\w+)", file.read()))
        with open(self.PROFILE) as file:
            names = {name for rule in json.load(file)["syscalls"] for name in rule["names"]}
        # The first two are for --assist, which pods do not have; no process may make the third call.
        self.assertEqual(calls - names, {"chroot", "setns", "ptrace"})
        self.assertFalse(names & {"mount", "umount2", "pivot_root", "unshare", "setns", "init_module", "kexec_load", "reboot", "keyctl", "userfaultfd"})


class Configuration(Case):
    def reload(self, daemon, text):
        with open(self.path, "w") as file:
            file.write(text)
        seen = len(daemon.output())
        daemon.process.send_signal(signal.SIGHUP)
        for _ in range(6000):
            if said := daemon.output()[seen:]:
                return said
            time.sleep(0.01)
        self.fail("a reload went unnoticed")

    def test_reload_changes_knobs_and_a_mistake_changes_nothing(self):
        self.path = config("[dieseld]\nprefetch = 2\nworkers = 1\n")
        address = f"127.0.0.1:{free_port()}"
        daemon = self.daemon("--config", self.path, "--metrics", address)

        def counted():
            with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
                text = answer.read().decode()
            names = ("last_reload_successful", 'reloads_total{outcome="taken"}', 'reloads_total{outcome="refused"}',
                     "last_reload_success_timestamp_seconds")
            return [Metrics.value(text, "diesel_config_" + name) for name in names]

        self.assertEqual(counted()[:3], [1, 1, 0])
        self.assertEqual(daemon.status()["knobs"]["prefetch_chunks"], 2)
        self.assertIn("read again", self.reload(daemon, "[dieseld]\nprefetch = 5\nworkers = 3\n"))
        knobs = daemon.status()["knobs"]
        self.assertEqual((knobs["prefetch_chunks"], knobs["workers"]), (5, 3))
        good = counted()
        self.assertEqual(good[:3], [1, 2, 0])
        said = self.reload(daemon, "[dieseld]\nprefetch = 7\nworkers = many\n")
        self.assertIn(f"{self.path}:3:11: workers", said)
        self.assertIn("stays as it was", said)
        self.assertEqual(daemon.status()["knobs"], knobs)
        self.assertEqual(counted(), [0, 2, 1, good[3]])
        os.unlink(self.path)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait_for("life", lambda status: status["knobs"] == knobs)

    def test_it_only_observes_until_it_is_told_to_serve(self):
        path, source = dataset("packed")
        self.path = config("[dieseld]\nobserve = yes\n")
        daemon = self.daemon("--config", self.path)
        refused = start_probe(daemon, path, "--source", source)
        _, said = refused.communicate()
        self.assertEqual((refused.returncode, said.count("\n")), (1, 1), said)
        self.assertIn("only observes this node", said)
        status = daemon.status()
        self.assertEqual((status["observes"], status["datasets"], status["cache"]["read_bytes"]), (True, [], 0))
        self.assertIn("read again", self.reload(daemon, "[dieseld]\n"))
        self.assertEqual(probe(daemon, path, "--source", source, "--batch", 64)["samples"], 12288)
        self.assertFalse(daemon.status()["observes"])

    def test_check_config_names_each_mistake(self):
        for text, status, word in (("[dieseld]\ncache = 2G\n", 0, "valid"), ("[dieseld]\ncahe = 2G\n", 2, ":2:1:"),
                                   ("[dieseld]\nmetrics = here\n", 2, ":2:11:"), ("[dieseld]\nx\n", 2, ":2:1:")):
            done = subprocess.run([os.path.join(BIN, "dieseld"), "--check-config", "--config", config(text)],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(word, done.stdout + done.stderr)

    def test_check_config_names_mistakes_of_a_cluster(self):
        key = os.path.join(SCRATCH, "cluster.key")
        with open(key, "w") as file:
            file.write("0123456789abcdef\n")
        os.chmod(key, 0o600)
        base = {"cluster": "redis://127.0.0.1:1", "cluster-listen": "10.0.0.1:7700", "cluster-key": key}
        for more, mode, word in (({}, 0o600, "valid"), ({}, 0o644, "Run: chmod 600 "), ({"cluster-key": key + ".none"}, 0o600, "No such file"),
                                 ({"cluster-listen": "10.0.0.1"}, 0o600, "numeric address with a port"),
                                 ({"cluster-listen": "0.0.0.0:7700"}, 0o600, "set --cluster-advertise"),
                                 ({"cluster-advertise": "here:1"}, 0o600, "--cluster-advertise here:1"),
                                 ({"cluster-name": "a b"}, 0o600, "--cluster-name"), ({"cluster": "redis://:x@"}, 0o600, "must name the server as HOST")):
            with self.subTest(word):
                os.chmod(key, mode)
                text = "[dieseld]\n" + "".join(f"{name} = {value}\n" for name, value in {**base, **more}.items())
                done = subprocess.run([os.path.join(BIN, "dieseld"), "--check-config", "--config", config(text)], capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.returncode, 0 if word == "valid" else 2, done.stderr)
                self.assertIn(word, done.stdout + done.stderr)
                self.assertEqual(done.stderr.count("\n"), 0 if word == "valid" else 1, done.stderr)


class WrongConfigurations(unittest.TestCase):
    """Each error is one line with the file, its line, and the fix. {here}: a folder with a file `file` and a folder `folder`."""

    SECTION = "[dieseld]\n"
    CLUSTER = SECTION + "cluster = redis://127.0.0.1:1\ncluster-listen = "
    # (file, line of the mistake, error, fix)
    WRONG = (
        ("cache = 4G\n", 1, "cache has no effect outside a section", "write [dieseld]"),
        ("cashe = 4G\n", 1, "cashe is outside a section, and is no setting", "write [dieseld] on a line above it, and write cache"),
        ("; mine\n\n[diesel]\n; x\n", 3, "found [diesel], but no [dieseld]", "write [dieseld]"),
        ("[diesel]\ncache = 4G\n", 2, "cache has no effect in [diesel]", "write [dieseld]"),
        ("[dieseld]\ncache = 4G\n[Dieseld]\nprefetch = 4\n", 4, "prefetch has no effect in [Dieseld]", "write [dieseld]"),
        ("[dieseld\ncache = 4G\n", 1, "a section must be [NAME]", "write [dieseld]"),
        ("[dieseld] cache = 4G\n", 1, "a section must be [NAME] on its own line", "write [dieseld]"),
        (SECTION + "cache 4G\n", 2, "expected [section] or name = value", "such as cache = 4G"),
        (SECTION + "= 4G\n", 2, "expected [section] or name = value", "such as cache = 4G"),
        (SECTION + "cache =\n", 2, "cache has no value", "write cache = 8G"),
        (SECTION + "cache = ; 4G\n", 2, "cache has no value", "write cache = 8G"),
        (SECTION + "cahce = 4G\n", 2, 'no setting "cahce"', "write cache"),
        (SECTION + "cluster_key = /k\n", 2, 'no setting "cluster_key"', "write cluster-key"),
        (SECTION + "frobnicate = 1\n", 2, 'no setting "frobnicate"', "remove it"),
        (SECTION + "verbose = yes\n", 2, 'no setting "verbose"', "pass --verbose on the command line"),
        (SECTION + "cache = 4G\ncache = 5G\n", 3, "cache is on line 2 already", "remove one of the two"),
        (SECTION + "no-io-uring = yes\n\nno-io-uring = no\n", 4, "no-io-uring is on line 2 already", "remove one of the two"),
        (SECTION + "assist = maybe\n", 2, "neither yes nor no", "write assist = no"),
        (SECTION + "cache = 4G # a lot\n", 2, "a comment after a value must begin with ;", "on its own line"),
        (SECTION + "cache = 4\0G\n", 2, "a NUL byte", "must be text"),
        (SECTION + "cache = lots\n", 2, "must be an amount of memory", "write cache = 8G"),
        (SECTION + "cache = 900T\n", 2, "more than this machine's memory", "write cache = "),
        (SECTION + "cache-max = 900T\n", 2, "exceeds the", "of memory that dieseld may use here"),
        (SECTION + "metrics-names = off\n", 2, "must be shown or hidden", "write metrics-names = hidden"),
        (SECTION + "metrics = 127.0.0.1:99999\n", 2, '"99999" is not a port from 0 to 65535', "write metrics = 127.0.0.1:9467"),
        (SECTION + "metrics = 127.0.0.1\n", 2, "not ADDRESS:PORT", "such as 127.0.0.1:9467"),
        (SECTION + "metrics = localhost:9467\n", 2, "not an address", "such as 127.0.0.1:9467"),
        (SECTION + "codec = {here}/none.so\n", 2, "{here}/none.so is not loaded: No such file", "write another path"),
        (SECTION + "codec = {here}/folder\n", 2, "{here}/folder is not loaded", "write another path"),
        (SECTION + "codec = wav.so\n", 2, "not an absolute path", "write codec = /usr"),
        (SECTION + "stage = {here}/none/stage\n", 2, "the folder {here}/none does not exist", "run mkdir -p {here}/none"),
        (SECTION + "stage = {here}/file\n", 2, "{here}/file is neither a folder", "write the path of a folder"),
        (SECTION + "stage = nvme\n", 2, "neither an absolute path nor off", "write stage = off"),
        (SECTION + "stage-size = 1M\nstage = off\n", 2, "must be a size of at least 16M", "write stage-size = 100G"),
        (SECTION + "stage-when = never\nstage = off\n", 2, "must be slower or always", "write stage-when = slower"),
        (SECTION + "stage-size = 1G\n", 2, "no effect without stage", "write stage, too"),
        (SECTION + "history = {here}/none/h.db\n", 2, "the folder {here}/none does not exist", "run mkdir -p {here}/none"),
        (SECTION + "history = {here}/folder\n", 2, "{here}/folder is a folder", "write the path of a file"),
        (SECTION + "history = h.db\n", 2, "not an absolute path or off", "write history = off"),
        (SECTION + "history-max = 1K\n", 2, "must be a size from 1M to 1T", "write history-max = 64M"),
        (SECTION + "socket = {here}/none/s\n", 2, "the folder {here}/none does not exist", "run mkdir -p {here}/none"),
        (SECTION + "socket = {here}/folder\n", 2, "{here}/folder is a folder", "write the path of a socket"),
        (SECTION + "socket = {here}/file\n", 2, "neither a folder nor a socket", "write the path of a socket"),
        (SECTION + "socket = {here}/" + 108 * "s" + "\n", 2, "at most 107 bytes", "write socket = /run/diesel/dieseld.sock"),
        (SECTION + "socket = s\n", 2, "not an absolute path", "write socket = /run"),
        (SECTION + "workers = -1\n", 2, "not a number from 1 to 64", "write workers = 4"),
        (SECTION + "workers = 2.5\n", 2, "not a number from 1 to 64", "write workers = 4"),
        (SECTION + "workers-max = 2\nworkers = 5\n", 3, "the limit is 2", "raise workers-max first"),
        (SECTION + "cache-min = 2G\ncache-max = 1G\n", 2, "more than cache-max", "set cache-min to at most cache-max"),
        (SECTION + "user-share = 0\n", 2, "not a number from 1 to 100", "write user-share = 75"),
        (SECTION + "cache-quota = alice\n", 2, "is not a user, or @ and a group, followed by = and a percentage", "write cache-quota = alice=20%, @physics=40%"),
        (SECTION + "cache-quota = 1000=20\n", 2, "is not a percentage", "write cache-quota = alice=20%"),
        (SECTION + "cache-quota = no-such-user=20%\n", 2, "not a user of this machine", "write a name that the machine knows, or a number"),
        (SECTION + "cache-quota = 1000=20%, @no-such-group=2%\n", 2, "not a group of this machine", "write a name that the machine knows"),
        (SECTION + "cache-quota = 1000=70%, @1000=31%\n", 2, "the parts up to @1000 add up to 101 %", "write at most 100 %"),
        (SECTION + "cache-quota = root=20%, 0=30%\n", 2, "root and 0 are the same user", "write only one of the two"),
        (SECTION + "cache-quota = 1=2%\ncache-quota = 2=2%\n", 3, "cache-quota is on line 2 already", "remove one of the two"),
        (SECTION + "read-limit = 10\n", 2, "read-limit=10 B", "from 1.0 MiB to"),
        (SECTION + "exit-when-idle = 5m\n", 2, "not a number from 0", "write exit-when-idle = 0"),
        (SECTION + "tune = yes\n", 2, "must be on, off or dry-run", "write tune = on"),
        (SECTION + "require-digest = yes\n", 2, "must be never, shared or always", "write require-digest = never"),
        (SECTION + "admin-user = no-such-user\n", 2, "no-such-user", "write admin-user = root"),
        (SECTION + "stage = {here}/folder\n", 2, "other users can access {here}/folder", "run chmod 700"),
        (SECTION + "socket = {here}/s\nadmin-socket = {here}/a\n", 3, "in the folder of the socket of clients", "write admin-socket = /run/diesel-admin"),
        (SECTION + "cluster = http://redis\n", 2, "must be off or a URL", "write cluster = redis://HOST:6379"),
        (SECTION + "cluster = redis://127.0.0.1\n", 2, "requires cluster-listen", "cluster-listen ADDRESS:PORT"),
        (SECTION + "cluster-listen = 127.0.0.1:1\n", 2, "no effect without cluster", "write cluster, too"),
        (CLUSTER + "127.0.0.1:99999\n", 3, "--cluster-listen 127.0.0.1:99999", "as 10.0.0.1:7700"),
        (CLUSTER + "10.0.0.1:7700\n", 3, "unless --cluster-key", "must be a loopback address"),
        (CLUSTER + "127.0.0.1:1\ncluster-key = {here}/none\n", 4, "--cluster-key {here}/none", "No such file"),
        (CLUSTER + "127.0.0.1:1\ncluster-key = {here}/folder\n", 4, "--cluster-key {here}/folder: not a regular file", ""),
        (CLUSTER + "127.0.0.1:1\n\ncluster-name = a b\n", 5, "--cluster-name is not a valid node name", "printable ASCII without blanks"),
        (SECTION + "codec = {here}/none.so\ncodec = off\n", 2, "codec: {here}/none.so is not loaded", "write another path"),
        (CLUSTER + "127.0.0.1:1\ncluster-limit = fast\n", 4, "must be 0 or a size", "such as 100M"),
        (CLUSTER + "127.0.0.1:1\ncluster-advertise = here:1\n", 4, "--cluster-advertise here:1", "as 10.0.0.1:7700"),
    )

    def setUp(self):
        self.here = tempfile.mkdtemp(dir=SCRATCH)
        os.mkdir(self.here + "/folder")
        with open(self.here + "/file", "w"):
            pass

    def check(self, path):
        done = subprocess.run([os.path.join(BIN, "dieseld"), "--check-config", "--config", path], capture_output=True, text=True,
                              check=False, timeout=60)
        self.assertEqual(done.stderr.count("\n"), 0 if done.returncode == 0 else 1, done.stderr)
        return done.returncode, done.stderr

    def test_each_mistake_is_one_line(self):
        for text, line, wrong, fix in self.WRONG:
            with self.subTest(text):
                path = config(text.replace("{here}", self.here))
                status, said = self.check(path)
                self.assertEqual(status, 2, said)
                self.assertRegex(said, rf"^dieseld: error: {re.escape(path)}:{line}:")
                for words in (wrong, fix):
                    self.assertIn(words.replace("{here}", self.here), said)

    def test_a_file_that_cannot_be_read(self):
        for path, words in ((self.here, "is a folder: name the file"), (self.here + "/none", "No such file")):
            status, said = self.check(path)
            self.assertEqual(status, 2)
            self.assertIn(f"{path}", said)
            self.assertIn(words, said)

    def test_a_right_file_passes(self):
        """Syntax of other systems and programs is accepted."""
        for text in ("", "; nothing\n", "\ufeff[dieseld]\r\ncache = 64M\r\n", "[other]\nx = y\n[dieseld]\ncache: 64M ; enough\n",
                     "[dieseld] ; ours\n  cache = 64M\n\tassist = no\n# end", "[dieseld]\ncodec = off\nhistory = off\nstage = off\n",
                     f"[dieseld]\nstage = {self.here}/stage\nhistory = {self.here}/h.db\nsocket = {self.here}/s\n"):
            self.assertEqual(self.check(config(text)), (0, ""), text)

    def test_what_the_check_lets_pass_serves(self):
        path = config(f"[dieseld]\ncache = 64M\nmetrics = off\nstage = {self.here}/stage\nhistory = {self.here}/h.db\nsocket = {self.here}/s\n"
                      f"cluster = redis://127.0.0.1:1\ncluster-listen = 127.0.0.1:{free_port()}\nno-io-uring = no\n")
        self.assertEqual(self.check(path), (0, ""))
        process = subprocess.Popen([os.path.join(BIN, "dieseld"), "--config", path, "--ready-fd", "1"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.assertEqual(process.stdout.readline(), "ready\n")
        process.terminate()
        self.assertEqual((process.communicate(timeout=60), process.returncode)[1], 0)


class GivenSocket(Case):
    """Tests metrics on a socket that the service manager has opened (dieseld-metrics.socket)."""

    LAUNCH = """
import os, socket, sys
end = socket.create_server(("127.0.0.1", int(sys.argv[1])))
os.dup2(end.fileno(), 3)
os.set_inheritable(3, True) # also where it was that number before
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES="metrics")
os.execv(sys.argv[2], sys.argv[2:])
"""

    def test_it_answers_there(self):
        given, asked = free_port(), free_port()
        for metrics in (f"127.0.0.1:{given}", f"127.0.0.1:{asked}"):
            daemon = self.daemon("--metrics", metrics,
                                 prefix=lambda command: [sys.executable, "-c", self.LAUNCH, str(given), *command])
            with urllib.request.urlopen(f"http://127.0.0.1:{given}/metrics", timeout=60) as reply:
                self.assertIn(b"diesel_build_info", reply.read())
            with self.assertRaises(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{asked}/metrics", timeout=60).close()
            self.assertEqual(f"metrics are not served on {metrics}" in daemon.output(), metrics.endswith(str(asked)))
            self.assertEqual(daemon.stop(), 0)

    def test_off_is_off(self):
        given = free_port()
        self.daemon(prefix=lambda command: [sys.executable, "-c", self.LAUNCH, str(given), *command])
        with self.assertRaises(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{given}/metrics", timeout=60).close()


class Manager(Case):
    def test_it_is_told_of_every_change(self):
        path = os.path.join(SCRATCH, "notify.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(path)
            manager.settimeout(30)
            os.environ.update(NOTIFY_SOCKET=path, WATCHDOG_USEC="200000")
            os.environ.pop("WATCHDOG_PID", None)
            try:
                daemon = self.daemon()
            finally:
                del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]

            def heard(word):
                while word not in (said := manager.recv(4096).decode()):
                    self.assertEqual(said, "WATCHDOG=1")
                return said

            self.assertIn(f"STATUS=serving on {daemon.socket}", heard("READY=1"))
            heard("WATCHDOG=1")
            daemon.process.send_signal(signal.SIGHUP)
            self.assertRegex(heard("RELOADING=1"), r"MONOTONIC_USEC=\d+")
            heard("READY=1")
            daemon.process.send_signal(signal.SIGTERM)
            heard("STOPPING=1")
            self.assertEqual(daemon.process.wait(timeout=60), 0)


if __name__ == "__main__":
    main()
