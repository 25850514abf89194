/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include "client/transport.h"

/*
 * Connects to the user's own daemon, of this version, which diesel_loader starts where the node has none. It
 * starts nothing. The places, and what makes one unfit, are those of on_demand.py: a folder that only this
 * user can change, whose socket is served by this user or root, as the kernel says before anything is sent.
 *
 * 0; -ECONNREFUSED: there is none, and err lists the places with what is wrong with each; or it is somebody
 * else's. -ETIMEDOUT: it takes no connections, for timeout_s (transport_reach()).
 */
int own_daemon_connect(uint32_t timeout_s, struct transport *ret, struct error *err);
/* The first of the places that will do, which is made if it is missing. -ENOENT. */
int own_daemon_folder(char *ret_folder, struct error *err);
