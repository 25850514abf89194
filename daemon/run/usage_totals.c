/* SPDX-License-Identifier: Apache-2.0 */
#include "usage_totals.h"

#include <stdio.h>
#include <string.h>

static struct usage_row *find(struct usage_totals *t, uint32_t uid, const char *account,
			      const char *pod_namespace)
{
	for (uint32_t i = 0; i < t->n; i++) {
		struct usage_row *row = &t->rows[i];

		if (!row->is_other_user && row->uid == uid && strcmp(row->account, account) == 0 &&
		    strcmp(row->pod_namespace, pod_namespace) == 0)
			return row;
	}
	return NULL;
}

static uint32_t count_of(const struct usage_totals *t, uint32_t uid)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < t->n; i++)
		n += !t->rows[i].is_other_user && t->rows[i].uid == uid;
	return n;
}

static void make(struct usage_totals *t, uint32_t uid, const char *account, const char *pod_namespace)
{
	struct usage_row *row = &t->rows[t->n++];

	*row = (struct usage_row){.uid = uid};
	snprintf(row->account, sizeof(row->account), "%s", account);
	snprintf(row->pod_namespace, sizeof(row->pod_namespace), "%s", pod_namespace);
}

/* Creates the row of a job that begins, if there is space for one. */
static void begin(struct usage_totals *t, uint32_t uid, const char *account, const char *pod_namespace)
{
	if (t->n >= USAGE_MAX_ROWS || find(t, uid, account, pod_namespace))
		return;
	if (count_of(t, uid) < USAGE_MAX_OF_USER - 1)
		make(t, uid, account, pod_namespace);
	else if (!find(t, uid, USAGE_OTHER, USAGE_OTHER))
		make(t, uid, USAGE_OTHER, USAGE_OTHER);
}

/* Returns the row of users without a row of their own. */
static struct usage_row *other_user(struct usage_totals *t)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->rows[i].is_other_user)
			return &t->rows[i];
	t->rows[t->n] = (struct usage_row){.is_other_user = true};
	return &t->rows[t->n++];
}

void usage_add(struct usage_totals *t, uint32_t uid, const char *account, const char *pod_namespace,
	       const struct usage_amounts *amounts)
{
	struct usage_row *row;

	if (amounts->jobs)
		begin(t, uid, account, pod_namespace);
	row = find(t, uid, account, pod_namespace);
	if (!row)
		row = find(t, uid, USAGE_OTHER, USAGE_OTHER);
	if (!row)
		row = other_user(t);
	row->amounts.jobs += amounts->jobs;
	row->amounts.samples += amounts->samples;
	row->amounts.bytes += amounts->bytes;
	row->amounts.read_bytes += amounts->read_bytes;
	row->amounts.node_bytes += amounts->node_bytes;
	row->amounts.cache_bytes += amounts->cache_bytes;
	row->amounts.cache_kib_s += amounts->cache_kib_s;
	row->amounts.cpu_ns += amounts->cpu_ns;
	row->amounts.wait_fetch_ns += amounts->wait_fetch_ns;
	row->amounts.wait_prep_ns += amounts->wait_prep_ns;
}
