/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A codec for WAV files of 16-bit PCM, of any rate: float32 [length], from -1 to 1, the mean of the channels.
 * A longer recording is cut to a part that differs in each epoch, and a shorter one is padded with zeros.
 *
 * Options: length=N, the number of values (default 16000).
 *
 *	cc -O2 -shared -fPIC -o wav.so wav.c
 */
#include <diesel/diesel_codec.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LENGTH (1u << 24)

struct wav {
	const uint8_t *frames;
	uint64_t n_frames;
	uint32_t n_channels;
};

static int say(struct diesel_codec_error *error, int code, const char *text)
{
	snprintf(error->text, sizeof(error->text), "%s", text);
	return code;
}

static uint32_t number(const uint8_t *at, int bytes)
{
	uint32_t value = 0;

	for (int i = bytes; i > 0; i--)
		value = value << 8 | at[i - 1];
	return value;
}

/* A RIFF file is "RIFF", its length, "WAVE", and then chunks. Each is a name of 4 bytes, a length, and
 * that many bytes. */
static int parse(const uint8_t *data, uint64_t bytes, struct wav *ret, struct diesel_codec_error *error)
{
	uint32_t n_channels = 0;

	if (bytes < 12 || memcmp(data, "RIFF", 4) != 0 || memcmp(data + 8, "WAVE", 4) != 0)
		return say(error, -EBADMSG, "not a WAV file");
	for (uint64_t at = 12; at + 8 <= bytes;) {
		uint64_t length = number(data + at + 4, 4), left = bytes - at - 8;
		const uint8_t *piece = data + at + 8;

		if (memcmp(data + at, "fmt ", 4) == 0 && length >= 16 && length <= left) {
			n_channels = number(piece + 2, 2);
			if (number(piece, 2) != 1 || number(piece + 14, 2) != 16 || n_channels == 0)
				return say(error, -EBADMSG, "WAV file, but not 16-bit PCM");
		}
		if (memcmp(data + at, "data", 4) == 0 && n_channels) {
			if (length > left)
				return say(error, -EBADMSG, "the audio data is truncated");
			ret->frames = piece;
			ret->n_channels = n_channels;
			ret->n_frames = length / (2 * n_channels);
			return 0;
		}
		at += 8 + length + (length & 1);
	}
	return say(error, -EBADMSG, "no audio data");
}

static int wav_open(const char *options, struct diesel_codec_output *output, void **state,
		    struct diesel_codec_error *error)
{
	unsigned long length = 16000;
	char *end = NULL;

	if (strncmp(options, "length=", 7) == 0)
		length = strtoul(options + 7, &end, 10);
	if (*options && (!end || end == options + 7 || *end || length < 1 || length > MAX_LENGTH))
		return say(error, -EINVAL, "invalid options: must be length=N, with N from 1 to 16777216");
	output->type = DIESEL_CODEC_FLOAT32;
	output->n_dimensions = 1;
	output->dimensions[0] = (uint32_t)length;
	*state = malloc(sizeof(uint64_t));
	if (!*state)
		return say(error, -ENOMEM, "no memory");
	*(uint64_t *)*state = length;
	return 0;
}

static int wav_decode(void *state, const struct diesel_codec_sample *sample, void *out,
		      struct diesel_codec_error *error)
{
	uint64_t length = *(const uint64_t *)state, first = 0, n;
	float *values = out;
	struct wav wav;
	int r = parse(sample->data, sample->bytes, &wav, error);

	if (r < 0)
		return r;
	if (wav.n_frames > length)
		first = sample->seed % (wav.n_frames - length + 1);
	n = wav.n_frames < length ? wav.n_frames : length;
	for (uint64_t i = 0; i < n; i++) {
		const uint8_t *frame = wav.frames + 2 * wav.n_channels * (first + i);
		float sum = 0;

		for (uint32_t c = 0; c < wav.n_channels; c++)
			sum += (float)(int16_t)number(frame + 2 * c, 2);
		values[i] = sum / (32768.0f * (float)wav.n_channels);
	}
	return 0; /* the rest of the output is zero already */
}

const struct diesel_codec DIESEL_CODEC = {
    .abi = DIESEL_CODEC_ABI,
    .bytes = sizeof(struct diesel_codec),
    .name = "wav",
    .open = wav_open,
    .decode = wav_decode,
};
