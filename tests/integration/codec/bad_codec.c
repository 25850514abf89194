/* SPDX-License-Identifier: Apache-2.0 */
/* A codec for tests. If a sample begins with 0xff, it misbehaves as its options say; otherwise it copies
 * 16 bytes. */
#include <diesel/diesel_codec.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef ABI
#define ABI DIESEL_CODEC_ABI
#endif
#ifndef CODEC_NAME
#define CODEC_NAME "bad"
#endif
#ifdef NO_SYMBOL
#undef DIESEL_CODEC
#define DIESEL_CODEC diesel_codec_v0
#endif

#define BYTES 16

static volatile int for_ever = 1;

static int is(const void *state, const char *what)
{
	return strcmp(state, what) == 0;
}

static int bad_open(const char *options, struct diesel_codec_output *output, void **state,
		    struct diesel_codec_error *error)
{
	*output = (struct diesel_codec_output){
	    .type = DIESEL_CODEC_UINT8, .n_dimensions = 2, .dimensions = {2, BYTES / 2}};
	*state = strdup(options);
	if (is(options, "open-crash"))
		abort();
	while (is(options, "open-hang") && for_ever)
		;
	if (is(options, "open-nonsense"))
		output->n_dimensions = 77;
	if (is(options, "open-other"))
		return 5;
	if (is(options, "open-refuse")) {
		snprintf(error->text, sizeof(error->text), "no such\noption");
		return -EINVAL;
	}
	return 0;
}

static int bad_decode(void *state, const struct diesel_codec_sample *sample, void *out,
		      struct diesel_codec_error *error)
{
	if (sample->bytes > BYTES)
		return -E2BIG;
	memcpy(out, sample->data, sample->bytes);
	if (is(state, "memory")) {
		void *large = malloc(64 << 20);

		memset(large, 1, 64 << 20);
		free(large);
	}
	if (sample->data[0] != 0xff)
		return 0;
	if (is(state, "crash"))
		abort();
	while (is(state, "hang") && for_ever)
		;
	if (is(state, "beyond"))
		((volatile char *)out)[BYTES + 3] = 1;
	if (is(state, "far-beyond"))
		((volatile char *)out)[BYTES + 4096] = 1;
	if (is(state, "before"))
		((volatile char *)out)[-1] = 1;
	if (is(state, "file"))
		return open("/etc/passwd", O_RDONLY) < 0 ? -errno : 0;
	if (is(state, "thread"))
		return fork() < 0 ? -errno : 0;
	if (is(state, "other"))
		return 7;
	if (is(state, "refuse")) {
		snprintf(error->text, sizeof(error->text), "it begins with 0xff");
		return -EBADMSG;
	}
	return 0;
}

#ifdef UNDEFINED
extern int nobody_has_this(void);
int bad_use(void);
int bad_use(void)
{
	return nobody_has_this();
}
#endif

const struct diesel_codec DIESEL_CODEC = {
    .abi = ABI,
    .bytes = sizeof(struct diesel_codec),
    .name = CODEC_NAME,
    .open = bad_open,
    .decode = bad_decode,
};
