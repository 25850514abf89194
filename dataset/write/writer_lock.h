/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The right to change a dataset in a folder, which one writer has at a time: DATASET/.writer.
 *
 * The right is a lock of the file's first byte, which ends with its process, and a lease: the holder renews
 * the file's change time. If a holder has not done so for the whole lease (a suspended process, a node that
 * hangs), another writer may take over (writer_take_over() in dataset/writer.h). Then the old holder can
 * publish nothing any more. The new writer measures the lease with its own clock, from the renewals that it
 * has seen, so no two clocks are compared.
 *
 * Before it publishes, the holder also locks the second byte, and so does a writer that takes over. So only
 * one of them continues, whenever the other one wakes up. From then on nobody can take over, because the work
 * may be half done. The same holds at first, until writer_lock_loosen(). The holder locks it by
 * writer_hold().
 *
 * A place elsewhere (dataset/backend.h) needs no lock. Its lock is NULL, which all functions treat as held.
 */

#include "lib/error.h"

struct writer_lock;

#define WRITER_LOCK_FILE ".writer"

/* Takes the lock. dir_fd and path, which names the dataset in messages, are borrowed. -EBUSY: another writer
 * holds it. */
int writer_lock_take(int dir_fd, const char *path, struct writer_lock **ret, struct error *err);

/* Checks that the lock is still held. -EBUSY: another writer took it over. Thread-safe. */
int writer_lock_check(const struct writer_lock *l, struct error *err);

/* Permits other writers to take the lock over from here on. */
void writer_lock_loosen(struct writer_lock *l);

void writer_lock_free(struct writer_lock *l); /* accepts NULL */
