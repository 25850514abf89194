/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an answer with decoded forms, once as they are, and once with the checksum that they should
 * have: who lies can make that. What is taken for forms lies in the answer, and was asked for. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "peers/form_answer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct net_range runs[] = {{0, 4}, {100, 1}, {1000, UINT32_MAX - 1001}};

static void try(const uint8_t *data, size_t size, const struct checksum_128 *key)
{
	int n = form_answer_check(data, size, key, runs, 3);
	uint64_t end = 0, next = 0;

	for (int i = 0; i < n; i++) {
		struct form_answer_entry e = form_answer_entry(data, (uint32_t)i);

		if (e.offset < end || e.offset + e.bytes > size || e.sample < next ||
		    (e.sample >= 4 && e.sample != 100 && e.sample < 1000))
			abort();
		end = e.offset + e.bytes;
		next = (uint64_t)e.sample + 1;
		(void)form_answer_is_whole(data, &e);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct checksum_128 key = {.low = 1, .high = 2};
	struct form_answer_head head;
	uint8_t *copy;

	try(data, size, &key);
	if (size < sizeof(head))
		return 0;
	copy = malloc(size);
	if (!copy)
		return 0;
	memcpy(copy, data, size);
	memcpy(&head, data, sizeof(head));
	if (head.n > FORM_ANSWER_MAX || form_answer_first(head.n) > size)
		head.n = 0;
	form_answer_head_fill(&head, &key, (const struct form_answer_entry *)(copy + sizeof(head)), head.n);
	memcpy(copy, &head, sizeof(head));
	try(copy, size, &key);
	free(copy);
	return 0;
}
