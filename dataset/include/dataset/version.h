/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Old versions of a dataset. Chunks are never changed, so one is made again by replaying its chunks, whose
 * heads alone are read: into a folder of its own, which is a place like any other, for reading.
 */

#include "dataset/backend.h"

/* Opens a version. 0, or the newest: as backend_open() with BACKEND_READ. Others have metadata and snapshot
 * in a folder below $TMPDIR or /var/tmp, which backend_close() removes. -ENOENT: there is no such version, or
 * it cannot be read any more; err says which can. Otherwise as backend_open() and meta_open(). */
int version_open(const char *name, uint64_t version, struct place **ret, struct error *err);
