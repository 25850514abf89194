/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Old versions of a dataset. Chunks are never changed, so an old version can be rebuilt by replaying its
 * chunks, of which only the heads are read. The result is in a temporary folder, which is a place (backend.h)
 * for reading.
 */

#include "dataset/backend.h"

/* Opens a version. 0, or the newest: as backend_open() with BACKEND_READ. Others have metadata and snapshot
 * in a folder below $TMPDIR or /var/tmp, which backend_close() removes. -ENOENT: there is no such version, or
 * it cannot be read any more; err names the readable versions. Otherwise as backend_open() and meta_open().
 */
int version_open(const char *name, uint64_t version, struct place **ret, struct error *err);
