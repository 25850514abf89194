/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Files that somebody else may shorten are mapped to be read: a page behind the new end, or one that the
 * storage does not give, is then a signal instead of an error. Nothing can go on after that; this makes the
 * death one clear line.
 */

/* From now on such a fault ends the process with a line on standard error that names program (which must
 * stay) and file, and exit status 1. Other causes of SIGBUS kill as ever. */
void bus_error_init(const char *program);
