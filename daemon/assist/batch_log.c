/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_log.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <stdio.h>

#include "lib/clock.h"

/*
 * Judges whether reading ahead pays off. First it checks how workers spend their time: workers that hardly
 * wait for files, or mostly wait for the trainer, have nothing to gain. Then it alternates turns of batches
 * with and without reading ahead, and compares the job's time per batch, until the difference is clear, or
 * clearly absent. Pure.
 *
 * A batch is written when the trainer has taken another one, the oldest of those in flight. So the times when
 * batches are written show how long the trainer took for each, except at the end of an epoch.
 */

/* A worker's time from reading one batch's indices to reading the next one's. */
struct worker_time {
	double wall_s;
	double blocked_s; /* part of wall_s: asleep between opening files */
	double idle_s;    /* part of wall_s: asleep after the last file, beyond the time to read a file */
};

/* A batch that the trainer's process has written to a worker. */
struct batch_written {
	uint64_t at_ns;
	uint32_t number;    /* number in its epoch, from 0 */
	uint32_t in_flight; /* largest number so far of batches that were written and not yet taken by the
			       trainer */
	bool known;         /* the files of the batch are known */
};

#define KNOWN_SHARE 8 /* at most 1 in this many indices of a batch may be unknown */

#define BATCHES_MIN   12   /* number of batches after which to judge how workers spend their time */
#define WAITS_MIN     0.1  /* minimum share of time for which workers wait for files */
#define IDLE_MAX      0.5  /* maximum share of time for which workers wait for the trainer */
#define TURN_MORE     4    /* minimum number of batches in a turn, in addition to those in flight */
#define CLEAR_TURNS   2    /* turns of each kind that suffice if all turns with take < CLEAR of any without */
#define CLEAR         0.75 /* ratio of the time with reading ahead to the time without */
#define TRY_MIN       8    /* number of turns of each kind before a smaller difference counts */
#define TRY_MAX       32   /* number of turns of each kind after which the judge must decide */
#define GAIN_MAX      0.97 /* reading ahead continues up to this ratio of its time to the time without */
#define SURE          2.5  /* standard errors */
#define CUT_MAX       64 /* maximum number of consecutive turns without a measurement; then the judge rests */
#define UNKNOWN_MAX   64 /* number of consecutive batches with unknown files before it learns again */
#define WATCH         16 /* number of turns between checks of whether reading ahead still helps */
#define SPENT         0.97
#define RESIDENT_MIN  128 /* files */
#define RESIDENT_MOST 0.9
#define RIGHT_MIN     64
#define WRONG_SHARE   10 /* 1 in this many predictions may be wrong */
#define ODD_MAX       32
#define REST_MIN_NS   (60 * NS_PER_S)
#define REST_MAX_NS   (3600 * NS_PER_S)

static void mean_add(struct judge_mean *m, double value)
{
	m->least = m->n ? fmin(m->least, value) : value;
	m->most = m->n ? fmax(m->most, value) : value;
	m->n++;
	m->sum += value;
	m->squares += value * value;
}

static double mean(const struct judge_mean *m)
{
	return m->sum / m->n;
}

/* Returns the squared standard error of the mean. */
static double error_squared(const struct judge_mean *m)
{
	double variance = m->squares / m->n - mean(m) * mean(m);

	return fmax(variance, 0) / (m->n - 1);
}

/* ---- turns --------------------------------------------------------------------------------------------- */

static void turn_begin(struct judge_ahead *j, bool whole)
{
	j->turn.id++;
	j->turn.n = 0;
	j->turn.n_whole += whole;
}

static void forget_slots(struct judge_ahead *j)
{
	memset(j->slots, 0, sizeof(j->slots));
	j->measured.from_ns = 0;
}

static void try_anew(struct judge_ahead *j)
{
	j->state = ASSIST_TRIES;
	j->n_cut = 0;
	j->counted = false;
	memset(&j->with, 0, sizeof(j->with));
	memset(&j->without, 0, sizeof(j->without));
	memset(&j->since, 0, sizeof(j->since));
	forget_slots(j);
	turn_begin(j, false);
}

static void rest(struct judge_ahead *j)
{
	j->state = ASSIST_RESTS;
	forget_slots(j);
}

/* Returns true if this turn reads ahead. The pattern is on, off, off, on, so that slow changes favour
 * neither. */
static bool turn_is_with(const struct judge_ahead *j)
{
	return j->state == ASSIST_HELPS || (j->turn.n_whole + 1) / 2 % 2 == 0;
}

static void verdict(struct judge_ahead *j)
{
	uint32_t n = j->with.n < j->without.n ? j->with.n : j->without.n;
	double gain, sure;
	bool clear;

	if (n < CLEAR_TURNS)
		return;
	clear = j->with.most < CLEAR * j->without.least;
	gain = mean(&j->without) - mean(&j->with);
	sure = SURE * sqrt(error_squared(&j->with) + error_squared(&j->without));
	if (clear || (n >= TRY_MIN && mean(&j->with) < GAIN_MAX * mean(&j->without) && gain > sure))
		j->state = ASSIST_HELPS;
	else if (n >= TRY_MAX || (n >= TRY_MIN && -gain > sure))
		rest(j);
	else
		return;
	snprintf(j->why, sizeof(j->why), "a batch takes %.2f ms without prefetch, %.2f ms with%s",
		 1e3 * mean(&j->without), 1e3 * mean(&j->with),
		 j->state == ASSIST_RESTS ? ": not worth it" : "");
}

static double seconds(uint64_t ns)
{
	return (double)ns / (double)NS_PER_S;
}

/* Checks whether reading ahead still helps. */
static void watch(struct judge_ahead *j, double seconds)
{
	mean_add(&j->since, seconds);
	if (j->since.n < WATCH)
		return;
	if (mean(&j->since) > SPENT * mean(&j->without))
		try_anew(j);
	memset(&j->since, 0, sizeof(j->since));
}

/* Records that the trainer took a batch. The first batches of a turn, half as many as are in flight, are not
 * measured: batches of the previous turn are made at the same time. */
static void taken(struct judge_ahead *j, const struct judge_slot *s, uint32_t in_flight, uint32_t length,
		  uint64_t now_ns)
{
	double seconds;

	if (s->turn != j->measured.turn) {
		j->measured.turn = s->turn;
		j->measured.from_ns = 0;
	}
	if (s->at < in_flight / 2 || now_ns == 0)
		return;
	if (!j->measured.from_ns) {
		j->measured.from_ns = now_ns;
		j->measured.from = s->at;
		return;
	}
	if (s->at + 1 != length || now_ns <= j->measured.from_ns)
		return;
	seconds = (double)(now_ns - j->measured.from_ns) / (double)NS_PER_S / (s->at - j->measured.from);
	j->n_cut = 0;
	if (j->state == ASSIST_HELPS) {
		watch(j, seconds);
		return;
	}
	mean_add(s->ordered ? &j->with : &j->without, seconds);
	verdict(j);
}

/* Drops a turn in which an epoch ends, or a batch's files are not known. */
static void turn_cut(struct judge_ahead *j)
{
	if (!j->turn.n)
		return;
	turn_begin(j, false);
	if (j->state != ASSIST_TRIES || ++j->n_cut < CUT_MAX)
		return;
	rest(j);
	snprintf(j->why, sizeof(j->why), "its epochs are too short to measure whether prefetch helps");
}

/* Records a batch whose files are unknown. After many of them, ends the trial: the job iterates over
 * another data set. */
static void unknown(struct judge_ahead *j)
{
	turn_cut(j);
	if (++j->n_unknown < UNKNOWN_MAX || (j->state != ASSIST_TRIES && j->state != ASSIST_HELPS))
		return;
	j->state = ASSIST_LEARNS;
	forget_slots(j);
	snprintf(j->why, sizeof(j->why), "the files of its sample indices are not known yet");
}

/* Returns true if the batch that was just written should be read ahead. */
static bool judge_ahead_written(struct judge_ahead *j, const struct batch_written *b)
{
	uint32_t in_flight = b->in_flight < JUDGE_BATCHES / 4 ? b->in_flight : JUDGE_BATCHES / 4;
	uint32_t length = in_flight + (in_flight / 2 > TURN_MORE ? in_flight / 2 : TURN_MORE);
	struct judge_slot *s;

	if (b->known && j->state == ASSIST_LEARNS)
		try_anew(j);
	if (j->state != ASSIST_TRIES && j->state != ASSIST_HELPS)
		return false;
	if (b->number == 0) {
		forget_slots(j);
		turn_cut(j);
	}
	if (b->number >= in_flight) {
		s = &j->slots[(b->number - in_flight) % JUDGE_BATCHES];
		if (s->valid && s->number == b->number - in_flight)
			taken(j, s, in_flight, length, b->at_ns);
	}
	if (j->state != ASSIST_TRIES && j->state != ASSIST_HELPS)
		return false;
	s = &j->slots[b->number % JUDGE_BATCHES];
	*s = (struct judge_slot){.number = b->number};
	if (!b->known) {
		unknown(j);
		return false;
	}
	j->n_unknown = 0;
	if (j->turn.n >= length)
		turn_begin(j, true);
	s->valid = true;
	s->turn = j->turn.id;
	s->at = j->turn.n++;
	s->ordered = turn_is_with(j);
	return s->ordered;
}

/* ---- input from workers and files ---------------------------------------------------------------------- */

static void judge_ahead_worker(struct judge_ahead *j, const struct worker_time *t)
{
	bool gains;

	if (j->state != ASSIST_LOOKS)
		return;
	j->n_looked++;
	j->wall_s += t->wall_s;
	j->blocked_s += t->blocked_s;
	j->idle_s += t->idle_s;
	if (j->n_looked < BATCHES_MIN)
		return;
	if (j->idle_s > IDLE_MAX * j->wall_s) {
		rest(j);
		snprintf(j->why, sizeof(j->why),
			 "its workers wait for the trainer %.0f %% of the time: there is nothing to gain",
			 100 * j->idle_s / j->wall_s);
		return;
	}
	j->state = ASSIST_LEARNS;
	gains = j->blocked_s >= WAITS_MIN * j->wall_s;
	if (!gains || j->observe)
		rest(j);
	snprintf(j->why, sizeof(j->why), "its workers wait for files %.0f %% of the time%s",
		 100 * j->blocked_s / j->wall_s,
		 !gains       ? ": there is nothing to gain"
		 : j->observe ? ": dieseld would try prefetch, but only observes"
			      : "");
}

/* Records how many files so far had to be read, and how many were already in memory. */
static void judge_ahead_files(struct judge_ahead *j, uint64_t n_read, uint64_t n_resident)
{
	uint64_t n, resident;

	if (!j->counted) {
		j->counted = true;
		j->n_read = n_read;
		j->n_resident = n_resident;
	}
	resident = n_resident - j->n_resident;
	n = n_read - j->n_read + resident;
	if (n < RESIDENT_MIN)
		return;
	j->counted = false;
	if ((j->state != ASSIST_TRIES && j->state != ASSIST_HELPS) ||
	    (double)resident < RESIDENT_MOST * (double)n)
		return;
	rest(j);
	snprintf(j->why, sizeof(j->why), "its files are in memory: there is nothing to gain");
}

/* Records whether a known index opened the same files again. */
static void judge_ahead_prediction(struct judge_ahead *j, bool same)
{
	if (same)
		j->n_same++;
	else
		j->n_other++;
	if (j->n_same + j->n_other < RIGHT_MIN)
		return;
	if (j->n_other > (j->n_same + j->n_other) / WRONG_SHARE) {
		j->state = ASSIST_STOPPED;
		snprintf(j->why, sizeof(j->why),
			 "the order of files cannot be predicted: the same sample index opens different "
			 "files at different times (%u of %u did)",
			 j->n_other, j->n_same + j->n_other);
	}
	j->n_same = j->n_other = 0;
}

/* Stops for good, because in too many passes an index opened other files than before. */
static void judge_ahead_no_order(struct judge_ahead *j)
{
	j->state = ASSIST_STOPPED;
	snprintf(j->why, sizeof(j->why),
		 "the order of files cannot be predicted: the same sample index opens different files at "
		 "different times");
}

/* Records how many files a batch of n_indices opened. fits: each sample opened the same number. */
static void judge_ahead_fit(struct judge_ahead *j, bool fits, uint32_t n_files, uint32_t n_indices)
{
	j->n_odd = fits ? 0 : j->n_odd + 1;
	if (j->n_odd < ODD_MAX)
		return;
	j->state = ASSIST_STOPPED;
	snprintf(j->why, sizeof(j->why),
		 n_files
		     ? "its batches open files (%u for %u samples), but the number of files per sample varies"
		     : "it does not open one file per sample (%u files opened for %u samples)",
		 n_files, n_indices);
}

/* Ends a job's rest after a while, because the job may have changed. A job that rests is not watched. */
static void judge_ahead_rest(struct judge_ahead *j, uint64_t now_ns)
{
	if (j->state == ASSIST_HELPS)
		j->rest_ns = 0;
	if (j->state != ASSIST_RESTS) {
		j->rest_until_ns = 0;
	} else if (!j->rest_until_ns) {
		j->rest_ns = j->rest_ns ? 2 * j->rest_ns : REST_MIN_NS;
		if (j->rest_ns > REST_MAX_NS)
			j->rest_ns = REST_MAX_NS;
		j->rest_until_ns = now_ns + j->rest_ns;
	} else if (now_ns >= j->rest_until_ns) {
		j->state = ASSIST_LOOKS;
		j->rest_until_ns = 0; /* the job may rest again before the next turn */
		j->n_looked = 0;
		j->wall_s = j->blocked_s = j->idle_s = 0;
	}
}

/* ---- batches ------------------------------------------------------------------------------------------- */

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
		n += data_sets_find(&log->sets, set, b->indices[i]) != NULL;
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
		const char *names = data_sets_find(&log->sets, set, b->indices[i]);

		if (names)
			log->handler.ahead(log->handler.user, b->id, names, log->sets.sets[set].per_sample);
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
		int r = data_sets_learn(&log->sets, set, b->indices[i], &names);

		if (r != DATA_SAME && r != DATA_OTHER)
			continue;
		log->figures.hits += r == DATA_SAME;
		log->figures.misses += r == DATA_OTHER;
		judge_ahead_prediction(&log->judge, r == DATA_SAME);
	}
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
	log->figures.misses += n_wrong;
	if (set < 0)
		judge_ahead_no_order(&log->judge);
	else if (log->sets.sets[set].per_sample != files.per_sample)
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
	log->figures.batches++;
	log->figures.samples += b->n;
	fits = learn_batch(log, p);
	judge_ahead_fit(&log->judge, fits, p->n_names, b->n);
	log->figures.known = log->sets.n_known;
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

void batch_log_turn(struct batch_log *log, uint64_t now_ns, uint64_t n_read, uint64_t n_resident)
{
	judge_ahead_files(&log->judge, n_read, n_resident);
	judge_ahead_rest(&log->judge, now_ns);
}

void batch_log_free(struct batch_log *log)
{
	for (size_t i = 0; i < BATCH_LOG_PIPES; i++)
		pipe_clear(&log->pipes[i]);
	data_sets_free(&log->sets);
}
