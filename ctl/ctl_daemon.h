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

/* A question to dieseld. `what` is the verb's own. */
struct ctl_question {
	const char *schema; /* of the answer */
	int (*ask)(struct admin_client *admin, const void *what, char **ret_json, struct error *err);
	void (*print)(const json_t *root, const void *what);
};

/* Asks dieseld, and prints the answer: with --json as it is, otherwise by print(). Returns the exit status.
 */
int ctl_ask(const struct option_verb *verb, const struct ctl_daemon_options *o,
	    const struct ctl_question *question, const void *what);
/* Runs a verb that only asks this question: it has no options but those above, and no arguments. */
int ctl_run_question(const struct option_verb *verb, int argc, char **argv,
		     const struct ctl_question *question);

/* Prints which daemon answered, unless it is the node's. */
void ctl_print_where(const json_t *root);

/* Returns a whole number, in the type that printf() has a format for; 0: there is none. */
unsigned long long ctl_number(const json_t *object, const char *key);
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
