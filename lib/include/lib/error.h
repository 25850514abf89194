/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Results and error texts.
 *
 * A function that can fail returns int: a negative errno, which callers pass on unchanged, 0, or a positive
 * code of its module's enum, which the direct caller must handle. Out-parameters are named ret_*, come last
 * and are written only on success.
 *
 * If the user must learn of a failure, the function also takes a `struct error *err`, and fills it with one
 * line: the fault, its place (file, offset, name) and the remedy. err may be NULL. The layer that handles the
 * error prints the line once; libraries never do.
 */

#include <stdbool.h>
#include <stdarg.h>

struct error {
	int code;       /* the value the failing function returned; 0 while nothing failed */
	char text[512]; /* one line, safe for a terminal (text.h), no newline; "" while nothing failed */
};

#define ERROR_INIT ((struct error){.code = 0})

/* Fills *err (if not NULL) and returns code, so that `return error_set(err, -EIO, ...)` reads well. */
int error_set(struct error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Sets the error as error_set(), with ": <strerror(-code)>" appended. code must be a negative errno. */
int error_errno(struct error *err, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Prepends "<formatted>: " to the text, so that a caller can add its context. */
void error_prefix(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends "; <remedy>", for a caller that knows what to do about the failure. */
void error_advise(struct error *err, const char *remedy);
