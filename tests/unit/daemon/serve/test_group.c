/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which sessions are a group, how two sessions that come and go share batches, and when one gives way to the
 * other. The samples are no images, so they decode to zeros. The test checks which samples come, and how
 * often they were decoded.
 */
#include "tests/support_loop.h"
#include "tests/unit/daemon/node.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "client/protocol.h"
#include "client/share.h"
#include "dataset/subset.h"
#include "daemon/serve/group.h"
#include "image/recipe.h"
#include "lib/clock.h"

#define N_SAMPLES 96
#define BATCH     4
#define N_BATCHES (N_SAMPLES / BATCH)
#define N_EPOCHS  30
#define LAG       200 /* in batches, how far one session is behind the other */
#define SIDE      140 /* of images, so that the kept batches of LAG are a part of the cache */

static const struct recipe recipe = {.kind = RECIPE_IMAGE,
				     .width = SIDE,
				     .height = SIDE,
				     .filter = RECIPE_BILINEAR,
				     .damage = RECIPE_DAMAGE_ZERO};

static struct subset *make_subset(uint64_t bits)
{
	uint64_t *words = malloc(sizeof(*words));
	struct subset *s;

	*words = bits;
	assert_int_equal(subset_new(64, words, &s), 0);
	return s;
}

/* Returns true if b joins the group of a. */
static bool is_same(const struct session *a, struct session *b)
{
	bool is;

	b->member.group = NULL;
	group_join(b);
	is = b->member.group == a->member.group;
	group_leave(b);
	return is;
}

TEST(what_makes_batches_alike)
{
	struct cached_dataset datasets[2] = {0};
	uv_loop_t loop;
	struct cache cache = {.readers = {.loop = &loop}};
	struct session a = {.order = {.dataset = &datasets[0]},
			    .uid = 7,
			    .cache = &cache,
			    .codecs = (struct codecs *)&cache}; /* not used */

	a.order.request = (struct wire_open_session){
	    .seed = 1, .world = 2, .batch = 8, .stride = 1, .window_chunks = 2, .recipe = recipe};
	struct session b = a;
	assert_int_equal(uv_loop_init(&loop), 0);
	group_join(&a);
	assert_true(is_same(&a, &b));
	b.order.request.epoch = 3;
	b.order.request.first_batch = 5;
	b.order.request.stride = 4;
	b.order.request.offset = 2;
	b.order.request.slots = 9;
	b.order.request.header.sequence = 77;
	strcpy(b.order.request.group, "a name");
	assert_true(is_same(&a, &b));
#define DIFFERS(change)                                                                                      \
	do {                                                                                                 \
		b = a;                                                                                       \
		change;                                                                                      \
		assert_false(is_same(&a, &b));                                                               \
	} while (0)
	DIFFERS(b.order.dataset = &datasets[1]);
	DIFFERS(b.uid = 8);
	DIFFERS(b.order.request.seed = 2);
	DIFFERS(b.order.request.flags = DIESEL_SHUFFLE);
	b = a;
	b.order.request.flags = DIESEL_PINNABLE;
	assert_true(is_same(&a, &b));
	DIFFERS(b.order.request.flags = DIESEL_DROP_LAST);
	DIFFERS(b.order.request.rank = 1);
	DIFFERS(b.order.request.world = 3);
	DIFFERS(b.order.request.batch = 4);
	DIFFERS(b.order.request.window_chunks = 3);
	DIFFERS(b.order.request.start = 5);
	DIFFERS(b.order.request.recipe.width = 9);
	DIFFERS(b.order.request.recipe.damage = RECIPE_DAMAGE_SKIP);
	DIFFERS(b.order.request.recipe.flip_sideways = 0.5);
	/* One session continues in this epoch, and the other in the next one, of which the first session has
	 * all. */
	a.order.request.start = 5;
	DIFFERS(b.order.request.epoch = 1);
	a.order.request.start = 0;
	a.order.subset = make_subset(5);
	DIFFERS(b.order.subset = NULL);
	b.order.subset = make_subset(5);
	assert_true(is_same(&a, &b));
	subset_free(b.order.subset);
	b.order.subset = make_subset(6);
	assert_false(is_same(&a, &b));
	subset_free(b.order.subset);
	group_leave(&a);
	subset_free(a.order.subset);
	loop_end(&loop);
}

static struct diesel_session *open_with(struct diesel_dataset *d, uint64_t first, uint32_t flags)
{
	const struct diesel_session_options o = {.world = 1,
						 .batch = BATCH,
						 .flags = DIESEL_SHUFFLE | flags,
						 .seed = 3,
						 .first_batch = first,
						 .stride = 1,
						 .window_chunks = 1,
						 .recipe = &recipe};
	struct diesel_session *s;
	char error[512];

	if (diesel_session_open(d, &o, &s, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	return s;
}

static struct diesel_session *open_session(struct diesel_dataset *d, uint64_t first)
{
	return open_with(d, first, 0);
}

/* The samples of the batches of all epochs. */
static uint64_t wanted[N_EPOCHS * N_BATCHES][BATCH];

static void take(struct diesel_session *s, uint64_t index)
{
	struct diesel_batch b;
	int r = diesel_session_next(s, &b);

	if (r == 1) /* an epoch has ended */
		r = diesel_session_next(s, &b);
	if (r != 0)
		fail_msg("batch %llu: %d, %s", (unsigned long long)index, r, diesel_session_error(s));
	assert_int_equal(b.epoch, index / N_BATCHES);
	assert_int_equal(b.index, index % N_BATCHES);
	assert_int_equal(b.n_items, BATCH);
	assert_int_equal(b.n_damaged, BATCH);
	for (uint32_t i = 0; i < BATCH; i++) {
		assert_int_equal(b.items[i].sample, wanted[index][i]);
		assert_int_equal(b.items[i].bytes, 0);
	}
	assert_int_equal(b.packed[0] | b.packed[BATCH * recipe_item_bytes(&recipe) - 1], 0);
	diesel_batch_release(b.lease);
}

static void find_order(struct diesel_dataset *d)
{
	struct diesel_session_options o = {
	    .world = 1, .batch = BATCH, .flags = DIESEL_SHUFFLE, .seed = 3, .stride = 1, .window_chunks = 1};
	struct diesel_order *order;
	char error[512];
	uint32_t n;

	for (o.epoch = 0; o.epoch < N_EPOCHS; o.epoch++) {
		uint64_t(*of_epoch)[BATCH] = &wanted[o.epoch * N_BATCHES];

		assert_int_equal(diesel_order_new(d, &o, &order, error, sizeof(error)), 0);
		for (uint64_t i = 0; i < N_BATCHES; i++)
			assert_int_equal(diesel_order_batch(order, i, of_epoch[i], &n), 0);
		diesel_order_free(order);
	}
}

/* Starts a node that serves a dataset whose order is `wanted`. */
static struct diesel_dataset *begin_with(struct node *node, const char *root, const struct dataset_plan *plan)
{
	char *path = make_dataset(root, "d", plan);
	struct diesel_dataset *d;
	char error[512];

	node_start(node, root);
	if (diesel_dataset_open(path, node->socket, &d, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	free(path);
	find_order(d);
	return d;
}

static struct diesel_dataset *begin(struct node *node, const char *root)
{
	return begin_with(node, root, &(struct dataset_plan){.n_samples = N_SAMPLES, .bytes = 64});
}

static void end(struct node *node, struct diesel_dataset *d)
{
	diesel_dataset_close(d);
	node_stop(node);
}

struct figures {
	uint64_t most, sum; /* batches made ready: most of one session, and sum of all decoded ones */
	uint64_t kept_bytes, buffer_bytes, reads;
	bool at_rest;
	uint32_t n;
};

static void look(struct node *n, void *answer)
{
	struct figures *f = answer;

	*f = (struct figures){.at_rest = true,
			      .kept_bytes = n->server.serving.cache.kept_batches.bytes,
			      .reads = n->server.serving.cache.counters.reads};
	for (const struct session *s = n->server.serving.sessions; s; s = s->next, f->n++) {
		f->buffer_bytes = s->slots.buffers->buffer_bytes;
		f->most = s->n_delivered > f->most ? s->n_delivered : f->most;
		f->sum += s->n_delivered - s->member.n_shared;
		f->at_rest =
		    f->at_rest && s->slots.published - atomic_load(&s->slots.control->consumed) == s->slots.n;
	}
	/* A client that has enough ready batches does not wake the daemon by a release. */
	serving_touch(&n->server.serving);
}

static struct figures wait_for_rest(struct node *n, uint32_t sessions)
{
	struct figures f;

	do {
		usleep(5000);
		node_ask(n, look, &f);
	} while (!f.at_rest || f.n != sessions);
	return f;
}

TEST_IN_FOLDER(each_batch_once)
{
	struct node node = {0};
	struct diesel_session *s[3];
	struct diesel_dataset *d = begin(&node, *state);

	for (int i = 0; i < 3; i++)
		s[i] = open_session(d, 0);
	for (uint64_t i = 0; i < N_BATCHES; i++) {
		for (int k = 0; k < 3; k++)
			take(s[k], i);
	}
	struct figures f = wait_for_rest(&node, 3);
	assert_int_equal(f.sum, f.most);
	assert_true(f.most > N_BATCHES);
	for (int i = 0; i < 3; i++)
		diesel_session_close(s[i]);
	end(&node, d);
}

/* A device may lock only the session's own memory. Other sessions still share the batches in it. */
TEST_IN_FOLDER(memory_of_its_own)
{
	struct node node = {0};
	struct diesel_session *s[3];
	struct diesel_pinnable pinnable;
	struct diesel_dataset *d = begin(&node, *state);

	for (int i = 0; i < 3; i++)
		s[i] = open_with(d, 0, i < 2 ? DIESEL_PINNABLE : 0);
	for (uint64_t i = 0; i < N_BATCHES; i++) {
		for (int k = 0; k < 3; k++)
			take(s[k], i);
	}
	struct figures f = wait_for_rest(&node, 3);
	assert_int_equal(f.sum, f.most);
	for (int i = 0; i < 3; i++)
		assert_int_equal(diesel_session_map_pinnable(s[i], &pinnable), i < 2 ? 0 : -EBUSY);
	for (int i = 0; i < 3; i++)
		diesel_session_close(s[i]);
	end(&node, d);
}

/* A session that holds a batch, writes to it, and seeks back to it gets it unchanged. */
TEST_IN_FOLDER(a_batch_that_is_held_comes_again)
{
	struct node node = {0};
	struct diesel_session *s, *other;
	struct diesel_batch held, again;
	struct diesel_dataset *d = begin(&node, *state);

	s = open_session(d, 0);
	other = open_session(d, 0);
	assert_int_equal(diesel_session_next(s, &held), 0);
	memset(held.packed, 7, held.item_bytes);
	assert_int_equal(diesel_session_seek(s, 0, 0), 0);
	assert_int_equal(diesel_session_next(s, &again), 0);
	assert_ptr_not_equal(again.packed, held.packed);
	assert_memory_equal(again.items, held.items, BATCH * sizeof(*held.items));
	assert_int_equal(again.packed[0], 0);
	diesel_batch_release(again.lease);
	assert_int_equal(held.packed[0], 7);
	diesel_batch_release(held.lease);
	for (uint64_t i = 0; i < N_BATCHES; i++)
		take(other, i);
	diesel_session_close(s);
	diesel_session_close(other);
	end(&node, d);
}

/* One session goes through an epoch. Meanwhile another starts anywhere, seeks, and ends with any work under
 * way. */
TEST_IN_FOLDER(one_comes_and_goes)
{
	struct node node = {0};
	struct diesel_dataset *d = begin(&node, *state);

	for (uint64_t round = 0; round < 12; round++) {
		struct diesel_session *other = open_session(d, round), *s = open_session(d, 0);

		for (uint64_t i = 0; i < N_BATCHES; i++) {
			take(s, i);
			if (i == round && other) {
				assert_int_equal(diesel_session_seek(other, 0, i + round % 5), 0);
				if (round % 3 == 0)
					take(other, i + round % 5);
			}
			if (i == round + round % 4 && other) {
				diesel_session_close(other);
				other = NULL;
			}
		}
		diesel_session_close(s);
	}
	end(&node, d);
}

/* One session runs ahead. When it has had `lag` batches, the other begins and keeps the same pace. */
struct race {
	struct node node;
	struct diesel_dataset *d;
	struct diesel_session *first, *behind;
	uint64_t n; /* batches that the first session has taken */
};

static void race_begin_with(struct race *r, const char *root, uint64_t cache_bytes, uint64_t lag,
			    uint32_t flags, const struct dataset_plan *plan)
{
	*r = (struct race){.node = {.cache_bytes = cache_bytes}};
	r->d = begin_with(&r->node, root, plan);
	r->first = open_with(r->d, 0, flags);
	while (r->n < lag)
		take(r->first, r->n++);
	r->behind = open_with(r->d, 0, flags);
}

static void race_begin(struct race *r, const char *root, uint64_t cache_bytes, uint64_t lag, uint32_t flags)
{
	race_begin_with(r, root, cache_bytes, lag, flags,
			&(struct dataset_plan){.n_samples = N_SAMPLES, .bytes = 64});
}

/* Both take n batches. */
static void race_go(struct race *r, uint64_t lag, uint64_t n)
{
	for (; n > 0; n--, r->n++) {
		take(r->behind, r->n - lag);
		take(r->first, r->n);
	}
}

static void race_end(struct race *r)
{
	if (r->behind)
		diesel_session_close(r->behind);
	diesel_session_close(r->first);
	end(&r->node, r->d);
}

static void wait_for_nothing_kept(struct race *r)
{
	struct figures f;

	do {
		usleep(1000);
		node_ask(&r->node, look, &f);
	} while (f.kept_bytes > 0);
}

static void check_far_behind(const char *root, uint32_t flags)
{
	struct race r;

	race_begin(&r, root, 0, LAG, flags);
	race_go(&r, LAG, 2 * LAG);
	struct figures f = wait_for_rest(&r.node, 2);
	/* The second session has decoded only the batches that the first one had before it came. */
	assert_in_range(f.sum, f.most, f.most + LAG);
	assert_in_range(f.kept_bytes / f.buffer_bytes, LAG - 20, LAG + 20);
	diesel_session_close(r.behind);
	r.behind = NULL;
	wait_for_nothing_kept(&r);
	race_end(&r);
}

TEST_IN_FOLDER(one_is_far_behind)
{
	check_far_behind(*state, 0);
}

TEST_IN_FOLDER(one_is_far_behind_with_memory_of_its_own)
{
	check_far_behind(*state, DIESEL_PINNABLE);
}

/* A batch may be needed just while it is being kept. */
TEST(one_is_a_little_behind)
{
	struct figures f;

	for (uint64_t lag = 8; lag < 15; lag += 2) {
		struct race r;
		void *root;

		assert_int_equal(make_folder(&root), 0);
		race_begin(&r, root, 0, lag, 0);
		race_go(&r, lag, LAG / 2);
		f = wait_for_rest(&r.node, 2);
		assert_in_range(f.sum, f.most, f.most + lag);
		race_end(&r);
		assert_int_equal(remove_folder(&root), 0);
	}
}

/* With space for half of the lag, half of the batches are kept. The kept ones are not the newest, each of
 * which would be evicted for the next before it is used. */
TEST_IN_FOLDER(half_of_the_memory_saves_half)
{
	struct figures before, after;
	struct race r;

	/* Buffers have 58 pages, and may use a part of the cache. */
	race_begin(&r, *state, CACHE_BATCH_PART * (LAG / 2 * UINT64_C(58) * 4096), LAG, 0);
	race_go(&r, LAG, LAG + 50);
	before = wait_for_rest(&r.node, 2);
	race_go(&r, LAG, LAG);
	after = wait_for_rest(&r.node, 2);
	uint64_t saved = 2 * LAG - (after.sum - before.sum);
	assert_in_range(saved, LAG / 2 - LAG / 8, LAG / 2 + LAG / 8);
	assert_true(after.kept_bytes <= LAG / 2 * after.buffer_bytes);
	race_end(&r);
}

/* In a cache with space for few chunks, samples of kept batches are not read again. */
TEST_IN_FOLDER(what_is_kept_need_not_be_read)
{
	const struct dataset_plan plan = {.n_samples = N_SAMPLES, .bytes = 1u << 18, .n_a_chunk = 4};
	const uint64_t lag = LAG / 4, n_epochs = 8, n_chunks = N_SAMPLES / 4;
	struct figures before, after;
	struct race r;

	race_begin_with(&r, *state, 91 * NODE_MIB, lag, 0, &plan);
	race_go(&r, lag, lag);
	before = wait_for_rest(&r.node, 2);
	race_go(&r, lag, n_epochs * N_BATCHES);
	after = wait_for_rest(&r.node, 2);
	assert_in_range(after.sum - before.sum, n_epochs * N_BATCHES - BATCH, n_epochs * N_BATCHES + BATCH);
	/* One session would find some chunks in memory. Two at different positions would read nearly all of
	 * them. */
	assert_in_range(after.reads - before.reads, 1, n_epochs * n_chunks * 3 / 4);
	race_end(&r);
}

static void lend_nothing(struct node *n, void *answer)
{
	cache_limit(&n->server.serving.cache, 0, UINT64_MAX);
	*(uint64_t *)answer = n->server.serving.cache.kept_batches.bytes;
}

TEST_IN_FOLDER(memory_that_others_want_goes_at_once)
{
	uint64_t left;
	struct race r;

	race_begin(&r, *state, 0, LAG, 0);
	race_go(&r, LAG, LAG / 2);
	(void)wait_for_rest(&r.node, 2);
	node_ask(&r.node, lend_nothing, &left);
	assert_int_equal(left, 0);
	race_go(&r, LAG, LAG);
	race_end(&r);
}

/* When a session seeks elsewhere, the batches kept for it are dropped. When it returns, it decodes them. */
TEST_IN_FOLDER(who_seeks_leaves_nothing_behind)
{
	struct race r;

	race_begin(&r, *state, 0, LAG, 0);
	race_go(&r, LAG, LAG / 2);
	assert_int_equal(diesel_session_seek(r.behind, N_EPOCHS - 1, 0), 0);
	wait_for_nothing_kept(&r);
	take(r.behind, (N_EPOCHS - 1) * N_BATCHES);
	assert_int_equal(diesel_session_seek(r.behind, LAG / N_BATCHES, LAG % N_BATCHES), 0);
	for (uint64_t i = LAG; i < r.n; i++)
		take(r.behind, i);
	race_end(&r);
}

/* A session made by hand, which never makes a batch. */
struct scene {
	uv_loop_t loop;
	struct cache cache;
	struct cached_dataset dataset;
	struct job job;
	struct session ahead, behind;
	struct ring_control controls[2];
};

static void scene_session(struct scene *c, struct session *s, struct ring_control *control, uint64_t index)
{
	static struct buffers buffers; /* without memory of its own */

	*s = (struct session){.cache = &c->cache,
			      .slots = {.buffers = &buffers, .control = control},
			      .job = &c->job,
			      .codecs = (struct codecs *)&c->loop, /* only tested for NULL */
			      .order = {.dataset = &c->dataset, .n_batches = 1000, .has_head = true}};
	s->order.request.stride = 1;
	s->order.head.index = index;
	group_join(s);
}

static void scene_begin(struct scene *c)
{
	memset(c, 0, sizeof(*c));
	assert_int_equal(uv_loop_init(&c->loop), 0);
	c->cache.readers.loop = &c->loop;
	assert_int_equal(pool_new(&c->loop, 2, &c->cache.pool), 0);
	pool_lane_init(&c->job.lane, 0);
	scene_session(c, &c->ahead, &c->controls[0], 60);
	scene_session(c, &c->behind, &c->controls[1], 10);
	assert_ptr_equal(c->ahead.member.group, c->behind.member.group);
	c->behind.member.n_decoding = 1;
	c->ahead.member.batch_ns = 100 * NS_PER_MS;
}

static void scene_end(struct scene *c)
{
	group_leave(&c->ahead);
	group_leave(&c->behind);
	pool_free(c->cache.pool);
	uv_run(&c->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&c->loop), 0);
}

static bool gives_way(struct scene *c, uint64_t now_ns)
{
	c->behind.member.progress_ns = now_ns;
	return group_holds_back(&c->ahead, now_ns);
}

TEST(it_gives_way_to_one_that_catches_up)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct scene c;

	scene_begin(&c);
	assert_true(gives_way(&c, now_ns));
	assert_false(group_holds_back(&c.behind, now_ns));

	c.behind.slots.published = 1; /* its client has a batch to take, which does not last long */
	assert_true(gives_way(&c, now_ns + 100 * NS_PER_MS));
	assert_false(gives_way(&c, now_ns + 300 * NS_PER_MS));
	c.behind.slots.published = 0;
	assert_true(gives_way(&c, now_ns));
	assert_false(group_holds_back(&c.ahead, now_ns + 2 * NS_PER_S)); /* no session is decoding */

	c.behind.stopped = true;
	assert_false(gives_way(&c, now_ns));
	c.behind.stopped = false;
	c.behind.member.n_decoding = 0; /* the session waits for storage */
	assert_false(gives_way(&c, now_ns));
	c.behind.member.n_decoding = 1;
	c.behind.order.head.index = 60;
	assert_false(gives_way(&c, now_ns));
	c.behind.order.head.index = 10;
	c.ahead.order.head.epoch = 1; /* 1050 batches of 100 ms, two at a time, are too far */
	assert_false(gives_way(&c, now_ns));
	c.ahead.order.head.epoch = 0;
	c.behind.order.request.offset = 1; /* a different part of the same order */
	assert_false(gives_way(&c, now_ns));
	c.behind.order.request.offset = 0;
	assert_true(gives_way(&c, now_ns));
	scene_end(&c);
}

TEST(it_gives_way_for_so_long)
{
	uint64_t begin_ns = clock_monotonic_ns(), now_ns = begin_ns;
	struct scene c;

	scene_begin(&c);
	c.ahead.member.batch_ns = NS_PER_MS;
	while (gives_way(&c, now_ns))
		now_ns += 100 * NS_PER_MS;
	/* The limit is 10 s, plus a tenth of the time itself. */
	assert_in_range(now_ns - begin_ns, 10 * NS_PER_S, 12 * NS_PER_S);
	now_ns += 100 * NS_PER_S;
	assert_true(gives_way(&c, now_ns));
	scene_end(&c);
}

TEST(decoders_have_no_more_than_they_work_at)
{
	struct scene c;

	scene_begin(&c);
	c.behind.stopped = true;
	c.ahead.member.n_decoding = 2;
	assert_false(group_holds_back(&c.ahead, 0));
	c.ahead.member.n_decoding = 3;
	assert_true(group_holds_back(&c.ahead, 0));
	c.ahead.member.n_decoding = 2;
	pool_lane_limit(c.cache.pool, &c.job.lane, 1);
	assert_true(group_holds_back(&c.ahead, 0));
	group_leave(&c.behind); /* no other session could use the decoders */
	assert_false(group_holds_back(&c.ahead, 0));
	scene_end(&c);
}
