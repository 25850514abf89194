# SPDX-License-Identifier: Apache-2.0
"""Messages between the trainer, the fork server and the workers: datagrams on SOCK_SEQPACKET pairs.

One fixed struct {kind, small, eight numbers}, then for SEGMENTS and PLACES a table. Descriptors travel with the
message that names them (SCM_RIGHTS).

    trainer -> worker   MEMORY    life, n_batch_buffers, batch, item_bytes, has_views            + 1 descriptor
                        SEGMENTS  small: count; table of (segment, bytes)                + as many descriptors
                        PLACES    small: count; table of (batch buffer, place in its batch): samples of the next
                                  TASK, in order
                        TASK      sequence, generation, batch buffer or GATHERED, n_items, epoch, batch
                        CANCEL    generation: tasks of older generations may be skipped
    worker -> trainer   READY     pid
                        RESULT    small: flags; sequence, buffer, its bytes, offset of its table, CPU, wall and
                                  hand-off ns, private bytes of the process              + 1 descriptor if NEW
                        RELEASED  sequence: the user's code has dropped the batch of this RESULT with KEPT
                        DROPPED   buffer: unmapped by the worker
    trainer -> fork server  SPAWN     worker                                                 + 1 descriptor: its socket
    fork server -> trainer  SPAWNED   worker, pid (0: fork failed); sent in the order of the SPAWN messages
                        EXITED    worker, pid, wait status
"""
import array
import contextlib
import os
import select
import socket
import struct

FORMAT = struct.Struct("<II8Q")
SEGMENT = struct.Struct("<QQ")
PLACE = struct.Struct("<II")
MAX_PLACES = 1024  # maximum places per message
GATHERED = 0xffffffff  # the samples lie in several batch buffers; the PLACES messages before the TASK list them
MAX_FDS = 64  # maximum descriptors per message; the kernel's limit is 253
_MAX_MORE = socket.CMSG_LEN(MAX_FDS * array.array("i").itemsize)
_MAX_BYTES = FORMAT.size + max(MAX_FDS * SEGMENT.size, MAX_PLACES * PLACE.size)
# Plain integers, like those of Kind and Flag: the operators of an enumeration take some microseconds per message.
_WAIT = int(socket.MSG_CMSG_CLOEXEC)
_NO_WAIT = int(socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)


class Kind:
    MEMORY = 1
    SEGMENTS = 2
    TASK = 3
    CANCEL = 4
    READY = 5
    RESULT = 6
    RELEASED = 7
    DROPPED = 8
    SPAWN = 9
    SPAWNED = 10
    EXITED = 11
    PLACES = 12


class Flag:
    """Flags of a RESULT."""
    NEW = 1      # the buffer is new: its descriptor comes along
    FAILED = 2   # the result is a Failure
    SKIPPED = 4  # cancelled: there is no result
    KEPT = 8     # the user's code still refers to the batch


def pair():
    """Returns two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)


def send(end, kind, *numbers, small=0, fds=(), table=b""):
    """Raises BrokenPipeError or ConnectionResetError when the other end is gone."""
    data = FORMAT.pack(kind, small, *numbers, *(0,) * (8 - len(numbers))) + table
    if fds:
        end.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
    else:
        end.send(data)


def receive(end, block=True):
    """Returns (kind, small, eight numbers, table, descriptors), or None when nothing is there; EOFError at the end."""
    try:
        data, more, _, _ = end.recvmsg(_MAX_BYTES, _MAX_MORE, _WAIT if block else _NO_WAIT)  # socket.recv_fds() ignores flags
    except BlockingIOError:
        return None
    except ConnectionResetError:
        raise EOFError from None
    if not data:
        raise EOFError
    kind, small, *numbers = FORMAT.unpack_from(data)
    fds = array.array("i")
    for level, what, content in more:
        if level == socket.SOL_SOCKET and what == socket.SCM_RIGHTS:
            fds.frombytes(content[:len(content) // fds.itemsize * fds.itemsize])
    return kind, small, numbers, data[FORMAT.size:], fds


def is_there(end, timeout_ms):
    """Waits for a message, or for the end. Uses poll(), because select() supports no descriptor above 1023."""
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return bool(poll.poll(timeout_ms))


def hang_up(end):
    """Closes an end so that the other end notices, even if a process forked meanwhile also holds this end."""
    with contextlib.suppress(OSError):  # the other end is already closed
        end.shutdown(socket.SHUT_RDWR)
    end.close()


def close_all(fds):
    for fd in fds:
        os.close(fd)
