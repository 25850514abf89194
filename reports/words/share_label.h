/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names and explanations of the shares, for all reports for people. */

#include "analyzer/analysis.h"

struct share_label {
	enum analysis_share share;
	const char *name, *meaning;
	const char *class_name; /* class in the HTML report */
};

/* From harmful to desired: the order of bars and tables. */
extern const struct share_label share_labels[SHARE_COUNT];
