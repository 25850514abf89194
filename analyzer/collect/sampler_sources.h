/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Finds out which files of /proc the sampler can read for a process that it started itself: starts a child,
 * and tries. */

#include <stdbool.h>
#include <stddef.h>

struct sampler_source {
	const char *name;
	const char *gives;        /* static text */
	const char *lost_without; /* static text */
	bool readable;
};

#define SAMPLER_SOURCES_MAX 8

/* -errno: no child process could be made, or there is no /proc. Then nothing can be sampled. */
int sampler_sources_find(const char *root, struct sampler_source sources[SAMPLER_SOURCES_MAX], size_t *ret_n);
