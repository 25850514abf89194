# SPDX-License-Identifier: Apache-2.0
"""Ports for the servers of tests that run at the same time: a server is started some time after its port was chosen,
and may be killed and started again on it. So a port is not one that the kernel would give to somebody meanwhile, and no
other test's."""
import atexit
import random
import socket

# A cluster of Redis listens 10000 above, too. Both are below those that the kernel gives to connections (32768 and above).
FIRST, LAST, ABOVE = 12000, 22000, 10000
held = []  # until this process ends
atexit.register(lambda: [ours.close() for ours in held])


def is_free(host, port):
    with socket.socket() as s:
        try:
            s.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host="127.0.0.1"):
    """A port that is free, and so is the one ABOVE it."""
    while True:
        port = random.SystemRandom().randrange(FIRST, LAST)
        ours = socket.socket(socket.AF_UNIX)
        try:
            ours.bind(f"\0diesel-test-port-{port}")
        except OSError:  # another test's
            ours.close()
            continue
        if is_free(host, port) and is_free(host, port + ABOVE):
            held.append(ours)
            return port
        ours.close()
