# SPDX-License-Identifier: Apache-2.0
"""Tests metrics of jobs: a real Prometheus evaluates them, and the Grafana dashboard queries only existing ones."""
import contextlib
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from dieseld_support import SCRATCH, Case, dataset, free_port, main, start_probe

HERE = os.path.dirname(os.path.abspath(__file__))
DASHBOARD = os.path.join(HERE, "../../../packaging/grafana/diesel.json")
# Labels of measurement: never by step, process or path.
LABELS_ALLOWED = {"training_job", "rank", "world", "uid", "program", "stall", "state", "source", "quantile", "kind", "version",
                  "kernel", "resource", "rule", "outcome", "mode", "ring", "le",
                  "setting", "quota", "slurm_job", "account", "job_pod", "pod_uid", "job_namespace"}


def dashboard():
    with open(DASHBOARD) as file:
        return json.load(file)


def exported_by_the_sources():
    names = set()
    for path in glob.glob(os.path.join(HERE, "../../../daemon/run/metrics*.c")):
        with open(path) as file:
            names |= set(re.findall(r'"((?:diesel|process)_[a-z_]+)[{"\\ ]', file.read()))
    return names | {name + part for name in names if name.endswith("_seconds") for part in ("_bucket", "_sum", "_count")}


def targets(board):
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]


class Dashboard(unittest.TestCase):
    def test_the_dashboard_is_what_grafana_takes(self):
        board = dashboard()
        self.assertGreaterEqual(board["schemaVersion"], 36)
        self.assertRegex(board["uid"], r"^[A-Za-z0-9_-]{1,40}$")
        self.assertEqual({v["name"] for v in board["templating"]["list"]}, {"datasource", "instance", "job"})
        taken, ids = set(), set()
        for panel in board["panels"]:
            self.assertNotIn(panel["id"], ids)
            ids.add(panel["id"])
            self.assertIn(panel["type"], {"row", "timeseries", "stat"})
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & taken, f"{panel['title']} lies over another panel")
            taken |= cells
            if panel["type"] == "row":
                continue
            self.assertTrue(panel["description"] and panel["fieldConfig"]["defaults"]["unit"])
            self.assertEqual(panel["datasource"]["uid"], "${datasource}")
            self.assertEqual(len({t["refId"] for t in panel["targets"]}), len(panel["targets"]))


    def values(self, title, series):
        """Returns the values of a panel's targets after five minutes of these series, which grow at the given rates per second."""
        panel, = (panel for panel in dashboard()["panels"] if panel["title"] == title)
        tests = []
        for target in panel["targets"]:
            expression = target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$job", ".*")
            tests.append({"expr": f"round({expression}, 0.01)", "eval_time": "5m", "exp_samples": []})
        given = [{"series": name, "values": f"0+{10 * rate:g}x40"} for name, rate in series.items()]
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
            json.dump({"evaluation_interval": "10s", "tests": [{"interval": "10s", "input_series": given, "promql_expr_test": tests}]}, file)
            file.flush()
            done = subprocess.run(["promtool", "test", "rules", file.name], text=True, capture_output=True, check=False)
        # No value was expected, so promtool prints the existing ones.
        return {tuple(sorted(re.findall(r'(\w+)="([^"]*)"', labels))): float(value)
                for labels, value in re.findall(r"(?m)(?:got:|^) *\{(.*)\} ([\d.E+-]+),?$", done.stdout + done.stderr)}

    def test_the_dashboard_asks_for_what_there_is(self):
        """The dashboard queries only existing metrics, including some of each option such as --stage, --cluster and --assist."""
        there = exported_by_the_sources()
        asked = {name for _, expression in targets(dashboard()) for name in re.findall(r"\b(?:diesel|process)_\w+", expression)}
        self.assertLessEqual(asked, there)
        for family in ("stage", "cluster", "assist", "sensor", "user", "config", "history"):
            self.assertTrue([name for name in asked if name.startswith(f"diesel_{family}_")], family)

    @unittest.skipUnless(shutil.which("promtool"), "no promtool")
    def test_panels_have_the_right_figures(self):
        at = 'instance="a",training_job="1",rank="0"'
        # The share of time waiting for storage is known for half of the time; waiting for the device is no stall.
        stalls = self.values("Stalls", {f'diesel_stall_seconds_total{{{at},stall="fetch"}}': 0.495,
                                        f'diesel_stall_known_seconds_total{{{at},stall="fetch"}}': 0.5,
                                        f'diesel_stall_seconds_total{{{at},stall="gpu_wait"}}': 0.7,
                                        f'diesel_stall_known_seconds_total{{{at},stall="gpu_wait"}}': 1,
                                        f"diesel_trainer_seconds_total{{{at}}}": 1})
        job = (("instance", "a"), ("training_job", "1"))
        self.assertEqual(stalls, {(job[0], ("stall", "fetch"), job[1]): 0.99})
        self.assertEqual(self.values("Storage", {f'diesel_read_bytes_total{{{at},source="device"}}': 100,
                                                 f'diesel_read_bytes_total{{{at},source="node"}}': 900}), {job: 100})
        self.assertEqual(self.values("Cache hit ratio", {f"diesel_chunk_visits_total{{{at}}}": 10, f"diesel_job_chunk_reads_total{{{at}}}": 1,
                                                         f"diesel_job_node_chunks_total{{{at}}}": 4}), {job: 0.5})


class Jobs(Case):
    def setUp(self):
        for program in ("promtool", "prometheus"):
            if not shutil.which(program):
                self.skipTest(f"no {program}")
        self.address, self.api = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self.server = self.daemon("--metrics", self.address, "--history", tempfile.mktemp(dir=SCRATCH))
        path, source = dataset("packed")
        # Runs a slow, endless epoch.
        self.job = start_probe(self.server, path, "--batch", 64, "--pause-us", 2000, "--epochs", 100000)
        self.addCleanup(self.job.communicate)
        self.addCleanup(self.job.kill)

    def fetch(self):
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=60) as answer:
            return answer.read().decode()

    def fetch_when(self, predicate):
        for _ in range(600):
            text = self.fetch()
            if predicate(text):
                return text
            time.sleep(0.1)
        self.fail("never came:\n" + text)

    def query(self, expression):
        url = f"http://{self.api}/api/v1/query?" + urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                said = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error
        self.assertEqual(said["status"], "success")
        return said["data"]["result"]

    def start_prometheus(self):
        with tempfile.NamedTemporaryFile("w", dir=SCRATCH, suffix=".yml", delete=False) as file:
            file.write("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: diesel\n"
                       f"  static_configs: [{{targets: ['{self.address}']}}]\n")
        server = subprocess.Popen(["prometheus", f"--config.file={file.name}",
                                   f"--storage.tsdb.path={tempfile.mkdtemp(dir=SCRATCH)}",
                                   f"--web.listen-address={self.api}"], stderr=subprocess.DEVNULL)
        self.addCleanup(server.wait)
        self.addCleanup(server.terminate)
        # The daemon refuses connections until it listens, and answers 503 until its storage is open.
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.URLError):
                urllib.request.urlopen(f"http://{self.api}/-/ready", timeout=60).close()
                return
            time.sleep(0.1)
        self.fail("Prometheus is not ready after 60 s")

    def test_a_running_job_has_figures(self):
        text = self.fetch_when(lambda t: re.search(r'^diesel_job_batches_total\{training_job="1",rank="0"\} [1-9]', t, re.M))
        done = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertRegex(text, r'(?m)^diesel_job_info\{training_job="1",rank="0",world="1",uid="0",program="daemon_probe"\} 1$')
        self.assertRegex(text, r'(?m)^diesel_job_decoded_samples_total\{training_job="1",rank="0"\} 0$')  # samples come as stored
        labels = set(re.findall(r'[{,](\w+)="', text))
        self.assertLessEqual(labels, LABELS_ALLOWED)
        # Prometheus sets these labels itself, the last four by a PodMonitor, and would rename ours.
        self.assertFalse(labels & {"job", "instance", "namespace", "pod", "container", "endpoint"})
        self.assertLessEqual(set(re.findall(r'stall="(\w+)"', text)),
                             {"fetch", "preprocess", "gpu_wait", "checkpoint", "cpu_queue", "other", "client"})
        # The daemon exports every name of the dashboard, except those of features that are off.
        exported = set(re.findall(r"^# TYPE (\w+) ", text, re.M))
        for title, expression in targets(dashboard()):
            for name in re.findall(r"\b(?:diesel|process)_(?!stage_|cluster_|assist_)\w+", expression):
                self.assertIn(name, exported, title)

    def test_prometheus_answers_the_dashboard(self):
        self.start_prometheus()
        window = {"$__rate_interval": "10s", "$instance": ".*", "$job": ".*"}
        waiting = {}
        for title, expression in targets(dashboard()):
            for name, value in window.items():
                expression = expression.replace(name, value)
            waiting[expression] = title
        deadline = time.monotonic() + 60
        while waiting and time.monotonic() < deadline:
            waiting = {e: t for e, t in waiting.items() if not self.query(e)}
            if set(waiting.values()) <= self.may_be_empty():
                break
            time.sleep(0.2)
        self.assertLessEqual(set(waiting.values()), self.may_be_empty(), waiting)
        busy = self.query("sum by (training_job) (rate(diesel_job_samples_total[10s]))")
        self.assertGreater(float(busy[0]["value"][1]), 0)

    def may_be_empty(self):
        """Panels whose figures not every machine or moment has."""
        empty = {"Cache of each job", "Decisions", "Pressure", "Sensing", "Step time", "Staged", "Read from staging", "Staging failures",
                 "Chunks from other nodes", "Fallbacks to storage", "Redis of the cluster", "Assisted jobs", "Readahead for assisted jobs"}
        if "diesel_trainer_seconds_total{" not in self.fetch():  # profiling is off
            empty |= {"Steps", "Stalls", "Step time", "Headroom", "Measured by"}
        return empty


if __name__ == "__main__":
    main()
