/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * For programs that map files that other processes may truncate. Touching a page behind the new end, or one
 * that the storage cannot deliver, raises SIGBUS where read() would return an error. The process cannot
 * continue after that, but it can report the cause in one line.
 */

/* From now on such a fault ends the process with exit status 1 and a line on standard error that names the
 * program and the file. program must stay valid. Other causes of SIGBUS kill the process as usual. */
void bus_error_init(const char *program);
