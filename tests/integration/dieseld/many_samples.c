/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Usage: many_samples DATASET N [BYTES [CLASSES]]: makes a dataset of N samples that are not files. Sample i
 * is classJJJJ/IIIIIIII.bin, with J = i * CLASSES / N; it has BYTES bytes, of which the first eight are i.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/writer.h"

static int add_samples(struct writer *w, uint64_t n, uint32_t bytes, uint32_t n_classes, struct error *err)
{
	unsigned char *data = calloc(1, bytes);
	int r = data ? 0 : error_errno(err, -ENOMEM, "samples");

	for (uint64_t i = 0; i < n && r == 0; i++) {
		char path[48];
		struct chunk_sample sample = {.path = path, .data = data, .bytes = bytes, .mode = 0100644};

		sample.path_length = (uint16_t)snprintf(path, sizeof(path), "class%04u/%08llu.bin",
							(unsigned)(i * n_classes / n), (unsigned long long)i);
		memcpy(data, &i, sizeof(i));
		r = writer_add(w, &sample, err);
	}
	free(data);
	return r;
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	uint32_t bytes = argc > 3 ? (uint32_t)strtoul(argv[3], NULL, 10) : 64;
	uint32_t n_classes = argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 10) : 1000;
	struct error err = ERROR_INIT;
	struct writer *w = NULL;
	struct writer_result result;
	int r;

	if (n == 0 || bytes < sizeof(n) || n_classes == 0) {
		fprintf(stderr, "usage: many_samples DATASET N [BYTES [CLASSES]], with at least 8 bytes\n");
		return 2;
	}
	r = writer_open(argv[1], WRITER_PACK, CHUNK_DEFAULT_BYTES, &w, &err);
	if (r == 0)
		r = add_samples(w, n, bytes, n_classes, &err);
	if (r == 0)
		r = writer_commit(w, &result, &err);
	writer_free(w);
	if (r < 0)
		fprintf(stderr, "%s\n", err.text);
	return r < 0;
}
