/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Optional sections of the text report: each prints nothing if the recording lacks its data. */

#include "layout.h"

struct analysis;

void text_reads(const struct layout *layout, const struct analysis *analysis);
void text_profile(const struct layout *layout, const struct analysis *analysis);
void text_gpu(const struct layout *layout, const struct analysis *analysis);
void text_phases(const struct layout *layout, const struct analysis *analysis);
void text_checkpoints(const struct layout *layout, const struct analysis *analysis);
void text_ranks(const struct layout *layout, const struct analysis *analysis);
/* Prints the changes that would each end the data wait without the others. */
void text_needed(const struct layout *layout, const struct analysis *analysis);
