/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How much memory this process may use: the machine's memory, or the limit of its cgroup or of any parent of
 * that, v2 or v1, whichever is smallest. root is put in front of /proc and /sys ("" on a real machine).
 */

#include <stdint.h>

/* In bytes; 0 when nothing could be read. */
uint64_t memory_limit_bytes(const char *root);
/* All memory of the machine, whatever this process may use of it. */
uint64_t memory_machine_bytes(const char *root);
