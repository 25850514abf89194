/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A sample as JSON, "schema": "diesel.top/1": what --once prints and a recording stores. What is not known is
 * left out; what a reader does not know it ignores. Seconds and bytes are numbers in base units.
 */

#include <stdbool.h>
#include <stddef.h>

struct error;
struct top_sample;

/* pretty: indented, for people. Caller frees. NULL: no memory. */
char *sample_to_json(const struct top_sample *sample, bool pretty);

/* text is from outside. -EBADMSG: no JSON, or not of this schema; -EPROTONOSUPPORT: a newer one; -ENOMEM. */
int sample_from_json(const char *text, size_t length, struct top_sample **ret_sample, struct error *err);
