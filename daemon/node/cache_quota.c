/* SPDX-License-Identifier: Apache-2.0 */
#include "cache_quota.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "admin.h"
#include "lib/cleanup.h"
#include "lib/units.h"

#define BLANKS     " \t"
#define GROUPS_MAX 65537 /* maximum number of a process's groups, its primary group included */

static char *strip(char *text)
{
	text += strspn(text, BLANKS);
	for (size_t n = strlen(text); n > 0 && strchr(BLANKS, text[n - 1]); n--)
		text[n - 1] = '\0';
	return text;
}

static int find_id(const char *setting, struct cache_quota *q, struct error *err)
{
	const char *name = q->name + q->is_group, *kind = q->is_group ? "group" : "user";

	if (!admin_may_be_name(name))
		return error_set(err, -EINVAL, "%s: \"%s\" is not a valid %s: write a name or a number",
				 setting, name, kind);
	q->is_unknown = admin_find(name, q->is_group, &q->id) < 0;
	if (q->is_unknown)
		return 0;
	if (q->id == (q->is_group ? admin_overflow_id("gid") : admin_overflow_id("uid")))
		return error_set(err, -EINVAL,
				 "%s: \"%s\" is number %u, which stands for every %s without a number in "
				 "this namespace: write another one",
				 setting, q->name, q->id, kind);
	return 0;
}

/* Returns true if the name can be the value of a metric's label. */
static bool is_plain(const char *name)
{
	for (; *name; name++)
		if (*name < ' ' || *name > '~' || *name == '"' || *name == '\\')
			return false;
	return true;
}

/* Parses "alice=20%". */
static int parse_row(const char *setting, char *text, struct cache_quota *ret, struct error *err)
{
	char *equals = strrchr(text, '='), *percent = equals ? strip(equals + 1) : text;
	struct cache_quota row = {.is_group = *text == '@'};
	size_t n = strlen(percent);
	int64_t number = 0;
	int r;

	if (equals) {
		*equals = '\0';
		text = strip(text);
	}
	if (!equals || !text[row.is_group] || strlen(text) >= sizeof(row.name) || !is_plain(text))
		return error_set(err, -EINVAL,
				 "%s: \"%s\" is not a user, or @ and a group, followed by = and a percentage",
				 setting, text);
	snprintf(row.name, sizeof(row.name), "%s", text);
	if (n < 2 || percent[n - 1] != '%')
		return error_set(err, -EINVAL, "%s: \"%s\" of %s is not a percentage", setting, percent,
				 text);
	percent[n - 1] = '\0';
	if (units_parse_integer(strip(percent), 1, 100, &number) < 0)
		return error_set(err, -EINVAL, "%s: \"%s%%\" of %s: must be from 1%% to 100%%", setting,
				 percent, text);
	row.percent = (uint32_t)number;
	r = find_id(setting, &row, err);
	if (r == 0)
		*ret = row;
	return r;
}

static bool is_known_pair(const struct cache_quota *a, const struct cache_quota *b)
{
	return !a->is_unknown && !b->is_unknown;
}

static int add_row(const char *setting, struct cache_quotas *q, const struct cache_quota *row,
		   struct error *err)
{
	uint32_t sum = row->percent;

	for (uint32_t i = 0; i < q->n; i++) {
		const struct cache_quota *o = &q->rows[i];

		sum += o->percent;
		if (o->is_group == row->is_group &&
		    (is_known_pair(o, row) ? o->id == row->id : strcmp(o->name, row->name) == 0))
			return error_set(err, -EINVAL,
					 "%s: %s and %s are the same %s: write only one of the two", setting,
					 o->name, row->name, row->is_group ? "group" : "user");
	}
	if (sum > 100)
		return error_set(err, -EINVAL, "%s: the parts up to %s add up to %u %%: write at most 100 %%",
				 setting, row->name, sum);
	if (q->n == CACHE_QUOTA_ROWS)
		return error_set(err, -EINVAL,
				 "%s: at most %d parts are possible: replace several by one for a group",
				 setting, CACHE_QUOTA_ROWS);
	q->rows[q->n++] = *row;
	return 0;
}

int cache_quotas_parse(const char *name, const char *value, struct cache_quotas *ret, struct error *err)
{
	_cleanup_(freep) char *copy = strdup(value);
	struct cache_quotas q = {.n = 0};
	char *rest = copy, *text;

	if (!copy)
		return -ENOMEM;
	if (strcmp(value, "off") == 0)
		rest = NULL;
	while ((text = strsep(&rest, ","))) {
		struct cache_quota row;
		int r = parse_row(name, strip(text), &row, err);

		if (r == 0)
			r = add_row(name, &q, &row, err);
		if (r < 0)
			return r;
	}
	*ret = q;
	return 0;
}

uint32_t cache_quotas_find(struct cache_quotas *q)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < q->n; i++) {
		struct error why = ERROR_INIT;

		if (q->rows[i].is_unknown && find_id("cache-quota", &q->rows[i], &why) < 0)
			q->rows[i].is_unknown = true;
		n += q->rows[i].is_unknown;
	}
	return n;
}

void cache_quotas_remember(struct cache_quotas *q, const struct cache_quotas *old)
{
	for (uint32_t i = 0; i < q->n; i++)
		for (uint32_t k = 0; k < old->n && q->rows[i].is_unknown; k++) {
			if (old->rows[k].is_unknown || strcmp(old->rows[k].name, q->rows[i].name) != 0)
				continue;
			q->rows[i].id = old->rows[k].id;
			q->rows[i].is_unknown = false;
		}
}

int cache_quotas_check(const char *name, const struct cache_quotas *q, struct error *err)
{
	for (uint32_t i = 0; i < q->n; i++) {
		const struct cache_quota *row = &q->rows[i];

		if (row->is_unknown)
			return error_set(err, -EINVAL,
					 "%s: \"%s\" is not a %s of this machine: write a name that the "
					 "machine knows, or a number",
					 name, row->name + row->is_group, row->is_group ? "group" : "user");
	}
	return 0;
}

static bool is_in(uint32_t gid, const uint32_t *gids, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (gids[i] == gid)
			return true;
	return false;
}

uint32_t cache_quotas_payer(const struct cache_quotas *q, uint32_t uid, const uint32_t *gids, size_t n_gids)
{
	for (uint32_t i = 0; i < q->n; i++)
		if (!q->rows[i].is_group && !q->rows[i].is_unknown && q->rows[i].id == uid)
			return i + 1;
	for (uint32_t i = 0; i < q->n; i++)
		if (q->rows[i].is_group && !q->rows[i].is_unknown && is_in(q->rows[i].id, gids, n_gids))
			return i + 1;
	return CACHE_QUOTA_REST;
}

uint32_t cache_quotas_payer_of(const struct cache_quotas *q, int socket, uint32_t uid)
{
	struct ucred peer = {.gid = UINT32_MAX};
	socklen_t size = sizeof(peer), bytes = GROUPS_MAX * sizeof(uint32_t);
	_cleanup_(freep) uint32_t *gids = NULL;

	if (q->n == 0)
		return CACHE_QUOTA_REST;
	gids = malloc(bytes);
	if (!gids || getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
		return cache_quotas_payer(q, uid, NULL, 0);
	gids[0] = peer.gid;
	bytes -= sizeof(uint32_t);
	if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, gids + 1, &bytes) < 0)
		bytes = 0;
	return cache_quotas_payer(q, uid, gids, 1 + bytes / sizeof(uint32_t));
}

const char *cache_quotas_name(const struct cache_quotas *q, uint32_t payer)
{
	return payer == CACHE_QUOTA_REST ? "others" : q->rows[payer - 1].name;
}

static uint32_t percent_of(const struct cache_quota *row)
{
	return row->is_unknown ? 0 : row->percent;
}

uint64_t cache_quotas_bytes(const struct cache_quotas *q, uint32_t payer, uint64_t bytes)
{
	uint32_t percent = 100;

	if (payer != CACHE_QUOTA_REST)
		percent = percent_of(&q->rows[payer - 1]);
	for (uint32_t i = 0; payer == CACHE_QUOTA_REST && i < q->n; i++)
		percent -= percent_of(&q->rows[i]);
	return bytes / 100 * percent + bytes % 100 * percent / 100;
}
