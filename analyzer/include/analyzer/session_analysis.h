/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A recorded session, analysed: reads all events into memory (64 bytes each) and calls analysis_run(). */

#include <stdint.h>

struct analysis;
struct error;
struct session;

/* trainer_tid: 0 finds it. Errors: as session_cursor_open(), -ENOMEM. */
int session_analyze(struct session *session, uint32_t trainer_tid, struct analysis **ret_analysis,
		    struct error *err);
