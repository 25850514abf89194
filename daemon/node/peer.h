/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The process at the other end of a Unix socket: a descriptor that becomes readable when it is dead.
 * Processes that it forked have its socket too, so the socket does not tell. */

/*
 * The descriptor, for the caller to close. -ESRCH: it is dead. Any other error: this kernel cannot tell
 * (before Linux 6.5 one in a PID namespace that is not ours to see; a sandbox that forbids it).
 */
int peer_process(int socket);
