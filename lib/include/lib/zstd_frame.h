/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Checks the boundaries of zstd frames (RFC 8878), before libzstd gets them. Distributions build that library
 * so that it also accepts the formats from before version 1, wherever a frame may begin, by decoders that are
 * hardly maintained. So frames are recognized here, by their headers and the lengths of their blocks; libzstd
 * decodes the blocks. No state but the caller's, any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZSTD_FRAME_HEADER_MAX 18

/* Position in a stream of frames, which may be cut anywhere. Begins as {0}. */
struct zstd_walk {
	uint8_t head[ZSTD_FRAME_HEADER_MAX];
	uint32_t n_head;  /* collected bytes of the next header */
	bool is_in_frame; /* the next bytes are a block's header */
	bool has_checksum;
	uint64_t skip;    /* bytes, before that */
	uint64_t content; /* content size of the last frame; UINT64_MAX: not stated */
	uint32_t n_frames, n_skippable;
};

/* Advances by these bytes. 0, or -EBADMSG: a frame begins that is neither one of zstd nor skippable, or a
 * header is invalid. Then libzstd must not get these bytes. */
int zstd_walk(struct zstd_walk *walk, const void *data, size_t bytes);
/* Returns true between two frames. */
bool zstd_walk_is_end(const struct zstd_walk *walk);

/* Checks that the bytes are exactly one complete frame that states its content size, and returns that in
 * *ret. -EBADMSG. */
int zstd_frame_content(const void *frame, size_t bytes, uint64_t *ret);
