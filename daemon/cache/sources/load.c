/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings one chunk into memory, step by step: its storage opens it, and reads it or leaves that to a copy;
 * then a worker verifies it. After any failure it is read once more. After storage errors it is read again
 * several times within half a minute, then quarantined.
 *
 * If few samples of a chunk are needed, only those are read. When a job needs other samples later, the whole
 * chunk is read and replaces the part.
 */
#include "source.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/sandboxed/reader.h"
#include "dataset/chunk.h"
#include "dataset/subset.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/list.h"
#include "lib/log.h"

#define STUCK_NS (10 * NS_PER_S)
/* Pause before a chunk that could not be read is read again: access or the chunk may come back. */
#define RETRY_NS (10 * NS_PER_S)

/* Storage that is unreachable for a moment returns errors in some mounts (NFS with soft, a FUSE being
 * restarted), and blocks readers in others. Reads are repeated after 1, 2, 4, 8 and 16 s. */
#define N_WAITS 5

/* Cost of one more read, in bytes that could be read instead: a gap between two samples is read with them up
 * to this length. Fits a disk of 2 GB/s with at least 16,000 reads per second; for remote storage, both costs
 * are higher. */
#define READ_COST_BYTES ((uint64_t)128 << 10)

#define ROW(name) &source_##name,
static const struct chunk_source *const sources[] = {CHUNK_SOURCES(ROW)};
#undef ROW

enum load_step {
	LOAD_OPEN,     /* ask the storage */
	LOAD_OPENED,   /* the storage has answered */
	LOAD_BRING,    /* ask the copy's source */
	LOAD_BROUGHT,  /* the source has answered */
	LOAD_VERIFY,   /* the chunk is in memory: a worker verifies it */
	LOAD_VERIFIED, /* the worker has finished */
	LOAD_FAIL,     /* l->error has the reason */
	LOAD_READY,    /* end: the chunk is in memory */
	LOAD_BAD,      /* end: the chunk is quarantined */
	LOAD_PAUSE,    /* another callback continues, or the load has ended */
};

/* ---- which parts of a chunk to read ---- */

static bool wants_all(const struct cached_want *want)
{
	return !want->subset && !want->samples;
}

/* Returns the first wanted sample at or after this one. If there is none: UINT64_MAX, or a sample of a
 * later chunk. */
static uint64_t next_wanted(const struct cached_want *want, uint64_t sample)
{
	uint64_t next = UINT64_MAX;

	if (want->subset)
		return subset_next(want->subset, sample);
	for (uint32_t i = 0; i < want->n; i++)
		if (want->samples[i] >= sample && want->samples[i] < next)
			next = want->samples[i];
	return next;
}

static bool part_has_all(const struct cached_dataset *d, uint64_t chunk, const struct cached_want *want)
{
	const uint64_t *part = d->chunks[chunk].part;
	struct snapshot_chunk meta;
	uint64_t end;

	if (!part)
		return true;
	if (wants_all(want) || snapshot_chunk_get(d->snapshot, chunk, &meta) < 0)
		return false;
	end = meta.first_sample + meta.n_samples;
	for (uint64_t i = next_wanted(want, meta.first_sample); i < end; i = next_wanted(want, i + 1)) {
		if (!cached_part_has(part, i - meta.first_sample))
			return false;
	}
	return true;
}

bool cached_lacks(const struct cached_dataset *d, uint64_t chunk, const struct cached_want *want)
{
	const struct cached_chunk *k = &d->chunks[chunk];

	return cached_is_missing(k) || (k->state == CHUNK_READY && !part_has_all(d, chunk, want));
}

/* Adds these bytes, in whole pages. Returns false if there are too many ranges, or if they are not in
 * order. */
static bool add_range(struct reader_order *o, uint64_t begin, uint64_t end)
{
	struct reader_range *last = &o->ranges[o->n_ranges - 1];
	uint64_t last_end = last->offset + last->bytes;

	begin -= begin % CHUNK_ALIGN;
	end = (end + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN;
	if (begin < last->offset || end > o->bytes)
		return false;
	if (begin <= last_end + READ_COST_BYTES) {
		last->bytes = (end > last_end ? end : last_end) - last->offset;
		return true;
	}
	if (o->n_ranges == READER_MAX_RANGES)
		return false;
	o->ranges[o->n_ranges++] = (struct reader_range){begin, end - begin};
	return true;
}

static bool plan_ranges(const struct cached_dataset *d, const struct snapshot_chunk *meta,
			const struct cached_want *want, struct reader_order *o, uint64_t *part)
{
	uint64_t first = meta->first_sample, end = first + meta->n_samples;

	o->ranges[0] = (struct reader_range){0, meta->payload_offset};
	o->n_ranges = 1;
	if (meta->payload_offset == 0 || meta->payload_offset % CHUNK_ALIGN != 0 ||
	    meta->payload_offset > o->bytes)
		return false;
	for (uint64_t i = next_wanted(want, first); i < end; i = next_wanted(want, i + 1)) {
		struct snapshot_sample s;

		if (snapshot_sample_get(d->snapshot, i, &s) < 0 || s.offset > o->bytes ||
		    s.stored_bytes > o->bytes - s.offset ||
		    !add_range(o, s.offset, s.offset + s.stored_bytes))
			return false;
		part[(i - first) / 64] |= UINT64_C(1) << ((i - first) % 64);
	}
	return true;
}

/* Plans which parts of the chunk to read for these samples. Returns a bit per sample of the chunk, which the
 * caller frees. NULL: read the whole chunk, because that is hardly more work or memory runs out. */
static uint64_t *plan_part(const struct cached_dataset *d, const struct snapshot_chunk *meta,
			   const struct cached_want *want, struct reader_order *order, uint64_t *ret_bytes)
{
	uint64_t bytes = 0, *part;

	/* A digest covers the whole file. */
	if (wants_all(want) || meta->has_sha256)
		return NULL;
	part = calloc(subset_words(meta->n_samples), sizeof(*part));
	if (part && plan_ranges(d, meta, want, order, part)) {
		for (uint32_t i = 0; i < order->n_ranges; i++)
			bytes += order->ranges[i].bytes;
		if (bytes + order->n_ranges * READ_COST_BYTES <= meta->file_bytes / 2) {
			*ret_bytes = bytes;
			return part;
		}
	}
	order->n_ranges = 0;
	free(part);
	return NULL;
}

/* ---- the load ---- */

static void load_go_on(struct chunk_load *l, enum load_step step);

struct load_wait {
	uv_timer_t timer;
	struct chunk_load *load;
};

/* Returns true if the whole file was verified, not only its head and samples, and no part of it is in use at
 * the destination. */
static bool is_handed_over_whole(const struct chunk_load *l)
{
	return l->meta.has_sha256 && !l->into;
}

/* Copies verified bytes to the segment that clients may map. If a part of the chunk is in use there, it stays
 * unchanged. */
static void hand_over(const struct chunk_load *l, uint64_t offset, uint64_t bytes, bool has)
{
	if (l->mapped && !has)
		memcpy(l->mapped->memory.data + offset, l->segment->memory.data + offset, bytes);
}

/* Returns true if a sample agrees with its record in the head, which the snapshot's chunk table vouches for.
 * The snapshot's own records were not verified at open if there are many. */
static bool agrees(const struct chunk_load *l, const struct chunk_record *record, const char *names,
		   const struct snapshot_sample *s)
{
	return record->offset == s->offset && record->stored_bytes == s->stored_bytes &&
	       record->bytes == s->bytes && record->xxh3 == s->xxh3 &&
	       snapshot_class_fits(l->dataset->snapshot, s->class_index, names + record->name_offset,
				   record->name_length);
}

/* Clears bytes of a part that were read but not verified. */
static void wipe(const struct chunk_load *l, uint64_t from, uint64_t to)
{
	uint8_t *data = l->segment->memory.data;
	uint64_t first = (from + CHUNK_ALIGN - 1) / CHUNK_ALIGN * CHUNK_ALIGN, last = to - to % CHUNK_ALIGN;

	if (!l->part || from >= to)
		return;
	if (first >= last) {
		memset(data + from, 0, to - from);
		return;
	}
	memset(data + from, 0, first - from);
	shared_memory_punch(&l->segment->memory, first, last - first);
	memset(data + last, 0, to - last);
}

static int verify_samples(struct chunk_load *l, const struct chunk_view *view)
{
	const uint64_t *part =
	    l->dataset->chunks[l->chunk].part; /* samples that `into` has; stays valid while we read */
	uint64_t end = view->header->payload_offset;
	int64_t last = -1;

	for (uint64_t i = 0; i < l->meta.n_samples; i++) {
		struct snapshot_sample s;
		const struct chunk_record *record;
		unsigned long long number = l->meta.first_sample + i;
		int r;

		if (!cached_part_has(l->part, i))
			continue;
		r = snapshot_sample_get(l->dataset->snapshot, number, &s);

		/* Records must be in the chunk's order, so that none is verified twice. */
		if (r < 0 || s.record >= view->header->n_records || s.record <= last)
			return error_set(
			    &l->error, -EBADMSG,
			    "%s: the chunk has no record for sample %llu: run `dieselctl verify`",
			    l->read.order.origin, number);
		last = s.record;
		record = &view->records[s.record];
		if (!agrees(l, record, view->names, &s))
			return error_set(&l->error, -EBADMSG,
					 "%s: sample %.*s differs from the snapshot: run `dieselctl verify`",
					 l->read.order.origin, (int)record->name_length,
					 view->names + record->name_offset);
		r = chunk_verify_record(view, s.record, l->segment->memory.data + s.offset,
					l->read.order.origin, &l->error);
		if (r < 0)
			return r;
		wipe(l, end, s.offset);
		end = s.offset + s.stored_bytes > end ? s.offset + s.stored_bytes : end;
		hand_over(l, s.offset, s.stored_bytes,
			  is_handed_over_whole(l) || (l->into && cached_part_has(part, i)));
	}
	wipe(l, end, l->segment->memory.bytes);
	return 0;
}

/* Runs before anything is handed over: the chunk's own checksums protect against accidents only. */
static int verify_digest(struct chunk_load *l)
{
	const struct iovec file = {l->segment->memory.data, l->meta.file_bytes};
	struct digest found;
	int r = l->meta.has_sha256 ? digest_of(&file, 1, &found) : 0;

	if (r < 0)
		return error_errno(&l->error, r, "%s: cannot compute its SHA-256", l->read.order.origin);
	if (l->meta.has_sha256 && !digest_equal(&found, &l->meta.sha256))
		return error_set(&l->error, -EBADMSG,
				 "%s is not the file that was packed (its SHA-256 differs from the "
				 "snapshot's): restore the file",
				 l->read.order.origin);
	return 0;
}

/* Copies first, as from a file, and verifies the copy: the source memory may change at any time. */
static int copy_memory(struct chunk_load *l)
{
	size_t done;

	if (!l->copy.source || !l->copy.source->memory)
		return 0;
	if (fd_read_at(l->copy.source->memory(l), l->segment->memory.data, l->meta.file_bytes, 0, &done) <
		0 ||
	    done < l->meta.file_bytes)
		return error_set(&l->error, -EBADMSG, "%s: cannot read the chunk's copy in memory",
				 l->read.order.origin);
	return 0;
}

/* Copies the chunk from memory(), if the source has it, verifies it, and copies it to
 * l->mapped. Runs on a worker thread; the result is l->result. */
static void load_verify_work(struct pool_task *task)
{
	struct chunk_load *l = container_of(task, struct chunk_load, verify);
	struct chunk_view view;
	int r = copy_memory(l);

	if (r == 0)
		r = chunk_parse_plain(l->segment->memory.data, l->meta.file_bytes, l->read.order.origin,
				      &view, &l->error);
	if (r == 0 && (memcmp(&view.header->id, &l->meta.id, sizeof(l->meta.id)) != 0 ||
		       view.header->head_xxh3 != l->meta.head_xxh3))
		r = error_set(&l->error, -EBADMSG,
			      "%s is not the chunk that the snapshot describes: run `dieselctl verify`",
			      l->read.order.origin);
	if (r == 0)
		r = verify_digest(l);
	/* Includes the bytes between samples, because copies of that memory are compared with the digest
	 * again. */
	if (r == 0)
		hand_over(l, 0, is_handed_over_whole(l) ? l->meta.file_bytes : view.header->payload_offset,
			  l->into != NULL);
	l->result = r < 0 ? r : verify_samples(l, &view);
}

static void free_wait(uv_handle_t *timer)
{
	free(timer->data);
}

static void end_wait(struct chunk_load *l)
{
	if (l->wait)
		uv_close((uv_handle_t *)&l->wait->timer, free_wait);
	l->wait = NULL;
}

/* Copies */

static struct cached_chunk *chunk_of(const struct chunk_load *l)
{
	return &l->dataset->chunks[l->chunk];
}

/* Returns the first source of this kind that has the chunk. */
static struct chunk_origin find_source(struct chunk_load *l, const struct cached_want *want,
				       enum source_kind kind)
{
	struct chunk_origin found = {.source = NULL};

	for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]) && !found.state; i++)
		if (sources[i]->kind == kind)
			found = (struct chunk_origin){sources[i], sources[i]->find(l, want)};
	return found.state ? found : (struct chunk_origin){.source = NULL};
}

void load_expect(struct chunk_load *l, const struct access_stamp *known)
{
	l->read.order.is_known = true;
	l->read.order.known = *known;
}

static void leave_copy(struct chunk_load *l, enum source_end how)
{
	if (!l->copy.source)
		return;
	l->copy.source->end(l, how);
	l->copy = (struct chunk_origin){.source = NULL};
	l->read.order.is_known = l->read.order.only_check = false;
	chunk_of(l)->from = CHUNK_FROM_STORAGE;
}

uint64_t load_patience_ns(const struct chunk_load *l, double times, uint64_t unknown_ns, uint64_t min_ns,
			  uint64_t max_ns)
{
	double usual_s = read_latency_quantile_s(&l->job->counters.latency, NULL, 0.5, 1);
	uint64_t ns = isnan(usual_s) ? unknown_ns : (uint64_t)(times * usual_s * (double)NS_PER_S);

	return ns < min_ns ? min_ns : ns < max_ns ? ns : max_ns;
}

uint64_t load_share_ns(const struct chunk_load *l)
{
	const struct cached_dataset *d = l->dataset;

	return (clock_monotonic_ns() - l->begin_ns) / (d->loads.n - d->loads.n_verifying);
}

/* The ends */

/* Counts the load while it is in progress. */
static void load_begin(struct chunk_load *l)
{
	struct cached_dataset *d = l->dataset;
	struct cache *c = l->cache;

	l->is_begun = true;
	LL_PREPEND(c->loads, l);
	c->n_loading++;
	d->loads.n++;
	d->loads.bytes += chunk_of(l)->bytes;
	d->loads.n_for_peers += l->is_for_peer;
}

/* Frees the load, from any step: the only way out. */
static void load_free(struct chunk_load *l)
{
	struct cached_dataset *d = l->dataset;
	struct cache *c = l->cache;
	enum source_end how = l->is_begun ? SOURCE_LEFT : SOURCE_BACK;

	if (l->is_begun) {
		LL_DELETE(c->loads, l);
		c->n_loading--;
		d->loads.n--;
		d->loads.bytes -= chunk_of(l)->bytes;
		d->loads.n_for_peers -= l->is_for_peer;
	} else if (l->segment) {
		cache_drop_segment(c, l->segment);
	}
	end_wait(l);
	leave_copy(l, how);
	if (l->storage.source && l->storage.source->end)
		l->storage.source->end(l, how);
	read_turns_end(&l->ticket);
	job_unref(l->job);
	place_unref(l->place);
	free(l->part);
	free(l);
}

static enum load_step load_end(struct chunk_load *l)
{
	struct cache *c = l->cache;

	load_free(l);
	cache_changed(c);
	return LOAD_PAUSE;
}

static enum load_step load_ready(struct chunk_load *l)
{
	struct cache *c = l->cache;
	struct cached_chunk *k = chunk_of(l);
	bool is_read = !l->copy.source;

	leave_copy(l, SOURCE_USED);
	k->segment->stamp = l->read.stamp;
	free(k->part);
	k->part = l->part;
	l->part = NULL;
	cache_note_ready(c, l->dataset, l->chunk);
	if (is_read && !k->part)
		stage_put(c->stage, k->segment);
	return load_end(l);
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

/* Returns what clients see. */
static int failure_of(int result)
{
	switch (-result) {
	case EACCES:
	case EPERM: return -EACCES;
	case ENOENT:
	case ENOTDIR: return -ENOENT;
	default: return chunk_is_damage(result) ? -EBADMSG : -EIO;
	}
}

static enum load_step load_bad(struct chunk_load *l)
{
	struct cache *c = l->cache;
	struct cached_chunk *k = chunk_of(l);

	k->state = CHUNK_BAD;
	k->failure = failure_of(l->result);
	k->retry_ns = k->failure == -EBADMSG ? 0 : clock_monotonic_ns() + RETRY_NS;
	free(k->error);
	k->error = strdup(l->error.text);
	l->dataset->loads.n_bad++;
	c->counters.damaged += k->failure == -EBADMSG;
	cache_drop_segment(c, l->segment);
	log_limited(cache_lines_of(c, l->job->uid), LOG_LEVEL_ERROR, "%s (not served)", l->error.text);
	return load_end(l);
}

/* Reading */

static void count_read(struct chunk_load *l)
{
	l->cache->counters.reads++;
	l->cache->counters.read_bytes += l->read_bytes;
	job_read_begin(l->job, l->begin_ns);
}

/* Measures from the arrival of the previous chunk, because storage reads several chunks at once. */
static void note_reading(const struct chunk_load *l)
{
	struct cached_dataset *d = l->dataset;
	uint64_t now_ns = clock_monotonic_ns();
	uint64_t from_ns = l->begin_ns > d->pace.read_done_ns ? l->begin_ns : d->pace.read_done_ns;

	stage_mean_add(&d->pace.reading, now_ns - from_ns, l->meta.file_bytes);
	d->pace.read_done_ns = now_ns;
}

static void on_opened(struct reader_job *job)
{
	load_go_on((struct chunk_load *)job, LOAD_OPENED);
}

/* Charges no bytes for a chunk with a copy: its file is only opened and checked, and rarely read. */
static void turn_begin(struct chunk_load *l)
{
	const struct read_want want = {.lanes = &l->job->read_lanes,
				       .storage = cached_storage(l->dataset),
				       .uid = l->job->uid,
				       .weight = l->job->read_weight,
				       .bytes = l->copy.source ? 0 : l->read_bytes};

	read_turns_begin(l->cache->turns, &want, l->begin_ns, &l->ticket);
}

static int ask_storage(struct chunk_load *l)
{
	int r;

	l->result = 0;
	l->read.cpu_ns = 0;
	l->read.error = ERROR_INIT;
	l->read.done = on_opened;
	r = l->storage.source->begin(l);
	if (r < 0)
		return r;
	l->begin_ns = clock_monotonic_ns();
	turn_begin(l);
	if (!l->copy.source)
		count_read(l);
	return 0;
}

static enum load_step load_open(struct chunk_load *l)
{
	int r = ask_storage(l);

	if (r == 0)
		return LOAD_PAUSE;
	l->result = error_errno(&l->error, r, "%s: cannot be read", l->read.order.origin);
	return LOAD_BAD;
}

/* Counts the read, which has ended or failed. */
static void note_read(struct chunk_load *l)
{
	struct cache *c = l->cache;
	const struct reader_job *job = &l->read;

	c->counters.buffered += job->buffered;
	/* A compressed chunk was counted with its size in memory, but fewer bytes were read from storage. */
	if (job->result == 0 && job->read_bytes) {
		c->counters.read_bytes += job->read_bytes - l->read_bytes;
		l->read_bytes = job->read_bytes;
	}
	job_read_end(l->job, l->begin_ns, clock_monotonic_ns(), job->result == 0 ? l->read_bytes : 0);
	if (job->result == 0 && !l->part) {
		stage_note(c->stage, l->dataset, false, load_share_ns(l), l->meta.file_bytes);
		note_reading(l);
	}
}

static enum load_step load_opened(struct chunk_load *l)
{
	const struct reader_job *job = &l->read;

	l->result = job->result;
	l->error = job->error;
	pool_lane_charge(l->cache->pool, &l->job->lane, job->cpu_ns);
	if (l->copy.source && l->result == 0 && !job->unchanged && !job->order.only_check) {
		/* The file has changed since the copy was made, so the file was read. */
		leave_copy(l, SOURCE_LEFT);
		count_read(l);
		read_turns_charge(&l->ticket, l->job->read_weight, l->read_bytes);
	}
	if (!l->copy.source)
		note_read(l);
	read_turns_end(&l->ticket);
	if (l->storage.source->has_other_way && l->storage.source->has_other_way(l))
		return LOAD_OPEN;
	if (l->result < 0)
		return LOAD_FAIL;
	return l->copy.source ? LOAD_BRING : LOAD_VERIFY;
}

static enum load_step load_bring(struct chunk_load *l)
{
	int r = l->copy.source->begin(l);

	if (r == 0)
		return LOAD_PAUSE;
	l->result = r < 0 ? r : 0;
	return LOAD_BROUGHT;
}

void load_brought(struct chunk_load *l, int result)
{
	l->result = result;
	load_go_on(l, LOAD_BROUGHT);
}

static enum load_step load_have_brought(struct chunk_load *l)
{
	chunk_of(l)->from = CHUNK_FROM_STORAGE;
	if (l->result == 0)
		return LOAD_VERIFY;
	leave_copy(l, SOURCE_LEFT);
	return LOAD_OPEN;
}

static void verify_done(struct pool_task *task)
{
	struct chunk_load *l = container_of(task, struct chunk_load, verify);

	load_go_on(l, LOAD_VERIFIED);
}

static enum load_step load_verify(struct chunk_load *l)
{
	chunk_of(l)->state = CHUNK_VERIFYING;
	l->dataset->loads.n_verifying++;
	/* Nothing is evicted for a chunk that nobody needs yet. */
	l->mapped = l->into;
	if (!l->into && l->distance < CACHE_SPARE_DISTANCE)
		l->mapped = cache_take_mapped(l->cache, l->segment, l->distance);
	l->verify.work = load_verify_work;
	l->verify.done = verify_done;
	pool_submit(l->cache->pool, &l->job->lane, &l->verify);
	/* From now on the client waits for CPU work. */
	cache_changed(l->cache);
	return LOAD_PAUSE;
}

static enum load_step load_verified(struct chunk_load *l)
{
	l->dataset->loads.n_verifying--;
	if (l->mapped)
		cache_fill_done(l->segment, l->mapped, l->result == 0);
	l->mapped = NULL;
	return l->result < 0 ? LOAD_FAIL : LOAD_READY;
}

/* Failing */

static void on_waited(uv_timer_t *timer)
{
	struct chunk_load *l = ((struct load_wait *)timer->data)->load;

	end_wait(l);
	load_go_on(l, LOAD_OPEN);
}

/* Returns true if the chunk will be read again later. */
static bool wait_for_storage(struct chunk_load *l)
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
	log_limited(cache_lines_of(l->cache, l->job->uid), LOG_LEVEL_WARNING,
		    "%s; reading the chunk again in %u s", l->error.text, seconds);
	return true;
}

/* Reads the chunk again, which corrects a bit flipped in transit, but not damage. A copy's failure says
 * nothing about storage, and does not count. */
static enum load_step load_fail(struct chunk_load *l)
{
	struct log_limit *lines = cache_lines_of(l->cache, l->job->uid);
	struct cached_chunk *k = chunk_of(l);

	if (l->copy.source) {
		log_limited(lines, LOG_LEVEL_WARNING, "%s (%s); reading the chunk from storage",
			    l->error.text, l->copy.source->copied_by);
		leave_copy(l, k->state == CHUNK_VERIFYING ? SOURCE_SPOILT : SOURCE_LEFT);
	} else if (l->is_repeated) {
		return wait_for_storage(l) ? LOAD_PAUSE : LOAD_BAD;
	} else {
		log_limited(lines, LOG_LEVEL_WARNING, "%s; reading it again", l->error.text);
		l->is_repeated = true;
	}
	k->state = CHUNK_READING;
	return LOAD_OPEN;
}

static void load_go_on(struct chunk_load *l, enum load_step step)
{
	static enum load_step (*const steps[])(struct chunk_load *) = {
	    [LOAD_OPEN] = load_open,     [LOAD_OPENED] = load_opened,
	    [LOAD_BRING] = load_bring,   [LOAD_BROUGHT] = load_have_brought,
	    [LOAD_VERIFY] = load_verify, [LOAD_VERIFIED] = load_verified,
	    [LOAD_FAIL] = load_fail,     [LOAD_READY] = load_ready,
	    [LOAD_BAD] = load_bad,
	};

	while (step != LOAD_PAUSE)
		step = steps[step](l);
}

void cache_abandon_loads(struct cache *c)
{
	while (c->loads)
		load_free(c->loads);
}

/* Returns the bytes of one dataset's loads that have been stuck for STUCK_NS; uid may be CACHE_ANYBODY. */
static uint64_t stuck_of(const struct cache *c, const struct cached_dataset *d, uint32_t uid, uint64_t now_ns)
{
	uint64_t bytes = 0;

	for (const struct chunk_load *l = c->loads; l; l = l->next)
		if (l->dataset == d && l->begin_ns + STUCK_NS < now_ns &&
		    (uid == CACHE_ANYBODY || l->job->uid == uid))
			bytes += d->chunks[l->chunk].bytes;
	return bytes;
}

uint64_t cache_stuck_bytes(const struct cache *c, uint32_t uid)
{
	uint64_t now_ns = clock_monotonic_ns(), bytes = 0;

	for (const struct cached_dataset *d = c->datasets; d && c->loads; d = d->next) {
		uint64_t stuck = d->loads.n > 0 ? stuck_of(c, d, uid, now_ns) : 0;
		uint64_t need = d->n_sessions > 0 ? cached_need_bytes(d) : 0;

		bytes += stuck > need ? stuck - need : 0;
	}
	return bytes;
}

uint64_t cache_loading_bytes(const struct cache *c, uint32_t uid)
{
	uint64_t bytes = 0;

	for (const struct chunk_load *l = c->loads; l; l = l->next)
		bytes += l->job->uid == uid ? l->dataset->chunks[l->chunk].bytes : 0;
	return bytes;
}

/* Prepares the chunk's existing part. An unused part is evicted: returns NULL. Otherwise returns its
 * segment, to which the other samples are added. Evicts nothing for a chunk that no session needs yet. */
static struct segment *take_part(struct cache *c, const struct cached_chunk *k, uint32_t distance)
{
	if (k->pins > 0 || distance >= CACHE_SPARE_DISTANCE)
		return k->segment;
	cache_forget_chunk(c, k->segment);
	return NULL;
}

static void order_fill(struct chunk_load *l)
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
}

/* Finds the sources of the chunk, and which part of it to read. Returns 0 or -ENOMEM. */
static int find_sources(struct chunk_load *l, const struct cached_want *want)
{
	l->storage = find_source(l, want, SOURCE_STORAGE);
	if (!l->storage.source)
		return -ENOMEM;
	l->read_bytes = l->meta.file_bytes;
	l->copy = find_source(l, want, SOURCE_NEAR);
	if (!l->copy.source && !l->into)
		l->part = plan_part(l->dataset, &l->meta, want, &l->read.order, &l->read_bytes);
	if (!l->copy.source && !l->part)
		l->copy = find_source(l, want, SOURCE_FAR);
	return 0;
}

static int find_memory(struct chunk_load *l)
{
	struct cached_dataset *d = l->dataset;
	struct cache *c = l->cache;
	int r;

	if (l->into) /* prevents the eviction of this segment */
		cache_pin(c, d, l->chunk);
	l->segment = cache_take_segment(c, d, l->chunk, l->distance, l->job, &r);
	if (l->into)
		cache_unpin(d, l->chunk);
	return l->segment ? 0 : r;
}

static void show_reading(struct chunk_load *l)
{
	struct cached_chunk *k = chunk_of(l);

	l->dataset->loads.n_bad -= k->state == CHUNK_BAD;
	l->dataset->n_cached -= k->state == CHUNK_READY;
	k->state = CHUNK_READING;
	k->from = l->copy.source ? l->copy.source->from : CHUNK_FROM_STORAGE;
	k->segment = l->into ? l->into : l->segment;
	/* Otherwise the segment would appear to hold nothing. */
	l->segment->filling = l->into != NULL;
}

int cache_load(struct cache *c, struct cached_dataset *d, uint64_t chunk, uint32_t distance, struct job *job,
	       struct chunk_place *place, const struct cached_want *want)
{
	struct cached_chunk *k = &d->chunks[chunk];
	struct chunk_load *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->cache = c;
	l->dataset = d;
	l->chunk = chunk;
	l->job = job_ref(job);
	l->place = place_ref(place);
	l->distance = distance;
	l->is_for_peer = want->for_peer;
	r = snapshot_chunk_get(d->snapshot, chunk, &l->meta);
	if (r == 0 && l->meta.file_bytes > k->bytes) /* a verified snapshot has no such entry */
		r = -EBADMSG;
	if (r == 0) {
		l->into = k->part ? take_part(c, k, distance) : NULL;
		order_fill(l);
		r = find_sources(l, want);
	}
	if (r == 0)
		r = find_memory(l);
	if (r == 0)
		r = ask_storage(l);
	if (r < 0) {
		load_free(l);
		return r;
	}
	load_begin(l);
	show_reading(l);
	return 0;
}
