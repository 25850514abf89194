/* SPDX-License-Identifier: Apache-2.0 */
#include "tar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#include "ctl/archive/libarchive.h"
#include "dataset/chunk.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/container.h"
#include "lib/text.h"
#include "lib/units.h"
#include "lib/zstd_frame.h"

#define READ_BYTES ((size_t)256 << 10)
#define BLOCK      512
/* Maximum bytes to read past the end of the archive, so that its writer does not fail on a closed pipe:
 * blocks of zeros up to a multiple of its record size. */
#define MAX_REST    ((size_t)16 << 20)
#define MAGIC_BYTES 4

struct tar {
	struct archive *archive;
	unsigned char *read; /* buffer of READ_BYTES for data from the file */
	size_t n_first;      /* number of bytes read to detect the compression */
	uint64_t n_read;
	ZSTD_DCtx *zstd; /* NULL: the file is not compressed with zstd */
	ZSTD_inBuffer compressed;
	unsigned char *plain; /* buffer of READ_BYTES for decompressed data */
	struct zstd_scan scan;
	int fd;
	bool owns_fd;
	char name[256];
	uint64_t bytes;
	unsigned char *data;
	size_t n_allocated;
};

static int read_error(const struct tar *t, struct error *err)
{
	char text[256];
	int code = libarchive.error_number(t->archive);
	const char *why = libarchive.error_string(t->archive);

	/* libarchive has error numbers of its own, some negative, for faults of the archive. */
	if (code == ENOMEM || code == EIO || code == EISDIR)
		return error_errno(err, -code, "cannot read %s", t->name);
	text_line(text, sizeof(text), why ? why : "libarchive gives no reason");
	return error_set(err, -EBADMSG, "%s is damaged or cut off, at byte %llu: %s", t->name,
			 (unsigned long long)libarchive.filter_bytes(t->archive, 0), text);
}

static ssize_t read_some(struct tar *t, size_t at)
{
	ssize_t n;

	do
		n = read(t->fd, t->read + at, READ_BYTES - at);
	while (n < 0 && errno == EINTR);
	t->n_read += n > 0 ? (uint64_t)n : 0;
	return n;
}

static la_ssize_t read_plain(struct archive *archive, struct tar *t)
{
	ssize_t n = t->n_first > 0 ? (ssize_t)t->n_first : read_some(t, 0);

	t->n_first = 0;
	if (n < 0)
		libarchive.set_error(archive, errno, "cannot be read");
	return n < 0 ? ARCHIVE_FATAL : n;
}

static la_ssize_t read_compressed(struct archive *archive, struct tar *t)
{
	la_ssize_t n = read_plain(archive, t);

	if (n < 0)
		return n;
	t->compressed = (ZSTD_inBuffer){.src = t->read, .size = (size_t)n};
	if (n == 0 && !zstd_scan_is_end(&t->scan)) {
		libarchive.set_error(archive, EILSEQ, "its last zstd frame is cut off");
		return ARCHIVE_FATAL;
	}
	/* Checks each frame, because libzstd also accepts formats from before version 1. */
	if (zstd_scan(&t->scan, t->read, (size_t)n) < 0) {
		libarchive.set_error(archive, EILSEQ,
				     "it has data that is not in the format of zstd 1.0 or later");
		return ARCHIVE_FATAL;
	}
	return n;
}

static la_ssize_t decompress(struct archive *archive, struct tar *t)
{
	for (;;) {
		ZSTD_outBuffer plain = {.dst = t->plain, .size = READ_BYTES};
		size_t result = ZSTD_decompressStream(t->zstd, &plain, &t->compressed);
		la_ssize_t n;

		if (ZSTD_isError(result)) {
			libarchive.set_error(archive, EILSEQ, "zstd: %s", ZSTD_getErrorName(result));
			return ARCHIVE_FATAL;
		}
		if (plain.pos > 0)
			return (la_ssize_t)plain.pos;
		n = t->compressed.pos < t->compressed.size ? 1 : read_compressed(archive, t);
		if (n <= 0)
			return n;
	}
}

static la_ssize_t on_read(struct archive *archive, void *user, const void **data)
{
	struct tar *t = user;

	*data = t->zstd ? t->plain : t->read;
	return t->zstd ? decompress(archive, t) : read_plain(archive, t);
}

static int begin_zstd(struct tar *t)
{
	t->zstd = ZSTD_createDCtx();
	t->plain = malloc(READ_BYTES);
	return t->zstd && t->plain ? ARCHIVE_OK : ARCHIVE_FATAL;
}

/* Chooses by the file's first bytes. libarchive's own filter for zstd would also decompress zstd data
 * inside the decompressed data, which nothing has checked. */
static int choose_filter(struct tar *t)
{
	struct zstd_scan scan = {0};
	ssize_t n = 1;

	t->read = malloc(READ_BYTES);
	if (!t->read)
		return ARCHIVE_FATAL;
	while (t->n_first < MAGIC_BYTES && (n = read_some(t, t->n_first)) > 0)
		t->n_first += (size_t)n;
	if (n < 0)
		libarchive.set_error(t->archive, errno, "cannot be read");
	if (n <= 0)
		return n < 0 ? ARCHIVE_FATAL : ARCHIVE_OK;
	if (t->read[0] == 0x1f && t->read[1] == 0x8b)
		return libarchive.read_support_filter_gzip(t->archive);
	return zstd_scan(&scan, t->read, MAGIC_BYTES) == 0 ? begin_zstd(t) : ARCHIVE_OK;
}

static int open_archive(struct tar *t, struct error *err)
{
	char advice[400];
	int r;

	t->archive = libarchive.read_new();
	if (!t->archive || libarchive.read_support_format_tar(t->archive) != ARCHIVE_OK)
		return error_errno(err, -ENOMEM, "%s", t->name);
	r = choose_filter(t);
	if (r == ARCHIVE_OK)
		r = libarchive.read_open(t->archive, t, NULL, on_read, NULL);
	if (r == ARCHIVE_OK)
		return 0;
	if (libarchive.error_number(t->archive) == EIO || libarchive.error_number(t->archive) == EISDIR)
		return error_errno(err, -libarchive.error_number(t->archive), "cannot read %s", t->name);
	if (t->zstd || libarchive.filter_code(t->archive, 0) != ARCHIVE_FILTER_NONE)
		return error_set(err, -EBADMSG,
				 "%s is compressed, and either damaged or cut off, or not a tar archive",
				 t->name);
	if (container_advise(t->name, advice, sizeof(advice)))
		return error_set(err, -EBADMSG, "%s is no tar archive: %s", t->name, advice);
	return error_set(
	    err, -EBADMSG,
	    "%s is neither a folder nor a tar archive, uncompressed or compressed by gzip or zstd", t->name);
}

int tar_open(const char *name, struct tar **ret, struct error *err)
{
	struct tar *t;
	struct stat st;
	int r = libarchive_load(err);

	if (r < 0)
		return r;
	t = calloc(1, sizeof(*t));
	if (!t)
		return error_errno(err, -ENOMEM, "%s", name);
	t->owns_fd = strcmp(name, "-") != 0;
	text_printable(t->name, sizeof(t->name), t->owns_fd ? name : "standard input",
		       strlen(t->owns_fd ? name : "standard input"));
	t->fd = t->owns_fd ? open(name, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
	if (t->fd < 0 || fstat(t->fd, &st) < 0)
		r = error_errno(err, -errno, "cannot read the source %s", t->name);
	else if (isatty(t->fd))
		r = error_set(
		    err, -EINVAL,
		    "%s is a terminal: pipe an archive into it, as in `tar cf - -C DIR . | dieselctl "
		    "pack - DATASET`",
		    t->name);
	else if (S_ISREG(st.st_mode))
		t->bytes = (uint64_t)st.st_size;
	if (r == 0)
		r = open_archive(t, err);
	if (r < 0)
		tar_free(t);
	else
		*ret = t;
	return r;
}

void tar_free(struct tar *t)
{
	if (!t)
		return;
	libarchive.read_free(t->archive);
	if (t->owns_fd)
		closep(&t->fd);
	free(t->data);
	free(t->read);
	free(t->plain);
	ZSTD_freeDCtx(t->zstd);
	free(t);
}

const char *tar_name(const struct tar *t)
{
	return t->name;
}

uint64_t tar_position(const struct tar *t)
{
	return t->n_read;
}

uint64_t tar_bytes(const struct tar *t)
{
	return t->bytes;
}

static const char *kind_of(struct archive_entry *entry)
{
	if (libarchive.entry_hardlink(entry))
		return "a hard link; make the archive with `tar --hard-dereference`";
	switch (libarchive.entry_filetype(entry)) {
	case AE_IFREG: return NULL;
	case AE_IFLNK: return "a symbolic link; make the archive with `tar --dereference`";
	case AE_IFCHR:
	case AE_IFBLK: return "a device";
	case AE_IFIFO: return "a FIFO";
	case AE_IFSOCK: return "a socket";
	default: return "of a type that a dataset cannot hold";
	}
}

static int check_entry(const struct tar *t, struct archive_entry *entry, const char *path, size_t length,
		       struct error *err)
{
	const char *kind = kind_of(entry);
	char text[200], size[24];

	text_printable(text, sizeof(text), path, length);
	if (kind)
		return error_set(err, -EBADMSG, "%s: '%s' is %s", t->name, text, kind);
	if (!chunk_name_is_valid(path, length))
		return error_set(err, -EBADMSG,
				 "%s: '%s' is not a valid path of a sample: must be relative, without empty "
				 "names, . and .., and have at most %u bytes",
				 t->name, text, CHUNK_NAME_MAX);
	if (libarchive.entry_size(entry) < 0 || libarchive.entry_size(entry) > CHUNK_SAMPLE_MAX_BYTES)
		return error_set(
		    err, -EFBIG,
		    "%s: '%s' has %s, a sample can have at most 1 GiB: split it, or leave it out", t->name,
		    text, units_format_bytes(size, sizeof(size), (uint64_t)libarchive.entry_size(entry)));
	return 0;
}

static int reserve(struct tar *t, size_t bytes)
{
	if (bytes <= t->n_allocated)
		return 0;
	unsigned char *grown = realloc(t->data, bytes);

	if (!grown)
		return -ENOMEM;
	t->data = grown;
	t->n_allocated = bytes;
	return 0;
}

static int read_data(struct tar *t, size_t bytes, struct error *err)
{
	size_t done = 0;
	unsigned char more;
	la_ssize_t n = 1;

	if (reserve(t, bytes) < 0)
		return error_errno(err, -ENOMEM, "%s: a file of %zu bytes", t->name, bytes);
	while (done < bytes && (n = libarchive.read_data(t->archive, t->data + done, bytes - done)) > 0)
		done += (size_t)n;
	if (n > 0) /* also consumes the padding of the file's last block */
		n = libarchive.read_data(t->archive, &more, 1);
	if (n == 0 && done == bytes)
		return 0;
	return n < 0 ? read_error(t, err)
		     : error_set(err, -EBADMSG, "%s has a file that is shorter than its header states",
				 t->name);
}

/* Checks that the archive ends in a block of zeros. libarchive accepts an archive without it, which was
 * truncated between two files. */
static int read_end(struct tar *t, la_int64_t before, struct error *err)
{
	size_t rest = 0;
	ssize_t n;

	if (libarchive.filter_bytes(t->archive, 0) < before + BLOCK)
		return error_set(err, -EBADMSG, "%s is cut off: it ends at byte %llu without an end marker",
				 t->name, (unsigned long long)before);
	if (reserve(t, READ_BYTES) < 0)
		return 0;
	while (rest < MAX_REST && (n = read(t->fd, t->data, READ_BYTES)) > 0)
		rest += (size_t)n;
	return 0;
}

static uint64_t mtime_of(struct archive_entry *entry)
{
	if (!libarchive.entry_mtime_is_set(entry) || libarchive.entry_mtime(entry) < 0 ||
	    (uint64_t)libarchive.entry_mtime(entry) > UINT64_MAX / NS_PER_S - 1)
		return 0;
	return (uint64_t)libarchive.entry_mtime(entry) * NS_PER_S +
	       (uint64_t)libarchive.entry_mtime_nsec(entry);
}

int tar_next(struct tar *t, struct tar_file *ret, struct error *err)
{
	struct archive_entry *entry;

	for (;;) {
		la_int64_t before = libarchive.filter_bytes(t->archive, 0);
		int r = libarchive.read_next_header(t->archive, &entry);

		if (r == ARCHIVE_EOF)
			return read_end(t, before, err);
		/* A warning means that a name is not valid in this locale. libarchive then returns it
		 * unchanged. */
		if (r != ARCHIVE_OK && r != ARCHIVE_WARN)
			return read_error(t, err);
		const char *path = libarchive.entry_pathname(entry);

		if (!path)
			return error_set(err, -EBADMSG, "%s has a file without a name", t->name);
		while (path[0] == '.' && path[1] == '/')
			path += 2;
		size_t length = strlen(path);

		if (libarchive.entry_filetype(entry) == AE_IFDIR && !libarchive.entry_hardlink(entry)) {
			*ret = (struct tar_file){.path = path, .path_length = length, .is_folder = true};
			return 1;
		}
		r = check_entry(t, entry, path, length, err);
		if (r == 0)
			r = read_data(t, (size_t)libarchive.entry_size(entry), err);
		if (r < 0)
			return r;
		*ret = (struct tar_file){
		    .path = path,
		    .path_length = length,
		    .data = t->data,
		    .bytes = (size_t)libarchive.entry_size(entry),
		    .mode = S_IFREG | (libarchive.entry_perm(entry) & 07777),
		    .mtime_ns = mtime_of(entry),
		};
		return 1;
	}
}
