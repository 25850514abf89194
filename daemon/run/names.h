/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Names of users and groups in the configuration that the machine does not know yet, because the service that
 * resolves them (SSSD, LDAP) starts after dieseld: serving does not wait for that. A thread of its own looks
 * them up, since the answer may take long: after 5 s, then after twice as long each time, up to five minutes.
 * Loop thread only.
 */

#include <uv.h>

#include "options.h"
#include "daemon/server/server.h"

struct unknown_names {
	struct server *server;
	struct admin_choice *admin;
	uv_timer_t timer;
	struct name_search *search; /* search in progress; NULL: none */
	uint32_t pause_s, left_s;
};

/* Starts the look-ups. Borrows server and admin. Logs one line with the names that are not known. */
void names_start(struct unknown_names *n, uv_loop_t *loop, struct server *server, struct admin_choice *admin);
/* Call when the quotas have changed. Logs as names_start(). */
void names_changed(struct unknown_names *n);
/* Stops the look-ups. The loop must run once more. A running search is left to end with the process. */
void names_stop(struct unknown_names *n);
