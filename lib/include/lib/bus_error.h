/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Reports SIGBUS in one line, for programs that map files. Touching a page after the end of a truncated file,
 * or a page that the storage cannot deliver, raises SIGBUS where read() would return an error. The process
 * cannot continue after that.
 */

/* From now on, such a fault ends the process with exit status 1, after a line on standard error with the
 * names of program and file. program must stay valid. Other causes of SIGBUS kill the process as usual. */
void bus_error_init(const char *program);
