/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What else differs between two recordings, beyond shares and speed: what may explain the change. */

#include <stddef.h>

#include "reports/difference.h"

#define DIFFERENCE_FACTS_MAX 16

struct difference_fact {
	const char *name;
	char a[256], b[256];
};

/* Only those that differ. Returns how many. */
size_t difference_facts(const struct report_difference *difference,
			struct difference_fact ret_facts[DIFFERENCE_FACTS_MAX]);
