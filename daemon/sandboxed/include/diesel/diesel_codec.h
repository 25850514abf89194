/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A codec of one's own: a shared object from which dieseld decodes samples of a format that it does not know.
 * It is C11 with C linkage, needs this header alone, and links nothing of DIESEL's:
 *
 *	cc -O2 -shared -fPIC -o wav.so wav.c
 *
 * It exports one symbol, DIESEL_CODEC: a struct diesel_codec. The operator names the file to dieseld (--codec
 * PATH), training jobs name the codec (diesel_loader.codec("wav")). docs/how-to/codecs.md has an example.
 *
 * What it makes of a sample is a pure function of (options, the sample's bytes, its seed): not of time, of
 * other samples, or of what it was asked before. Batches are prepared by several processes, in any order, and
 * more than once.
 *
 * Where it runs. Each process serves one session, has one thread, and is ended by a signal when it is not
 * needed: there is nothing to close. The file is loaded with all its symbols bound; its constructors run with
 * the rights of dieseld's user, and without capabilities. What they allocate or read stays. Then the process
 * is locked up for good: from open() on it can compute, use memory (malloc and all that is made of it, half a
 * gigabyte in all) and read the clock. Anything else ends it: files, printing, local time, threads, locks
 * that wait, processes, signals, the network. C++ is fine, exceptions too, as long as they do not leave a
 *function of the codec. A process that has more than 16 MiB from malloc is ended and replaced after some 50
 *ms of work.
 *
 * What goes wrong. A sample that decode() refuses is damaged: its batch is an error that names it, or goes on
 * without it, as the job says. So is one at which processes end (crash, abort, a forbidden call), which takes
 * more than 10 s of CPU time, or writes beyond `out`. The process is replaced, and nobody else notices.
 *open() has 5 s of CPU time.
 *
 * Versions. `abi` says which version of this header a codec was made with, and the symbol's name ends in it.
 * dieseld loads the versions it knows, and refuses others by name. Within a version, nothing changes.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DIESEL_CODEC_ABI            1u
#define DIESEL_CODEC                diesel_codec_v1
#define DIESEL_CODEC_MAX_DIMENSIONS 7

/* Types of numbers, in the machine's byte order. */
enum diesel_codec_type {
	DIESEL_CODEC_UINT8 = 0,
	DIESEL_CODEC_FLOAT32 = 1,
	DIESEL_CODEC_FLOAT16 = 2,  /* IEEE 754's binary16 */
	DIESEL_CODEC_BFLOAT16 = 3, /* the upper half of a float32 */
	DIESEL_CODEC_INT8 = 4,
	DIESEL_CODEC_INT16 = 5,
	DIESEL_CODEC_INT32 = 6,
	DIESEL_CODEC_INT64 = 7,
	DIESEL_CODEC_FLOAT64 = 8,
};

/* What every sample becomes: an array in C order. */
struct diesel_codec_output {
	uint32_t type;                                    /* enum diesel_codec_type */
	uint32_t n_dimensions;                            /* 0: a single number */
	uint32_t dimensions[DIESEL_CODEC_MAX_DIMENSIONS]; /* each at least 1; all together at most 1 GiB */
};

struct diesel_codec_sample {
	const uint8_t *data; /* as it is stored; not aligned, not terminated, and not to be written to */
	uint64_t bytes;
	uint64_t seed; /* for all that is to be random: other in each epoch, the same whoever asks */
};

/* A line of text that says what is wrong: what, where. Its user gets it, with the sample's path. */
struct diesel_codec_error {
	char text[240]; /* terminated; "" to begin with */
};

struct diesel_codec {
	uint32_t abi;     /* DIESEL_CODEC_ABI */
	uint32_t bytes;   /* sizeof(struct diesel_codec) */
	const char *name; /* 1 to 31 small letters, digits, or -_. behind the first one */

	/*
	 * Called once in a process. options: the user's text, "" where there is none; UTF-8, at most 447
	 * bytes. Fills in what every sample becomes, a function of the options alone, and *state, which
	 * decode() gets; it may be NULL. 0, or a negative errno with a text: -EINVAL for options that are
	 * none.
	 */
	int (*open)(const char *options, struct diesel_codec_output *output, void **state,
		    struct diesel_codec_error *error);

	/*
	 * Decodes a sample. out: space for exactly one output, 64-byte aligned, all zeros. The bytes of the
	 * sample come from people who need not be trusted. 0, or a negative errno with a text: -EBADMSG for
	 * a damaged sample.
	 */
	int (*decode)(void *state, const struct diesel_codec_sample *sample, void *out,
		      struct diesel_codec_error *error);
};

/* What a codec defines: const struct diesel_codec DIESEL_CODEC = {.abi = DIESEL_CODEC_ABI, ...}; */
extern
#if defined(__GNUC__)
    __attribute__((visibility("default")))
#endif
    const struct diesel_codec DIESEL_CODEC;

#ifdef __cplusplus
}
#endif
