/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The outlines of zstd frames (RFC 8878), for whoever is about to hand them to libzstd. As distributions
 * build it, that library also takes the formats from before version 1, by decoders that hardly anybody looks
 * at any more, wherever a frame may begin. So frames are told apart here, by their headers and the lengths of
 * their blocks: what is within blocks is libzstd's. No state but the caller's, any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZSTD_FRAME_HEADER_MAX 18

/* Where somebody is in a stream of frames, which may be cut anywhere. Begins as {0}. */
struct zstd_walk {
	uint8_t head[ZSTD_FRAME_HEADER_MAX];
	uint32_t n_head;  /* bytes of what comes next, collected */
	bool is_in_frame; /* a block's header comes next */
	bool has_checksum;
	uint64_t skip;    /* bytes, before that */
	uint64_t content; /* of the last frame, UINT64_MAX: it does not say */
	uint32_t n_frames, n_skippable;
};

/* Goes on by so many bytes. 0, or -EBADMSG: a frame begins that is neither one of zstd nor skippable, or a
 * header is none. Then libzstd must not see these bytes. */
int zstd_walk(struct zstd_walk *walk, const void *data, size_t bytes);
/* Returns true between two frames. */
bool zstd_walk_is_end(const struct zstd_walk *walk);

/* Whether the bytes are one whole frame, with nothing before or behind it, that says what comes out: *ret
 * bytes. -EBADMSG. */
int zstd_frame_content(const void *frame, size_t bytes, uint64_t *ret);
