/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the verbs that talk to dieseld share: asking, and reading its JSON. */

#include <jansson.h>
#include <stdint.h>

#include "client/admin.h"
#include "client/knob.h"
#include "ctl.h"

/* The options --json, --socket and --timeout, which all such verbs have. */
struct ctl_daemon_options {
	const char *socket;
	uint32_t timeout_s;
	bool json;
};

#define CTL_DAEMON_OPTIONS_INIT                                                                              \
	{                                                                                                    \
		.timeout_s = ADMIN_TIMEOUT_S                                                                 \
	}
#define CTL_DAEMON_ROWS(json_at, socket_at, timeout_at)                                                      \
	{"json", option_set_flag, json_at, .help = "all it tells, as a JSON object"},                        \
	    CTL_ROW_SOCKET(socket_at), CTL_ROW_TIMEOUT(timeout_at)

/* Parses the text as a JSON object of this schema; the caller gives it back with json_decref(). NULL: it is
 * not one, and a message has said so. */
json_t *ctl_parse(const struct option_verb *verb, const char *text, const char *schema);

/* A line that says whose answer it is, where that is not the node's daemon. */
void ctl_print_where(const json_t *root);

uint64_t ctl_number(const json_t *object, const char *key);
/* A figure that may not be known: null then. */
json_t *ctl_known(double value);
/* NAN if it is null or missing. */
double ctl_real(const json_t *object, const char *key);
/* Names come from the daemon, and it had them from its clients. */
const char *ctl_string(const json_t *object, const char *key, char text[200]);

/* A line for each value that `set` can set: what it is, and where it comes from. */
void ctl_print_settings(const json_t *tune);

/* "31 %", or "-" when not known. */
const char *ctl_percent(char text[8], double ratio);
/* "1204", "3.20", or "-" when not known. */
const char *ctl_rate(char text[24], double rate);
/* A knob's value in its unit; knob as the daemon names it. */
const char *ctl_knob(char text[24], const char *knob, double value);
