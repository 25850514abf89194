/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The right to change a dataset in a folder, which one writer has at a time: DATASET/.writer.
 *
 * It is a lock of the file's first byte, which goes with its process, and a lease in addition: its holder
 * renews the file's time of change. One that has not done so for the lease (a process that is suspended, a
 * node that hangs) may be done without (writer_take_over() in dataset/writer.h): then it can publish nothing
 * any more. Who takes over tells so by its own clock, from what it has watched, so no two clocks are
 * compared.
 *
 * Before it publishes, the holder locks the second byte as well, as does who takes over: so one of them alone
 * goes on, whenever the other one wakes up. From then on nobody takes over, because half of that work may be
 * done. So it is at first, too, until writer_lock_loosen().
 *
 * A place elsewhere needs none (dataset/backend.h): NULL, of which all functions say that it is held.
 */

#include "lib/error.h"

struct writer_lock;

#define WRITER_LOCK_FILE ".writer"

/* dir_fd and path, which names the dataset in messages, are borrowed. -EBUSY: another writer holds it. */
int writer_lock_take(int dir_fd, const char *path, struct writer_lock **ret, struct error *err);

/* Checks that the lock is still held. -EBUSY: another writer took it over. Thread-safe. */
int writer_lock_check(const struct writer_lock *l, struct error *err);

/* Permits other writers to take the lock over from here on. */
void writer_lock_loosen(struct writer_lock *l);
/* Prevents other writers from taking the lock over from here on. -EBUSY: one already has. */
int writer_lock_keep(struct writer_lock *l, struct error *err);

void writer_lock_free(struct writer_lock *l); /* accepts NULL */
