/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What the shares are called, and how they are explained, in all reports for people. */

#include "analyzer/analysis.h"

struct share_look {
	enum analysis_share share;
	const char *name, *meaning;
	const char *class_name; /* in the HTML report */
};

/* From what hurts to what is wanted: the order of bars and tables. */
extern const struct share_look share_looks[SHARE_COUNT];
