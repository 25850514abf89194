/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Whether a source may be read for whoever made the chunk that names it: the rule of dataset/external.h. */

#include "dataset/external.h"

#include <sys/stat.h>

/* fd, st: the opened source. -EACCES: it may not. */
int external_may_read(const struct external *e, int fd, const struct stat *st, struct error *err);
/* The source is an object of a bucket. */
int external_may_read_object(const struct external *e, struct error *err);
/* Returns true if everybody may read the open file, by this path without links, or if EXTERNAL_PLACES lists
 * its place. */
bool external_is_public(int fd, const char *path);
