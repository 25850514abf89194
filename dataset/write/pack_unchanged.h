/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Marks the *ret_n_files files to be skipped that the dataset has as they are now: with the same size, of the
 * file that was packed, and modification time. */

#include "dataset/writer.h"
#include "source.h"

/* 0 or -errno. */
int pack_unchanged(struct writer *w, struct pack_source *source, uint64_t *ret_n_files, struct error *err);
