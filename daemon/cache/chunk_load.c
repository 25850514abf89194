/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chunk's way into memory: read by the dataset's reader, verified by a worker; one more try if anything
 * was wrong, then quarantine.
 */
#include "cache.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dataset/chunk.h"
#include "lib/clock.h"
#include "lib/fd_io.h"
#include "lib/log.h"

#define STUCK_NS (10 * NS_PER_S)
/* How long a chunk may take to come from staging: from here to there, as storage is. */
#define MIN_PATIENCE_NS (2 * NS_PER_S)
#define MAX_PATIENCE_NS (30 * NS_PER_S)
#define RETRY_NS        (10 * NS_PER_S) /* a read that failed is not damage: storage may come back */

struct load {
	struct reader_job read;
	struct load *next;
	struct cache *cache;
	struct cached_dataset *dataset;
	uint64_t chunk;
	struct snapshot_chunk meta;
	struct segment *segment; /* read into, and verified there */
	struct segment *lent;    /* where it is copied then; NULL: it stays */
	struct segment *into;    /* has a part of the chunk, which is in use: the rest is added there */
	uint64_t *part;          /* the samples to be read; NULL: all */
	uint64_t read_bytes;     /* what that takes */
	struct segment *carried; /* from before a restart: copied from there if the file is still the same */
	struct staged *staged;   /* on the staging disk: read from there if the file is still the same */
	struct stage_read fetch; /* from there */
	bool shares;             /* another version has it: copied from there if the file is still the same */
	struct access_stamp shared_stamp; /* which it had then */
	struct cached_dataset *sibling;   /* that version, while it is copied: the chunk is pinned there */
	uint64_t sibling_chunk;
	int sibling_fd; /* of its memory, borrowed */
	bool copies;    /* the file is the same: the chunk comes from where it is known */
	uint32_t distance;
	struct job *job;
	struct place *own, *place; /* that of the session that asked; the one tried now */
	uint64_t n_places;         /* when the search through them began */
	uint64_t begin_ns;
	bool repeated;
	int result;
	struct error error;
	struct pool_task verify;
	struct read_ticket ticket;
	const char *origin; /* for texts */
};

static int load_read(struct load *l);

/* The chunk is somewhere already, where it need not be read from storage. */
static bool is_known(const struct load *l)
{
	return l->carried || l->staged || l->shares;
}

/* The chunk in memory of another version of the dataset; NULL: no other one has it. */
static struct segment *find_shared(struct cache *c, const struct cached_dataset *d,
				   const struct snapshot_chunk *wanted, struct cached_dataset **ret,
				   uint64_t *ret_chunk)
{
	for (struct cached_dataset *o = c->datasets; o; o = o->next) {
		struct segment *s =
		    cached_has_chunks_of(o, d) ? cached_find_ready(o, wanted, ret_chunk) : NULL;

		if (s) {
			*ret = o;
			return s;
		}
	}
	return NULL;
}

/* Nothing is held while the chunk's file is opened, which may take as long as its storage likes. */
static bool note_shared(struct cache *c, struct load *l, const struct cached_dataset *d)
{
	struct cached_dataset *o;
	uint64_t chunk;
	const struct segment *s = find_shared(c, d, &l->meta, &o, &chunk);

	l->shares = s != NULL;
	if (s)
		l->shared_stamp = s->stamp;
	return s != NULL;
}

/* Pins it there, for the time of a copy. Returns false if it has gone meanwhile, or was read from another
 * file. */
static bool hold_shared(struct load *l)
{
	struct cached_dataset *o;
	uint64_t chunk;
	struct segment *s = find_shared(l->cache, l->dataset, &l->meta, &o, &chunk);

	if (!s || !access_stamp_equal(&s->stamp, &l->shared_stamp))
		return false;
	cache_pin(l->cache, o, chunk);
	l->sibling = o;
	l->sibling_chunk = chunk;
	l->sibling_fd = s->memory.fd;
	return true;
}

/* What was known is no longer needed: it was used, or the chunk comes from storage. */
static void drop_known(struct load *l)
{
	if (l->carried)
		cache_free_carried(l->cache, l->carried);
	if (l->staged)
		stage_let_go(l->cache->stage, l->staged);
	if (l->sibling)
		cache_unpin(l->sibling, l->sibling_chunk);
	l->carried = NULL;
	l->staged = NULL;
	l->sibling = NULL;
	l->shares = false;
	l->copies = false;
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
	c->n_loading--;
	drop_known(l);
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
		drop_known(l);
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

/* Reads once more, which cures a bit that flipped on the way, but not damage. A failure of what was known
 * says nothing about storage, and does not count. */
static void load_fail(struct load *l)
{
	const char *format = l->carried  ? "%s (carried over the restart); reading it from storage"
			     : l->staged ? "%s (as staged); reading it from storage"
			     : l->shares ? "%s (as another version has it); reading it from storage"
					 : "%s; reading it again";

	if (l->repeated && !is_known(l)) {
		load_finish(l);
		return;
	}
	log_limited(l->cache->lines_of(l->cache->user, l->job->uid), LOG_LEVEL_WARNING, format,
		    l->error.text);
	if (l->staged && l->copies)
		stage_spoil(l->cache->stage, l->staged);
	l->repeated = !is_known(l);
	drop_known(l);
	l->dataset->chunks[l->chunk].state = CHUNK_READING;
	load_again(l);
}

/* Whether all of the file was verified, not its head and samples alone, and goes to where nothing of it is.
 */
static bool is_handed_over_whole(const struct load *l)
{
	return l->meta.has_sha256 && !l->into;
}

/* Copies verified bytes to the segment that clients may map. Where a part of the chunk is in use, that stays
 * as it is. */
static void hand_over(const struct load *l, uint64_t offset, uint64_t bytes, bool has)
{
	if (l->lent && !has)
		memcpy(l->lent->memory.data + offset, l->segment->memory.data + offset, bytes);
}

/* Whether a sample is what the head, which the snapshot's chunk table vouches for, says of its record. The
 * snapshot's own records were not verified when it was opened, if they are many. */
static bool agrees(const struct load *l, const struct chunk_record *record, const char *names,
		   const struct snapshot_sample *s)
{
	return record->offset == s->offset && record->stored_bytes == s->stored_bytes &&
	       record->bytes == s->bytes && record->xxh3 == s->xxh3 &&
	       snapshot_class_fits(l->dataset->snapshot, s->class_index, names + record->name_offset,
				   record->name_length);
}

/* Of a part, nothing stays that was read but not verified. */
static void wipe(const struct load *l, uint64_t from, uint64_t to)
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

static int verify_samples(struct load *l, const struct chunk_view *view)
{
	const uint64_t *part =
	    l->dataset->chunks[l->chunk].part; /* that `into` has: it stays as long as we read */
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

		/* In the chunk's order, so that nothing is verified twice. */
		if (r < 0 || s.record >= view->header->n_records || s.record <= last)
			return error_set(&l->error, -EBADMSG,
					 "%s: has no record for sample %llu: run dieselctl verify", l->origin,
					 number);
		last = s.record;
		record = &view->records[s.record];
		if (!agrees(l, record, view->names, &s))
			return error_set(&l->error, -EBADMSG,
					 "%s: sample %.*s differs from the snapshot: run dieselctl verify",
					 l->origin, (int)record->name_length,
					 view->names + record->name_offset);
		r = chunk_verify_record(view, s.record, l->segment->memory.data + s.offset, l->origin,
					&l->error);
		if (r < 0)
			return r;
		wipe(l, end, s.offset);
		end = s.offset + s.stored_bytes > end ? s.offset + s.stored_bytes : end;
		hand_over(l, s.offset, s.stored_bytes,
			  is_handed_over_whole(l) || (l->into && cached_part_has(part, i)));
	}
	wipe(l, end, l->meta.file_bytes);
	return 0;
}

/* Runs before anything is handed over: the chunk's own checksums protect against accidents only. */
static int verify_digest(struct load *l)
{
	const struct iovec file = {l->segment->memory.data, l->meta.file_bytes};
	struct digest found;
	int r = l->meta.has_sha256 ? digest_of(&file, 1, &found) : 0;

	if (r < 0)
		return error_errno(&l->error, r, "%s: cannot compute its SHA-256", l->origin);
	if (l->meta.has_sha256 && !digest_equal(&found, &l->meta.sha256))
		return error_set(&l->error, -EBADMSG,
				 "%s: is not the file that was packed (its SHA-256 is not the snapshot's): "
				 "restore it",
				 l->origin);
	return 0;
}

/* Copies as from a file: whatever happens to that memory meanwhile, what is verified is our copy. */
static int copy_memory(struct load *l)
{
	int fd = l->carried ? l->carried->memory.fd : l->sibling_fd;
	size_t done;

	if (!l->copies || !(l->carried || l->sibling))
		return 0;
	if (fd_read_at(fd, l->segment->memory.data, l->meta.file_bytes, 0, &done) < 0 ||
	    done < l->meta.file_bytes)
		return error_set(&l->error, -EBADMSG, "%s: its memory cannot be read", l->origin);
	return 0;
}

static void verify_work(struct pool_task *task)
{
	struct load *l = (struct load *)((char *)task - offsetof(struct load, verify));
	struct chunk_view view;
	int r = copy_memory(l);

	if (r == 0)
		r = chunk_parse_plain(l->segment->memory.data, l->meta.file_bytes, l->origin, &view,
				      &l->error);
	if (r == 0 && (memcmp(&view.header->id, &l->meta.id, sizeof(l->meta.id)) != 0 ||
		       view.header->head_xxh3 != l->meta.head_xxh3))
		r = error_set(&l->error, -EBADMSG,
			      "%s: is not the chunk that the snapshot describes: run dieselctl verify",
			      l->origin);
	if (r == 0)
		r = verify_digest(l);
	/* With what is between samples: copies of that memory are held against the digest again. */
	if (r == 0)
		hand_over(l, 0, is_handed_over_whole(l) ? l->meta.file_bytes : view.header->payload_offset,
			  l->into != NULL);
	l->result = r < 0 ? r : verify_samples(l, &view);
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
	l->lent = l->into ? l->into : cache_take_lent(l->cache, l->segment, l->distance);
	l->verify.work = verify_work;
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
	drop_known(l);
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
		drop_known(l);
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
	l->copies = is_known(l) && l->result == 0 && job->unchanged;
	c->counters.buffered += job->buffered && !l->copies;
	/* The file is another one now, and was read. */
	if (is_known(l) && l->result == 0 && !l->copies) {
		drop_known(l);
		count_read(l);
		read_turns_charge(&l->ticket, l->job->read_weight, l->read_bytes);
	}
	if (!is_known(l) && l->result == 0 && job->read_bytes)
		note_compressed(l, job->read_bytes);
	read_turns_end(&l->ticket);
	if (!is_known(l))
		job_read_end(l->job, l->begin_ns, clock_monotonic_ns(), l->result == 0 ? l->read_bytes : 0);
	if (!is_known(l) && !l->part && l->result == 0) {
		note_pace(l, false);
		note_reading(l);
	}
	if (l->result == -EXDEV && next_place(l))
		load_again(l);
	else if (l->result < 0)
		load_fail(l);
	else if (l->staged)
		load_fetch(l);
	else if (!l->shares || hold_shared(l))
		load_verify(l);
	else {
		drop_known(l);
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
				       .bytes = is_known(l) ? 0 : l->read_bytes};

	read_turns_begin(l->cache->turns, &want, l->begin_ns, &l->ticket);
}

static int load_read(struct load *l)
{
	struct cache *c = l->cache;
	int r;

	l->result = 0;
	l->read.error = ERROR_INIT;
	l->read.order.is_known = is_known(l);
	if (is_known(l))
		l->read.order.known = l->carried  ? l->carried->stamp
				      : l->staged ? l->staged->stamp
						  : l->shared_stamp;
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
	if (!is_known(l))
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

/* Makes room for the whole chunk where a part of it is: that goes, if nobody uses it, or gets the rest added.
 */
static struct segment *take_part(struct cache *c, const struct cached_chunk *k)
{
	if (k->pins > 0)
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
	r = snapshot_chunk_get(d->snapshot, chunk, &l->meta);
	if (r < 0 || l->meta.file_bytes > k->bytes) { /* a verified snapshot has no such entry */
		free(l);
		return r < 0 ? r : -EBADMSG;
	}
	l->into = k->part ? take_part(c, k) : NULL;
	if (k->state == CHUNK_CARRIED)
		l->carried = cache_detach_carried(c, d, chunk);
	else if (!note_shared(c, l, d))
		l->staged = stage_find(c->stage, d, &l->meta);
	l->segment = cache_take_segment(c, d, chunk, distance, &r);
	if (!l->segment) {
		if (l->carried)
			cache_attach_carried(c, l->carried);
		l->carried = NULL;
		l->cache = c;
		drop_known(l);
		free(l);
		return r;
	}
	l->cache = c;
	l->job = job_ref(job);
	l->own = place_ref(place);
	l->place = place_ref(place);
	l->n_places = d->places.n_added;
	l->dataset = d;
	l->chunk = chunk;
	l->distance = distance;
	l->next = c->loads;
	c->loads = l;
	c->n_loading++;
	d->n_loading++;
	d->loading_bytes += k->bytes;
	order_fill(l);
	l->read_bytes = l->meta.file_bytes;
	if (!l->into && !is_known(l))
		l->part = cached_plan_part(d, &l->meta, want, &l->read.order, &l->read_bytes);
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
	k->segment = l->into ? l->into : l->segment;
	/* Or it would look as if it held nothing. */
	l->segment->filling = l->into != NULL;
	return 0;
}
