/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <math.h>
#include <string.h>

#include "analyzer/result/advice.h"
#include "lib/clock.h"
#include "analyzer/replay/native.h"

#define CPUS 4

/* Makes a job of 100 s with these percentages in fetch and prep. The rest is the device's. */
static struct analysis job(enum analysis_loader loader, unsigned int fetch, unsigned int prep)
{
	struct analysis analysis = {.job.loader = loader,
				    .job.method = METHOD_REPLAY,
				    .window.observed_ns = 100 * NS_PER_S,
				    .n_steps = 1000,
				    .job.n_cpus = CPUS};

	analysis.share_ns[SHARE_FETCH_STALL] = fetch * NS_PER_S;
	analysis.share_ns[SHARE_PREP_STALL] = prep * NS_PER_S;
	analysis.share_ns[SHARE_DEVICE] = (100 - fetch - prep) * NS_PER_S;
	memcpy(analysis.steady.share_ns, analysis.share_ns, sizeof(analysis.share_ns));
	analysis.steady.ns = analysis.window.observed_ns;
	analysis.job.busy_ns = analysis.window.observed_ns;
	return analysis;
}

static const struct analysis_action *advise(struct analysis *analysis, const char *words)
{
	advice_verdict(analysis);
	advice_actions(analysis);
	for (size_t i = 0; i < analysis->n_actions; i++)
		if (strstr(analysis->actions[i].text, words))
			return &analysis->actions[i];
	return NULL;
}

/* Predictions for all points of five actions. */
struct five {
	struct what_if_point cache, workers[2];
	struct profile profile;
	struct predictions predictions;
};

static void five_make(struct five *five, struct predictions predictions)
{
	*five = (struct five){
	    .cache = {.x = 1, .speedup = {1.31, 1.21, 1.41}},
	    .workers = {{.x = 1, .speedup = {1, 1, 1}}, {.x = 2, .speedup = {1.52, 1.42, 1.62}}},
	    .profile = {.n_samples = 1000, .images = {.n_decode = 700, .n_codec = 500}},
	    .predictions = predictions};
	five->predictions.curves[WHAT_IF_CACHE] =
	    (struct what_if_curve){.points = &five->cache, .n_points = 1, .here = 0};
	five->predictions.curves[WHAT_IF_WORKERS] =
	    (struct what_if_curve){.points = five->workers, .n_points = 2, .here = 1};
	five->predictions.persistent_speedup = (struct estimate){1.12, 1.11, 1.13};
	five->predictions.half_prep_speedup = (struct estimate){1.24, 1.22, 1.26};
	five->predictions.native.speedup = (struct estimate){1.83, 1.73, 1.93};
}

/* Returns predictions that know nothing of any change. */
static struct predictions no_predictions(void)
{
	const struct estimate unknown = {NAN, NAN, NAN};

	return (struct predictions){.half_prep_speedup = unknown,
				    .persistent_speedup = unknown,
				    .cache_ratio_needed = unknown,
				    .storage_factor_needed = unknown,
				    .workers_needed = unknown};
}

/* Half the computing per batch makes no job more than twice as fast, however long it waits. */
TEST(half_is_worth_two_at_most)
{
	for (unsigned int prep = 10; prep < 100; prep++) {
		struct analysis analysis = job(LOADER_WORKERS, 0, prep);
		const struct analysis_action *action = advise(&analysis, "by half");

		assert_non_null(action);
		assert_true(action->gain_max > 1 && action->gain_max <= 2);
	}
}

TEST(a_job_that_prepares_in_the_trainer)
{
	struct analysis analysis = job(LOADER_DIESEL, 0, 77);

	analysis.parts.own_prep_ns = 75 * NS_PER_S;
	const struct analysis_action *action = advise(&analysis, "num_workers=\"auto\"");
	assert_ptr_equal(action, &analysis.actions[0]);
	/* The device's 23 s remain, and preparing on all cores. */
	assert_true(action->gain_max > 3.9 && action->gain_max <= CPUS);
	/* The trainer waits for its workers, which prepare. */
	analysis = job(LOADER_DIESEL, 0, 77);
	analysis.parts.own_prep_ns = 10 * NS_PER_S;
	assert_null(advise(&analysis, "num_workers"));
	/* There is no core for more workers. */
	analysis = job(LOADER_DIESEL, 0, 77);
	analysis.parts.own_prep_ns = 75 * NS_PER_S;
	analysis.job.n_cpus = 1;
	assert_null(advise(&analysis, "num_workers"));
}

TEST(workers_are_those_of_the_what_if)
{
	struct what_if_point points[] = {{.x = 1, .speedup = {1, 0.9, 1.1}},
					 {.x = 2, .speedup = {1.6, 1.4, 1.8}}};
	struct predictions predictions = no_predictions();
	struct analysis analysis = job(LOADER_WORKERS, 0, 60);

	predictions.curves[WHAT_IF_WORKERS] =
	    (struct what_if_curve){.points = points, .n_points = 2, .here = 1};
	analysis.predictions = &predictions;
	analysis.workers.n = analysis.workers.n_at_once = 2;
	assert_non_null(advise(&analysis, "Use 2 workers instead of 1"));
	/* More workers would not help. */
	points[1].speedup = (struct estimate){1, 0.9, 1.1};
	analysis = job(LOADER_WORKERS, 0, 60);
	analysis.predictions = &predictions;
	assert_null(advise(&analysis, "instead of"));
}

TEST(what_the_model_says_is_in_vain_is_no_advice)
{
	struct what_if_point cache = {.x = 1, .speedup = {1.001, 0.98, 1.02}};
	struct predictions predictions = no_predictions();
	struct analysis analysis = job(LOADER_WORKERS, 30, 40);

	predictions.curves[WHAT_IF_CACHE] =
	    (struct what_if_curve){.points = &cache, .n_points = 1, .here = 0};
	predictions.half_prep_speedup = (struct estimate){1.01, 0.99, 1.02};
	analysis.predictions = &predictions;
	assert_null(advise(&analysis, "in memory"));
	assert_null(advise(&analysis, "Make"));
	cache.speedup = (struct estimate){1.4, 1.3, 1.5};
	analysis = job(LOADER_WORKERS, 30, 40);
	analysis.predictions = &predictions;
	assert_non_null(advise(&analysis, "memory"));
}

/* Cores that other ranks use are not idle. */
TEST(idle_cores_are_those_of_the_whole_job)
{
	struct analysis analysis = job(LOADER_WORKERS, 0, 50);

	analysis.workers.n = analysis.workers.n_at_once = 1;
	assert_non_null(advise(&analysis, "3.0 of 4 cores were idle"));
	analysis = job(LOADER_WORKERS, 0, 50);
	analysis.workers.n = analysis.workers.n_at_once = 1;
	analysis.job.busy_ns = 4 * analysis.window.observed_ns;
	assert_null(advise(&analysis, "were idle"));
	assert_non_null(advise(&analysis, "all cores are busy"));
}

TEST(workers_that_stay)
{
	struct predictions predictions = no_predictions();
	struct analysis analysis = job(LOADER_WORKERS, 0, 50);

	predictions.persistent_speedup = (struct estimate){1.33, 1.2, 1.4};
	analysis.predictions = &predictions;
	const struct analysis_action *action = advise(&analysis, "persistent_workers=True");
	assert_ptr_equal(action, &analysis.actions[0]);
	assert_true(action->gain.value == 1.33);
	predictions.persistent_speedup = (struct estimate){1.01, 1, 1.02};
	analysis = job(LOADER_WORKERS, 0, 50);
	analysis.predictions = &predictions;
	assert_null(advise(&analysis, "persistent_workers"));
}

TEST(the_part_of_images)
{
	struct profile profile = {.n_samples = 1000};
	struct estimate part;

	assert_true(isnan(native_part(NULL).value));
	assert_true(isnan(native_part(&profile).value)); /* without images, the part is unknown, not zero */
	profile.images = (struct profile_images){.n_decode = 600, .n_codec = 400, .n_transform = 200};
	part = native_part(&profile);
	assert_float_equal(part.value, 0.8, 1e-9);
	assert_true(part.low > 0.77 && part.low < 0.8 && part.high > 0.8 && part.high < 0.83);
	/* Transforms that stay in Python may come before the others, so the part may be smaller. */
	profile.images.n_foreign = 10;
	part = native_part(&profile);
	assert_float_equal(part.value, 0.8, 1e-9);
	assert_true(part.low < 0.6 && part.high > 0.8);
	/* Pillow decodes, but kinds of images that dieseld does not decode. */
	profile.images.n_codec = 10;
	assert_true(isnan(native_part(&profile).value));
	/* There are too few samples for a result. */
	profile.images = (struct profile_images){.n_decode = 90, .n_codec = 90};
	assert_true(isnan(native_part(&profile).value));
	profile = (struct profile){.n_samples = 19, .images = {.n_decode = 19, .n_codec = 19}};
	assert_true(isnan(native_part(&profile).value));
	assert_float_equal(native_cost(0.8, 4), 0.4, 1e-9);
}

TEST(images_that_dieseld_could_decode)
{
	struct profile profile = {.n_samples = 1000, .images = {.n_decode = 700, .n_codec = 500}};
	struct predictions predictions = no_predictions();
	struct analysis analysis = job(LOADER_WORKERS, 0, 80);

	/* The kind of preparing is unknown. */
	assert_null(advise(&analysis, "native"));
	analysis = job(LOADER_WORKERS, 0, 80);
	analysis.profile = &profile;
	const struct analysis_action *action = advise(&analysis, "dieselctl pack");
	assert_ptr_equal(action, &analysis.actions[0]);
	assert_int_equal(action->confidence, CONFIDENCE_LOW);
	assert_true(action->gain.value == 0 && action->gain_max > 4.9 && action->gain_max < 5.1);
	/* The estimate is narrow, but comes from other jobs, so the gain is never certain. */
	analysis = job(LOADER_WORKERS, 0, 80);
	predictions.native.speedup = (struct estimate){3, 2.9, 3.1};
	analysis.predictions = &predictions;
	analysis.profile = &profile;
	action = advise(&analysis, "native");
	assert_true(action->gain.value == 3);
	assert_int_equal(action->confidence, CONFIDENCE_MEDIUM);
	predictions.native.speedup = (struct estimate){1.01, 0.9, 1.1};
	analysis = job(LOADER_WORKERS, 0, 80);
	analysis.predictions = &predictions;
	analysis.profile = &profile;
	assert_null(advise(&analysis, "native"));
	/* dieseld serves the job, and could do more. */
	analysis = job(LOADER_DIESEL, 0, 80);
	analysis.profile = &profile;
	assert_null(advise(&analysis, "dieselctl pack"));
	analysis = job(LOADER_DIESEL, 0, 80);
	analysis.profile = &profile;
	assert_non_null(advise(&analysis, "native=False"));
	/* dieseld already does all preparing that it can. */
	analysis = job(LOADER_DIESEL, 0, 80);
	analysis.parts.daemon_prep_ns = 60 * NS_PER_S;
	assert_non_null(advise(&analysis, "Give dieseld more cores"));
	analysis.n_actions = 0;
	assert_null(advise(&analysis, "Make data preparation cheaper"));
	/* The job waits for other nodes, not for storage. */
	analysis = job(LOADER_DIESEL, 40, 0);
	assert_non_null(advise(&analysis, "larger cache"));
	analysis = job(LOADER_DIESEL, 40, 0);
	analysis.parts.peers_ns = analysis.share_ns[SHARE_FETCH_STALL];
	assert_non_null(advise(&analysis, "dieselctl cluster status"));
	analysis.n_actions = 0;
	analysis.parts.peers_ns = analysis.share_ns[SHARE_FETCH_STALL];
	assert_null(advise(&analysis, "larger cache"));
	/* The job waits mostly for fetching. */
	analysis = job(LOADER_WORKERS, 40, 2);
	analysis.profile = &profile;
	assert_null(advise(&analysis, "native"));
}

/* With more actions than are shown, each has its own figure, and the most certain one comes first. */
TEST(each_action_has_its_own_prediction)
{
	static const struct {
		const char *words;
		double value;
	} own[] = {{"in memory", 1.31},          {"Make reading", 1.31}, {"instead of 1", 1.52},
		   {"persistent_workers", 1.12}, {"by half", 1.24},      {"native", 1.83}};
	static const unsigned int shares[][2] = {{30, 40}, {40, 30}, {5, 5}, {5, 80}, {80, 5}};
	struct five five;

	for (size_t i = 0; i < sizeof(shares) / sizeof(shares[0]); i++) {
		struct analysis analysis = job(LOADER_WORKERS, shares[i][0], shares[i][1]);

		five_make(&five, no_predictions());
		analysis.predictions = &five.predictions;
		analysis.profile = &five.profile;
		analysis.workers.n = analysis.workers.n_at_once = 1;
		advise(&analysis, "");
		assert_int_equal(analysis.n_actions, ANALYSIS_ACTIONS_MAX);
		for (size_t a = 0; a < analysis.n_actions; a++) {
			size_t found = 0;

			for (size_t k = 0; k < sizeof(own) / sizeof(own[0]); k++)
				if (strstr(analysis.actions[a].text, own[k].words)) {
					assert_float_equal(analysis.actions[a].gain.value, own[k].value,
							   1e-9);
					found++;
				}
			assert_int_equal(found, 1);
			assert_true(!a || analysis.actions[a].gain.low <= analysis.actions[a - 1].gain.low);
		}
		assert_non_null(strstr(analysis.actions[0].text, "native"));
	}
}

/* An action that may gain nothing comes last, and is never the only one. */
TEST(a_gain_that_may_be_none_comes_last)
{
	struct analysis analysis = job(LOADER_WORKERS, 60, 20);
	struct five five;

	five_make(&five, no_predictions());
	five.cache.speedup = (struct estimate){1.9, 0.95, 2.4};
	analysis.predictions = &five.predictions;
	advise(&analysis, "");
	assert_int_equal(analysis.n_actions, ANALYSIS_ACTIONS_MAX);
	for (size_t a = 0; a < analysis.n_actions; a++)
		assert_true(analysis.actions[a].gain.low > 1);
	five.predictions.persistent_speedup = five.predictions.half_prep_speedup =
	    (struct estimate){NAN, NAN, NAN};
	five.predictions.curves[WHAT_IF_WORKERS].n_points = 0;
	five.predictions.half_prep_speedup = (struct estimate){1, 1, 1};
	analysis = job(LOADER_WORKERS, 60, 20);
	analysis.predictions = &five.predictions;
	assert_ptr_equal(advise(&analysis, "memory"), &analysis.actions[1]);
	assert_non_null(strstr(analysis.actions[0].text, "Record longer"));
	assert_int_equal(analysis.actions[1].confidence, CONFIDENCE_LOW);
}

TEST(busy_cores_do_not_limit_the_gain_of_fewer_workers)
{
	struct what_if_point points[] = {{.x = 1, .speedup = {1.5, 1.4, 1.6}},
					 {.x = 2, .speedup = {1, 1, 1}}};
	struct predictions predictions = no_predictions();
	struct analysis analysis = job(LOADER_WORKERS, 0, 60);

	predictions.curves[WHAT_IF_WORKERS] =
	    (struct what_if_curve){.points = points, .n_points = 2, .here = 2};
	analysis.predictions = &predictions;
	analysis.workers.n = analysis.workers.n_at_once = 2;
	analysis.job.busy_ns = CPUS * analysis.window.observed_ns;
	assert_float_equal(advise(&analysis, "Use 1 worker instead of 2")->gain.value, 1.5, 1e-9);
}

TEST(a_sampled_bound_is_called_about_right)
{
	struct analysis analysis = job(LOADER_INLINE, 0, 47);

	analysis.sampled.is = true;
	analysis.sampled.error[SHARE_PREP_STALL] = 0.1;
	analysis.steady.share_ns[SHARE_OTHER] = analysis.share_ns[SHARE_OTHER] = 5 * NS_PER_S;
	const struct analysis_action *action = advise(&analysis, "Load in the background");
	assert_non_null(action);
	assert_float_equal(action->gain_max, 1 / (1 - 0.62), 1e-6);
	assert_true(action->about);
	analysis = job(LOADER_INLINE, 0, 47);
	action = advise(&analysis, "Load in the background");
	assert_float_equal(action->gain_max, 1 / (1 - 0.47), 1e-6);
	assert_false(action->about);
}

/* Each kind of data gets the advice that fits dieselctl pack. */
TEST(what_pack_does_not_take_is_not_packed)
{
	static const struct {
		const char *path, *wanted;
	} kinds[] = {{"/data/train-00000-of-00100.parquet",
		      "in Parquet files, so import them with dieselctl pack parquet:"},
		     {"/data/shard-000001.tar", "index them in place with dieselctl index"},
		     {"/data/imagenet.lmdb/data.mdb", "in LMDB files, so index them in place"},
		     {"/data/train.h5", "in HDF5 files, so write its samples"},
		     {"/data/shard.00012.mds", "in shards of MosaicML Streaming, so index them"},
		     {"/data/tokens.bin", "each file one sample"}};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		for (int predicted = 0; predicted < 2; predicted++) {
			struct page_cache_place files[] = {
			    {.path = (char *)kinds[i].path, .used_bytes = 8000},
			    {.path = (char *)"/usr/lib/a.py", .used_bytes = 1000}};
			struct page_cache cache = {.used_bytes = 9000, .files = files, .n_files = 2};
			struct analysis analysis = job(LOADER_WORKERS, 60, 20);
			struct five five;

			five_make(&five, no_predictions());
			analysis.page_cache = &cache;
			analysis.predictions = predicted ? &five.predictions : NULL;
			analysis.profile = &five.profile;
			assert_non_null(advise(&analysis, kinds[i].wanted));
			for (size_t a = 0; a < analysis.n_actions; a++) {
				assert_null(strstr(analysis.actions[a].text, "pack it"));
				assert_true(strlen(analysis.actions[a].text) + 1 <
					    sizeof(analysis.actions[a].text));
			}
		}
}

/* A small LMDB is read less than libraries and the shared memory of workers. */
TEST(data_are_told_apart_from_libraries)
{
	static const char *const others[] = {"/usr/lib/libtorch.so", "/usr/lib/libc.so.6", "/dev/shm/torch_1",
					     "/usr/lib/a.cpython-311.pyc"};

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		struct page_cache_place files[] = {
		    {.path = (char *)others[i], .used_bytes = 15000, .cold_bytes = 15000},
		    {.path = (char *)"/data/a.lmdb/data.mdb", .used_bytes = 10000, .cold_bytes = 2000}};
		struct page_cache cache = {
		    .used_bytes = 25000, .cold_bytes = 17000, .files = files, .n_files = 2};
		struct analysis analysis = job(LOADER_WORKERS, 60, 20);

		analysis.page_cache = &cache;
		assert_non_null(advise(&analysis, "in LMDB files, so index them in place"));
	}
}

TEST(files_of_one_sample_are_packed)
{
	struct page_cache_place files[] = {{.path = (char *)"/data/n01/1.JPEG", .used_bytes = 1000},
					   {.path = (char *)"/data/n01/2.JPEG", .used_bytes = 1000},
					   {.path = (char *)"/data/index.parquet", .used_bytes = 500}};
	struct page_cache cache = {.used_bytes = 90000, .files = files, .n_files = 3};
	struct analysis analysis = job(LOADER_WORKERS, 60, 20);

	analysis.page_cache = &cache;
	assert_non_null(advise(&analysis, "dieseld: pack it (dieselctl pack)"));
	/* The kind of data that is read is unknown. */
	analysis = job(LOADER_WORKERS, 60, 20);
	assert_non_null(advise(&analysis, "if each file is one sample, pack it"));
}

/* A lock is not a core. More processes help, more cores do not. */
TEST(the_interpreter_lock)
{
	struct analysis analysis = job(LOADER_THREADS, 0, 10);

	analysis.share_ns[SHARE_DEVICE] -= 40 * NS_PER_S;
	analysis.share_ns[SHARE_CPU_STARVED] = 40 * NS_PER_S;
	memcpy(analysis.steady.share_ns, analysis.share_ns, sizeof(analysis.share_ns));
	analysis.parts.gil_starved_ns = 38 * NS_PER_S;
	const struct analysis_action *action = advise(&analysis, "processes instead of threads");
	assert_ptr_equal(action, &analysis.actions[0]);
	assert_float_equal(action->gain_max, 1 / (1 - 0.38), 1e-6);
	assert_null(strstr(analysis.actions[1].text, "Keep a core free"));
	/* Workers are processes, and each has an interpreter lock of its own. */
	analysis = job(LOADER_WORKERS, 0, 50);
	analysis.parts.gil_ns = 40 * NS_PER_S;
	assert_null(advise(&analysis, "interpreter lock"));
	analysis = job(LOADER_THREADS, 0, 50);
	analysis.parts.gil_ns = 40 * NS_PER_S;
	assert_ptr_equal(advise(&analysis, "processes instead of threads"), &analysis.actions[0]);
	analysis = job(LOADER_NONE, 0, 0);
	analysis.share_ns[SHARE_CPU_STARVED] = analysis.steady.share_ns[SHARE_CPU_STARVED] = 40 * NS_PER_S;
	analysis.parts.gil_starved_ns = 2 * NS_PER_S;
	assert_null(advise(&analysis, "interpreter lock"));
	analysis.n_actions = 0;
	assert_non_null(advise(&analysis, "Keep a core free"));
}

/* Threads that hardly ran cannot have taken the trainer's core, even if nobody else is known to have it. */
TEST(cores_that_nobody_is_known_to_have)
{
	struct analysis analysis = job(LOADER_NONE, 0, 0);

	analysis.share_ns[SHARE_DEVICE] -= 80 * NS_PER_S;
	analysis.share_ns[SHARE_CPU_STARVED] = 80 * NS_PER_S;
	memcpy(analysis.steady.share_ns, analysis.share_ns, sizeof(analysis.share_ns));
	analysis.parts.neighbours_ns = 30 * NS_PER_S;
	analysis.parts.own_threads_ns = 3 * NS_PER_S;
	assert_non_null(advise(&analysis, "the recording does not show what occupied it"));
	assert_non_null(strstr(analysis.note, "for 3 % the job's own threads occupied it, for 30 % other "
					      "processes, for 47 % it is not known what did"));
	analysis.parts.own_threads_ns = 50 * NS_PER_S;
	analysis.n_actions = 0;
	assert_non_null(advise(&analysis, "the job's own workers and threads occupied it"));
}

/* Transforms of torchvision were seen, but none that dieseld runs. */
TEST(images_whose_transforms_stay_in_python)
{
	struct profile profile = {.n_samples = 1000,
				  .images = {.n_decode = 700, .n_codec = 500, .n_foreign = 200}};
	struct analysis analysis = job(LOADER_WORKERS, 0, 80);

	analysis.profile = &profile;
	assert_null(advise(&analysis, "native"));
	profile.images.n_transform = 100;
	analysis = job(LOADER_WORKERS, 0, 80);
	analysis.profile = &profile;
	assert_non_null(advise(&analysis, "loader.plan() supports"));
}

/* Percentages of a job of 100 s. */
struct verdict_case {
	unsigned int prep, device, starved, gil, other, asleep;
	bool blind;
	double computing_part;
	enum analysis_verdict verdict;
	const char *note;
};

static void check_verdict(const struct verdict_case *c)
{
	struct analysis analysis = job(c->blind ? LOADER_NONE : LOADER_WORKERS, 0, c->prep);

	analysis.share_ns[SHARE_DEVICE] = c->device * NS_PER_S;
	analysis.share_ns[SHARE_CPU_STARVED] = c->starved * NS_PER_S;
	analysis.share_ns[SHARE_OTHER] = c->other * NS_PER_S;
	memcpy(analysis.steady.share_ns, analysis.share_ns, sizeof(analysis.share_ns));
	analysis.parts.gil_starved_ns = c->gil * NS_PER_S;
	analysis.parts.asleep_ns = c->asleep * NS_PER_S;
	analysis.job.blind = c->blind;
	analysis.parts.computing_part = c->computing_part;
	advice_verdict(&analysis);
	assert_int_equal(analysis.verdict, c->verdict);
	if (c->note && !strstr(analysis.note, c->note))
		fail_msg("no \"%s\" in \"%s\"", c->note, analysis.note);
}

/* The verdict is never "device-bound" if the device has less than half of the time, or its time is
 * unknown. */
TEST(verdicts_that_are_not_the_device_s)
{
	static const struct verdict_case cases[] = {
	    {5, 90, 5, 0, 0, 0, false, NAN, ANALYSIS_DEVICE_BOUND, NULL},
	    {4, 8, 79, 0, 9, 0, false, NAN, ANALYSIS_CPU_STARVED, NULL},
	    {16, 8, 76, 0, 0, 0, false, NAN, ANALYSIS_CPU_STARVED, NULL},
	    {14, 43, 41, 0, 2, 0, false, NAN, ANALYSIS_CPU_STARVED, NULL},
	    {0, 14, 16, 0, 70, 70, false, NAN, ANALYSIS_UNCLEAR, "on purpose"},
	    {0, 25, 75, 70, 0, 0, false, NAN, ANALYSIS_LOCK_BOUND, "interpreter lock"},
	    {0, 60, 40, 39, 0, 0, false, NAN, ANALYSIS_DEVICE_BOUND, "interpreter lock"},
	    {40, 30, 30, 0, 0, 0, false, NAN, ANALYSIS_PREP_BOUND, NULL},
	    {23, 52, 25, 0, 0, 0, false, NAN, ANALYSIS_PREP_BOUND, NULL},
	    {0, 4, 14, 0, 82, 0, false, NAN, ANALYSIS_UNCLEAR, "py-spy"},
	    {20, 10, 0, 0, 70, 0, false, NAN, ANALYSIS_UNCLEAR, "py-spy"},
	    {60, 10, 0, 0, 30, 0, false, NAN, ANALYSIS_PREP_BOUND, NULL},
	    {2, 18, 0, 0, 80, 80, false, NAN, ANALYSIS_UNCLEAR, "on purpose"},
	    {50, 20, 0, 0, 30, 30, false, NAN, ANALYSIS_PREP_BOUND, "on purpose"},
	    {0, 25, 0, 0, 75, 75, true, NAN, ANALYSIS_UNCLEAR, "on purpose"},
	    {0, 75, 0, 0, 25, 25, true, NAN, ANALYSIS_UNCLEAR, "does not show how"},
	    {0, 100, 0, 0, 0, 0, true, NAN, ANALYSIS_UNCLEAR, "does not show how"},
	    {0, 100, 0, 0, 0, 0, true, 0.3, ANALYSIS_UNCLEAR, "does not show how"},
	    {0, 100, 0, 0, 0, 0, true, 0.95, ANALYSIS_DEVICE_BOUND, NULL},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		check_verdict(&cases[i]);
}

/* A lock that takes less time than the threshold for stalls still limits a job that is lock-bound. */
TEST(a_lock_that_binds_comes_first)
{
	struct predictions predictions = {.half_prep_speedup = {1.05, 1.04, 1.06}};
	struct analysis analysis = job(LOADER_WORKERS, 0, 10);

	analysis.share_ns[SHARE_DEVICE] = 60 * NS_PER_S;
	analysis.share_ns[SHARE_CPU_STARVED] = 20 * NS_PER_S;
	memcpy(analysis.steady.share_ns, analysis.share_ns, sizeof(analysis.share_ns));
	analysis.parts.gil_starved_ns = 14 * NS_PER_S;
	analysis.predictions = &predictions;
	analysis.verdict = ANALYSIS_LOCK_BOUND;
	advice_actions(&analysis);
	assert_non_null(strstr(analysis.actions[0].text, "interpreter lock"));
}

/* A loop of the job's own has no num_workers, so the job needs a DataLoader first. */
TEST(a_loader_of_the_job_s_own)
{
	struct five five;
	struct analysis analysis = job(LOADER_INLINE, 0, 50);

	assert_non_null(advise(&analysis, "background: num_workers=1"));
	analysis = job(LOADER_INLINE, 0, 50);
	analysis.parts.waits_sampled = true;
	assert_non_null(advise(&analysis, "background, by a DataLoader with num_workers=1"));
	five_make(&five, no_predictions());
	five.predictions.curves[WHAT_IF_WORKERS].here = 0;
	analysis = job(LOADER_INLINE, 0, 50);
	analysis.predictions = &five.predictions;
	analysis.job.blind = true;
	assert_non_null(advise(&analysis, "background, by a DataLoader with num_workers=2"));
}

/* Time that was not observed may be waiting. So the advice claims neither that there is nothing to gain, nor
 * a maximum. */
TEST(an_unclear_job_is_looked_at_first)
{
	struct analysis analysis = job(LOADER_NONE, 0, 0);

	analysis.job.blind = true;
	analysis.parts.computing_part = NAN;
	advice_verdict(&analysis);
	advice_actions(&analysis);
	assert_int_equal(analysis.verdict, ANALYSIS_UNCLEAR);
	assert_int_equal(analysis.n_actions, 1);
	assert_null(strstr(analysis.actions[0].text, "Nothing to gain"));
	assert_non_null(strstr(analysis.actions[0].text, "py-spy"));
	assert_float_equal(analysis.actions[0].gain_max, 0, 0);
	/* The observed waits are no bound. */
	analysis = job(LOADER_INLINE, 0, 10);
	analysis.share_ns[SHARE_OTHER] = analysis.steady.share_ns[SHARE_OTHER] = 60 * NS_PER_S;
	assert_true(advise(&analysis, "Load in the background")->about);
	analysis = job(LOADER_WORKERS, 0, 0);
	analysis.share_ns[SHARE_OTHER] = analysis.steady.share_ns[SHARE_OTHER] = 70 * NS_PER_S;
	analysis.share_ns[SHARE_DEVICE] = analysis.steady.share_ns[SHARE_DEVICE] = 30 * NS_PER_S;
	analysis.parts.asleep_ns = 70 * NS_PER_S;
	assert_non_null(advise(&analysis, "sleeps on purpose"));
}

/* A save costs 200 ms, of which the trainer waits for `await_ms`. */
static bool trains_on(uint64_t await_ms)
{
	struct analysis analysis = job(LOADER_WORKERS, 0, 0);
	struct checkpoint_report report = {
	    .n_items = 100, .n_background = 100, .n_costs = 99, .cost_ns = 200.0 * NS_PER_MS};

	report.cause_ns[CHECKPOINT_AWAIT] = (double)(await_ms * NS_PER_MS);
	analysis.checkpoints = &report;
	analysis.share_ns[SHARE_CHECKPOINT_STALL] = 20 * NS_PER_S;
	analysis.share_ns[SHARE_DEVICE] -= 20 * NS_PER_S;
	memcpy(analysis.steady.share_ns, analysis.share_ns, sizeof(analysis.share_ns));
	return advise(&analysis, "Train on while a checkpoint is staged or written: waiting for that is ");
}

TEST(waits_for_a_save_are_to_be_overlapped)
{
	assert_true(trains_on(150));
	assert_false(trains_on(30));
}
