/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Metadata of the collector (collector_sink) with the stacks and frames to which EVENT_STACK refers:
 *
 * - "stack": the uint64_t keys of its frames, innermost first.
 * - "frame": a byte of enum frame_kind; the library (Python: the file's name); the function ("": not known).
 *
 * Both names of a frame are printable UTF-8 without ';', and each ends in a NUL.
 *
 * Keys are hashes of the data, so they are the same in every recording. An entry precedes the first event
 * that needs it.
 */

#define METADATA_STACK "stack"
#define METADATA_FRAME "frame"

enum frame_kind {
	FRAME_NATIVE = 0,
	FRAME_INTERPRETER = 1, /* CPython itself: its Python frames are more useful */
	FRAME_PYTHON = 2,
	FRAME_GENERATOR = 3, /* a Python generator: on the stack while its next item is made */
};

#define METADATA_STACK_FRAMES_MAX 64
#define METADATA_FRAME_BYTES_MAX  512
