/* SPDX-License-Identifier: Apache-2.0 */
#include "form_answer.h"

#include <errno.h>
#include <string.h>

#include "codec.h"

static uint64_t align(uint64_t offset)
{
	return (offset + CODEC_FORM_ALIGN - 1) / CODEC_FORM_ALIGN * CODEC_FORM_ALIGN;
}

uint64_t form_answer_first(uint32_t n)
{
	return align(sizeof(struct form_answer_head) + (uint64_t)n * sizeof(struct form_answer_entry));
}

uint64_t form_answer_next(uint64_t offset, uint32_t bytes)
{
	return align(offset + bytes);
}

/* Of the head and the entries, which need not lie behind it. */
static uint64_t table_sum(struct form_answer_head head, const void *entries, uint32_t n)
{
	uint64_t sums[2];

	head.xxh3 = 0;
	sums[0] = checksum_xxh3(&head, sizeof(head));
	sums[1] = checksum_xxh3(entries, (size_t)n * sizeof(struct form_answer_entry));
	return checksum_xxh3(sums, sizeof(sums));
}

void form_answer_head_fill(struct form_answer_head *head, const struct checksum_128 *key,
			   const struct form_answer_entry *entries, uint32_t n)
{
	*head = (struct form_answer_head){
	    .magic = FORM_ANSWER_MAGIC, .version = FORM_ANSWER_VERSION, .n = n, .key = *key};
	head->xxh3 = table_sum(*head, entries, n);
}

struct form_answer_entry form_answer_entry(const uint8_t *data, uint32_t i)
{
	struct form_answer_entry e;

	memcpy(&e, data + sizeof(struct form_answer_head) + (size_t)i * sizeof(e), sizeof(e));
	return e;
}

bool form_answer_is_whole(const uint8_t *data, const struct form_answer_entry *entry)
{
	return checksum_xxh3(data + entry->offset, entry->bytes) == entry->xxh3;
}

static bool head_fits(const struct form_answer_head *head, const uint8_t *data, uint64_t bytes,
		      const struct checksum_128 *key)
{
	return memcmp(head->magic, FORM_ANSWER_MAGIC, sizeof(head->magic)) == 0 &&
	       head->version == FORM_ANSWER_VERSION && head->n > 0 && head->n <= FORM_ANSWER_MAX &&
	       form_answer_first(head->n) <= bytes && head->key.low == key->low &&
	       head->key.high == key->high && table_sum(*head, data + sizeof(*head), head->n) == head->xxh3;
}

/* Whether the sample is among the runs from *at on. They and the samples are in order. */
static bool was_asked(uint32_t sample, const struct net_range *runs, uint32_t n_runs, uint32_t *at)
{
	while (*at < n_runs && sample >= (uint64_t)runs[*at].offset + runs[*at].bytes)
		(*at)++;
	return *at < n_runs && sample >= runs[*at].offset;
}

int form_answer_check(const uint8_t *data, uint64_t bytes, const struct checksum_128 *key,
		      const struct net_range *runs, uint32_t n_runs)
{
	struct form_answer_head head;
	uint64_t free_from, next_sample = 0;
	uint32_t run = 0;

	if (bytes < sizeof(head))
		return -EBADMSG;
	memcpy(&head, data, sizeof(head));
	if (!head_fits(&head, data, bytes, key))
		return -EBADMSG;
	free_from = form_answer_first(head.n);
	for (uint32_t i = 0; i < head.n; i++) {
		struct form_answer_entry e = form_answer_entry(data, i);

		if (e.sample < next_sample || !was_asked(e.sample, runs, n_runs, &run) || e.bytes == 0 ||
		    e.offset < free_from || e.offset % CODEC_FORM_ALIGN != 0 || e.offset > bytes ||
		    e.bytes > bytes - e.offset)
			return -EBADMSG;
		next_sample = (uint64_t)e.sample + 1;
		free_from = e.offset + e.bytes;
	}
	return (int)head.n;
}
