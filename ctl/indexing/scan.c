/* SPDX-License-Identifier: Apache-2.0 */
#include "scan.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ctl/archive/libarchive.h"
#include "dataset/external.h"
#include "lib/array.h"
#include "lib/clock.h"
#include "lib/cleanup.h"
#include "lib/text.h"

#define BLOCK 512u
/* Bytes of a read. After a long member only headers are needed; short members are read through. */
#define READ_BYTES  (128u << 10)
#define SHORT_BYTES (4u << 10)
#define LONG_MEMBER (64u << 10)

struct shard_scan {
	struct archive *archive;
	struct scanned *result;
	const char *name;
	uint64_t position; /* in the shard */
	size_t read_bytes;
	unsigned char *buffer;
	struct error error; /* of a read */
	/* the sample that is being found */
	bool is_open;
	uint32_t fields[SCAN_FIELDS_MAX]; /* numbers of the fields that it has */
	size_t n_fields;
};

static la_ssize_t on_read(struct archive *archive, void *user, const void **data)
{
	struct shard_scan *s = user;
	uint64_t left = s->result->source_bytes - s->position;
	size_t n = left < s->read_bytes ? (size_t)left : s->read_bytes;
	uint64_t stamp;
	int r = n ? external_read_source(s->name, s->position, s->buffer, n, &stamp, &s->error) : 0;

	if (r == 0 && n && stamp != s->result->stamp)
		r = error_set(&s->error, -ESTALE,
			      "%s changed while it was being indexed: run the command again", s->name);
	if (r < 0) {
		libarchive.set_error(archive, -r, "%s", s->error.text);
		return ARCHIVE_FATAL;
	}
	s->position += n;
	s->read_bytes = READ_BYTES;
	*data = s->buffer;
	return (la_ssize_t)n;
}

static la_int64_t on_skip(struct archive *archive, void *user, la_int64_t bytes)
{
	struct shard_scan *s = user;
	uint64_t left = s->result->source_bytes - s->position;
	uint64_t n = (uint64_t)bytes < left ? (uint64_t)bytes : left;

	(void)archive;
	s->position += n;
	s->read_bytes = n > LONG_MEMBER ? SHORT_BYTES : READ_BYTES;
	return (la_int64_t)n;
}

static int bad(const struct shard_scan *s, struct archive_entry *entry, const char *what, struct error *err)
{
	char text[200];
	const char *path = entry ? libarchive.entry_pathname(entry) : NULL;

	text_printable(text, sizeof(text), path ? path : "", path ? strlen(path) : 0);
	return error_set(err, -EBADMSG, "%s: '%s' %s", s->name, text, what);
}

/* Splits a member's path as WebDataset does. Returns false: it belongs to no sample. */
static bool split(const char *path, size_t *ret_key, const char **ret_field)
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path, *dot = strchr(base, '.');

	if (!dot || dot == base || !dot[1] || strncmp(base, "__", 2) == 0)
		return false;
	*ret_key = (size_t)(dot - path);
	*ret_field = dot + 1;
	return true;
}

static struct scanned_field *field_of(struct scanned *s, const char *name)
{
	for (size_t i = 0; i < s->n_fields; i++)
		if (strcmp(s->fields[i].name, name) == 0)
			return &s->fields[i];
	if (s->n_fields == SCAN_FIELDS_MAX || strlen(name) >= sizeof(s->fields->name))
		return NULL;
	snprintf(s->fields[s->n_fields].name, sizeof(s->fields->name), "%s", name);
	return &s->fields[s->n_fields++];
}

static bool is_same_key(const struct scanned *s, const char *path, size_t length)
{
	const struct scanned_sample *last = &s->samples[s->n - 1];

	return last->key_length == length && memcmp(s->keys + last->key_offset, path, length) == 0;
}

int scanned_add(struct scanned *to, const struct scanned_sample *sample, const char *key, size_t length)
{
	if (array_reserve(to->samples, to->n, to->capacity) < 0)
		return -ENOMEM;
	if (to->keys_bytes + length > to->keys_capacity) {
		size_t grown = 2 * to->keys_capacity + length + 4096;
		char *keys = realloc(to->keys, grown);

		if (!keys)
			return -ENOMEM;
		to->keys = keys;
		to->keys_capacity = grown;
	}
	memcpy(to->keys + to->keys_bytes, key, length);
	to->samples[to->n] = *sample;
	to->samples[to->n].key_offset = to->keys_bytes;
	to->samples[to->n++].key_length = (uint32_t)length;
	to->keys_bytes += length;
	return 0;
}

static int add_field(struct shard_scan *s, struct archive_entry *entry, const char *name, struct error *err)
{
	struct scanned_field *field = field_of(s->result, name);
	uint32_t number = field ? (uint32_t)(field - s->result->fields) : 0;

	if (!field)
		return bad(s, entry, "is of a field too many: a dataset has at most 64, of up to 63 bytes",
			   err);
	for (size_t i = 0; i < s->n_fields; i++)
		if (s->fields[i] == number)
			return bad(s, entry, "occurs twice in one sample: remove one of them from the shard",
				   err);
	s->fields[s->n_fields++] = number;
	field->n_samples++;
	return 0;
}

static const char *why_not(struct archive_entry *entry)
{
	if (libarchive.entry_hardlink(entry) || libarchive.entry_filetype(entry) == AE_IFLNK)
		return "is a link: make the shard with `tar --dereference --hard-dereference`";
	if (libarchive.entry_filetype(entry) != AE_IFREG)
		return "is neither a file nor a folder: remove it from the shard";
	if (libarchive.entry_sparse_count(entry) > 0)
		return "is stored as a sparse file, which cannot be read in place: make the shard without "
		       "`tar --sparse`";
	if (libarchive.entry_is_encrypted(entry))
		return "is encrypted";
	return NULL;
}

static uint64_t mtime_of(struct archive_entry *entry)
{
	int64_t s = libarchive.entry_mtime_is_set(entry) ? libarchive.entry_mtime(entry) : 0;

	return s > 0 ? (uint64_t)s * NS_PER_S + (uint64_t)libarchive.entry_mtime_nsec(entry) : 0;
}

/* Returns 1 if the member belongs to a sample. */
static int take(struct shard_scan *s, struct archive_entry *entry, uint64_t offset, struct error *err)
{
	struct scanned *to = s->result;
	const char *path = libarchive.entry_pathname(entry), *why, *field;
	size_t length;

	if (!path)
		return bad(s, NULL, "is a name that cannot be read", err);
	if (libarchive.entry_filetype(entry) == AE_IFDIR)
		return 0;
	why = why_not(entry);
	if (why)
		return bad(s, entry, why, err);
	while (strncmp(path, "./", 2) == 0)
		path += 2;
	if (!split(path, &length, &field)) {
		if (to->n_left++ == 0)
			text_printable(to->left, sizeof(to->left), path, strlen(path));
		return 0;
	}
	if (!s->is_open || !is_same_key(to, path, length)) {
		const struct scanned_sample sample = {.offset = offset, .mtime_ns = mtime_of(entry)};
		int r = scanned_add(to, &sample, path, length);

		if (r < 0)
			return error_errno(err, r, "%s", s->name);
		s->is_open = true;
		s->n_fields = 0;
	}
	int r = add_field(s, entry, field, err);

	return r < 0 ? r : 1;
}

static int read_error(const struct shard_scan *s, struct error *err)
{
	const char *why = libarchive.error_string(s->archive);
	char text[256];

	if (s->error.code < 0) {
		*err = s->error;
		return err->code;
	}
	text_line(text, sizeof(text), why ? why : "libarchive gives no reason");
	return error_set(err, -EBADMSG, "%s is damaged, cut off, or no uncompressed tar archive: %s", s->name,
			 text);
}

/* Members of no sample stay in the range of the sample that they lie in. */
static void end_sample(struct shard_scan *s, uint64_t end)
{
	struct scanned_sample *last = &s->result->samples[s->result->n - 1];

	last->bytes = end - last->offset;
}

static int scan_members(struct shard_scan *s, struct error *err)
{
	struct archive_entry *entry;
	int code, r = 0;

	while (r >= 0 && (code = libarchive.read_next_header(s->archive, &entry)) == ARCHIVE_OK) {
		uint64_t offset = (uint64_t)libarchive.read_header_position(s->archive);
		uint64_t end =
		    (uint64_t)libarchive.filter_bytes(s->archive, 0) + (uint64_t)libarchive.entry_size(entry);

		r = take(s, entry, offset, err);
		end = (end + BLOCK - 1) / BLOCK * BLOCK;
		if (r >= 0 && end > s->result->source_bytes)
			r = bad(s, entry, "is cut off: the shard ends within it", err);
		if (r > 0)
			end_sample(s, end);
	}
	if (r >= 0 && code != ARCHIVE_EOF)
		r = read_error(s, err);
	return r < 0 ? r : 0;
}

static int scan_archive(struct shard_scan *s, struct error *err)
{
	s->archive = libarchive.read_new();
	s->buffer = malloc(READ_BYTES);
	s->read_bytes = SHORT_BYTES;
	if (!s->archive || !s->buffer || libarchive.read_support_format_tar(s->archive) != ARCHIVE_OK)
		return error_errno(err, -ENOMEM, "%s", s->name);
	if (libarchive.read_open2(s->archive, s, NULL, on_read, on_skip, NULL) != ARCHIVE_OK)
		return read_error(s, err);
	return scan_members(s, err);
}

int scan_tar(const char *name, struct scanned *ret, struct error *err)
{
	struct scanned found = {0};
	struct shard_scan s = {.result = &found, .name = name};
	uint64_t bytes, stamp;
	int r = libarchive_load(err);

	if (r < 0)
		return r;
	r = external_stat(name, &found.source_bytes, &found.stamp, err);
	if (r == 0)
		r = scan_archive(&s, err);
	libarchive.read_free(s.archive);
	free(s.buffer);
	if (r == 0)
		r = external_stat(name, &bytes, &stamp, err);
	if (r == 0 && (bytes != found.source_bytes || stamp != found.stamp))
		r = error_set(err, -ESTALE,
			      "%s changed while it was being indexed: run the command again when it "
			      "is complete",
			      name);
	if (r < 0)
		scanned_free(&found);
	else
		*ret = found;
	return r;
}

void scanned_free(struct scanned *s)
{
	free(s->samples);
	free(s->keys);
	*s = (struct scanned){0};
}

void scanned_add_fields(struct scanned *sum, const struct scanned *s)
{
	for (size_t i = 0; i < s->n_fields; i++) {
		struct scanned_field *field = field_of(sum, s->fields[i].name);

		if (field)
			field->n_samples += s->fields[i].n_samples;
	}
	if (sum->n_left == 0)
		memcpy(sum->left, s->left, sizeof(sum->left));
	sum->n_left += s->n_left;
}
