/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gets batches of dieseld through libdiesel, as any program in C does.
 *
 *	serve DATASET BATCH SECONDS packed|views
 *
 * It runs one epoch that is not counted as warm, then epochs for SECONDS. It reads the first byte of each
 * sample, and its number. It prints, as JSON, seconds to the first batch and of the first epoch, and
 * samples and seconds of the later epochs. For batches that were ready it prints their number, and the 50th
 * and 99th percentile of the time that diesel_session_next() took, in microseconds.
 */
#include "client/diesel.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TIMES_MAX (UINT32_C(1) << 22) /* maximum number of times kept: the first ones */

static float times_us[TIMES_MAX];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int by_size(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;

	return (x > y) - (x < y);
}

static uint64_t look(const struct diesel_batch *b)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < b->n_items; i++)
		sum += b->items[i].sample +
		       *(b->packed ? b->packed + (size_t)i * b->item_bytes : b->items[i].data);
	return sum;
}

static void fail(const char *line)
{
	fprintf(stderr, "serve: %s\n", line);
	exit(1);
}

int main(int argc, char **argv)
{
	struct diesel_session_options options = {
	    .seed = 1, .world = 1, .stride = 1, .flags = DIESEL_SHUFFLE, .reconnect_ms = 10000};
	uint64_t n = 0, sum = 0;
	uint32_t n_times = 0;
	struct diesel_dataset *dataset;
	struct diesel_session *session;
	struct diesel_batch batch;
	double begin, first = 0, epoch, seconds;
	char error[512];
	int r;

	if (argc != 5)
		fail("usage: serve DATASET BATCH SECONDS packed|views");
	options.batch = (uint32_t)strtoul(argv[2], NULL, 10);
	seconds = strtod(argv[3], NULL);
	if (strcmp(argv[4], "views") == 0)
		options.flags |= DIESEL_VIEWS;
	begin = now();
	if (diesel_dataset_open(argv[1], NULL, &dataset, error, sizeof(error)) < 0 ||
	    diesel_session_open(dataset, &options, &session, error, sizeof(error)) < 0)
		fail(error);
	while ((r = diesel_session_next(session, &batch)) == 0) {
		if (first == 0)
			first = now() - begin;
		sum += look(&batch);
		diesel_batch_release(batch.lease);
	}
	if (r < 0)
		fail(diesel_session_error(session));
	epoch = now() - begin;
	begin = now();
	while (now() - begin < seconds) {
		int is_ready = diesel_session_ready(session) > 0;
		double asked = now(), got;

		r = diesel_session_next(session, &batch);
		got = now();
		if (r == 1)
			continue;
		if (r < 0)
			fail(diesel_session_error(session));
		sum += look(&batch);
		n += batch.n_items;
		if (is_ready && n_times < TIMES_MAX)
			times_us[n_times++] = (float)((got - asked) * 1e6);
		diesel_batch_release(batch.lease);
	}
	seconds = now() - begin;
	if (n_times == 0)
		fail("no batch was ready when requested");
	qsort(times_us, n_times, sizeof(times_us[0]), by_size);
	printf("{\"first_s\": %.6f, \"epoch_s\": %.6f, \"samples\": %" PRIu64 ", \"seconds\": %.6f, "
	       "\"n_ready\": %u, \"ready_p50_us\": %.2f, \"ready_p99_us\": %.2f, \"sum\": %" PRIu64 "}\n",
	       first, epoch, n, seconds, n_times, (double)times_us[n_times / 2],
	       (double)times_us[(size_t)n_times * 99 / 100], sum);
	diesel_session_close(session);
	diesel_dataset_close(dataset);
	return 0;
}
