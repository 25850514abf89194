/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's side of cluster.h: reads, questions, and the process that sends and receives them. */
#include "cluster.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster_message.h"
#include "daemon/helpers/keeper.h"
#include "daemon/helpers/message.h"
#include "dataset/owner.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/list.h"
#include "lib/log.h"
#include "lib/minmax.h"
#include "outbox.h"

struct cluster_member_at {
	uint32_t peer; /* CLUSTER_SELF, or index in cluster.peers */
	char node[REGISTRY_NAME_BYTES];
	char address[64];
};

struct cluster_members {
	size_t n, space;
	struct owner_member *owners; /* same indices as `at` */
	struct cluster_member_at *at;
};

struct cluster_group {
	struct cluster_group *next;
	struct cluster *cluster;
	uint32_t refs;
	struct registry_group_key key;
	struct net_group_id id;
	char path[256];
	uint64_t weight_bytes; /* weight and lanes as last told to the process */
	struct owner_lanes lanes;
	struct cluster_members members, coming;
};

enum cluster_question_state {
	CLUSTER_QUESTION_OPEN,
	CLUSTER_QUESTION_ANSWERED, /* given() is called when the process reports it */
	CLUSTER_QUESTION_OVER,     /* given() is called soon */
};

struct cluster_question {
	struct cluster_question *next;
	struct cluster *cluster;
	uint64_t id; /* 0: the process that asked has ended */
	enum cluster_question_state state;
	void *answer;
};

struct cluster_peer {
	bool is_used;
	uint64_t name_hash;
	struct cluster_peer_figures figures;
};

struct cluster {
	uv_loop_t *loop;
	struct cluster_handler handler;
	struct keeper keeper;
	uv_timer_t timer;
	uint32_t n_handles; /* handles of keeper and timer that are still open */
	bool closed;
	struct outbox outbox; /* messages to the process of keeper.link */
	bool is_killed;       /* the keeper was told to kill that process */
	struct cluster_group *groups;
	struct cluster_question *questions;
	struct cluster_peer peers[CLUSTER_MAX_PEERS];
	struct cluster_read *reads; /* newest first */
	uint32_t n_sent;
	uint64_t next_id;
	struct cluster_figures figures;
	int report_fd; /* memory of the last published report: stays open until the next one */
};

static int cluster_order(struct cluster *c, const struct cluster_order *order, int memory_fd);

/* ---- groups: their members, and the owner of a chunk ---- */

/* A weight is sent again when it differs by more than 1/WEIGHT_PART of the last one sent. */
#define WEIGHT_PART 8

static struct cluster_group *cluster_group_find(const struct cluster *c, const struct net_group_id *id)
{
	struct cluster_group *g = c->groups;

	while (g && memcmp(&g->id, id, sizeof(*id)) != 0)
		g = g->next;
	return g;
}

static void members_free(struct cluster_members *m)
{
	free(m->owners);
	free(m->at);
	*m = (struct cluster_members){.n = 0};
}

static void tell(struct cluster_group *g, enum cluster_verb verb)
{
	struct cluster_order order = {
	    .verb = verb, .bytes = g->weight_bytes, .group = g->id, .key = g->key, .lanes = g->lanes};

	memcpy(order.path, g->path, sizeof(order.path));
	(void)cluster_order(g->cluster, &order, -EBADF);
}

/* Joins all groups again in a process that has just started. */
static void cluster_group_tell_all(struct cluster *c)
{
	for (struct cluster_group *g = c->groups; g; g = g->next)
		tell(g, CLUSTER_JOIN);
}

int cluster_join(struct cluster *c, const struct registry_group_key *key, const char *path,
		 uint64_t weight_bytes, const struct owner_lanes *lanes, struct cluster_group **ret)
{
	struct registry_group_id text;
	struct net_group_id id;
	struct cluster_group *g;

	registry_group_id(key, &text);
	if (net_group_id_parse(&text, &id) < 0)
		return -EINVAL;
	g = cluster_group_find(c, &id);
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return -ENOMEM;
		*g = (struct cluster_group){.cluster = c,
					    .key = *key,
					    .id = id,
					    .weight_bytes = weight_bytes,
					    .lanes = *lanes,
					    .next = c->groups};
		strncpy(g->path, path, sizeof(g->path) - 1);
		c->groups = g;
		tell(g, CLUSTER_JOIN);
	}
	g->refs++;
	*ret = g;
	return 0;
}

static void group_free(struct cluster_group *g)
{
	members_free(&g->members);
	members_free(&g->coming);
	free(g);
}

void cluster_leave(struct cluster_group *group)
{
	if (--group->refs > 0)
		return;
	LL_DELETE(group->cluster->groups, group);
	tell(group, CLUSTER_LEAVE);
	group_free(group);
}

static void cluster_group_free_all(struct cluster *c)
{
	while (c->groups) {
		struct cluster_group *g = c->groups;

		c->groups = g->next;
		group_free(g);
	}
}

void cluster_set_weight(struct cluster_group *group, uint64_t weight_bytes)
{
	uint64_t told = group->weight_bytes,
		 differs = weight_bytes > told ? weight_bytes - told : told - weight_bytes;

	if (differs <= told / WEIGHT_PART)
		return;
	group->weight_bytes = weight_bytes;
	tell(group, CLUSTER_JOIN);
}

void cluster_set_lanes(struct cluster_group *group, const struct owner_lanes *lanes)
{
	if (memcmp(&group->lanes, lanes, sizeof(*lanes)) == 0)
		return;
	group->lanes = *lanes;
	for (size_t i = 0; i < group->members.n; i++) {
		if (group->members.at[i].peer == CLUSTER_SELF)
			group->members.owners[i].lanes = *lanes;
	}
	tell(group, CLUSTER_JOIN);
}

const struct owner_lanes *cluster_lanes(const struct cluster_group *group)
{
	return &group->lanes;
}

struct owner_lanes cluster_shared_lanes(const struct cluster_group *group)
{
	const struct owner_lanes *own = &group->lanes;
	struct owner_lanes shared = {.lanes = own->lanes, .drift = own->drift};

	for (size_t i = 0; i < group->members.n; i++) {
		const struct owner_lanes *other = &group->members.owners[i].lanes;

		if (group->members.at[i].peer == CLUSTER_SELF || group->members.owners[i].is_unreachable ||
		    other->lanes != own->lanes || other->drift != own->drift)
			continue;
		for (uint32_t a = 0; a < own->n_runs; a++) {
			for (uint32_t b = 0; b < other->n_runs; b++) {
				uint64_t first = max_u64(own->runs[a].first, other->runs[b].first),
					 end = min_u64(own->runs[a].end, other->runs[b].end);

				if (first < end)
					owner_lanes_add(&shared, (uint32_t)first, (uint32_t)end);
			}
		}
	}
	return shared;
}

/* Returns the member to ask for a chunk; NULL: this node owns it. */
static const struct cluster_member_at *cluster_group_owner(const struct cluster_group *g,
							   const struct chunk_id *chunk,
							   const struct owner_place *place)
{
	size_t i = g->members.n > 1 ? owner_of(g->members.owners, g->members.n, chunk, place) : SIZE_MAX;

	return i < g->members.n && g->members.at[i].peer != CLUSTER_SELF ? &g->members.at[i] : NULL;
}

bool cluster_is_ours(const struct cluster_group *group, const struct chunk_id *chunk,
		     const struct owner_place *place)
{
	return !cluster_group_owner(group, chunk, place);
}

uint32_t cluster_n_members(const struct cluster_group *group)
{
	uint32_t n = 1;

	for (size_t i = 0; i < group->members.n; i++)
		n += group->members.at[i].peer != CLUSTER_SELF && !group->members.owners[i].is_unreachable;
	return n;
}

/* ---- reports of the process ---------------------------------------------------------------------------- */

static void changed(struct cluster_group *g)
{
	g->cluster->handler.changed(g->cluster->handler.user, g);
}

static void cluster_group_take_members(struct cluster *c, const struct cluster_report *report)
{
	struct cluster_group *g = cluster_group_find(c, &report->group);

	if (!g)
		return;
	if (report->count == 0) {
		g->coming.n = 0;
		return;
	}
	members_free(&g->members);
	g->members = g->coming;
	g->coming = (struct cluster_members){.n = 0};
	changed(g);
}

static int members_grow(struct cluster_members *m)
{
	size_t space = m->space ? 2 * m->space : 8;
	struct owner_member *owners = realloc(m->owners, space * sizeof(*owners));
	struct cluster_member_at *at;

	if (!owners)
		return -ENOMEM;
	m->owners = owners;
	at = realloc(m->at, space * sizeof(*at));
	if (!at)
		return -ENOMEM;
	m->at = at;
	m->space = space;
	return 0;
}

static void cluster_group_take_member(struct cluster *c, const struct cluster_report *report)
{
	struct cluster_group *g = cluster_group_find(c, &report->group);
	const struct cluster_peer *p = report->peer < CLUSTER_MAX_PEERS ? &c->peers[report->peer] : NULL;
	struct cluster_members *m;
	struct cluster_member_at *at;

	if (!g || !owner_lanes_ok(&report->lanes) || (report->peer != CLUSTER_SELF && (!p || !p->is_used)) ||
	    g->coming.n >= CLUSTER_MAX_MEMBERS)
		return;
	m = &g->coming;
	if (m->n == m->space && members_grow(m) < 0)
		return;
	/* This node's entry may be older than its present lanes. */
	m->owners[m->n] = (struct owner_member){.lanes = p ? report->lanes : g->lanes,
						.name_hash = owner_hash(report->peer_is.node),
						.weight = report->bytes,
						.is_unreachable = p && p->figures.is_unreachable};
	at = &m->at[m->n++];
	at->peer = report->peer;
	memcpy(at->node, report->peer_is.node, sizeof(at->node));
	memcpy(at->address, report->peer_is.address, sizeof(at->address));
}

/* Sets whether a peer is unreachable, in all groups, and reports the groups that changed. */
static void set_unreachable(struct cluster *c, uint32_t peer, bool is_unreachable)
{
	for (struct cluster_group *g = c->groups, *next; g; g = next) {
		bool differs = false;

		next = g->next;
		for (size_t i = 0; i < g->members.n; i++) {
			if (g->members.at[i].peer != peer ||
			    g->members.owners[i].is_unreachable == is_unreachable)
				continue;
			g->members.owners[i].is_unreachable = is_unreachable;
			differs = true;
		}
		for (size_t i = 0; i < g->coming.n; i++)
			if (g->coming.at[i].peer == peer)
				g->coming.owners[i].is_unreachable = is_unreachable;
		if (differs)
			changed(g);
	}
}

static void cluster_group_take_peer(struct cluster *c, const struct cluster_report *report)
{
	struct cluster_peer *p = report->peer < CLUSTER_MAX_PEERS ? &c->peers[report->peer] : NULL;
	const struct cluster_peer_figures *now = &report->peer_is;

	if (!p)
		return;
	if (!now->node[0]) {
		set_unreachable(c, report->peer, true);
		*p = (struct cluster_peer){.is_used = false};
		return;
	}
	c->figures.chunks_out += now->chunks_out - p->figures.chunks_out;
	c->figures.bytes_out += now->bytes_out - p->figures.bytes_out;
	p->is_used = true;
	p->figures = *now;
	p->name_hash = owner_hash(now->node);
	set_unreachable(c, report->peer, now->is_unreachable);
}

/* Forgets all peers and members, because the process has ended. */
static void cluster_group_forget_all(struct cluster *c)
{
	memset(c->peers, 0, sizeof(c->peers));
	for (struct cluster_group *g = c->groups, *next; g; g = next) {
		bool had = g->members.n > 0;

		next = g->next;
		members_free(&g->members);
		members_free(&g->coming);
		if (had)
			changed(g);
	}
}

/* ---- for people ---------------------------------------------------------------------------------------- */

size_t cluster_peers_get(const struct cluster *c, struct cluster_peer_figures *ret, size_t n)
{
	size_t found = 0;

	for (size_t i = 0; i < CLUSTER_MAX_PEERS; i++) {
		if (!c->peers[i].is_used)
			continue;
		if (found < n)
			ret[found] = c->peers[i].figures;
		found++;
	}
	return found;
}

size_t cluster_members_get(const struct cluster_group *g, struct cluster_member *ret, size_t n)
{
	for (size_t i = 0; i < g->members.n && i < n; i++) {
		const struct cluster_member_at *at = &g->members.at[i];

		ret[i] = (struct cluster_member){.weight_bytes = g->members.owners[i].weight,
						 .is_self = at->peer == CLUSTER_SELF,
						 .is_unreachable = g->members.owners[i].is_unreachable};
		memcpy(ret[i].node, at->node, sizeof(ret[i].node));
		memcpy(ret[i].address, at->address, sizeof(ret[i].address));
	}
	return g->members.n;
}

#define TICK_MS         100
#define REPORTS_AT_ONCE 256
/* Time after the deadline of a read at which a process that has not reported the end counts as hung. */
#define HANG_NS (5 * NS_PER_S)
/* A measured peer gets this many times the average time of its chunks, including those already requested
 * from it, but no less than the minimum. */
#define PATIENCE_TIMES  16
#define PATIENCE_MIN_NS (NS_PER_S / 4)

static void on_tick(uv_timer_t *timer);

/* ---- the end ------------------------------------------------------------------------------------------- */

static void maybe_free(struct cluster *c)
{
	if (c->closed && c->n_handles == 0 && !c->questions)
		free(c);
}

static void on_closed(uv_handle_t *handle)
{
	struct cluster *c = handle->data;

	if (--c->n_handles == 0) {
		closep(&c->report_fd);
	}
	maybe_free(c);
}

static void link_close(struct cluster *c)
{
	outbox_reset(&c->outbox, -EBADF);
	keeper_drop(&c->keeper);
}

/* ---- orders -------------------------------------------------------------------------------------------- */

static void link_poll(struct cluster *c);

static int cluster_order(struct cluster *c, const struct cluster_order *order, int memory_fd)
{
	int r;

	if (!c->keeper.link)
		return -EPIPE;
	r = outbox_send(&c->outbox, order, sizeof(*order), memory_fd);
	link_poll(c);
	return r;
}

/* Starts the timer, which repeats while there is something to wait for. after_ms 0: as soon as possible. */
static void watch(struct cluster *c, uint64_t after_ms)
{
	if (after_ms == 0 || !uv_is_active((uv_handle_t *)&c->timer))
		uv_timer_start(&c->timer, on_tick, after_ms, TICK_MS);
}

int cluster_publish(struct cluster *c, const char *json)
{
	struct cluster_order order = {.verb = CLUSTER_PUBLISH, .bytes = strlen(json) + 1};
	_cleanup_(closep) int fd = -EBADF;
	int r;

	if (order.bytes > REGISTRY_REPORT_BYTES)
		return -E2BIG;
	if (!c->keeper.link)
		return -EPIPE;
	if (outbox_waits(&c->outbox))
		return -EAGAIN;
	fd = memfd_create("diesel-report", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, json, order.bytes) != (ssize_t)order.bytes)
		return -EIO;
	r = cluster_order(c, &order, fd);
	closep(&c->report_fd);
	c->report_fd = steal_fd(&fd);
	return r;
}

/* ---- questions ----------------------------------------------------------------------------------------- */

static void question_free(struct cluster_question *q)
{
	LL_DELETE(q->cluster->questions, q);
	free(q);
}

static void give_back(struct cluster_question *q)
{
	const struct cluster_handler handler = q->cluster->handler;
	void *answer = q->answer;

	question_free(q);
	handler.given(handler.user, answer);
}

static void take_question(struct cluster *c, const struct cluster_report *report)
{
	const struct cluster_order refusal = {.verb = CLUSTER_REFUSE, .id = report->id, .code = -ENOENT};
	struct cluster_group *g = cluster_group_find(c, &report->group);
	struct cluster_question *q = g ? calloc(1, sizeof(*q)) : NULL;

	if (!q) {
		(void)cluster_order(c, &refusal, -EBADF);
		return;
	}
	*q = (struct cluster_question){.cluster = c, .id = report->id, .next = c->questions};
	c->questions = q;
	c->handler.asked(c->handler.user, g, &report->chunk, q);
}

static void take_given(struct cluster *c, uint64_t id)
{
	struct cluster_question *q = c->questions;

	while (q && (q->id != id || q->state != CLUSTER_QUESTION_ANSWERED))
		q = q->next;
	if (q)
		give_back(q);
}

void cluster_answer(struct cluster_question *question, int memory_fd, uint64_t bytes, void *answer)
{
	struct cluster *c = question->cluster;
	const struct cluster_order order = {.verb = CLUSTER_ANSWER, .id = question->id, .bytes = bytes};

	question->answer = answer;
	if (question->id && cluster_order(c, &order, memory_fd) == 0) {
		question->state = CLUSTER_QUESTION_ANSWERED;
		return;
	}
	question->state = CLUSTER_QUESTION_OVER;
	if (!c->closed) {
		watch(c, 0);
		return;
	}
	give_back(question);
	maybe_free(c);
}

void cluster_refuse(struct cluster_question *question, int code)
{
	struct cluster *c = question->cluster;
	const struct cluster_order order = {.verb = CLUSTER_REFUSE, .id = question->id, .code = code};

	if (question->id)
		(void)cluster_order(c, &order, -EBADF);
	question_free(question);
	maybe_free(c);
}

/* Ends all questions: the process has exited, so nobody uses the answers' memory. */
static void end_questions(struct cluster *c)
{
	for (struct cluster_question *q = c->questions; q; q = q->next) {
		q->id = 0;
		if (q->state == CLUSTER_QUESTION_ANSWERED)
			q->state = CLUSTER_QUESTION_OVER;
	}
}

static void give_back_all(struct cluster *c)
{
	struct cluster_question *q = c->questions;

	while (q) {
		if (q->state == CLUSTER_QUESTION_OVER) {
			give_back(q);
			q = c->questions;
		} else {
			q = q->next;
		}
	}
}

/* ---- reads --------------------------------------------------------------------------------------------- */

static void read_remove(struct cluster *c, struct cluster_read *read)
{
	LL_DELETE(c->reads, read);
	c->n_sent -= read->is_sent;
}

static void count(struct cluster *c, const struct cluster_read *read, int result)
{
	struct cluster_figures *f = &c->figures;

	if (result == 0) {
		f->chunks_in++;
		f->bytes_in += read->bytes;
	} else if (result == -ETIMEDOUT) {
		f->late++;
	} else if (result == -ENOENT || result == -EBUSY) {
		f->refused++;
	} else {
		f->failed++;
	}
}

static void read_end(struct cluster *c, struct cluster_read *read, int result, const char *text)
{
	struct error err = ERROR_INIT;

	read_remove(c, read);
	count(c, read, result);
	if (result < 0)
		error_set(&err, result, "node %s: %s", read->node, text);
	read->done(read, result, &err);
}

/* The list is newest first, so the last waiting entry is the oldest. */
static struct cluster_read *oldest_waiting(const struct cluster *c)
{
	struct cluster_read *found = NULL;

	for (struct cluster_read *r = c->reads; r; r = r->next)
		if (!r->is_sent)
			found = r;
	return found;
}

static uint64_t bytes_from(const struct cluster *c, uint32_t peer)
{
	uint64_t bytes = 0;

	for (const struct cluster_read *r = c->reads; r; r = r->next)
		bytes += r->is_sent && r->peer == peer ? r->bytes : 0;
	return bytes;
}

/* Returns the time limit for a read that is sent now, behind others to the same peer. */
static uint64_t patience_left(const struct cluster *c, const struct cluster_read *read)
{
	const struct cluster_peer_figures *f = &c->peers[read->peer].figures;
	uint64_t waited_ns = clock_monotonic_ns() - read->begin_ns, left_ns, known_ns;

	left_ns = read->patience_ns > waited_ns ? read->patience_ns - waited_ns : 0;
	if (!(f->latency_s > 0 && f->bytes_per_s > 0))
		return left_ns;
	known_ns =
	    (uint64_t)(PATIENCE_TIMES * 1e9 *
		       (f->latency_s + (double)(bytes_from(c, read->peer) + read->bytes) / f->bytes_per_s));
	if (known_ns < PATIENCE_MIN_NS)
		known_ns = PATIENCE_MIN_NS;
	return left_ns < known_ns ? left_ns : known_ns;
}

static void send_waiting(struct cluster *c)
{
	struct cluster_read *read;

	while (c->keeper.link && c->n_sent < CLUSTER_MAX_READS && (read = oldest_waiting(c))) {
		const struct cluster_order order = {.verb = CLUSTER_FETCH,
						    .id = read->id,
						    .bytes = read->bytes,
						    .ns = patience_left(c, read),
						    .name_hash = read->name_hash,
						    .peer = read->peer,
						    .group = read->group_id,
						    .chunk = read->chunk};

		read->is_sent = true;
		c->n_sent++;
		/* If sending fails, the end of the socket is reported too, which ends this read. */
		(void)cluster_order(c, &order, read->memory_fd);
	}
}

int cluster_fetch(struct cluster_read *read)
{
	struct cluster *c = read->group->cluster;
	const struct cluster_member_at *owner =
	    cluster_group_owner(read->group, &read->chunk, read->place.lanes ? &read->place : NULL);

	if (!owner || !c->keeper.link)
		return -EAGAIN;
	read->cluster = c;
	read->id = c->next_id++;
	read->begin_ns = clock_monotonic_ns();
	read->peer = owner->peer;
	read->name_hash = c->peers[owner->peer].name_hash;
	read->group_id = read->group->id;
	memcpy(read->node, owner->node, sizeof(read->node));
	read->is_sent = false;
	read->next = c->reads;
	c->reads = read;
	send_waiting(c);
	watch(c, TICK_MS);
	return 0;
}

void cluster_spoilt(struct cluster_read *read)
{
	struct cluster *c = read->cluster;
	const struct cluster_order order = {
	    .verb = CLUSTER_SPOILT, .peer = read->peer, .name_hash = read->name_hash};

	c->figures.spoilt++;
	log_warning("node %s sent wrong bytes for a chunk. The node gets no requests for 30 s", read->node);
	(void)cluster_order(c, &order, -EBADF);
}

static void take_done(struct cluster *c, const struct cluster_report *report)
{
	struct cluster_read *read = c->reads;

	while (read && (read->id != report->id || !read->is_sent))
		read = read->next;
	if (!read)
		return;
	read_end(c, read, report->code < 0 ? report->code : 0, report->text);
	if (!c->closed)
		send_waiting(c);
}

static void end_reads(struct cluster *c)
{
	struct cluster_read *all = c->reads, *next;

	/* done() may start the next read. */
	while ((next = all)) {
		read_end(c, all, -ECONNRESET, "the helper process dieseld-peer has ended");
		if (c->closed)
			return;
		all = c->reads;
	}
}

static void kill_process(struct cluster *c)
{
	if (c->is_killed)
		return;
	c->is_killed = true;
	log_warning("the helper process dieseld-peer does not respond: dieseld kills it");
	(void)keeper_tell(&c->keeper, FORK_SERVER_KILL, c->keeper.link->pid);
}

static void look_at_reads(struct cluster *c)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (struct cluster_read *r = c->reads, *next; r; r = next) {
		next = r->next;
		if (r->is_sent && c->keeper.link && now_ns > r->begin_ns + r->patience_ns + HANG_NS)
			kill_process(c);
		if (r->is_sent || now_ns <= r->begin_ns + r->patience_ns)
			continue;
		read_end(c, r, -ETIMEDOUT, "the request waited too long behind earlier ones");
		return; /* the list may have changed; the next tick is soon */
	}
}

static void on_tick(uv_timer_t *timer)
{
	struct cluster *c = timer->data;

	give_back_all(c);
	if (!c->closed)
		look_at_reads(c);
	if (!c->closed && !c->reads)
		uv_timer_stop(timer);
}

/* ---- the process --------------------------------------------------------------------------------------- */

static void ended(struct cluster *c)
{
	link_close(c);
	end_questions(c);
	c->figures.redis_is_up = false;
	end_reads(c);
	if (!c->closed)
		give_back_all(c);
	if (!c->closed)
		cluster_group_forget_all(c);
}

static void take_report(struct cluster *c, struct cluster_report *report)
{
	report->text[sizeof(report->text) - 1] = '\0';
	report->peer_is.node[sizeof(report->peer_is.node) - 1] = '\0';
	report->peer_is.address[sizeof(report->peer_is.address) - 1] = '\0';
	switch ((enum cluster_news)report->news) {
	case CLUSTER_MEMBERS: cluster_group_take_members(c, report); return;
	case CLUSTER_MEMBER: cluster_group_take_member(c, report); return;
	case CLUSTER_PEER: cluster_group_take_peer(c, report); return;
	case CLUSTER_DONE: take_done(c, report); return;
	case CLUSTER_ASKED: take_question(c, report); return;
	case CLUSTER_GIVEN: take_given(c, report->id); return;
	case CLUSTER_SERVER: c->figures.redis_is_up = report->code == 0; return;
	}
}

static void on_link(uv_poll_t *poll, int status, int events)
{
	struct keeper_link *l = poll->data;
	struct cluster *c = l->user;
	struct cluster_report report;

	(void)outbox_flush(&c->outbox);
	link_poll(c);
	for (int i = 0; i < REPORTS_AT_ONCE && c->keeper.link == l; i++) {
		int r = message_receive(l->fd, &report, sizeof(report), MSG_DONTWAIT, NULL, 0);

		if (r == -EAGAIN)
			return;
		if (r < 0) {
			ended(c);
			return;
		}
		take_report(c, &report);
	}
}

static void link_poll(struct cluster *c)
{
	uv_poll_start(&c->keeper.link->poll, UV_READABLE | (outbox_waits(&c->outbox) ? UV_WRITABLE : 0),
		      on_link);
}

static void on_started(void *user)
{
	struct cluster *c = user;

	outbox_reset(&c->outbox, c->keeper.link->fd);
	c->is_killed = false;
	link_poll(c);
	cluster_group_tell_all(c);
}

static void on_ended(void *user, const struct fork_server_news *news, const char *how)
{
	struct cluster *c = user;

	log_warning("the helper process dieseld-peer %s: dieseld starts it again", how);
	if (c->keeper.link)
		ended(c);
}

static void on_lost(void *user)
{
	log_warning("the helper process dieseld-kpeer has ended: this node shares no chunks until "
		    "dieseld is restarted");
}

int cluster_new(uv_loop_t *loop, struct fork_server *keeper, const struct cluster_handler *handler,
		struct cluster **ret)
{
	struct keeper_handler on_keeper = {.started = on_started, .ended = on_ended, .lost = on_lost};
	struct cluster *c = calloc(1, sizeof(*c));
	int r;

	on_keeper.user = c;
	r = c ? keeper_init(&c->keeper, loop, keeper, &on_keeper) : -ENOMEM;

	if (r < 0) {
		free(c);
		return r;
	}
	c->loop = loop;
	c->handler = *handler;
	c->report_fd = -EBADF;
	c->next_id = 1;
	c->n_handles = 2;
	uv_timer_init(loop, &c->timer);
	c->timer.data = c;
	uv_unref((uv_handle_t *)&c->timer);
	*ret = c;
	return 0;
}

struct cluster *cluster_free(struct cluster *c)
{
	if (!c)
		return NULL;
	link_close(c);
	c->reads = NULL;
	end_questions(c);
	give_back_all(c);
	cluster_group_free_all(c);
	c->closed = true;
	keeper_close(&c->keeper, on_closed);
	uv_close((uv_handle_t *)&c->timer, on_closed);
	return NULL;
}

void cluster_figures_get(const struct cluster *c, struct cluster_figures *ret)
{
	*ret = c->figures;
}
