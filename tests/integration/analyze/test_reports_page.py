# SPDX-License-Identifier: Apache-2.0
"""Tests the HTML report in a real browser: the script runs without an error and draws its content, and hostile text runs nothing. Skipped
where there is no Chromium."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = os.environ.get("DIESEL_BIN", "build/release/bin")
BROWSER = next((path for name in ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome",
                                                     "chrome")
                if (path := shutil.which(name))), None)


class InBrowser(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="diesel-page-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def load(self, kind, *flags, fragment=""):
        """Returns the document after its script ran, and the messages on the console."""
        path = os.path.join(self.folder, "report.html")
        with open(path, "wb") as file:
            subprocess.run([os.path.join(BIN, "report_sample"), "html", kind], stdout=file, check=True, timeout=120)
        done = subprocess.run(
            [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             f"--user-data-dir={self.folder}/profile", "--window-size=1200,900", "--virtual-time-budget=5000",
             "--enable-logging=stderr", "--v=0", *flags, "--dump-dom", "file://" + path + fragment],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace")[-2000:])
        console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
        return done.stdout.decode("utf-8"), console

    def test_everything_is_drawn(self):
        dom, console = self.load("full")
        self.assertEqual(console, [])
        self.assertRegex(dom, r'<html[^>]* class="js"')
        canvas = re.search(r'<canvas[^>]* width="(\d+)" height="(\d+)"', dom)
        self.assertTrue(canvas, "the timeline")
        self.assertGreater(int(canvas[1]), 800)
        self.assertGreater(int(canvas[2]), 250)
        self.assertEqual(dom.count('<div class="curve">'), 6)
        self.assertIn("jpeg_idct_islow: 40 %, 400 samples", dom)
        for button in ("All", "Typical steps", "Slowest step", "Longest checkpoint"):
            self.assertIn(f'<button type="button">{button}</button>', dom)

    def test_hostile_text_runs_nothing(self):
        dom, console = self.load("hostile")
        self.assertEqual(console, [])
        self.assertEqual(len(re.findall(r"<script", dom)), 2)
        self.assertIn("&lt;/script&gt;", dom)

    def test_parts_may_be_missing(self):
        for kind in ("bare", "insufficient"):
            dom, console = self.load(kind)
            self.assertEqual(console, [], kind)
            self.assertNotIn('class="curve"', dom)
            self.assertEqual("<canvas" in dom, kind == "bare", kind)

    def test_dark_and_zoomed(self):
        _, console = self.load("full", "--blink-settings=preferredColorScheme=0", fragment="#t=1.2-1.6")
        self.assertEqual(console, [])

    def test_long_recordings(self):
        dom, console = self.load("long")
        self.assertEqual(console, [])
        self.assertIn("<canvas", dom)


if __name__ == "__main__":
    if not BROWSER:
        print("no Chromium here")
        sys.exit(77)
    if not os.path.exists(os.path.join(BIN, "report_sample")):
        print("report_sample was not built")
        sys.exit(77)
    unittest.main()
