/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Samples by number through the daemon's cache. A few sessions (DIESEL_ASKED) are opened when threads read,
 * and stay open until the dataset is closed. Thread-safe; not for use across a fork.
 */

#include <stddef.h>
#include <stdint.h>

struct by_number;
struct diesel_dataset;

struct by_number_request {
	const uint64_t *samples; /* [n], each in the dataset */
	void *const *buffers;    /* [n] */
	const size_t *sizes;     /* [n], bytes of each buffer */
	uint32_t n;
};

int by_number_new(struct by_number **ret);
void by_number_free(struct by_number *b);

/* Returns 1 if all samples were read; 0: the daemon is gone, or its cache cannot hold the dataset. -EINTR: a
 * signal arrived. */
int by_number_read(struct by_number *b, struct diesel_dataset *d, const struct by_number_request *q);
