/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"

#define KNOWN_SHARE 8 /* at most 1 in this many indices of a batch may be unknown */

static void batch_free(struct written_batch *b)
{
	free(b->indices);
	*b = (struct written_batch){0};
}

static struct written_batch *pending(struct worker_pipe *p, uint32_t i)
{
	return &p->pending[(p->first + i) % BATCH_LOG_PENDING];
}

static void pipe_clear(struct worker_pipe *p)
{
	for (uint32_t i = 0; i < p->n_pending; i++)
		batch_free(pending(p, i));
	batch_free(&p->now);
	free(p->names);
	*p = (struct worker_pipe){.last_number = -1};
}

/* Returns the entry of the pipe. NULL: it has none; with make, a new entry replaces the least recently
 * used one instead. */
static struct worker_pipe *pipe_of(struct batch_log *log, uint32_t inode, bool make)
{
	struct worker_pipe *oldest = &log->pipes[0];

	for (size_t i = 0; i < BATCH_LOG_PIPES; i++) {
		struct worker_pipe *p = &log->pipes[i];

		if (p->used_ns && p->inode == inode)
			return p;
		if (p->used_ns < oldest->used_ns)
			oldest = p;
	}
	if (!make)
		return NULL;
	pipe_clear(oldest);
	oldest->inode = inode;
	return oldest;
}

/* ---- requested batches --------------------------------------------------------------------------------- */

/* Returns true if nearly all files are known: a few samples may never have been seen with their files. */
static bool is_known(const struct batch_log *log, const struct written_batch *b, int set)
{
	uint32_t n = 0;

	for (uint32_t i = 0; set >= 0 && i < b->n; i++)
		n += file_table_find(&log->sets.table, set, b->indices[i]) != NULL;
	return set >= 0 && n >= b->n - b->n / KNOWN_SHARE;
}

/* Returns the number of batches of this epoch that are written and not finished, as far as is known. */
static uint32_t count_in_flight(struct batch_log *log)
{
	uint32_t n = 0;

	for (size_t i = 0; i < BATCH_LOG_PIPES; i++) {
		struct worker_pipe *p = &log->pipes[i];

		n += p->now.id >= log->epoch_id && p->now.id;
		for (uint32_t k = 0; k < p->n_pending; k++)
			n += pending(p, k)->id >= log->epoch_id;
	}
	return n;
}

/* Orders the prefetch of a batch that was just written, if it is in a turn with reading ahead. */
static void order(struct batch_log *log, const struct written_batch *b, uint32_t number, uint64_t now_ns)
{
	int set = data_sets_guess(&log->sets, b->pass);
	struct batch_written written = {.at_ns = now_ns, .number = number, .known = is_known(log, b, set)};
	uint32_t n;

	if (number == 0) {
		log->in_flight_before = log->in_flight;
		log->in_flight = 0;
		log->epoch_id = b->id;
	}
	n = count_in_flight(log);
	if (n > log->in_flight)
		log->in_flight = n;
	written.in_flight = log->in_flight > log->in_flight_before ? log->in_flight : log->in_flight_before;
	if (!judge_ahead_written(&log->judge, &written))
		return;
	for (uint32_t i = 0; i < b->n; i++) {
		const char *names = file_table_find(&log->sets.table, set, b->indices[i]);

		if (names)
			log->handler.ahead(log->handler.user, b->id, names, log->sets.per_sample[set]);
	}
}

static void on_write(struct batch_log *log, struct worker_pipe *p, const struct index_record *r,
		     const void *bytes)
{
	static uint32_t indices[INDICES_MAX];
	struct written_batch b = {.id = log->next_id + 1};
	uint32_t number;
	int n = indices_parse(bytes, r->bytes, indices, INDICES_MAX, &number);

	if (n <= 0)
		return;
	b.indices = calloc((size_t)n, sizeof(*b.indices));
	if (!b.indices)
		return;
	b.n = (uint32_t)n;
	memcpy(b.indices, indices, (size_t)n * sizeof(*indices));
	b.head_bytes = r->bytes < INDEX_HEAD_BYTES ? r->bytes : INDEX_HEAD_BYTES;
	memcpy(b.head, bytes, b.head_bytes);
	log->next_id++;
	b.pass = p->pass = data_sets_written(&log->sets, p->pass, p->last_number, number);
	p->last_number = number;
	if (p->n_pending == BATCH_LOG_PENDING) { /* nobody reads the pipe, or the watcher missed the reads */
		batch_free(pending(p, 0));
		p->first = (p->first + 1) % BATCH_LOG_PENDING;
		p->n_pending--;
	}
	*pending(p, p->n_pending++) = b;
	order(log, &b, number, r->at_ns);
}

/* ---- delivered batches --------------------------------------------------------------------------------- */

static void learn(struct batch_log *log, const struct data_batch *b, int set)
{
	const char *names = b->names;

	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t n_bytes = data_names_bytes(names, b->per_sample);
		int r = file_table_learn(&log->sets.table, set, b->indices[i], names, n_bytes);

		names += n_bytes;
		if (r != FILE_TABLE_SAME && r != FILE_TABLE_OTHER)
			continue;
		log->n_hits += r == FILE_TABLE_SAME;
		log->n_misses += r == FILE_TABLE_OTHER;
		judge_ahead_prediction(&log->judge, r == FILE_TABLE_SAME);
	}
}

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_S;
}

/* Returns how long a thread slept between two of its records. */
static double asleep_s(const struct index_record *from, const struct index_record *to)
{
	uint64_t wall_ns = to->at_ns - from->at_ns, ran_ns = to->exec_ns - from->exec_ns;
	uint64_t not_asleep_ns = ran_ns + to->queue_ns - from->queue_ns, off_ns = wall_ns;

	if (to->n_sleeps == from->n_sleeps || to->at_ns < from->at_ns)
		return 0;
	/* start_ns is comparable only on the same CPU, because each CPU has its own clock. */
	if (to->cpu == from->cpu && to->start_ns > from->start_ns)
		off_ns = to->start_ns - from->start_ns;
	return not_asleep_ns < off_ns ? fmin(seconds(off_ns - not_asleep_ns), seconds(wall_ns)) : 0;
}

/* Passes the worker's time for a batch to the judge. next: the record of the read of the next batch's
 * indices. */
static void measure(struct batch_log *log, const struct worker_pipe *p, const struct index_record *next)
{
	double tail_s = asleep_s(&p->last, next);
	struct worker_time t = {.blocked_s = p->blocked_s};

	if (p->n_names < 2 || next->at_ns <= p->begin_ns)
		return;
	t.wall_s = seconds(next->at_ns - p->begin_ns);
	t.idle_s = fmax(tail_s - p->blocked_s / (p->n_names - 1), 0);
	judge_ahead_worker(&log->judge, &t);
}

/* Learns which files the batch opened. Returns false if it did not open the same number for each sample. */
static bool learn_batch(struct batch_log *log, struct worker_pipe *p)
{
	struct written_batch *b = &p->now;
	struct data_batch files = {
	    .indices = b->indices, .n = b->n, .per_sample = p->n_names / b->n, .names = p->names};
	uint64_t pass = b->pass;
	uint32_t n_wrong;
	int set;

	if (p->overflow || !p->n_names || p->n_names % b->n != 0 || files.per_sample > BATCH_LOG_PER)
		return false;
	set = data_sets_settle(&log->sets, &pass, &files, &n_wrong);
	if (p->pass == b->pass)
		p->pass = pass;
	log->n_misses += n_wrong;
	if (set < 0)
		judge_ahead_no_order(&log->judge);
	else if (log->sets.per_sample[set] != files.per_sample)
		return false;
	else
		learn(log, &files, set);
	return true;
}

/* Ends the worker's batch, because the worker reads the next one. */
static void finish(struct batch_log *log, struct worker_pipe *p, const struct index_record *next)
{
	struct written_batch *b = &p->now;
	bool fits;

	if (!b->id)
		return;
	log->handler.done(log->handler.user, b->id);
	log->n_batches++;
	log->n_samples += b->n;
	fits = learn_batch(log, p);
	judge_ahead_fit(&log->judge, fits, p->n_names, b->n);
	if (fits)
		measure(log, p, next);
	batch_free(b);
}

static void on_read(struct batch_log *log, struct worker_pipe *p, const struct index_record *r,
		    const void *bytes)
{
	bool found = false;

	finish(log, p, r);
	while (!found && p->n_pending) {
		struct written_batch *b = pending(p, 0);

		found = b->head_bytes == r->bytes && !memcmp(b->head, bytes, b->head_bytes);
		if (found) {
			p->now = *b;
			*b = (struct written_batch){0};
		} else {
			log->handler.done(log->handler.user, b->id);
			batch_free(b);
		}
		p->first = (p->first + 1) % BATCH_LOG_PENDING;
		p->n_pending--;
	}
	p->n_names = p->name_bytes = 0;
	p->overflow = false;
	p->begin_ns = r->at_ns;
	p->blocked_s = 0;
	p->last = *r;
}

static bool ends_with(const char *name, const char *ending)
{
	size_t n = strlen(name), m = strlen(ending);

	return n >= m && !strcmp(name + n - m, ending);
}

/* Returns false for files that Python opens for itself. */
static bool is_data(const char *name)
{
	static const char *const folders[] = {"/proc/", "/sys/", "/dev/", "/etc/"};
	static const char *const endings[] = {".py", ".pyc", ".so"};

	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (!strncmp(name, folders[i], strlen(folders[i])))
			return false;
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++)
		if (ends_with(name, endings[i]))
			return false;
	return name[0] != '\0';
}

static void on_open(struct worker_pipe *p, const struct index_record *r, const char *name)
{
	uint32_t bytes = (uint32_t)strnlen(name, r->bytes) + 1;

	if (!p->now.id || bytes > r->bytes || !is_data(name))
		return;
	if (p->name_bytes + bytes > BATCH_LOG_NAMES || p->n_names >= p->now.n * BATCH_LOG_PER) {
		p->overflow = true;
		return;
	}
	if (p->name_bytes + bytes > p->names_allocated) {
		uint32_t wanted = 2 * p->names_allocated + 16384;
		char *grown = realloc(p->names, wanted);

		if (!grown) {
			p->overflow = true;
			return;
		}
		p->names = grown;
		p->names_allocated = wanted;
	}
	memcpy(p->names + p->name_bytes, name, bytes);
	p->name_bytes += bytes;
	p->n_names++;
	p->blocked_s += asleep_s(&p->last, r);
	p->last = *r;
}

void batch_log_record(struct batch_log *log, const struct index_record *r, const void *bytes)
{
	struct worker_pipe *p = pipe_of(log, r->pipe, r->type == INDEX_WRITE);

	if (!p || log->judge.state == ASSIST_STOPPED)
		return;
	p->used_ns = r->at_ns | 1;
	if (r->type == INDEX_WRITE)
		on_write(log, p, r, bytes);
	else if (r->type == INDEX_READ)
		on_read(log, p, r, bytes);
	else if (r->type == INDEX_OPEN)
		on_open(p, r, bytes);
}

void batch_log_free(struct batch_log *log)
{
	for (size_t i = 0; i < BATCH_LOG_PIPES; i++)
		pipe_clear(&log->pipes[i]);
	file_table_free(&log->sets.table);
}
