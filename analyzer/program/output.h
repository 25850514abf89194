/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A file that appears whole or not at all: a full disk does not leave half a report in place of an old one.
 */

#include <stdio.h>

struct error;

/* Returns 0 or a negative errno. */
typedef int (*output_fn)(FILE *stream, const void *user);

/* path NULL: to the stream. */
int output_write(const char *path, FILE *stream, output_fn write, const void *user, struct error *err);
