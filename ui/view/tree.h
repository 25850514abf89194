/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sorts processes below their parents. */

#include "table.h"

/* Sorts the rows of a table of worker samples, each below its parent, and fills in depths. Siblings keep
 * their order. -ENOMEM: the rows stay unchanged. */
int tree_make(struct table *table);
