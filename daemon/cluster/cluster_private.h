/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Private to this folder. */

#include "cluster_message.h"
#include "lib/error.h"

/* Runs dieseld-peer until the daemon is gone. Returns the exit status. */
int net_run(const struct cluster_config *config, int listen_fd, int daemon_fd);
