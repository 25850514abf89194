/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of ranges, and the keys that represent them in events. */

#include <stddef.h>
#include <stdint.h>

struct collector_sink;
struct event;
struct phase_names;
struct phase_record;

struct phase_names *phase_names_new(void);
void phase_names_free(struct phase_names *names);

/* Returns the key of a name: the same in every recording, without PHASE_COOKIE_END, and not 0. */
uint64_t phase_key(const char *name, size_t length);

/* Stores a name for the next phase_names_note(). Drops new names beyond a few thousand, because programs that
 * number their ranges would fill the recording. */
void phase_names_add(struct phase_names *names, const char *name, size_t length);

/* Returns the record's event with the key of its name, and stores the name. */
struct event phase_names_resolve(struct phase_names *names, const struct phase_record *record);

/* Passes new names to the sink. */
void phase_names_note(struct phase_names *names, const struct collector_sink *sink);
