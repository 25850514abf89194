/* SPDX-License-Identifier: Apache-2.0 */
/* The reason for which a batch waits, which the client passes to diesel-analyze. */
#include "tests/unit/test.h"

#include "daemon/serve/batch.h"
#include "daemon/cache/cached_dataset.h"

#define N_CHUNKS 4

static struct cached_chunk chunks[N_CHUNKS];
static uint32_t numbers[N_CHUNKS] = {0, 1, 2, 3};

static enum batch_wait check(void)
{
	struct cached_dataset d = {.chunks = chunks};
	struct batch b = {.chunks = numbers, .n_chunks = N_CHUNKS};

	return batch_check(&b, &d, 0);
}

TEST(what_comes_from_afar_counts)
{
	for (size_t i = 0; i < N_CHUNKS; i++)
		chunks[i] = (struct cached_chunk){.state = CHUNK_READY};
	assert_int_equal(check(), BATCH_READY);
	chunks[3].state = CHUNK_VERIFYING;
	assert_int_equal(check(), BATCH_VERIFY);
	chunks[0] = (struct cached_chunk){.state = CHUNK_READING, .from = CHUNK_FROM_STAGING};
	assert_int_equal(check(), BATCH_STAGING);
	chunks[1] = (struct cached_chunk){.state = CHUNK_READING, .from = CHUNK_FROM_NODE};
	assert_int_equal(check(), BATCH_PEERS);
	/* The chunk is absent, and being read from storage. */
	chunks[0].from = CHUNK_FROM_STORAGE;
	assert_int_equal(check(), BATCH_FETCH);
	chunks[0] = (struct cached_chunk){.state = CHUNK_ABSENT};
	assert_int_equal(check(), BATCH_FETCH);
	/* A ready chunk is not looked for at its old source. */
	chunks[0] = (struct cached_chunk){.state = CHUNK_READY, .from = CHUNK_FROM_NODE};
	chunks[1].state = CHUNK_READY;
	assert_int_equal(check(), BATCH_VERIFY);
}
