/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Prints the options on standard output: "help", "manual" (of dieseld(8)) and "settings" (of dieseld.conf(5))
 * as roff, "file" (dieseld.conf), "bash" or "zsh" (completions). -ENOENT: there is no such form. */
int options_print(const char *what);
