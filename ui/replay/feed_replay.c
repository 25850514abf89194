/* SPDX-License-Identifier: Apache-2.0 */
#include "ui/feed/feed.h"

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
#include "top_recording.h"
#include "ui/state/sample.h"
#include "ui/state/sample_json.h"

#define SEARCH_BYTES 65536

struct replay_record {
	uint64_t offset; /* offset of the stored bytes */
	uint64_t time_us;
	uint32_t stored_bytes, raw_bytes;
	bool is_bad; /* counted already */
};

/* The records of the file, from which a range is shown. Records are numbered from 0 in the order of the file.
 */
struct replay {
	struct feed feed;
	int fd;
	char *name;
	struct replay_record *records;
	size_t n, n_allocated;
	size_t n_skipped, n_newer; /* damaged or truncated records, and ranges of other bytes, found so far */
	uint64_t size;
	size_t first, end; /* range of records that is shown */
	size_t next;
};

enum found {
	FOUND_RECORD,
	FOUND_NEWER,
	FOUND_NOTHING,
};

static enum found look_at(const struct replay *replay, uint64_t offset,
			  struct top_recording_header *ret_header)
{
	struct top_recording_header h;

	if (offset + sizeof(h) > replay->size ||
	    pread(replay->fd, &h, sizeof(h), (off_t)offset) != (ssize_t)sizeof(h) ||
	    memcmp(h.magic, TOP_RECORDING_MAGIC, sizeof(h.magic)) != 0 ||
	    h.header_checksum != top_recording_header_sum(&h) ||
	    h.stored_bytes > replay->size - offset - sizeof(h))
		return FOUND_NOTHING;
	*ret_header = h;
	if (h.version > TOP_RECORDING_VERSION)
		return FOUND_NEWER;
	return h.version == TOP_RECORDING_VERSION && h.raw_bytes <= TOP_RECORDING_BYTES_MAX ? FOUND_RECORD
											    : FOUND_NOTHING;
}

/* Searches from offset on. Returns where the next header may begin, or the file's size. */
static uint64_t search(const struct replay *replay, uint64_t offset)
{
	_cleanup_(freep) char *buffer = malloc(SEARCH_BYTES);

	while (buffer && offset < replay->size) {
		ssize_t n = pread(replay->fd, buffer, SEARCH_BYTES, (off_t)offset);
		const char *at;

		if (n < 8)
			break;
		at = memmem(buffer, (size_t)n, TOP_RECORDING_MAGIC, 8);
		if (at)
			return offset + (uint64_t)(at - buffer);
		offset += (uint64_t)n - 7; /* the next header may begin within the last 7 bytes read */
	}
	return replay->size;
}

static int add(struct replay *replay, uint64_t offset, const struct top_recording_header *header)
{
	if (array_reserve(replay->records, replay->n, replay->n_allocated) < 0)
		return -ENOMEM;
	replay->records[replay->n++] = (struct replay_record){.offset = offset + sizeof(*header),
							      .time_us = header->time_us,
							      .stored_bytes = header->stored_bytes,
							      .raw_bytes = header->raw_bytes};
	return 0;
}

/* Returns the offset of another record within this one, which was truncated; 0: none. */
static uint64_t find_tear(const struct replay *replay, uint64_t offset,
			  const struct top_recording_header *header)
{
	uint64_t end = offset + sizeof(*header) + header->stored_bytes, next;
	uint8_t magic[8];

	if (end == replay->size ||
	    (pread(replay->fd, magic, sizeof(magic), (off_t)end) == (ssize_t)sizeof(magic) &&
	     !memcmp(magic, TOP_RECORDING_MAGIC, sizeof(magic))))
		return 0;
	next = search(replay, offset + 1);
	return next < end ? next : 0;
}

static int index_all(struct replay *replay)
{
	uint64_t offset = 0;

	while (offset < replay->size) {
		uint64_t tear = 0;
		struct top_recording_header header;
		enum found found = look_at(replay, offset, &header);

		if (found == FOUND_NOTHING || (tear = find_tear(replay, offset, &header))) {
			replay->n_skipped++;
			offset = tear ? tear : search(replay, offset + 1);
			continue;
		}
		if (found == FOUND_NEWER) {
			replay->n_newer++;
			replay->n_skipped++;
		} else if (add(replay, offset, &header)) {
			return -ENOMEM;
		}
		offset += sizeof(header) + header.stored_bytes;
	}
	return 0;
}

static int judge(const struct replay *replay, struct error *err)
{
	if (replay->n)
		return 0;
	if (!replay->size)
		return error_set(err, -EBADMSG, "%s: the recording is empty", replay->name);
	if (replay->n_newer)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s: recorded by a newer diesel-top; this one supports version %d",
				 replay->name, TOP_RECORDING_VERSION);
	return error_set(err, -EBADMSG, "%s: not a recording of diesel-top -w, or without a complete record",
			 replay->name);
}

static double time_of(const struct replay *replay, size_t i)
{
	return (double)replay->records[i].time_us / 1e6;
}

/* Returns the last record in the file that is not later. Clocks can step back, so the records are not sorted
 * by time. */
static size_t find_time(const struct replay *replay, double time_s)
{
	size_t found = 0;

	for (size_t i = 0; i < replay->n; i++)
		if (time_of(replay, i) <= time_s)
			found = i;
	return found;
}

static int unpack(const struct replay *replay, const struct replay_record *record,
		  struct top_sample **ret_sample, struct error *err)
{
	_cleanup_(freep) char *stored = malloc(record->stored_bytes + (size_t)1);
	_cleanup_(freep) char *json = malloc(record->raw_bytes + (size_t)1);
	uint64_t content;
	size_t n = SIZE_MAX; /* an error */

	if (!stored || !json)
		return error_set(err, -ENOMEM, "no memory for a record");
	if (pread(replay->fd, stored, record->stored_bytes, (off_t)record->offset) !=
	    (ssize_t)record->stored_bytes)
		return error_set(err, -EBADMSG, "%s: the file was truncated while diesel-top read it",
				 replay->name);
	if (zstd_frame_content(stored, record->stored_bytes, &content) == 0 && content == record->raw_bytes)
		n = ZSTD_decompress(json, record->raw_bytes, stored, record->stored_bytes);
	if (ZSTD_isError(n) || n != record->raw_bytes)
		return error_set(err, -EBADMSG, "%s: a record at byte %llu is damaged", replay->name,
				 (unsigned long long)record->offset);
	return sample_from_json(json, n, ret_sample, err);
}

static int read_record(struct replay *replay, size_t i, struct top_sample **ret_sample, struct error *err)
{
	struct replay_record *record = &replay->records[i];
	int r = unpack(replay, record, ret_sample, err);

	if (r == -ENOMEM || r == 0)
		return r;
	replay->n_skipped += !record->is_bad;
	record->is_bad = true;
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

static int parse_time(const char *text, double base_s, double *ret_time_s)
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

static void work(struct feed *feed, uint64_t now_ns, uint64_t *ret_next_ns)
{
}

static int next_sample(struct feed *feed, unsigned int wanted, uint64_t now_ns,
		       struct top_sample **ret_sample, struct error *err)
{
	struct replay *replay = (struct replay *)feed;

	while (replay->next < replay->end) {
		int r = read_record(replay, replay->next++, ret_sample, err);

		if (r != -EBADMSG)
			return r;
	}
	return error_set(err, -ENODATA, "the recording ends here");
}

/* Finds the record for the time given by the user. */
static int find(const struct replay *replay, const char *text, size_t *ret_at, struct error *err)
{
	size_t now = replay->next > replay->first ? replay->next - 1 : replay->first;
	double time_s;

	if (parse_time(text, time_of(replay, now), &time_s))
		return error_set(err, -EINVAL,
				 "\"%.40s\" is not a time: must be HH:MM[:SS], YYYY-MM-DDTHH:MM[:SS], "
				 "+SECONDS or -SECONDS",
				 text);
	*ret_at = find_time(replay, time_s);
	return 0;
}

static int seek(struct feed *feed, enum feed_seek where, const char *time, struct error *err)
{
	struct replay *replay = (struct replay *)feed;
	size_t to = replay->next, back;
	int r;

	switch (where) {
	case FEED_SEEK_FIRST: to = replay->first; break;
	case FEED_SEEK_LAST: to = replay->end - 1; break;
	case FEED_SEEK_BACK: to = replay->next >= replay->first + 2 ? replay->next - 2 : replay->first; break;
	case FEED_SEEK_TIME:
		r = find(replay, time, &to, err);
		if (r < 0)
			return r;
		break;
	case FEED_SEEK_REWIND:
		back = (size_t)strtoul(time, NULL, 10);
		if (back > replay->next - replay->first)
			back = replay->next - replay->first;
		replay->next -= back;
		return (int)back;
	}
	if (to < replay->first)
		to = replay->first;
	replay->next = to < replay->end ? to : replay->end - 1;
	return 0;
}

static size_t n_skipped(const struct feed *feed)
{
	return ((const struct replay *)feed)->n_skipped;
}

static void replay_close(struct feed *feed)
{
	struct replay *replay = (struct replay *)feed;

	closep(&replay->fd);
	free(replay->name);
	free(replay->records);
	free(replay);
}

static const struct feed_ops replay_ops = {
    .work = work, .sample = next_sample, .seek = seek, .n_skipped = n_skipped, .close = replay_close};

/* Limits the replay to the given begin and end. +SECONDS counts from the first record. */
static int cut(struct replay *replay, const struct replay_options *options, struct error *err)
{
	size_t at;
	int r;

	if (options->end) {
		r = find(replay, options->end, &at, err);
		if (r < 0)
			return error_set(err, r,
					 "-e %.40s: must be a time, HH:MM[:SS] or YYYY-MM-DDTHH:MM[:SS]",
					 options->end);
		replay->end = at + 1;
	}
	if (!options->begin)
		return 0;
	r = find(replay, options->begin, &at, err);
	if (r < 0)
		return error_set(err, r, "--begin %.40s: must be a time, HH:MM[:SS] or YYYY-MM-DDTHH:MM[:SS]",
				 options->begin);
	if (at >= replay->end)
		return error_set(err, -EINVAL, "--begin %.40s: the requested part ends before it begins",
				 options->begin);
	replay->first = replay->next = at;
	return 0;
}

static int open_recording(const char *path, struct replay *replay, struct error *err)
{
	struct stat st;

	replay->fd = file_to_read(AT_FDCWD, path, true);
	if (replay->fd < 0)
		return file_error(err, replay->fd, "read", path);
	if (fstat(replay->fd, &st))
		return error_errno(err, -errno, "%s", path);
	replay->size = (uint64_t)st.st_size;
	replay->name = strdup(path);
	if (!replay->name || index_all(replay))
		return error_set(err, -ENOMEM, "no memory for a recording");
	replay->end = replay->n;
	return judge(replay, err);
}

int feed_replay_open(const struct replay_options *options, struct feed **ret_feed, struct error *err)
{
	struct replay *replay = calloc(1, sizeof(*replay));
	int r;

	if (!replay)
		return error_set(err, -ENOMEM, "not enough memory to start diesel-top");
	replay->feed.ops = &replay_ops;
	r = open_recording(options->path, replay, err);
	if (r == 0)
		r = cut(replay, options, err);
	if (r < 0)
		replay_close(&replay->feed);
	else
		*ret_feed = &replay->feed;
	return r;
}
