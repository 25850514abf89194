/* SPDX-License-Identifier: Apache-2.0 */
/* Reads arbitrary bytes as a table. Cells end within the record, and lines are counted upwards. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/packing/csv.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	FILE *file = size ? fmemopen((void *)data, size, "r") : NULL;
	struct csv csv = {.file = file, .name = "table"};
	uint64_t line = 0;

	while (file && csv_next(&csv, NULL) > 0) {
		if (csv.n == 0 || csv.line <= line)
			abort();
		for (size_t i = 0; i < csv.n; i++)
			if (csv.cells[i] < csv.text ||
			    csv.cells[i] + strlen(csv.cells[i]) > csv.text + csv.bytes)
				abort();
		line = csv.line;
	}
	csv_free(&csv);
	if (file)
		fclose(file);
	return 0;
}
