/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What history_file.c and history.c share. */

#include "history_file.h"
#include "sqlite/db.h"

#define HISTORY_APPLICATION 0x444c4831 /* "DLH1" */

/* Rounds are structs as they lie in memory: structs of other sizes are another layout. */
#define HISTORY_LAYOUT                                                                                       \
	((uint64_t)sizeof(struct stall_sample) | (uint64_t)sizeof(struct stall_node) << 16 |                 \
	 (uint64_t)sizeof(struct tuner_config) << 32)

/* In place of a layout, which is never so small. */
#define HISTORY_END 1

enum history_statement {
	HISTORY_PUT_ENTRY,
	HISTORY_PUT_VERDICT,
	HISTORY_PUT_POINT,
	HISTORY_PUT_CONFIG,
	HISTORY_PUT_ROUND,
	HISTORY_PUT_STATE,
	HISTORY_N_STATEMENTS,
};

struct history_file {
	struct sql *sql;
	struct sql_statement *st[HISTORY_N_STATEMENTS];
	char *path;
	uint64_t max_bytes, page_bytes, bytes;
	int64_t config_id; /* of the row that holds `config`; 0: this process has written none yet */
	struct tuner_config config;
};
