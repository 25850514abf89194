/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Parts of the room that others do not see. */

#include "cluster_message.h"
#include "lib/error.h"

/* A socket that listens there. -EADDRINUSE: another process has the address. */
int cluster_listen(const struct net_address *at, int *ret_fd);

/* dieseld-peer: until the daemon is gone. Returns its exit status. */
int net_run(const struct cluster_config *config, int listen_fd, int daemon_fd);
