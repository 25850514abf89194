/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Continues an interrupted run with samples that arrive one by one in the same order: samples that are
 * already in the run's chunks, byte for byte, need not be written again. A chunk is reused when all of its
 * samples have arrived; they are held in memory until then.
 */

#include <stdbool.h>

#include "dataset/chunk_builder.h"
#include "dataset/writer.h"

struct resume;

/* Call it before the first writer_add(). w is borrowed. -ENOMEM. */
int resume_new(struct writer *w, struct resume **ret, struct error *err);
void resume_free(struct resume *r);

/* Takes and copies the next sample. Returns 1 if it matches a chunk of the interrupted run so far; 0 if the
 * caller must write it and all later ones. Errors as writer_add() and writer_adopt(). */
int resume_take(struct resume *r, const struct chunk_sample *sample, struct error *err);

/* Call it after the last sample: writes the held samples. */
int resume_end(struct resume *r, struct error *err);

/* Returns the number of samples that need not be written, and their bytes. */
uint64_t resume_count(const struct resume *r, uint64_t *ret_bytes);
