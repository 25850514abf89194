/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Packs the files of a tar archive, in the archive's order: used by `dieselctl pack` if the source is not a
 * folder. All or nothing, like pack_run(). After an interruption, the next run continues if its archive
 * begins with the same files. If the archive itself is invalid, the chunks written from it are removed.
 */

#include <stdbool.h>

#include "dataset/pack.h"

/* Returns true if the source must be read as an archive: it is "-", or exists and is not a folder. */
bool pack_is_tar(const char *source);

/* Packs like pack_run(), but ignores the options order, seed, n_threads and skip_unreadable. progress() gets
 * bytes of the archive instead of files; n_files is 0 if the length is unknown. */
int pack_tar(const struct pack_options *options, struct pack_result *ret, struct error *err);
