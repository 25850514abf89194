/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Queries and settings for dieseld, as dieselctl and diesel-top send them. One connection takes any number
 * of requests; answers are JSON text (docs/reference/protocol.md names the members). Blocking; a connection
 * belongs to one thread.
 *
 * All functions: 0, or a negative errno with one line in err. -ECONNREFUSED: nobody listens; -ECONNRESET: the
 * daemon has exited (open again); -ETIMEDOUT: it does not answer; -EPERM: not this user's to see or to
 * change; -ENOENT: no such job; -EINVAL: the daemon refuses a value, and err says why; -EOPNOTSUPP: it is too
 * old for that.
 */

#include <stdint.h>

#include "client/protocol.h"
#include "lib/error.h"

struct admin_client;

/* Default timeout of a request, in seconds. */
#define ADMIN_TIMEOUT_S 5

/* Connects. socket NULL or "": the environment variable DIESEL_SOCKET, else the node's daemon or, if that
 * refuses access, the user's own, if it runs. Each request takes timeout_s at most (the first one includes
 * the connecting), else -ETIMEDOUT. */
int admin_open(const char *socket, uint32_t timeout_s, struct admin_client **ret, struct error *err);
void admin_close(struct admin_client *c);

/* Returns the folder of the user's own daemon, as diesel_loader chooses it, and creates it if it is missing.
 * ret_folder has PATH_MAX bytes. -ENOENT: no place is suitable, and err lists each with its problem. */
int admin_own_folder(char *ret_folder, struct error *err);

/* Gets the status of the daemon. The caller frees the text. */
int admin_status(struct admin_client *c, char **ret_json, struct error *err);
int admin_jobs(struct admin_client *c, char **ret_json, struct error *err);
/* Gets the newest `max` decisions (1 to WIRE_WHY_MAX) of a job, or of all jobs if job is 0; newest first. */
int admin_why(struct admin_client *c, uint64_t job, uint32_t max, char **ret_json, struct error *err);
/* Changes settings: all of them take effect, or none. job 0: all jobs, including future ones. */
int admin_set(struct admin_client *c, uint64_t job, const struct wire_setting *settings, uint32_t n_settings,
	      char **ret_json, struct error *err);
