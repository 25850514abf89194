/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Adopts the chunks that an interrupted run packed from the same source, with or without rewriting, as it is
 * now, and marks their *ret_n_files files to be skipped. The commit drops chunks that hold anything else. */

#include "dataset/writer.h"
#include "source.h"

/* 0 or -errno. */
int pack_resume(struct writer *w, struct source *source, bool rewrites, uint64_t *ret_n_files,
		struct error *err);
