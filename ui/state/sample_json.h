/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Converts samples to and from JSON with the schema "diesel.top/1". --once prints that JSON, and a recording
 * stores it. Unknown values are left out, and readers ignore unknown keys. Seconds and bytes are numbers in
 * base units.
 */

#include <stdbool.h>
#include <stddef.h>

struct error;
struct top_sample;

/* Returns the sample as JSON. pretty: indented, for people. Caller frees. NULL: no memory. */
char *sample_to_json(const struct top_sample *sample, bool pretty);

/* Parses a sample; text is untrusted. -EBADMSG: not JSON, or not of this schema; -EPROTONOSUPPORT: a newer
 * schema; -ENOMEM. */
int sample_from_json(const char *text, size_t length, struct top_sample **ret_sample, struct error *err);
