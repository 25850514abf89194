/* SPDX-License-Identifier: Apache-2.0 */
/* Samples by number, and the order computed without a session, compared with a session's batches. */
#include "tests/unit/daemon/node.h"
#include "lib/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define N_SAMPLES 61
#define ERROR     256

static struct diesel_dataset *open_dataset(const struct node *node, const char *path)
{
	struct diesel_dataset *d;
	char error[ERROR];

	if (diesel_dataset_open(path, node->socket, &d, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	return d;
}

/* Compares each batch of an epoch with the order, and each sample with a read by its number. */
static void compare_epoch(struct diesel_dataset *d, const struct diesel_session_options *options)
{
	struct diesel_session *s;
	struct diesel_order *order;
	struct diesel_batch b;
	uint64_t *samples, n = 0;
	char error[ERROR];
	int r;

	assert_int_equal(diesel_session_open(d, options, &s, error, sizeof(error)), 0);
	assert_int_equal(diesel_order_new(d, options, &order, error, sizeof(error)), 0);
	assert_int_equal(diesel_order_n_batches(order), diesel_session_n_batches(s));
	samples = calloc(diesel_order_max_batch(order), sizeof(*samples));
	while ((r = diesel_session_next(s, &b)) == 0) {
		uint32_t count;

		assert_int_equal(diesel_order_batch(order, n++, samples, &count), 0);
		assert_int_equal(count, b.n_items);
		for (uint32_t i = 0; i < count; i++) {
			struct diesel_sample_info info;
			uint8_t data[256];

			assert_int_equal(samples[i], b.items[i].sample);
			assert_int_equal(diesel_dataset_sample(d, samples[i], &info), 0);
			assert_int_equal(info.bytes, b.items[i].bytes);
			assert_int_equal(info.label, b.labels[i]);
			assert_int_equal(diesel_dataset_read(d, samples[i], data, sizeof(data), error, ERROR),
					 0);
			assert_true(is_sample(data, info.bytes, samples[i]));
		}
		diesel_batch_release(b.lease);
	}
	assert_int_equal(r, 1);
	assert_int_equal(n, diesel_order_n_batches(order));
	assert_int_equal(diesel_order_batch(order, n, samples, &(uint32_t){0}), -ERANGE);
	free(samples);
	diesel_order_free(order);
	diesel_session_close(s);
}

TEST_IN_FOLDER(it_is_what_sessions_deliver)
{
	static const struct dataset_plan plan = {
	    .n_samples = N_SAMPLES, .bytes = 64, .spread = 128, .n_a_chunk = 7};
	static const struct diesel_session_options options[] = {
	    {.world = 1, .batch = 8, .stride = 1, .window_chunks = 1},
	    {.world = 1, .batch = 8, .stride = 1, .window_chunks = 2, .flags = DIESEL_SHUFFLE, .seed = 3},
	    {.world = 3,
	     .rank = 2,
	     .batch = 4,
	     .stride = 1,
	     .window_chunks = 3,
	     .flags = DIESEL_SHUFFLE,
	     .epoch = 5},
	    {.world = 60, .rank = 7, .batch = 1, .stride = 1, .window_chunks = 1, .flags = DIESEL_SHUFFLE},
	    {.world = 2,
	     .rank = 1,
	     .batch = 9,
	     .stride = 1,
	     .window_chunks = 100,
	     .flags = DIESEL_SHUFFLE | DIESEL_DROP_LAST},
	};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct diesel_subset *subset;
	struct node node = {0};

	node_start(&node, *state);
	struct diesel_dataset *d = open_dataset(&node, path);
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		compare_epoch(d, &options[i]);
	for (uint64_t step = 1; step < 12; step += 5) {
		struct diesel_session_options part = options[step % 3];

		assert_int_equal(diesel_subset_slice(d, NULL, 3, 58, step, &subset), 0);
		part.subset = subset;
		compare_epoch(d, &part);
		diesel_subset_free(subset);
	}
	diesel_dataset_close(d);
	node_stop(&node);
}

TEST_IN_FOLDER(subsets_that_no_session_has)
{
	static const struct dataset_plan plan = {.n_samples = N_SAMPLES, .bytes = 64, .n_a_chunk = 7};
	static const struct {
		uint64_t n_samples;
		uint64_t bits;
		const char *says;
	} table[] = {{N_SAMPLES, 0, "has no samples"},
		     {N_SAMPLES + 1, 5, "belongs to another dataset"},
		     {N_SAMPLES, 5, "2 samples, too few"}};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct diesel_subset *subset = NULL;
	struct node node = {0};

	node_start(&node, *state);
	struct diesel_dataset *d = open_dataset(&node, path);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct diesel_session *s;
		char error[ERROR];

		assert_int_equal(diesel_subset_load(table[i].n_samples, &table[i].bits, &subset), 0);
		const struct diesel_session_options options = {.world = 3, .batch = 1, .subset = subset};

		assert_int_equal(diesel_session_open(d, &options, &s, error, sizeof(error)), -EINVAL);
		if (!strstr(error, table[i].says))
			fail_msg("\"%s\" does not say: %s", error, table[i].says);
		diesel_subset_free(subset);
	}
	assert_int_equal(diesel_subset_load(3, &(uint64_t){8}, &subset), -EINVAL);
	assert_int_equal(diesel_subset_slice(d, NULL, 0, N_SAMPLES + 1, 1, &subset), -ERANGE);
	assert_int_equal(diesel_subset_slice(d, NULL, 0, 1, 0, &subset), -ERANGE);
	assert_int_equal(diesel_subset_select(d, NULL, (uint64_t[]){N_SAMPLES}, 1, &subset), -ERANGE);
	diesel_dataset_close(d);
	node_stop(&node);
}

/* Once the dataset is open, no request goes to the daemon. */
TEST_IN_FOLDER(without_the_daemon)
{
	static const struct dataset_plan plan = {.n_samples = N_SAMPLES, .bytes = 64, .n_a_chunk = 7};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct node node = {0};
	int64_t labels[N_SAMPLES];
	uint8_t data[64];

	node_start(&node, *state);
	struct diesel_dataset *d = open_dataset(&node, path);
	node_stop(&node);
	assert_int_equal(diesel_dataset_labels(d, labels), 0);
	for (uint64_t i = 0; i < N_SAMPLES; i++) {
		assert_int_equal(labels[i], 0);
		assert_int_equal(diesel_dataset_read(d, i, data, sizeof(data), NULL, 0), 0);
		assert_true(is_sample(data, sizeof(data), i));
	}
	diesel_dataset_close(d);
}

static void fails(struct diesel_dataset *d, uint64_t sample, size_t size, int code, const char *says)
{
	char error[ERROR] = "";
	uint8_t data[64];

	assert_int_equal(diesel_dataset_read(d, sample, data, size, error, sizeof(error)), code);
	if (!strstr(error, says))
		fail_msg("\"%s\" does not say: %s", error, says);
}

static char *only_chunk(const char *dataset)
{
	char *folder = path_in(dataset, "chunks"), *path = NULL;
	DIR *dir = opendir(folder);

	assert_non_null(dir);
	for (const struct dirent *e; (e = readdir(dir));) {
		if (e->d_name[0] != '.')
			path = path_in(folder, e->d_name);
	}
	closedir(dir);
	free(folder);
	assert_non_null(path);
	return path;
}

TEST_IN_FOLDER(what_cannot_be_read_is_named)
{
	static const struct dataset_plan plan = {.n_samples = N_SAMPLES, .bytes = 64, .n_a_chunk = N_SAMPLES};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan), *chunk = only_chunk(path);
	struct node node = {0};
	char half[1 << 16];

	node_start(&node, *state);
	struct diesel_dataset *d = open_dataset(&node, path);
	node_stop(&node);
	fails(d, N_SAMPLES, 64, -ERANGE, "has no sample 61");
	fails(d, 0, 63, -EINVAL, "c/00000");
	assert_int_equal(chmod(chunk, 0600), 0);
	int fd = open(chunk, O_RDWR);
	memset(half, 0xff, sizeof(half));
	assert_true(pwrite(fd, half, sizeof(half), lseek(fd, 0, SEEK_END) / 2) > 0);
	close(fd);
	fails(d, N_SAMPLES - 1, 64, -EBADMSG, "sample 'c/00060'");
	assert_int_equal(unlink(chunk), 0);
	fails(d, 0, 64, -ENOENT, ".chunk");
	diesel_dataset_close(d);
}

TEST_IN_FOLDER(orders_that_no_session_has)
{
	static const struct dataset_plan plan = {.n_samples = N_SAMPLES, .bytes = 64, .n_a_chunk = 7};
	static const struct diesel_session_options options[] = {
	    {.world = 1, .batch = 8},
	    {.world = 0, .batch = 8, .window_chunks = 1},
	    {.world = 1, .rank = 1, .batch = 8, .window_chunks = 1},
	    {.world = 1, .batch = 0, .window_chunks = 1},
	    {.world = N_SAMPLES + 1, .batch = 1, .window_chunks = 1},
	};
	_cleanup_(freep) char *path = make_dataset(*state, "data", &plan);
	struct node node = {0};

	node_start(&node, *state);
	struct diesel_dataset *d = open_dataset(&node, path);
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		struct diesel_order *order;
		char error[ERROR];

		assert_int_equal(diesel_order_new(d, &options[i], &order, error, sizeof(error)), -EINVAL);
		assert_non_null(strstr(error, path));
	}
	diesel_dataset_close(d);
	node_stop(&node);
}
