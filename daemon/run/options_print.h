/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Prints the options on standard output: "settings" (of dieseld.conf(5)) as roff, "file" (dieseld.conf),
 * or a form of option_print(). -ENOENT: no such form. */
int options_print(const char *form);
