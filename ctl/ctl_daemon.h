/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the verbs that talk to dieseld share: asking, and reading its JSON. */

#include <jansson.h>
#include <stdint.h>

#include "client/admin.h"
#include "client/knob.h"
#include "ctl.h"

/* The options --json and --socket of such a verb, and those of its own. */
struct ctl_daemon_options {
	const char *socket;
	bool json;
};

#define CTL_DAEMON_OPTIONS                                                                                   \
	{"json", no_argument, NULL, 'J'}, {"socket", required_argument, NULL, 's'}, CTL_OPTION_HELP
#define CTL_DAEMON_HELP                                                                                      \
	"      --json         all it tells, as a JSON object\n"                                              \
	"  -s, --socket PATH  of dieseld (default $DIESEL_SOCKET, else its usual place)\n"

/* The text as a JSON object of this schema, to be given back with json_decref(); NULL: said why not. */
json_t *ctl_parse(const struct ctl_verb *verb, const char *text, const char *schema);

uint64_t ctl_number(const json_t *object, const char *key);
/* NAN: null, or not there. */
double ctl_real(const json_t *object, const char *key);
/* Names come from the daemon, and it had them from its clients. */
const char *ctl_string(const json_t *object, const char *key, char text[200]);

/* "31 %", "-" when not known; size: 8 is enough. */
const char *ctl_percent(char text[8], double ratio);
/* "1204", "3.2"; "-". */
const char *ctl_rate(char text[24], double rate);
/* A knob's value in its unit; knob as the daemon names it. */
const char *ctl_knob(char text[24], const char *knob, double value);
