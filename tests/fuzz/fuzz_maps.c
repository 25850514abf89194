/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as /proc/PID/maps. The result is a snapshot that can be searched, or an error. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bpf/symbols/address_space.h"

static char root[64];

static void remove_root(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/1/maps", root);
	unlink(path);
	snprintf(path, sizeof(path), "%s/1", root);
	rmdir(path);
	rmdir(root);
}

static void make_root(void)
{
	char path[128];

	snprintf(root, sizeof(root), "%s/diesel-maps-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
	if (!mkdtemp(root))
		abort();
	snprintf(path, sizeof(path), "%s/1", root);
	mkdir(path, 0700);
	atexit(remove_root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct process_space space = {0};
	struct code_files files = {0};
	char path[128];
	FILE *maps;

	if (!root[0])
		make_root();
	snprintf(path, sizeof(path), "%s/1/maps", root);
	maps = fopen(path, "we");
	if (!maps)
		abort();
	fwrite(data, 1, size, maps);
	fclose(maps);
	if (address_space_read(root, 1, &files, &space) == 0) {
		for (size_t i = 0; i < space.n; i++) {
			const struct code_mapping *mapping =
			    address_space_find(&space, space.mappings[i].begin);

			if (mapping && mapping->file && !mapping->file->name[0] &&
			    mapping->file->path[0] != '/')
				abort();
			if (mapping)
				code_file_open(&files, root, 1, mapping);
		}
	}
	address_space_free(&space);
	code_files_free(&files);
	return 0;
}
