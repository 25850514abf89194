/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Checks the boundaries of zstd frames (RFC 8878), before libzstd gets them. Distributions build libzstd so
 * that it also accepts formats from before version 1, wherever a frame may begin, and decodes them by hardly
 * maintained code. So these functions check the headers and block lengths of frames, and libzstd decodes only
 * the blocks. The only state is the caller's. Any thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ZSTD_FRAME_HEADER_MAX 18

/* Position in a stream of frames, which may be cut anywhere. Begins as {0}. */
struct zstd_scan {
	uint8_t head[ZSTD_FRAME_HEADER_MAX];
	uint32_t n_head;  /* collected bytes of the next header */
	bool is_in_frame; /* the next bytes are a block's header */
	bool has_checksum;
	uint64_t skip;    /* bytes to skip before the next header */
	uint64_t content; /* content size of the last frame; UINT64_MAX: not stated */
	uint32_t n_frames, n_skippable;
};

/* Advances by these bytes. 0; -EBADMSG: a header is invalid, or a frame begins that is neither of zstd nor
 * skippable. Then libzstd must not get these bytes. */
int zstd_scan(struct zstd_scan *scan, const void *data, size_t bytes);
/* Returns true between two frames. */
bool zstd_scan_is_end(const struct zstd_scan *scan);

/* Checks that the bytes are exactly one complete frame that states its content size, and returns that in
 * *ret. -EBADMSG. */
int zstd_frame_content(const void *frame, size_t bytes, uint64_t *ret);
