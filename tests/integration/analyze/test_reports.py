# SPDX-License-Identifier: Apache-2.0
"""Reads reports as other programs do: by the published schema, OpenMetrics' own parser, Perfetto's wire format and an HTML parser. The
reports are of made-up analyses with every part, with none, and with hostile text from outside. A recorded job is tested through the command
line, where recording is permitted."""
import gzip
import html.parser
import json
import os
import pty
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import unittest

try:
    import jsonschema
except ImportError:
    jsonschema = None
try:
    from prometheus_client.openmetrics import parser as openmetrics
except ImportError:
    openmetrics = None

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
ANALYZE = os.path.join(BIN, "diesel-analyze")
TRAIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../bench/jobs/train.py")
KINDS = ["full", "hostile", "bare", "insufficient"]


def sample(form, kind):
    done = subprocess.run([os.path.join(BIN, "report_sample"), form, kind], stdout=subprocess.PIPE, check=True,
                          timeout=120)
    return done.stdout


def forbid_unknown_keys(node):
    """Returns a copy of the schema that also fails on unknown keys."""
    if isinstance(node, list):
        return [forbid_unknown_keys(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: forbid_unknown_keys(value) for key, value in node.items()}
    if "properties" in node:
        node.setdefault("additionalProperties", False)
    return node


class Json(unittest.TestCase):
    @unittest.skipUnless(jsonschema, "python3-jsonschema is not installed")
    def test_schema_describes_every_report(self):
        schema = json.loads(sample("schema", "full"))
        jsonschema.Draft202012Validator.check_schema(schema)
        validator = jsonschema.Draft202012Validator(forbid_unknown_keys(schema))
        for kind in KINDS:
            report = json.loads(sample("json", kind))
            self.assertEqual([f"{e.json_path}: {e.message[:200]}" for e in validator.iter_errors(report)], [], kind)

    @unittest.skipUnless(jsonschema, "python3-jsonschema is not installed")
    def test_schema_refuses(self):
        validator = jsonschema.Draft202012Validator(json.loads(sample("schema", "full")))
        report = json.loads(sample("json", "full"))
        for break_it in (lambda r: r.pop("verdict"), lambda r: r.update(steps=-1),
                         lambda r: r["shares"].update(device=1.5), lambda r: r.update(page_cache=0)):
            broken = json.loads(json.dumps(report))
            break_it(broken)
            self.assertFalse(validator.is_valid(broken))

    def test_what_is_not_known_is_null(self):
        report = json.loads(sample("json", "bare"))
        for key in ("page_cache", "profile", "gpu", "checkpoints", "predictions"):
            self.assertIsNone(report[key], key)
        self.assertIsNone(report["shares"]["gpu_wait"])
        self.assertEqual(report["ranks"], [])
        full = json.loads(sample("json", "full"))
        self.assertIsNone(full["gpu"]["utilization"])
        self.assertIsNone(full["page_cache"]["mapped"]["random_ratio"])
        self.assertIsNone(full["predictions"]["needed"]["workers"])
        self.assertIsNone(full["actions"][2]["gain"])
        self.assertEqual(full["actions"][0]["gain"], {"value": 1.55, "low": 1.41, "high": 1.63})
        shares = full["shares"]
        self.assertAlmostEqual(sum(value or 0 for key, value in shares.items() if key != "gpu_wait"), 1)

    def test_insufficient_has_no_figures(self):
        report = json.loads(sample("json", "insufficient"))
        self.assertEqual(report["insufficient"], "no step was seen")
        self.assertEqual(set(report["shares"].values()), {None})
        for key in ("wait_mean_s", "steps_per_s", "read_bytes", "gil_s"):
            self.assertIsNone(report[key], key)


@unittest.skipUnless(openmetrics, "python3-prometheus-client is not installed")
class OpenMetrics(unittest.TestCase):
    def families(self, kind):
        text = sample("openmetrics", kind).decode()
        self.assertTrue(text.endswith("# EOF\n"))
        return {family.name: family for family in openmetrics.text_string_to_metric_families(text)}

    def test_parses(self):
        for kind in KINDS:
            self.assertIn("diesel_build", self.families(kind), kind)

    def test_stalls_and_computing_are_the_time_of_the_steps(self):
        families = self.families("bare")
        stalls = sum(s.value for s in families["diesel_stall_seconds"].samples)
        compute = families["diesel_compute_seconds"].samples[0].value
        durations = {s.name: s.value for s in families["diesel_step_duration_seconds"].samples}
        report = json.loads(sample("json", "bare"))
        self.assertAlmostEqual(stalls + compute, report["observed_s"], places=6)
        self.assertEqual(families["diesel_steps"].samples[0].value, 120)
        # The step that compiles does not count for the length of a step.
        apart_s = sum(step["wall_s"] for step in report["step_table"] if step["excluded"])
        self.assertGreater(apart_s, 2)
        self.assertAlmostEqual(stalls + compute - apart_s, durations["diesel_step_duration_seconds_sum"], places=6)
        self.assertEqual(durations["diesel_step_duration_seconds_count"], 119)

    def test_each_rank_has_its_own(self):
        ranks = {s.labels["rank"] for s in self.families("full")["diesel_stall_seconds"].samples}
        self.assertEqual(ranks, {"0", "1", "2", "3"})

    def test_labels_hold_neither_path_nor_process(self):
        for family in self.families("hostile").values():
            for one in family.samples:
                self.assertEqual(one.labels.get("training_job", "train.py"), "train.py")
                self.assertFalse({"pid", "path", "step"} & set(one.labels))


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at


def fields(data):
    """Yields [(number, value)]: integers, or bytes of nested messages and strings."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack_from("<Q", data, at)[0], at + 8
        elif key & 7 == 2:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            assert len(value) == length
        else:
            raise ValueError(f"wire type {key & 7}")
        found.append((key >> 3, value))
    return found


class Perfetto(unittest.TestCase):
    BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4

    def read(self, kind):
        """Reads tracks by uuid, names by iid, and all track events as (time, {field: [values]})."""
        tracks, names, events = {}, {}, []
        for number, packet in fields(gzip.decompress(sample("perfetto", kind))):
            self.assertEqual(number, 1)
            packet = dict(fields(packet))
            self.assertEqual(packet[10], 1)
            if 12 in packet:
                for _, entry in fields(packet[12]):
                    entry = dict(fields(entry))
                    names[entry[1]] = entry[2].decode()
            if 60 in packet:
                track = dict(fields(packet[60]))
                tracks[track[1]] = track
            if 11 in packet:
                self.assertEqual(packet[58], 3, "CLOCK_MONOTONIC")
                event = {}
                for key, value in fields(packet[11]):
                    event.setdefault(key, []).append(value)
                events.append((packet[8], event))
        return tracks, names, events

    def test_every_slice_ends_on_its_track(self):
        for kind in ("full", "hostile", "bare"):
            tracks, _, events = self.read(kind)
            open_slices, last = {}, {}
            for at, event in events:
                track, what = event[11][0], event[9][0]
                self.assertIn(track, tracks)
                if what == self.BEGIN:
                    self.assertFalse(open_slices.get(track), "slices of a track do not overlap")
                    self.assertGreaterEqual(at, last.get(track, 0))
                    open_slices[track] = True
                elif what == self.END:
                    self.assertTrue(open_slices.pop(track))
                    last[track] = at
            self.assertEqual(open_slices, {})

    def test_what_is_in_it(self):
        tracks, names, events = self.read("full")
        names_of_tracks = [track[2].decode() for track in tracks.values() if 2 in track]
        for name in ("steps", "data waits", "checkpoints", "ready batches", "batches", "GPU waits"):
            self.assertIn(name, names_of_tracks)
        processes = [dict(fields(track[3]))[6].decode() for track in tracks.values() if 3 in track]
        self.assertEqual(processes, ["trainer", "worker 1", "worker 2"])
        threads = [dict(fields(track[4]))[5].decode() for track in tracks.values() if 4 in track]
        self.assertEqual(threads, ["trainer", "worker 1", "worker 2", "pt_autograd_0"])
        begun = [names[event[10][0]] for _, event in events if event[9] == [self.BEGIN]]
        self.assertEqual(begun.count("step"), 120)
        self.assertEqual(begun.count("data wait"), 120)
        self.assertEqual(begun.count("checkpoint"), 2)
        self.assertIn("fetch_stall", begun)
        self.assertEqual(begun.count("cuStreamSynchronize"), 120)
        self.assertEqual(sum(event[9] == [self.COUNTER] for _, event in events), 240)

    def test_arrows_arrive_once(self):
        _, _, events = self.read("full")
        starts = [flow for _, event in events for flow in event.get(47, [])]
        ends = [flow for _, event in events for flow in event.get(48, [])]
        self.assertEqual(len(starts), 120)
        self.assertEqual(sorted(starts), sorted(ends))
        self.assertEqual(len(set(starts)), len(starts))

    def test_clocks(self):
        packet = dict(fields(fields(gzip.decompress(sample("perfetto", "full")))[0][1]))
        clocks = [dict(fields(value)) for number, value in fields(packet[6]) if number == 1]
        self.assertEqual({clock[1] for clock in clocks}, {1, 3, 6})
        self.assertEqual([value for number, value in fields(packet[6]) if number == 2], [3])


class Page(html.parser.HTMLParser):
    VOID = {"meta", "link", "br", "input", "img"}

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.scripts, self.ids, self.links, self.text = [], [], [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")
        if "id" in attrs:
            self.ids.append(attrs["id"])
        self.links += [attrs[key] for key in ("src", "href", "action") if key in attrs]
        assert not [key for key in attrs if key.startswith("on")], attrs

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, (tag, self.open)

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text += data


class Html(unittest.TestCase):
    def page(self, kind):
        raw = sample("html", kind)
        page = Page(raw.decode("utf-8"))  # strict: no broken UTF-8 gets through
        self.assertEqual(page.open, [], kind)
        return raw, page

    def test_well_formed_and_self_contained(self):
        for kind in KINDS + ["long"]:
            raw, page = self.page(kind)
            self.assertEqual(len(page.ids), len(set(page.ids)), "ids are unique")
            self.assertTrue(all(link.startswith(("#", "data:")) for link in page.links), page.links)
            self.assertEqual(re.findall(rb"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", raw.replace(
                b"http://www.w3.org/2000/svg", b"")), [], "no address of the network")
            self.assertIn(b"default-src 'none'", raw)
            self.assertNotIn("{{", page.text.replace("{{data}}", ""), "a place that nothing filled in")

    def test_hostile_text_stays_text(self):
        raw, page = self.page("hostile")
        self.assertEqual(len(page.scripts), 2)
        self.assertNotIn(b"<script>alert", raw)
        self.assertNotIn(b"<!--", raw)
        data = json.loads(page.scripts[0])
        self.assertIn("</script><script>alert(1)</script>", "".join(str(item) for item in data["stacks"]))
        self.assertIn("</script><script>alert(1)</script>", page.text)
        self.assertNotIn("\x01", page.text)

    def test_key_facts_without_javascript(self):
        _, page = self.page("full")
        for fact in ("62 % of step time is stall: fetch 38, preprocess 19, checkpoint 5", "fetch-bound",
                     "120 steps, 0 lost events", "Keep the dataset in memory", "Predicted 1.55x faster (1.41 to 1.63)",
                     "reading files", "GPU wait", "jpeg_idct_islow", "straggler", "one every 61 steps", "/datasets/imagenet",
                     "cuStreamSynchronize", "forward"):
            self.assertIn(fact, page.text)

    def test_what_is_missing_is_told(self):
        _, page = self.page("bare")
        self.assertIn("page cache, profile of preparing, GPU, predictions", page.text)
        for absent in ("flame", "curves", "phases", "checkpoints", "ranks", "gpu", "reads"):
            self.assertNotIn(absent, page.ids)
        _, page = self.page("insufficient")
        self.assertIn("insufficient data", page.text)
        self.assertIn("no step was seen", page.text)

    def test_long_recordings_stay_small(self):
        raw, page = self.page("long")
        self.assertLess(len(raw), 1 << 20)
        data = json.loads(page.scripts[0])
        self.assertEqual(data["merged"], 101)
        self.assertAlmostEqual(data["steps"][-8], data["wall"], delta=1)


class Text(unittest.TestCase):
    def test_fits_and_is_harmless(self):
        for kind in KINDS:
            text = sample("text", kind).decode("utf-8", "replace")
            self.assertNotIn("\x1b", text)
            self.assertNotIn("\x01", text)
            if kind != "hostile":
                self.assertLessEqual(max(map(len, text.splitlines())), 80, kind)


def analyze(*args, **kwargs):
    return subprocess.run([ANALYZE, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, **kwargs)


class CommandLine(unittest.TestCase):
    """Tests on one recorded job with workers that reads files and writes a checkpoint."""
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="diesel-reports-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.recording = os.path.join(cls.folder, "s.db")
        data = os.path.join(cls.folder, "data")
        os.mkdir(data)
        for i in range(64):
            with open(os.path.join(data, f"<b>{i}&.bin"), "wb") as file:
                file.write(os.urandom(64 * 1024))
        done = analyze("record", "-o", cls.recording, "--", "/usr/bin/python3", TRAIN, "--data", data, "--steps", "24",
                       "--batch", "8", "--workers", "1", "--checkpoint", os.path.join(cls.folder, "model.pt"),
                       "--checkpoint-every", "10", "--checkpoint-mb", "4")
        if not os.path.exists(cls.recording):
            raise unittest.SkipTest("recording is not permitted here: " + done.stderr.decode()[-300:].strip())

    def path(self, name):
        return os.path.join(self.folder, name)

    def report(self, name, *options, code=0):
        done = analyze("report", self.recording, "-o", self.path(name), *options)
        self.assertEqual(done.returncode, code, done.stderr)
        with open(self.path(name), "rb") as file:
            return file.read()

    @unittest.skipUnless(jsonschema, "python3-jsonschema is not installed")
    def test_json(self):
        schema = json.loads(analyze("report", "--json-schema").stdout)
        report = json.loads(self.report("r.json", "--steps"))
        validator = jsonschema.Draft202012Validator(forbid_unknown_keys(schema))
        self.assertEqual([f"{e.json_path}: {e.message[:200]}" for e in validator.iter_errors(report)], [])
        self.assertEqual(report["session"]["file"], self.recording)
        self.assertEqual(len(report["step_table"]), report["steps"])
        self.assertEqual(report["checkpoints"] and len(report["checkpoints"]["items"]), 2)

    def test_extension_decides_and_format_wins(self):
        self.assertTrue(self.report("r.html").startswith(b"<!doctype html>"))
        self.assertEqual(self.report("r.pftrace")[:2], b"\x1f\x8b")
        self.assertEqual(self.report("r.perfetto.gz")[:2], b"\x1f\x8b")
        self.assertTrue(self.report("r.prom").endswith(b"# EOF\n"))
        self.assertIn(b"Measurement", self.report("r.txt"))
        self.assertIn(b"Measurement", self.report("r.html", "--format", "text"))
        self.assertIn(b"Measurement", self.report("r.unheard-of"))

    def test_page(self):
        raw = self.report("page.html")
        page = Page(raw.decode())
        self.assertEqual(page.open, [])
        data = json.loads(page.scripts[0])
        self.assertIn("trainer", [lane["name"] for lane in data["lanes"]])
        self.assertIn("worker 1", [lane["name"] for lane in data["lanes"]])
        self.assertGreater(len(data["wakes"]), 0)
        self.assertLess(len(raw), 1 << 20)

    def test_trace(self):
        packets = fields(gzip.decompress(self.report("t.pftrace")))
        self.assertGreater(len(packets), 200)

    def test_diff(self):
        done = analyze("diff", self.recording, self.recording)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"no clear difference in speed", done.stdout)
        done = analyze("diff", self.recording, self.recording, "--json")
        self.assertEqual(json.loads(done.stdout)["differences"], [])

    def test_output_appears_whole_or_not_at_all(self):
        old = self.report("old.html", "--format", "text")

        def no_space():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing fails instead of ending the process, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
        done = analyze("report", self.recording, "-o", self.path("old.html"), "--format", "html", preexec_fn=no_space)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"old.html", done.stderr)
        with open(self.path("old.html"), "rb") as file:
            self.assertEqual(file.read(), old)
        self.assertEqual([name for name in os.listdir(self.folder) if ".tmp-" in name], [])

    def test_bad_input(self):
        for arguments, code, words in (
                (("report", self.recording, "--format", "pdf"), 2, b"pdf"),
                (("report", self.recording, "-o", "/nowhere/r.html"), 1, b"/nowhere/r.html"),
                (("report", self.path("missing.db")), 1, b"missing.db"),
                (("report", TRAIN), 1, b"train.py"),
                (("diff", self.recording), 2, b"two recordings"),
                (("diff", self.recording, self.path("missing.db")), 1, b"missing.db")):
            done = analyze(*arguments)
            self.assertEqual(done.returncode, code, arguments)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stdout, b"")

    def test_binary_is_not_for_a_terminal(self):
        ours, theirs = pty.openpty()
        done = subprocess.run([ANALYZE, "report", self.recording, "--format", "perfetto"], stdout=theirs,
                              stderr=subprocess.PIPE, timeout=60)
        os.close(ours)
        os.close(theirs)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"-o", done.stderr)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(BIN, "report_sample")):
        print("report_sample was not built")
        raise SystemExit(77)
    unittest.main()
