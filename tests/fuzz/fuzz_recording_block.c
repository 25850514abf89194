/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a block of a recording. The block is refused, or its events can be packed into a
 * block again. The checksum would stop nearly every mutation, so the plain columns are fuzzed, too. The
 * input's first bit chooses. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "analyzer/trace/recording_codec.h"

#define PLAIN_MAX 65536

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(struct recording_codec *codec, const void *block, size_t size)
{
	struct event *events = NULL, *again = NULL;
	const void *packed;
	size_t n, n_again, packed_size;

	if (recording_codec_decode(codec, block, size, &events, &n))
		return;
	if (recording_codec_encode(codec, events, n, &packed, &packed_size) ||
	    recording_codec_decode(codec, packed, packed_size, &again, &n_again) || n != n_again ||
	    memcmp(events, again, n * sizeof(*events)) != 0)
		abort();
	free(events);
	free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t block[8 + PLAIN_MAX * 2];
	struct recording_codec *codec;
	size_t n;

	if (size < 3 || size > PLAIN_MAX)
		return 0;
	codec = recording_codec_new();
	if (!codec)
		return 0;
	if (data[0] & 1) {
		decode(codec, data + 1, size - 1);
	} else {
		memcpy(block, "DLE1", 4);
		block[4] = data[1];
		block[5] = data[2];
		block[6] = block[7] = 0;
		n = ZSTD_compress(block + 8, sizeof(block) - 8, data + 3, size - 3, 1);
		if (!ZSTD_isError(n))
			decode(codec, block, 8 + n);
	}
	recording_codec_free(codec);
	return 0;
}
