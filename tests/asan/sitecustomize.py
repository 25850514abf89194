# SPDX-License-Identifier: Apache-2.0
"""On the path of tests that load a libdiesel.so with AddressSanitizer: its runtime has to be the first library of a
process, and Python was not linked against it. So Python starts itself once more with the runtime before it.

Nothing else that a test starts gets it: our programs have a runtime of their own and refuse a second one, and the
symbolizer hangs with it. Leaks are not looked for in Python, which frees little at its end; our programs look for theirs.
A worker process that dies of SIGSEGV has to: tests do that on purpose, and loaders tell by it.
"""
import os
import sys

# Libraries to load first, in the form of LD_PRELOAD. Set for as long as Python starts itself again.
PRELOAD, AGAIN = "DIESEL_ASAN_PRELOAD", "DIESEL_ASAN_AGAIN"

if AGAIN in os.environ:
    # The runtime has read them; the environment of children is again as it was.
    del os.environ["LD_PRELOAD"]
    options = os.environ.pop(AGAIN)
    if options:
        os.environ["ASAN_OPTIONS"] = options
    else:
        del os.environ["ASAN_OPTIONS"]
elif PRELOAD in os.environ:
    options = os.environ.get("ASAN_OPTIONS", "")
    again = {"LD_PRELOAD": os.environ[PRELOAD], AGAIN: options, "ASAN_OPTIONS": f"{options}:detect_leaks=0:handle_segv=0"}
    os.execve(sys.executable, sys.orig_argv, {**os.environ, **again})
