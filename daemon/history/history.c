/* SPDX-License-Identifier: Apache-2.0 */
/* The queue in front of the file, and the thread behind it: a disk that hangs must not hold up serving. */
#include "history_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "history_layout.h"
#include "lib/clock.h"
#include "lib/file_safety.h"

/* Reads what history_file.c wrote. Nothing in the file is trusted: it may have been edited or damaged. */

static int history_file_get_state(struct history_file *f, const char *key, void **ret_data, size_t *ret_size,
				  struct error *err)
{
	struct sql_statement *st;
	const void *data;
	void *copy;
	size_t size;
	int r = sql_prepare(f->sql, "SELECT value FROM state WHERE key = ?", &st, err);

	if (r < 0)
		return r;
	sql_bind_text(st, 1, key);
	r = sql_step(st, err);
	if (r == 1) {
		data = sql_bytes(st, 0, &size);
		copy = malloc(size + 1);
		if (copy) {
			memcpy(copy, data ? data : "", size);
			((char *)copy)[size] = '\0'; /* for callers that keep texts */
			*ret_data = copy;
			*ret_size = size;
		}
		r = copy ? 0 : error_errno(err, -ENOMEM, "%s", f->path);
	} else if (r == 0) {
		r = -ENOENT;
	}
	sql_statement_free(st);
	return r;
}

static int find_name(const char *text, int n, const char *(*name)(int))
{
	for (int i = 0; i < n; i++)
		if (strcmp(text, name(i)) == 0)
			return i;
	return -1;
}

static const char *rule_name(int i)
{
	return tuner_rule_name((enum tuner_rule)i);
}

static const char *outcome_name(int i)
{
	return tuner_outcome_name((enum tuner_outcome)i);
}

static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from);
}

/* Returns false for a row with names that this program does not know. */
static bool read_entry(struct sql_statement *st, struct history_entry *e)
{
	struct tuner_decision *d = &e->decision;
	struct tuner_verdict *v = &e->verdict;
	int rule = find_name(sql_text(st, 4), TUNER_RULE_IDLE + 1, rule_name), outcome;
	enum tuner_knob knob;

	*e = (struct history_entry){.at_ms = sql_integer(st, 0),
				    .applied = sql_integer(st, 7) != 0,
				    .uid = (uint32_t)sql_integer(st, 20)};
	if (rule < 0 || tuner_knob_parse(sql_text(st, 3), &knob) < 0)
		return false;
	copy_text(e->job_name, sizeof(e->job_name), sql_text(st, 2));
	*d = (struct tuner_decision){.id = sql_integer(st, 14),
				     .job = sql_integer(st, 1),
				     .knob = knob,
				     .rule = (enum tuner_rule)rule,
				     .old_value = sql_integer(st, 5),
				     .new_value = sql_integer(st, 6),
				     .rate_before = sql_real(st, 8),
				     .rate_expected = sql_real(st, 9),
				     .wait_before = sql_real(st, 10),
				     .wait_expected = sql_real(st, 11)};
	copy_text(d->reason, sizeof(d->reason), sql_text(st, 12));
	if (!sql_is_null(st, 13))
		e->sample = strdup(sql_text(st, 13));
	outcome = sql_is_null(st, 15) ? -1 : find_name(sql_text(st, 15), TUNER_NOT_APPLIED + 1, outcome_name);
	if (outcome < 0)
		return true;
	e->has_verdict = true;
	e->verdict_ms = sql_integer(st, 16);
	*v = (struct tuner_verdict){.decision = d->id,
				    .job = d->job,
				    .knob = d->knob,
				    .outcome = (enum tuner_outcome)outcome,
				    .rate_before = d->rate_before,
				    .wait_before = d->wait_before,
				    .rate_after = sql_real(st, 17),
				    .wait_after = sql_real(st, 18)};
	copy_text(v->text, sizeof(v->text), sql_text(st, 19));
	return true;
}

static int history_file_each_entry(struct history_file *f, uint32_t max,
				   void (*visit)(void *user, struct history_entry *entry), void *user,
				   struct error *err)
{
	static const char query[] =
	    "SELECT * FROM (SELECT at_ms, job, job_name, knob, rule, old_value, new_value, applied, "
	    "rate_before,"
	    " rate_expected, wait_before, wait_expected, reason, sample, decision, outcome, outcome_ms,"
	    " rate_after, wait_after, outcome_text, uid, id FROM decisions ORDER BY id DESC LIMIT ?) ORDER "
	    "BY id";
	struct sql_statement *st;
	struct history_entry entry;
	int r = sql_prepare(f->sql, query, &st, err);

	if (r < 0)
		return r;
	sql_bind_integer(st, 1, max);
	while ((r = sql_step(st, err)) == SQL_ROW)
		if (read_entry(st, &entry))
			visit(user, &entry);
	sql_statement_free(st);
	return r;
}

struct round_reader {
	struct tuner_config config;
	struct stall_node node;
	struct stall_sample samples[TUNER_MAX_JOBS];
	struct history_round round;
	uint64_t ended;
};

static bool read_end(struct sql_statement *st, struct round_reader *reader)
{
	size_t size;
	const void *data = sql_bytes(st, 3, &size);

	if (size != sizeof(reader->ended))
		return false;
	memcpy(&reader->ended, data, size);
	reader->round = (struct history_round){.at_ms = sql_integer(st, 0), .ended = &reader->ended};
	return true;
}

/* Returns false if the row is not a round of this layout. */
static bool read_round(struct sql_statement *st, struct round_reader *reader)
{
	size_t config_size, size, head = sizeof(uint64_t) + sizeof(struct stall_node);
	const void *config = sql_bytes(st, 2, &config_size);
	const char *data = sql_bytes(st, 3, &size);
	struct history_round *round = &reader->round;

	if (sql_integer(st, 1) == HISTORY_END)
		return read_end(st, reader);
	if (!config || sql_integer(st, 1) != HISTORY_LAYOUT || config_size != sizeof(reader->config) ||
	    size < head || (size - head) % sizeof(struct stall_sample) != 0 ||
	    (size - head) / sizeof(struct stall_sample) > TUNER_MAX_JOBS)
		return false;
	*round = (struct history_round){.at_ms = sql_integer(st, 0),
					.config = &reader->config,
					.node = &reader->node,
					.samples = reader->samples,
					.n_samples = (size - head) / sizeof(struct stall_sample)};
	memcpy(&reader->config, config, config_size);
	memcpy(&round->now_ns, data, sizeof(uint64_t));
	memcpy(&reader->node, data + sizeof(uint64_t), sizeof(reader->node));
	memcpy(reader->samples, data + head, size - head);
	return reader->config.n_pins <= TUNER_MAX_PINS;
}

static int history_file_each_round(struct history_file *f,
				   int (*visit)(void *user, const struct history_round *round), void *user,
				   uint64_t *ret_n_foreign, struct error *err)
{
	static const char query[] =
	    "SELECT rounds.at_ms, rounds.layout, configs.data, rounds.data FROM rounds"
	    " LEFT JOIN configs ON configs.id = rounds.config ORDER BY rounds.id";
	struct round_reader *reader = malloc(sizeof(*reader));
	struct sql_statement *st;
	uint64_t n_foreign = 0;
	int r;

	if (!reader)
		return error_errno(err, -ENOMEM, "%s", f->path);
	r = sql_prepare(f->sql, query, &st, err);
	if (r < 0) {
		free(reader);
		return r;
	}
	while ((r = sql_step(st, err)) == SQL_ROW) {
		if (!read_round(st, reader)) {
			n_foreign++;
			continue;
		}
		r = visit(user, &reader->round);
		if (r != 0)
			break;
	}
	sql_statement_free(st);
	free(reader);
	if (r == 0)
		*ret_n_foreign = n_foreign;
	return r;
}

/* Records are written in gulps, and at once when a decision is among them. */
#define GULP_S 5
/* After a failure, records are not tried again for so long. */
#define RETRY_NS   (10 * NS_PER_S)
#define TRIM_EVERY 64 /* gulps */

/* Names beside it are SQLite's, which follows links, and our own. */
static int check_folder(const char *path, struct error *err)
{
	char real[PATH_MAX], at[PATH_MAX];
	struct stat st;
	int r = file_safety_around(path, real, at, &st);

	if (r < 0)
		return error_errno(err, r, "cannot open %s", path);
	if (r == FILE_SAFE && lstat(path, &st) == 0 && file_safety(&st) != FILE_SAFE) {
		snprintf(at, sizeof(at), "%s", path);
		r = FILE_OF_OTHERS;
	}
	return r == FILE_SAFE
		   ? 0
		   : error_set(err, -EPERM,
			       "the history %s is not kept: others can change %s (chown, chmod go-w): name "
			       "another file",
			       path, at);
}

static int lock_history(struct history *h, struct error *err)
{
	char path[4096];

	snprintf(path, sizeof(path), "%s.lock", h->path);
	h->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (h->lock_fd < 0)
		return error_errno(err, -errno, "cannot make %s", path);
	if (flock(h->lock_fd, LOCK_EX | LOCK_NB) < 0)
		return error_set(err, -EBUSY,
				 "another dieseld keeps its history in %s: name another --history", h->path);
	return 0;
}

/* Returns true if the file was once a history. Only then may it be renamed: a wrong --history must not cost
 * somebody a file. The magic is SQLite's, the application's number is at byte 68, big endian. */
static bool was_history(const char *path)
{
	static const char magic[16] = "SQLite format 3";
	static const unsigned char application[4] = {'D', 'L', 'H', '1'};
	char head[72] = "";
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	bool is;

	if (fd < 0)
		return false;
	is = pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	     memcmp(head, magic, sizeof(magic)) == 0 &&
	     memcmp(head + 68, application, sizeof(application)) == 0;
	close(fd);
	return is;
}

/* Sets a damaged history aside, and removes the files that SQLite keeps beside it: its journal must not be
 * applied to the new file. */
static int set_aside(const char *path, char notice[256], struct error *err)
{
	static const char *const beside[] = {"-wal", "-shm"};
	char damaged[4096], name[4096];

	if (!was_history(path))
		return error_set(err, -EEXIST, "%s is not a history of dieseld: name another file", path);
	snprintf(damaged, sizeof(damaged), "%s.damaged", path);
	if (access(damaged, F_OK) == 0)
		return error_set(
		    err, -EBADMSG,
		    "the history %s is damaged, and so was one before it (%s): look into both, then "
		    "remove them",
		    path, damaged);
	if (rename(path, damaged) < 0)
		return error_errno(err, -errno, "the history %s is damaged and cannot be renamed", path);
	for (size_t i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%s%s", path, beside[i]);
		(void)unlink(name);
	}
	snprintf(notice, 256,
		 "the history %s is damaged: it is kept as %s.damaged, and a new one begins without earlier "
		 "settings",
		 path, path);
	return 0;
}

static struct history *new_history(const struct history_options *options)
{
	struct history *h = calloc(1, sizeof(*h));
	pthread_condattr_t attributes;

	if (!h || !(h->path = strdup(options->path))) {
		free(h);
		return NULL;
	}
	h->options = *options;
	h->options.path = h->path;
	h->lock_fd = -EBADF;
	h->last = &h->first;
	pthread_mutex_init(&h->mutex, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&h->wake, &attributes);
	pthread_condattr_destroy(&attributes);
	return h;
}

int history_open(const struct history_options *options, struct history **ret, char notice[256],
		 struct error *err)
{
	struct history *h = new_history(options);
	int r;

	notice[0] = '\0';
	if (!h)
		return error_errno(err, -ENOMEM, "%s", options->path);
	r = check_folder(h->path, err);
	if (r == 0)
		r = lock_history(h, err);
	if (r == 0)
		r = history_file_open(h->path, options->max_bytes, &h->file, err);
	if (r == -EBADMSG) {
		r = set_aside(h->path, notice, err);
		if (r == 0)
			r = history_file_open(h->path, options->max_bytes, &h->file, err);
	}
	if (r < 0) {
		history_close(h);
		return r;
	}
	*ret = h;
	return 0;
}

int history_open_read(const char *path, struct history **ret, struct error *err)
{
	const struct history_options options = {.path = path};
	struct history *h = new_history(&options);
	int r;

	if (!h)
		return error_errno(err, -ENOMEM, "%s", path);
	r = history_file_open(path, 0, &h->file, err);
	if (r < 0) {
		history_close(h);
		return r;
	}
	*ret = h;
	return 0;
}

int history_load_state(struct history *h, const char *key, void **ret_data, size_t *ret_size,
		       struct error *err)
{
	return history_file_get_state(h->file, key, ret_data, ret_size, err);
}

int history_load_entries(struct history *h, uint32_t max,
			 void (*visit)(void *user, struct history_entry *entry), void *user,
			 struct error *err)
{
	return history_file_each_entry(h->file, max, visit, user, err);
}

int history_load_rounds(struct history *h, int (*visit)(void *user, const struct history_round *round),
			void *user, uint64_t *ret_n_foreign, struct error *err)
{
	return history_file_each_round(h->file, visit, user, ret_n_foreign, err);
}

static int write_record(struct history_file *f, struct record *q, struct error *err)
{
	switch (q->kind) {
	case RECORD_ENTRY:
		q->entry.sample = q->size ? q->data : NULL;
		return history_file_put_entry(f, &q->entry, err);
	case RECORD_VERDICT: return history_file_put_verdict(f, q->at_ms, &q->verdict, err);
	case RECORD_POINT: return history_file_put_point(f, &q->point, err);
	case RECORD_ROUND: return history_file_put_round(f, q->at_ms, &q->config, q->data, q->size, err);
	case RECORD_END: return history_file_put_end(f, q->at_ms, q->job, err);
	case RECORD_STATE: return history_file_put_state(f, q->key, q->data, q->size, err);
	}
	return -EINVAL;
}

static int write_gulp(struct history *h, struct record *first, bool trim, struct error *err)
{
	uint64_t now_ms = clock_realtime_ns() / NS_PER_MS, age_ms = h->options.max_age_s * 1000;
	int r = history_file_begin(h->file, err);

	for (struct record *q = first; q && r == 0; q = q->next)
		r = write_record(h->file, q, err);
	if (r == 0 && trim)
		r = history_file_trim(h->file, now_ms > age_ms ? now_ms - age_ms : 0, err);
	if (r == 0)
		r = history_file_commit(h->file, err);
	if (r < 0)
		history_file_rollback(h->file);
	return r;
}

/* Makes room in a full file, so that a write that failed for want of it may succeed. */
static int make_room(struct history *h, struct error *err)
{
	int r = history_file_begin(h->file, err);

	if (r == 0)
		r = history_file_trim(h->file, 0, err);
	if (r == 0)
		r = history_file_commit(h->file, err);
	if (r < 0)
		history_file_rollback(h->file);
	return r;
}

static int reopen(struct history *h, struct error *err)
{
	char notice[256];
	int r = history_file_open(h->path, h->options.max_bytes, &h->file, err);

	if (r != -EBADMSG)
		return r;
	r = set_aside(h->path, notice, err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&h->mutex);
	memcpy(h->status.aside, notice, sizeof(notice));
	pthread_mutex_unlock(&h->mutex);
	return history_file_open(h->path, h->options.max_bytes, &h->file, err);
}

struct writer {
	uint64_t retry_ns, n_gulps;
};

/* The records are gone afterwards, written or not. */
static void handle_gulp(struct history *h, struct writer *w, struct record *first, uint32_t n)
{
	struct error err = ERROR_INIT;
	uint64_t now = clock_monotonic_ns();
	int r = 0;

	if (now < w->retry_ns) {
		r = -EAGAIN;
	} else {
		if (!h->file)
			r = reopen(h, &err);
		if (r == 0)
			r = write_gulp(h, first, w->n_gulps++ % TRIM_EVERY == 0, &err);
		if (r == -ENOSPC && make_room(h, &(struct error){.code = 0}) == 0)
			r = write_gulp(h, first, false, &err);
		if (r == -EBADMSG) {
			history_file_close(h->file);
			h->file = NULL;
		}
		if (r < 0)
			w->retry_ns = now + RETRY_NS;
	}
	pthread_mutex_lock(&h->mutex);
	if (r == 0) {
		h->status.n_written += n;
		h->status.error[0] = '\0';
		h->status.bytes = history_file_bytes(h->file);
	} else {
		h->status.n_dropped += n;
		if (err.text[0])
			snprintf(h->status.error, sizeof(h->status.error), "%s", err.text);
	}
	pthread_mutex_unlock(&h->mutex);
	while (first) {
		struct record *next = first->next;

		free(first);
		first = next;
	}
}

static void wait_for_records(struct history *h)
{
	struct timespec until;

	while (!h->first && !h->closing)
		pthread_cond_wait(&h->wake, &h->mutex);
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += GULP_S;
	while (!h->urgent && !h->closing)
		if (pthread_cond_timedwait(&h->wake, &h->mutex, &until) == ETIMEDOUT)
			return;
}

static void *writer_main(void *user)
{
	struct history *h = user;
	struct writer w = {0};
	bool done = false;

	while (!done) {
		struct record *first;
		uint32_t n;

		pthread_mutex_lock(&h->mutex);
		wait_for_records(h);
		first = h->first;
		n = h->n_queued;
		h->first = NULL;
		h->last = &h->first;
		h->n_queued = 0;
		h->urgent = false;
		done = h->closing;
		pthread_mutex_unlock(&h->mutex);
		if (first)
			handle_gulp(h, &w, first, n);
	}
	history_file_close(h->file);
	h->file = NULL;
	pthread_mutex_lock(&h->mutex);
	h->done = true;
	pthread_cond_broadcast(&h->wake);
	pthread_mutex_unlock(&h->mutex);
	return NULL;
}

int history_start(struct history *h, struct error *err)
{
	int code = pthread_create(&h->thread, NULL, writer_main, h);

	if (code)
		return error_errno(err, -code, "cannot start the thread that writes %s", h->path);
	h->started = true;
	return 0;
}
