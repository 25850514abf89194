/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry's thread.
 *
 * The callers' requests are protected by `mutex`, which nobody holds while waiting. The thread works on
 * copies of them, in rounds, and only the thread frees groups. `calling` is held while the handler is called,
 * so that no handler is called after the registry was stopped.
 */
#include "dataset/registry.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/thread.h"
#include "member.h"
#include "dataset/redis/redis_env.h"
#include "dataset/redis/redis_link.h"
#include "reading.h"
#include "keys.h"
#include "lib/sorted.h"
#include "lib/text.h"

#define PATIENCE_NS (600 * NS_PER_MS) /* limit of one attempt: three attempts fit into a lease */
#define APART_NS    (20 * NS_PER_MS)  /* minimum time between rounds, however often callers join and leave */
#define STOP_NS     (500 * NS_PER_MS)
#define PREFIX      "diesel"

#define SET_MS       60000  /* how long the set of a group's names outlives its last renewal */
#define INDEX_MS     600000 /* the same for the sets of groups and of reports */
#define SKEW_MS      60000  /* maximum by which a node's clock may be ahead */
#define INDEX_MAX    4096
#define READ_NS      (700 * NS_PER_MS) /* time limit of the reads; then renewals are nearly due again */
#define EACH_SECOND  64                /* groups of at most this many members are read in each round */
#define RIVAL_ROUNDS 2                 /* once may be the last renewal of our own earlier process */

/* Includes groups that are being left: at most as many again. */
#define REGISTRY_SPACE (2 * REGISTRY_MAX_GROUPS)

struct registry_group {
	/* Under the mutex. */
	struct registry_entry wanted;
	bool is_changed; /* the thread has not seen it yet */
	bool leaves;

	/* The thread's own. */
	struct registry_entry self;
	bool is_renewed;                 /* the server accepted it at least once */
	bool is_sick;                    /* the last attempt failed, so the group is tried by itself */
	bool was_sick;                   /* is_sick when this round began */
	unsigned n_rival;                /* consecutive renewals that found another node under our name */
	uint64_t trusted_ns;             /* until this time, a missing node may merely not have renewed yet */
	uint64_t read_ns;                /* time of the last read; 0: never */
	uint64_t read_again_ns;          /* earliest time of the next read */
	unsigned turn;                   /* rank among the groups of the same user in this round */
	struct registry_member *members; /* as last reported to the handler */
	size_t n_members;
};

struct registry {
	pthread_t thread;
	pthread_mutex_t mutex, calling;
	pthread_cond_t changed;
	struct registry_handler handler;
	struct registry_member self;
	struct redis_settings settings;
	char prefix[REDIS_URL_PART];

	/* Under the mutex. */
	struct registry_group *groups[REGISTRY_SPACE];
	size_t n_groups;
	char *report; /* a new report; NULL: none */
	bool is_changed, stops, is_done, is_abandoned;

	/* The thread's own. */
	struct redis_link *link;
	char *next_report; /* report that is not yet on the server */
	int server_is_up;  /* -1: not known */
	bool has_rival;
};

struct number {
	char text[24];
};

static struct number number(int64_t value)
{
	struct number n;

	snprintf(n.text, sizeof(n.text), "%lld", (long long)value);
	return n;
}

static int64_t now_ms(void)
{
	return (int64_t)(clock_realtime_ns() / NS_PER_MS);
}

struct node_round {
	struct registry *r;
	struct registry_group *groups[REGISTRY_MAX_GROUPS]; /* groups to be renewed */
	size_t n;
	struct registry_group *left[REGISTRY_SPACE];
	size_t n_left;
	uint64_t begin_ns;
	bool has_answered; /* the server has answered some request */
	struct error problem;
};

static void note_problem(struct node_round *round, const struct error *err)
{
	if (!round->problem.code && err->code)
		round->problem = *err;
}

static void note_refusal(struct node_round *round, const redisReply *reply)
{
	char said[200];

	if (!round->problem.code)
		error_set(&round->problem, -EIO, "%s: the server says: %s", redis_link_text(round->r->link),
			  text_printable(said, sizeof(said), reply->str, reply->len));
}

static void run_link(struct node_round *round, struct error *err)
{
	if (redis_link_run(round->r->link, err) == 0)
		round->has_answered = true;
	else
		note_problem(round, err);
}

static void command(struct node_round *round, size_t n, const char *const *args)
{
	/* Sends the command as a read, because a write waits for replicas. If a replica takes over, the data
	 * that it lacks is renewed within a second. */
	redis_link_read(round->r->link, n, args, NULL);
}

static void free_group(struct registry_group *g)
{
	free(g->members);
	free(g);
}

/* Takes the newest report, which replaces one that was not sent yet. */
static void take_report(struct registry *r)
{
	pthread_mutex_lock(&r->mutex);
	if (r->report) {
		free(r->next_report);
		r->next_report = steal_pointer(r->report);
	}
	pthread_mutex_unlock(&r->mutex);
}

/* Takes from callers, under the mutex, what changed since the last round. Puts into the round the groups to
 * renew: all of them, or with only_changed those that are new or changed. Moves groups that were left out of
 * the registry; the caller frees them. Also takes the newest report. */
static void take_wanted(struct node_round *round, bool only_changed)
{
	struct registry *r = round->r;
	size_t n = 0;

	pthread_mutex_lock(&r->mutex);
	for (size_t i = 0; i < r->n_groups; i++) {
		struct registry_group *g = r->groups[i];

		if (g->leaves) {
			round->left[round->n_left++] = g;
			continue;
		}
		r->groups[n++] = g;
		if (g->is_changed) {
			g->self = g->wanted;
			g->read_again_ns = 0;
		}
		if (g->is_changed || !only_changed)
			round->groups[round->n++] = g;
		g->is_changed = false;
	}
	r->n_groups = n;
	pthread_mutex_unlock(&r->mutex);
	take_report(r);
}

/* Orders the groups by users in turn, and each user's groups by waiting time, longest first. So one user's
 * many groups do not delay another user's. */
static int compare_turns(const void *left, const void *right)
{
	const struct registry_group *a = *(struct registry_group *const *)left,
				    *b = *(struct registry_group *const *)right;

	if (a->turn != b->turn)
		return compare_numbers(a->turn, b->turn);
	return compare_numbers(a->read_ns, b->read_ns);
}

static void order_groups(struct node_round *round)
{
	for (size_t i = 0; i < round->n; i++) {
		struct registry_group *g = round->groups[i];

		g->turn = 0;
		g->was_sick = g->is_sick;
		for (size_t k = 0; k < round->n; k++) {
			const struct registry_group *other = round->groups[k];

			g->turn += other->self.key.uid == g->self.key.uid &&
				   (other->read_ns < g->read_ns || (other->read_ns == g->read_ns && k < i));
		}
	}
	if (round->n)
		qsort(round->groups, round->n, sizeof(*round->groups), compare_turns);
}

static bool is_to_be_read(const struct node_round *round, const struct registry_group *g)
{
	return round->begin_ns >= g->read_again_ns;
}

/* Adds the commands that renew a group. The first reads the value from before; the last reads the names, if
 * requested. Returns the number of commands. */
static size_t ask_renewal(struct node_round *round, const struct registry_group *g)
{
	const char *prefix = round->r->prefix, *node = g->self.member.node;
	struct key key = key_node(prefix, &g->self.group, node), names = key_nodes(prefix, &g->self.group);
	struct number now = number(now_ms()), lease = number(REGISTRY_LEASE_MS), most = number(MEMBER_TEXT),
		      set = number(SET_MS);
	size_t n = redis_link_n(round->r->link);
	char text[MEMBER_TEXT];

	member_format(&g->self, text);
	command(round, 4, (const char *[]){"GETRANGE", key.text, "0", most.text});
	command(round, 5, (const char *[]){"SET", key.text, text, "PX", lease.text});
	command(round, 4, (const char *[]){"ZADD", names.text, now.text, node});
	command(round, 3, (const char *[]){"PEXPIRE", names.text, set.text});
	if (is_to_be_read(round, g))
		reading_ask_names(round->r->link, prefix, &g->self.group);
	return redis_link_n(round->r->link) - n;
}

/* Judges the value that was stored under this node's name before this renewal. If ours had disappeared, or
 * the server did not take our last renewal, missing members stay trusted for one lease. If another process of
 * the same name had written the value, counts one more renewal with a rival. */
static void judge_former(struct registry_group *g, const redisReply *reply)
{
	struct registry_entry former;
	bool is_member =
	    reply->type == REDIS_REPLY_STRING && member_parse(reply->str, reply->len, &former) == 0;

	/* The other nodes' values may be gone, too; those nodes are about to renew them. */
	if (g->is_renewed && (!is_member || g->was_sick))
		g->trusted_ns = clock_monotonic_ns() + REGISTRY_LEASE_MS * NS_PER_MS;
	if (g->is_renewed && is_member && former.member.incarnation != g->self.member.incarnation)
		g->n_rival += g->n_rival < RIVAL_ROUNDS;
	else
		g->n_rival = 0;
}

/* Replaces a set that no node can have made. The other nodes add themselves with their next renewal. */
static void replace_set(struct node_round *round, struct registry_group *g)
{
	struct key names = key_nodes(round->r->prefix, &g->self.group);
	struct number now = number(now_ms());
	struct error err = ERROR_INIT;

	command(round, 2, (const char *[]){"DEL", names.text});
	run_link(round, &err);
	command(round, 4, (const char *[]){"ZADD", names.text, now.text, g->self.member.node});
	run_link(round, &err);
}

static void take_renewal(struct node_round *round, struct registry_group *g, struct node_reading *reading,
			 size_t first, size_t n)
{
	struct redis_link *link = round->r->link;
	int r = 0;

	g->is_sick = false;
	for (size_t i = 0; i < n; i++)
		g->is_sick |= !redis_link_reply(link, first + i);
	if (g->is_sick)
		return;
	judge_former(g, redis_link_reply(link, first));
	if (redis_link_reply(link, first + 1)->type == REDIS_REPLY_ERROR) {
		note_refusal(round, redis_link_reply(link, first + 1));
		g->is_sick = true;
		return;
	}
	g->is_renewed = true;
	if (is_to_be_read(round, g))
		r = reading_take_names(reading, redis_link_reply(link, first + n - 1));
	reading->result =
	    r < 0 || redis_link_reply(link, first + 2)->type == REDIS_REPLY_ERROR ? -EBADMSG : 0;
}

/* Renews all groups at once. If a group holds more data than a reply may bring, bisection finds it. */
static void renew(struct node_round *round, struct registry_group **groups, struct node_reading *readings,
		  size_t n)
{
	size_t n_commands[REGISTRY_MAX_GROUPS], first = 0;
	struct error err = ERROR_INIT;

	for (size_t i = 0; i < n; i++)
		n_commands[i] = ask_renewal(round, groups[i]);
	if (n)
		run_link(round, &err);
	if (err.code == -EPROTO && n > 1) {
		round->problem = ERROR_INIT;
		renew(round, groups, readings, n / 2);
		renew(round, groups + n / 2, readings + n / 2, n - n / 2);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		take_renewal(round, groups[i], &readings[i], first, n_commands[i]);
		first += n_commands[i];
	}
	for (size_t i = 0; i < n; i++)
		if (readings[i].result == -EBADMSG || (n == 1 && err.code == -EPROTO))
			replace_set(round, groups[i]);
}

static int compare_members(const void *left, const void *right)
{
	return strcmp(((const struct registry_member *)left)->node,
		      ((const struct registry_member *)right)->node);
}

static void tell_members(struct registry *r, struct registry_group *g, struct registry_member *members,
			 size_t n)
{
	if (g->members && g->n_members == n && memcmp(g->members, members, n * sizeof(*members)) == 0) {
		free(members);
		return;
	}
	free(g->members);
	g->members = members;
	g->n_members = n;
	pthread_mutex_lock(&r->calling);
	if (!r->stops)
		r->handler.members(r->handler.user, &g->self.group, members, n);
	pthread_mutex_unlock(&r->calling);
}

/* Returns the node's entry, or NULL. */
static const struct registry_entry *reading_find(const struct node_reading *g, const char *node)
{
	for (size_t i = 0; i < g->n_entries; i++)
		if (strcmp(g->entries[i].member.node, node) == 0)
			return &g->entries[i];
	return NULL;
}

/* Sets the members: the nodes on the server, this node, and the members known before the server lost its
 * memory. */
static void take_members(struct node_round *round, struct registry_group *g,
			 const struct node_reading *reading)
{
	struct registry_member *members = calloc(reading->n_entries + g->n_members + 1, sizeof(*members));
	bool trusts = clock_monotonic_ns() < g->trusted_ns;
	size_t n = 1;

	if (!members)
		return;
	members[0] = g->self.member;
	for (size_t i = 0; i < reading->n_entries; i++)
		if (compare_members(&reading->entries[i].member, &g->self.member) != 0)
			members[n++] = reading->entries[i].member;
	for (size_t i = 0; i < g->n_members && trusts; i++)
		if (!reading_find(reading, g->members[i].node) &&
		    compare_members(&g->members[i], &g->self.member) != 0)
			members[n++] = g->members[i];
	/* If there are too many members, all nodes keep the first ones by name; each node also keeps itself.
	 */
	qsort(members + 1, n - 1, sizeof(*members), compare_members);
	n = n < REGISTRY_MAX_MEMBERS ? n : REGISTRY_MAX_MEMBERS;
	qsort(members, n, sizeof(*members), compare_members);
	g->read_ns = round->begin_ns;
	g->read_again_ns = n < EACH_SECOND ? 0 : round->begin_ns + n / EACH_SECOND * NS_PER_S - NS_PER_S / 2;
	tell_members(round->r, g, members, n);
}

/* Removes names without a live node, which would get in the way of others. A node that returns just now adds
 * its name again within a second. */
static void remove_litter(struct node_round *round, const struct node_reading *reading)
{
	struct key names = key_nodes(round->r->prefix, &reading->group);
	const char **args = calloc(2 + reading->n_names, sizeof(*args));
	struct error err = ERROR_INIT;
	size_t n = 2;

	for (size_t i = 0; i < reading->n_names && args; i++)
		if (reading->names[i].is_litter)
			args[n++] = reading->names[i].text;
	if (n > 2) {
		args[0] = "ZREM";
		args[1] = names.text;
		command(round, n, args);
		run_link(round, &err);
	}
	free(args);
}

static void read_groups(struct node_round *round, struct registry_group **groups,
			struct node_reading *readings, size_t n)
{
	size_t n_read = 0;

	for (size_t i = 0; i < n; i++) /* also a node that lost its place among the names */
		for (size_t k = 0; k < groups[i]->n_members; k++)
			reading_add_name(&readings[i], groups[i]->members[k].node,
					 strlen(groups[i]->members[k].node));
	while (n_read < n && clock_monotonic_ns() < round->begin_ns + READ_NS) {
		struct error err = ERROR_INIT;
		int r = reading_values(round->r->link, round->r->prefix, readings + n_read, n - n_read, &err);

		note_problem(round, &err);
		if (r < 0)
			return;
		for (int i = 0; i < r; i++, n_read++)
			if (readings[n_read].result == 0) {
				take_members(round, groups[n_read], &readings[n_read]);
				remove_litter(round, &readings[n_read]);
			}
	}
}

/* Renews and reads the healthy groups, or with `sick` the groups whose last attempt failed. */
static void renew_and_read(struct node_round *round, bool sick)
{
	struct registry_group *groups[REGISTRY_MAX_GROUPS];
	struct node_reading *readings = calloc(round->n + 1, sizeof(*readings));
	size_t n = 0, n_due = 0;

	for (size_t i = 0; i < round->n && readings; i++)
		if (round->groups[i]->was_sick == sick) {
			groups[n] = round->groups[i];
			readings[n++].group = round->groups[i]->self.group;
		}
	if (n)
		renew(round, groups, readings, n);
	for (size_t i = 0; i < n; i++) {
		if (groups[i]->is_sick || !is_to_be_read(round, groups[i])) {
			reading_free(&readings[i]);
			continue;
		}
		groups[n_due] = groups[i];
		readings[n_due++] = readings[i];
	}
	if (n_due)
		read_groups(round, groups, readings, n_due);
	for (size_t i = 0; i < n_due; i++)
		reading_free(&readings[i]);
	free(readings);
}

/* Adds a command that trims a set by age. Clocks need not agree: a node that another one removed adds itself
 * again within a second. */
static void ask_trim(struct node_round *round, const char *key)
{
	struct number oldest = number(now_ms() - INDEX_MS), newest = number(now_ms() + SKEW_MS),
		      last = number(-INDEX_MAX - 1), keep = number(INDEX_MS);

	command(round, 4, (const char *[]){"ZREMRANGEBYSCORE", key, "-inf", oldest.text});
	command(round, 4, (const char *[]){"ZREMRANGEBYSCORE", key, newest.text, "+inf"});
	command(round, 4, (const char *[]){"ZREMRANGEBYRANK", key, "0", last.text});
	command(round, 3, (const char *[]){"PEXPIRE", key, keep.text});
}

/* Adds the commands that renew the set of all groups, for people. A node without groups sends them, too, to
 * learn whether the server is up. */
static void ask_index(struct node_round *round)
{
	const char *args[2 + 2 * REGISTRY_MAX_GROUPS];
	struct key key = key_groups(round->r->prefix);
	struct number now = number(now_ms());
	size_t n = 2;

	args[0] = "ZADD";
	args[1] = key.text;
	for (size_t i = 0; i < round->n; i++) {
		args[n++] = now.text;
		args[n++] = round->groups[i]->self.group.text;
	}
	if (n > 2)
		command(round, n, args);
	ask_trim(round, key.text);
}

/* Adds the commands that store the report. The reply to the first one shows whether that worked. */
static void ask_report(struct node_round *round, const char *text)
{
	const char *node = round->r->self.node;
	struct key key = key_report(round->r->prefix, node), set = key_reports(round->r->prefix);
	struct number now = number(now_ms()), keep = number(REGISTRY_REPORT_MS);

	if (text[0]) {
		command(round, 5, (const char *[]){"SET", key.text, text, "PX", keep.text});
		command(round, 4, (const char *[]){"ZADD", set.text, now.text, node});
	} else {
		command(round, 2, (const char *[]){"DEL", key.text});
		command(round, 3, (const char *[]){"ZREM", set.text, node});
	}
	ask_trim(round, set.text);
}

/* Writes the data for people. A set of the wrong type is deleted and written again the next time. */
static void tell_people(struct node_round *round)
{
	struct redis_link *link = round->r->link;
	struct error err = ERROR_INIT;
	struct key groups = key_groups(round->r->prefix), reports = key_reports(round->r->prefix);
	bool groups_are_wrong = false, reports_are_wrong = false;
	size_t n_index, n;

	ask_index(round);
	n_index = redis_link_n(link);
	if (round->r->next_report)
		ask_report(round, round->r->next_report);
	n = redis_link_n(link);
	run_link(round, &err);
	for (size_t i = 0; i < n; i++)
		if (redis_link_reply(link, i) && redis_link_reply(link, i)->type == REDIS_REPLY_ERROR)
			*(i < n_index ? &groups_are_wrong : &reports_are_wrong) = true;
	if (n > n_index && redis_link_reply(link, n_index) &&
	    redis_link_reply(link, n_index)->type != REDIS_REPLY_ERROR)
		free(steal_pointer(round->r->next_report));
	if (groups_are_wrong)
		command(round, 2, (const char *[]){"DEL", groups.text});
	if (reports_are_wrong)
		command(round, 2, (const char *[]){"DEL", reports.text});
	if (groups_are_wrong || reports_are_wrong)
		run_link(round, &err);
}

/* Removes this node's values from these groups, but not values of another node that has its name by now. */
static void leave(struct node_round *round, struct registry_group **groups, size_t n)
{
	struct redis_link *link = round->r->link;
	bool is_ours[REGISTRY_SPACE] = {false};
	struct number most = number(MEMBER_TEXT);
	struct error err = ERROR_INIT;
	size_t n_ours = 0;

	for (size_t i = 0; i < n; i++) {
		struct key key =
		    key_node(round->r->prefix, &groups[i]->self.group, groups[i]->self.member.node);

		command(round, 4, (const char *[]){"GETRANGE", key.text, "0", most.text});
	}
	run_link(round, &err);
	for (size_t i = 0; i < n; i++) {
		const redisReply *reply = redis_link_reply(link, i);
		struct registry_entry found;

		is_ours[i] = reply && reply->type == REDIS_REPLY_STRING &&
			     member_parse(reply->str, reply->len, &found) == 0 &&
			     found.member.incarnation == groups[i]->self.member.incarnation;
		n_ours += is_ours[i];
	}
	for (size_t i = 0; i < n; i++) {
		const char *node = groups[i]->self.member.node;
		struct key key = key_node(round->r->prefix, &groups[i]->self.group, node),
			   names = key_nodes(round->r->prefix, &groups[i]->self.group);

		if (!is_ours[i])
			continue;
		command(round, 2, (const char *[]){"DEL", key.text});
		command(round, 3, (const char *[]){"ZREM", names.text, node});
	}
	if (n_ours)
		run_link(round, &err);
}

static void tell_server(struct registry *r, bool is_up, const char *problem)
{
	r->server_is_up = is_up;
	pthread_mutex_lock(&r->calling);
	if (!r->stops)
		r->handler.server(r->handler.user, is_up, problem);
	pthread_mutex_unlock(&r->calling);
}

static void judge_server(struct node_round *round, bool only_changed)
{
	struct registry *r = round->r;
	bool is_up = !round->problem.code, has_rival = false;
	struct error rival = ERROR_INIT;

	for (size_t i = 0; i < round->n; i++)
		has_rival |= round->groups[i]->n_rival >= RIVAL_ROUNDS;
	if (has_rival)
		error_set(&rival, -EEXIST,
			  "another node is also named %s: give one of the two a different --cluster-name",
			  r->self.node);
	if (only_changed)
		has_rival = r->has_rival;
	if (r->server_is_up != is_up || (is_up && r->has_rival != has_rival))
		tell_server(r, is_up, !is_up ? round->problem.text : has_rival ? rival.text : NULL);
	r->has_rival = has_rival;
}

static int connect_link(struct node_round *round)
{
	struct registry *r = round->r;
	int result;

	if (r->link)
		return 0;
	result = redis_link_open(&r->settings, &r->link, &round->problem);
	if (result == 0)
		redis_link_keep_errors(r->link);
	return result;
}

/* One round: all groups, or only those that are new, changed or left. */
static void registry_round(struct registry *r, bool only_changed)
{
	struct node_round *round = calloc(1, sizeof(*round));

	if (!round)
		return; /* no memory: try again in a second */
	round->r = r;
	round->begin_ns = clock_monotonic_ns();
	take_wanted(round, only_changed);
	order_groups(round);
	if (connect_link(round) == 0) {
		if (round->n_left && r->server_is_up != 0)
			leave(round, round->left, round->n_left);
		renew_and_read(round, false);
		if (!only_changed)
			renew_and_read(round, true);
		if (!only_changed && (round->has_answered || !round->problem.code))
			tell_people(round);
	}
	if (!only_changed || round->problem.code)
		judge_server(round, only_changed);
	for (size_t i = 0; i < round->n_left; i++)
		free_group(round->left[i]);
	free(round);
}

/* Tells the server that this node leaves everything. */
static void registry_farewell(struct registry *r)
{
	struct node_round *round = calloc(1, sizeof(*round));
	struct error err = ERROR_INIT;

	if (round && r->link && r->server_is_up == 1) {
		round->r = r;
		if (r->n_groups)
			leave(round, r->groups, r->n_groups);
		take_report(r);
		if (r->next_report) { /* also if the report was removed */
			ask_report(round, r->next_report);
			run_link(round, &err);
		}
	}
	free(round);
}

static void free_registry(struct registry *r)
{
	redis_link_close(r->link);
	for (size_t i = 0; i < r->n_groups; i++) {
		free(r->groups[i]->members);
		free(r->groups[i]);
	}
	explicit_bzero(&r->settings, sizeof(r->settings));
	pthread_mutex_destroy(&r->mutex);
	pthread_mutex_destroy(&r->calling);
	pthread_cond_destroy(&r->changed);
	free(r->report);
	free(r->next_report);
	free(r);
}

/* Waits with the mutex held. Returns early if something has changed or the thread must stop. */
static void wait_until(struct registry *r, uint64_t until_ns, bool for_changes)
{
	const struct timespec at = {.tv_sec = (time_t)(until_ns / NS_PER_S),
				    .tv_nsec = (long)(until_ns % NS_PER_S)};

	while (!r->stops && !(for_changes && r->is_changed) && clock_monotonic_ns() < until_ns)
		pthread_cond_timedwait(&r->changed, &r->mutex, &at);
}

static void *run(void *context)
{
	struct registry *r = context;
	uint64_t due_ns = clock_monotonic_ns();
	bool frees;

	pthread_mutex_lock(&r->mutex);
	while (!r->stops) {
		uint64_t now_ns = clock_monotonic_ns();
		bool is_due = now_ns >= due_ns;

		if (is_due) /* a slow server gets a pause between requests */
			due_ns = (due_ns + REGISTRY_RENEW_MS * NS_PER_MS > now_ns ? due_ns : now_ns) +
				 REGISTRY_RENEW_MS * NS_PER_MS;
		r->is_changed = false;
		pthread_mutex_unlock(&r->mutex);
		registry_round(r, !is_due);
		pthread_mutex_lock(&r->mutex);
		wait_until(r, clock_monotonic_ns() + APART_NS, false);
		wait_until(r, due_ns, true);
	}
	pthread_mutex_unlock(&r->mutex);
	registry_farewell(r);
	pthread_mutex_lock(&r->mutex);
	r->is_done = true;
	frees = r->is_abandoned;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->mutex);
	if (frees)
		free_registry(r);
	return NULL;
}

int registry_settings(const char *url, unsigned wait_s, struct redis_settings *ret,
		      char prefix[REDIS_URL_PART], struct error *err)
{
	char kept[REDIS_ENV_URL] = "";
	int r = url ? 0 : redis_env_url(kept, err);

	if (r < 0)
		return r;
	r = redis_url_parse(url ? url : kept, false, &ret->url, err);
	explicit_bzero(kept, sizeof(kept));
	if (r < 0)
		error_prefix(err, "the cluster's Redis URL");
	if (r == 0)
		r = redis_env_credentials(&ret->url, err);
	if (r == 0)
		r = redis_env_settings(ret, wait_s, err);
	snprintf(prefix, REDIS_URL_PART, "%s", ret->url.prefix[0] ? ret->url.prefix : PREFIX);
	return r;
}

int registry_check(const char *url, struct error *err)
{
	struct redis_settings settings = {0};
	char prefix[REDIS_URL_PART];
	int r = registry_settings(url, 1, &settings, prefix, err);

	explicit_bzero(&settings, sizeof(settings));
	return r;
}

int registry_start(const char *url, const struct registry_member *self,
		   const struct registry_handler *handler, struct registry **ret, struct error *err)
{
	pthread_condattr_t monotonic;
	struct registry *r;
	int result;

	if (!member_is_name(self->node, strnlen(self->node, sizeof(self->node))))
		return error_set(err, -EINVAL,
				 "the node's name must be 1 to %d bytes of UTF-8 without control characters",
				 REGISTRY_NAME_BYTES - 1);
	if (!memchr(self->address, '\0', sizeof(self->address)) || !member_is_address(self->address))
		return error_set(
		    err, -EINVAL,
		    "the address that other nodes connect to must be an IP address with a port, such "
		    "as 10.0.0.1:7077 or [fd00::1]:7077");
	r = calloc(1, sizeof(*r));
	if (!r)
		return error_errno(err, -ENOMEM, "cannot start the registry of nodes");
	pthread_mutex_init(&r->mutex, NULL);
	pthread_mutex_init(&r->calling, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&r->changed, &monotonic);
	pthread_condattr_destroy(&monotonic);
	r->handler = *handler;
	r->self = *self;
	r->server_is_up = -1;
	result = registry_settings(url, 1, &r->settings, r->prefix, err);
	r->settings.patience_ns = PATIENCE_NS;
	if (result == 0) {
		result = thread_start(&r->thread, run, r);
		if (result < 0)
			error_errno(err, result, "the registry's thread");
	}
	if (result < 0)
		free_registry(r);
	else
		*ret = r;
	return result;
}

void registry_stop(struct registry *r)
{
	const uint64_t until_ns = clock_monotonic_ns() + STOP_NS;
	const struct timespec at = {.tv_sec = (time_t)(until_ns / NS_PER_S),
				    .tv_nsec = (long)(until_ns % NS_PER_S)};
	bool is_done;

	if (!r)
		return;
	pthread_mutex_lock(&r->calling);
	pthread_mutex_lock(&r->mutex);
	r->stops = true;
	pthread_mutex_unlock(&r->calling);
	pthread_cond_broadcast(&r->changed);
	while (!r->is_done && clock_monotonic_ns() < until_ns)
		pthread_cond_timedwait(&r->changed, &r->mutex, &at);
	is_done = r->is_done;
	r->is_abandoned = !is_done;
	if (!is_done) /* the thread still waits for the server, or for name resolution */
		pthread_detach(r->thread);
	pthread_mutex_unlock(&r->mutex);
	if (is_done) {
		pthread_join(r->thread, NULL);
		free_registry(r);
	}
}

static struct registry_group *find(struct registry *r, const struct registry_group_id *id)
{
	for (size_t i = 0; i < r->n_groups; i++)
		if (strcmp(r->groups[i]->wanted.group.text, id->text) == 0)
			return r->groups[i];
	return NULL;
}

static int add_group(struct registry *r, const struct registry_group_key *key, struct registry_group **ret)
{
	size_t n = 0, n_of_uid = 0, n_with_left = 0;

	for (size_t i = 0; i < r->n_groups; i++) {
		const struct registry_group *g = r->groups[i];
		bool is_of_uid = g->wanted.key.uid == key->uid;

		n += !g->leaves;
		n_of_uid += !g->leaves && is_of_uid;
		n_with_left += is_of_uid;
	}
	if (n >= REGISTRY_MAX_GROUPS || r->n_groups == REGISTRY_SPACE || n_of_uid >= REGISTRY_MAX_OF_UID ||
	    n_with_left >= 2 * REGISTRY_MAX_OF_UID)
		return -ENOSPC;
	struct registry_group *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	r->groups[r->n_groups++] = g;
	*ret = g;
	return 0;
}

/* Copies a path. A long path is cut between characters, or anywhere if it is not UTF-8. */
static void copy_path(char ret[256], const char *path)
{
	size_t n = strnlen(path, 256);

	if (n == 256)
		for (n = 255; n > 252 && ((unsigned char)path[n] & 0xc0) == 0x80;)
			n--;
	memset(ret, 0, 256);
	memcpy(ret, path, n);
}

int registry_join(struct registry *r, const struct registry_group_key *key, const char *path,
		  uint64_t weight_bytes, const struct owner_lanes *lanes)
{
	struct registry_entry wanted = {.key = {.uid = key->uid}, .member = r->self};
	struct registry_group *g;
	int result = 0;

	/* Bytes after the end of the name are not part of the key. */
	snprintf(wanted.key.job, sizeof(wanted.key.job), "%.*s", (int)sizeof(key->job) - 1, key->job);
	memcpy(wanted.key.dataset, key->dataset, sizeof(wanted.key.dataset));
	registry_group_id(&wanted.key, &wanted.group);
	copy_path(wanted.path, path);
	wanted.member.lanes = *lanes;
	wanted.member.weight_bytes = weight_bytes < MEMBER_MAX_WEIGHT ? weight_bytes : MEMBER_MAX_WEIGHT;
	pthread_mutex_lock(&r->mutex);
	g = find(r, &wanted.group);
	if (!g)
		result = add_group(r, key, &g);
	if (result == 0) {
		g->wanted = wanted;
		g->leaves = false;
		g->is_changed = r->is_changed = true;
		pthread_cond_broadcast(&r->changed);
	}
	pthread_mutex_unlock(&r->mutex);
	return result;
}

void registry_leave(struct registry *r, const struct registry_group_key *key)
{
	struct registry_group_id id;
	struct registry_group *g;

	registry_group_id(key, &id);
	pthread_mutex_lock(&r->mutex);
	g = find(r, &id);
	if (g) {
		g->leaves = g->is_changed = r->is_changed = true;
		pthread_cond_broadcast(&r->changed);
	}
	pthread_mutex_unlock(&r->mutex);
}

int registry_publish(struct registry *r, const char *json)
{
	char *copy = strlen(json) < REGISTRY_REPORT_BYTES ? strdup(json) : NULL;

	if (!copy)
		return strlen(json) < REGISTRY_REPORT_BYTES ? -ENOMEM : -E2BIG;
	pthread_mutex_lock(&r->mutex);
	free(r->report);
	r->report = copy; /* the thread sends it with the next renewal */
	pthread_mutex_unlock(&r->mutex);
	return 0;
}
