# SPDX-License-Identifier: Apache-2.0
"""Failures of libdiesel as Python exceptions: OSError and its usual subclasses."""
from __future__ import annotations

import errno
import os


class DamagedData(OSError):
    """A chunk or snapshot does not match its checksums; the text names chunk and sample (EBADMSG)."""


def runnable(text: str, dataset: str | None = None) -> str:
    """Returns a text with its commands, `dieselctl ...`, as a user can run them. A program that is not in PATH is
    called by its path, as in a virtual environment whose Python is called by path. The dataset is added where a command
    lacks only that, in quotes where a shell would split its path."""
    if "`diesel" not in text:
        return text
    import re
    import shlex
    import shutil
    from . import on_demand  # on_demand imports as much as all other modules together

    def with_path(match: re.Match[str]) -> str:
        name = match.group(1)
        told = [os.environ.get("DIESEL_DIESELCTL", "")] if name == "dieselctl" else []
        path = name if shutil.which(name) else next(filter(os.path.isfile, [*told, *on_demand.beside_python(name)]), name)
        return "`" + shlex.quote(path)
    if dataset:
        place, bare = shlex.quote(dataset), dataset.rstrip("/") or dataset
        text = re.sub(r"(`dieselctl (?:rebuild|snapshot|verify|log|purge|ls)(?: --\S+(?: \d+)?)*)`", lambda match: f"{match[1]} {place}`", text)
        text = re.sub("`dieselctl [^`]*`",
                      lambda match: re.sub(f" {re.escape(bare)}(?=[ `./])", lambda _: f" {shlex.quote(bare)}", match[0]), text)
    return re.sub(r"`(dieselctl|dieseld|diesel-analyze|diesel-top)(?=[ `])", with_path, text)


def from_result(result: int, text: str, dataset: str | None = None) -> OSError | ValueError:
    """Returns the exception for a negative errno: FileNotFoundError, PermissionError, TimeoutError, ... dataset: path
    of the affected dataset."""
    text = runnable(text, dataset)
    if -result == errno.EBADMSG:
        return DamagedData(-result, text)
    if -result == errno.EINVAL:
        return ValueError(text)
    return OSError(-result, text)  # OSError picks the subclass by the number


def of_look_up(result: int, path: str, text: str) -> OSError | ValueError:
    """Like from_result(), for a look-up in a dataset's snapshot. text: used unless the snapshot is damaged."""
    if -result == errno.EBADMSG:
        text = f"{path}/snapshot is damaged: run `dieselctl snapshot {path}` to rebuild it, or, if the dataset is frozen, `dieselctl rebuild {path}`"
    return from_result(result, text, path)


def name(error: BaseException, text: str) -> None:
    """Adds its context to an exception of the user's code, whatever the class: to the text, else as a note."""
    before = str(error)
    if text in before:
        return
    if isinstance(error, OSError) and isinstance(error.strerror, str):
        error.strerror = f"{error.strerror} ({text})"
    elif isinstance(error, UnicodeError) and hasattr(error, "reason"):
        error.reason = f"{error.reason} ({text})"
    elif len(error.args) <= 1 and (isinstance(error, KeyError) or before == "".join(map(str, error.args))):
        error.args = (f"{error.args[0]} ({text})" if before else text,)
    if text not in str(error) and hasattr(error, "add_note"):
        error.add_note(text)
