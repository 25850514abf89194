/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Parts of the space that others do not see. */

#include "cluster_message.h"
#include "lib/error.h"

/* dieseld-peer: until the daemon is gone. Returns its exit status. */
int net_run(const struct cluster_config *config, int listen_fd, int daemon_fd);
