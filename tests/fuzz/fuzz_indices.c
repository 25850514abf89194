/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a message of a trainer to a worker. */
#include <stdint.h>
#include <stdlib.h>

#include "daemon/assist/indices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint32_t indices[64];
	uint32_t number;
	int n = indices_parse(data, size, indices, 64, &number);

	if (n == 0 || n > 64)
		abort();
	for (int i = 0; i < n; i++) {
		if (indices[i] > INT32_MAX)
			abort();
	}
	return 0;
}
