/* SPDX-License-Identifier: Apache-2.0 */
#include "top_recording.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zstd.h>

#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/file_open.h"
#include "lib/zstd_frame.h"
#include "top_recording_format.h"
#include "ui/state/sample.h"
#include "ui/state/sample_json.h"

#define SEARCH_BYTES 65536

struct top_recording_entry {
	uint64_t offset; /* offset of the stored bytes */
	uint64_t time_us;
	uint32_t stored_bytes, raw_bytes;
	bool is_bad; /* counted already */
};

struct top_recording_reader {
	int fd;
	char *name;
	struct top_recording_entry *entries;
	size_t n, n_allocated, n_skipped, n_newer;
	uint64_t size;
};

enum found {
	FOUND_RECORD,
	FOUND_NEWER,
	FOUND_NOTHING,
};

static enum found look_at(const struct top_recording_reader *reader, uint64_t offset,
			  struct top_recording_header *ret_header)
{
	struct top_recording_header h;

	if (offset + sizeof(h) > reader->size ||
	    pread(reader->fd, &h, sizeof(h), (off_t)offset) != (ssize_t)sizeof(h) ||
	    memcmp(h.magic, TOP_RECORDING_MAGIC, sizeof(h.magic)) != 0 ||
	    h.header_checksum != top_recording_header_sum(&h) ||
	    h.stored_bytes > reader->size - offset - sizeof(h))
		return FOUND_NOTHING;
	*ret_header = h;
	if (h.version > TOP_RECORDING_VERSION)
		return FOUND_NEWER;
	return h.version == TOP_RECORDING_VERSION && h.raw_bytes <= TOP_RECORDING_BYTES_MAX ? FOUND_RECORD
											    : FOUND_NOTHING;
}

/* Searches from offset on. Returns where the next header may begin, or the file's size. */
static uint64_t search(const struct top_recording_reader *reader, uint64_t offset)
{
	_cleanup_(freep) char *buffer = malloc(SEARCH_BYTES);

	while (buffer && offset < reader->size) {
		ssize_t n = pread(reader->fd, buffer, SEARCH_BYTES, (off_t)offset);
		const char *at;

		if (n < 8)
			break;
		at = memmem(buffer, (size_t)n, TOP_RECORDING_MAGIC, 8);
		if (at)
			return offset + (uint64_t)(at - buffer);
		offset += (uint64_t)n - 7; /* the next header may begin within the last 7 bytes read */
	}
	return reader->size;
}

static int add(struct top_recording_reader *reader, uint64_t offset,
	       const struct top_recording_header *header)
{
	if (array_reserve(reader->entries, reader->n, reader->n_allocated) < 0)
		return -ENOMEM;
	reader->entries[reader->n++] = (struct top_recording_entry){.offset = offset + sizeof(*header),
								    .time_us = header->time_us,
								    .stored_bytes = header->stored_bytes,
								    .raw_bytes = header->raw_bytes};
	return 0;
}

/* Returns the offset of another record within this one, which was truncated; 0: none. */
static uint64_t find_tear(const struct top_recording_reader *reader, uint64_t offset,
			  const struct top_recording_header *header)
{
	uint64_t end = offset + sizeof(*header) + header->stored_bytes, next;
	uint8_t magic[8];

	if (end == reader->size ||
	    (pread(reader->fd, magic, sizeof(magic), (off_t)end) == (ssize_t)sizeof(magic) &&
	     !memcmp(magic, TOP_RECORDING_MAGIC, sizeof(magic))))
		return 0;
	next = search(reader, offset + 1);
	return next < end ? next : 0;
}

static int index_all(struct top_recording_reader *reader)
{
	uint64_t offset = 0;

	while (offset < reader->size) {
		uint64_t tear = 0;
		struct top_recording_header header;
		enum found found = look_at(reader, offset, &header);

		if (found == FOUND_NOTHING || (tear = find_tear(reader, offset, &header))) {
			reader->n_skipped++;
			offset = tear ? tear : search(reader, offset + 1);
			continue;
		}
		if (found == FOUND_NEWER) {
			reader->n_newer++;
			reader->n_skipped++;
		} else if (add(reader, offset, &header)) {
			return -ENOMEM;
		}
		offset += sizeof(header) + header.stored_bytes;
	}
	return 0;
}

static int judge(const struct top_recording_reader *reader, struct error *err)
{
	if (reader->n)
		return 0;
	if (!reader->size)
		return error_set(err, -EBADMSG, "%s: the recording is empty", reader->name);
	if (reader->n_newer)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s: recorded by a newer diesel-top; this one supports version %d",
				 reader->name, TOP_RECORDING_VERSION);
	return error_set(err, -EBADMSG, "%s: not a recording of diesel-top -w, or without a complete record",
			 reader->name);
}

int top_recording_open_fd(int fd, const char *name, struct top_recording_reader **ret_reader,
			  struct error *err)
{
	struct top_recording_reader *reader = calloc(1, sizeof(*reader));
	struct stat st;
	int r = 0;

	if (!reader) {
		close(fd);
		return error_set(err, -ENOMEM, "no memory for a recording");
	}
	reader->fd = fd;
	reader->name = strdup(name);
	if (fstat(fd, &st))
		r = error_errno(err, -errno, "%s", name);
	else if (!S_ISREG(st.st_mode))
		r = error_set(err, -EINVAL, "%s: not a file", name);
	else
		reader->size = (uint64_t)st.st_size;
	if (r == 0 && (!reader->name || index_all(reader)))
		r = error_set(err, -ENOMEM, "no memory for a recording");
	if (r == 0)
		r = judge(reader, err);
	if (r < 0)
		top_recording_reader_close(reader);
	else
		*ret_reader = reader;
	return r;
}

int top_recording_open(const char *path, struct top_recording_reader **ret_reader, struct error *err)
{
	int fd = file_to_read(AT_FDCWD, path, true);

	if (fd < 0)
		return file_error(err, fd, "read", path);
	return top_recording_open_fd(fd, path, ret_reader, err);
}

void top_recording_reader_close(struct top_recording_reader *reader)
{
	if (!reader)
		return;
	closep(&reader->fd);
	free(reader->name);
	free(reader->entries);
	free(reader);
}

size_t top_recording_n(const struct top_recording_reader *reader)
{
	return reader->n;
}

double top_recording_time_s(const struct top_recording_reader *reader, size_t i)
{
	return (double)reader->entries[i].time_us / 1e6;
}

/* Returns the last record in the file that is not later. Clocks can step back, so the records are not sorted
 * by time. */
size_t top_recording_find(const struct top_recording_reader *reader, double time_s)
{
	size_t found = 0;

	for (size_t i = 0; i < reader->n; i++)
		if (top_recording_time_s(reader, i) <= time_s)
			found = i;
	return found;
}

size_t top_recording_n_skipped(const struct top_recording_reader *reader)
{
	return reader->n_skipped;
}

static int unpack(const struct top_recording_reader *reader, const struct top_recording_entry *entry,
		  struct top_sample **ret_sample, struct error *err)
{
	_cleanup_(freep) char *stored = malloc(entry->stored_bytes + (size_t)1);
	_cleanup_(freep) char *json = malloc(entry->raw_bytes + (size_t)1);
	uint64_t content;
	size_t n = SIZE_MAX; /* an error */

	if (!stored || !json)
		return error_set(err, -ENOMEM, "no memory for a record");
	if (pread(reader->fd, stored, entry->stored_bytes, (off_t)entry->offset) !=
	    (ssize_t)entry->stored_bytes)
		return error_set(err, -EBADMSG, "%s: the file was truncated while diesel-top read it",
				 reader->name);
	if (zstd_frame_content(stored, entry->stored_bytes, &content) == 0 && content == entry->raw_bytes)
		n = ZSTD_decompress(json, entry->raw_bytes, stored, entry->stored_bytes);
	if (ZSTD_isError(n) || n != entry->raw_bytes)
		return error_set(err, -EBADMSG, "%s: a record at byte %llu is damaged", reader->name,
				 (unsigned long long)entry->offset);
	return sample_from_json(json, n, ret_sample, err);
}

int top_recording_read(struct top_recording_reader *reader, size_t i, struct top_sample **ret_sample,
		       struct error *err)
{
	struct top_recording_entry *entry = &reader->entries[i];
	int r = unpack(reader, entry, ret_sample, err);

	if (r == -ENOMEM || r == 0)
		return r;
	reader->n_skipped += !entry->is_bad;
	entry->is_bad = true;
	return r == -EPROTONOSUPPORT
		   ? error_set(err, -EBADMSG, "%s", "the record was made by a newer diesel-top")
		   : r;
}

static int parse_clock(const char *text, struct tm *time)
{
	int h, m, s = 0, n = 0;

	if (sscanf(text, "%2d:%2d%n", &h, &m, &n) != 2 || !n)
		return -EINVAL;
	if (text[n]) {
		int k = 0;

		if (sscanf(text + n, ":%2d%n", &s, &k) != 1 || !k || text[n + k])
			return -EINVAL;
	}
	if (h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 60)
		return -EINVAL;
	time->tm_hour = h;
	time->tm_min = m;
	time->tm_sec = s;
	return 0;
}

int top_recording_time_parse(const char *text, double base_s, double *ret_time_s)
{
	time_t base = (time_t)base_s, result;
	int year, month, day, n = 0;
	struct tm time;
	char *end;

	if (*text == '+' || *text == '-') {
		double by_s = strtod(text + 1, &end);

		if (end == text + 1 || *end || !(by_s >= 0 && by_s < 1e9))
			return -EINVAL;
		*ret_time_s = *text == '+' ? base_s + by_s : base_s - by_s;
		return 0;
	}
	if (!localtime_r(&base, &time))
		return -EINVAL;
	if (sscanf(text, "%4d-%2d-%2d%*1[T ]%n", &year, &month, &day, &n) == 3 && n) {
		if (year < 1970 || month < 1 || month > 12 || day < 1 || day > 31)
			return -EINVAL;
		time.tm_year = year - 1900;
		time.tm_mon = month - 1;
		time.tm_mday = day;
		text += n;
	}
	if (parse_clock(text, &time))
		return -EINVAL;
	time.tm_isdst = -1;
	result = mktime(&time);
	if (result == (time_t)-1)
		return -EINVAL;
	*ret_time_s = (double)result;
	return 0;
}
