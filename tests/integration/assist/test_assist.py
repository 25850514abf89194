# SPDX-License-Identifier: Apache-2.0
"""Tests dieseld --assist next to real PyTorch jobs that do not use it."""
import json
import re
import subprocess
import sys
import urllib.request

import assist_support
import dieseld_support as support
from assist_support import FILES, JOB, SOMEBODY, wait_for


class Assist(assist_support.Case):
    def test_files_come_before_the_job_and_with_its_rights(self):
        address = f"127.0.0.1:{support.free_port()}"
        daemon = self.daemon("--assist", "--history", "off", "--metrics", address)
        process = self.job(self.mirror().mount)
        told = self.state(daemon, process, "helps", "rests", "stopped")
        self.assertEqual(told["state"], "helps", told)
        self.assertEqual((told["uid"], told["misses"], told["failed"]), (SOMEBODY, 0, 0))
        self.assertGreater(told["known_samples"], FILES * 3 // 4)  # dieseld tries as soon as it knows all batches except an eighth
        self.assertGreater(told["bytes_read_ahead"], 0)
        readers = self.readers(daemon, SOMEBODY)
        self.assertEqual(len(readers), 1)
        status = (readers[0] / "status").read_text()
        self.assertEqual(set(re.search(r"Uid:\s*(.*)", status)[1].split()), {str(SOMEBODY)})
        self.assertEqual(set(re.search(r"Gid:\s*(.*)", status)[1].split()), {str(SOMEBODY)})
        self.assertEqual(re.search(r"Groups:[ \t]*(.*)", status)[1].strip(), "")
        for kind in ("CapPrm", "CapEff"):
            self.assertEqual(int(re.search(rf"{kind}:\s*(\w+)", status)[1], 16), 0)
        why = subprocess.run([support.CTL, "why", "--socket", daemon.socket], capture_output=True, text=True, check=True).stdout
        self.assertIn(f"process {process.pid} (", why)
        self.assertIn("prefetch helps: a batch takes ", why)
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
            metrics = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if not line.startswith("#"))
        self.assertGreaterEqual(int(metrics['diesel_assist_jobs{state="helps"}']), 1)
        self.assertGreaterEqual(int(metrics["diesel_assist_bytes_total"]), told["bytes_read_ahead"])
        process.stdin.close()
        process.wait()
        wait_for("the end of its reader", lambda: not readers[0].exists(), daemon)
        self.assertIsNone(self.of(daemon, process))

    def test_who_only_observes_says_what_is_waited_for_and_reads_nothing(self):
        daemon = self.daemon("--assist", "--observe", "--history", "off")
        process = self.job(self.mirror().mount)
        told = self.state(daemon, process, "helps", "rests", "tries", "stopped")
        self.assertEqual((told["state"], told["bytes_read_ahead"]), ("rests", 0), told)
        self.assertRegex(told["why"], r"wait for files \d+ % of the time: dieseld would try prefetch")

    def test_a_job_that_computes_is_left_alone(self):
        daemon = self.daemon("--assist", "--history", "off")
        process = self.job(self.folder, work=2000, cache="warm")
        told = self.state(daemon, process, "rests", "helps", "stopped")
        self.assertEqual(told["state"], "rests", told)

    def test_a_job_whose_indices_lie_is_given_up(self):
        daemon = self.daemon("--assist", "--history", "off")
        process = self.job(self.mirror().mount, kind="other")
        told = self.state(daemon, process, "stopped")
        self.assertIn("opens different files", told["why"])

    def test_a_process_with_rights_of_others_is_refused(self):
        daemon, slow = self.daemon("--assist", "--history", "off"), self.mirror()
        for who, change in (("user", f"os.setresuid({SOMEBODY}, {SOMEBODY}, 0)"), ("group", f"os.setresgid({SOMEBODY}, 0, 0)")):
            with self.subTest(who):
                command = [sys.executable, "-c", f"import os\n{change}\n{JOB}", slow.mount, "each", "0", "cold"]
                process = self.start(command)
                told = self.state(daemon, process, "stopped", "helps", "rests")
                self.assertIn("has the rights of several users or groups", told["why"])
                self.assertEqual(told["bytes_read_ahead"], 0)

    def test_other_users_jobs_are_not_shown(self):
        daemon = self.daemon("--assist", "--history", "off")
        process = self.job(self.mirror().mount)
        wait_for("the job", lambda: self.of(daemon, process), daemon)
        told = subprocess.run(["setpriv", "--reuid", "54322", "--regid", "54322", "--clear-groups", support.CTL, "why",
                               "--json", "--socket", daemon.socket], capture_output=True, text=True, check=True)
        self.assertEqual(json.loads(told.stdout)["assist"]["jobs"], [])

    def test_without_privilege_it_says_so(self):
        for bounding, text in (("-bpf,-sys_admin", "no privilege to load BPF programs"),):
            daemon = self.daemon("--assist", "--history", "off",
                                 prefix=lambda command, b=bounding: ["setpriv", "--bounding-set", b, *command])
            told = wait_for("why not", lambda d=daemon: self.assist(d)["problem"], daemon)
            self.assertIn(text, told)
            self.assertEqual(daemon.output().count("no files are prefetched"), 1)


if __name__ == "__main__":
    assist_support.main()
