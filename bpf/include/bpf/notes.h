/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Notes that the collector gives beside events (collector_sink), for what EVENT_STACK points at:
 *
 *   "stack"  key: of a stack; data: uint64_t keys of its frames, innermost first
 *   "frame"  key: of a frame; data: one byte enum frame_kind, the library (Python: the file's name) and a
 * NUL, the function (empty: not known) and a NUL. Printable UTF-8 without ';'.
 *
 * Keys are hashes of the data: the same in every recording. A stack's or frame's note comes before the first
 * event that needs it.
 */

#define NOTE_STACK "stack"
#define NOTE_FRAME "frame"

enum frame_kind {
	FRAME_NATIVE = 0,
	FRAME_INTERPRETER = 1, /* CPython itself: Python frames say more */
	FRAME_PYTHON = 2,
};

#define NOTE_STACK_FRAMES_MAX 64
#define NOTE_FRAME_BYTES_MAX  512
