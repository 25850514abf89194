# SPDX-License-Identifier: Apache-2.0
"""States of the random number generators, of types that torch.load(weights_only=True) reads."""
from __future__ import annotations

import random
from typing import Any

import torch


def random_states() -> dict[str, Any]:
    """Returns those of this process."""
    import numpy as np
    state: Any = np.random.get_state()
    name, keys, *rest = state
    states: dict[str, Any] = {"python": random.getstate(), "numpy": [name, torch.from_numpy(keys.astype("int64")), *rest], "torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def numpy_state(saved: list[Any]) -> tuple[Any, ...]:
    """Returns what numpy.random.set_state() takes."""
    name, keys, *rest = saved
    return (name, keys.numpy().astype("uint32"), *rest)


def python_state(saved: Any) -> tuple[Any, ...]:
    """Returns what random.setstate() takes. torch.distributed.checkpoint makes lists of tuples."""
    version, words, gauss = saved
    return (version, tuple(words), gauss)


def set_random_states(states: dict[str, Any]) -> None:
    import numpy as np
    random.setstate(python_state(states["python"]))
    np.random.set_state(numpy_state(states["numpy"]))
    torch.set_rng_state(states["torch"])
    if "cuda" in states and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
