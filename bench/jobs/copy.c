/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the speed of copying only: samples of BYTES from MIB of memory, in random order, by memcpy() into
 * arrays of BATCH samples. One thread per core does nothing else.
 *
 *	copy MIB BYTES BATCH SECONDS
 *
 * Prints, as JSON, samples and seconds.
 */
#define _DEFAULT_SOURCE /* madvise() */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MAX_THREADS 256
#define ARRAYS      8 /* arrays that are filled in turn, like dieseld's batches */
#define HUGE_PAGE   ((size_t)2 << 20)

static const uint8_t *data;
static size_t n_samples, sample_bytes, batch;
static double seconds;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void *run(void *argument)
{
	uint64_t state = (uint64_t)(uintptr_t)argument + 1, n = 0;
	uint8_t *arrays = malloc(ARRAYS * batch * sample_bytes);
	double begin = now();

	if (!arrays)
		exit(1);
	while (now() - begin < seconds) {
		uint8_t *to = arrays + n / batch % ARRAYS * batch * sample_bytes;

		for (size_t i = 0; i < batch; i++, n++)
			memcpy(to + i * sample_bytes, data + draw(&state) % n_samples * sample_bytes,
			       sample_bytes);
	}
	free(arrays);
	return (void *)(uintptr_t)n;
}

int main(int argc, char **argv)
{
	long n_threads = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t threads[MAX_THREADS];
	uint64_t n = 0;
	size_t bytes;
	uint8_t *all;
	double begin;

	if (argc != 5 || n_threads < 1 || n_threads > MAX_THREADS)
		return 2;
	bytes = (size_t)strtoul(argv[1], NULL, 10) << 20;
	sample_bytes = strtoul(argv[2], NULL, 10);
	batch = strtoul(argv[3], NULL, 10);
	seconds = strtod(argv[4], NULL);
	n_samples = bytes / sample_bytes;
	all = aligned_alloc(HUGE_PAGE, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
	if (!all || n_samples == 0 || batch == 0)
		return 1;
	(void)madvise(all, bytes, MADV_HUGEPAGE);
	memset(all, 1, bytes);
	data = all;
	begin = now();
	for (long i = 0; i < n_threads; i++)
		if (pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i))
			return 1;
	for (long i = 0; i < n_threads; i++) {
		void *copied;

		pthread_join(threads[i], &copied);
		n += (uintptr_t)copied;
	}
	printf("{\"samples\": %llu, \"seconds\": %.6f}\n", (unsigned long long)n, now() - begin);
	free(all);
	return 0;
}
