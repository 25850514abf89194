/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages from a daemon to its service manager, by the protocol of sd_notify(3): datagrams to the socket in
 * NOTIFY_SOCKET. Without a manager, nothing happens. */

#include <stdint.h>

/* Sends lines as in sd_notify(3), such as "READY=1". 0, also without a manager; -errno: the manager cannot be
 * reached.
 */
int notify_send(const char *state);
/* Sends the lines with a descriptor (negative: none), without blocking. -EAGAIN: the manager is busy. */
int notify_send_fd(const char *state, int fd);

/* Returns the manager's watchdog timeout in us; 0: none. Send WATCHDOG=1 twice within each timeout. */
uint64_t notify_watchdog_us(void);
