# SPDX-License-Identifier: Apache-2.0
"""Batches that are on a GPU when the training loop gets them: DataLoader(..., batches=Batches(device="cuda")).

    memory    shared memory that batches lie in, registered with CUDA once
    transfer  copies of whole batches on a stream of their own
    stream    a Stream whose batches are on the device, with the next one's copy under way
    cuda      all calls of CUDA
"""
from .stream import DeviceStream
from .transfer import MAX_UNDER_WAY, chosen

SLOTS = MAX_UNDER_WAY + 4  # slots of a session whose batches are copied to the device; the daemon works ahead in the rest

__all__ = ["SLOTS", "DeviceStream", "chosen"]
