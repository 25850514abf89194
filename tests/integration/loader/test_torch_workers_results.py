# SPDX-License-Identifier: Apache-2.0
"""Tests the results that a worker hands over, of any kind and size."""
import ctypes
import gc
import os
import resource
import statistics
import types
import unittest
import weakref
from unittest import mock

# Imported first: adds the path of the other modules, and skips where modules are missing.
from workers_support import WorkersCase, same
import numpy
import torch

from diesel_loader import native


class ResultTest(WorkersCase):
    def test_results_of_any_kind(self):
        want = collate_all([(torch.arange(16, dtype=torch.uint8), 1)] * 16)
        loader = self.loader(transform=lambda data: torch.arange(16, dtype=torch.uint8), target_transform=lambda _: 1,
                             collate_fn=collate_all, num_workers=1, drop_last=True)
        for got in loader:
            self.assertEqual(list(got), list(want))
            for name, value in want.items():
                check_equal(self, got[name], value)

    def test_batches_that_grow_and_shrink(self):
        loader = self.loader("ragged", transform=same, collate_fn=join, num_workers=2, batch_size=4)
        plain = self.loader("ragged", transform=same, collate_fn=join, num_workers=0, batch_size=4)
        for _ in range(2):
            self.assertTrue(all(map(torch.equal, loader, plain)))

    def test_a_worker_keeps_no_result(self):
        held = [int(counts[0]) for counts, _ in self.loader(collate_fn=count_held, num_workers=1)]
        self.assertGreater(len(held), 10)
        self.assertEqual(set(held), {0})

    @unittest.skipIf("DIESEL_ASAN_PRELOAD" in os.environ, "malloc is AddressSanitizer's")
    def test_memory_of_a_result_is_used_again(self):
        self.assertLess(self.pages_of_a_result(), BYTES // PAGE // 10)

    @unittest.skipIf("DIESEL_ASAN_PRELOAD" in os.environ, "malloc is AddressSanitizer's")
    def test_memory_is_as_the_user_says(self):
        for said in ({"MALLOC_TOP_PAD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}):
            with self.subTest(said), mock.patch.dict(os.environ, said):
                self.assertGreater(self.pages_of_a_result(), BYTES // PAGE // 2)

    def pages_of_a_result(self):
        """Returns how many pages the kernel usually makes for one result."""
        loader = self.loader(collate_fn=count_pages, worker_init_fn=small_pages, num_workers=1)
        return statistics.median(int(pages) for pages, _ in loader)


class MallocTest(unittest.TestCase):
    """Tests simulated allocators that this machine does not have."""

    def test_an_old_glibc_that_refuses_a_threshold_above_32_mib(self):
        library = types.SimpleNamespace(mallopt=mock.Mock(side_effect=lambda option, _: option != native.M_MMAP_THRESHOLD))
        self.retain(library)
        library.mallopt.assert_called_with(native.M_MMAP_MAX, 0)

    def test_a_library_without_mallopt(self):
        self.retain(object())

    def retain(self, library):
        with mock.patch.dict(os.environ, clear=True), mock.patch.object(ctypes, "CDLL", return_value=library), \
                mock.patch.object(native, "_retained", 0):
            native.retain_freed(native.RETAINED_MAX)


BYTES, PAGE = 33 << 20, os.sysconf("SC_PAGE_SIZE")  # malloc() by default maps sizes above 32 MiB
PR_SET_THP_DISABLE = 41


def small_pages(_):
    """Makes the kernel make one page at a time."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


def count_pages(_):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    numpy.full(BYTES, 1, dtype=numpy.uint8)
    return torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before), 0


_results = []


def count_held(samples):
    """Returns how many of the earlier results still exist; none may wait for garbage collection."""
    gc.disable()
    results = torch.full((1000,), sum(result() is not None for result in _results)), numpy.zeros(1000)
    _results.extend(map(weakref.ref, results))
    return results


def join(samples):
    return torch.cat([sample for sample, _ in samples])


def collate_all(samples):
    tensor = torch.stack([sample for sample, _ in samples]).float()
    return {"tensor": tensor, "transposed": tensor.t(), "none": torch.empty(0, 3), "one": torch.tensor(4),
            "bfloat16": tensor.to(torch.bfloat16), "bool": tensor > 3, "complex": torch.complex(tensor, tensor),
            "array": tensor.numpy(), "fortran": numpy.asfortranarray(tensor.numpy()), "text": "text", "nothing": None,
            "nested": [(tensor[:1], {"deep": tensor[1:2]})], "sparse": tensor.to_sparse(), "objects":
            numpy.array([None, "x"], dtype=object), "shared": [tensor, tensor], "long": list(range(1000)),
            "parameter": torch.nn.Parameter(tensor), "bytes": b"\0" * 100_000}


def check_equal(case, got, want):
    case.assertIs(type(got), type(want))
    if isinstance(want, torch.Tensor):
        case.assertEqual((got.dtype, got.shape, got.layout, got.requires_grad),
                         (want.dtype, want.shape, want.layout, want.requires_grad))
        case.assertTrue(torch.equal(got.to_dense() if got.is_sparse else got, want.to_dense()))
    elif isinstance(want, numpy.ndarray):
        case.assertTrue(numpy.array_equal(got, want))
        case.assertTrue(got.flags.writeable)
    elif isinstance(want, (list, tuple)):
        for a, b in zip(got, want):
            check_equal(case, a, b)
    elif isinstance(want, dict):
        check_equal(case, list(got.values()), list(want.values()))
    else:
        case.assertEqual(got, want)


if __name__ == "__main__":
    unittest.main()
