/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lists use utlist: LL_... macros for items with a `next` (appending and deleting walk the list), DL_...
 * macros for items that also have a `prev`. */

#include <utlist.h>

#include "container_of.h"
