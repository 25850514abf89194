/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Lists are utlist's: LL_ of items that have a `next` (appending and deleting walk the list), DL_ of items
 * that also have a `prev`. container_of() leads from a member back to the struct that it lies in. */

#include <stddef.h>

#include <utlist.h>

/* The struct that has this member at this address, which has the member's type. */
#define container_of(address, type, member)                                                                  \
	((type *)((char *)(1 ? (address) : &((type *)NULL)->member) - offsetof(type, member)))
