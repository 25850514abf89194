/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dataset/checksum/checksum.h"
#include "dataset/columns.h"
#include "dataset/meta.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/huge_pages.h"
#include "lib/file_open.h"
#include "lib/sorted.h"
#include "snapshot_map.h"

static int read_header(struct snapshot *s, struct error *err)
{
	struct snapshot_header *h = &s->header;

	memcpy(h, s->map, sizeof(*h));
	if (memcmp(h->magic, SNAPSHOT_MAGIC, sizeof(h->magic)) != 0)
		return error_set(err, -EBADMSG, "%s is not a snapshot (wrong magic); " SNAPSHOT_DAMAGED,
				 s->origin);
	if (h->format != SNAPSHOT_FORMAT)
		return error_set(err, -EPROTONOSUPPORT,
				 "%s has snapshot format %u, but this program supports %u: %srun `dieselctl "
				 "snapshot` from the same version as this program",
				 s->origin, h->format, SNAPSHOT_FORMAT,
				 h->format > SNAPSHOT_FORMAT ? "update this program, or " : "");
	if (checksum_xxh3_gap(s->map, sizeof(*h), offsetof(struct snapshot_header, header_xxh3)) !=
	    h->header_xxh3)
		return error_set(err, -EBADMSG,
				 "%s: header is damaged (checksum mismatch); " SNAPSHOT_DAMAGED, s->origin);
	return 0;
}

static int check_header(const struct snapshot *s, struct error *err)
{
	const struct snapshot_header *h = &s->header;

	if (h->file_bytes != s->map_bytes)
		return error_set(err, -EBADMSG,
				 "%s %s: %llu bytes, its header states %llu; " SNAPSHOT_DAMAGED, s->origin,
				 s->map_bytes < h->file_bytes ? "is truncated" : "is too long",
				 (unsigned long long)s->map_bytes, (unsigned long long)h->file_bytes);
	if (h->layout >= CHUNK_N_LAYOUTS)
		return error_set(
		    err, -EPROTONOSUPPORT,
		    "%s has samples of a layout (%u) that this program does not support; update it",
		    s->origin, h->layout);
	if (h->n_sections != SNAPSHOT_N_SECTIONS || h->n_samples > SNAPSHOT_MAX_SAMPLES ||
	    h->n_chunks > UINT32_MAX)
		return error_set(err, -EBADMSG, "%s: header contradicts itself; " SNAPSHOT_DAMAGED,
				 s->origin);
	return 0;
}

/* Returns true if the hash index has a size that n_samples fit in. */
static bool index_fits(const struct snapshot *s)
{
	const struct snapshot_header *h = &s->header;
	uint64_t bytes = h->sections[SNAPSHOT_HASH].bytes, n = bytes / sizeof(struct snapshot_bucket);

	return bytes % sizeof(struct snapshot_bucket) == 0 && h->n_buckets > 0 && h->n_buckets <= n &&
	       h->n_samples <= n * SNAPSHOT_BUCKET_SLOTS;
}

/* Checks that the sections lie in the file and have the lengths that follow from the counts. */
static int check_sections(const struct snapshot *s, struct error *err)
{
	const struct snapshot_header *h = &s->header;
	bool has_digests = h->flags & SNAPSHOT_FLAG_DIGESTS;
	bool has_columns = chunk_layout_has_columns((enum chunk_layout)h->layout);
	uint64_t chunks = h->n_chunks * sizeof(struct snapshot_chunk_entry);
	uint64_t rest = h->sections[SNAPSHOT_CHUNKS].bytes - chunks; /* wraps if they are too few */
	const uint64_t needed[SNAPSHOT_N_SECTIONS] = {
	    [SNAPSHOT_CHUNKS] = chunks + (has_columns && rest <= COLUMNS_MAX_BYTES ? rest : 0),
	    [SNAPSHOT_RECORDS] = h->n_samples * sizeof(struct snapshot_record),
	    [SNAPSHOT_HASH] = h->sections[SNAPSHOT_HASH].bytes,
	    [SNAPSHOT_TREE] = h->n_samples * sizeof(uint32_t),
	    [SNAPSHOT_PATHS] = h->sections[SNAPSHOT_PATHS].bytes,
	    [SNAPSHOT_CLASSES] = h->n_classes * sizeof(struct snapshot_class),
	    [SNAPSHOT_DIGESTS] = has_digests ? h->n_chunks * sizeof(struct digest) : 0,
	    [SNAPSHOT_TIMES] = h->sections[SNAPSHOT_TIMES].bytes,
	};

	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++) {
		const struct snapshot_extent *e = &h->sections[i];

		if (e->offset % SNAPSHOT_ALIGN || e->offset > h->file_bytes ||
		    e->bytes > h->file_bytes - e->offset || e->bytes != needed[i])
			return error_set(err, -EBADMSG, "%s: %s outside the file; " SNAPSHOT_DAMAGED,
					 s->origin, i == SNAPSHOT_DIGESTS ? "digests lie" : "a section lies");
	}
	if (!index_fits(s))
		return error_set(err, -EBADMSG, "%s: the hash index has the wrong size; " SNAPSHOT_DAMAGED,
				 s->origin);
	return 0;
}

static const void *section_start(const struct snapshot *s, enum snapshot_section section)
{
	return s->map + s->header.sections[section].offset;
}

static void bind_sections(struct snapshot *s)
{
	const struct snapshot_header *h = &s->header;

	s->chunks = section_start(s, SNAPSHOT_CHUNKS);
	s->records = section_start(s, SNAPSHOT_RECORDS);
	s->buckets = section_start(s, SNAPSHOT_HASH);
	s->n_all_buckets = h->sections[SNAPSHOT_HASH].bytes / sizeof(struct snapshot_bucket);
	s->tree = section_start(s, SNAPSHOT_TREE);
	s->paths = section_start(s, SNAPSHOT_PATHS);
	s->paths_bytes = h->sections[SNAPSHOT_PATHS].bytes;
	s->classes = section_start(s, SNAPSHOT_CLASSES);
	s->times = section_start(s, SNAPSHOT_TIMES);
	s->times_bytes = h->sections[SNAPSHOT_TIMES].bytes;
	if (h->flags & SNAPSHOT_FLAG_DIGESTS)
		s->digests = section_start(s, SNAPSHOT_DIGESTS);
	s->info = (struct snapshot_info){
	    .version = h->version,
	    .n_samples = h->n_samples,
	    .n_chunks = h->n_chunks,
	    .n_classes = h->n_classes,
	    .equal_bytes = h->equal_bytes,
	    .max_bytes = h->max_bytes,
	    .total_bytes = h->total_bytes,
	    .max_chunk_file_bytes = h->max_chunk_file_bytes,
	    .created_ns = h->created_ns,
	    .file_bytes = h->file_bytes,
	    .has_digests = s->digests != NULL,
	    .is_compressed = h->flags & SNAPSHOT_FLAG_COMPRESSED,
	    .is_external = h->flags & SNAPSHOT_FLAG_EXTERNAL,
	    .names = h->names <= SNAPSHOT_NAMES_OTHERS ? h->names : SNAPSHOT_NAMES_UNKNOWN,
	    .layout = (enum chunk_layout)h->layout,
	    .columns = {s->chunks + h->n_chunks,
			h->sections[SNAPSHOT_CHUNKS].bytes - h->n_chunks * sizeof(*s->chunks)},
	};
}

static int map_file(struct snapshot *s, int fd, struct error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return error_errno(err, -errno, "cannot read %s", s->origin);
	if (st.st_size < (off_t)sizeof(struct snapshot_header))
		return error_set(err, -EBADMSG, "%s is truncated: %lld bytes; " SNAPSHOT_DAMAGED, s->origin,
				 (long long)st.st_size);
	void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);

	if (map == MAP_FAILED)
		return error_errno(err, -errno, "cannot map %s", s->origin);
	huge_leave_out_of_core(map, (uint64_t)st.st_size);
	s->map = map;
	s->map_bytes = (uint64_t)st.st_size;
	return 0;
}

int snapshot_open_fd(int fd, const char *origin, struct snapshot **ret, struct error *err)
{
	struct snapshot *s = calloc(1, sizeof(*s));

	if (!s || !(s->origin = strdup(origin))) {
		snapshot_close(s);
		return error_errno(err, -ENOMEM, "%s", origin);
	}
	int r = map_file(s, fd, err);

	if (r == 0)
		r = read_header(s, err);
	if (r == 0)
		r = check_header(s, err);
	if (r == 0)
		r = check_sections(s, err);
	if (r < 0) {
		snapshot_close(s);
		return r;
	}
	bind_sections(s);
	*ret = s;
	return 0;
}

bool snapshot_is_external(int fd)
{
	struct snapshot_header h;
	size_t done;

	return fd_read_at(fd, &h, sizeof(h), 0, &done) == 0 && done == sizeof(h) &&
	       memcmp(h.magic, SNAPSHOT_MAGIC, sizeof(h.magic)) == 0 && h.flags & SNAPSHOT_FLAG_EXTERNAL;
}

int snapshot_open(const char *dataset_path, struct snapshot **ret, struct error *err)
{
	_cleanup_(closep) int dir_fd = file_folder_open(dataset_path, false);

	return snapshot_open_at(dir_fd, dataset_path, ret, err);
}

const char *snapshot_verb_again(int dir_fd)
{
	return faccessat(dir_fd, META_SQLITE_FILE, F_OK, 0) == 0 ||
		       faccessat(dir_fd, META_REDIS_FILE, F_OK, 0) == 0
		   ? "snapshot"
		   : "rebuild";
}

int snapshot_open_at(int dir_fd, const char *dataset_path, struct snapshot **ret, struct error *err)
{
	_cleanup_(freep) char *path = NULL;

	if (asprintf(&path, "%s/" SNAPSHOT_FILE, dataset_path) < 0) {
		path = NULL;
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	_cleanup_(closep) int fd = dir_fd < 0 ? dir_fd : file_to_read(dir_fd, SNAPSHOT_FILE, false);
	int r = fd;

	if (r >= 0)
		return snapshot_open_fd(fd, path, ret, err);
	if (r != -ENOENT && r != -ENOTDIR)
		return file_error(err, r, "open", path);
	if (dir_fd == -ENOENT)
		return error_set(err, r, "there is no dataset %s; make one with `dieselctl pack SOURCE %s`",
				 dataset_path, dataset_path);
	return error_set(err, r,
			 "%s is not a dataset (it has no snapshot); make one with `dieselctl pack SOURCE "
			 "DATASET`, or, if it has chunks, run `dieselctl %s %s`",
			 dataset_path, snapshot_verb_again(dir_fd), dataset_path);
}

void snapshot_close(struct snapshot *s)
{
	if (!s)
		return;
	if (s->map)
		munmap((void *)s->map, s->map_bytes);
	free(s->origin);
	free(s);
}

const struct snapshot_info *snapshot_info(const struct snapshot *s)
{
	return &s->info;
}

void snapshot_digest(const struct snapshot *s, uint8_t ret[16])
{
	struct checksum_128 sum = checksum_xxh3_128(&s->header, sizeof(s->header));

	memcpy(ret, &sum.low, sizeof(sum.low));
	memcpy(ret + sizeof(sum.low), &sum.high, sizeof(sum.high));
}

int snapshot_chunk_get(const struct snapshot *s, uint64_t chunk, struct snapshot_chunk *ret)
{
	if (chunk >= s->info.n_chunks)
		return -ERANGE;
	const struct snapshot_chunk_entry *e = &s->chunks[chunk];

	*ret = (struct snapshot_chunk){
	    .id = e->id,
	    .file_bytes = e->file_bytes,
	    .first_sample = e->first_sample,
	    .n_samples = e->n_samples,
	    .payload_offset = e->payload_offset,
	    .is_compressed = s->info.is_compressed && e->form == SNAPSHOT_FORM_COMPRESSED,
	    .is_external = s->info.is_external && e->form == SNAPSHOT_FORM_EXTERNAL,
	    .head_xxh3 = e->head_xxh3,
	    .has_sha256 = s->digests != NULL,
	};
	if (s->digests)
		ret->sha256 = s->digests[chunk];
	return 0;
}

/* Returns min(n * part / all, n). A division of 128 bits takes several times as long as one of 64. */
static uint64_t share_of(uint64_t part, uint64_t n, uint64_t all)
{
	uint64_t product;

	if (part >= all)
		return n;
	if (__builtin_mul_overflow(part, n, &product))
		return (uint64_t)((unsigned __int128)part * n / all);
	return product / all;
}

/*
 * Returns how many of n ascending numbers, `stride` bytes apart, do not exceed `limit`. The numbers are
 * probably spread evenly up to `end`, so the search begins at the place expected for that and widens. If the
 * numbers do not ascend, the result means nothing, but is at most n.
 */
static uint64_t count_up_to(const uint64_t *first, size_t stride, uint64_t n, uint64_t limit, uint64_t end)
{
	const char *numbers = (const char *)first;
	uint64_t low, high, step = 1;

#define NUMBER(i) (*(const uint64_t *)(numbers + (i)*stride))
	low = share_of(limit, n, end);
	high = low;
	while (low > 0 && NUMBER(low - 1) > limit) { /* numbers at low - 1 and before may exceed the limit */
		high = low - 1;
		low = low > step ? low - step : 0;
		step *= 2;
	}
	for (step = 1; high < n && NUMBER(high) <= limit; step *= 2) {
		low = high + 1;
		high = n - high > step ? high + step : n;
	}
	return low + sorted_count(high - low, i, NUMBER(low + i) <= limit);
#undef NUMBER
}

static uint64_t chunk_of(const struct snapshot *s, uint64_t sample)
{
	return count_up_to(&s->chunks->first_sample, sizeof(*s->chunks), s->info.n_chunks, sample,
			   s->info.n_samples) -
	       1;
}

/* Returns the class of a path. In tree order, samples without a class come first, then the classes, one after
 * another. */
static int32_t class_of(const struct snapshot *s, uint64_t path_offset)
{
	return (int32_t)count_up_to(&s->classes->name_offset, sizeof(*s->classes), s->info.n_classes,
				    path_offset, s->paths_bytes) -
	       1;
}

/* Checks one record's fields. Called when a record is used, because most of a large snapshot is not read
 * before. */
static bool fields_fit(const struct snapshot *s, const struct snapshot_fields *f,
		       const struct snapshot_chunk_entry *c)
{
	return f->offset >= c->payload_offset && f->offset <= c->file_bytes &&
	       f->stored_bytes <= c->file_bytes - f->offset && f->bytes <= s->info.max_bytes &&
	       (s->info.equal_bytes == 0 || f->bytes == s->info.equal_bytes);
}

int snapshot_sample_get(const struct snapshot *s, uint64_t sample, struct snapshot_sample *ret)
{
	if (sample >= s->info.n_samples)
		return -ERANGE;
	const struct snapshot_fields f = snapshot_fields(s, sample);
	struct path_text path = snapshot_fields_path(s, &f);
	uint64_t chunk = chunk_of(s, sample);

	if (!path.text || path.length > CHUNK_NAME_MAX || chunk >= s->info.n_chunks)
		return -EBADMSG;
	const struct snapshot_chunk_entry *c = &s->chunks[chunk];

	if (sample < c->first_sample || sample - c->first_sample >= c->n_samples || !fields_fit(s, &f, c))
		return -EBADMSG;
	uint32_t record = (uint32_t)(sample - c->first_sample);

	if (c->has_places) {
		const unsigned char *places = snapshot_places(s, c);

		if (!places)
			return -EBADMSG;
		memcpy(&record, places + record * sizeof(record), sizeof(record));
	}
	*ret = (struct snapshot_sample){
	    .chunk = (uint32_t)chunk,
	    .record = record,
	    .offset = f.offset,
	    .bytes = f.bytes,
	    .stored_bytes = f.stored_bytes,
	    .encoding = f.encoding,
	    .class_index = class_of(s, f.path_offset),
	    .xxh3 = f.xxh3,
	    .mode = f.mode,
	    .path = path.text,
	    .path_length = (uint16_t)path.length,
	};
	return 0;
}

void snapshot_sample_prefetch(const struct snapshot *s, uint64_t sample)
{
	if (sample < s->info.n_samples)
		__builtin_prefetch(&s->records[sample]);
}

int snapshot_mtime(const struct snapshot *s, uint64_t sample, uint64_t *ret_ns)
{
	uint64_t chunk, place;

	if (sample >= s->info.n_samples)
		return -ERANGE;
	chunk = chunk_of(s, sample);
	if (chunk >= s->info.n_chunks)
		return -EBADMSG;
	const struct snapshot_chunk_entry *c = &s->chunks[chunk];
	const unsigned char *places = snapshot_places(s, c);

	place = sample - c->first_sample;
	if (!places || place >= c->n_samples || c->time_bytes > sizeof(*ret_ns))
		return -EBADMSG;
	*ret_ns = snapshot_time(c, places, place);
	return 0;
}

int snapshot_sample_stat(const struct snapshot *s, uint64_t sample, struct snapshot_sample *ret)
{
	struct snapshot_sample found;
	int r = snapshot_sample_get(s, sample, &found);

	if (r == 0)
		r = snapshot_mtime(s, sample, &found.mtime_ns);
	if (r == 0)
		*ret = found;
	return r;
}

int snapshot_class_name(const struct snapshot *s, uint32_t class_index, const char **ret_name,
			size_t *ret_length)
{
	if (class_index >= s->info.n_classes)
		return -ERANGE;
	const struct snapshot_class *c = &s->classes[class_index];

	if (c->name_offset > s->paths_bytes || c->name_length > s->paths_bytes - c->name_offset)
		return -EBADMSG;
	*ret_name = s->paths + c->name_offset;
	*ret_length = c->name_length;
	return 0;
}

/* Samples without a class come first in tree order, so there are some if the first class begins after offset
 * 0. */
bool snapshot_has_outsiders(const struct snapshot *s)
{
	return s->info.n_classes && s->classes[0].name_offset > 0;
}

bool snapshot_class_fits(const struct snapshot *s, int32_t class_index, const char *path, size_t path_length)
{
	size_t top = path_top_length((struct path_text){path, path_length}), length;
	const char *name;

	if (class_index == SNAPSHOT_NO_CLASS)
		return top == 0;
	return top > 0 && class_index >= 0 &&
	       snapshot_class_name(s, (uint32_t)class_index, &name, &length) == 0 && length == top &&
	       memcmp(name, path, top) == 0;
}
