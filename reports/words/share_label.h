/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Names and explanations of the shares, for all reports for people. */

#include "analyzer/analysis.h"

struct share_label {
	enum analysis_share share;
	const char *name, *meaning;
	const char *class_name; /* CSS class in the HTML report */
};

/* All shares in the order of bars and tables, from harmful to desired. */
extern const struct share_label share_labels[SHARE_COUNT];
