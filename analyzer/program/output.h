/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Writes a file atomically: a full disk does not leave half a report in place of an old one. */

#include <stdio.h>

struct error;

/* Returns 0 or a negative errno. */
typedef int (*output_fn)(FILE *stream, const void *user);

/* Writes to path; to the stream if path is NULL. */
int output_write(const char *path, FILE *stream, output_fn write, const void *user, struct error *err);
