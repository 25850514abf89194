/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Returns the struct whose member is at this address. The address has the member's type. */
#define container_of(address, type, member)                                                                  \
	((type *)((char *)(1 ? (address) : &((type *)NULL)->member) - offsetof(type, member)))
