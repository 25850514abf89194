/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the files that write metrics share. */

#include <stdint.h>
#include <stdio.h>

#include "metrics.h"

void metrics_head(FILE *text, const char *name, const char *type, const char *help);
void metrics_number(FILE *text, const char *name, const char *type, const char *help, uint64_t value);
