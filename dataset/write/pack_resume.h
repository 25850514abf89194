/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Takes over what an interrupted run has packed of the same source, and marks those files to be skipped.
 * *ret_n_files: how many. Chunks with anything else are dropped by the commit. */

#include "dataset/writer.h"
#include "source.h"

int pack_resume(struct writer *w, struct source *source, uint64_t *ret_n_files, struct error *err);
