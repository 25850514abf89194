/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The file of history.h. One thread at a time. */

#include "history/history.h"

struct history_file;

/* max_bytes 0: for reading only. -EBADMSG: damaged, or not a database; -EEXIST: another program's database.
 * The other errors are those of history_open(). */
int history_file_open(const char *path, uint64_t max_bytes, struct history_file **ret, struct error *err);
void history_file_close(struct history_file *f);

/* A batch of writes: all or nothing. */
int history_file_begin(struct history_file *f, struct error *err);
int history_file_commit(struct history_file *f, struct error *err);
void history_file_rollback(struct history_file *f);

int history_file_put_entry(struct history_file *f, const struct history_entry *entry, struct error *err);
int history_file_put_verdict(struct history_file *f, uint64_t at_ms, const struct tuner_verdict *verdict,
			     struct error *err);
int history_file_put_point(struct history_file *f, const struct history_point *point, struct error *err);
/* config: a row is written if it differs from the last round's. data: as described in history.h. */
int history_file_put_round(struct history_file *f, uint64_t at_ms, const struct tuner_config *config,
			   const void *data, size_t size, struct error *err);
int history_file_put_end(struct history_file *f, uint64_t at_ms, uint64_t job, struct error *err);
int history_file_put_state(struct history_file *f, const char *key, const void *data, size_t size,
			   struct error *err);

/* Forgets what is older than before_ms, and, while the file is fuller than it may be, the oldest. */
int history_file_trim(struct history_file *f, uint64_t before_ms, struct error *err);
uint64_t history_file_bytes(const struct history_file *f);
