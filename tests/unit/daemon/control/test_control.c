/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rounds and settings on a real serving, pool and cache: the decisions, their execution, and the reports
 * about them. The samples are the test's.
 */
#include "tests/support_loop.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/control/control_private.h"
#include "sqlite/db.h"
#include "lib/cleanup.h"

#define MIB    UINT64_C(1048576)
#define GIB    (1024 * MIB)
#define SECOND UINT64_C(1000000000)

struct fixture {
	struct serving serving;
	uv_loop_t loop;
	struct control *control;
	uint64_t now_ns;
	struct stall_node node;
	struct stall_shares shares; /* shares of each job */
	uint64_t stranger;          /* a job that is seen but not served; 0: none */
};

static const struct control_viewer root = {.uid = 0, .all = true};

static struct control_options options_of(const char *history)
{
	return (struct control_options){
	    .settings = {.space = {.memory_bytes = 16 * GIB, .cache_bytes = GIB, .n_cpus = 4}},
	    .knobs = {.cache_bytes = GIB, .prefetch_chunks = 4, .workers = 2},
	    .history = history,
	    .history_max_bytes = HISTORY_MIN_BYTES};
}

static void start_with(struct fixture *f, const struct control_options *options)
{
	struct cache *cache = &f->serving.cache;

	*f = (struct fixture){.now_ns = 1000 * SECOND, .node = stall_node_unknown(), .shares = {.device = 1}};
	assert_int_equal(uv_loop_init(&f->loop), 0);
	cache_init(cache, GIB);
	assert_int_equal(pool_new(&f->loop, 2, &cache->pool), 0);
	assert_int_equal(read_turns_new(&cache->turns), 0);
	f->serving.jobs = (struct jobs){.loop = &f->loop, .proc_root = "/proc"};
	assert_int_equal(control_new(options, &f->control), 0);
	control_start(f->control, &f->serving, NULL);
}

static void start(struct fixture *f, const char *history)
{
	const struct control_options options = options_of(history);

	start_with(f, &options);
}

static void stop(struct fixture *f)
{
	f->serving.cache.closing = f->serving.jobs.closing = true;
	cache_free(&f->serving.cache);
	jobs_close(&f->serving.jobs);
	pool_free(f->serving.cache.pool);
	read_turns_free(f->serving.cache.turns);
	loop_end(&f->loop);
	control_free(f->control);
}

static struct job *join(struct fixture *f, uint32_t uid, int64_t pid)
{
	struct job *j = jobs_join(&f->serving.jobs,
				  &(struct job_member){.pid = pid, .uid = uid, .world = 1, .stride = 1});

	assert_non_null(j);
	return j;
}

/* Returns the knob's value in force, as the sensor would see it. */
static uint64_t knob_of(const struct fixture *f, const struct job *job, enum tuner_knob knob)
{
	struct tuner_knobs now;

	serving_job_knobs(&f->serving, job, &now);
	return knob == TUNER_CLIENT_WORKERS && now.value[knob] == TUNER_FREE_NUMBER ? 0 : now.value[knob];
}

/* Runs a second of all jobs. Each trains at its own pace, and has all that it needs. */
static void one_second(struct fixture *f)
{
	const struct sensor_handler handler = control_handler(f->control);
	struct stall_sample samples[8];
	size_t n = 0;

	f->now_ns += SECOND;
	for (const struct job *j = f->serving.jobs.first; j; j = j->next) {
		struct stall_sample *s = &samples[n++];

		*s = stall_sample_unknown();
		s->job = j->id;
		s->at_ns = f->now_ns;
		s->covered_s = 1;
		s->source = STALL_SOURCE_BPF;
		s->samples_per_s = 1000;
		s->shares = f->shares;
		s->fetch_rate = s->prep_rate = INFINITY;
		s->device_rate = 1000;
		s->chunk_latency_s = 0.001;
		s->reads_in_flight = s->reading_ratio = 0.1;
		s->memory_hit_ratio = 0.5;
		s->source_bytes_per_s = 1e9;
		s->chunk_bytes = 4e6;
		s->samples_per_chunk = 100;
		s->window_chunks = 2;
		s->batch = 10;
		s->daemon_cpu_s_per_sample = 1e-5;
		s->client_cpu_s_per_sample = 0;
		s->dataset_bytes = 1e10;
		s->need_bytes = 2e7;
		for (int k = 0; k < TUNER_N_KNOBS; k++)
			s->knobs.value[k] = knob_of(f, j, (enum tuner_knob)k);
		s->tunable = (1u << TUNER_N_KNOBS) - 1 - (1u << TUNER_CLIENT_WORKERS);
	}
	if (f->stranger) {
		samples[n] = samples[0];
		samples[n++].job = f->stranger;
	}
	handler.second(handler.user, &f->node, samples, n, f->now_ns);
}

static int set(struct fixture *f, const struct control_viewer *viewer, uint64_t job,
	       enum wire_setting_key key, uint64_t value, struct error *err)
{
	const struct wire_set m = {.job = job, .n_settings = 1, .settings = {{.key = key, .value = value}}};
	char *text = NULL;
	int r = control_set(f->control, viewer, &m, &text, err);

	assert_int_equal(text != NULL, r == 0);
	free(text);
	return r;
}

/* Returns the newest decision of this rule, or NULL. */
static const struct history_entry *decision_of(const struct fixture *f, enum tuner_rule rule)
{
	const struct control_log_entry *e;

	for (uint64_t i = 0; (e = control_log_newest(&f->control->log, i)); i++) {
		if (e->entry.decision.rule == rule)
			return &e->entry;
	}
	return NULL;
}

TEST(a_pin_is_carried_out_in_the_next_round)
{
	struct fixture f;

	start(&f, NULL);
	struct job *job = join(&f, 1000, 0);
	assert_int_equal(set(&f, &root, job->id, WIRE_SET_PREFETCH, 7, NULL), 0);
	assert_int_equal(knob_of(&f, job, TUNER_PREFETCH_CHUNKS), 4);
	one_second(&f);
	assert_int_equal(knob_of(&f, job, TUNER_PREFETCH_CHUNKS), 7);
	assert_int_equal(control_n_applied(f.control, TUNER_RULE_PIN), 1);
	const struct history_entry *e = decision_of(&f, TUNER_RULE_PIN);
	assert_non_null(e);
	assert_true(e->applied);
	assert_int_equal(e->uid, 1000);
	assert_int_equal(e->decision.old_value, 4);
	assert_int_equal(e->decision.new_value, 7);
	assert_true(control_log_newest(&f.control->log, 0)->has_sample);
	assert_int_equal(control_log_newest(&f.control->log, 0)->sample.samples_per_s, 1000);
	assert_true(control_find_job(f.control, job->id)->has_view);
	one_second(&f);
	assert_int_equal(control_n_applied(f.control, TUNER_RULE_PIN), 1);
	assert_int_equal(f.control->n_rounds, 2);
	jobs_leave(job);
	stop(&f);
}

static void tighten(struct fixture *f)
{
	f->node.memory_limit_bytes = 2 * (double)GIB;
	f->node.memory_headroom_bytes = 0;
	f->node.memory_some_avg10 = f->node.memory_some_now = 60;
}

/* The tuner does what the mode allows. In a dry run it only records the rest, and in mode off it does not
 * even do that. The operator's settings always hold. */
static void check_mode(enum wire_tune mode, bool is_done, bool is_told)
{
	struct fixture f;

	start(&f, NULL);
	struct job *job = join(&f, 1000, 0);
	assert_int_equal(set(&f, &root, 0, WIRE_SET_TUNE, mode, NULL), 0);
	assert_int_equal(set(&f, &root, job->id, WIRE_SET_PREFETCH, 9, NULL), 0);
	one_second(&f);
	assert_int_equal(knob_of(&f, job, TUNER_CACHE_BYTES), GIB);
	tighten(&f);
	for (int i = 0; i < 3; i++)
		one_second(&f);
	const struct history_entry *e = decision_of(&f, TUNER_RULE_PRESSURE);
	assert_int_equal(e != NULL, is_told);
	if (e)
		assert_int_equal(e->applied, is_done);
	assert_int_equal(knob_of(&f, job, TUNER_CACHE_BYTES) < GIB, is_done);
	assert_int_equal(control_n_applied(f.control, TUNER_RULE_PRESSURE) > 0, is_done);
	assert_int_equal(knob_of(&f, job, TUNER_PREFETCH_CHUNKS), 9);
	assert_true(decision_of(&f, TUNER_RULE_PIN)->applied);
	f.node = stall_node_unknown();
	assert_int_equal(set(&f, &root, 0, WIRE_SET_PREFETCH_MAX, 5, NULL), 0);
	for (int i = 0; i < 3; i++)
		one_second(&f);
	assert_int_equal(knob_of(&f, job, TUNER_PREFETCH_CHUNKS), 5);
	assert_true(decision_of(&f, TUNER_RULE_LIMIT)->applied);
	jobs_leave(job);
	stop(&f);
}

TEST(tuning_decides_and_applies)
{
	check_mode(WIRE_TUNE_ON, true, true);
}

TEST(a_dry_run_decides_and_applies_nothing)
{
	check_mode(WIRE_TUNE_DRY_RUN, false, true);
}

TEST(without_tuning_nothing_is_decided)
{
	check_mode(WIRE_TUNE_OFF, false, false);
}

static const struct history_entry *judged(const struct fixture *f)
{
	const struct control_log_entry *e;

	for (uint64_t i = 0; (e = control_log_newest(&f->control->log, i)); i++) {
		if (e->entry.has_verdict)
			return &e->entry;
	}
	return NULL;
}

/* A verdict is reported with its decision. The report also shows if the decision was not carried out. */
TEST(a_verdict_is_told_with_its_decision)
{
	struct fixture f;

	start(&f, NULL);
	struct job *job = join(&f, 1000, 0);
	assert_int_equal(set(&f, &root, 0, WIRE_SET_TUNE, WIRE_TUNE_DRY_RUN, NULL), 0);
	f.node.cores = 4;
	f.node.cores_idle = 3;
	for (int i = 0; i < 100 && !judged(&f); i++)
		one_second(&f);
	const struct history_entry *e = judged(&f);
	assert_non_null(e);
	assert_int_equal(e->verdict.decision, e->decision.id);
	assert_int_equal(e->verdict.knob, e->decision.knob);
	assert_int_equal(e->verdict.outcome, TUNER_NOT_APPLIED);
	assert_false(e->applied);
	assert_true(e->verdict_ms >= e->at_ms);
	jobs_leave(job);
	stop(&f);
}

/* The operator's minimum for all caches holds, also under pressure. The reason shows the resulting value. */
TEST(the_least_cache)
{
	static const struct {
		bool other;
		uint64_t mib, job_mib;
	} steps[] = {{false, 500, 500}, {true, 400, 500}, {false, 100, 300}, {true, 800, 100}};
	struct job *job, *other;
	struct fixture f;

	start(&f, NULL);
	job = join(&f, 1000, 0);
	assert_int_equal(set(&f, &root, 0, WIRE_SET_CACHE_MIN, 700 * MIB, NULL), 0);
	assert_int_equal(set(&f, &root, job->id, WIRE_SET_CACHE, 100 * MIB, NULL), 0);
	one_second(&f);
	assert_int_equal(knob_of(&f, job, TUNER_CACHE_BYTES), 700 * MIB);
	const struct history_entry *e = decision_of(&f, TUNER_RULE_PIN);
	assert_int_equal(e->decision.new_value, 700 * MIB);
	assert_non_null(strstr(e->decision.reason, "held at 734003200"));
	/* Memory of other jobs counts. */
	other = join(&f, 1001, 0);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		const struct job *pinned = steps[i].other ? other : job;

		assert_int_equal(set(&f, &root, pinned->id, WIRE_SET_CACHE, steps[i].mib * MIB, NULL), 0);
		/* A value that was not reached is tried again after a minute. */
		for (int second = 0; second < 80; second++)
			one_second(&f);
		assert_int_equal(knob_of(&f, job, TUNER_CACHE_BYTES), steps[i].job_mib * MIB);
	}
	jobs_leave(job);
	jobs_leave(other);
	stop(&f);
}

/* If a message has one mistake, none of its settings holds, and the mistake is named. */
TEST(whole_or_not_at_all)
{
	static const struct {
		uint64_t job; /* 1: the existing job */
		struct wire_setting bad;
		int code;
		const char *says;
	} cases[] = {
	    {1, {.key = WIRE_SET_WORKERS, .value = 5}, -EINVAL, "raise workers-max first"},
	    {1, {.key = WIRE_SET_CACHE, .value = 2 * GIB}, -EINVAL, "raise cache-max first"},
	    {1,
	     {.key = WIRE_SET_WORKERS_MAX, .value = 2},
	     -EINVAL,
	     "workers-max applies to the whole daemon"},
	    {1, {.key = WIRE_SET_CLIENT_WORKERS, .value = 2}, -EOPNOTSUPP, "cannot set client-workers"},
	    {0, {.key = WIRE_SET_CACHE_MIN, .value = 2 * GIB}, -EINVAL, "more than cache-max"},
	    {77, {.key = WIRE_SET_WORKERS, .value = 2}, -ENOENT, "no job 77"},
	};
	char *text = NULL;
	struct fixture f;
	struct job *job;

	start(&f, NULL);
	job = join(&f, 1000, 0);
	assert_int_equal(job->id, 1);
	one_second(&f);
	struct settings before = f.control->settings;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wire_set m = {.job = cases[i].job,
				     .n_settings = 2,
				     .settings = {{.key = WIRE_SET_PREFETCH, .value = 8}, cases[i].bad}};
		struct error err = ERROR_INIT;

		assert_int_equal(control_set(f.control, &root, &m, &text, &err), cases[i].code);
		assert_null(text);
		if (!strstr(err.text, cases[i].says))
			fail_msg("%zu: %s", i, err.text);
		assert_memory_equal(&f.control->settings, &before, sizeof(before));
		one_second(&f);
		assert_int_not_equal(knob_of(&f, job, TUNER_PREFETCH_CHUNKS), 8);
	}
	/* A return to automatic mode is accepted also for a knob that the client decides, and sets nothing.
	 */
	assert_int_equal(control_set(f.control, &root,
				     &(struct wire_set){.job = 1,
							.n_settings = 1,
							.settings = {{.key = WIRE_SET_CLIENT_WORKERS,
								      .flags = WIRE_SETTING_AUTO}}},
				     &text, NULL),
			 0);
	free(text);
	jobs_leave(job);
	stop(&f);
}

TEST(who_may_do_what)
{
	const struct control_viewer owner = {.uid = 1000}, stranger = {.uid = 1001};
	struct wire_why why = {.max = 10};
	struct error err = ERROR_INIT;
	struct fixture f;
	struct job *job, *other;
	char *text;

	assert_true(control_viewer_of(0).all);
	assert_true(control_viewer_of(geteuid()).all);
	assert_false(control_viewer_of(geteuid() + 1).all);
	start(&f, NULL);
	job = join(&f, 1000, 0);
	assert_int_equal(set(&f, &owner, job->id, WIRE_SET_PREFETCH, 7, &err), -EPERM);
	assert_int_equal(f.control->settings.n_pins, 0);
	assert_int_equal(set(&f, &root, job->id, WIRE_SET_PREFETCH, 7, NULL), 0);
	other = join(&f, 1000, 0);
	assert_int_equal(set(&f, &root, other->id, WIRE_SET_PREFETCH, 8, NULL), 0);
	one_second(&f);
	why.job = job->id;
	assert_int_equal(control_why(f.control, &owner, &why, &text, &err), 0);
	assert_non_null(strstr(text, "\"pinned to 7\""));
	assert_null(strstr(strstr(text, "\"decisions\""), "\"pinned to 8\""));
	free(text);
	assert_int_equal(control_why(f.control, &stranger, &why, &text, &err), -ENOENT);
	why.job = 0;
	assert_int_equal(control_why(f.control, &stranger, &why, &text, &err), 0);
	assert_null(strstr(text, "pinned to 7"));
	assert_non_null(strstr(text, "\"decisions\": []"));
	free(text);
	why.max = 0;
	assert_int_equal(control_why(f.control, &root, &why, &text, &err), 0);
	assert_non_null(strstr(text, "\"decisions\": []"));
	free(text);
	text = control_jobs(f.control, &stranger);
	assert_non_null(strstr(text, "\"jobs\": []"));
	free(text);
	text = control_jobs(f.control, &owner);
	assert_non_null(strstr(text, "\"uid\": 1000"));
	free(text);
	jobs_leave(job);
	jobs_leave(other);
	stop(&f);
}

/* Limits of the whole daemon take effect at once. Without tuning, the number of threads is the configured
 * one. */
TEST(limits_of_the_daemon_take_effect_at_once)
{
	struct control_options other = options_of(NULL);
	struct fixture f;
	char *text = NULL;

	start(&f, NULL);
	struct job *job = join(&f, 1000, 0);
	assert_int_equal(pool_workers(f.serving.cache.pool), 4);
	assert_int_equal(knob_of(&f, job, TUNER_DAEMON_WORKERS), 4); /* free: all threads */
	assert_int_equal(f.serving.cache.limit_bytes, GIB);
	assert_int_equal(set(&f, &root, 0, WIRE_SET_CACHE_MAX, 300 * MIB, NULL), 0);
	assert_int_equal(f.serving.cache.limit_bytes, 300 * MIB);
	assert_int_equal(set(&f, &root, 0, WIRE_SET_WORKERS_MAX, 3, NULL), 0);
	assert_int_equal(pool_workers(f.serving.cache.pool), 3);
	assert_int_equal(set(&f, &root, 0, WIRE_SET_TUNE, WIRE_TUNE_OFF, NULL), 0);
	assert_int_equal(pool_workers(f.serving.cache.pool), 2);
	assert_int_equal(set(&f, &root, 0, WIRE_SET_WORKERS_MAX, 1, NULL), 0);
	assert_int_equal(pool_workers(f.serving.cache.pool), 1);
	assert_int_equal(knob_of(&f, job, TUNER_DAEMON_WORKERS), 1);
	/* A setting made at run time holds over a new configuration. */
	other.settings.is_configured[WIRE_SET_CACHE_MAX] = true;
	other.settings.configured[WIRE_SET_CACHE_MAX] = 500 * MIB;
	other.settings.space.n_cpus = 8;
	other.knobs.prefetch_chunks = 6;
	control_reconfigure(f.control, &other.settings, &other.knobs);
	assert_int_equal(f.serving.cache.limit_bytes, 300 * MIB);
	assert_int_equal(f.serving.options.knobs.prefetch_chunks, 6);
	assert_int_equal(
	    control_set(
		f.control, &root,
		&(struct wire_set){.n_settings = 2,
				   .settings = {{.key = WIRE_SET_CACHE_MAX, .flags = WIRE_SETTING_AUTO},
						{.key = WIRE_SET_WORKERS_MAX, .flags = WIRE_SETTING_AUTO}}},
		&text, NULL),
	    0);
	assert_int_equal(f.serving.cache.limit_bytes, 500 * MIB);
	assert_int_equal(settings_get(&f.control->settings, WIRE_SET_WORKERS_MAX), 8);
	free(text);
	jobs_leave(job);
	stop(&f);
}

TEST(a_job_ends)
{
	struct fixture f;
	struct job *job, *other;
	uint64_t id;

	start(&f, NULL);
	job = join(&f, 1000, 0);
	other = join(&f, 1001, 0);
	id = job->id;
	assert_int_equal(set(&f, &root, id, WIRE_SET_PREFETCH, 7, NULL), 0);
	assert_int_equal(set(&f, &root, other->id, WIRE_SET_PREFETCH, 8, NULL), 0);
	one_second(&f);
	jobs_leave(job);
	assert_null(control_find_job(f.control, id));
	assert_non_null(control_find_job(f.control, other->id));
	assert_int_equal(f.control->settings.n_pins, 1);
	assert_int_equal(f.control->settings.pins[0].job, other->id);
	one_second(&f);
	assert_int_equal(f.control->result->n_views, 1);
	/* Decisions are remembered with their job. */
	assert_non_null(decision_of(&f, TUNER_RULE_PIN));
	/* A job that is seen but not served is reported, and none of its knobs is changed. */
	f.stranger = id;
	assert_int_equal(set(&f, &root, 0, WIRE_SET_PREFETCH, 6, NULL), 0);
	one_second(&f);
	assert_int_equal(decision_of(&f, TUNER_RULE_PIN)->decision.job, id);
	assert_false(decision_of(&f, TUNER_RULE_PIN)->applied);
	jobs_leave(other);
	stop(&f);
}

struct replay {
	const struct control_log *log;
	struct tuner_state *state;
	struct tuner_result *result;
	uint64_t n, n_logged;
};

/* Replays a round as dieselctl replay does. Each decision equals the one in the log, whose oldest entry is
 * the last. */
static int replay_round(void *user, const struct history_round *round)
{
	struct replay *p = user;

	if (round->ended && *round->ended)
		tuner_forget(p->state, *round->ended);
	else if (round->ended)
		memset(p->state, 0, tuner_state_bytes());
	if (round->ended)
		return 0;
	tuner_decide(round->config, p->state, round->node, round->samples, round->n_samples, round->now_ns,
		     p->result);
	for (size_t i = 0; i < p->result->n_decisions; i++) {
		const struct tuner_decision *d = &p->result->decisions[i], *logged;

		assert_true(p->n < p->n_logged);
		logged = &control_log_newest(p->log, p->n_logged - ++p->n)->entry.decision;
		assert_int_equal(d->job, logged->job);
		assert_int_equal(d->knob, logged->knob);
		assert_int_equal(d->rule, logged->rule);
		assert_int_equal(d->old_value, logged->old_value);
		assert_int_equal(d->new_value, logged->new_value);
	}
	return 0;
}

/* Three jobs run one after the other, then three with others at the same time, and the mode changes. A replay
 * makes the same decisions. */
TEST_IN_FOLDER(a_replay_decides_as_the_daemon_did)
{
	struct replay p = {.state = calloc(1, tuner_state_bytes()), .result = calloc(1, sizeof(*p.result))};
	struct job *before = NULL;
	struct history *h;
	char path[256];
	uint64_t n_foreign;
	struct fixture f;

	snprintf(path, sizeof(path), "%s/replay.db", (const char *)*state);
	start(&f, path);
	for (unsigned int k = 0; k < 6; k++) {
		struct job *job = join(&f, 1000, 0);

		f.shares = (struct stall_shares){
		    .device = 0.4, .fetch_stall = k % 2 ? 0 : 0.6, .prep_stall = k % 2 ? 0.6 : 0};
		for (int i = 0; i < 25; i++)
			one_second(&f);
		if (k == 4)
			assert_int_equal(set(&f, &root, 0, WIRE_SET_TUNE, WIRE_TUNE_DRY_RUN, NULL), 0);
		if (before)
			jobs_leave(before);
		before = k < 3 ? NULL : job;
		if (k < 3)
			jobs_leave(job);
		for (int i = 0; i < 5; i++)
			one_second(&f);
	}
	jobs_leave(before);
	p.log = &f.control->log;
	while (control_log_newest(p.log, p.n_logged))
		p.n_logged++;
	assert_true(p.n_logged > 5);
	history_close(f.control->history);
	f.control->history = NULL;
	assert_int_equal(history_open_read(path, &h, NULL), 0);
	assert_int_equal(history_load_rounds(h, replay_round, &p, &n_foreign, NULL), 0);
	assert_int_equal(p.n, p.n_logged);
	assert_int_equal(n_foreign, 0);
	history_close(h);
	free(p.state);
	free(p.result);
	stop(&f);
}

/* A knob that the configuration pins needs no setting. */
TEST(a_configured_knob)
{
	struct control_options other = options_of(NULL);
	struct fixture f;

	start(&f, NULL);
	struct job *job = join(&f, 1000, 0);
	other.settings.is_configured[WIRE_SET_PREFETCH] = true;
	other.settings.configured[WIRE_SET_PREFETCH] = 11;
	control_reconfigure(f.control, &other.settings, &other.knobs);
	one_second(&f);
	assert_int_equal(knob_of(&f, job, TUNER_PREFETCH_CHUNKS), 11);
	jobs_leave(job);
	stop(&f);
}

/* Settings, pins, decisions and memory shares are restored after a restart, and so are the jobs that still
 * live. */
TEST_IN_FOLDER(a_restart_keeps_what_was_set_and_decided)
{
	_cleanup_(freep) char *path = path_in(*state, "history.db");
	_cleanup_(freep) void *before = malloc(tuner_state_bytes());
	struct fixture f;
	struct job *job, *gone;
	uint64_t id, n_decisions;

	start(&f, path);
	gone = join(&f, 1001, 0);
	job = join(&f, getuid(), getpid());
	id = job->id;
	assert_int_equal(set(&f, &root, 0, WIRE_SET_CACHE_MAX, 300 * MIB, NULL), 0);
	assert_int_equal(set(&f, &root, id, WIRE_SET_PREFETCH, 7, NULL), 0);
	assert_int_equal(set(&f, &root, gone->id, WIRE_SET_PREFETCH, 8, NULL), 0);
	one_second(&f);
	n_decisions = f.control->log.n_added;
	assert_true(n_decisions >= 2);
	memcpy(before, f.control->state, tuner_state_bytes());
	/* The jobs' connections end with the daemon, but the jobs do not. */
	f.serving.jobs.closing = true;
	jobs_leave(job);
	jobs_leave(gone);
	stop(&f);

	start(&f, path);
	assert_int_equal(f.serving.cache.limit_bytes, 300 * MIB);
	assert_int_equal(f.control->settings.n_pins, 1);
	assert_int_equal(f.control->settings.pins[0].job, id);
	assert_int_equal(f.control->log.n_added, n_decisions);
	assert_non_null(f.control->state);
	assert_memory_equal(f.control->state, before, tuner_state_bytes());
	/* A new job gets a new number. The job that is back has its old one. */
	gone = join(&f, 1001, 0);
	assert_true(gone->id > id);
	assert_int_equal(knob_of(&f, gone, TUNER_PREFETCH_CHUNKS), 4);
	job = join(&f, getuid(), getpid());
	assert_int_equal(job->id, id);
	assert_int_equal(knob_of(&f, job, TUNER_PREFETCH_CHUNKS), 7);
	f.serving.jobs.closing = true;
	jobs_leave(job);
	jobs_leave(gone);
	stop(&f);
}

static pid_t process_begin(void)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); /* ends the child if the test fails */
		for (;;)
			pause();
	}
	return pid;
}

static void process_end(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A job that is not back when the daemon restarts once more is not forgotten if its trainer lives. */
TEST_IN_FOLDER(two_restarts_do_not_forget_a_living_job)
{
	_cleanup_(freep) char *path = path_in(*state, "history.db");
	pid_t ends = process_begin();
	struct fixture f;
	struct job *job, *other;
	uint64_t id, last;

	start(&f, path);
	other = join(&f, getuid(), ends); /* before its parent has a job, to which it would belong */
	job = join(&f, getuid(), getpid());
	id = job->id;
	assert_int_equal(set(&f, &root, id, WIRE_SET_PREFETCH, 7, NULL), 0);
	assert_int_equal(set(&f, &root, other->id, WIRE_SET_PREFETCH, 8, NULL), 0);
	one_second(&f);
	f.serving.jobs.closing = true;
	jobs_leave(job);
	jobs_leave(other);
	stop(&f);

	start(&f, path);
	assert_int_equal(f.control->settings.n_pins, 2);
	other = join(&f, 1001, 0);
	last = other->id;
	one_second(&f);
	process_end(ends);
	f.serving.jobs.closing = true;
	jobs_leave(other);
	stop(&f);

	start(&f, path);
	assert_int_equal(f.control->settings.n_pins, 1);
	assert_int_equal(f.control->settings.pins[0].job, id);
	job = join(&f, getuid(), getpid());
	assert_int_equal(job->id, id);
	assert_int_equal(knob_of(&f, job, TUNER_PREFETCH_CHUNKS), 7);
	other = join(&f, 1001, 0);
	assert_true(other->id > last);
	f.serving.jobs.closing = true;
	jobs_leave(job);
	jobs_leave(other);
	stop(&f);
}

/* Means cover the seconds in which a share was known. A share that was never known is not 0. */
TEST_IN_FOLDER(points_of_the_history)
{
	_cleanup_(freep) char *path = path_in(*state, "history.db");
	const struct stall_shares unknown = stall_sample_unknown().shares;
	struct sql_statement *row;
	struct fixture f;
	struct sql *sql;

	start(&f, path);
	struct job *job = join(&f, 1000, 0);
	for (int i = 0; i < 2 * HISTORY_GRAIN_S; i++) {
		f.shares = unknown;
		if (i % 5 == 0) {
			f.shares.device = 0.5;
			f.shares.fetch_stall = 0.4;
		}
		if (i == HISTORY_GRAIN_S)
			f.shares.prep_stall = 0.1;
		one_second(&f);
	}
	jobs_leave(job);
	stop(&f);
	assert_int_equal(sql_open(path, &(struct sql_options){.mode = SQL_READ}, &sql, NULL), 0);
	assert_int_equal(sql_prepare(sql,
				     "SELECT seconds, rate, device, fetch_stall, prep_stall, wait"
				     " FROM samples ORDER BY id",
				     &row, NULL),
			 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(sql_step(row, NULL), SQL_ROW);
		assert_float_equal(sql_real(row, 0), HISTORY_GRAIN_S, 1e-9);
		assert_float_equal(sql_real(row, 1), 1000, 1e-9);
		assert_float_equal(sql_real(row, 2), 0.5, 1e-9);
		assert_float_equal(sql_real(row, 3), 0.4, 1e-9);
		assert_int_equal(sql_is_null(row, 4), i == 0);
		assert_int_equal(sql_is_null(row, 5), i == 0);
	}
	assert_float_equal(sql_real(row, 4), 0.1, 1e-9);
	assert_float_equal(sql_real(row, 5), 0.5, 1e-9);
	assert_int_equal(sql_step(row, NULL), SQL_DONE);
	sql_statement_free(row);
	sql_close(sql);
}

/* Limits that are valid together are restored, whatever their order. If one is no longer valid, the others
 * are restored. */
TEST_IN_FOLDER(limits_come_back_together)
{
	const struct wire_set lower = {.n_settings = 2,
				       .settings = {{.key = WIRE_SET_CACHE_MAX, .value = 300 * MIB},
						    {.key = WIRE_SET_CACHE_MIN, .value = 100 * MIB}}};
	char *path = path_in(*state, "history.db"), *text = NULL;
	struct control_options options = options_of(path);
	struct fixture f;

	options.settings.is_configured[WIRE_SET_CACHE_MIN] = true;
	options.settings.configured[WIRE_SET_CACHE_MIN] = 500 * MIB;
	start_with(&f, &options);
	assert_int_equal(control_set(f.control, &root, &lower, &text, NULL), 0);
	free(text);
	stop(&f);
	start_with(&f, &options);
	assert_int_equal(f.serving.cache.limit_bytes, 300 * MIB);
	assert_int_equal(settings_get(&f.control->settings, WIRE_SET_CACHE_MIN), 100 * MIB);
	stop(&f);
	/* The machine has less memory now. */
	options.settings.space.memory_bytes = options.settings.space.cache_bytes = 200 * MIB;
	start_with(&f, &options);
	assert_int_equal(f.serving.cache.limit_bytes, 200 * MIB);
	assert_int_equal(settings_get(&f.control->settings, WIRE_SET_CACHE_MIN), 100 * MIB);
	stop(&f);
	free(path);
}
