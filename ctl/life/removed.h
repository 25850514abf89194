/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Prints what the removal of a dataset has removed, for `delete` and `move`. */

#include "dataset/copy.h"

void ctl_removed_print(const char *dataset, const struct removal *r);
/* Prints a JSON object, without a line break. */
void ctl_removed_json(const struct removal *r);
