/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Packs the files of a tar archive, in the archive's order: what `dieselctl pack` does where the source is no
 * folder. All or nothing, like pack_run(). When it was interrupted, the next run with an archive that begins
 * with the same files goes on; what was written of an archive that is itself at fault is removed.
 */

#include <stdbool.h>

#include "dataset/pack.h"

/* Returns true if a source is to be read as an archive: it is "-", or is there and is no folder. */
bool pack_is_tar(const char *source);

/* As pack_run(). Of the options it does not use order, seed, n_threads and skip_unreadable. progress() is
 * called with bytes of the archive in place of files, n_files being 0 where nobody knows how long it is. */
int pack_tar(const struct pack_options *options, struct pack_result *ret, struct error *err);
