/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a library of the job. Looks for names that end within it, places to probe, and
 * USDT notes. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bpf/symbols/elf_symbols.h"
#include "bpf/symbols/symbol.h"
#include "bpf/symbols/usdt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int visit(void *user, const struct usdt_probe *probe)
{
	(void)user;
	if (strlen(probe->provider) + strlen(probe->name) == SIZE_MAX)
		abort();
	return 0;
}

static void probe(int fd)
{
	struct symbol_file *file;
	uint64_t offset;

	if (symbol_file_open(fd, &file) < 0)
		return;
	symbol_file_find(file, "main", true, &offset, NULL);
	symbol_file_find(file, "_ZN", false, &offset, NULL);
	usdt_each(file, visit, NULL);
	symbol_file_close(file);
}

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
	probe(fd);
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
