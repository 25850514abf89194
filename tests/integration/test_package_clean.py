# SPDX-License-Identifier: Apache-2.0
"""Tests the Debian package on a node with nothing else: installed from the archive's dependencies, booted with systemd, used, upgraded,
removed and purged there."""
import glob
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import clean_root

BUILD = os.path.dirname(os.environ.get("DIESEL_BIN", "build/release/bin"))
HERE = os.path.dirname(os.path.abspath(__file__))

# Runs in the root, before it boots, like an administrator.
INSTALL = r"""
set -e
cp "$1" tmp/diesel.deb; cp "$1" first.deb; cp "$2" next.deb; cp "$3" check.sh
mount --rbind /proc proc
chroot . /bin/sh -e -c '
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends python3-minimal libpython3-stdlib >/install.log 2>&1 &&
        sh -e -c "$1" >>/install.log 2>&1 || { cat /install.log; exit 1; }
    echo "== container"
    mkdir /run/diesel
    $2 2>&1 & daemon=$!
    for i in $(seq 300); do [ -S /run/diesel/dieseld.sock ] && break; sleep 0.1; done
    dieselctl status
    kill $daemon; wait $daemon && echo "ended well"
' container "$4" "$5"
umount -l proc
cat >etc/systemd/system/check.service <<END
[Unit]
After=multi-user.target
[Service]
Type=oneshot
StandardOutput=file:/check.out
StandardError=inherit
ExecStart=/bin/bash /check.sh
ExecStopPost=/bin/systemctl poweroff --force --no-block
[Install]
WantedBy=default.target
END
chroot . systemctl enable --quiet check.service
systemd-nspawn --quiet --boot --directory=. --register=no --keep-unit --machine=diesel-clean-$$ --private-network \
    --capability=CAP_BPF,CAP_PERFMON,CAP_SYS_PTRACE,CAP_DAC_READ_SEARCH \
    --system-call-filter="bpf perf_event_open openat2 @io-event io_uring_setup io_uring_enter io_uring_register" \
    >boot.log 2>&1 </dev/null || { cat boot.log; exit 1; }
[ -s check.out ] || { tail -50 boot.log; exit 1; }
cat check.out
"""


def image(instruction):
    """Returns the arguments of an instruction in the Dockerfile: a shell's line, or words from JSON."""
    with open(os.path.join(HERE, "../../packaging/kubernetes/Dockerfile")) as file:
        text = re.search(rf"(?m)^{instruction} ((?:.*\\\n)*.*)$", file.read())[1].replace("\\\n", " ")
    return json.loads(text) if text.startswith("[") else text


class CleanRoot(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="diesel-clean-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        tar = clean_root.base(os.path.join(os.path.abspath(BUILD), "cleanroot.tar"))
        packages = cls.make_packages()
        root = os.path.join(cls.folder, "root")
        os.mkdir(root)
        done = clean_root.run(root, tar, ["/bin/sh", "-c", INSTALL, "install", *packages,
                                          os.path.join(HERE, "package_clean.sh"), image("RUN"),
                                          " ".join(image("ENTRYPOINT") + image("CMD"))], timeout=280)
        assert done.returncode == 0, done.stdout + done.stderr
        print(done.stdout)
        cls.said = dict(re.findall(r"^== (\S+)\n(.*?)(?=^== |\Z)", done.stdout, re.M | re.S))

    @classmethod
    def make_packages(cls):
        """Makes the package, and the same with a higher version."""
        made = subprocess.run(["cpack", "--config", os.path.join(BUILD, "CPackConfig.cmake"), "-B", cls.folder, "-D", "CPACK_PACKAGE_VERSION=0.1.0"],
                              capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
        package, = glob.glob(os.path.join(cls.folder, "*.deb"))
        parts, newer = os.path.join(cls.folder, "parts"), os.path.join(cls.folder, "newer.deb")
        subprocess.run(["dpkg-deb", "--raw-extract", package, parts], check=True)
        with open(os.path.join(parts, "DEBIAN/control"), "r+") as file:
            control = file.read()
            assert "\nVersion: 0.1.0\n" in control, control
            file.seek(0)
            file.write(control.replace("\nVersion: 0.1.0\n", "\nVersion: 0.1.1\n"))
        subprocess.run(["dpkg-deb", "-Znone", "--build", parts, newer], stdout=subprocess.DEVNULL, check=True)
        return package, newer

    def section(self, name):
        self.assertIn(name, self.said, "the check ended before")
        return self.said[name]

    def test_the_steps_of_the_container_image(self):
        """No image builder is needed: the Dockerfile's RUN installed this root, and its ENTRYPOINT and CMD ran in it."""
        self.assertEqual((image("ARG"), image("FROM")), (f"BASE=debian:{clean_root.SUITE}-slim", "${BASE}"))
        self.assertEqual(image("COPY"), "diesel.deb /tmp/diesel.deb")
        said = self.section("container")
        self.assertIn("ready on /run/diesel/dieseld.sock", said)
        self.assertIn("0 jobs", said)
        self.assertIn("ended well", said)

    def test_programs(self):
        said = self.section("programs")
        for program in ("diesel-analyze", "diesel-top", "dieseld", "dieselctl"):
            self.assertRegex(said, rf"(?m)^{program} \d+\.\d+\.\d+$")
        self.assertNotIn("not found", said)

    def test_the_service_runs_as_itself_with_what_it_needs(self):
        said = self.section("service")
        self.assertIn("ActiveState=active", said)
        self.assertIn("StatusText=serving on /run/diesel/dieseld.sock", said)
        self.assertRegex(said, r"(?m)^Uid:\s+([1-9]\d*)\s+\1\s+\1\s+\1$")
        self.assertRegex(said, r"(?m)^NoNewPrivs:\s+1$")
        # The daemon and its fork server keep only CAP_DAC_READ_SEARCH; the measuring child also keeps the capabilities for that.
        own, *children = re.findall(r"(?m)^CapEff:\s+(\w+)$", said)
        self.assertEqual(own, "0000000000000004")
        self.assertEqual(dict(zip(re.findall(r"(?m)^Name:\s+(\S+)$", said), children)),
                         {"dieseld-ksensor": "000000c000080004", "dieseld-forks": "0000000000000004"})
        self.assertRegex(said, r"(?m)^drwxr-x--- diesel diesel /var/lib/diesel$")
        self.assertRegex(said, r"(?m)^drwxr-xr-x diesel diesel /run/diesel$")

    def test_a_user_is_served_and_a_stranger_is_not(self):
        self.assertIn("2 samples", self.section("use"))
        self.assertIn("Permission denied", self.section("stranger"))

    def test_what_the_unit_takes_away_is_not_missed(self):
        said = self.section("confined")
        self.assertIn("links: lo\n", said)
        self.assertIn("homes: 0\n", said)
        limit, swap, memory = map(int, re.search(r"(?m)^memory: (\d+) (\d+) of (\d+)$", said).groups())
        self.assertAlmostEqual(limit / (1024 * memory), 0.9, places=2)
        self.assertEqual(swap, 0)
        self.assertIn("2 samples\n", said)
        self.assertIn("Permission denied", said)
        self.assertRegex(said, "waits are measured by BPF|this kernel has no BTF")

    def test_metrics_come_by_a_socket_of_the_managers(self):
        said = self.section("metrics").splitlines()
        self.assertEqual([line for line in said if "told" in line], 4 * ["1 told"])
        self.assertIn("stopped and asked: inactive", said)
        self.assertTrue([line for line in said if "metrics are not served on 127.0.0.1:9468" in line], said)
        self.assertTrue([line for line in said if "start dieseld-metrics.socket" in line], said)

    def test_a_node_that_shares_has_a_network(self):
        said = self.section("shared")
        self.assertIn("listening\n", said)
        self.assertIn("1 told", said)

    def test_reload_and_a_mistake(self):
        said = self.section("reload")
        self.assertIn("prefetch 3 chunks", said)
        self.assertIn("dieseld.conf:2:12: prefetch", said)
        self.assertIn("still active", said)

    def test_it_is_back_after_a_crash(self):
        self.assertIn("another process, active", self.section("crash"))

    def test_chunks_outlive_a_crash_and_a_restart_and_not_a_stop(self):
        said = self.section("carried")
        for line in ("first: reads 1 restored 0", "stored: 3", "killed: reads 0 restored 1",
                     "restarted: reads 0 restored 1", "stored when stopped: 0", "stopped: reads 1 restored 0"):
            self.assertIn(line + "\n", said)

    def test_upgrade_and_rollback_keep_the_job_the_configuration_and_the_history(self):
        said = self.section("upgrade")
        self.assertEqual(said.count("another process, active\n"), 2, said)
        for version in ("before", "0.1.1", "0.1.0"):
            self.assertIn(f"{version}: the job goes on\n", said)
        self.assertIn("\neach sample once in each epoch\n", said)
        self.assertRegex(said, r"\d+ chunks? \(.*\) restored after the restart")
        self.assertEqual(said.count("setting   workers-max: 1, set by uid 0"), 2, said)
        self.assertIn("# mine", said)
        self.assertIn("kept.db", said)

    def test_remove_and_purge(self):
        said = self.section("remove")
        self.assertIn("no program", said)
        self.assertIn("no process", said)
        self.assertIn("/etc/diesel/dieseld.conf", said)
        said = self.section("purge")
        for what in ("/etc/diesel", "/var/lib/diesel", "/run/diesel", "user", "unit"):
            self.assertIn(f"no {what}\n", said)

    def test_slurm(self):
        said = self.section("slurm")
        self.assertIn("stopped: prolog 0, inactive\n", said)
        self.assertIn("before: failed\n", said)
        self.assertIn("dieseld has failed: starting it", said)
        self.assertIn("prolog 0, active", said)
        self.assertIn("epilog 0", said)
        self.assertRegex(said, r"(?m)^-rw------- /var/log/diesel/job-7-")

    def test_sandbox(self):
        said = self.section("security")
        exposure = float(re.search(r"exposure level for dieseld.service: ([\d.]+)", said).group(1))
        self.assertLessEqual(exposure, 1.5, said)


if __name__ == "__main__":
    for program in ("cpack", "dpkg-deb"):
        if not shutil.which(program):
            clean_root.skip(f"there is no {program}")
    clean_root.require()
    unittest.main(verbosity=2)
