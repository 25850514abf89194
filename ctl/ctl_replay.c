/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dieselctl replay: what this tuner makes of samples that a dieseld has recorded. The same file gives the
 * same decisions. Samples are as they were: knobs in them do not follow what the replay decides.
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

struct replay {
	struct tuner_state *state;
	struct tuner_result *result;
	bool json;
	uint64_t n_rounds, n_decisions, n_refused;
	uint64_t last_ms;
};

static json_t *known(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

/* One object a line: a long recording need not fit in memory. */
static void print_json(uint64_t at_ms, const struct tuner_decision *d)
{
	json_t *line =
	    json_pack("{s:f, s:I, s:I, s:s, s:s, s:I, s:I, s:s, s:o, s:o, s:o, s:o}", "time",
		      (double)at_ms / 1e3, "id", (json_int_t)d->id, "job", (json_int_t)d->job, "knob",
		      tuner_knob_name(d->knob), "rule", tuner_rule_name(d->rule), "from",
		      (json_int_t)d->old_value, "to", (json_int_t)d->new_value, "reason", d->reason,
		      "rate_before", known(d->rate_before), "rate_expected", known(d->rate_expected),
		      "wait_before", known(d->wait_before), "wait_expected", known(d->wait_expected));
	_cleanup_(freep) char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;

	json_decref(line);
	puts(text ? text : "{}");
}

static void print_text(uint64_t at_ms, const struct tuner_decision *d)
{
	const char *knob = tuner_knob_name(d->knob);
	time_t t = (time_t)(at_ms / 1000);
	char when[24], from[24], to[24];
	struct tm tm;

	localtime_r(&t, &tm);
	strftime(when, sizeof(when), "%m-%d %H:%M:%S", &tm);
	printf("%s  job %llu  %s %s -> %s (%s)\n                why: %s\n", when, (unsigned long long)d->job,
	       knob, ctl_knob(from, knob, (double)d->old_value), ctl_knob(to, knob, (double)d->new_value),
	       tuner_rule_name(d->rule), d->reason);
}

static int on_round(void *user, const struct history_round *round)
{
	struct replay *p = user;

	tuner_decide(round->config, p->state, round->node, round->samples, round->n_samples, round->now_ns,
		     p->result);
	p->n_rounds++;
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

static int replay(const struct ctl_verb *verb, const char *path, struct replay *p)
{
	struct history *history = NULL;
	struct error err = ERROR_INIT;
	uint64_t n_foreign = 0;
	int r = history_open_read(path, &history, &err);

	if (r == -EEXIST)
		error_set(
		    &err, r,
		    "%s is no history of dieseld: replay needs one (dieseld --history FILE); recordings of "
		    "diesel-analyze have no samples of the daemon's",
		    path);
	if (r == 0)
		r = history_load_rounds(history, on_round, p, &n_foreign, &err);
	history_close(history);
	if (r < 0)
		return ctl_failed(verb, &err);
	if (p->n_rounds == 0 && n_foreign > 0)
		return ctl_warn(
		    verb,
		    "its samples were recorded by another version of dieseld: use that one's dieselctl");
	if (!p->json)
		printf("%llu seconds of samples, %llu decisions, %llu samples refused, %llu seconds of "
		       "another version\n",
		       (unsigned long long)p->n_rounds, (unsigned long long)p->n_decisions,
		       (unsigned long long)p->n_refused, (unsigned long long)n_foreign);
	return ctl_finish(verb);
}

static int run(const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct option long_options[] = {{"json", no_argument, NULL, 'J'}, CTL_OPTION_HELP, {0}};
	struct replay p = {0};
	int option, r;

	while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
		p.json = true;
	}
	if (argc - optind != 1)
		return ctl_usage(verb, "the file of a history is needed, and nothing else");
	p.state = calloc(1, tuner_state_bytes());
	p.result = calloc(1, sizeof(*p.result));
	r = p.state && p.result ? replay(verb, argv[optind], &p) : ctl_warn(verb, "out of memory");
	free(p.state);
	free(p.result);
	return r;
}

const struct ctl_verb ctl_replay = {
    .name = "replay",
    .arguments = "[--json] HISTORY",
    .summary = "Decide again on samples that dieseld has recorded",
    .help =
	"Prints each decision that this version's tuner would have made, and why. HISTORY is the file of\n"
	"dieseld --history. The samples stay as they were: knobs in them do not follow the replay.\n\n"
	"      --json  one JSON object a line\n",
    .run = run,
};
