/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a daemon tells the service manager that started it: sd_notify(3)'s protocol, a datagram to the socket
 * in NOTIFY_SOCKET. Without such a manager nothing happens. */

#include <stdint.h>

/* state: lines as in sd_notify(3), e.g. "READY=1". 0 also without a manager; -errno: it cannot be reached. */
int notify_send(const char *state);
/* The same with a descriptor (negative: none), without waiting: -EAGAIN when the manager has much to do. */
int notify_send_fd(const char *state, int fd);

/* How often the manager wants to hear WATCHDOG=1, in us; 0: it does not. Half of it is a good period. */
uint64_t notify_watchdog_us(void);
