/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The kind of files that the job reads its data from, and the way to pack them. */

#include "analyzer/analysis.h"

#define ADVICE_PACK_BYTES 160

/*
 * Returns what has to be done for dieseld to serve the data: "pack it (dieselctl pack)" where it is files of
 * one sample each, "if ..." where nobody knows, and where pack would refuse what is read, what pack says.
 */
const char *advice_pack(const struct analysis *analysis, char *buffer, size_t size);
