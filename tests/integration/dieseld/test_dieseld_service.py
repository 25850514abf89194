# SPDX-License-Identifier: Apache-2.0
"""dieseld as a service: metrics, configuration that is read again, the service manager."""
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
        n_batches = -(-done["samples"] // 64)  # and some of the next epoch, which were ready
        self.assertIn(self.value(text, "diesel_batches_total"), range(n_batches, n_batches + 9))
        status = daemon.status()
        self.assertEqual(self.value(text, "diesel_chunk_reads_total"), status["cache"]["reads"])
        self.assertEqual(self.value(text, 'diesel_cache_bytes{kind="chunks"}'), status["cache"]["segment_bytes"])
        self.assertEqual(self.value(text, "diesel_cache_limit_bytes"), 256 * MIB)
        self.assertEqual(self.value(text, "diesel_cache_borrowed_bytes"), status["cache"]["borrowed_bytes"])
        self.assertGreater(self.value(text, "process_resident_memory_bytes"), MIB)

    def test_the_start_is_one_moment(self):
        """Not the sum of two clocks, of which one has whole seconds: Prometheus would see a restart in each scrape."""
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

    def test_prometheus_scrapes(self):
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

    def test_probes_of_the_node(self):
        daemon = self.daemon("--metrics", self.address)
        self.assertEqual((self.ask("/healthz"), self.ask("/readyz")), ((200, "ok\n"), (200, "ok\n")))
        # A pod that may write to the folder can do this: clients then talk to somebody else, or to nobody.
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

    def test_settings_and_history(self):
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

    def test_only_get_and_only_metrics(self):
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
    """Who has used what: by the environment that Slurm and Kubernetes give a job, and after its end."""

    def setUp(self):
        self.address = f"127.0.0.1:{free_port()}"
        self.path, self.source = dataset("packed")

    def run_job(self, daemon, **variables):
        job = start_probe(daemon, self.path, "--batch", 64, env={**os.environ, **variables})
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

    def test_while_it_runs(self):
        daemon = self.daemon("--metrics", self.address)
        job = start_probe(daemon, self.path, "--batch", 64, "--pause-us", 2000, "--epochs", 100000,
                          env={**os.environ, "SLURM_JOB_ID": "12", "SLURM_JOB_ACCOUNT": 'a"} 1\nb', "POD_NAME": "p" * 300})
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)
        self.wait(daemon, "job begins:", 1)
        info = re.search(r"(?m)^diesel_job_origin_info\{(.*)\} 1$", self.fetch())
        self.assertEqual(dict(re.findall(r'(\w+)="([^"]*)"', info[1])),
                         {"training_job": "1", "rank": "0", "slurm_job": "12", "account": "a___1_b", "job_pod": "p" * 255, "pod_uid": "",
                          "job_namespace": ""})

    @unittest.skipUnless(os.geteuid() == 0, "takes root, for a journal of its own")
    def test_fields_of_the_journal(self):
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
        self.assertNotIn("job begins", daemon.output())  # once, and not twice


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

    def test_check_config(self):
        for text, status, word in (("[dieseld]\ncache = 2G\n", 0, "right"), ("[dieseld]\ncahe = 2G\n", 2, ":2:1:"),
                                   ("[dieseld]\nmetrics = here\n", 2, ":2:11:"), ("[dieseld]\nx\n", 2, ":2:1:")):
            done = subprocess.run([os.path.join(BIN, "dieseld"), "--check-config", "--config", config(text)],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(word, done.stdout + done.stderr)

    def test_check_config_of_a_cluster(self):
        key = os.path.join(SCRATCH, "cluster.key")
        with open(key, "w") as file:
            file.write("0123456789abcdef\n")
        os.chmod(key, 0o600)
        base = {"cluster": "redis://127.0.0.1:1", "cluster-listen": "10.0.0.1:7700", "cluster-key": key}
        for more, mode, word in (({}, 0o600, "right"), ({}, 0o644, "chmod 600 it"), ({"cluster-key": key + ".none"}, 0o600, "No such file"),
                                 ({"cluster-listen": "10.0.0.1"}, 0o600, "in numbers with a port"),
                                 ({"cluster-listen": "0.0.0.0:7700"}, 0o600, "say --cluster-advertise"),
                                 ({"cluster-advertise": "here:1"}, 0o600, "--cluster-advertise here:1"),
                                 ({"cluster-name": "a b"}, 0o600, "--cluster-name"), ({"cluster": "redis://:x@"}, 0o600, "it needs HOST")):
            with self.subTest(word):
                os.chmod(key, mode)
                text = "[dieseld]\n" + "".join(f"{name} = {value}\n" for name, value in {**base, **more}.items())
                done = subprocess.run([os.path.join(BIN, "dieseld"), "--check-config", "--config", config(text)], capture_output=True,
                                      text=True, check=False)
                self.assertEqual(done.returncode, 0 if word == "right" else 2, done.stderr)
                self.assertIn(word, done.stdout + done.stderr)
                self.assertEqual(done.stderr.count("\n"), 0 if word == "right" else 1, done.stderr)


class GivenSocket(Case):
    """Metrics on a socket that the service manager has opened (dieseld-metrics.socket)."""

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
            self.assertEqual(f"metrics are not on {metrics}" in daemon.output(), metrics.endswith(str(asked)))
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
