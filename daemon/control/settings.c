/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/units.h"
#include "daemon/node/pool.h"
#include "daemon/node/turns.h"

#define CACHE_LEAST         (UINT64_C(16) << 20) /* minimum cache, in bytes: a few of the smallest chunks */
#define PREFETCH_MOST       65536u
#define CLIENT_WORKERS_MOST 256u
#define DEFAULT_PREFETCH    64u
#define READ_LIMIT_LEAST    (UINT64_C(1) << 20)
#define READ_LIMIT_MOST     (UINT64_C(1) << 50)
#define READ_OPS_MOST       65536u

_Static_assert(WIRE_READ_WEIGHT == TURN_WEIGHT, "the default weights of a job and of a lane must match");

/* Settings that are not knobs. Knobs are in tuner_knob_table, and have the range of their limit. */
static const struct row {
	const char *name;
	bool bytes;
	bool or_none; /* 0 means no limit; else a rate of at least `least` */
	uint64_t least, most;
} table[WIRE_N_SETTINGS] = {
    [WIRE_SET_TUNE] = {.name = "tune", .most = WIRE_N_TUNES - 1},
    [WIRE_SET_CACHE_MAX] = {.name = "cache-max", .bytes = true, .least = CACHE_LEAST, .most = WIRE_CACHE_MAX},
    [WIRE_SET_CACHE_MIN] = {.name = "cache-min", .bytes = true, .least = 0, .most = WIRE_CACHE_MAX},
    [WIRE_SET_WORKERS_MAX] = {.name = "workers-max", .least = 1, .most = POOL_MAX_WORKERS},
    [WIRE_SET_CLIENT_WORKERS_MAX] = {.name = "client-workers-max", .least = 0, .most = CLIENT_WORKERS_MOST},
    [WIRE_SET_DECODED_CACHE_MAX] = {.name = "decoded-cache-max",
				    .bytes = true,
				    .least = 0,
				    .most = WIRE_CACHE_MAX},
    [WIRE_SET_PREFETCH_MAX] = {.name = "prefetch-max", .least = 0, .most = PREFETCH_MOST},
    [WIRE_SET_READ_WEIGHT] = {.name = "read-weight", .least = 1, .most = TURN_WEIGHT_MOST},
    [WIRE_SET_READ_LIMIT] = {.name = "read-limit",
			     .bytes = true,
			     .or_none = true,
			     .least = READ_LIMIT_LEAST,
			     .most = READ_LIMIT_MOST},
    [WIRE_SET_READ_OPS_LIMIT] = {.name = "read-ops-limit",
				 .or_none = true,
				 .least = 1,
				 .most = READ_OPS_MOST},
};

/* Returns the knob of the key; NULL: the key is not a knob's. */
static const struct tuner_knob_info *knob_info(enum wire_setting_key key)
{
	enum tuner_knob knob;

	return tuner_knob_of_key(key, &knob) < 0 ? NULL : &tuner_knob_table[knob];
}

static struct row row_of(enum wire_setting_key key)
{
	const struct tuner_knob_info *knob = knob_info(key);
	struct row row = table[knob ? knob->limit : key];

	if (knob)
		row.name = knob->setting;
	return row;
}

const char *settings_name(enum wire_setting_key key)
{
	return row_of(key).name;
}

bool settings_is_knob(enum wire_setting_key key)
{
	return knob_info(key) != NULL;
}

bool settings_is_of_job(enum wire_setting_key key)
{
	return key == WIRE_SET_READ_WEIGHT;
}

bool settings_is_bytes(enum wire_setting_key key)
{
	return row_of(key).bytes;
}

const char *settings_tune_name(enum wire_tune tune)
{
	static const char *const names[WIRE_N_TUNES] = {"off", "on", "dry-run"};

	return names[tune];
}

/* Returns the default of a limit, raised to the configured value of its knob. */
static uint64_t at_least(const struct settings *s, enum wire_setting_key knob, uint64_t value)
{
	return s->is_configured[knob] && s->configured[knob] > value ? s->configured[knob] : value;
}

static uint64_t default_of(const struct settings *s, enum wire_setting_key key)
{
	uint64_t cpus = s->space.n_cpus ? s->space.n_cpus : 1;

	if (cpus > POOL_MAX_WORKERS)
		cpus = POOL_MAX_WORKERS;
	switch (key) {
	case WIRE_SET_TUNE: return WIRE_TUNE_ON;
	case WIRE_SET_CACHE_MAX:
	case WIRE_SET_DECODED_CACHE_MAX: return s->space.cache_bytes;
	case WIRE_SET_WORKERS_MAX: return at_least(s, WIRE_SET_WORKERS, cpus);
	case WIRE_SET_CLIENT_WORKERS_MAX: return at_least(s, WIRE_SET_CLIENT_WORKERS, cpus);
	case WIRE_SET_PREFETCH_MAX: return at_least(s, WIRE_SET_PREFETCH, DEFAULT_PREFETCH);
	case WIRE_SET_READ_WEIGHT: return WIRE_READ_WEIGHT;
	case WIRE_SET_CACHE_MIN:
	case WIRE_SET_READ_LIMIT:
	case WIRE_SET_READ_OPS_LIMIT:
	case WIRE_SET_CACHE:
	case WIRE_SET_PREFETCH:
	case WIRE_SET_WORKERS:
	case WIRE_SET_CLIENT_WORKERS:
	case WIRE_SET_DECODED_CACHE:
	case WIRE_N_SETTINGS: break;
	}
	return 0;
}

uint64_t settings_configured(const struct settings *s, enum wire_setting_key key)
{
	return s->is_configured[key] ? s->configured[key] : default_of(s, key);
}

const struct settings_source *settings_source_of(const struct settings *s, enum wire_setting_key key)
{
	bool as_cache = key == WIRE_SET_CACHE_MAX || key == WIRE_SET_DECODED_CACHE_MAX;

	return as_cache && !s->is_configured[key] ? &s->space.cache_source : &s->source[key];
}

uint64_t settings_get(const struct settings *s, enum wire_setting_key key)
{
	return s->is_set[key] ? s->set[key] : settings_configured(s, key);
}

static const char *format(enum wire_setting_key key, uint64_t value, char text[32])
{
	if (settings_is_bytes(key))
		return units_format_bytes(text, 32, value);
	snprintf(text, 32, "%llu", (unsigned long long)value);
	return text;
}

/* Checks that a value is in its range. */
static int check_range(const struct settings *s, enum wire_setting_key key, uint64_t value, uint64_t memory,
		       struct error *err)
{
	const struct row row = row_of(key);
	char text[32], least[32], most[32];

	if (row.or_none && value == 0)
		return 0;
	if (value < row.least || value > row.most)
		return error_set(err, -EINVAL, "%s=%s: must be %sfrom %s to %s", row.name,
				 format(key, value, text), row.or_none ? "0 (no limit) or " : "",
				 format(key, row.least, least), format(key, row.most, most));
	if (row.bytes && !row.or_none && memory && value > memory)
		return error_set(err, -EINVAL, "%s=%s: exceeds the %s of memory that dieseld may use here",
				 row.name, format(key, value, text), format(key, memory, most));
	return 0;
}

/* Checks a value, also against its limit. */
static int check_value(const struct settings *s, enum wire_setting_key key, uint64_t value, uint64_t memory,
		       struct error *err)
{
	const struct tuner_knob_info *knob = knob_info(key);
	char text[32], most[32];
	int r = check_range(s, key, value, memory, err);

	if (r == 0 && knob && value > settings_get(s, knob->limit))
		return error_set(err, -EINVAL, "%s=%s: the limit is %s; raise %s first", settings_name(key),
				 format(key, value, text), format(key, settings_get(s, knob->limit), most),
				 settings_name(knob->limit));
	return r;
}

void settings_place_error(const struct settings_source *source, struct error *err)
{
	if (source->file)
		error_prefix(err, "%s:%d", source->file, source->line);
}

int settings_check(const struct settings *s, struct error *err)
{
	uint64_t memory = s->space.machine_bytes ? s->space.machine_bytes : s->space.memory_bytes;
	uint64_t least = settings_get(s, WIRE_SET_CACHE_MIN), most = settings_get(s, WIRE_SET_CACHE_MAX);
	char text[32], text2[32];

	for (enum wire_setting_key key = WIRE_SET_CACHE; key < WIRE_N_SETTINGS; key++) {
		int r = s->is_configured[key] ? check_value(s, key, s->configured[key], memory, err) : 0;

		if (r < 0) {
			settings_place_error(&s->source[key], err);
			return r;
		}
	}
	if (least <= most)
		return 0;
	error_set(err, -EINVAL, "cache-min=%s is more than cache-max=%s: set cache-min to at most cache-max",
		  format(WIRE_SET_CACHE_MIN, least, text), format(WIRE_SET_CACHE_MAX, most, text2));
	if (!s->is_set[WIRE_SET_CACHE_MIN])
		settings_place_error(&s->source[WIRE_SET_CACHE_MIN], err);
	return -EINVAL;
}

static void drop_pin(struct settings *s, uint32_t place)
{
	s->n_pins--;
	s->pins[place] = s->pins[s->n_pins];
	s->pin_by[place] = s->pin_by[s->n_pins];
}

static struct tuner_pin *find_pin(struct settings *s, uint64_t job, enum tuner_knob knob)
{
	for (uint32_t i = 0; i < s->n_pins; i++)
		if (s->pins[i].job == job && s->pins[i].knob == knob)
			return &s->pins[i];
	return NULL;
}

static int apply_pin(struct settings *s, uint64_t job, enum tuner_knob knob, const struct wire_setting *w,
		     struct error *err)
{
	struct tuner_pin *pin = find_pin(s, job, knob);

	if (w->flags & WIRE_SETTING_AUTO) {
		if (pin)
			drop_pin(s, (uint32_t)(pin - s->pins));
		return 0;
	}
	/* Leaves space for the pins from the configuration. */
	if (!pin && s->n_pins >= TUNER_MAX_PINS - TUNER_N_KNOBS)
		return error_set(
		    err, -ENOSPC,
		    "at most %d knobs can be pinned: unpin one first (`dieselctl set JOB KNOB=auto`)",
		    TUNER_MAX_PINS - TUNER_N_KNOBS);
	if (!pin)
		pin = &s->pins[s->n_pins++];
	memset(pin, 0, sizeof(*pin));
	pin->job = job;
	pin->knob = knob;
	pin->value = w->value;
	s->pin_by[pin - s->pins] = s->by;
	s->pin_by[pin - s->pins].until_restart = w->flags == WIRE_SETTING_UNTIL_RESTART;
	return 0;
}

int settings_restore_pin(struct settings *s, const struct tuner_pin *pin, struct error *err)
{
	const struct wire_setting w = {.key = tuner_knob_table[pin->knob].key, .value = pin->value};
	int r = check_range(s, (enum wire_setting_key)w.key, w.value, s->space.memory_bytes, err);

	return r < 0 ? r : apply_pin(s, pin->job, pin->knob, &w, err);
}

uint64_t settings_pin_in_force(const struct settings *s, const struct tuner_pin *pin)
{
	uint64_t most = settings_get(s, tuner_knob_table[pin->knob].limit);

	return pin->value < most ? pin->value : most;
}

static int apply_one(struct settings *s, uint64_t job, const struct wire_setting *w, struct error *err)
{
	enum wire_setting_key key = (enum wire_setting_key)w->key;
	enum tuner_knob knob;
	bool pins = tuner_knob_of_key(key, &knob) == 0;

	if (settings_is_of_job(key) && !job)
		return error_set(err, -EINVAL,
				 "%s applies to one job: name the job, as in `dieselctl set 1 %s=200`",
				 settings_name(key), settings_name(key));
	if (!pins && job && !settings_is_of_job(key))
		return error_set(err, -EINVAL, "%s applies to the whole daemon: set it without a job",
				 settings_name(key));
	if (!(w->flags & WIRE_SETTING_AUTO)) {
		int r = check_value(s, key, w->value, s->space.memory_bytes, err);

		if (r < 0)
			return r;
	}
	if (settings_is_of_job(key) && w->flags == WIRE_SETTING_UNTIL_RESTART)
		return error_set(err, -EINVAL,
				 "%s lasts only until its job ends: set it without --until-restart",
				 settings_name(key));
	if (settings_is_of_job(key))
		return 0;
	if (pins)
		return apply_pin(s, job, knob, w, err);
	s->is_set[key] = !(w->flags & WIRE_SETTING_AUTO);
	s->set[key] = w->value;
	s->set_by[key] = s->by;
	s->set_by[key].until_restart = w->flags == WIRE_SETTING_UNTIL_RESTART;
	return 0;
}

int settings_apply(struct settings *s, const struct wire_set *m, struct error *err)
{
	struct settings *copy = malloc(sizeof(*copy));
	int r = 0;

	if (!copy)
		return error_errno(err, -ENOMEM, "cannot set anything");
	*copy = *s;
	/* Applies limits first: a pin may need one that the same message raises. */
	for (int knobs = 0; knobs < 2; knobs++)
		for (uint32_t i = 0; i < m->n_settings && r == 0; i++)
			if (settings_is_knob((enum wire_setting_key)m->settings[i].key) == (knobs == 1))
				r = apply_one(copy, m->job, &m->settings[i], err);
	if (r == 0 && settings_get(copy, WIRE_SET_CACHE_MIN) > settings_get(copy, WIRE_SET_CACHE_MAX))
		r = settings_check(copy, err);
	if (r == 0)
		*s = *copy;
	free(copy);
	return r;
}

bool settings_find_pin(const struct settings *s, uint64_t job, enum tuner_knob knob, uint64_t *ret_value)
{
	enum wire_setting_key key = tuner_knob_table[knob].key;
	const struct tuner_pin *found = NULL;

	for (uint32_t i = 0; i < s->n_pins; i++) {
		const struct tuner_pin *pin = &s->pins[i];

		if (pin->knob == knob && (pin->job == job || (pin->job == 0 && !found)))
			found = pin;
	}
	if (!found && !s->is_configured[key])
		return false;
	*ret_value = found ? found->value : s->configured[key];
	return true;
}

void settings_forget_job(struct settings *s, uint64_t job)
{
	for (uint32_t i = 0; i < s->n_pins;) {
		if (job && s->pins[i].job == job)
			drop_pin(s, i);
		else
			i++;
	}
}

void settings_fill(const struct settings *s, struct tuner_config *config)
{
	config->cache_bytes_max = settings_get(s, WIRE_SET_CACHE_MAX);
	config->workers_max = (uint32_t)settings_get(s, WIRE_SET_WORKERS_MAX) +
			      (uint32_t)settings_get(s, WIRE_SET_CLIENT_WORKERS_MAX);
	config->prefetch_chunks_max = (uint32_t)settings_get(s, WIRE_SET_PREFETCH_MAX);
	config->daemon_workers_max = (uint32_t)settings_get(s, WIRE_SET_WORKERS_MAX);
	config->client_workers_max = (uint32_t)settings_get(s, WIRE_SET_CLIENT_WORKERS_MAX);
	config->decoded_bytes_max = settings_get(s, WIRE_SET_DECODED_CACHE_MAX);
	memset(config->pins, 0, sizeof(config->pins));
	memcpy(config->pins, s->pins, s->n_pins * sizeof(s->pins[0]));
	config->n_pins = s->n_pins;
	for (int knob = 0; knob < TUNER_N_KNOBS; knob++) {
		enum wire_setting_key key = tuner_knob_table[knob].key;
		bool all = false;

		for (uint32_t i = 0; i < s->n_pins; i++)
			all |= s->pins[i].job == 0 && s->pins[i].knob == (enum tuner_knob)knob;
		if (!s->is_configured[key] || all)
			continue;
		config->pins[config->n_pins].knob = (enum tuner_knob)knob;
		config->pins[config->n_pins++].value = s->configured[key];
	}
}
