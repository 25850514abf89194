/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dieselctl replay: the decisions of this version's tuner on samples that dieseld recorded, or on a job that
 * diesel-analyze recorded. Equal files give equal decisions. The samples stay unchanged: knobs in them do not
 * follow the replay's decisions.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ctl_daemon.h"
#include "history/history.h"
#include "lib/cleanup.h"
#include "lib/text.h"
#include "lib/units.h"
#include "recorded/recorded.h"

struct policy_replay {
	struct tuner_state *state;
	struct tuner_result *result;
	bool json;
	uint64_t n_rounds, n_decisions, n_refused;
	uint64_t last_ms;
};

/* Prints one JSON object per line, so a long recording need not fit in memory. */
static void print_json(uint64_t at_ms, const struct tuner_decision *d)
{
	json_t *line =
	    json_pack("{s:f, s:I, s:I, s:s, s:s, s:I, s:I, s:s, s:o, s:o, s:o, s:o}", "time",
		      (double)at_ms / 1e3, "id", (json_int_t)d->id, "job", (json_int_t)d->job, "knob",
		      tuner_knob_name(d->knob), "rule", tuner_rule_name(d->rule), "from",
		      (json_int_t)d->old_value, "to", (json_int_t)d->new_value, "reason", d->reason,
		      "rate_before", ctl_known(d->rate_before), "rate_expected", ctl_known(d->rate_expected),
		      "wait_before", ctl_known(d->wait_before), "wait_expected", ctl_known(d->wait_expected));
	_cleanup_(freep) char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;

	json_decref(line);
	text_put_json(stdout, text ? text : "{}");
}

static void print_text(uint64_t at_ms, const struct tuner_decision *d)
{
	const char *knob = tuner_knob_name(d->knob);
	time_t t = (time_t)(at_ms / 1000);
	char when[24], from[24], to[24], reason[sizeof(d->reason) * 4];
	struct tm tm;

	localtime_r(&t, &tm);
	strftime(when, sizeof(when), "%m-%d %H:%M:%S", &tm);
	printf("%s  job %llu  %s %s -> %s (%s)\n                why: %s\n", when, (unsigned long long)d->job,
	       knob, ctl_knob(from, knob, (double)d->old_value), ctl_knob(to, knob, (double)d->new_value),
	       tuner_rule_name(d->rule), text_line(reason, sizeof(reason), d->reason));
}

static int on_round(void *user, const struct history_round *round)
{
	struct policy_replay *p = user;

	if (round->ended) {
		if (*round->ended)
			tuner_forget(p->state, *round->ended);
		else
			memset(p->state, 0, tuner_state_bytes());
		return 0;
	}
	tuner_decide(round->config, p->state, round->node, round->samples, round->n_samples, round->now_ns,
		     p->result);
	p->n_rounds += round->n_samples > 0;
	p->n_refused += p->result->n_samples_refused;
	for (size_t i = 0; i < p->result->n_decisions; i++) {
		if (p->json)
			print_json(round->at_ms, &p->result->decisions[i]);
		else
			print_text(round->at_ms, &p->result->decisions[i]);
		p->n_decisions++;
	}
	return 0;
}

static void print_end(const struct policy_replay *p, uint64_t n_foreign)
{
	if (p->json)
		return;
	printf("%llu second%s of samples, %llu decision%s, %llu sample%s refused",
	       (unsigned long long)p->n_rounds, units_plural(p->n_rounds), (unsigned long long)p->n_decisions,
	       units_plural(p->n_decisions), (unsigned long long)p->n_refused, units_plural(p->n_refused));
	if (n_foreign)
		printf(", %llu second%s of another version", (unsigned long long)n_foreign,
		       units_plural(n_foreign));
	printf("\n");
}

/* Replays a recording of diesel-analyze. Called for any file that is not a history. */
static int replay_recording(const struct option_verb *verb, const char *path, struct policy_replay *p)
{
	struct recorded_info info = {0};
	struct error err = ERROR_INIT;
	int r = recorded_rounds(path, on_round, p, &info, &err);

	if (r == -EBADMSG)
		error_set(&err, r,
			  "%s is neither a history (dieseld --history) nor a recording (diesel-analyze "
			  "record), or it is damaged",
			  path);
	if (r == 0 && (info.insufficient[0] || !p->n_rounds))
		r = error_set(&err, -ENODATA, "%s%s is too short to decide on: %s", path,
			      info.cut_off ? " was cut off, and" : "",
			      info.insufficient[0] ? info.insufficient : "less than a second of training");
	if (r < 0)
		return ctl_failed(verb, &err);
	if (info.cut_off) {
		error_set(&err, 0, "%s was cut off: the replay ends at that point", path);
		ctl_warn(verb, err.text);
	}
	print_end(p, 0);
	return ctl_finish(verb);
}

static int replay(const struct option_verb *verb, const char *path, struct policy_replay *p)
{
	struct history *history = NULL;
	struct error err = ERROR_INIT;
	uint64_t n_foreign = 0;
	int r = history_open_read(path, &history, &err);

	if (r == -EEXIST || r == -EBADMSG)
		return replay_recording(verb, path, p);
	if (r == 0)
		r = history_load_rounds(history, on_round, p, &n_foreign, &err);
	history_close(history);
	if (r < 0)
		return ctl_failed(verb, &err);
	if (p->n_rounds == 0 && n_foreign > 0)
		return ctl_warn(
		    verb,
		    "another version of dieseld recorded its samples: use the dieselctl of that version");
	print_end(p, n_foreign);
	return ctl_finish(verb);
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct policy_replay p = {0};
	int r;

	if (!ctl_options(verb, argc, argv, &p, &r))
		return r;
	if (argc - optind != 1)
		return ctl_usage(verb, "expected one file: a history or a recording");
	p.state = calloc(1, tuner_state_bytes());
	p.result = calloc(1, sizeof(*p.result));
	r = p.state && p.result ? replay(verb, argv[optind], &p) : ctl_warn(verb, "out of memory");
	free(p.state);
	free(p.result);
	return r;
}

#define AT(member) .at = offsetof(struct policy_replay, member)

static const struct option_row replay_rows[] = {
    {"json", option_set_flag, AT(json), .help = "one JSON object a line"},
};

#undef AT

const struct option_verb ctl_replay = {
    .name = "replay",
    .arguments = "FILE",
    .summary = "Show what the tuner would decide on recorded samples",
    .help = "Prints each decision that this version's tuner would have made, and why. FILE is a history of\n"
	    "dieseld --history, or a recording of diesel-analyze record. From a recording, replay makes one "
	    "sample per\n"
	    "second (waits, speed, workers), and decides only on client workers. The samples stay unchanged: "
	    "their\n"
	    "knobs do not follow the replay.\n",
    .about =
	"Prints the decisions of this version's tuner, and the reasons; always the same for the same file. "
	"FILE is that of `dieseld --history`, which holds all input of the daemon's tuner, or a recording of "
	"`diesel-analyze record`. From a recording, `replay` makes one sample per second: waits, speed and "
	"workers of the recorded job. A recording has no data on chunks or caches, so the tuner decides only "
	"on client workers. One sample is a batch unless the recording has the size of a batch. If a "
	"recording was cut off, `replay` uses the complete part, and prints a line on standard error.",
    OPTION_ROWS(replay_rows),
    .takes = OPTION_FILE,
    .run = run,
};
