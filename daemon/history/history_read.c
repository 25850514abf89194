/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what history_file.c wrote. Nothing in the file is trusted: it may have been edited or damaged. */
#include "history_layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int history_file_get_state(struct history_file *f, const char *key, void **ret_data, size_t *ret_size,
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

int history_file_each_entry(struct history_file *f, uint32_t max,
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

int history_file_each_round(struct history_file *f,
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
