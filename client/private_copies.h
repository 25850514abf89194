/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/*
 * Drops the pages of a private file mapping that this process has written to, so that they show the file
 * again. If the kernel can report these pages (Linux 6.7), all others stay mapped, so that reading them again
 * causes no page fault. data must be page-aligned.
 */
void private_copies_drop(void *data, size_t bytes);
