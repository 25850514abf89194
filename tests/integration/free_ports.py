# SPDX-License-Identifier: Apache-2.0
"""Ports for the servers of tests that run in parallel. A server starts some time after its port was chosen, and may be killed and started
again on it. So the port must be one that the kernel gives to no process meanwhile, and that no other test uses."""
import atexit
import random
import socket

# A cluster of Redis also listens 10000 above. Both are below the ports that the kernel gives to connections (32768 and above).
FIRST, LAST, ABOVE = 12000, 22000, 10000
held = []  # locked until this process ends
atexit.register(lambda: [ours.close() for ours in held])


def is_free(host, port):
    with socket.socket() as s:
        try:
            s.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host="127.0.0.1"):
    """Returns a free port for which the one ABOVE it is free, too."""
    while True:
        port = random.SystemRandom().randrange(FIRST, LAST)
        ours = socket.socket(socket.AF_UNIX)
        try:
            ours.bind(f"\0diesel-test-port-{port}")
        except OSError:  # in use by another test
            ours.close()
            continue
        if is_free(host, port) and is_free(host, port + ABOVE):
            held.append(ours)
            return port
        ours.close()
