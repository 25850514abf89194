/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Gets a descriptor of the process at the other end of a Unix socket, which becomes readable when the process
 * is dead. The socket itself does not show that, because processes that it forked have the socket, too. */

/*
 * Returns the descriptor, for the caller to close. -ESRCH: the process is dead. Any other error: this kernel
 * cannot report it (before Linux 6.5, if its PID namespace is hidden from us; in a sandbox that forbids it).
 */
int peer_process(int socket);
