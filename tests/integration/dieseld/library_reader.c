/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that uses only libdiesel: library_reader DATASET SOCKET
 *
 * Prints one line per sample, "NUMBER LABEL HEX": first by number, read by a thread with the C library's own
 * stack size, then in the order of one epoch that the daemon serves.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/diesel.h"

static char error[512];

static void fail(const char *what, int r)
{
	fprintf(stderr, "%s: %d: %s\n", what, r, error);
	exit(1);
}

static void print(uint64_t number, int32_t label, const uint8_t *data, uint32_t bytes)
{
	printf("%llu %d ", (unsigned long long)number, (int)label);
	for (uint32_t i = 0; i < bytes; i++)
		printf("%02x", data[i]);
	putchar('\n');
}

static void *read_all(void *user)
{
	struct diesel_dataset *dataset = user;
	struct diesel_dataset_info info;
	struct diesel_sample_info sample;
	uint8_t *buffer;
	int r;

	diesel_dataset_info(dataset, &info);
	buffer = malloc(info.max_bytes + 1);
	for (uint64_t i = info.n_samples; i-- > 0;) {
		r = diesel_dataset_sample(dataset, i, &sample);
		if (r == 0)
			r = diesel_dataset_read(dataset, i, buffer, info.max_bytes, error, sizeof(error));
		if (r < 0)
			fail("a sample by number", r);
		print(i, sample.label, buffer, sample.bytes);
	}
	free(buffer);
	return NULL;
}

static void serve_all(struct diesel_dataset *dataset)
{
	const struct diesel_session_options options = {
	    .seed = 1, .flags = DIESEL_SHUFFLE, .world = 1, .batch = 7, .stride = 1, .reconnect_ms = 10000};
	struct diesel_session *session;
	struct diesel_batch batch;
	int r = diesel_session_open(dataset, &options, &session, error, sizeof(error));

	if (r < 0)
		fail("a session", r);
	while ((r = diesel_session_next(session, &batch)) == 0) {
		for (uint32_t i = 0; i < batch.n_items; i++) {
			const struct diesel_item *item = &batch.items[i];

			print(item->sample, item->label,
			      batch.packed ? batch.packed + (size_t)i * batch.item_bytes : item->data,
			      item->bytes);
		}
		diesel_batch_release(batch.lease);
	}
	if (r < 0)
		fail("a batch", r);
	diesel_session_close(session);
}

int main(int argc, char **argv)
{
	struct diesel_dataset *dataset;
	pthread_t thread;
	char *status;
	int r;

	if (argc != 3)
		return 2;
	r = diesel_dataset_open(argv[1], argv[2], &dataset, error, sizeof(error));
	if (r < 0)
		fail("the dataset", r);
	if (pthread_create(&thread, NULL, read_all, dataset) != 0 || pthread_join(thread, NULL) != 0)
		return 1;
	serve_all(dataset);
	r = diesel_status(argv[2], &status, error, sizeof(error));
	if (r < 0)
		fail("the status", r);
	free(status);
	diesel_dataset_close(dataset);
	return fflush(stdout) != 0;
}
