/* SPDX-License-Identifier: Apache-2.0 */
#include "recording_file.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include "analyzer/recording.h"
#include "lib/cleanup.h"
#include "lib/error.h"

/* Header: page size at 16 (16 bit), pages at 28 (32 bit), both big-endian. */
bool recording_file_is_cut(const char *path)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	uint8_t head[32];
	uint64_t page_bytes, pages;

	if (!file || fread(head, sizeof(head), 1, file) != 1)
		return true;
	page_bytes = (uint64_t)head[16] << 8 | head[17];
	if (page_bytes == 1)
		page_bytes = 65536;
	pages = (uint64_t)head[28] << 24 | (uint64_t)head[29] << 16 | (uint64_t)head[30] << 8 | head[31];
	return fseeko(file, 0, SEEK_END) || (uint64_t)ftello(file) < pages * page_bytes;
}

void recording_file_remove(const char *path)
{
	char journal[4200];

	unlink(path);
	snprintf(journal, sizeof(journal), "%s-journal", path);
	unlink(journal);
}

int recording_file_make_room(const char *path, struct error *err)
{
	struct recording *old = NULL;
	struct error why = ERROR_INIT;
	int r;

	if (access(path, F_OK))
		return 0;
	r = recording_open(path, &old, &why);
	recording_close(old);
	if (r < 0 && r != -EPROTONOSUPPORT)
		return error_set(err, -EEXIST,
				 "%s exists and is not a recording; choose another -o or remove it", path);
	if (access(path, W_OK))
		return error_errno(err, -errno, "cannot replace %s", path);
	recording_file_remove(path);
	return 0;
}
