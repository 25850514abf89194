/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The kind of files that the job reads its data from, and the way to pack them. */

#include "analyzer/analysis.h"

#define ADVICE_PACK_BYTES 160

/*
 * Returns what the user must do so that dieseld can serve the data: "pack it (dieselctl pack)" for files of
 * one sample each, "if ..." if that is not known, and pack's message if pack would refuse the files.
 */
const char *advice_pack(const struct analysis *analysis, char *buffer, size_t size);
