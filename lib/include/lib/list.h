/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lists are utlist's: LL_ of items that have a `next` (appending and deleting walk the list), DL_ of items
 * that also have a `prev`. */

#include <utlist.h>

#include "container_of.h"
