/* SPDX-License-Identifier: Apache-2.0 */
#include "support_dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/writer.h"

static void add_sample(struct writer *w, uint64_t i, uint32_t class_index, uint32_t bytes)
{
	uint64_t *data = malloc(bytes);
	char path[32];
	const struct chunk_sample sample = {
	    .path = path,
	    .path_length =
		(size_t)snprintf(path, sizeof(path), "%c/%05u", (int)('c' + class_index), (unsigned)i),
	    .data = data,
	    .bytes = bytes,
	    .mode = 0100644};

	assert_non_null(data);
	for (uint32_t k = 0; k < bytes / 8; k++)
		data[k] = i;
	assert_int_equal(writer_add(w, &sample, NULL), 0);
	free(data);
}

static uint32_t bytes_of(const struct dataset_plan *plan, uint64_t i)
{
	if (plan->giant && i == plan->n_samples - 1)
		return plan->giant;
	return plan->bytes + (plan->spread ? (uint32_t)(i * 7919 % plan->spread) / 8 * 8 : 0);
}

char *make_dataset(const char *folder, const char *name, const struct dataset_plan *plan)
{
	char *path = path_in(folder, name);
	struct error err = ERROR_INIT;
	struct writer_result result;
	struct writer *w;

	if (writer_open(path, WRITER_PACK, CHUNK_MIN_BYTES, &w, &err) < 0 ||
	    (plan->digests && writer_keep_digests(w, &err) < 0))
		fail_msg("%s", err.text);
	for (uint64_t i = 0; i < plan->n_samples; i++) {
		add_sample(w, i, (uint32_t)(i * plan->n_classes / plan->n_samples), bytes_of(plan, i));
		if (plan->n_a_chunk && (i + 1) % plan->n_a_chunk == 0)
			assert_int_equal(writer_flush(w, NULL), 0);
	}
	if (writer_commit(w, &result, &err) < 0)
		fail_msg("%s", err.text);
	writer_free(w);
	return path;
}

bool is_sample(const void *data, uint64_t bytes, uint64_t i)
{
	for (uint64_t k = 0; k < bytes; k += 8) {
		uint64_t word;

		memcpy(&word, (const uint8_t *)data + k, sizeof(word));
		if (word != i)
			return false;
	}
	return bytes > 0;
}
