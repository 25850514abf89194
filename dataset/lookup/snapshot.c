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

#include "checksum.h"
#include "lib/cleanup.h"
#include "snapshot_map.h"

static int check_header(const struct snapshot_header *h, uint64_t file_bytes, const char *origin,
			struct error *err)
{
	if (memcmp(h->magic, SNAPSHOT_MAGIC, sizeof(h->magic)) != 0)
		return error_set(err, -EBADMSG, "%s is no snapshot (wrong magic); " SNAPSHOT_DAMAGED, origin);
	if (h->format > SNAPSHOT_VERSION)
		return error_set(
		    err, -EPROTONOSUPPORT,
		    "%s has snapshot format version %u, this program knows up to %u; update it, or "
		    "run `dieselctl snapshot` with this one",
		    origin, h->format, SNAPSHOT_VERSION);
	if (checksum_xxh3_gap(h, sizeof(*h), offsetof(struct snapshot_header, header_xxh3)) != h->header_xxh3)
		return error_set(err, -EBADMSG,
				 "%s: header is damaged (checksum mismatch); " SNAPSHOT_DAMAGED, origin);
	if (h->file_bytes != file_bytes)
		return error_set(err, -EBADMSG, "%s %s: %llu bytes, its header says %llu; " SNAPSHOT_DAMAGED,
				 origin, file_bytes < h->file_bytes ? "is truncated" : "is too long",
				 (unsigned long long)file_bytes, (unsigned long long)h->file_bytes);
	if (h->format < SNAPSHOT_VERSION_PLAIN || h->n_sections != SNAPSHOT_N_SECTIONS ||
	    h->n_samples > SNAPSHOT_MAX_SAMPLES || h->n_chunks > UINT32_MAX)
		return error_set(err, -EBADMSG, "%s: header contradicts itself; " SNAPSHOT_DAMAGED, origin);
	return 0;
}

/* Checks that the sections lie in the file and have the lengths that the counts ask for. */
static int check_sections(const struct snapshot_header *h, const char *origin, struct error *err)
{
	const uint64_t needed[SNAPSHOT_N_SECTIONS] = {
	    [SNAPSHOT_CHUNKS] = h->n_chunks * sizeof(struct snapshot_chunk_entry),
	    [SNAPSHOT_RECORDS] = h->n_samples * sizeof(struct snapshot_record),
	    [SNAPSHOT_HASH] = h->sections[SNAPSHOT_HASH].bytes,
	    [SNAPSHOT_TREE] = h->n_samples * sizeof(uint32_t),
	    [SNAPSHOT_PATHS] = h->sections[SNAPSHOT_PATHS].bytes,
	    [SNAPSHOT_CLASSES] = h->n_classes * sizeof(struct snapshot_class),
	};
	uint64_t n_slots = h->sections[SNAPSHOT_HASH].bytes / sizeof(struct snapshot_slot);

	for (int i = 0; i < SNAPSHOT_N_SECTIONS; i++) {
		const struct snapshot_extent *e = &h->sections[i];

		if (e->offset % SNAPSHOT_ALIGN || e->offset > h->file_bytes ||
		    e->bytes > h->file_bytes - e->offset || e->bytes != needed[i])
			return error_set(err, -EBADMSG,
					 "%s: section %d lies outside the file; " SNAPSHOT_DAMAGED, origin,
					 i);
	}
	if (h->format == SNAPSHOT_VERSION_DIGESTS &&
	    (h->digests_offset % SNAPSHOT_ALIGN || h->digests_offset > h->file_bytes ||
	     h->n_chunks * sizeof(struct digest) > h->file_bytes - h->digests_offset))
		return error_set(err, -EBADMSG, "%s: digests lie outside the file; " SNAPSHOT_DAMAGED,
				 origin);
	if (n_slots == 0 || (n_slots & (n_slots - 1)) || h->n_samples > n_slots / 4 * 3 ||
	    h->sections[SNAPSHOT_HASH].bytes % sizeof(struct snapshot_slot))
		return error_set(err, -EBADMSG, "%s: hash index has a wrong size; " SNAPSHOT_DAMAGED, origin);
	return 0;
}

static const void *section_start(const struct snapshot *s, enum snapshot_section section)
{
	return s->map + s->header->sections[section].offset;
}

static void bind_sections(struct snapshot *s)
{
	const struct snapshot_header *h = s->header;

	s->chunks = section_start(s, SNAPSHOT_CHUNKS);
	s->records = section_start(s, SNAPSHOT_RECORDS);
	s->slots = section_start(s, SNAPSHOT_HASH);
	s->n_slots = h->sections[SNAPSHOT_HASH].bytes / sizeof(struct snapshot_slot);
	s->tree = section_start(s, SNAPSHOT_TREE);
	s->paths = section_start(s, SNAPSHOT_PATHS);
	s->paths_bytes = h->sections[SNAPSHOT_PATHS].bytes;
	s->classes = section_start(s, SNAPSHOT_CLASSES);
	if (h->format == SNAPSHOT_VERSION_DIGESTS)
		s->digests = (const struct digest *)(s->map + h->digests_offset);
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
	    .has_digests = s->digests != NULL,
	    .names = h->names <= SNAPSHOT_NAMES_OTHERS ? h->names : SNAPSHOT_NAMES_UNKNOWN,
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
	s->map = map;
	s->map_bytes = (uint64_t)st.st_size;
	s->header = map;
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
		r = check_header(s->header, s->map_bytes, origin, err);
	if (r == 0)
		r = check_sections(s->header, origin, err);
	if (r < 0) {
		snapshot_close(s);
		return r;
	}
	bind_sections(s);
	*ret = s;
	return 0;
}

int snapshot_open(const char *dataset_path, struct snapshot **ret, struct error *err)
{
	_cleanup_(freep) char *path = NULL;
	struct stat st;

	if (asprintf(&path, "%s/" SNAPSHOT_FILE, dataset_path) < 0) {
		path = NULL;
		return error_errno(err, -ENOMEM, "%s", dataset_path);
	}
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		return snapshot_open_fd(fd, path, ret, err);
	int r = -errno;

	if (r != -ENOENT && r != -ENOTDIR)
		return error_errno(err, r, "cannot open %s", path);
	if (stat(dataset_path, &st) < 0)
		return error_set(err, r, "there is no dataset %s; make one with `dieselctl pack SOURCE %s`",
				 dataset_path, dataset_path);
	return error_set(
	    err, r,
	    "%s is no dataset (it has no snapshot); make one with `dieselctl pack SOURCE DATASET`, or, if "
	    "it has chunks, run `dieselctl snapshot %s`",
	    dataset_path, dataset_path);
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
	    .head_xxh3 = e->head_xxh3,
	    .has_sha256 = s->digests != NULL,
	};
	if (s->digests)
		ret->sha256 = s->digests[chunk];
	return 0;
}

/* Asked of each record when it is used, because most of a large snapshot is not read before. */
bool snapshot_record_fits(const struct snapshot *s, uint64_t sample)
{
	const struct snapshot_record *r = &s->records[sample];

	if (r->chunk >= s->info.n_chunks)
		return false;
	const struct snapshot_chunk_entry *c = &s->chunks[r->chunk];

	return sample >= c->first_sample && sample - c->first_sample < c->n_samples &&
	       r->offset >= c->payload_offset && r->offset <= c->file_bytes &&
	       r->stored_bytes <= c->file_bytes - r->offset && r->bytes <= s->info.max_bytes &&
	       (s->info.equal_bytes == 0 || r->bytes == s->info.equal_bytes) &&
	       r->class_index >= SNAPSHOT_NO_CLASS && r->class_index < (int64_t)s->info.n_classes;
}

int snapshot_sample_get(const struct snapshot *s, uint64_t sample, struct snapshot_sample *ret)
{
	if (sample >= s->info.n_samples)
		return -ERANGE;
	const struct snapshot_record *r = &s->records[sample];
	struct path_text path = snapshot_path(s, sample);

	if (!path.text || path.length > CHUNK_NAME_MAX || !snapshot_record_fits(s, sample))
		return -EBADMSG;
	*ret = (struct snapshot_sample){
	    .chunk = r->chunk,
	    .record = r->record,
	    .offset = r->offset,
	    .bytes = r->bytes,
	    .stored_bytes = r->stored_bytes,
	    .encoding = r->encoding,
	    .class_index = r->class_index,
	    .xxh3 = r->xxh3,
	    .mtime_ns = r->mtime_ns,
	    .mode = r->mode,
	    .path = path.text,
	    .path_length = (uint16_t)path.length,
	};
	return 0;
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

int snapshot_find(const struct snapshot *s, const char *path, size_t path_length, uint64_t *ret_sample)
{
	uint64_t hash = checksum_xxh3(path, path_length);
	uint32_t tag = (uint32_t)(hash >> 32);

	/* Bounded, because an index may have been made to be slow. */
	for (uint64_t i = 0; i < s->n_slots && i < SNAPSHOT_PROBE_MAX; i++) {
		const struct snapshot_slot *slot = &s->slots[(hash + i) & (s->n_slots - 1)];

		if (slot->sample_plus_1 == 0)
			return -ENOENT;
		if (slot->tag != tag)
			continue;
		struct path_text found = snapshot_path(s, slot->sample_plus_1 - 1);

		if (found.text && found.length == path_length && memcmp(found.text, path, path_length) == 0) {
			*ret_sample = slot->sample_plus_1 - 1;
			return 0;
		}
	}
	return -ENOENT;
}
