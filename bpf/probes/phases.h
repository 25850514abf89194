/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names of ranges, and the keys that stand for them in events. */

#include <stddef.h>
#include <stdint.h>

struct collector_sink;
struct event;
struct phase_names;
struct phase_record;

struct phase_names *phase_names_new(void);
void phase_names_free(struct phase_names *names);

/* The same for the same name in every recording; without PHASE_COOKIE_END, and not 0. */
uint64_t phase_key(const char *name, size_t length);

/* Keeps a name for the next phase_names_note(). Beyond some thousand names new ones are left out: programs
 * that number their ranges would fill the recording. */
void phase_names_add(struct phase_names *names, const char *name, size_t length);

/* The record's event with its name's key; keeps the name. */
struct event phase_names_resolve(struct phase_names *names, const struct phase_record *record);

/* Tells the sink all names that it was not told yet. */
void phase_names_note(struct phase_names *names, const struct collector_sink *sink);
