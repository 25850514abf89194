/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The snapshot: all metadata of one version of a dataset, in one immutable file that every process of a node
 * maps. Lookups take no lock and allocate nothing. A new version replaces the file by a rename, so a mapped
 * snapshot stays valid; comparing `version` tells whether it is the newest one.
 *
 * Samples are numbered 0..n_samples-1 in storage order: by chunk (in id order), then by place in the
 * chunk. A sample number means something only together with the snapshot's version.
 *
 * Little endian; sections are 64-byte aligned, listed in the header with offset, length and XXH3-64.
 * snapshot_open_fd() takes the same time however many samples there are: it checks the header, and that the
 * sections lie inside the file. All accessors check bounds, so that even a damaged snapshot that nobody
 * verified cannot cause a read outside the mapping. Three functions check its contents:
 *
 * - snapshot_verify() reads everything once: some microseconds per sample if memory is slow.
 * - snapshot_verify_tables() reads only the tables, which do not grow with the samples. Then a record may be
 *   used together with its chunk's head, which the chunk table vouches for: if they differ, the record is
 *   wrong.
 * - snapshot_check_rest() is for lookups in a snapshot whose tables are verified: it compares the other
 *   checksums, in about 0.1 s for ten million samples.
 */

#include "dataset/chunk.h"
#include "dataset/digest.h"
#include "dataset/fairness.h"
#include "dataset/path_order.h"
#include "lib/error.h"

#include <stddef.h>
#include <stdint.h>

#define SNAPSHOT_FILE     "snapshot" /* in the dataset's directory, next to chunks/ and meta.db */
#define SNAPSHOT_NO_CLASS (-1)

/* bytes of a snapshot (about 60,000 samples) up to which snapshot_verify() takes no noticeable time */
#define SNAPSHOT_WHOLE_BYTES (4u << 20)

struct snapshot;

struct snapshot_sample {
	uint32_t chunk;  /* index in the chunk table */
	uint32_t record; /* place in the chunk */
	uint64_t offset; /* offset in the chunk's plain form */
	uint32_t bytes;  /* length of the sample */
	uint32_t stored_bytes;
	uint16_t encoding;   /* enum chunk_encoding */
	int32_t class_index; /* class number as in torchvision's ImageFolder, or SNAPSHOT_NO_CLASS */
	uint64_t xxh3;
	uint64_t mtime_ns; /* set only by snapshot_sample_stat(), else 0 */
	uint32_t mode;
	const char *path; /* borrowed; path_length bytes, not terminated */
	uint16_t path_length;
};

struct snapshot_chunk {
	struct chunk_id id;
	uint64_t file_bytes;   /* length of the plain form, to which sample offsets refer */
	bool is_compressed;    /* the file is a shorter form of the chunk (dataset/blocks.h) */
	bool is_external;      /* the payload is in another file (dataset/external.h) */
	uint64_t first_sample; /* its samples are first_sample .. first_sample + n_samples - 1 */
	uint32_t n_samples;    /* live samples: deleted or superseded records are left out */
	uint32_t payload_offset;
	uint64_t head_xxh3; /* from the chunk's header: shows that a file was replaced */
	bool has_sha256;    /* the next field has the SHA-256 of the plain form; all chunks of a snapshot have
			       one, or none has */
	struct digest sha256;
};

/* Kind of all samples, by their endings (.jpg, .jpeg, .png, .webp; of any case), so that nobody has to read
 * all paths. */
enum snapshot_names {
	SNAPSHOT_NAMES_UNKNOWN,
	SNAPSHOT_NAMES_IMAGES, /* all samples are images that dieseld decodes */
	SNAPSHOT_NAMES_OTHERS, /* some samples are not such images */
};

struct snapshot_info {
	uint64_t version; /* version of the dataset; grows with every change */
	uint64_t n_samples;
	uint64_t n_chunks;
	uint32_t n_classes;   /* top-level folders, sorted by name (byte order) */
	uint32_t equal_bytes; /* the length of every sample when all are equal, else 0 */
	uint32_t max_bytes;   /* length of the longest sample */
	uint64_t total_bytes; /* total length of all samples */
	uint64_t max_chunk_file_bytes;
	uint64_t created_ns; /* CLOCK_REALTIME */
	uint64_t file_bytes; /* length of the snapshot file */
	bool has_digests;
	bool is_compressed; /* chunks may be compressed */
	bool is_external;   /* chunks may have their payload in other files */
	enum snapshot_names names;
	enum chunk_layout layout; /* of all samples */
	struct columns columns;   /* of this layout; nobody has verified them (columns.h) */
};

/* Returns true if chunks must be read through store_plain_open(). */
static inline bool snapshot_needs_plain_store(const struct snapshot_info *info)
{
	return info->is_compressed || info->is_external;
}

/* Maps the file and keeps no reference to fd. If the file is truncated later, reading it raises SIGBUS: map a
 * sealed copy, or let bus_error_init() explain it. -ENOENT, -EACCES, -EBADMSG, -EPROTONOSUPPORT. */
int snapshot_open_fd(int fd, const char *origin, struct snapshot **ret, struct error *err);
/* Returns true if this file is a snapshot that has external chunks, by its header, which nobody has verified.
 */
bool snapshot_is_external(int fd);
/* Opens DATASET/snapshot. Also -ENOTDIR. If this is no dataset, err says what to do. */
int snapshot_open(const char *dataset_path, struct snapshot **ret, struct error *err);
/* dir_fd: the dataset's folder; -errno: it cannot be opened. */
int snapshot_open_at(int dir_fd, const char *dataset_path, struct snapshot **ret, struct error *err);
/* Returns the verb that restores a missing snapshot: "snapshot", from existing metadata, or "rebuild", from
 * the chunks. */
const char *snapshot_verb_again(int dir_fd);
/* Checks the XXH3-64 of every section, and every cross-reference. -EBADMSG: err names what is wrong. */
int snapshot_verify(const struct snapshot *s, struct error *err);
/* Checks chunk table, class table and digests. -EBADMSG. */
int snapshot_verify_tables(const struct snapshot *s, struct error *err);
/* Check only the XXH3-64: of chunk table, class table and digests; of records, hash index, tree order and
 * paths. -EBADMSG. */
int snapshot_check_tables(const struct snapshot *s, struct error *err);
int snapshot_check_rest(const struct snapshot *s, struct error *err);
/* Runs snapshot_check_rest() until it has passed once. Any thread. */
int snapshot_check_lookups(struct snapshot *s, struct error *err);
void snapshot_close(struct snapshot *s);

const struct snapshot_info *snapshot_info(const struct snapshot *s);
/* Returns a digest that is equal for files that are byte for byte the same snapshot. Covers the header, which
 * has the checksums of everything else. */
void snapshot_digest(const struct snapshot *s, uint8_t ret[16]);
/* Return one chunk, or one sample. -ERANGE: no such index; -EBADMSG: the entry points outside the file, or
 * contradicts the chunk table. */
int snapshot_chunk_get(const struct snapshot *s, uint64_t chunk, struct snapshot_chunk *ret);
int snapshot_sample_get(const struct snapshot *s, uint64_t sample, struct snapshot_sample *ret);
/* Returns the list of chunks from which lanes are cut (shuffle_base_list()), with one number per chunk: the
 * caller frees it. -ENOMEM, and as snapshot_chunk_get(). */
int snapshot_base_list(const struct snapshot *s, uint64_t **ret);
/* Measures how fairly the dataset is packed, from some thousand samples of at least 64 chunks. -ENOMEM, and
 * as snapshot_sample_get(). */
int snapshot_fairness(const struct snapshot *s, struct fairness *ret);
/* Prefetches the data that snapshot_sample_get() reads for a sample that is needed soon. Any number is
 * accepted. */
void snapshot_sample_prefetch(const struct snapshot *s, uint64_t sample);
/* Reads the file's modification time, which is stored separately. Errors as snapshot_sample_get(). */
int snapshot_mtime(const struct snapshot *s, uint64_t sample, uint64_t *ret_ns);
/* As snapshot_sample_get() and snapshot_mtime() together. */
int snapshot_sample_stat(const struct snapshot *s, uint64_t sample, struct snapshot_sample *ret);
/* Returns the name of a class. The name is borrowed, has *ret_length bytes, and is not terminated. */
int snapshot_class_name(const struct snapshot *s, uint32_t class_index, const char **ret_name,
			size_t *ret_length);
/* Returns true if there are classes, and also samples without a class. */
bool snapshot_has_outsiders(const struct snapshot *s);
/* Returns true if a sample of this path is of this class, or of none for SNAPSHOT_NO_CLASS. */
bool snapshot_class_fits(const struct snapshot *s, int32_t class_index, const char *path, size_t path_length);
/* Returns true if a sample of this path is an image by its ending. */
bool snapshot_name_is_image(const char *path, size_t path_length);
/* Finds a sample by its path, through the hash index. -ENOENT. */
int snapshot_find(const struct snapshot *s, const char *path, size_t path_length, uint64_t *ret_sample);
/* Finds n paths: sets samples[n], SNAPSHOT_NOT_FOUND for a path that does not exist. Overlaps the memory
 * accesses of many paths. Returns the number of paths found. */
#define SNAPSHOT_NOT_FOUND UINT64_MAX
uint64_t snapshot_find_many(const struct snapshot *s, const struct path_text *paths, uint64_t n,
			    uint64_t *samples);

/*
 * The sorted tree. snapshot_by_path() gives the i-th sample (0 <= i < n_samples) in tree order, which
 * dataset/path_order.h defines, the order of ImageFolder.samples. snapshot_list() iterates over the entries
 * of one directory ("" is the root) in O(log n + entries). A subdirectory appears once, with is_directory set
 * and its name without a slash.
 */
int snapshot_by_path(const struct snapshot *s, uint64_t i, uint64_t *ret_sample);
/* Returns the sample's position in tree order. -ERANGE; -EBADMSG. */
int snapshot_place(const struct snapshot *s, uint64_t sample, uint64_t *ret_place);

struct snapshot_entry {
	const char *name; /* borrowed, not terminated; the directory's path stands right in front of it */
	size_t name_length;
	bool is_directory;
	uint64_t place;  /* place in tree order; a directory has the place of its first sample */
	uint64_t sample; /* number of a file's sample */
};

/* Returns the directory's next entry; *cursor is 0 before the first. -ENOENT: there are no more entries. */
int snapshot_list(const struct snapshot *s, const char *directory, size_t directory_length, uint64_t *cursor,
		  struct snapshot_entry *ret);
