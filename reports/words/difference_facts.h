/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds the differences between two recordings, other than shares and speed, that may explain the change. */

#include <stddef.h>

#include "reports/difference.h"

#define DIFFERENCE_FACTS_MAX 16

struct difference_fact {
	const char *name;
	char a[256], b[256];
};

/* Fills in the facts that differ. Returns their number. */
size_t difference_facts(const struct report_difference *difference,
			struct difference_fact ret_facts[DIFFERENCE_FACTS_MAX]);
