/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes below their parents. */

#include "table.h"

/* Puts a table's rows, which are worker samples, in the order of the tree, each below its parent and siblings
 * as they were, and fills in depths. -ENOMEM: the rows stay as they were. */
int tree_make(struct table *table);
