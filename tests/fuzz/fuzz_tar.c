/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as an archive to pack. Each extracted file is a sample that a chunk may hold. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dataset/chunk.h"
#include "ctl/packing/tar.h"
#include "lib/file_open.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct error err = ERROR_INIT;
	struct tar_file file;
	struct tar *tar;
	char name[FD_PATH_BYTES];
	int fd = memfd_create("tar", MFD_CLOEXEC), r;
	uint64_t sum = 0;

	if (fd < 0 || write(fd, data, size) != (ssize_t)size) {
		close(fd);
		return 0;
	}
	fd_path(fd, name);
	r = tar_open(name, &tar, &err);
	if (r == 0) {
		while ((r = tar_next(tar, &file, &err)) > 0) {
			if (!chunk_name_is_valid(file.path, file.path_length) ||
			    file.bytes > CHUNK_SAMPLE_MAX_BYTES || (file.mode & 0170000) != 0100000)
				abort();
			for (size_t i = 0; i < file.bytes; i++)
				sum += file.data[i];
		}
		tar_free(tar);
	}
	if (r != 0 && (err.code != r || !err.text[0] || strchr(err.text, '\n')))
		abort();
	close(fd);
	return sum == UINT64_MAX;
}
