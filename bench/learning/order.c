/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The samples of all ranks' batches, by the rules of dataset/shuffle.h and nothing else.
 *
 *	order CHUNKS SEED EPOCHS WINDOW LANES DRIFT WORLD BATCH
 *
 * CHUNKS: a file with a line "SAMPLES KEY" for each chunk. Prints 32-bit numbers in the machine's byte
 * order: the batches of a step rank after rank, step after step, epoch after epoch from 0 on. Only full
 * steps.
 */
#include <stdio.h>
#include <stdlib.h>

#include "dataset/shuffle.h"

#define MAX_CHUNKS 1000000
#define MAX_WORLD  4096

static uint32_t chunk_samples[MAX_CHUNKS];
static uint64_t keys[MAX_CHUNKS], base[MAX_CHUNKS];
static struct shuffle_plan *plans[MAX_WORLD];

static uint64_t chunks_read(const char *path)
{
	FILE *file = fopen(path, "r");
	unsigned long long key;
	uint64_t n = 0;

	if (!file)
		return 0;
	while (n < MAX_CHUNKS && fscanf(file, "%u %llu", &chunk_samples[n], &key) == 2)
		keys[n++] = key;
	fclose(file);
	return n;
}

static int step_print(uint64_t step, uint32_t world, uint64_t *samples)
{
	uint32_t n;

	for (uint32_t rank = 0; rank < world; rank++) {
		int r = shuffle_batch(plans[rank], step, samples, &n);

		for (uint32_t i = 0; r == 0 && i < n; i++) {
			uint32_t number = (uint32_t)samples[i];

			fwrite(&number, sizeof(number), 1, stdout);
		}
		if (r < 0)
			return r;
	}
	return 0;
}

static int epoch_print(struct shuffle_spec *spec, uint64_t *samples)
{
	uint64_t n_steps = 0;
	int r = 0;

	for (spec->rank = 0; r == 0 && spec->rank < spec->world; spec->rank++)
		r = shuffle_plan_new(spec, &plans[spec->rank]);
	if (r == 0)
		n_steps = shuffle_n_batches(plans[0]);
	for (uint64_t step = 0; r == 0 && step < n_steps; step++)
		r = step_print(step, spec->world, samples);
	for (uint32_t rank = 0; rank < spec->world; rank++) {
		shuffle_plan_free(plans[rank]);
		plans[rank] = NULL;
	}
	return r;
}

int main(int argc, char **argv)
{
	uint64_t number[8] = {0};

	for (int i = 2; i < argc && i < 9; i++)
		number[i - 2] = strtoull(argv[i], NULL, 10);
	struct shuffle_spec spec = {.chunk_samples = chunk_samples,
				    .n_chunks = argc == 9 ? chunks_read(argv[1]) : 0,
				    .seed = number[0],
				    .window_chunks = (uint32_t)number[2],
				    .shuffle = true,
				    .lanes = (uint32_t)number[3],
				    .drift = (uint32_t)number[4],
				    .world = (uint32_t)number[5],
				    .batch = (uint32_t)number[6],
				    .drop_last = true,
				    .base = base};
	uint64_t *samples = calloc(spec.batch + 1, sizeof(*samples));
	int r = !samples || spec.n_chunks == 0 || spec.world > MAX_WORLD;

	if (r == 0)
		r = shuffle_base_list(keys, spec.n_chunks, base);
	for (; r == 0 && spec.epoch < number[1]; spec.epoch++)
		r = epoch_print(&spec, samples);
	free(samples);
	if (r != 0)
		fprintf(stderr, "order: no such order\n");
	return r != 0 || fflush(stdout) != 0;
}
