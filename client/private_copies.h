/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Of a private mapping of a file: pages that this process has written to are the file's again. Where the
 * kernel tells which these are (Linux 6.7), all others stay mapped, so that reading them again is no page
 * fault. data: at the beginning of a page.
 */
void private_copies_drop(void *data, size_t bytes);
