/* SPDX-License-Identifier: Apache-2.0 */
#include "options_set.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "lib/units.h"
#include "metrics.h"
#include "daemon/sandboxed/plugin.h"

static void *field(struct daemon_options *o, const struct option_row *row)
{
	return (char *)o + row->at;
}

static void configure(struct daemon_options *o, const struct option_row *row, uint64_t value)
{
	if (!row->key)
		return;
	o->settings.configured[row->key] = value;
	o->settings.is_configured[row->key] = true;
}

static int wrong(const struct option_row *row, const char *value, struct error *err)
{
	return error_set(err, -EINVAL, "%s: invalid value \"%s\": %s", row->name, value, row->says);
}

static int parse_number(const struct option_row *row, const char *value, uint64_t least, uint64_t most,
			uint64_t *ret, struct error *err)
{
	int64_t number;

	if (units_parse_integer(value, (int64_t)least, (int64_t)most, &number) < 0)
		return error_set(err, -EINVAL, "%s: \"%s\" is not a number from %llu to %llu", row->name,
				 value, (unsigned long long)least, (unsigned long long)most);
	*ret = (uint64_t)number;
	return 0;
}

int option_number(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	uint64_t number = 0;
	int r = parse_number(row, value, row->least, row->most, &number, err);

	if (r < 0)
		return r;
	*(uint32_t *)field(o, row) = (uint32_t)number;
	configure(o, row, number);
	return 0;
}

int option_ready_fd(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	uint64_t number = 0;
	int r = parse_number(row, value, 0, 65535, &number, err);

	if (r == 0)
		o->ready_fd = (int)number;
	return r;
}

int option_size(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	uint64_t bytes;

	if (units_parse_bytes(value, &bytes) < 0 || bytes < row->least || bytes > row->most)
		return wrong(row, value, err);
	*(uint64_t *)field(o, row) = bytes;
	return 0;
}

int option_cache(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	int r = option_size(o, row, value, err);

	if (r == 0)
		o->settings.space.cache_bytes = o->serve.knobs.cache_bytes;
	return r;
}

/* Sets an option of the tuner. The range is checked when all settings are known. */
int option_tuned(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	uint64_t number = 0;
	int r = 0;

	if (!settings_is_bytes(row->key))
		r = parse_number(row, value, 0, 65536, &number, err);
	else if (units_parse_bytes(value, &number) < 0)
		r = error_set(err, -EINVAL, "%s: \"%s\" is not a number of bytes, such as 4G", row->name,
			      value);
	if (r == 0)
		configure(o, row, number);
	return r;
}

int option_flag(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	bool yes = !strcmp(value, "true") || !strcmp(value, "yes");

	if (!yes && strcmp(value, "false") != 0 && strcmp(value, "no") != 0)
		return error_set(err, -EINVAL, "%s: \"%s\" is neither yes nor no", row->name, value);
	*(bool *)field(o, row) = yes != (row->least == 1);
	return 0;
}

int option_word(void *options, const struct option_row *row, const char *value, struct error *err)
{
	int place = option_word_place(row, value);

	_Static_assert(sizeof(((struct daemon_options *)NULL)->serve.require_digest) == sizeof(uint32_t),
		       "a choice must be a 32-bit number");
	if (place < 0)
		return wrong(row, value, err);
	*(uint32_t *)field(options, row) = (uint32_t)place;
	return 0;
}

int option_flag_of_words(void *options, const struct option_row *row, const char *value, struct error *err)
{
	int place = option_word_place(row, value);

	if (place < 0)
		return wrong(row, value, err);
	*(bool *)field(options, row) = place == 1;
	return 0;
}

int option_tune(void *options, const struct option_row *row, const char *value, struct error *err)
{
	int place = option_word_place(row, value);

	_Static_assert(WIRE_TUNE_OFF == 0 && WIRE_TUNE_ON == 1 && WIRE_TUNE_DRY_RUN == 2,
		       "the values must be in the order of the words");
	if (place < 0)
		return wrong(row, value, err);
	configure(options, row, (uint64_t)place);
	return 0;
}

int option_text(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	char *copy = strdup(value), **text = field(o, row);

	if (!copy)
		return -ENOMEM;
	free(*text);
	*text = copy;
	return 0;
}

/* Requires an absolute path in a file: it must not depend on the folder in which dieseld is started. */
int option_path(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	bool off = row->words && strcmp(value, row->words) == 0;

	if (o->file && !off && value[0] != '/')
		return error_set(err, -EINVAL, "%s: \"%s\" is not an absolute path%s", row->name, value,
				 row->words ? " or off" : "");
	if ((field(o, row) == &o->socket_path || field(o, row) == &o->admin_socket) &&
	    strlen(value) >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
		return error_set(
		    err, -EINVAL, "%s: the path of a socket must have at most %zu bytes, this one has %zu",
		    row->name, sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1, strlen(value));
	return option_text(o, row, value, err);
}

/* Checks only the syntax here. The path itself is checked when it is first used, because the disk may not
 * answer. */
int option_stage(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	if (strcmp(value, "off") != 0 && (value[0] != '/' || strlen(value) >= PATH_MAX))
		return error_set(err, -EINVAL, "%s: \"%s\" is neither an absolute path nor off", row->name,
				 value);
	return option_text(o, row, value, err);
}

int option_admin(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	return admin_parse(row->name, value, &o->admin, err);
}

int option_quotas(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	return cache_quotas_parse(row->name, value, &o->serve.quotas, err);
}

int option_metrics(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	int r = strcmp(value, "off") ? metrics_check_address(value, err) : 0;

	return r < 0 ? r : option_text(o, row, value, err);
}

int option_codec(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	char **codecs, *copy;

	if (strcmp(value, "off") == 0)
		return 0;
	if (value[0] != '/')
		return error_set(err, -EINVAL, "%s: \"%s\" is not an absolute path", row->name, value);
	for (uint32_t i = 0; i < o->n_codecs; i++) {
		if (strcmp(o->codecs[i], value) == 0)
			return error_set(err, -EINVAL, "%s: %s is named twice: remove one of the two",
					 row->name, value);
	}
	if (o->n_codecs == PLUGINS_MAX)
		return error_set(err, -EINVAL, "%s: at most %d codecs can be loaded: remove one", row->name,
				 PLUGINS_MAX);
	codecs = reallocarray(o->codecs, o->n_codecs + 1, sizeof(*codecs));
	if (!codecs)
		return -ENOMEM;
	o->codecs = codecs;
	copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	o->codecs[o->n_codecs++] = copy;
	return 0;
}

int option_cluster(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	if (strcmp(value, "off") != 0 && strncmp(value, "redis://", strlen("redis://")) != 0 &&
	    strncmp(value, "rediss://", strlen("rediss://")) != 0)
		return error_set(err, -EINVAL,
				 "%s: must be off or a URL such as redis://HOST[:PORT] or rediss://HOST",
				 row->name); /* without the value: it may hold a password */
	return option_text(o, row, value, err);
}

int option_cluster_limit(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct daemon_options *o = options;
	uint64_t bytes = 0;

	if (strcmp(value, "0") != 0 &&
	    (units_parse_bytes(value, &bytes) < 0 || bytes < row->least || bytes > row->most))
		return wrong(row, value, err);
	o->cluster_limit = bytes;
	return option_text(o, row, value, err);
}

int option_check_cache(const struct daemon_options *o, struct error *err)
{
	const struct settings_space *space = &o->settings.space;
	uint64_t memory = space->machine_bytes ? space->machine_bytes : space->memory_bytes;
	char given[24], most[24];

	/* Accepts a cache larger than the cgroup's limit, with a warning (main.c): outside of the
	 * service, the limit of its cgroup is unknown. */
	if (!space->cache_source.file || !memory || space->cache_bytes <= memory)
		return 0;
	return error_set(
	    err, -EINVAL, "cache: %s is more than this machine's memory of %s: write cache = %lluM, or less",
	    units_format_bytes(given, sizeof(given), space->cache_bytes),
	    units_format_bytes(most, sizeof(most), memory), (unsigned long long)(memory >> 20) / 4);
}

int option_check_cluster(struct daemon_options *o, struct error *err)
{
	char **c = o->cluster;

	if (!c[OPTIONS_CLUSTER_REDIS] || strcmp(c[OPTIONS_CLUSTER_REDIS], "off") == 0)
		return 0;
	if (!c[OPTIONS_CLUSTER_LISTEN])
		return error_set(
		    err, -EINVAL,
		    "cluster: requires cluster-listen ADDRESS:PORT, the address that other nodes connect to");
	/* A peer is known by its key or, on loopback addresses, as a process of root or our own user. */
	if (o->admin.who != ADMIN_ROOT && !c[OPTIONS_CLUSTER_KEY])
		return error_set(err, -EINVAL,
				 "cluster: with admin-user, requires cluster-key FILE, because without a key "
				 "any process of root can act as a peer");
	o->share = (struct cluster_options){.redis = c[OPTIONS_CLUSTER_REDIS],
					    .node = c[OPTIONS_CLUSTER_NAME],
					    .listen = c[OPTIONS_CLUSTER_LISTEN],
					    .advertise = c[OPTIONS_CLUSTER_ADVERTISE],
					    .key_file = c[OPTIONS_CLUSTER_KEY],
					    .peer_bytes_per_s = o->cluster_limit};
	return 0;
}
