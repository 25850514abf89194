/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ui/feed/daemon_status.h"
#include "lib/error.h"
#include "ui/feed/feed.h"
#include "ui/state/sample.h"

static const char status[] =
    "{\"schema\": \"diesel.status/1\", \"version\": \"0.1.0\", \"pid\": 7, \"socket\": \"/run/s\", "
    "\"uptime_s\": 60,"
    "\"io\": \"io_uring\", \"knobs\": {\"cache_bytes\": 100, \"prefetch_chunks\": 4, \"workers\": 2},"
    "\"cache\": {\"budget_bytes\": 1000, \"borrowed_bytes\": 200, \"segment_bytes\": 300, \"slot_bytes\": "
    "20, \"snapshot_bytes\": 3,"
    " \"reads\": 9, \"read_bytes\": 900, \"evictions\": 0, \"quarantined\": 1, \"loading\": 0},"
    "\"datasets\": [{\"path\": \"/d\", \"samples\": 10, \"chunks\": 4, \"cached_chunks\": 3, \"bytes\": 50,"
    " \"sessions\": 2, \"quarantined\": [\"bad\"]}],"
    "\"sessions\": [{\"job\": 3, \"ready\": 2}, {\"job\": 3, \"ready\": 5}, {\"job\": 9, \"ready\": 1}],"
    "\"tune\": {\"mode\": \"auto\", \"sensing\": {\"source\": \"client\", \"why\": \"no BPF\"},"
    " \"history\": {\"problem\": null}},"
    "\"jobs\": [{\"id\": 3, \"pid\": 1234, \"name\": \"train.py\", \"knobs\": {\"cache-bytes\": {\"value\": "
    "1048576},"
    " \"prefetch-chunks\": {\"value\": 6}, \"daemon-workers\": {\"value\": null}, \"client-workers\": "
    "{\"value\": 0}},"
    " \"now\": {\"source\": \"client\", \"steps_per_s\": 12.5, \"step_p50_s\": null,"
    "  \"shares\": {\"device\": 0.4, \"fetch_stall\": 0.5, \"prep_stall\": 0.1, \"checkpoint_stall\": 0,"
    "  \"cpu_starved\": 0, \"other\": null}},"
    " \"batches\": 40, \"shared_batches\": 30, \"shared_from\": 9,"
    " \"checkpoints\": {\"begun\": 12, \"failed\": 1, \"writing\": false, \"interval_steps\": 40,"
    "  \"step_s\": 0.1, \"snapshot_s\": 0.05, \"slowdown_s\": 0, \"written_s\": 1.5, \"overhead\": 0.02,"
    "  \"newest_age_s\": null},"
    " \"decoding\": {\"samples\": 900, \"damaged\": 2, \"cpu_s\": 4.5, \"replaced\": 0},"
    " \"last_decision\": {\"knob\": \"cache-bytes\", \"from\": 1048576, \"to\": 1610612736, \"time\": 990,"
    "  \"reason\": \"fetch 50 %\", \"effect\": {\"text\": \"waits 10 % less\"}}}]}";

/* 239 bytes, as long as dieseld's longest sentence. */
#define LONG_TEXT                                                                                            \
	"01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567" \
	"89"                                                                                                 \
	"01234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567" \
	"89"                                                                                                 \
	"012345678901234567890123456789012345end"

TEST(nothing_is_cut)
{
	static const char answer[] =
	    "{\"schema\": \"diesel.status/1\", \"tune\": {\"mode\": \"auto\","
	    " \"sensing\": {\"source\": \"client\", \"why\": \"" LONG_TEXT "\"},"
	    " \"history\": {\"problem\": \"" LONG_TEXT "\"}},"
	    "\"jobs\": [{\"id\": 3, \"tuner\": {\"text\": \"" LONG_TEXT "\"}, \"last_decision\": "
	    "{\"knob\": \"k\", \"reason\": \"" LONG_TEXT "\", \"effect\": {\"text\": \"" LONG_TEXT "\"}}}]}";
	static const char why[] = "{\"schema\": \"diesel.why/1\", \"decisions\": [{\"reason\": \"" LONG_TEXT
				  "\", \"effect\": {\"text\": \"" LONG_TEXT "\"}}]}";
	struct top_sample *sample = sample_new();

	assert_int_equal(daemon_answer_fill(answer, 1000, sample, NULL), 0);
	assert_string_equal(sample->daemon.sensing, "client: " LONG_TEXT);
	assert_string_equal(sample->daemon.tuner, "auto; history is not kept: " LONG_TEXT);
	assert_string_equal(sample->jobs[0].remark, LONG_TEXT);
	assert_true(sample->jobs[0].served.n_decoded == SAMPLE_UNKNOWN);
	assert_string_equal(sample->jobs[0].served.why, LONG_TEXT "; " LONG_TEXT);
	assert_int_equal(daemon_answer_fill(why, 1000, sample, NULL), 0);
	assert_string_equal(sample->decisions[0].why, LONG_TEXT);
	assert_string_equal(sample->decisions[0].effect, LONG_TEXT);
	sample_free(sample);
}

TEST(a_status_fills_a_sample)
{
	struct top_sample *sample = sample_new();

	assert_int_equal(daemon_answer_fill(status, 1000, sample, NULL), 0);
	assert_string_equal(sample->daemon.state, "up");
	assert_float_equal(sample->daemon.cache_used_bytes, 323, 0);
	assert_float_equal(sample->daemon.cache_borrowed_bytes, 200, 0);
	assert_string_equal(sample->daemon.sensing, "client: no BPF");
	assert_string_equal(sample->daemon.tuner, "auto");
	assert_int_equal(sample->datasets[0].n_cached, 3);
	assert_int_equal(sample->datasets[0].n_bad, 1);
	const struct job_sample *job = &sample->jobs[0];
	assert_string_equal(job->id, "d3");
	assert_int_equal(job->served.n_ready, 7);
	assert_int_equal(job->served.n_decoded, 900);
	assert_int_equal(job->served.n_batches, 40);
	assert_int_equal(job->served.n_shared, 30);
	assert_int_equal(job->served.shared_from, 9);
	assert_int_equal(job->served.n_checkpoints, 12);
	assert_int_equal(job->served.n_checkpoints_failed, 1);
	assert_int_equal(job->served.checkpoint_steps, 40);
	assert_float_equal(job->served.checkpoint_written_s, 1.5, 0);
	assert_true(isnan(job->served.checkpoint_age_s));
	assert_int_equal(job->served.n_damaged, 2);
	assert_int_equal(job->served.n_replaced, 0);
	assert_float_equal(job->served.decoder_cpu_s, 4.5, 0);
	assert_int_equal(job->served.prefetch_chunks, 6);
	assert_true(job->served.daemon_workers == SAMPLE_UNKNOWN);
	assert_int_equal(job->served.client_workers, 0);
	assert_float_equal(job->share[SHARE_FETCH_STALL], 0.5, 0);
	assert_true(isnan(job->step_p50_s));
	assert_string_equal(job->verdict, "fetch-bound");
	assert_string_equal(job->served.decision, "cache-bytes 1M -> 1.5G");
	assert_string_equal(job->served.why, "fetch 50 %; waits 10 % less");
	assert_float_equal(job->served.decision_age_s, 10, 1e-9);
	sample_free(sample);
}

/* The verdict is the analyzer's. A lack of cores is no stall of the loader, and an unknown share is not 0. */
TEST(verdicts_are_the_analyzer_s)
{
	static const struct {
		const char *shares, *verdict;
	} cases[] = {
	    {"\"fetch_stall\": 0.1, \"prep_stall\": 0.02, \"checkpoint_stall\": 0, \"cpu_starved\": 0",
	     "device-bound"},
	    {"\"fetch_stall\": 0.1, \"prep_stall\": 0.06, \"checkpoint_stall\": 0, \"cpu_starved\": 0",
	     "fetch-bound"},
	    {"\"fetch_stall\": 0, \"prep_stall\": 0.16, \"checkpoint_stall\": 0.1, \"cpu_starved\": 0",
	     "prep-bound"},
	    {"\"fetch_stall\": 0, \"prep_stall\": 0.1, \"checkpoint_stall\": 0.3, \"cpu_starved\": 0",
	     "checkpoint-bound"},
	    {"\"fetch_stall\": 0.01, \"prep_stall\": 0, \"checkpoint_stall\": 0, \"cpu_starved\": 0.5",
	     "device-bound"},
	    {"\"fetch_stall\": 0.2, \"prep_stall\": 0.3, \"checkpoint_stall\": null, \"cpu_starved\": null",
	     "prep-bound"},
	    {"\"fetch_stall\": 0.01, \"prep_stall\": 0, \"checkpoint_stall\": null, \"cpu_starved\": null",
	     ""},
	    {"\"fetch_stall\": 0.5", ""},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct top_sample *sample = sample_new();
		char answer[256];

		snprintf(
		    answer, sizeof(answer),
		    "{\"schema\": \"diesel.status/1\", \"jobs\": [{\"id\": 3, \"now\": {\"shares\": {%s}}}]}",
		    cases[i].shares);
		assert_int_equal(daemon_answer_fill(answer, 1000, sample, NULL), 0);
		assert_string_equal(sample->jobs[0].verdict, cases[i].verdict);
		sample_free(sample);
	}
}

TEST(a_dry_run_s_decision_is_told_as_one)
{
	struct top_sample *sample = sample_new();

	assert_int_equal(
	    daemon_answer_fill(
		"{\"schema\": \"diesel.why/1\", \"decisions\": [{\"job\": 3, \"job_name\": \"a\","
		"\"knob\": \"prefetch-chunks\", \"from\": 4, \"to\": 8, \"applied\": false, \"time\": 5,"
		"\"reason\": \"r\", \"effect\": null}, {}, 7]}",
		6, sample, NULL),
	    0);
	assert_int_equal(sample->n_decisions, 3);
	assert_string_equal(sample->decisions[0].to, "8");
	assert_string_equal(sample->decisions[0].effect, "dry run: not applied");
	assert_float_equal(sample->decisions[0].age_s, 1, 1e-9);
	sample_free(sample);
}

TEST(strange_answers_leave_unknowns)
{
	struct top_sample *sample = sample_new();
	struct error err = ERROR_INIT;

	assert_int_equal(daemon_answer_fill("", 0, sample, &err), -EBADMSG);
	assert_int_equal(daemon_answer_fill("{\"schema\": \"diesel.status/9\"}", 0, sample, &err), -EBADMSG);
	assert_int_equal(daemon_answer_fill("{\"schema\": \"diesel.why/2\"}", 0, sample, &err), -EBADMSG);
	assert_non_null(strstr(err.text, "version"));
	assert_int_equal(
	    daemon_answer_fill("{\"schema\": \"diesel.status/1\", \"jobs\": [1, {\"now\": 3, \"knobs\": []}],"
			       "\"cache\": 4, \"sessions\": {}}",
			       0, sample, &err),
	    0);
	assert_int_equal(sample->n_jobs, 2);
	assert_true(isnan(sample->daemon.cache_used_bytes));
	assert_true(isnan(sample->jobs[1].share[SHARE_FETCH_STALL]));
	sample_free(sample);
}

/* A feed with one sample. */
struct fake {
	struct feed feed;
	struct top_sample *sample;
};

static int take_fake(struct feed *feed, unsigned int wanted, uint64_t now_ns, struct top_sample **ret_sample,
		     struct error *err)
{
	*ret_sample = ((struct fake *)feed)->sample;
	return 0;
}

/* The trainer 1234 is a child of process 1000, with which the node's job began. */
static pid_t job_of(const struct feed *feed, pid_t pid)
{
	return pid == 1234 ? 1000 : 0;
}

static void close_fake(struct feed *feed)
{
}

/* Returns the sample that both together give. Takes the two. */
static struct top_sample *merged(struct top_sample *node, struct top_sample *daemon)
{
	static const struct feed_ops ops = {.sample = take_fake, .job_of = job_of, .close = close_fake};
	struct fake fakes[] = {{{&ops}, node}, {{&ops}, daemon}};
	struct top_sample *sample;
	struct feed *both;

	assert_int_equal(feed_both_open(&fakes[0].feed, &fakes[1].feed, &both, NULL), 0);
	assert_int_equal(both->ops->sample(both, 0, 0, &sample, NULL), 0);
	feed_close(both);
	return sample;
}

TEST(a_daemon_s_job_merges_with_its_ancestor)
{
	struct top_sample *node = sample_new(), *daemon = sample_new();
	struct job_sample *job = sample_add(node, SAMPLE_JOBS);

	strcpy(job->id, "1000.5");
	strcpy(job->method, "bpf");
	job->pid = 1000;
	job->share[SHARE_DEVICE] = 0.9;
	job->steps_per_s = 13;
	assert_int_equal(daemon_answer_fill(status, 1000, daemon, NULL), 0);
	((struct job_sample *)sample_add(daemon, SAMPLE_JOBS))->pid = 4;
	node = merged(node, daemon);
	assert_int_equal(node->n_jobs, 2);
	job = &node->jobs[0];
	assert_string_equal(job->id, "1000.5");
	assert_string_equal(job->method, "bpf"); /* exact shares are not replaced */
	assert_float_equal(job->share[SHARE_DEVICE], 0.9, 0);
	assert_float_equal(job->steps_per_s, 13, 0);
	assert_int_equal(job->served.prefetch_chunks, 6);
	assert_string_equal(job->served.decision, "cache-bytes 1M -> 1.5G");
	assert_int_equal(node->n_datasets, 1);
	assert_string_equal(node->daemon.state, "up");
	sample_free(node);
}

/* If the node knows no shares, the daemon's are used, and marked as the daemon's. */
TEST(merge_takes_shares)
{
	struct top_sample *node = sample_new(), *daemon = sample_new();
	struct job_sample *job = sample_add(node, SAMPLE_JOBS);

	job->pid = 1000;
	strcpy(job->remark, "only 2 steps");
	daemon_answer_fill(status, 1000, daemon, NULL);
	node = merged(node, daemon);
	assert_float_equal(node->jobs[0].share[SHARE_FETCH_STALL], 0.5, 0);
	assert_string_equal(node->jobs[0].method, "client");
	assert_string_equal(node->jobs[0].remark, "");
	sample_free(node);
}

/* A job on five nodes: one is unreachable, one slow; another user's job of that name has its own. */
TEST(nodes_of_a_job)
{
	static const char answer[] =
	    "{\"schema\": \"diesel.status/1\", \"cluster\": {\"nodes\": ["
	    "{\"node\": \"n2\", \"latency_s\": 0.004}, {\"node\": \"n3\", \"latency_s\": 0.005},"
	    "{\"node\": \"n4\", \"latency_s\": 0.0215}, {\"node\": \"n5\", \"latency_s\": null}],"
	    "\"groups\": [{\"name\": \"run-1\", \"uid\": 8, \"members\": [{\"node\": \"n1\", \"self\": "
	    "true}]},"
	    "{\"name\": \"run-1\", \"uid\": 7, \"members\": [{\"node\": \"n1\", \"self\": true, "
	    "\"unreachable\": "
	    "false},"
	    "{\"node\": \"n2\", \"unreachable\": false}, {\"node\": \"n3\", \"unreachable\": false},"
	    "{\"node\": \"n4\", \"unreachable\": false}, {\"node\": \"n5\", \"unreachable\": true}]}]},"
	    "\"jobs\": [{\"id\": 3, \"uid\": 7, \"nodes\": {\"name\": \"run-1\", \"reachable\": 4},"
	    " \"now\": {\"chunk_latency_s\": 0.02,"
	    "  \"tiers\": {\"memory\": {\"chunks_per_s\": 100, \"bytes_per_s\": 4e8},"
	    "   \"nodes\": {\"chunks_per_s\": 40, \"bytes_per_s\": 1e8, \"latency_s\": 0.006},"
	    "   \"storage\": {\"chunks_per_s\": 9, \"bytes_per_s\": null, \"latency_s\": 0.08}}}},"
	    "{\"id\": 4, \"uid\": 7, \"nodes\": null, \"now\": {\"tiers\": {\"memory\": {\"chunks_per_s\": "
	    "1}}}}]}";
	struct top_sample *node = sample_new(), *sample = sample_new();

	((struct job_sample *)sample_add(node, SAMPLE_JOBS))->pid = 1000;
	assert_int_equal(daemon_answer_fill(answer, 1000, sample, NULL), 0);
	sample->jobs[0].pid = 1234;
	node = merged(node, sample);
	const struct job_sample *job = &node->jobs[0];
	assert_int_equal(node->n_jobs, 2);
	assert_float_equal(job->served.memory_chunks_per_s, 100, 0);
	assert_float_equal(job->served.memory_bytes_per_s, 4e8, 0);
	assert_float_equal(job->served.node_chunks_per_s, 40, 0);
	assert_float_equal(job->served.node_bytes_per_s, 1e8, 0);
	assert_float_equal(job->served.node_latency_s, 0.006, 0);
	assert_float_equal(job->served.storage_chunks_per_s, 9, 0);
	assert_true(isnan(job->served.storage_bytes_per_s));
	assert_float_equal(job->served.storage_latency_s, 0.08, 0);
	assert_int_equal(job->served.n_reached, 4);
	assert_int_equal(job->served.n_members, 5);
	assert_int_equal(job->served.n_troubled, 2);
	assert_string_equal(job->served.troubled, "n4 slow (21.5 ms), n5 unreachable");
	/* Of a job on this node alone nothing of the kind is known. */
	assert_true(job[1].served.n_reached == SAMPLE_UNKNOWN && isnan(job[1].served.memory_chunks_per_s));
	sample_free(node);
}
