/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes below their parents. */

#include "table.h"

/* Puts a table's rows, which are worker samples, below their parents, with siblings in the order they had,
 * and fills in depths. -ENOMEM: the rows stay as they were. */
int tree_make(struct table *table);
