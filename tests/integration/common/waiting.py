# SPDX-License-Identifier: Apache-2.0
"""Waits for conditions, with one bound for all tests: none of them asserts how long something takes."""
import time

PATIENCE_S = 150  # a busy machine takes ten times as long; only a test that fails waits for it


def wait_until(what, holds, seconds=PATIENCE_S, why=lambda: ""):
    """Returns the first true result of holds().

    Fails after some seconds with `what` (the condition, or a function that returns it) and why()."""
    begin = time.monotonic()
    while not (result := holds()):
        waited = time.monotonic() - begin
        if waited > seconds:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what} {why()}".rstrip())
        time.sleep(min(0.1, 0.01 + waited / 10))  # many conditions start a program
    return result
