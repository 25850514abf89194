# SPDX-License-Identifier: Apache-2.0
"""Failures of libdiesel as Python exceptions: OSError and its usual subclasses."""
from __future__ import annotations

import errno


class DamagedData(OSError):
    """A chunk or snapshot does not match its checksums; the text names chunk and sample (EBADMSG)."""


def from_result(result: int, text: str) -> OSError | ValueError:
    """The exception for a negative errno: FileNotFoundError, PermissionError, TimeoutError, ..."""
    if -result == errno.EBADMSG:
        return DamagedData(-result, text)
    if -result == errno.EINVAL:
        return ValueError(text)
    return OSError(-result, text)  # picks the subclass by number


def of_look_up(result: int, path: str, text: str) -> OSError | ValueError:
    """The same for what was looked up in a dataset's snapshot; text: where that is not damaged."""
    if -result == errno.EBADMSG:
        text = f"{path}/snapshot is damaged: run `dieselctl snapshot {path}` to rebuild it"
    return from_result(result, text)
