# SPDX-License-Identifier: Apache-2.0
"""Tests a job that srun starts on two nodes of a real Slurm (one machine, a slurmd each). Only Slurm tells ranks and nodes that they belong
together, and the two dieselds read each chunk once. The shipped prolog and epilog run with it.
"""
import collections
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "scontrol")
# Debian's packages put the programs for administrators into sbin.
os.environ["PATH"] += ":/usr/sbin:/sbin"
for program in PROGRAMS:
    if not shutil.which(program):
        print(f"skipped: needs {program} (Debian: slurm-wlm, munge)")
        sys.exit(77)

from nodes import Case, Node, servers, support, wait_until  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
NODES = ("node1", "node2")
N_EPOCHS = 2

CONF = """
ClusterName=diesel
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
PrologFlags=Alloc
Prolog={folder}/prolog
Epilog={folder}/epilog
NodeName=node1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=node2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=all Nodes=node1,node2 Default=YES State=UP
"""
# Each rank writes its samples to its own file. A step takes as long as the slower rank's, like in ranks that train together.
JOB = """
import hashlib, itertools, json, os, pathlib, sys, time
import diesel_loader.numpy as diesel
from diesel_loader import dataset as served

folder, path = pathlib.Path(sys.argv[1]), sys.argv[2]
rank, world = os.environ["SLURM_PROCID"], int(os.environ["SLURM_NTASKS"])

def meet(name):
    (folder / f"{name}.{rank}").touch()
    end = time.monotonic() + 60
    while not all((folder / f"{name}.{other}").exists() for other in range(world)):
        if time.monotonic() > end:
            sys.exit(f"rank {rank}: the other did not come to {name}")
        time.sleep(0.001)

dataset = served.Dataset(path, socket=str(folder / (os.environ["SLURMD_NODENAME"] + ".sock")))
loader = diesel.DataLoader(dataset, batch_size=16, shuffle=True, seed=5)

def is_wanted(epoch):
    # What rank 0 finds goes for both.
    if not sys.argv[3:]:
        return epoch < %d
    plan = folder / f"plan-{epoch}"
    if rank == "0":
        plan.write_text("" if pathlib.Path(sys.argv[3]).exists() else "on")
    meet(f"epoch-{epoch}")
    return plan.read_text() == "on"

had = []
for epoch in itertools.takewhile(is_wanted, itertools.count()):
    loader.set_epoch(epoch)
    had.append([])
    for step, (data, _) in enumerate(loader):
        had[-1] += [hashlib.blake2b(item, digest_size=16).hexdigest() for item in data]
        meet(f"{os.environ['SLURM_JOB_ID']}-{epoch}-{step}")
(folder / f"had.{rank}").write_text(json.dumps(had))
""" % N_EPOCHS


class Slurm:
    """Runs munged, slurmctld and a slurmd for each node, in a folder and on ports of their own."""

    def __init__(self, folder, prolog, epilog):
        self.folder, self.running = folder, []
        (folder / "munge").mkdir(mode=0o700)
        (folder / "state").mkdir()
        for node in NODES:
            (folder / f"spool-{node}").mkdir()
        (folder / "munge/key").write_bytes(os.urandom(1024))
        (folder / "munge/key").chmod(0o400)
        self.script("prolog", prolog)
        self.script("epilog", epilog)
        ports = [servers.free_port() for _ in range(3)]
        (folder / "slurm.conf").write_text(CONF.format(folder=folder, ports=ports, host=socket.gethostname().split(".")[0],
                                                       user=pwd.getpwuid(os.getuid()).pw_name))
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "DIESEL_SOCKET", "TORCHELASTIC"))}
        self.env.pop("LOCAL_WORLD_SIZE", None)
        self.env["SLURM_CONF"] = str(folder / "slurm.conf")

    def script(self, name, text):
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def run(self, *command):
        log = (self.folder / f"{command[0]}.said").open("a")
        self.running.append(subprocess.Popen(command, env=self.env, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        log.close()

    def start(self):
        munge = self.folder / "munge"
        self.run("munged", "--foreground", "--force", "--num-threads=10", f"--key-file={munge}/key", f"--socket={munge}/socket",
                 f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed")
        wait_until("munged", (munge / "socket").exists)
        self.run("slurmctld", "-D", "-f", self.env["SLURM_CONF"])
        for node in NODES:
            self.run("slurmd", "-D", "-N", node, "-f", self.env["SLURM_CONF"])
        wait_until("nodes that are idle", lambda: self.command("sinfo", "-h", "-N", "-o", "%N %T").stdout.split("\n")[:2] ==
                   [f"{node} idle" for node in NODES])

    def command(self, *words):
        return subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=180, check=False)

    def stop(self):
        for process in reversed(self.running):
            process.terminate()
        for process in reversed(self.running):
            process.wait(timeout=60)

    def said(self):
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}"
                         for path in [*self.folder.glob("*.log"), *self.folder.glob("*.said")])


def shipped(name, folder):
    """Runs packaging/slurm's own script, with the programs that were built here, and each node's socket and folder."""
    text = (ROOT / f"packaging/slurm/{name}.sh").read_text()
    text, n = re.subn(r"(?m)^PATH=.*$", f"PATH={support.BIN}:/usr/bin:/bin:/usr/sbin:/sbin", text)
    assert n == 1
    settings = f"export DIESEL_SOCKET={folder}/$SLURMD_NODENAME.sock DIESEL_EPILOG_FOLDER={folder}/reports-$SLURMD_NODENAME\n"
    return text.replace("set -u\n", "set -u\n" + settings + f"echo {name} $SLURM_JOB_ID $SLURMD_NODENAME >>{folder}/ran\n", 1)


class Srun(Case):
    n_samples = 640

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.slurm = Slurm(self.folder, shipped("prolog", self.folder), shipped("epilog", self.folder))
        self.addCleanup(self.slurm.stop)
        self.slurm.start()
        (self.folder / "train.py").write_text(JOB)

    def srun_words(self, *more):
        return ["srun", "--nodes", "2", "--ntasks", "2", "--kill-on-bad-exit", sys.executable, str(self.folder / "train.py"), str(self.folder),
                str(self.path), *more]

    def srun(self, *settings):
        """Runs a job with a rank on each node, like a script of sbatch."""
        return self.slurm.command("env", *settings, *self.srun_words())

    def had(self):
        return [json.loads((self.folder / f"had.{rank}").read_text()) for rank in range(2)]

    def test_two_nodes_of_a_job_read_each_chunk_once(self):
        key = self.folder / "cluster.key"
        key.write_bytes(os.urandom(16).hex().encode())
        key.chmod(0o400)
        nodes = [Node(self.redis.url(""), name, "--cluster-key", str(key), socket=str(self.folder / f"{name}.sock")) for name in NODES]
        for node in nodes:
            self.addCleanup(node.daemon.stop)
        done = self.srun("WORLD_SIZE=2")
        self.assertEqual(done.returncode, 0, done.stderr + self.slurm.said())
        for epoch in range(N_EPOCHS):
            got = collections.Counter(text for rank in self.had() for text in rank[epoch])
            self.assertEqual(got, collections.Counter({data.hex(): n for data, n in self.want.items()}), epoch)
        statuses = [node.status() for node in nodes]
        self.assertEqual(sum(status["cache"]["reads"] for status in statuses), self.n_chunks, statuses)
        for status in statuses:  # each node has a lane, and sends the chunk that lies in both lanes to the other
            self.assertLessEqual(abs(2 * status["cache"]["reads"] - self.n_chunks), 2, status)
        self.assertLessEqual(sum(status["cluster"]["chunks_in"] for status in statuses), 1, statuses)
        self.the_prolog_and_epilog_ran()
        # The loader refuses if no variables show that the tasks are ranks of one job, as it would give everything to each of them.
        refused = self.srun()
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("srun started 2 tasks", refused.stderr)
        self.daemons_that_are_stopped_drain_no_node(nodes)

    def test_a_job_goes_on_while_its_nodes_are_drained_and_upgraded(self):
        """Restarts one node after the other while their job runs, as in docs/how-to/upgrade.md."""
        nodes = [Node(self.redis.url(""), name, socket=str(self.folder / f"{name}.sock")) for name in NODES]
        for node in nodes:
            self.addCleanup(node.daemon.stop)
        enough = self.folder / "enough"
        job = subprocess.Popen(self.srun_words(str(enough)), env={**self.slurm.env, "WORLD_SIZE": "2"}, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)
        self.addCleanup(job.communicate)
        self.addCleanup(job.kill)

        def goes_on(node):
            self.assertIsNone(job.poll())
            return any(session["delivered"] > 5 for session in node.status()["sessions"])

        for name, node in zip(NODES, nodes):
            wait_until("batches", lambda node=node: goes_on(node))
            self.assertEqual(self.slurm.command("scontrol", "update", f"NodeName={name}", "State=DRAIN", "Reason=upgrade").returncode, 0)
            self.assertIn("drain", self.slurm.command("sinfo", "-h", "-n", name, "-o", "%T").stdout)
            node.daemon.stop()
            node.daemon.start()
            wait_until("batches of the new daemon", lambda node=node: goes_on(node))
            self.assertEqual(self.slurm.command("scontrol", "update", f"NodeName={name}", "State=RESUME").returncode, 0)
        enough.touch()
        said = job.communicate(timeout=120)[1]
        self.assertEqual(job.returncode, 0, said + self.slurm.said())
        for epoch in zip(*self.had()):
            got = collections.Counter(text for rank in epoch for text in rank)
            self.assertEqual(got, collections.Counter({data.hex(): n for data, n in self.want.items()}))
        wait_until("nodes that are idle", lambda: self.slurm.command("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle", "idle"])

    def daemons_that_are_stopped_drain_no_node(self, nodes):
        for node in nodes:
            node.daemon.process.send_signal(signal.SIGSTOP)
            self.addCleanup(node.daemon.process.send_signal, signal.SIGCONT)
        done = self.slurm.command("srun", "--nodes", "2", "true")
        self.assertEqual(done.returncode, 0, done.stderr + self.slurm.said())
        wait_until("an epilog on each node", lambda: (self.folder / "ran").read_text().count("epilog") == 6)
        wait_until("nodes that are idle", lambda: self.slurm.command("sinfo", "-h", "-N", "-o", "%T").stdout.split() == ["idle", "idle"])

    def the_prolog_and_epilog_ran(self):
        ran = self.folder / "ran"
        wait_until("an epilog on each node", lambda: ran.read_text().count("epilog") == 2)
        job = ran.read_text().split()[1]
        self.assertEqual(sorted(ran.read_text().splitlines()), sorted(f"{what} {job} {node}" for what in ("prolog", "epilog") for node in NODES))
        for node in NODES:
            folder = self.folder / f"reports-{node}"
            report = wait_until(f"a report of {node}", lambda: next(iter(folder.glob(f"job-{job}-*.txt")), None))
            wait_until("bytes from other nodes in the report", lambda: "received from others" in report.read_text())
        states = self.slurm.command("sinfo", "-h", "-N", "-o", "%N %T").stdout
        self.assertNotIn("drain", states)


if __name__ == "__main__":
    unittest.main(verbosity=2)
