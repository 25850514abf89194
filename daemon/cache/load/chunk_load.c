/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chunk's way into memory: read by the dataset's reader, verified by a worker; one more try if anything
 * was wrong, several within half a minute if storage gave an error, then quarantine.
 */
#include "load.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/log.h"

#define STUCK_NS (10 * NS_PER_S)
/* How long a chunk may take to come from staging: from here to there, as storage is. */
#define MIN_PATIENCE_NS (2 * NS_PER_S)
#define MAX_PATIENCE_NS (30 * NS_PER_S)
#define RETRY_NS        (10 * NS_PER_S) /* a read that failed is not damage: storage may come back */

/* Storage that is away for a moment gives errors where it is mounted so (NFS with soft, a FUSE that is
 * started again), and lets readers wait where it is not. Reads are repeated after 1, 2, 4, 8 and 16 s. */
#define N_WAITS 5

struct load_wait {
	uv_timer_t timer;
	struct load *load;
};

static int load_read(struct load *l);

static void free_wait(uv_handle_t *timer)
{
	free(timer->data);
}

static void end_wait(struct load *l)
{
	if (l->wait)
		uv_close((uv_handle_t *)&l->wait->timer, free_wait);
	l->wait = NULL;
}

static void load_free(struct load *l)
{
	struct cache *c = l->cache;
	struct load **link = &c->loads;

	while (*link != l)
		link = &(*link)->next;
	*link = l->next;
	l->dataset->n_loading--;
	l->dataset->loading_bytes -= l->dataset->chunks[l->chunk].bytes;
	l->dataset->n_for_peers -= l->is_for_peer;
	c->n_loading--;
	end_wait(l);
	load_drop_known(l);
	read_turns_end(&l->ticket);
	job_unref(l->job);
	place_unref(l->own);
	place_unref(l->place);
	free(l->part);
	free(l);
}

static void load_finish(struct load *l)
{
	struct cache *c = l->cache;
	struct cached_dataset *d = l->dataset;
	struct cached_chunk *k = &d->chunks[l->chunk];

	if (l->result == 0) {
		bool is_read = !l->copies;

		c->counters.carried += l->copies && l->carried;
		c->counters.shared += l->copies && l->sibling;
		load_drop_known(l);
		k->segment->stamp = l->read.stamp;
		free(k->part);
		k->part = l->part;
		l->part = NULL;
		cache_note_ready(c, d, l->chunk);
		if (is_read && !k->part)
			stage_put(c->stage, k->segment);
	} else {
		bool damage = l->result == -EBADMSG || l->result == -EPROTONOSUPPORT || l->result == -ENOENT;

		k->state = CHUNK_BAD;
		k->retry_ns = damage ? 0 : clock_monotonic_ns() + RETRY_NS;
		free(k->error);
		k->error = strdup(l->error.text);
		d->n_bad++;
		c->counters.damaged++;
		cache_drop_segment(c, l->segment);
		log_limited(c->lines_of(c->user, l->job->uid), LOG_LEVEL_ERROR, "%s (not served)",
			    l->error.text);
	}
	load_free(l);
	c->on_change(c->user);
}

/* Reads again. If the reader cannot be asked, the load fails. */
static void load_again(struct load *l)
{
	int r = load_read(l);

	if (r == 0)
		return;
	l->result = error_errno(&l->error, r, "%s: cannot be read", l->origin);
	load_finish(l);
}

static bool is_storage_error(int result)
{
	switch (-result) {
	case EIO:
	case EREMOTEIO:
	case ESTALE:
	case ETIMEDOUT:
	case EHOSTDOWN:
	case EHOSTUNREACH:
	case ENETDOWN:
	case ENETUNREACH:
	case ENOTCONN:
	case ECONNREFUSED:
	case ECONNRESET:
	case ECONNABORTED: return true;
	default: return false;
	}
}

static void on_waited(uv_timer_t *timer)
{
	struct load *l = ((struct load_wait *)timer->data)->load;

	end_wait(l);
	load_again(l);
}

/* Returns true if it is read again later. */
static bool wait_for_storage(struct load *l)
{
	uint32_t seconds = 1u << l->n_waits;

	if (!is_storage_error(l->result) || l->n_waits == N_WAITS)
		return false;
	l->wait = calloc(1, sizeof(*l->wait));
	if (!l->wait)
		return false;
	l->n_waits++;
	l->wait->load = l;
	uv_timer_init(l->cache->readers.loop, &l->wait->timer);
	l->wait->timer.data = l->wait;
	uv_timer_start(&l->wait->timer, on_waited, seconds * 1000, 0);
	l->cache->counters.retries++;
	log_limited(l->cache->lines_of(l->cache->user, l->job->uid), LOG_LEVEL_WARNING,
		    "%s; reading it again in %u s", l->error.text, seconds);
	return true;
}

/* Reads once more, which cures a bit that flipped on the way, but not damage. A failure of what was known
 * says nothing about storage, and does not count. */
static void load_fail(struct load *l)
{
	const char *format = load_known_format(l);

	if (l->repeated && !load_is_known(l)) {
		if (!wait_for_storage(l))
			load_finish(l);
		return;
	}
	log_limited(l->cache->lines_of(l->cache->user, l->job->uid), LOG_LEVEL_WARNING, format,
		    l->error.text);
	if (l->staged && l->copies)
		stage_spoil(l->cache->stage, l->staged);
	if (l->sharer && l->copies)
		load_peer_spoilt(l);
	l->repeated = !load_is_known(l);
	load_drop_known(l);
	l->dataset->chunks[l->chunk].state = CHUNK_READING;
	load_again(l);
}

static void verify_done(struct pool_task *task)
{
	struct load *l = (struct load *)((char *)task - offsetof(struct load, verify));

	l->dataset->n_verifying--;
	if (l->lent)
		cache_fill_done(l->segment, l->lent, l->result == 0);
	l->lent = NULL;
	if (l->result < 0)
		load_fail(l);
	else
		load_finish(l);
}

static void load_verify(struct load *l)
{
	l->dataset->chunks[l->chunk].state = CHUNK_VERIFYING;
	l->dataset->n_verifying++;
	/* For what nobody wants yet, nothing goes. */
	l->lent = l->into ? l->into : l->is_warm ? NULL : cache_take_lent(l->cache, l->segment, l->distance);
	l->verify.work = load_verify_work;
	l->verify.done = verify_done;
	pool_submit(l->cache->pool, &l->job->lane, &l->verify);
	/* From here on the client waits for CPU work. */
	l->cache->on_change(l->cache->user);
}

/* Returns true if there is another place to try: in this one a file is mounted over the chunk. Places that
 * were added meanwhile count too, so that a client that brings a good one does not find the chunk bad. */
static bool next_place(struct load *l)
{
	struct place *first = l->dataset->places.first;
	struct place *next = l->place == l->own ? first : l->place->next;

	if (next == l->own)
		next = next->next;
	if (!next && l->dataset->places.n_added != l->n_places) {
		next = first;
		l->n_places = l->dataset->places.n_added;
	}
	if (!next)
		return false;
	place_ref(next);
	place_unref(l->place);
	l->place = next;
	return true;
}

static void count_read(struct load *l)
{
	l->cache->counters.reads++;
	l->cache->counters.read_bytes += l->read_bytes;
	job_read_begin(l->job, l->begin_ns);
}

/* Of a time that several share, this one has its part. */
static void note_pace(const struct load *l, bool from_staging)
{
	const struct cached_dataset *d = l->dataset;
	uint64_t ns = clock_monotonic_ns() - l->begin_ns;

	stage_note(l->cache->stage, l->dataset, from_staging, ns / (d->n_loading - d->n_verifying),
		   l->meta.file_bytes);
}

/* While several are awaited, storage takes from one to the next. */
static void note_reading(const struct load *l)
{
	struct cached_dataset *d = l->dataset;
	uint64_t now_ns = clock_monotonic_ns();
	uint64_t from_ns = l->begin_ns > d->read_done_ns ? l->begin_ns : d->read_done_ns;

	stage_mean_add(&d->reading, now_ns - from_ns, l->meta.file_bytes);
	d->read_done_ns = now_ns;
}

/* Not from staging, for whatever reason: its disk says that itself, once. */
static void on_fetched(struct stage_read *fetch, int result, const struct error *err)
{
	struct load *l = (struct load *)((char *)fetch - offsetof(struct load, fetch));

	(void)err;
	if (result == 0) {
		note_pace(l, true);
		l->dataset->from_staging = true;
		load_verify(l);
		return;
	}
	load_drop_known(l);
	load_again(l);
}

/* As long as storage may take is not too long. */
static uint64_t patience_ns(const struct load *l)
{
	double usual_s = read_latency_quantile_s(&l->job->counters.latency, NULL, 0.5, 1);
	uint64_t ns = isnan(usual_s) ? 0 : (uint64_t)(4 * usual_s * (double)NS_PER_S);

	return ns < MIN_PATIENCE_NS ? MIN_PATIENCE_NS : ns < MAX_PATIENCE_NS ? ns : MAX_PATIENCE_NS;
}

static void load_fetch(struct load *l)
{
	l->fetch.done = on_fetched;
	if (stage_fetch(l->cache->stage, &l->fetch, l->staged, l->segment->memory.fd, patience_ns(l)) < 0) {
		load_drop_known(l);
		load_again(l);
	}
}

/* Not from there, for whatever reason: that node is not needed. */
static void on_asked(struct load *l, int result)
{
	if (result == 0) {
		load_verify(l);
		return;
	}
	load_drop_known(l);
	load_again(l);
}

static void load_from_peer(struct load *l)
{
	if (load_ask(l, on_asked) < 0) {
		load_drop_known(l);
		load_again(l);
	}
}

/* A compressed chunk was counted with what it takes in memory; less came from storage. */
static void note_compressed(struct load *l, uint64_t read_bytes)
{
	l->cache->counters.read_bytes += read_bytes - l->read_bytes;
	l->read_bytes = read_bytes;
}

static void on_read(struct reader_job *job)
{
	struct load *l = (struct load *)job;
	struct cache *c = l->cache;

	l->result = job->result;
	l->error = job->error;
	pool_lane_charge(c->pool, &l->job->lane, job->cpu_ns);
	l->copies = load_is_known(l) && l->result == 0 && (job->unchanged || l->sharer);
	c->counters.buffered += job->buffered && !l->copies;
	/* The file is another one now, and was read. */
	if (load_is_known(l) && l->result == 0 && !l->copies) {
		load_drop_known(l);
		count_read(l);
		read_turns_charge(&l->ticket, l->job->read_weight, l->read_bytes);
	}
	if (!load_is_known(l) && l->result == 0 && job->read_bytes)
		note_compressed(l, job->read_bytes);
	read_turns_end(&l->ticket);
	if (!load_is_known(l))
		job_read_end(l->job, l->begin_ns, clock_monotonic_ns(), l->result == 0 ? l->read_bytes : 0);
	if (!load_is_known(l) && !l->part && l->result == 0) {
		note_pace(l, false);
		note_reading(l);
	}
	if (l->result == -EXDEV && next_place(l))
		load_again(l);
	else if (l->result < 0)
		load_fail(l);
	else if (l->staged)
		load_fetch(l);
	else if (l->sharer)
		load_from_peer(l);
	else if (!l->shares || load_hold_shared(l))
		load_verify(l);
	else {
		load_drop_known(l);
		load_again(l);
	}
}

/* Of a known chunk the file is looked at, and seldom read. */
static void turn_begin(struct load *l)
{
	const struct read_want want = {.lanes = &l->job->read_lanes,
				       .storage = cached_storage(l->dataset),
				       .uid = l->job->uid,
				       .weight = l->job->read_weight,
				       .bytes = load_is_known(l) ? 0 : l->read_bytes};

	read_turns_begin(l->cache->turns, &want, l->begin_ns, &l->ticket);
}

static int load_read(struct load *l)
{
	struct cache *c = l->cache;
	int r;

	l->result = 0;
	l->read.cpu_ns = 0;
	l->read.error = ERROR_INIT;
	load_order_known(l);
	if (l->dataset->identity.is_fetched)
		r = fetchers_submit(&l->dataset->fetchers, c->pool, &l->job->lane, &l->read,
				    l->dataset->identity.chunks_dev, l->segment->memory.fd);
	else
		r = readers_submit(&c->readers, &l->dataset->reader, l->job->uid, &l->read, l->place->fd,
				   l->segment->memory.fd);
	if (r < 0)
		return r;
	l->begin_ns = clock_monotonic_ns();
	turn_begin(l);
	if (!load_is_known(l))
		count_read(l);
	return 0;
}

static void order_fill(struct load *l)
{
	struct reader_order *o = &l->read.order;
	char id[CHUNK_ID_TEXT];

	chunk_id_format(&l->meta.id, id);
	o->bytes = l->meta.file_bytes;
	o->is_compressed = l->meta.is_compressed;
	o->payload_offset = l->meta.payload_offset;
	o->head_xxh3 = l->meta.head_xxh3;
	o->rights = l->dataset->identity.rights;
	snprintf(o->name, sizeof(o->name), "%s.chunk", id);
	snprintf(o->origin, sizeof(o->origin), "%s/chunks/%s", l->dataset->path, o->name);
	l->origin = o->origin;
	l->read.done = on_read;
}

void cache_abandon_loads(struct cache *c)
{
	while (c->loads)
		load_free(c->loads);
}

/* Of one dataset; uid may be CACHE_ANYBODY. */
static uint64_t stuck_of(const struct cache *c, const struct cached_dataset *d, uint32_t uid, uint64_t now_ns)
{
	uint64_t bytes = 0;

	for (const struct load *l = c->loads; l; l = l->next)
		if (l->dataset == d && l->begin_ns + STUCK_NS < now_ns &&
		    (uid == CACHE_ANYBODY || l->job->uid == uid))
			bytes += d->chunks[l->chunk].bytes;
	return bytes;
}

uint64_t cache_stuck_bytes(const struct cache *c, uint32_t uid)
{
	uint64_t now_ns = clock_monotonic_ns(), bytes = 0;

	for (const struct cached_dataset *d = c->datasets; d && c->loads; d = d->next) {
		uint64_t stuck = d->n_loading > 0 ? stuck_of(c, d, uid, now_ns) : 0;
		uint64_t need = d->n_sessions > 0 ? cached_need_bytes(d) : 0;

		bytes += stuck > need ? stuck - need : 0;
	}
	return bytes;
}

uint64_t cache_loading_bytes(const struct cache *c, uint32_t uid)
{
	uint64_t bytes = 0;

	for (const struct load *l = c->loads; l; l = l->next)
		bytes += l->job->uid == uid ? l->dataset->chunks[l->chunk].bytes : 0;
	return bytes;
}

/* Makes room for the chunk where a part of it is: that goes, if nobody uses it, or gets the rest added. For
 * what nobody wants yet nothing goes. */
static struct segment *take_part(struct cache *c, const struct cached_chunk *k, bool is_warm)
{
	if (k->pins > 0 || is_warm)
		return k->segment;
	cache_forget_chunk(c, k->segment);
	return NULL;
}

int cache_load(struct cache *c, struct cached_dataset *d, uint64_t chunk, uint32_t distance, struct job *job,
	       struct place *place, const struct cached_want *want)
{
	struct cached_chunk *k = &d->chunks[chunk];
	struct load *l;
	int r;

	l = calloc(1, sizeof(*l));
	if (!l)
		return -ENOMEM;
	l->cache = c;
	l->dataset = d;
	l->chunk = chunk;
	l->job = job;
	r = snapshot_chunk_get(d->snapshot, chunk, &l->meta);
	if (r < 0 || l->meta.file_bytes > k->bytes) { /* a verified snapshot has no such entry */
		free(l);
		return r < 0 ? r : -EBADMSG;
	}
	l->into = k->part ? take_part(c, k, want->is_warm) : NULL;
	if (k->state == CHUNK_CARRIED)
		l->carried = cache_detach_carried(c, d, chunk);
	else if (!load_note_shared(c, l, d))
		l->staged = stage_find(c->stage, d, &l->meta);
	order_fill(l);
	l->read_bytes = l->meta.file_bytes;
	if (!l->into && !load_is_known(l))
		l->part = cached_plan_part(d, &l->meta, want, &l->read.order, &l->read_bytes);
	/* A few samples take less from storage than the chunk takes from another node. */
	if (!l->part)
		load_note_peer(l, want);
	if (l->into) /* it is none of those that may go */
		cache_pin(c, d, chunk);
	l->segment = want->is_warm ? cache_take_spare(c, d, chunk, distance, job, &r)
				   : cache_take_segment(c, d, chunk, distance, &r);
	if (l->into)
		cache_unpin(d, chunk);
	if (!l->segment) {
		if (l->carried)
			cache_attach_carried(c, l->carried);
		l->carried = NULL;
		load_drop_known(l);
		free(l->part);
		free(l);
		return r;
	}
	job_ref(job);
	l->own = place_ref(place);
	l->place = place_ref(place);
	l->n_places = d->places.n_added;
	l->distance = distance;
	l->is_for_peer = want->for_peer;
	l->is_warm = want->is_warm;
	d->n_for_peers += l->is_for_peer;
	l->next = c->loads;
	c->loads = l;
	c->n_loading++;
	d->n_loading++;
	d->loading_bytes += k->bytes;
	r = load_read(l);
	if (r < 0) {
		cache_drop_segment(c, l->segment);
		if (l->carried)
			cache_attach_carried(c, l->carried);
		l->carried = NULL;
		load_free(l);
		return r;
	}
	if (k->state == CHUNK_BAD)
		d->n_bad--;
	if (k->state == CHUNK_READY)
		d->n_cached--;
	k->state = CHUNK_READING;
	k->is_asked = l->is_asking;
	k->is_staged = l->staged;
	k->segment = l->into ? l->into : l->segment;
	/* Or it would look as if it held nothing. */
	l->segment->filling = l->into != NULL;
	return 0;
}
