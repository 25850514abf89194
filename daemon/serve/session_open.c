/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Opens and closes sessions. A session is admitted if the cache has space for its slots, and for the bytes
 * that it can pin or wait for at one time, which stay reserved. If possible, the session reserves the need of
 * the worst order of the chunks. Otherwise (a few samples make up most of the bytes, and might all come
 * together), it reserves the need of each epoch's own order. An epoch that needs more than is available ends
 * in an error.
 */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/diesel.h"
#include "daemon/sandboxed/codec.h"
#include "daemon/sandboxed/plugin.h"
#include "daemon/cache/decoded.h"
#include "daemon/cache/peers/memberships.h"
#include "daemon/cache/policy.h"
#include "daemon/node/turns.h"
#include "dataset/columns.h"
#include "dataset/subset.h"
#include "lib/cleanup.h"
#include "lib/minmax.h"
#include "lib/clock.h"
#include "lib/sorted.h"
#include "lib/units.h"
#include "serving.h"

/* Weight of a job of the lowest priority. */
#define SPARE_WEIGHT (TURN_WEIGHT / 16)
/* Number of chunks that a session of the lowest priority scans for the next ones to read; other nodes have
 * most of them. */
#define SPARE_REACH 1024

/* Returns the number of decoder processes to run at a time and to keep: at most the threads that wait for
 * them.
 */
static uint32_t max_codecs(const struct session *s, uint32_t n_slots)
{
	uint32_t n_workers = pool_workers(s->cache->pool);

	if (!s->order.request.recipe.kind)
		return 0;
	return n_workers < n_slots ? n_workers : n_slots;
}

static uint64_t slot_cost(const struct session *s, uint32_t n_slots)
{
	/* A plug-in decodes to memory of its own first. */
	uint64_t codec_bytes =
	    CODEC_IDLE_BYTES + (s->order.request.recipe.kind == RECIPE_CODEC ? s->slots.item_bytes : 0);

	return n_slots * s->slots.layout.slot_bytes + slots_control_bytes() +
	       (n_slots + 1) * batch_bytes(s->order.batch, s->order.dataset->info.n_chunks) +
	       max_codecs(s, n_slots) * codec_bytes +
	       (s->order.request.flags & DIESEL_ASKED ? n_slots * sizeof(*s->order.asked) : 0) +
	       (s->order.subset ? subset_bytes(s->order.dataset->info.n_samples) : 0) +
	       (uint64_t)s->order.batch * 3 * sizeof(uint64_t) +
	       s->order.dataset->info.n_chunks * 2 * sizeof(uint32_t);
}

/* Sets an error that says how much cache is needed. fits: a window that would fit; 0: none. */
static int refuse(const struct session *s, uint64_t bytes, uint32_t window, uint32_t fits, struct error *err)
{
	char text[16], budget[16], hint[64] = "";

	if (fits)
		snprintf(hint, sizeof(hint), " (order=Order(window_chunks=%u) fits)", fits);
	return error_set(err, -ENOSPC,
			 "a session on %s with batch %u and a window of %u chunk%s needs %s in addition to "
			 "the memory in use, more than the cache of %s can hold. Start dieseld with a larger "
			 "--cache, or use a smaller window or batch%s%s",
			 s->order.dataset->path, s->order.request.batch, window, units_plural(window),
			 units_format_bytes(text, sizeof(text), bytes),
			 units_format_bytes(budget, sizeof(budget), s->cache->limit_bytes), hint,
			 s->order.request.recipe.kind
			     ? ", or leave the transforms to Python (decode=Decode(native=False))"
			     : "");
}

/* Finds the memory that the session needs with this number of slots. */
static int find_need(struct session *s, const uint32_t *samples, uint32_t n_slots)
{
	s->slots.n = n_slots;
	s->cost_bytes = slot_cost(s, n_slots);
	return order_need(&s->order, samples, n_slots, s->slots.has_views, &s->need_chunks, &s->need_bytes);
}

/* Returns the bytes that this session and the dataset's other sessions need together. */
static uint64_t bytes_together(const struct session *s)
{
	const struct cached_dataset *d = s->order.dataset;
	uint64_t bytes = d->need_bytes + s->need_bytes;

	return (bytes < d->all_bytes ? bytes : d->all_bytes) + s->cost_bytes;
}

/* Returns a window that fits; 0: none found. Changes the request's window. */
static uint32_t smaller_window(struct session *s, const uint32_t *samples, uint64_t available)
{
	for (uint32_t g = s->order.request.window_chunks / 2; g > 0; g /= 2) {
		s->order.request.window_chunks = g;
		if (find_need(s, samples, RING_MIN_SLOTS) == 0 && bytes_together(s) <= available)
			return g;
	}
	return 0;
}

/* Picks the number of slots that fit. */
static int admit(struct session *s, struct error *err)
{
	const struct serving_options *options = &s->serving->options;
	uint32_t wanted =
	    s->order.request.slots > options->n_slots ? s->order.request.slots : options->n_slots;
	uint64_t n_chunks = s->order.dataset->info.n_chunks, available = session_available_bytes(s);
	_cleanup_(freep) uint32_t *samples = reallocarray(NULL, n_chunks, sizeof(*samples));
	uint32_t window = s->order.request.window_chunks;
	uint64_t bytes;
	int r = samples ? 0 : -ENOMEM;

	if (r == 0) {
		shuffle_count_chunks(s->order.subset, s->order.chunk_samples, n_chunks, samples);
		qsort(samples, n_chunks, sizeof(*samples), compare_u32);
	}
	if (s->priority == SESSION_SPARE) /* the client of such a session holds no batches */
		wanted = RING_MIN_SLOTS;
	wanted = policy_fit_slots(wanted, RING_MIN_SLOTS, s->slots.layout.slot_bytes, available);
	/* If batches are asked for, no order exists that could need less than the worst case. */
	for (int exact = 0; exact < (s->order.request.flags & DIESEL_ASKED ? 1 : 2); exact++) {
		s->order.exact = exact;
		for (uint32_t n = wanted; n >= RING_MIN_SLOTS && r == 0; n--) {
			r = find_need(s, samples + n_chunks - s->order.n_chunks, n);
			if (r == 0 && bytes_together(s) <= available)
				return 0;
		}
	}
	if (r < 0)
		return error_errno(err, r, "cannot open the session");
	bytes = bytes_together(s);
	s->order.exact = false;
	return refuse(s, bytes, window, smaller_window(s, samples + n_chunks - s->order.n_chunks, available),
		      err);
}

/* Joins a buffer pool of the group, or creates one, with extra space if other sessions may join it. */
static int join_buffers(struct session *s)
{
	/* Batches with views are not shared: each session pins the chunks of its own. */
	bool shares = s->order.request.recipe.kind != RECIPE_NONE && !s->slots.has_views;
	uint32_t space = shares && !(s->order.request.flags & DIESEL_PINNABLE) ? BUFFERS_MEMBERS : 1;
	struct buffers *f = space > 1 ? group_buffers(s) : NULL;
	int r =
	    f ? 0 : batch_buffers_new(s->cache, s->slots.layout.slot_bytes, s->slots.n * space, shares, &f);

	if (r < 0)
		return r;
	s->slots.buffers = f;
	s->slots.member = batch_buffers_join(f, s->slots.n);
	return 0;
}

/* ---- open and close ---- */

/* Allocates the s->n slots and their control memory. layout, buffers and member are already set. n_chunks:
 * chunks of the dataset. Returns 0, -ENOMEM, ...; call slots_close() in any case. */
static int slots_open(struct slots *s, struct session *session, uint32_t batch, uint64_t n_chunks)
{
	int r = shared_memory_new("diesel-control", slots_control_bytes(), SHARED_CONTROL, &s->memory);

	for (uint32_t i = 0; i < s->n && r == 0; i++) {
		s->all[i].session = session;
		s->all[i].buffer = BATCH_BUFFER_NONE;
		r = batch_init(&s->all[i].batch, batch, n_chunks);
	}
	if (r < 0)
		return r;
	s->control = (struct ring_control *)s->memory.data;
	s->control->magic = RING_MAGIC;
	s->control->n_slots = s->n;
	s->control->wake_below = s->n / 2;
	atomic_store(&s->control->wanted_workers, RING_NO_WISH);
	return 0;
}

static int make_memory(struct session *s, const struct session_args *args, int plugin_fd, struct error *err)
{
	struct order *o = &s->order;
	int r = args->may_take ? args->may_take(args->user, s->cost_bytes, err) : 0;

	if (r < 0)
		return r;
	if (!cache_make_space(s->cache, s->cost_bytes))
		return error_set(err, -ENOSPC,
				 "the cache has no space for the session's batches: all memory is in use");
	r = join_buffers(s);
	if (r == 0)
		r = slots_open(&s->slots, s, o->batch, o->dataset->info.n_chunks);
	if (r == 0 && o->request.recipe.kind)
		r = codecs_new(&(struct codecs_setup){.fork_server = s->cache->readers.fork_server,
						      .recipe = &o->request.recipe,
						      .plugin_fd = plugin_fd,
						      .sample_layout = o->dataset->info.layout,
						      .columns = o->dataset->info.columns,
						      .field = s->field,
						      .seed = o->request.seed,
						      .layout = &s->slots.layout,
						      .n_slots = s->slots.buffers->n_buffers,
						      .batch = o->batch,
						      .slots = s->slots.buffers->memory.data,
						      .slots_fd = s->slots.buffers->memory.fd,
						      .max_idle = max_codecs(s, s->slots.n)},
			       &s->codecs);
	return r < 0 ? error_errno(err, r, "cannot create the session's shared memory") : 0;
}

static int check_field(const struct session *s, struct error *err)
{
	const struct recipe *recipe = &s->order.request.recipe;
	const struct snapshot_info *info = &s->order.dataset->info;
	bool has_fields = info->layout != CHUNK_LAYOUT_PLAIN;
	struct column_place column;

	if (recipe->kind && has_fields != (s->field[0] != '\0'))
		return error_set(err, -EINVAL,
				 has_fields
				     ? "samples of %s have fields: the client must name the one to decode"
				     : "samples of %s have no fields to decode",
				 s->order.dataset->path);
	if (!recipe->kind && s->field[0])
		return error_set(err, -EINVAL, "a field is named, without a recipe for it");
	if (s->field[0] && chunk_layout_has_columns(info->layout) &&
	    column_find(info->columns, s->field, strlen(s->field), &column) < 0)
		return error_set(err, -EINVAL, "samples of %s have no such field as the client names",
				 s->order.dataset->path);
	if (s->field[0] && recipe->damage == RECIPE_DAMAGE_ZERO)
		return error_set(err, -EINVAL,
				 "a damaged field cannot become zeros: leave damaged samples out "
				 "(decode=Decode(damaged=\"skip\"))");
	return 0;
}

/* Plans the session from its request, and admits it if it fits. */
static int plan(struct session *s, const struct session_args *args, char *notice, size_t size,
		struct error *err)
{
	struct order *o = &s->order;
	const struct wire_open_session *q = &o->request;
	const struct plugin *plugin = NULL;
	int r;

	r = check_field(s, err);
	if (r < 0)
		return r;
	if (q->recipe.kind)
		s->slots.item_bytes = (uint32_t)recipe_item_bytes(&q->recipe);
	else if (!(q->flags & (DIESEL_ASKED | DIESEL_VIEWS)))
		s->slots.item_bytes = o->dataset->info.equal_bytes;
	s->slots.has_views = s->slots.item_bytes == 0 || s->field[0];
	if (q->recipe.kind == RECIPE_CODEC)
		r = plugins_find(s->serving->options.plugins, q->recipe.codec.name, &plugin, err);
	if (r == 0)
		r = order_open(o, &s->serving->options, s->cache->cluster && q->cluster[0] && q->nodes != 1,
			       notice, size, err);
	if (r < 0)
		return r;
	s->slots.layout = ring_layout(o->batch, s->slots.item_bytes);
	r = admit(s, err);
	return r < 0 ? r : make_memory(s, args, plugin ? plugin->fd : -EBADF, err);
}

static void count(struct session *s)
{
	struct cached_dataset *d = s->order.dataset;

	s->is_counted = true;
	s->cache->slot_bytes += s->cost_bytes;
	d->refs++;
	d->n_sessions++;
	d->need_bytes += s->need_bytes;
	d->need_chunks += s->need_chunks;
	s->cache->needs_changed = true;
}

static void uncount(struct session *s)
{
	struct cached_dataset *d = s->order.dataset;

	s->cache->slot_bytes -= s->cost_bytes;
	d->n_sessions--;
	d->need_bytes -= s->need_bytes;
	d->need_chunks -= s->need_chunks;
	d->refs--;
	if (d->n_sessions == 0)
		d->idle_since_ns = clock_monotonic_ns();
	s->cache->needs_changed = true;
}

/* Frees the slots. No worker may still use one. */
static void slots_close(struct slots *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		batch_free(&s->all[i].batch);
	shared_memory_free(&s->memory);
	if (s->buffers)
		batch_buffers_leave(s->buffers, s->n);
}

void session_free(struct session *s)
{
	if (s->job) {
		session_add_waits(s, clock_monotonic_ns(), &s->job->counters);
		membership_leave(s->order.membership);
		jobs_leave(s->job);
	}
	codecs_free(s->codecs);
	decoded_close(s->decoded_cache);
	order_end(&s->order);
	slots_close(&s->slots);
	if (s->is_counted)
		uncount(s);
	place_unref(s->place);
	free(s);
}

/* Sets the job's weight from the priority of its sessions. A process that warms the cache may also train:
 * then its job has normal weight. */
static void weigh(const struct session *s)
{
	struct job *job = s->job;

	if (s->priority == SESSION_SPARE && job->n_sessions == 1 && job->read_weight == TURN_WEIGHT)
		job->read_weight = SPARE_WEIGHT;
	else if (s->priority != SESSION_SPARE && job->read_weight == SPARE_WEIGHT)
		job->read_weight = TURN_WEIGHT;
}

/* Adds the session to its job and to the list. */
static int join(struct session *s, const struct session_args *args, struct error *err)
{
	const struct wire_open_session *q = &s->order.request;
	struct recipe key;
	int r;

	s->job = jobs_join(&s->serving->jobs, &(struct job_member){.pid = s->pid,
								   .uid = s->uid,
								   .rank = q->rank,
								   .world = q->world,
								   .stride = q->stride,
								   .origin = args->origin});
	if (!s->job)
		return error_set(err, -ENOMEM, "no memory for another job");
	r = order_start(&s->order,
			memberships_join(s->cache, s->order.dataset, s->job, q->cluster, q->nodes, s->place));
	if (r < 0)
		return error_errno(err, r, "cannot open the session");
	weigh(s);
	if (q->group[0])
		snprintf(s->job->group, sizeof(s->job->group), "%s", q->group);
	/* If memory runs out, the session continues without decoded copies. */
	if (recipe_decoded(&q->recipe, &key) != RECIPE_DECODED_NONE)
		s->decoded_cache = decoded_open(s->order.dataset, s->uid, s->field, &key);
	s->next = s->serving->sessions;
	s->serving->sessions = s;
	return 0;
}

static struct session *session_new(const struct session_args *args)
{
	struct session *s = calloc(1, sizeof(*s));

	if (!s) {
		subset_free(args->subset);
		return NULL;
	}
	s->serving = args->serving;
	s->cache = &args->serving->cache;
	s->place = place_ref(args->place);
	s->pid = args->pid;
	s->uid = args->uid;
	s->payer = args->payer;
	s->slots.memory = SHARED_MEMORY_INIT;
	s->order.dataset = args->dataset;
	s->order.subset = args->subset;
	s->order.request = *args->request;
	snprintf(s->field, sizeof(s->field), "%s", args->field ? args->field : "");
	if (args->request->flags & DIESEL_WARM) {
		s->priority = SESSION_SPARE;
		s->order.request.world = 1; /* with DIESEL_WARM, `world` only means other nodes */
		s->order.reach = SPARE_REACH;
	}
	return s;
}

int session_open(const struct session_args *args, struct session **ret, struct wire_session_reply *ret_reply,
		 struct error *err)
{
	struct session *s = session_new(args);
	int r;

	if (!s)
		return error_errno(err, -ENOMEM, "cannot open the session");
	r = plan(s, args, ret_reply->notice, sizeof(ret_reply->notice), err);
	if (r == 0) {
		count(s);
		r = join(s, args, err);
	}
	if (r < 0) {
		session_free(s);
		return r;
	}
	r = args->may_take ? args->may_take(args->user, 0, err) : 0;
	if (r < 0) {
		session_close(s);
		return r;
	}
	group_join(s);
	serving_touch(s->serving);
	ret_reply->n_batches = s->order.n_batches;
	ret_reply->slot_bytes = s->slots.layout.slot_bytes;
	ret_reply->n_slots = s->slots.n;
	ret_reply->n_buffers = s->slots.buffers->n_buffers;
	ret_reply->window_chunks = s->order.request.window_chunks;
	ret_reply->item_bytes = s->slots.item_bytes;
	ret_reply->batch = s->order.batch;
	ret_reply->fits = session_available_bytes(s) >= s->order.dataset->all_bytes;
	*ret = s;
	return 0;
}
