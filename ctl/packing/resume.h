/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Going on where an interrupted run has stopped, with samples that come one by one, in the same order: those
 * that its chunks have, byte by byte, need not be written again. A chunk is used when all of its samples have
 * come, which are held in memory until then.
 */

#include <stdbool.h>

#include "dataset/chunk_builder.h"
#include "dataset/writer.h"

struct resume;

/* Before the first writer_add(). w is borrowed. -ENOMEM. */
int resume_new(struct writer *w, struct resume **ret, struct error *err);
void resume_free(struct resume *r);

/* The next sample, which is copied: 1: it is in a chunk of the run before, as far as is known yet; 0: it has
 * to be written, and so has all that follows. Errors as writer_add() and writer_adopt(). */
int resume_take(struct resume *r, const struct chunk_sample *sample, struct error *err);

/* Behind the last one: writes what is held. */
int resume_end(struct resume *r, struct error *err);

/* Samples that need not be written, and their bytes. */
uint64_t resume_count(const struct resume *r, uint64_t *ret_bytes);
