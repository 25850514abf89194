/* SPDX-License-Identifier: Apache-2.0 */
#include "top_recording.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"
#include "lib/hash.h"
#include "ui/state/sample.h"
#include "ui/state/sample_json.h"

#define COMPRESSION_LEVEL 1 /* fast, and compresses to a tenth already */

struct top_recording_writer {
	int fd;
	char *path;
	off_t size; /* end of the last complete record */
	ZSTD_CCtx *zstd;
};

uint64_t top_recording_header_sum(const struct top_recording_header *header)
{
	return hash_bytes(HASH_START, header, offsetof(struct top_recording_header, header_checksum));
}

/* Checks that the file is empty or a recording: records are not appended to any other file. */
static int check_existing(int fd, const char *path, off_t *ret_size, struct error *err)
{
	uint8_t magic[8];
	struct stat st;
	ssize_t n;

	if (fstat(fd, &st))
		return error_errno(err, -errno, "%s", path);
	if (!S_ISREG(st.st_mode))
		return error_set(err, -EINVAL, "%s: not a regular file; a recording must be one", path);
	n = pread(fd, magic, sizeof(magic), 0);
	if (n < 0)
		return error_errno(err, -errno, "%s", path);
	if (n && (n < (ssize_t)sizeof(magic) || memcmp(magic, TOP_RECORDING_MAGIC, sizeof(magic)) != 0))
		return error_set(err, -EEXIST,
				 "%s: the file exists and is not a recording. Choose another name", path);
	*ret_size = st.st_size;
	return 0;
}

int top_recording_create(const char *path, struct top_recording_writer **ret_writer, struct error *err)
{
	struct top_recording_writer *writer = calloc(1, sizeof(*writer));
	const char *name;
	int r;

	if (!writer)
		return error_set(err, -ENOMEM, "no memory for a recording");
	_cleanup_(closep) int folder = file_folder(path, true, &name);

	writer->fd = folder < 0 ? folder : file_to_write(folder, name, O_CREAT, 0644);
	if (writer->fd < 0) {
		r = file_error(err, writer->fd, "write", path);
	} else {
		r = check_existing(writer->fd, path, &writer->size, err);
		writer->path = strdup(path);
		writer->zstd = ZSTD_createCCtx();
		if (r == 0 && (!writer->path || !writer->zstd))
			r = error_set(err, -ENOMEM, "no memory for a recording");
	}
	if (r < 0) {
		top_recording_writer_close(writer);
		return r;
	}
	ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_compressionLevel, COMPRESSION_LEVEL);
	ZSTD_CCtx_setParameter(writer->zstd, ZSTD_c_checksumFlag, 1);
	*ret_writer = writer;
	return 0;
}

void top_recording_writer_close(struct top_recording_writer *writer)
{
	if (!writer)
		return;
	closep(&writer->fd);
	ZSTD_freeCCtx(writer->zstd);
	free(writer->path);
	free(writer);
}

/* Appends all of the bytes, or leaves the file unchanged. */
static int append(struct top_recording_writer *writer, const char *bytes, size_t n, struct error *err)
{
	int r = fd_write_at(writer->fd, bytes, n, (uint64_t)writer->size);

	if (r < 0) {
		if (ftruncate(writer->fd, writer->size)) {
			/* The reader skips incomplete records. */
		}
		return error_errno(err, r, "cannot write to the recording %s, which ends here", writer->path);
	}
	writer->size += (off_t)n;
	return 0;
}

int top_recording_write(struct top_recording_writer *writer, const struct top_sample *sample,
			struct error *err)
{
	_cleanup_(freep) char *json = sample_to_json(sample, false);
	_cleanup_(freep) char *record = NULL;
	struct top_recording_header header = {.version = TOP_RECORDING_VERSION};
	size_t raw = json ? strlen(json) : 0, bound = ZSTD_compressBound(raw), n;

	record = json ? malloc(sizeof(header) + bound) : NULL;
	if (!record)
		return error_set(err, -ENOMEM, "not enough memory to record a sample");
	if (raw > TOP_RECORDING_BYTES_MAX)
		return error_set(err, -EFBIG, "a sample of %zu bytes is too large to be recorded", raw);
	n = ZSTD_compress2(writer->zstd, record + sizeof(header), bound, json, raw);
	if (ZSTD_isError(n))
		return error_set(err, -EIO, "cannot compress a record: %s", ZSTD_getErrorName(n));
	memcpy(header.magic, TOP_RECORDING_MAGIC, sizeof(header.magic));
	header.time_us =
	    isfinite(sample->time_s) && sample->time_s > 0 ? (uint64_t)(sample->time_s * 1e6) : 0;
	header.stored_bytes = (uint32_t)n;
	header.raw_bytes = (uint32_t)raw;
	header.header_checksum = top_recording_header_sum(&header);
	memcpy(record, &header, sizeof(header));
	return append(writer, record, sizeof(header) + n, err);
}
