/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes all events of a recording as the 64-byte records of bpf/event.h, sorted by end_ns, for scripts
 * and tests. */

#include <stdio.h>

struct error;

/* Errors: those of recording_open(), such as -EBADMSG, and of the stream, such as -EIO. */
int dump_recording(const char *path, FILE *stream, struct error *err);
