/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How chunks are dealt to lanes, and where a position of the epoch lies among them: docs/reference/formats.md
 * has the rules. Pure. */

#include <stdint.h>

/* Returns where lane l begins in the list of n samples. The lane ends where lane l + 1 begins. l <= lanes <=
 * n. */
uint64_t lanes_begin(uint64_t n, uint64_t lanes, uint64_t l);
/* Returns the lane of the sample at this place of the list. */
uint64_t lanes_at(uint64_t n, uint64_t lanes, uint64_t place);
uint64_t lanes_lower_before(uint64_t p, uint64_t lanes, uint64_t l);

/*
 * Makes the list of an epoch with drift 1/m from the base list: list[n]. samples: of each chunk, by its
 * number. m = 0: the base list itself. -ENOMEM.
 */
int lanes_deal(const uint64_t *base, const uint32_t *samples, uint64_t n, uint64_t epoch, uint32_t m,
	       uint64_t *list);
