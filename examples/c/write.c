/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a dataset of samples from memory: a thousand small arrays of numbers, in ten classes.
 *
 *	write DATASET
 *
 *	cc -O2 -o write write.c $(pkg-config --cflags --libs diesel)
 */
#include <diesel/diesel.h>

#include <errno.h>
#include <stdio.h>

#define N_SAMPLES 1000
#define N_NUMBERS 256

static void fill(float *numbers, int sample)
{
	for (int i = 0; i < N_NUMBERS; i++)
		numbers[i] = (float)(sample % 10) + (float)i / N_NUMBERS;
}

static int put_all(struct diesel_writer *writer, char *error, size_t error_size)
{
	float numbers[N_NUMBERS];
	char path[64];
	int r = 0;

	for (int i = 0; i < N_SAMPLES && r == 0; i++) {
		int length = snprintf(path, sizeof(path), "class%d/%04d.raw", i % 10, i);
		struct diesel_sample sample = {path, (size_t)length, numbers, sizeof(numbers), NULL};

		fill(numbers, i);
		do /* interrupted by a signal, whose handler has run and could have requested a stop */
			r = diesel_writer_put(writer, &sample, error, error_size);
		while (r == -EINTR);
	}
	return r;
}

int main(int argc, char **argv)
{
	struct diesel_writer *writer;
	char error[512];
	uint64_t version = 0;
	int r;

	if (argc != 2) {
		fprintf(stderr, "usage: write DATASET\n");
		return 2;
	}
	r = diesel_writer_open(argv[1], NULL, &writer, error, sizeof(error));
	if (r == 0) {
		r = put_all(writer, error, sizeof(error));
		if (r == 0)
			r = diesel_writer_commit(writer, &version, error, sizeof(error));
		diesel_writer_free(writer); /* removes samples that are not committed */
	}
	if (r < 0) {
		fprintf(stderr, "write: %s\n", error);
		return 1;
	}
	printf("%s: %d samples, version %llu\n", argv[1], N_SAMPLES, (unsigned long long)version);
	return 0;
}
