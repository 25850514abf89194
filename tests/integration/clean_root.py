# SPDX-License-Identifier: Apache-2.0
"""A Debian with only its base system, booted with systemd and thrown away afterwards.

debootstrap makes it once (in the build folder; delete the file cleanroot.tar there to make it again).
"""
import os
import shutil
import subprocess
import sys

SUITE = "bookworm"
INCLUDE = "systemd,systemd-sysv,ca-certificates"
NEEDED = ("debootstrap", "systemd-nspawn", "unshare", "tar")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def require():
    for program in NEEDED:
        if not shutil.which(program):
            skip(f"there is no {program}")
    if os.geteuid() != 0:
        skip("a root of its own takes root")


def base(cache):
    """Returns the tar of the base system, which it makes if there is none. Skips the test if there is no archive to make it from."""
    if os.path.exists(cache):
        return cache
    folder, log = cache + ".making", cache + ".log"
    shutil.rmtree(folder, ignore_errors=True)
    with open(log, "w") as file:
        done = subprocess.run(["debootstrap", "--variant=minbase", f"--include={INCLUDE}", SUITE, folder], stdout=file,
                              stderr=subprocess.STDOUT, check=False)
    if done.returncode:
        with open(log) as file:
            last = file.read().strip().splitlines()[-1:]
        shutil.rmtree(folder, ignore_errors=True)
        skip(f"debootstrap cannot make a {SUITE}: {''.join(last)}; see {log}")
    subprocess.run(["tar", "-C", folder, "--exclude=./var/cache/apt/archives/*.deb", "-cf", cache + ".new", "."],
                   check=True)
    os.rename(cache + ".new", cache)
    shutil.rmtree(folder)
    return cache


# Runs in a mount namespace of its own. $1: a folder, $2: the tar. Then runs $3... with the root as working directory.
INSIDE = r"""
set -e
mount -t tmpfs -o size=2g,mode=755 clean "$1"
tar -C "$1" -xf "$2"
cp /etc/resolv.conf "$1/etc/resolv.conf"
cd "$1"
shift 2
exec "$@"
"""


def run(folder, tar, command, **more):
    return subprocess.run(["unshare", "--mount", "/bin/sh", "-c", INSIDE, "inside", folder, tar, *command], text=True,
                          capture_output=True, check=False, **more)
