/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The process at the other end of a Unix socket: a descriptor that becomes readable when it is dead. The
 * socket does not tell that, because processes that it forked have the socket too. */

/*
 * Returns the descriptor, for the caller to close. -ESRCH: the process is dead. Any other error: this kernel
 * cannot tell (before Linux 6.5, if its PID namespace is hidden from us; in a sandbox that forbids it).
 */
int peer_process(int socket);
