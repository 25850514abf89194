/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What differs between two recordings besides shares and speed, and may explain the change. */

#include <stddef.h>

#include "reports/difference.h"

#define DIFFERENCE_FACTS_MAX 16

struct difference_fact {
	const char *name;
	char a[256], b[256];
};

/* Fills in the facts that differ. Returns how many there are. */
size_t difference_facts(const struct report_difference *difference,
			struct difference_fact ret_facts[DIFFERENCE_FACTS_MAX]);
