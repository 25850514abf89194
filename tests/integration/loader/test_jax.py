# SPDX-License-Identifier: Apache-2.0
"""Tests diesel_loader.numpy.DataLoader with JAX: batches, and ranks. Skipped where JAX, which is on PyPI, is not installed."""
import importlib.util
import json
import socket
import subprocess
import sys
import unittest
import warnings

# Imported first: adds the path of the other modules, and skips where modules are missing.
from loader_support import EQUAL, LoaderCase, flat, numpy, support

if not importlib.util.find_spec("jax"):
    support.skip("needs jax, which is on PyPI")
import jax

# Arguments: dataset, port of the coordinator, rank. The output fits a pipe, as each process waits for the other before it ends.
JOB = """
import json, sys, jax, diesel_loader.numpy as diesel
loader = diesel.DataLoader(sys.argv[1], 16, shuffle=True, seed=3)
before = loader.world_size
jax.distributed.initialize("127.0.0.1:" + sys.argv[2], 2, int(sys.argv[3]))
batches = [data for data, _ in loader]
print(json.dumps([before, loader.rank, loader.world_size, len(loader), [bytes(x[:16]).hex() for data in batches for x in data]]))
jax.distributed.shutdown()
"""


def halves(data):
    return data[:EQUAL // 2].astype(numpy.float32)


@jax.jit
def mean(data):
    return data.astype("float32").mean(axis=1)


class Jax(LoaderCase):
    def test_a_jitted_step(self):
        loader = self.loader()
        for data, labels in loader:
            want = data.astype(numpy.float32).mean(axis=1)
            self.assertTrue(numpy.allclose(mean(data), want))
            on_device = jax.device_put(data)
            self.assertEqual((on_device.shape, on_device.dtype), (data.shape, data.dtype))
            self.assertEqual(jax.numpy.asarray(labels).tolist(), labels.tolist())

    def test_batches_on_a_device_stay_when_the_loader_goes_on(self):
        want = self.loader()
        kept = [(jax.device_put(data), labels) for data, labels in self.loader()]
        self.assertEqual(flat((numpy.asarray(data), labels) for data, labels in kept), flat(want))

    def test_workers_without_a_fork_of_jaxs_threads(self):
        mean(numpy.ones((2, 2)))  # starts JAX's threads
        plain = [data for data, _ in self.loader(transform=halves, num_workers=0)]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # makes JAX's warning of a fork an error
            got = [data for data, _ in self.loader(transform=halves, num_workers=2, multiprocessing_context="spawn")]
        self.assertTrue(all(map(numpy.array_equal, got, plain)))

    def test_ranks_are_those_of_jax_distributed(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        jobs = [subprocess.Popen([sys.executable, "-c", JOB, self.sets["equal"], str(port), str(rank)], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in range(2)]
        told = []
        for job in jobs:
            out, err = job.communicate(timeout=120)
            self.assertEqual(job.returncode, 0, err)
            told.append(json.loads(out.splitlines()[-1]))
        self.assertEqual([t[:3] for t in told], [[1, 0, 2], [1, 1, 2]])
        self.assertEqual(told[0][3], told[1][3])
        self.assertEqual(sorted(told[0][4] + told[1][4]), sorted(data[:16].hex() for data, _ in flat(self.loader())))


if __name__ == "__main__":
    unittest.main()
