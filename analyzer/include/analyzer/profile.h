/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * CPU profile of preparing: stack samples of the threads that prepare batches, taken at a fixed rate of their
 * CPU clock, summed by library and by function. Samples within file calls are left out, because they are
 * fetching.
 */

#include <stddef.h>
#include <stdint.h>

/* A frame that stack samples refer to, from the recording's metadata events (bpf/metadata.h). Borrowed by an
 * analysis. */
struct profile_frame {
	uint64_t key;
	uint8_t kind;                   /* enum frame_kind */
	const char *library, *function; /* function "": not known */
};

struct profile_trace {
	uint64_t key;
	const uint64_t *frames; /* keys, innermost first */
	size_t n_frames;
};

_Static_assert(offsetof(struct profile_frame, key) == 0 && offsetof(struct profile_trace, key) == 0,
	       "sorted and found by compare_u64()");

struct profile_metadata {
	const struct profile_frame *frames; /* sorted by key */
	const struct profile_trace *traces; /* sorted by key */
	size_t n_frames, n_traces;
	double rate_hz; /* rate per CPU; 0: not known */
};

struct profile_item {
	char *name;    /* library "libjpeg", function "jpeg_idct_islow", or Python "load_image" */
	char *library; /* function's library, or the Python file's name; NULL for libraries */
	char *caller;  /* most frequent innermost Python frame, "file.py:function"; NULL: none */
	uint64_t n_samples;
};

/* One stack with its samples: frames from the outermost on, separated by ';' as flame graph tools expect.
 * Python frames read "file.py:function", others "library:function", or "library" where no symbol is known. */
struct profile_stack {
	char *frames;
	uint64_t n_samples;
};

/* Samples of work that dieseld could do, recognised by names. Some transforms are not recognised before
 * Python 3.11. */
struct profile_images {
	uint64_t n_decode;    /* reading JPEG, PNG and WebP images */
	uint64_t n_codec;     /* part of n_decode: in code used only for these formats */
	uint64_t n_transform; /* cropping, resizing, flipping, and conversion to numbers */
	uint64_t n_foreign;   /* torchvision's transforms that dieseld does not run */
};

struct profile {
	uint64_t n_samples; /* total */
	uint64_t n_unknown; /* part of n_samples without a known library */
	struct profile_images images;
	double rate_hz;
	/* Sorted by samples, descending; a sample counts for its innermost frame. */
	struct profile_item *libraries, *functions;
	size_t n_libraries, n_functions;
	struct profile_stack *stacks; /* sorted by samples, descending */
	size_t n_stacks;
};

void profile_free(struct profile *profile);
