/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes as a library of the job: names that end, or none. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "elf_symbols.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("elf", MFD_CLOEXEC);
	struct elf_symbols *symbols;
	int64_t distance;
	char name[64];

	if (fd < 0)
		return 0;
	if (write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return 0;
	}
	if (elf_symbols_open(fd, NULL, &symbols) < 0)
		return 0;
	for (uint64_t offset = 0; offset < 65536; offset += 512) {
		if (elf_symbols_function(symbols, offset, name, sizeof(name)) == 0 &&
		    (!name[0] || !memchr(name, '\0', sizeof(name))))
			abort();
		elf_symbols_distance(symbols, "_PyRuntime", offset, &distance);
	}
	elf_symbols_close(symbols);
	return 0;
}
