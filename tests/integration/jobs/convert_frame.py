# SPDX-License-Identifier: Apache-2.0
"""Computes under the name that PyTorch's compiler has on a stack."""
import time


def compile_frame(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
