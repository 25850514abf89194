/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * How much memory this process may use: the smallest of the machine's and of the limits of its cgroup and
 * that group's parents, v2 or v1. root stands in front of /proc and /sys ("" on a real machine).
 */

#include <stdint.h>

/* In bytes; 0 when nothing could be read. */
uint64_t memory_limit_bytes(const char *root);
