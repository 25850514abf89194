# SPDX-License-Identifier: Apache-2.0
"""Computes and writes in a frame with the name that PyTorch's compiler has on a stack."""
import tempfile
import time


def compile_frame(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(1 << 20))
