/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the server's contents for people: read once, from any machine, without changes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "keys.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "member.h"
#include "reading.h"
#include "dataset/redis/redis_refusal.h"

#define WAIT_S       5
#define MAX_GROUPS   4096
#define GROUPS_IN_GO 64
#define TEXT_OF(n)   TEXT_OF_(n)
#define TEXT_OF_(n)  #n

int registry_check_url(const char *url, struct error *err)
{
	struct redis_settings settings = {0};
	char prefix[REDIS_URL_PART];
	int r = registry_settings(url, WAIT_S, &settings, prefix, err);

	explicit_bzero(&settings, sizeof(settings));
	return r;
}

struct asking {
	struct redis_link *link;
	char prefix[REDIS_URL_PART];
};

static int asking_open(const char *url, struct asking *ret, struct error *err)
{
	struct redis_settings settings = {0};
	struct asking a = {0};
	int r = registry_settings(url, WAIT_S, &settings, a.prefix, err);

	if (r == 0)
		r = redis_link_open(&settings, &a.link, err);
	explicit_bzero(&settings, sizeof(settings));
	if (r < 0)
		return r;
	redis_link_keep_errors(a.link);
	*ret = a;
	return 0;
}

/* Reads the names in one of the sets. An error reply fails the call. */
static int ask_set(struct asking *a, struct key key, const char *last, const redisReply **ret,
		   struct error *err)
{
	const redisReply *reply;
	int r;

	redis_link_read(a->link, 4, (const char *[]){"ZREVRANGE", key.text, "0", last}, NULL);
	r = redis_link_run(a->link, err);
	if (r < 0)
		return r;
	reply = redis_link_reply(a->link, 0);
	if (reply->type == REDIS_REPLY_ERROR)
		return redis_refusal(reply, redis_link_text(a->link), err);
	if (reply->type != REDIS_REPLY_ARRAY)
		return error_set(err, -EPROTO, "%s: %s does not hold the entry of a node",
				 redis_link_text(a->link), key.text);
	*ret = reply;
	return 0;
}

/* Parses a group's id from the set of groups. -EINVAL */
static int key_parse_group(const char *text, size_t bytes, struct registry_group_id *ret)
{
	if (bytes != sizeof(ret->text) - 1 || memchr(text, '\0', bytes) ||
	    strspn(text, "0123456789abcdef") < bytes)
		return -EINVAL;
	memcpy(ret->text, text, bytes);
	ret->text[bytes] = '\0';
	return 0;
}

static int ask_groups(struct asking *a, struct node_reading **ret, size_t *ret_n, struct error *err)
{
	const redisReply *reply;
	struct node_reading *groups;
	size_t n = 0;
	int r = ask_set(a, key_groups(a->prefix), TEXT_OF(MAX_GROUPS), &reply, err);

	if (r < 0)
		return r;
	groups = calloc(reply->elements + 1, sizeof(*groups));
	if (!groups)
		return error_errno(err, -ENOMEM, "the groups");
	for (size_t i = 0; i < reply->elements; i++) {
		const redisReply *name = reply->element[i];

		n += name->type == REDIS_REPLY_STRING &&
		     key_parse_group(name->str, name->len, &groups[n].group) == 0;
	}
	*ret = groups;
	*ret_n = n;
	return 0;
}

/* Fetches the names of some groups. A group with more data than a reply may hold is left out. */
static int ask_names(struct asking *a, struct node_reading *groups, size_t n, struct error *err)
{
	int r;

	for (size_t i = 0; i < n; i++)
		reading_ask_names(a->link, a->prefix, &groups[i].group);
	r = redis_link_run(a->link, err);
	if (r == -EPROTO && n > 1) {
		r = ask_names(a, groups, n / 2, err);
		return r < 0 ? r : ask_names(a, groups + n / 2, n - n / 2, err);
	}
	for (size_t i = 0; i < n && r == 0; i++)
		if (reading_take_names(&groups[i], redis_link_reply(a->link, i)) == -EBADMSG)
			groups[i].n_names = 0;
	return r == -EPROTO ? 0 : r;
}

static int ask_members(struct asking *a, struct node_reading *groups, size_t n, struct error *err)
{
	size_t n_names = 0;
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i += GROUPS_IN_GO)
		r = ask_names(a, groups + i, n - i < GROUPS_IN_GO ? n - i : GROUPS_IN_GO, err);
	for (size_t i = 0; i < n; i++) {
		n_names += groups[i].n_names;
		if (n_names > REGISTRY_MAX_LISTED)
			groups[i].n_names = 0;
	}
	for (size_t i = 0; i < n && r >= 0; i += (size_t)r)
		r = reading_values(a->link, a->prefix, groups + i, n - i, err);
	return r < 0 ? r : 0;
}

static int compare_entries(const void *left, const void *right)
{
	const struct registry_entry *a = left, *b = right;
	int groups = strcmp(a->group.text, b->group.text);

	return groups ? groups : strcmp(a->member.node, b->member.node);
}

static int gather(const struct node_reading *groups, size_t n_groups, struct registry_entry **ret,
		  size_t *ret_n)
{
	struct registry_entry *all;
	size_t n = 0;

	for (size_t i = 0; i < n_groups; i++)
		n += groups[i].n_entries;
	all = calloc(n + 1, sizeof(*all));
	if (!all)
		return -ENOMEM;
	n = 0;
	for (size_t i = 0; i < n_groups; i++) {
		if (groups[i].n_entries)
			memcpy(all + n, groups[i].entries, groups[i].n_entries * sizeof(*all));
		n += groups[i].n_entries;
	}
	if (n)
		qsort(all, n, sizeof(*all), compare_entries);
	*ret = all;
	*ret_n = n;
	return 0;
}

int registry_list(const char *url, struct registry_entry **ret, size_t *ret_n, struct error *err)
{
	struct node_reading *groups = NULL;
	struct asking a = {0};
	size_t n = 0;
	int r = asking_open(url, &a, err);

	if (r == 0)
		r = ask_groups(&a, &groups, &n, err);
	if (r == 0)
		r = ask_members(&a, groups, n, err);
	if (r == 0 && (r = gather(groups, n, ret, ret_n)) < 0)
		error_errno(err, r, "the groups");
	for (size_t i = 0; i < n; i++)
		reading_free(&groups[i]);
	free(groups);
	redis_link_close(a.link);
	return r;
}

static int compare_reports(const void *left, const void *right)
{
	return strcmp(((const struct registry_report *)left)->node,
		      ((const struct registry_report *)right)->node);
}

/* Takes one report, unless it expired meanwhile or is of another type. */
static int take_report(struct registry_report *report, const redisReply *text, const redisReply *left_ms)
{
	if (!text || !left_ms)
		return -EAGAIN;
	if (text->type != REDIS_REPLY_STRING || text->len == 0 || text->len >= REGISTRY_REPORT_BYTES ||
	    memchr(text->str, '\0', text->len) || left_ms->type != REDIS_REPLY_INTEGER ||
	    left_ms->integer < 0 || left_ms->integer > REGISTRY_REPORT_MS)
		return 0;
	report->age_ms = REGISTRY_REPORT_MS - (uint64_t)left_ms->integer;
	report->json = strdup(text->str);
	return report->json ? 1 : -ENOMEM;
}

/* Fetches the reports of all names and keeps those that exist. Works in batches, so that no reply is too
 * large. */
static int ask_reports(struct asking *a, struct registry_report *reports, size_t *n, struct error *err)
{
	size_t n_kept = 0;
	int r = 0;

	for (size_t i = 0; i < *n && r >= 0; i += GROUPS_IN_GO) {
		size_t n_go = *n - i < GROUPS_IN_GO ? *n - i : GROUPS_IN_GO;

		for (size_t k = i; k < i + n_go; k++) {
			struct key key = key_report(a->prefix, reports[k].node);

			redis_link_read(
			    a->link, 4,
			    (const char *[]){"GETRANGE", key.text, "0", TEXT_OF(REGISTRY_REPORT_BYTES)},
			    NULL);
			redis_link_read(a->link, 2, (const char *[]){"PTTL", key.text}, NULL);
		}
		r = redis_link_run(a->link, err);
		for (size_t k = 0; k < n_go && r >= 0; k++) {
			struct registry_report report = reports[i + k];

			r = take_report(&report, redis_link_reply(a->link, 2 * k),
					redis_link_reply(a->link, 2 * k + 1));
			if (r > 0)
				reports[n_kept++] = report;
			else if (r < 0)
				error_errno(err, r, "%s", redis_link_text(a->link));
		}
	}
	*n = n_kept;
	return r < 0 ? r : 0;
}

int registry_reports(const char *url, struct registry_report **ret, size_t *ret_n, struct error *err)
{
	struct registry_report *reports = NULL;
	const redisReply *reply;
	struct asking a = {0};
	size_t n = 0;
	int r = asking_open(url, &a, err);

	if (r == 0)
		r = ask_set(&a, key_reports(a.prefix), TEXT_OF(REGISTRY_MAX_MEMBERS), &reply, err);
	if (r == 0 && !(reports = calloc(reply->elements + 1, sizeof(*reports))))
		r = error_errno(err, -ENOMEM, "the reports");
	for (size_t i = 0; r == 0 && i < reply->elements && n < REGISTRY_MAX_MEMBERS; i++)
		if (reply->element[i]->type == REDIS_REPLY_STRING &&
		    member_is_name(reply->element[i]->str, reply->element[i]->len))
			memcpy(reports[n++].node, reply->element[i]->str, reply->element[i]->len);
	if (r == 0)
		r = ask_reports(&a, reports, &n, err);
	redis_link_close(a.link);
	if (r < 0) {
		registry_reports_free(reports, n);
		return r;
	}
	qsort(reports, n, sizeof(*reports), compare_reports);
	*ret = reports;
	*ret_n = n;
	return 0;
}

void registry_reports_free(struct registry_report *reports, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(reports[i].json);
	free(reports);
}
