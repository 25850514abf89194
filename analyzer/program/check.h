/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `diesel-analyze check`: prints what can be measured on this machine, what is lost, and how to fix it. */

#include <stdbool.h>
#include <stdio.h>

/* Prints to out. Returns 0 if a job can be recorded here; else 1, and the output explains why. */
int check_run(const char *btf_path, bool json, FILE *out);
