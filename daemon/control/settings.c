/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/units.h"
#include "pool.h"

#define CACHE_LEAST         (UINT64_C(16) << 20) /* a few of the smallest chunks */
#define PREFETCH_MOST       65536u
#define CLIENT_WORKERS_MOST 256u
#define DEFAULT_PREFETCH    64u

static const struct {
	const char *name;
	bool bytes;
	uint64_t least, most;
	enum wire_setting_key limit; /* of a knob: what it may not exceed */
	enum tuner_knob knob;
} table[WIRE_N_SETTINGS] = {
    [WIRE_SET_CACHE] = {"cache", true, CACHE_LEAST, WIRE_CACHE_MAX, WIRE_SET_CACHE_MAX, TUNER_CACHE_BYTES},
    [WIRE_SET_PREFETCH] = {"prefetch", false, 0, PREFETCH_MOST, WIRE_SET_PREFETCH_MAX, TUNER_PREFETCH_CHUNKS},
    [WIRE_SET_WORKERS] = {"workers", false, 1, POOL_MAX_WORKERS, WIRE_SET_WORKERS_MAX, TUNER_DAEMON_WORKERS},
    [WIRE_SET_CLIENT_WORKERS] = {"client-workers", false, 0, CLIENT_WORKERS_MOST, WIRE_SET_CLIENT_WORKERS_MAX,
				 TUNER_CLIENT_WORKERS},
    [WIRE_SET_TUNE] = {.name = "tune", .most = WIRE_N_TUNES - 1},
    [WIRE_SET_CACHE_MAX] = {.name = "cache-max", .bytes = true, .least = CACHE_LEAST, .most = WIRE_CACHE_MAX},
    [WIRE_SET_CACHE_MIN] = {.name = "cache-min", .bytes = true, .least = 0, .most = WIRE_CACHE_MAX},
    [WIRE_SET_WORKERS_MAX] = {.name = "workers-max", .bytes = false, .least = 1, .most = POOL_MAX_WORKERS},
    [WIRE_SET_CLIENT_WORKERS_MAX] = {.name = "client-workers-max",
				     .bytes = false,
				     .least = 0,
				     .most = CLIENT_WORKERS_MOST},
    [WIRE_SET_PREFETCH_MAX] = {.name = "prefetch-max", .bytes = false, .least = 0, .most = PREFETCH_MOST},
};

const char *settings_name(enum wire_setting_key key)
{
	return table[key].name;
}

bool settings_is_knob(enum wire_setting_key key)
{
	return key < WIRE_SET_TUNE;
}

enum tuner_knob settings_knob(enum wire_setting_key key)
{
	return table[key].knob;
}

bool settings_is_bytes(enum wire_setting_key key)
{
	return table[key].bytes;
}

const char *settings_tune_name(enum wire_tune tune)
{
	static const char *const names[WIRE_N_TUNES] = {"off", "on", "dry-run"};

	return names[tune];
}

/* A configured knob raises an unconfigured limit. */
static uint64_t at_least(const struct settings *s, enum wire_setting_key knob, uint64_t value)
{
	return s->is_configured[knob] && s->configured[knob] > value ? s->configured[knob] : value;
}

static uint64_t default_of(const struct settings *s, enum wire_setting_key key)
{
	uint64_t cpus = s->room.n_cpus ? s->room.n_cpus : 1;

	if (cpus > POOL_MAX_WORKERS)
		cpus = POOL_MAX_WORKERS;
	switch (key) {
	case WIRE_SET_TUNE: return WIRE_TUNE_ON;
	case WIRE_SET_CACHE_MAX: return s->room.cache_bytes;
	case WIRE_SET_WORKERS_MAX: return at_least(s, WIRE_SET_WORKERS, cpus);
	case WIRE_SET_CLIENT_WORKERS_MAX: return at_least(s, WIRE_SET_CLIENT_WORKERS, cpus);
	case WIRE_SET_PREFETCH_MAX: return at_least(s, WIRE_SET_PREFETCH, DEFAULT_PREFETCH);
	case WIRE_SET_CACHE_MIN:
	case WIRE_SET_CACHE:
	case WIRE_SET_PREFETCH:
	case WIRE_SET_WORKERS:
	case WIRE_SET_CLIENT_WORKERS:
	case WIRE_N_SETTINGS: break;
	}
	return 0;
}

uint64_t settings_get(const struct settings *s, enum wire_setting_key key)
{
	if (s->is_set[key])
		return s->set[key];
	return s->is_configured[key] ? s->configured[key] : default_of(s, key);
}

static const char *format(enum wire_setting_key key, uint64_t value, char text[32])
{
	if (table[key].bytes)
		return units_format_bytes(text, 32, value);
	snprintf(text, 32, "%llu", (unsigned long long)value);
	return text;
}

/* A value by itself, and against its limit. */
static int check_value(const struct settings *s, enum wire_setting_key key, uint64_t value, struct error *err)
{
	char text[32], least[32], most[32];

	if (value < table[key].least || value > table[key].most)
		return error_set(err, -EINVAL, "%s=%s: it must be from %s to %s", table[key].name,
				 format(key, value, text), format(key, table[key].least, least),
				 format(key, table[key].most, most));
	if (table[key].bytes && s->room.memory_bytes && value > s->room.memory_bytes)
		return error_set(err, -EINVAL, "%s=%s: dieseld may use no more than %s of memory here",
				 table[key].name, format(key, value, text),
				 format(key, s->room.memory_bytes, most));
	if (settings_is_knob(key) && value > settings_get(s, table[key].limit))
		return error_set(err, -EINVAL, "%s=%s: the limit is %s; raise %s first", table[key].name,
				 format(key, value, text),
				 format(key, settings_get(s, table[key].limit), most),
				 table[table[key].limit].name);
	return 0;
}

int settings_check(const struct settings *s, struct error *err)
{
	uint64_t least = settings_get(s, WIRE_SET_CACHE_MIN), most = settings_get(s, WIRE_SET_CACHE_MAX);
	char text[32], text2[32];

	for (enum wire_setting_key key = WIRE_SET_CACHE; key < WIRE_N_SETTINGS; key++) {
		int r = s->is_configured[key] ? check_value(s, key, s->configured[key], err) : 0;

		if (r < 0)
			return r;
	}
	if (least > most)
		return error_set(err, -EINVAL, "cache-min=%s is more than cache-max=%s",
				 format(WIRE_SET_CACHE_MIN, least, text),
				 format(WIRE_SET_CACHE_MAX, most, text2));
	return 0;
}

static struct tuner_pin *find_pin(struct settings *s, uint64_t job, enum tuner_knob knob)
{
	for (uint32_t i = 0; i < s->n_pins; i++)
		if (s->pins[i].job == job && s->pins[i].knob == knob)
			return &s->pins[i];
	return NULL;
}

static int apply_pin(struct settings *s, uint64_t job, const struct wire_setting *w, struct error *err)
{
	enum tuner_knob knob = table[w->key].knob;
	struct tuner_pin *pin = find_pin(s, job, knob);

	if (w->flags & WIRE_SETTING_AUTO) {
		if (pin)
			*pin = s->pins[--s->n_pins];
		return 0;
	}
	/* Room is left for the pins that the configuration makes. */
	if (!pin && s->n_pins >= TUNER_MAX_PINS - TUNER_N_KNOBS)
		return error_set(err, -ENOSPC, "no more than %d knobs can be pinned: let go of some first",
				 TUNER_MAX_PINS - TUNER_N_KNOBS);
	if (!pin)
		pin = &s->pins[s->n_pins++];
	memset(pin, 0, sizeof(*pin));
	pin->job = job;
	pin->knob = knob;
	pin->value = w->value;
	return 0;
}

static int apply_one(struct settings *s, uint64_t job, const struct wire_setting *w, struct error *err)
{
	enum wire_setting_key key = (enum wire_setting_key)w->key;

	if (!settings_is_knob(key) && job)
		return error_set(err, -EINVAL, "%s is of the whole daemon: set it without a job",
				 table[key].name);
	if (!(w->flags & WIRE_SETTING_AUTO)) {
		int r = check_value(s, key, w->value, err);

		if (r < 0)
			return r;
	}
	if (settings_is_knob(key))
		return apply_pin(s, job, w, err);
	s->is_set[key] = !(w->flags & WIRE_SETTING_AUTO);
	s->set[key] = w->value;
	return 0;
}

int settings_apply(struct settings *s, const struct wire_set *m, struct error *err)
{
	struct settings *copy = malloc(sizeof(*copy));
	int r = 0;

	if (!copy)
		return error_errno(err, -ENOMEM, "cannot set anything");
	*copy = *s;
	/* Limits first: a pin may need one that the same message raises. */
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

bool settings_find_pin(const struct settings *s, uint64_t job, enum wire_setting_key key, uint64_t *ret_value)
{
	const struct tuner_pin *found = NULL;

	for (uint32_t i = 0; i < s->n_pins; i++) {
		const struct tuner_pin *pin = &s->pins[i];

		if (pin->knob == table[key].knob && (pin->job == job || (pin->job == 0 && !found)))
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
			s->pins[i] = s->pins[--s->n_pins];
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
	memset(config->pins, 0, sizeof(config->pins));
	memcpy(config->pins, s->pins, s->n_pins * sizeof(s->pins[0]));
	config->n_pins = s->n_pins;
	for (enum wire_setting_key key = WIRE_SET_CACHE; settings_is_knob(key); key++) {
		bool all = false;

		for (uint32_t i = 0; i < s->n_pins; i++)
			all |= s->pins[i].job == 0 && s->pins[i].knob == table[key].knob;
		if (!s->is_configured[key] || all)
			continue;
		config->pins[config->n_pins].knob = table[key].knob;
		config->pins[config->n_pins++].value = s->configured[key];
	}
}
