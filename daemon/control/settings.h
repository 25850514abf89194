/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The operator's settings for the tuner: its mode, limits and pins. A value may come from three sources, of
 * which the last wins: defaults for the machine, the configuration, and `dieselctl set` while the daemon
 * runs. Pure.
 *
 * Limits go before pins: a pin beyond a limit is refused, and if a limit is lowered below a pin, the tuner
 * clamps the pin and reports it.
 */

#include <stdbool.h>
#include <stdint.h>

#include "client/protocol.h"
#include "lib/error.h"
#include "tuner/tuner.h"

/* Place where a value was configured. */
struct settings_source {
	const char *file; /* NULL: on the command line. It lives as long as the process */
	int line;
	bool given;
};

/* Resources of the machine and of this process. */
struct settings_space {
	uint64_t memory_bytes; /* memory that the process may use; 0: not known */
	uint64_t
	    machine_bytes;    /* memory of the whole machine, to check a configuration; 0: as memory_bytes */
	uint64_t cache_bytes; /* --cache: the limit unless another one is set */
	struct settings_source cache_source;
	uint32_t n_cpus;
};

/* Origin of a value that was set while the daemon ran. */
struct settings_by {
	uint64_t at_s; /* seconds since 1970; 0: set by an older dieseld, which did not record the time */
	uint32_t uid;
	bool until_restart;
};

/* All settings. Values are indexed by enum wire_setting_key, from WIRE_SET_CACHE on. */
struct settings {
	struct settings_space space;
	uint64_t configured[WIRE_N_SETTINGS];
	struct settings_source source[WIRE_N_SETTINGS];
	bool is_configured[WIRE_N_SETTINGS]; /* true: configured, so a knob is pinned for each job; false: a
						knob is free, a limit has its default */
	uint64_t set[WIRE_N_SETTINGS];       /* mode and limits that were set while the daemon runs */
	bool is_set[WIRE_N_SETTINGS];
	struct settings_by set_by[WIRE_N_SETTINGS];
	struct tuner_pin pins[TUNER_MAX_PINS]; /* pins set while running */
	struct settings_by pin_by[TUNER_MAX_PINS];
	struct settings_by by; /* origin recorded with the next value that is set */
	uint32_t n_pins;
};

/* Returns the setting's name, as in `dieselctl set` and the configuration: "cache", "workers-max", ... */
const char *settings_name(enum wire_setting_key key);
bool settings_is_knob(enum wire_setting_key key);
bool settings_is_bytes(enum wire_setting_key key);
/* Returns true for a setting that is neither a knob nor a limit, but stored in the job. It is checked here,
 * not stored. */
bool settings_is_of_job(enum wire_setting_key key);
const char *settings_tune_name(enum wire_tune tune);

/* Returns the mode or limit in force: default, configured or set. */
uint64_t settings_get(const struct settings *s, enum wire_setting_key key);

/* Prefixes err with "FILE:LINE: " if the value comes from a file. */
void settings_place_error(const struct settings_source *source, struct error *err);

/* As settings_get(), but ignores values set while running. Also returns the value's source (given is false: a
 * default). */
uint64_t settings_configured(const struct settings *s, enum wire_setting_key key);
const struct settings_source *settings_source_of(const struct settings *s, enum wire_setting_key key);

/* Checks the configuration as a whole: each value is in range, and limits do not cross. -EINVAL: the text
 * begins with the line of the file, if the value is from a file. */
int settings_check(const struct settings *s, struct error *err);

/* Applies all of the message or nothing, on behalf of s->by. -EINVAL: the text says what a value must be;
 * -ENOSPC: too many pins. */
int settings_apply(struct settings *s, const struct wire_set *message, struct error *err);

/* Finds the pin in force for a job's knob, not clamped to limits. Returns false if the knob is free. */
bool settings_find_pin(const struct settings *s, uint64_t job, enum tuner_knob knob, uint64_t *ret_value);
/* Returns the pin's value, clamped to the limit, which may have been lowered since. */
uint64_t settings_pin_in_force(const struct settings *s, const struct tuner_pin *pin);
/* Restores a pin from before a restart, even if a limit is now below it. -EINVAL, -ENOSPC. */
int settings_restore_pin(struct settings *s, const struct tuner_pin *pin, struct error *err);
/* Drops the job's pins. */
void settings_forget_job(struct settings *s, uint64_t job);

/* Fills limits and pins of the tuner's configuration; the rest stays. */
void settings_fill(const struct settings *s, struct tuner_config *config);
