/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* The struct that has this member at this address, which has the member's type. */
#define container_of(address, type, member)                                                                  \
	((type *)((char *)(1 ? (address) : &((type *)NULL)->member) - offsetof(type, member)))
