/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Custom codecs: a codec is a shared object with which dieseld decodes samples of a format that it does not
 * support. It is C11 with C linkage, needs only this header, and links no DIESEL library:
 *
 *	cc -O2 -shared -fPIC -o wav.so wav.c
 *
 * It exports one symbol, DIESEL_CODEC: a struct diesel_codec. The operator names the file to dieseld (--codec
 * PATH), training jobs name the codec (diesel_loader.codec("wav")). docs/how-to/codecs.md has an example.
 *
 * A codec's output must be a pure function of the options, the sample's bytes and its seed. It must not
 * depend on time, other samples or earlier calls. Batches are prepared by several processes, in any order,
 * and more than once.
 *
 * Where a codec runs. Each process serves one session, has one thread, and is ended by a signal when it is
 * not needed: there is no close(). The file is loaded with all its symbols bound. Its constructors run with
 * the rights of dieseld's user, and without capabilities; what they allocate or read stays available. Then
 * the process enters a sandbox for good: from open() on it can compute, use memory (malloc() and everything
 * built on it, half a gigabyte in total) and read the clock. Anything else ends the process: files, printing,
 * local time, threads, locks that wait, processes, signals, the network. C++ is fine, and so are exceptions
 * that do not leave a function of the codec. A process that has more than 16 MiB from malloc() is ended and
 * replaced after about 50 ms of work.
 *
 * Errors. A sample that decode() refuses counts as damaged: depending on the job, its batch becomes an error
 * that names it, or is delivered without it. A sample also counts as damaged if it ends processes (crash,
 * abort, a forbidden call), takes more than 10 s of CPU time, or makes the codec write beyond `out`. The
 * process is replaced, and other jobs are not affected. open() has 5 s of CPU time.
 *
 * Versions. `abi` is the version of this header that a codec was built with, and the symbol's name ends in
 * it. dieseld loads the versions that it supports, and refuses others with an error that names them. Within a
 * version, nothing changes.
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

/* Output for every sample: an array in C order. */
struct diesel_codec_output {
	uint32_t type;                                    /* enum diesel_codec_type */
	uint32_t n_dimensions;                            /* 0: a single number */
	uint32_t dimensions[DIESEL_CODEC_MAX_DIMENSIONS]; /* each at least 1; the array has at most 1 GiB */
};

struct diesel_codec_sample {
	const uint8_t *data; /* as stored; unaligned, not terminated, read-only */
	uint64_t bytes;
	uint64_t seed; /* seed of all randomness: different in each epoch, the same for every reader */
};

/* A line of text that says what is wrong, and where. dieseld reports it to the user with the sample's
 * path. */
struct diesel_codec_error {
	char text[240]; /* NUL-terminated; "" before the call */
};

struct diesel_codec {
	uint32_t abi;     /* DIESEL_CODEC_ABI */
	uint32_t bytes;   /* sizeof(struct diesel_codec) */
	const char *name; /* 1 to 31 lower-case letters and digits; after the first also -_. */

	/*
	 * Called once per process. options: the user's text, "" if there is none; UTF-8, at most 447 bytes.
	 * Fills in the output of every sample, which must depend only on the options, and *state, which
	 * decode() gets; *state may be NULL. Returns 0, or a negative errno with a text: -EINVAL for invalid
	 * options.
	 */
	int (*open)(const char *options, struct diesel_codec_output *output, void **state,
		    struct diesel_codec_error *error);

	/*
	 * Decodes a sample. out: space for exactly one output, 64-byte aligned, all zeros. The sample's bytes
	 * are untrusted input. Returns 0, or a negative errno with a text: -EBADMSG for a damaged sample.
	 */
	int (*decode)(void *state, const struct diesel_codec_sample *sample, void *out,
		      struct diesel_codec_error *error);
};

/* Every codec defines: const struct diesel_codec DIESEL_CODEC = {.abi = DIESEL_CODEC_ABI, ...}; */
extern
#if defined(__GNUC__)
    __attribute__((visibility("default")))
#endif
    const struct diesel_codec DIESEL_CODEC;

#ifdef __cplusplus
}
#endif
