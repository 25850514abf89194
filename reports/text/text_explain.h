/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Sections of the text report that not every recording has: each prints nothing where its part is missing. */

#include "layout.h"

struct analysis;

void text_reads(const struct layout *layout, const struct analysis *analysis);
void text_profile(const struct layout *layout, const struct analysis *analysis);
void text_gpu(const struct layout *layout, const struct analysis *analysis);
void text_phases(const struct layout *layout, const struct analysis *analysis);
void text_checkpoints(const struct layout *layout, const struct analysis *analysis);
void text_ranks(const struct layout *layout, const struct analysis *analysis);
/* What would end the data wait by itself. */
void text_needed(const struct layout *layout, const struct analysis *analysis);
