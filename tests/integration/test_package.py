# SPDX-License-Identifier: Apache-2.0
"""Tests the Debian package: made, installed in a throw-away root over this machine's, used there, removed again."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import hardening

BUILD = os.path.dirname(os.environ.get("DIESEL_BIN", "build/release/bin"))

# Runs in a mount namespace of its own. $1: scratch, $2: package. Files that dpkg changes are in $1/upper.
INSIDE = r"""
set -e
cd "$1"
mount -t tmpfs tmpfs "$1"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
cp "$2" root/tmp/diesel.deb
for folder in proc dev; do mount --rbind /$folder root/$folder; done
mkdir -p root/run/diesel
rm -f root/var/lib/man-db/auto-update # the index of all of this machine's manual pages is not the subject
chroot root /bin/sh -e -c '
    dpkg -i /tmp/diesel.deb >&2
    diesel-analyze --version && dieseld --version && dieselctl --version && diesel-top --version
    dieseld --check-config --config /etc/diesel/dieseld.conf
    mkdir -p /tmp/in/class && echo 1 >/tmp/in/class/a && echo 2 >/tmp/in/class/b
    dieselctl pack /tmp/in /tmp/out.diesel >/dev/null 2>&1
    dieseld --socket /run/diesel/test.sock --metrics off & daemon=$!
    for i in $(seq 100); do [ -S /run/diesel/test.sock ] && break; sleep 0.1; done
    DIESEL_SOCKET=/run/diesel/test.sock DIESEL_LIB= PYTHONPATH= /usr/bin/python3 -c "
import diesel_loader
print(len(diesel_loader.Dataset(\"/tmp/out.diesel\")), \"samples\")"
    kill $daemon; wait $daemon
    echo "# mine" >>/etc/diesel/dieseld.conf
    dpkg -r diesel >&2
    ls /etc/diesel /usr/bin/dieseld 2>&1 || true
    dpkg -P diesel >&2
    ls /etc/diesel 2>&1 || true
'
"""


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="diesel-package-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        done = subprocess.run(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", cls.folder],
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        cls.package, = glob.glob(os.path.join(cls.folder, "*.deb"))

    def test_contents(self):
        listing = subprocess.run(["dpkg-deb", "-c", self.package], capture_output=True, text=True, check=True).stdout
        for name in ("usr/bin/dieseld", "usr/bin/diesel-analyze", "usr/bin/dieselctl", "usr/bin/diesel-top", "libdiesel.so.0",
                     "dist-packages/diesel_loader/torch.py", "diesel_loader/version", "diesel_loader/_abi.py", "diesel_loader/py.typed", "man8/dieseld.8", "man1/diesel-analyze.1", "man1/diesel-analyze-record.1",
                     "systemd/system/dieseld.service", "completions/diesel-analyze", "man1/dieselctl.1", "man1/dieselctl-pack.1", "man1/dieselctl-why.1", "vendor-completions/_dieselctl", "etc/diesel/dieseld.conf", "doc/diesel/how-to/operating.md",
                     "doc/diesel/troubleshooting/by-symptom.md", "doc/diesel/explanation/tuning/cost.svg"):
            self.assertIn(name, listing)
        self.assertNotIn(" 2000/", listing)
        self.assertNotIn("test_", listing)

    def test_programs_and_library_are_hardened(self):
        top = os.path.join(self.folder, "unpacked")
        subprocess.run(["dpkg-deb", "-x", self.package, top], check=True)
        seen = set()
        for folder, _, names in os.walk(top):
            for path in (os.path.join(folder, name) for name in names):
                if os.path.islink(path):
                    continue
                with open(path, "rb") as file:
                    data = file.read()
                if hardening.is_elf(data):
                    seen.add(os.path.basename(path).split(".")[0])
                    self.assertEqual(hardening.problems(data), [], path)
        self.assertEqual(seen, {"dieseld", "dieselctl", "diesel-analyze", "diesel-top", "libdiesel"})

    def test_install_use_remove(self):
        scratch = os.path.join(self.folder, "scratch")
        os.mkdir(scratch)
        done = subprocess.run(["unshare", "--mount", "/bin/sh", "-c", INSIDE, "inside", scratch, self.package],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
        if "permission denied" in done.stderr.lower() and "mount" in done.stderr:
            self.skipTest("no overlay can be mounted here")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stdout.splitlines()
        self.assertRegex(lines[0], r"diesel-analyze \d+\.\d+")
        self.assertIn("the configuration is valid", lines)
        self.assertIn("2 samples", lines)
        # After remove, the program is gone and the configuration stays; after purge, that is gone, too.
        self.assertIn("dieseld.conf", lines)
        self.assertEqual(sum("cannot access '/usr/bin/dieseld'" in line for line in lines), 1)
        self.assertIn("cannot access '/etc/diesel'", lines[-1])


if __name__ == "__main__":
    for program in ("cpack", "dpkg-deb", "unshare"):
        if not shutil.which(program):
            print(f"skipped: there is no {program}")
            sys.exit(77)
    if os.geteuid() != 0:
        print("skipped: installing a package takes root")
        sys.exit(77)
    unittest.main(verbosity=2)
