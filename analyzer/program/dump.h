/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* All events of a session, as the 64-byte records of bpf/event.h, by end_ns: for scripts and tests. */

#include <stdio.h>

struct error;

/* -EBADMSG and the like as session_open(); -EIO and the like of the stream. */
int dump_session(const char *path, FILE *stream, struct error *err);
