/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `diesel-analyze check`: what this machine lets us measure, what is lost, and what to do about it. */

#include <stdbool.h>
#include <stdio.h>

/* Prints to out. Returns 0 if a job can be recorded here; else 1, and the text says why. */
int check_run(const char *btf_path, bool json, FILE *out);
