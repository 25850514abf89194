/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Lossless compression of events on disk, to a tenth of their size. A block holds events sorted by end_ns as
 * columns of small differences (to the previous event, or to the last one of the same thread and type), each
 * a varint. The columns are one zstd frame with a checksum, so that a flipped bit is detected.
 *
 *   0  magic "DLE1"
 *   4  number of events, little-endian
 *   8  zstd frame: length of each column (u32), columns
 *
 * Nothing here touches a file.
 */

#include <stddef.h>
#include <stdint.h>

#include "bpf/event.h"

#define RECORDING_CODEC_EVENTS_MAX 65536 /* maximum in one block */

/* A codec has no state between calls except its buffers. For use by one thread. */
struct recording_codec;

struct recording_codec *recording_codec_new(void); /* Returns NULL if memory runs out. */
struct recording_codec *recording_codec_free(struct recording_codec *codec);

/* events: sorted by end_ns. *ret_block belongs to the codec and is valid until the next call. -ENOMEM,
 * -EINVAL (more than RECORDING_CODEC_EVENTS_MAX). */
int recording_codec_encode(struct recording_codec *codec, const struct event *events, size_t n_events,
			   const void **ret_block, size_t *ret_size);

/* The caller frees the events. -EBADMSG: not a block, or a damaged one; -ENOMEM. */
int recording_codec_decode(struct recording_codec *codec, const void *block, size_t size,
			   struct event **ret_events, size_t *ret_n);
