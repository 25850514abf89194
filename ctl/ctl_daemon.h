/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the verbs that ask dieseld: the request, and parsing its JSON. */

#include <jansson.h>
#include <stdint.h>

#include "client/admin.h"
#include "client/knob.h"
#include "ctl.h"

/* The options --json, --socket and --timeout, which all verbs that ask dieseld have. */
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
	{"json", option_set_flag, json_at, .help = "print everything, as a JSON object"},                    \
	    CTL_ROW_SOCKET(socket_at), CTL_ROW_TIMEOUT(timeout_at)

/* Parses the text as a JSON object of this schema; the caller frees it with json_decref(). Returns NULL after
 * printing a message if it is not one. */
json_t *ctl_parse(const struct option_verb *verb, const char *text, const char *schema);

/* Prints which daemon answered, unless it is the node's. */
void ctl_print_where(const json_t *root);

uint64_t ctl_number(const json_t *object, const char *key);
/* Returns a JSON number, or null if the value is not known. */
json_t *ctl_known(double value);
/* Returns a string made printable, since the daemon has names from its clients. */
const char *ctl_string(const json_t *object, const char *key, char text[200]);

/* Prints a line for each value that `dieselctl set` can set, with its source. */
void ctl_print_settings(const json_t *tune);

/* Returns "31 %", or "-" if not known. */
const char *ctl_percent(char text[8], double ratio);
/* Returns "1204", "3.20", or "-" if not known. */
const char *ctl_rate(char text[24], double rate);
/* Returns a knob's value with its unit. knob: the daemon's name for it. */
const char *ctl_knob(char text[24], const char *knob, double value);
