/* SPDX-License-Identifier: Apache-2.0 */
#include "stage.h"
#include "source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/clock.h"
#include "lib/list.h"
#include "lib/log.h"
#include "lib/units.h"

#define TICK_MS     50
#define OFF_NS      (60 * NS_PER_S) /* pause after a disk failed or was late */
#define MAX_TROUBLE 3 /* number of failed or late reads in a row after which the disk is not used */
#define HANG_NS     (30 * NS_PER_S) /* time after which a write counts as hung */
#define MEASURED    8               /* chunks read back to measure the disk */
/* Limits on the wait for a staged chunk, in multiples of a read from storage and in time. */
#define PATIENCE_TIMES  4
#define MIN_PATIENCE_NS (2 * NS_PER_S)
#define MAX_PATIENCE_NS (30 * NS_PER_S)
/* Maximum number of chunks in memory that wait to be written. With more, the cache would evict chunks before
 * their turn. */
#define N_WANTS 64

/* A chunk to write, if it is still in memory when its turn comes. */
struct want {
	uint32_t segment;
	uint64_t chunk;
};

/* A chunk that is being written. */
struct put {
	struct stager_job job;
	struct stage *stage;
	struct staged *file; /* NULL: this entry is free */
	struct want what;
	bool takes;    /* the chunk is pinned */
	bool measures; /* the file was written and is being read back for a measurement; holds a reference */
	uint64_t begin_ns;
};

/* A staged chunk that a load may use. */
struct staged_copy {
	struct stager_job job;
	struct stage *stage;
	struct chunk_load *load;
	struct staged *file;
	uint64_t begin_ns, patience_ns;
	bool gives; /* the chunk was read, and is being copied */
	struct staged_copy *next;
};

struct stage {
	struct cache *cache;
	uv_loop_t *loop;
	const struct fork_server *fork_server;
	struct quota quota;
	char *folder;
	uint64_t limit_bytes;
	bool always;
	struct stage_mean disk; /* reads of files that were just written */
	struct stager *stager;  /* NULL: no stager process now */
	bool is_open;
	struct stage_index index;
	struct put puts[STAGER_WRITE_SLOTS];
	struct want wants[N_WANTS];
	uint32_t first_want, n_wants;
	struct stager_job remove;
	struct staged *removing;
	struct staged_copy *reads;
	uv_timer_t timer;
	uint32_t n_trouble;   /* failed or late reads in a row */
	uint64_t off_ns;      /* time until which the disk is not used */
	uint64_t no_write_ns; /* time until which nothing is written or removed */
	uint32_t n_foreign;
	bool said, said_write;
	struct stage_figures figures;
};

static void pump(struct stage *g);
static void watch(struct stage *g);

static bool is_usable(const struct stage *g)
{
	return g->is_open && clock_monotonic_ns() >= g->off_ns;
}

/* Logs once that staging is off, until it works again. */
static void say_off(struct stage *g, const char *why)
{
	if (!g->said)
		log_warning("staging in %s is not used: %s. Chunks are read from storage, and dieseld tries "
			    "again each minute",
			    g->folder, why);
	g->said = true;
}

static void trouble(struct stage *g, const char *why)
{
	if (++g->n_trouble < MAX_TROUBLE)
		return;
	g->n_trouble = 0;
	g->off_ns = clock_monotonic_ns() + OFF_NS;
	say_off(g, why);
}

/* Stops writing for a while. Staged files can still be read. */
static void write_trouble(struct stage *g, int code, const char *why)
{
	g->figures.write_failures++;
	g->no_write_ns = clock_monotonic_ns() + OFF_NS;
	if (!g->said_write)
		log_warning(
		    "staging in %s: %s%s. Staged chunks are still used, but no chunks are added for now",
		    g->folder, code == -ENOSPC ? "the disk is full before --stage-size is reached: " : "",
		    why);
	g->said_write = true;
}

static void works(struct stage *g)
{
	g->n_trouble = 0;
	if (g->said)
		log_info("staging in %s is used again", g->folder);
	g->said = false;
}

/* Files */

static struct staged_key key_of(const struct cached_dataset *d, const struct chunk_id *id)
{
	return (struct staged_key){
	    .id = *id, .folder_dev = d->identity.chunks_dev, .folder_ino = d->identity.chunks_ino};
}

static int64_t now_s(void)
{
	return (int64_t)time(NULL);
}

static struct staged *find_file(const struct stage *g, const struct cached_dataset *d,
				const struct snapshot_chunk *chunk)
{
	const struct staged_key key = key_of(d, &chunk->id);
	struct staged *f;

	if (!g || !is_usable(g) || d->pace.staging.is_off)
		return NULL;
	f = stage_index_find(&g->index, &key);
	return f && f->state == STAGED_READY && f->stamp.bytes == chunk->file_bytes ? f : NULL;
}

static void let_go(struct stage *g, struct staged *f)
{
	if (--f->refs > 0)
		return;
	if (f->state == STAGED_LOST)
		free(f);
	else if (g)
		pump(g);
}

/* Removes a file that differs from what was written. */
static void spoil(struct stage *g, struct staged *f)
{
	g->figures.damaged++;
	if (f->state == STAGED_READY)
		stage_index_retire(&g->index, f);
}

/* Reading */

static void read_end(struct staged_copy *q, int result)
{
	struct stage *g = q->stage;
	struct chunk_load *l = q->load;

	LL_DELETE(g->reads, q);
	if (g->stager)
		stager_finish(g->stager, &q->job);
	if (result == 0) {
		g->figures.hits++;
		g->figures.read_bytes += q->file->stamp.bytes;
		if (q->file->set)
			q->file->set->used_s = now_s();
		works(g);
		stage_note(g, l->dataset, true, load_share_ns(l), l->meta.file_bytes);
		l->dataset->pace.from_staging = true;
	}
	load_brought(l, result);
}

static void on_given(struct stager_job *job, int result, const struct error *err)
{
	struct staged_copy *q = (struct staged_copy *)job;

	(void)err;
	q->stage->figures.failed += result < 0;
	read_end(q, result);
}

/* A missing file, or one of another length, does not count as trouble of the disk. */
static void on_fetched(struct stager_job *job, int result, const struct error *err)
{
	struct staged_copy *q = (struct staged_copy *)job;
	struct stage *g = q->stage;

	if (result == 0) {
		q->gives = true;
		result = stager_order(g->stager, job, STAGER_GIVE, NULL, q->file->stamp.bytes,
				      q->load->segment->memory.fd, on_given);
		if (result == 0)
			return;
	} else if (result == -EBADMSG || result == -ENOENT) {
		spoil(g, q->file);
	} else {
		g->figures.failed++;
		trouble(g, err->text);
	}
	read_end(q, result);
}

static void on_late(struct staged_copy *q)
{
	struct stage *g = q->stage;
	struct error err = ERROR_INIT;

	error_set(&err, -ETIMEDOUT, "a read has taken more than %.1f s", (double)q->patience_ns / 1e9);
	LL_DELETE(g->reads, q);
	stager_forget(g->stager, &q->job);
	g->figures.late++;
	trouble(g, err.text);
	load_brought(q->load, -ETIMEDOUT);
}

static void *staging_find(struct chunk_load *l, const struct cached_want *want)
{
	struct staged *f = find_file(l->cache->stage, l->dataset, &l->meta);
	struct staged_copy *q = f ? calloc(1, sizeof(*q)) : NULL;

	(void)want;
	if (!q)
		return NULL;
	f->refs++;
	q->load = l;
	q->file = f;
	load_expect(l, &f->stamp);
	return q;
}

/* Starts a read with a time limit, after which the load reads from storage. */
static int staging_begin(struct chunk_load *l)
{
	struct staged_copy *q = l->copy.state;
	struct stage *g = l->cache->stage;
	char name[STAGER_NAME_BYTES];
	int r;

	if (!g || !is_usable(g) || q->file->state == STAGED_LOST)
		return -EAGAIN;
	r = stager_begin(g->stager, false, &q->job);
	if (r < 0)
		return r;
	staged_name(q->file, name);
	r = stager_order(g->stager, &q->job, STAGER_FETCH, name, q->file->stamp.bytes, -EBADF, on_fetched);
	if (r < 0) {
		stager_finish(g->stager, &q->job);
		return r;
	}
	q->stage = g;
	q->begin_ns = clock_monotonic_ns();
	q->patience_ns =
	    load_patience_ns(l, PATIENCE_TIMES, MIN_PATIENCE_NS, MIN_PATIENCE_NS, MAX_PATIENCE_NS);
	LL_PREPEND(g->reads, q);
	watch(g);
	return 0;
}

static void staging_end(struct chunk_load *l, enum source_end how)
{
	struct staged_copy *q = l->copy.state;

	if (how == SOURCE_SPOILT)
		spoil(l->cache->stage, q->file);
	let_go(l->cache->stage, q->file);
	free(q);
}

const struct chunk_source source_staging = {
    .kind = SOURCE_NEAR,
    .from = CHUNK_FROM_STAGING,
    .copied_by = "a staged copy",
    .find = staging_find,
    .begin = staging_begin,
    .end = staging_end,
};

/* Removing */

static void on_removed(struct stager_job *job, int result, const struct error *err)
{
	struct stage *g = container_of(job, struct stage, remove);

	stager_finish(g->stager, job);
	if (result < 0)
		write_trouble(g, result, err->text);
	else
		stage_index_drop(&g->index, g->removing);
	g->removing = NULL;
}

static void remove_one(struct stage *g)
{
	struct staged *f = g->index.going;
	char name[STAGER_NAME_BYTES];

	while (f && f->refs > 0)
		f = f->next;
	if (!f || g->removing || stager_begin(g->stager, true, &g->remove) < 0)
		return;
	staged_name(f, name);
	if (stager_order(g->stager, &g->remove, STAGER_REMOVE, name, 0, -EBADF, on_removed) < 0)
		stager_finish(g->stager, &g->remove);
	else
		g->removing = f;
}

static bool is_in_use(const struct stage *g, const struct staged_set *s)
{
	for (const struct cached_dataset *d = g->cache->datasets; d; d = d->next)
		if (d->n_sessions > 0 && d->identity.chunks_dev == s->folder_dev &&
		    d->identity.chunks_ino == s->folder_ino)
			return true;
	return false;
}

static struct staged *any_ready(const struct staged_set *s)
{
	struct staged *f = s->first;

	while (f && (f->state != STAGED_READY || f->refs > 0))
		f = f->next;
	return f;
}

/* Returns a file of the dataset that has been out of use for longest. uid: only datasets of this owner, or
 * CACHE_ANYBODY. NULL: none. */
static struct staged *pick_victim(const struct stage *g, uint32_t uid)
{
	const struct staged_set *best = NULL;

	for (const struct staged_set *s = g->index.sets; s; s = s->next) {
		if ((uid != CACHE_ANYBODY && s->uid != uid) || is_in_use(g, s) || !any_ready(s))
			continue;
		if (!best || s->used_s < best->used_s)
			best = s;
	}
	return best ? any_ready(best) : NULL;
}

void stage_forget(struct stage *g, uint64_t folder_dev, uint64_t folder_ino)
{
	struct staged_set *s = g ? g->index.sets : NULL;
	struct staged *f;

	while (s && (s->folder_dev != folder_dev || s->folder_ino != folder_ino))
		s = s->next;
	while (s && (f = any_ready(s))) /* the set stays until its files are gone */
		stage_index_retire(&g->index, f);
	if (s)
		pump(g);
}

/* Makes space for a file. Returns 0 if there is space, -EAGAIN if there will be, -ENOSPC if there will
 * not. */
static int make_space(struct stage *g, uint32_t uid, uint64_t bytes)
{
	bool over_own =
	    stage_index_bytes_of(&g->index, uid) + bytes > quota_share(&g->quota, uid, g->limit_bytes);
	struct staged *victim;

	if (!over_own && g->index.bytes + bytes <= g->limit_bytes)
		return 0;
	if (g->index.going)
		return -EAGAIN;
	victim = pick_victim(g, over_own ? uid : CACHE_ANYBODY);
	if (!victim)
		return -ENOSPC;
	g->figures.evicted++;
	stage_index_retire(&g->index, victim);
	return -EAGAIN;
}

/* Writing */

/* Returns the segment if it still holds this chunk, else NULL. */
static struct segment *wanted_segment(const struct stage *g, const struct want *w)
{
	struct segment *s = cache_find_segment(g->cache, w->segment);

	return s && s->chunk == w->chunk && cache_is_ready(s) ? s : NULL;
}

static void put_end(struct put *p)
{
	stager_finish(p->stage->stager, &p->job);
	p->file = NULL;
}

static void put_failed(struct put *p)
{
	struct stage *g = p->stage;

	stage_index_drop(&g->index, p->file);
	put_end(p);
}

static void on_measured(struct stager_job *job, int result, const struct error *err)
{
	struct put *p = (struct put *)job;

	(void)err; /* an error shows when a load uses the chunk */
	if (result == 0)
		stage_best_add(&p->stage->disk, clock_monotonic_ns() - p->begin_ns, p->file->stamp.bytes);
	p->measures = false;
	p->file->refs--;
	put_end(p);
}

/* Reads a written file back, to measure the disk before a load uses it. Returns false if the speed is known,
 * or cannot be measured. */
static bool measure(struct put *p)
{
	struct stage *g = p->stage;
	char name[STAGER_NAME_BYTES];

	if (g->always || g->disk.n >= MEASURED)
		return false;
	staged_name(p->file, name);
	p->begin_ns = clock_monotonic_ns();
	if (stager_order(g->stager, &p->job, STAGER_FETCH, name, p->file->stamp.bytes, -EBADF, on_measured) <
	    0)
		return false;
	p->measures = true;
	p->file->refs++;
	return true;
}

static void on_written(struct stager_job *job, int result, const struct error *err)
{
	struct put *p = (struct put *)job;
	struct stage *g = p->stage;

	if (result == 0) {
		g->figures.written++;
		g->figures.written_bytes += p->file->stamp.bytes;
		p->file->state = STAGED_READY;
		g->said_write = false;
		if (!measure(p))
			put_end(p);
		return;
	}
	write_trouble(g, result, err->text);
	put_failed(p);
}

/* Unpins the chunk. Returns false if the chunk is gone although it was pinned: its dataset was dropped. */
static bool put_unpin(struct put *p)
{
	struct segment *s = cache_find_segment(p->stage->cache, p->what.segment);

	p->takes = false;
	if (s)
		cache_unpin(s->dataset, p->what.chunk);
	return s;
}

/* The stager has its copy: the segment is no longer needed. */
static void on_taken(struct stager_job *job, int result, const struct error *err)
{
	struct put *p = (struct put *)job;
	struct stage *g = p->stage;
	bool is_whole = put_unpin(p) && result == 0;
	char name[STAGER_NAME_BYTES];

	(void)err;
	cache_changed(g->cache);
	if (is_whole) {
		staged_name(p->file, name);
		if (stager_order(g->stager, job, STAGER_WRITE, name, p->file->stamp.bytes, -EBADF,
				 on_written) == 0)
			return;
	}
	put_failed(p);
}

static struct put *free_put(struct stage *g)
{
	for (size_t i = 0; i < STAGER_WRITE_SLOTS; i++)
		if (!g->puts[i].file)
			return &g->puts[i];
	return NULL;
}

/* Starts to write a chunk. Returns 0 if the want is settled, or -EAGAIN: try again later. */
static int put_begin(struct stage *g, struct put *p, const struct want *w)
{
	struct segment *s = wanted_segment(g, w);
	struct snapshot_chunk chunk;
	struct staged_key key;
	uint32_t uid;
	int r;

	if (!s || snapshot_chunk_get(s->dataset->snapshot, w->chunk, &chunk) < 0) {
		g->figures.skipped++;
		return 0;
	}
	key = key_of(s->dataset, &chunk.id);
	uid = s->dataset->identity.rights.uid;
	if (stage_index_find(&g->index, &key))
		return 0;
	if (stage_index_goes(&g->index, &key, &s->stamp))
		return -EAGAIN;
	r = make_space(g, uid, stager_file_bytes(chunk.file_bytes));
	if (r < 0)
		return r == -EAGAIN ? r : 0;
	if (stager_begin(g->stager, true, &p->job) < 0)
		return -EAGAIN;
	p->file = stage_index_add(&g->index, &key, uid, &s->stamp, now_s());
	if (!p->file) {
		put_end(p);
		return 0;
	}
	p->what = *w;
	p->begin_ns = clock_monotonic_ns();
	if (stager_order(g->stager, &p->job, STAGER_TAKE, NULL, chunk.file_bytes, s->memory.fd, on_taken) <
	    0) {
		put_failed(p);
		return 0;
	}
	p->takes = true;
	cache_pin(g->cache, s->dataset, w->chunk);
	watch(g);
	return 0;
}

static void write_on(struct stage *g)
{
	struct put *p;

	while (g->n_wants > 0 && (p = free_put(g))) {
		if (put_begin(g, p, &g->wants[g->first_want]) < 0)
			return;
		g->first_want = (g->first_want + 1) % N_WANTS;
		g->n_wants--;
	}
}

static void pump(struct stage *g)
{
	if (!is_usable(g) || clock_monotonic_ns() < g->no_write_ns)
		return;
	write_on(g);
	remove_one(g);
}

/* Returns true if memory will not hold all of this dataset in the next epoch. */
static bool is_too_large(const struct cache *c, const struct cached_dataset *d)
{
	uint64_t limit = cache_segment_limit(c, c->budget_bytes), wanted = c->decoded_cache.limit_bytes;

	for (const struct cached_dataset *o = c->datasets; o; o = o->next)
		wanted += o->n_sessions > 0 ? o->space_bytes : 0;
	return d->space_bytes < d->all_bytes || wanted > limit;
}

void stage_put(struct stage *g, struct segment *s)
{
	const struct cached_dataset *d = s->dataset;
	struct snapshot_chunk chunk;
	struct staged_key key;
	struct staged *f;

	if (!g || !is_usable(g) || d->pace.staging.is_off || !is_too_large(g->cache, d) ||
	    clock_monotonic_ns() < g->no_write_ns || s->stamp.dev != d->identity.chunks_dev ||
	    s->stamp.bytes > STAGER_MAX_BYTES || snapshot_chunk_get(d->snapshot, s->chunk, &chunk) < 0 ||
	    s->stamp.bytes != chunk.file_bytes || chunk.is_external) /* no checksum shows a damaged copy */
		return;
	key = key_of(d, &chunk.id);
	f = stage_index_find(&g->index, &key);
	if (f && f->state == STAGED_READY && !access_stamp_equal(&f->stamp, &s->stamp))
		stage_index_retire(&g->index, f);
	else if (f)
		return;
	if (g->n_wants == N_WANTS) {
		g->figures.skipped++;
		return;
	}
	g->wants[(g->first_want + g->n_wants++) % N_WANTS] =
	    (struct want){.segment = s->id, .chunk = s->chunk};
	pump(g);
}

static void format_rate(const struct stage_mean *m, char *text, size_t size)
{
	units_format_bytes(text, size, m->ns_per_byte > 0 ? (uint64_t)(1e9 / m->ns_per_byte) : 0);
}

void stage_note(struct stage *g, struct cached_dataset *d, bool from_staging, uint64_t ns, uint64_t bytes)
{
	char storage[16], staged[16];

	if (!g || g->always)
		return;
	stage_mean_add(from_staging ? &d->pace.staging.staged : &d->pace.staging.storage, ns, bytes);
	if (!stage_pace_decide(&d->pace.staging, &g->disk))
		return;
	format_rate(&d->pace.staging.storage, storage, sizeof(storage));
	format_rate(d->pace.staging.staged.n ? &d->pace.staging.staged : &g->disk, staged, sizeof(staged));
	log_info("%s: %s: storage delivers chunks at %s/s, staging at %s/s", d->path,
		 d->pace.staging.is_off ? "not staged" : "staged", storage, staged);
}

/* The process */

static void on_listed(void *user, const char *name, uint64_t bytes, int64_t written_s)
{
	struct stage *g = user;
	struct staged *f = stage_index_add_name(&g->index, name, written_s);

	if (!f) {
		g->n_foreign++;
	} else if (bytes != staged_file_bytes(f)) {
		g->figures.damaged++;
		stage_index_retire(&g->index, f);
	}
}

/* Evicts files beyond the limit, which may be lower than before. */
static void shrink(struct stage *g)
{
	uint64_t bytes = g->index.bytes;

	for (const struct staged *f = g->index.going; f; f = f->next)
		bytes -= staged_file_bytes(f);
	while (bytes > g->limit_bytes) {
		struct staged *f = pick_victim(g, CACHE_ANYBODY);

		for (struct staged_set *s = g->index.sets; s && !f; s = s->next)
			f = any_ready(s);
		if (!f)
			return;
		bytes -= staged_file_bytes(f);
		g->figures.evicted++;
		stage_index_retire(&g->index, f);
	}
}

static void on_opened(void *user, uint64_t available_bytes)
{
	struct stage *g = user;
	char has[16], limit[16];

	g->is_open = true;
	shrink(g);
	log_info("staging in %s: %llu chunk%s, %s of at most %s", g->folder, (unsigned long long)g->index.n,
		 units_plural(g->index.n), units_format_bytes(has, sizeof(has), g->index.bytes),
		 units_format_bytes(limit, sizeof(limit), g->limit_bytes));
	if (available_bytes + g->index.bytes < g->limit_bytes)
		log_warning("staging in %s: the disk has space for %s, which is less than --stage-size",
			    g->folder,
			    units_format_bytes(has, sizeof(has), available_bytes + g->index.bytes));
	if (g->n_foreign)
		log_warning("staging in %s: dieseld ignores %u file%s there that it did not make, and does "
			    "not count their size",
			    g->folder, g->n_foreign, units_plural(g->n_foreign));
	g->said = false;
	pump(g);
}

static void on_changed(void *user)
{
	pump(user);
}

static void on_ended(void *user, const struct error *err)
{
	struct stage *g = user;

	g->is_open = false;
	g->off_ns = clock_monotonic_ns() + OFF_NS;
	say_off(g, err->text);
	g->stager = stager_free(g->stager);
	g->removing = NULL;
	g->n_wants = 0;
	stage_index_clear(&g->index);
	watch(g);
}

static void start(struct stage *g)
{
	const struct stager_handler handler = {
	    .listed = on_listed, .opened = on_opened, .changed = on_changed, .ended = on_ended, .user = g};
	int r;

	g->n_foreign = 0;
	g->off_ns = 0;
	r = stager_new(g->loop, g->fork_server, g->folder, &handler, &g->stager);
	if (r < 0) {
		g->off_ns = clock_monotonic_ns() + OFF_NS;
		say_off(g, strerror(-r));
		watch(g);
	}
}

/* Returns true if something is being written. */
static bool look_at_writes(struct stage *g, uint64_t now_ns)
{
	bool any = false;

	for (size_t i = 0; i < STAGER_WRITE_SLOTS; i++) {
		any = any || g->puts[i].file;
		if (g->puts[i].file && now_ns > g->puts[i].begin_ns + HANG_NS)
			say_off(g, "a write has taken more than 30 s");
	}
	return any;
}

static void on_tick(uv_timer_t *timer)
{
	struct stage *g = timer->data;
	uint64_t now_ns = clock_monotonic_ns();

	for (struct staged_copy *q = g->reads, *next; q; q = next) {
		next = q->next;
		if (!q->gives && now_ns > q->begin_ns + q->patience_ns)
			on_late(q);
	}
	if (!look_at_writes(g, now_ns) && !g->reads && g->stager)
		uv_timer_stop(timer);
	if (!g->stager && now_ns >= g->off_ns)
		start(g);
}

/* Runs the timer while reads or writes are in progress, or until the stager is restarted. */
static void watch(struct stage *g)
{
	if (!uv_is_active((uv_handle_t *)&g->timer))
		uv_timer_start(&g->timer, on_tick, TICK_MS, TICK_MS);
}

int stage_new(uv_loop_t *loop, const struct fork_server *fork_server, struct cache *cache,
	      const struct stage_options *options, const struct quota *quota, struct stage **ret)
{
	struct stage *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->folder = strdup(options->folder);
	if (!g->folder) {
		free(g);
		return -ENOMEM;
	}
	g->cache = cache;
	g->loop = loop;
	g->fork_server = fork_server;
	g->quota = *quota;
	g->limit_bytes = options->bytes;
	g->always = options->always;
	for (size_t i = 0; i < STAGER_WRITE_SLOTS; i++)
		g->puts[i].stage = g;
	uv_timer_init(loop, &g->timer);
	g->timer.data = g;
	uv_unref((uv_handle_t *)&g->timer);
	start(g);
	*ret = g;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct stage *g = handle->data;

	free(g->folder);
	free(g);
}

struct stage *stage_free(struct stage *g)
{
	if (!g)
		return NULL;
	g->stager = stager_free(g->stager);
	for (size_t i = 0; i < STAGER_WRITE_SLOTS; i++) {
		if (g->puts[i].takes)
			(void)put_unpin(&g->puts[i]);
		if (g->puts[i].measures)
			g->puts[i].file->refs--;
	}
	stage_index_clear(&g->index);
	uv_close((uv_handle_t *)&g->timer, on_closed);
	return NULL;
}

void stage_figures_get(const struct stage *g, struct stage_figures *ret)
{
	*ret = (struct stage_figures){.is_open = false};
	if (!g)
		return;
	*ret = g->figures;
	ret->is_open = is_usable(g);
	ret->files = g->index.n;
	ret->bytes = g->index.bytes;
	ret->limit_bytes = g->limit_bytes;
}
