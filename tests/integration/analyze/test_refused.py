# SPDX-License-Identifier: Apache-2.0
"""Tests a kernel that refuses some of the recorder's programs. It is this kernel, with type information that lacks a field: where a field
is missing, the verifier refuses the instruction."""
import json
import os
import subprocess
import tempfile
import unittest

import exact
import recording_file

ANALYZE = exact.ANALYZE


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


class Refused(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="diesel-refused-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def btf_without(self, *fields):
        with open("/sys/kernel/btf/vmlinux", "rb") as file:
            data = file.read()
        for field in fields:
            name = f"\0{field}\0".encode()
            self.assertIn(name, data)
            data = data.replace(name, name[:-2] + b"_\0")
        path = os.path.join(self.folder, "btf")
        with open(path, "wb") as file:
            file.write(data)
        return path

    def check(self, *fields):
        btf = self.btf_without(*fields)
        text = run(ANALYZE, "check", "--btf", btf)
        found = json.loads(run(ANALYZE, "check", "--json", "--btf", btf).stdout)
        return text.stdout, found, {finding["name"]: finding for finding in found["findings"]}

    def test_what_is_not_required_is_left_out(self):
        text, found, findings = self.check("fsbase", "PG_head")
        self.assertEqual(found["mode"], "exact", text)
        for program, field, lost in (("sample_cpu", "thread.fsbase", "stack samples"),
                                     ("mm_filemap_add_to_page_cache", "pageflags::PG_head", "bytes read from storage")):
            finding = findings["program " + program]
            self.assertEqual(finding["state"], "limited")
            self.assertRegex(finding["detail"], rf"failed to resolve CO-RE relocation .*{field}\b.*lost: {lost}")
            self.assertIn("known good: Linux 5.15", finding["advice"])
        self.assertRegex(text, "(?m)^refused +mm_filemap_add_to_page_cache +lost: bytes read from storage")
        self.assertEqual([hook["name"] for hook in found["hooks"] if hook["refused"]], ["mm_filemap_add_to_page_cache"])
        self.assertEqual(findings["profile"]["state"], "limited")
        self.assertRegex(text, r"(?m)^ok +sched_switch ")

    def test_a_recording_goes_on_and_says_so(self):
        path = os.path.join(self.folder, "s.db")
        done = run(ANALYZE, "record", "--btf", self.btf_without("PG_head"), "-o", path, "--", "true")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("refused the BPF program mm_filemap_add_to_page_cache (failed to resolve CO-RE relocation", done.stderr)
        info = recording_file.Recording(path).info
        self.assertNotEqual(info.get("sampled"), "1")
        self.assertIn("mm_filemap_add_to_page_cache", info["hooks_missing"].split())

    def test_what_is_required_is_named(self):
        text, found, findings = self.check("orig_ax")
        self.assertNotEqual(found["mode"], "exact")
        self.assertEqual(findings["recorder"]["state"], "failed")
        self.assertRegex(findings["recorder"]["detail"], r"refused the recorder's program \w+: failed to resolve CO-RE .*pt_regs.orig_ax")
        self.assertNotIn("privilege to load", text)
        self.assertNotIn("see the lines above", text)
        self.assertIn("known good: Linux 5.15", findings["recorder"]["advice"])

    def test_here_none_is_refused(self):
        found = json.loads(run(ANALYZE, "check", "--json").stdout)
        self.assertEqual([finding["name"] for finding in found["findings"] if finding["name"].startswith("program")], [])


if __name__ == "__main__":
    exact.main()
