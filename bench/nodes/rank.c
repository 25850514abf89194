/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank of a job over several nodes, in step with the others as in data-parallel training.
 *
 *	rank DATASET RANK WORLD BATCH EPOCHS NAME STEPS LANES DRIFT
 *
 * NAME "": its daemon shares nothing with others. STEPS: a file that all ranks map, for the barrier between
 * steps. Before each epoch it waits for a character, or the end, of its input. Prints a line of JSON for each
 * epoch.
 */
#include "client/diesel.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define STEPS_A_BARRIER 16 /* real steps take longer than the steps of this program */

static struct steps {
	_Atomic uint64_t arrived;
	_Atomic bool failed;
} * steps; /* shared by all ranks */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void fail(const char *line)
{
	fprintf(stderr, "rank: %s\n", line);
	if (steps)
		atomic_store(&steps->failed, true);
	exit(1);
}

static void wait_for_all(uint64_t round, uint32_t world)
{
	atomic_fetch_add(&steps->arrived, 1);
	while (atomic_load(&steps->arrived) < round * world) {
		if (atomic_load(&steps->failed))
			fail("another rank failed");
		usleep(50);
	}
}

int main(int argc, char **argv)
{
	struct diesel_session_options options = {.seed = 1,
						 .stride = 1,
						 .flags = DIESEL_SHUFFLE | DIESEL_VIEWS | DIESEL_DROP_LAST,
						 .reconnect_ms = 10000};
	struct diesel_dataset *dataset;
	struct diesel_session *session;
	struct diesel_batch batch;
	char error[512];
	uint64_t round = 0, sum = 0;
	void *shared;
	int fd, n_epochs;

	if (argc != 10)
		fail("usage: rank DATASET RANK WORLD BATCH EPOCHS NAME STEPS LANES DRIFT");
	options.rank = (uint32_t)strtoul(argv[2], NULL, 10);
	options.world = options.nodes = (uint32_t)strtoul(argv[3], NULL, 10);
	options.batch = (uint32_t)strtoul(argv[4], NULL, 10);
	n_epochs = atoi(argv[5]);
	options.cluster = argv[6];
	options.lanes = (uint32_t)strtoul(argv[8], NULL, 10);
	options.drift = (uint32_t)strtoul(argv[9], NULL, 10);
	fd = open(argv[7], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, 4096) < 0)
		fail("cannot create the file of the barrier");
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED)
		fail("cannot map the file of the barrier");
	steps = shared;
	if (diesel_dataset_open(argv[1], NULL, &dataset, error, sizeof(error)) < 0 ||
	    diesel_session_open(dataset, &options, &session, error, sizeof(error)) < 0)
		fail(error);
	for (int e = 0; e < n_epochs; e++) {
		uint64_t n = 0, n_batches = 0;
		double begin;
		int r;

		getchar();
		begin = now();
		while ((r = diesel_session_next(session, &batch)) == 0 || r == -EINTR) {
			if (r < 0)
				continue; /* the connection to the daemon was lost or restored */
			for (uint32_t i = 0; i < batch.n_items; i++)
				sum += batch.items[i].sample + *batch.items[i].data;
			n += batch.n_items;
			diesel_batch_release(batch.lease);
			if (++n_batches % STEPS_A_BARRIER == 0)
				wait_for_all(++round, options.world);
		}
		if (r < 0)
			fail(diesel_session_error(session));
		wait_for_all(++round, options.world);
		printf("{\"samples\": %" PRIu64 ", \"seconds\": %.6f, \"sum\": %" PRIu64 "}\n", n,
		       now() - begin, sum);
		fflush(stdout);
	}
	diesel_session_close(session);
	diesel_dataset_close(dataset);
	return 0;
}
