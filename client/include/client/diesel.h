/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * libdiesel: batches of a dataset from dieseld, the node's data daemon, through shared memory.
 *
 * Results: 0 or a positive value that the call documents; a negative errno on failure. After a failure,
 * diesel_session_error() or the call's `error` buffer holds one line that says what happened, where, and what
 * to do.
 *
 * Threads: one thread at a time per object. diesel_batch_release() may be called from any thread. Fork:
 * objects do not survive fork(), so open new ones in the child. Nothing is left behind when a process dies.
 * The daemon owns all shared memory and takes back what the dead process held, even if a child that it forked
 * still has the socket and the mappings. While the process lives, the batches that it holds stay unchanged.
 *
 * A lost daemon: diesel_session_next() waits for it to come back (reconnect_ms), reopens the session at the
 * first batch that was not delivered yet, and continues. No sample is lost or doubled, because the order is a
 * pure function of the session's parameters. Batches already delivered stay readable.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DIESEL_DEFAULT_SOCKET "/run/diesel/dieseld.sock"

#define DIESEL_ERROR_BYTES 512        /* size of an `error` buffer that fits any line */
#define DIESEL_BATCH_MAX   (1 << 20)  /* samples */
#define DIESEL_SLOTS_MAX   64         /* batches that a session holds */
#define DIESEL_GROUP_MAX   31         /* bytes of a group's name */
#define DIESEL_CLUSTER_MAX 63         /* bytes of a cluster's name */
#define DIESEL_NO_WISH     UINT32_MAX /* result of diesel_session_wanted_workers() */

struct diesel_dataset;
struct diesel_session;

/* Version of this library, "0.1.0". */
const char *diesel_version(void);

/*
 * Opens a dataset directory, or a dataset in a bucket (s3://BUCKET/PREFIX), through the daemon at socket
 * (NULL: $DIESEL_SOCKET, else DIESEL_DEFAULT_SOCKET). A bucket is read by a process of the caller's user,
 * `dieselctl fetch`, which is started here and ends with the dataset and its sessions. The caller must be
 * able to read DATASET/snapshot: its open descriptor is what the daemon accepts as permission. error, of
 * error_size bytes, receives the line on failure. -ENOENT, -EACCES, -EBADMSG (damaged), -ECONNREFUSED (no
 * daemon), -ECONNRESET (the daemon exited while it answered, and did not return within 10 s), -ETIMEDOUT (no
 * answer), -EPROTO (another version), -EINTR.
 */
int diesel_dataset_open(const char *path, const char *socket, struct diesel_dataset **ret, char *error,
			size_t error_size);
/* Opens one version of the dataset (0: the newest), and stays at that version whatever is published later.
 * -ENOENT also: no such version, or its snapshot is no longer kept. error lists the versions that are. If
 * a sample's chunk was purged later, diesel_session_next() returns -EBADMSG, and diesel_dataset_read()
 * -ENOENT. */
int diesel_dataset_open_version(const char *path, uint64_t version, const char *socket,
				struct diesel_dataset **ret, char *error, size_t error_size);
void diesel_dataset_close(struct diesel_dataset *dataset);

/* Sets the program dieselctl that reads buckets and writes datasets, unless $DIESEL_DIESELCTL names one.
 * Without this call it is looked up in PATH. -ENOMEM. */
int diesel_dieselctl(const char *path);

/* Returns 1 if diesel_dataset_open() of this path starts dieselctl (diesel_dieselctl()): a dataset in a
 * bucket, or one whose samples are in files of other formats (`dieselctl index`). */
int diesel_dataset_needs_dieselctl(const char *path);

/* How the bytes of a sample hold its fields (docs/reference/formats.md). */
enum diesel_layout {
	DIESEL_LAYOUT_PLAIN,   /* one value, without fields */
	DIESEL_LAYOUT_FIELDS,  /* fields with names and kinds */
	DIESEL_LAYOUT_TAR,     /* the members of a tar archive that share a key */
	DIESEL_LAYOUT_MDS,     /* columns, as MosaicML Streaming writes them into shards */
	DIESEL_LAYOUT_LITDATA, /* columns, as LitData writes them into chunks */
};

struct diesel_dataset_info {
	uint64_t version;
	uint64_t n_samples;
	uint64_t n_chunks;
	uint64_t total_bytes;
	uint32_t n_classes;
	uint32_t equal_bytes; /* the length of every sample when all are equal, else 0 */
	uint32_t max_bytes;
	uint32_t layout; /* enum diesel_layout of all samples */
	const void
	    *columns; /* names and encodings of the columns, if the layout has them; borrowed until close */
	size_t columns_bytes; /* 0: the layout has no columns */
};

/* Fills in the facts about the dataset. Returns 0. Reads the mapped snapshot, without a request to the
 * daemon. */
int diesel_dataset_info(const struct diesel_dataset *dataset, struct diesel_dataset_info *ret);
/* Return the name of a class, or the path of a sample. The text is borrowed until close, and not
 * terminated. -ERANGE: no such class or sample. Classes are in ImageFolder's order: sorted names. */
int diesel_dataset_class(const struct diesel_dataset *dataset, uint32_t class_index, const char **ret_name,
			 size_t *ret_length);
int diesel_dataset_path(const struct diesel_dataset *dataset, uint64_t sample, const char **ret_path,
			size_t *ret_length);

/* Finds the number of the sample with this path. Paths are inside the dataset, without a slash at either end.
 * -ENOENT. */
int diesel_dataset_find(const struct diesel_dataset *dataset, const char *path, size_t path_length,
			uint64_t *ret_sample);
/* Finds n paths at once, much faster than one by one: samples[n]. -ENOENT: some were not found. Their
 * numbers are DIESEL_NOT_FOUND, and the others are valid. */
#define DIESEL_NOT_FOUND UINT64_MAX
int diesel_dataset_find_many(const struct diesel_dataset *dataset, const char *const *paths,
			     const size_t *path_lengths, uint64_t n, uint64_t *samples);

struct diesel_entry {
	const char *name; /* borrowed until close, not terminated */
	size_t name_length;
	uint64_t sample; /* sample number of a file */
	uint32_t is_directory;
	uint32_t reserved;
};

/* Returns the next entry of a directory ("" is the root): files by name, then directories by name. *cursor
 * is 0 before the first. -ENOENT: no more entries, or no such directory. */
int diesel_dataset_list(const struct diesel_dataset *dataset, const char *directory, size_t length,
			uint64_t *cursor, struct diesel_entry *ret);

struct diesel_stat {
	uint64_t mtime_ns; /* time of the packed file, since 1970 */
	uint32_t mode;     /* st_mode of the file */
	uint32_t bytes;
	int32_t label;
	uint32_t reserved;
};

/* Gets time and mode of a packed file. -ERANGE: no such sample. */
int diesel_dataset_stat(const struct diesel_dataset *dataset, uint64_t sample, struct diesel_stat *ret);

/*
 * Samples by number, in any order. diesel_dataset_read_many() reads them through the daemon's cache,
 * diesel_dataset_read() from the dataset's files with the caller's own rights. Numbers are those of struct
 * diesel_item: the order of storage. These calls, and diesel_dataset_info(), _class(), _path(), _find(),
 * _find_many(), _list() and _stat(), may be made by any thread, and by children that were forked.
 */
struct diesel_sample_info {
	uint32_t bytes;
	int32_t label; /* same as in struct diesel_item */
};

/* Gets the facts about a sample. -ERANGE: no such sample. */
int diesel_dataset_sample(const struct diesel_dataset *dataset, uint64_t sample,
			  struct diesel_sample_info *ret);
/* Writes the labels of all samples: labels[n_samples]. -EBADMSG. */
int diesel_dataset_labels(const struct diesel_dataset *dataset, int64_t *labels);
/* Returns 1 if chunks are fair samples of the dataset (docs/reference/formats.md), judged from some of them.
 * Returns 0 if they hold samples that were neighbours in the source, as with `dieselctl pack --order source`:
 * windows then need more chunks. -ENOMEM, -EBADMSG. */
int diesel_dataset_is_fair(const struct diesel_dataset *dataset);
/* Reads a whole sample, and verifies it. buffer has space for its bytes. -ERANGE; -EINVAL: size is less than
 * its bytes; -EBADMSG: it is damaged; -ENOENT, -EACCES: its chunk cannot be opened. error receives the line.
 */
int diesel_dataset_read(struct diesel_dataset *dataset, uint64_t sample, void *buffer, size_t size,
			char *error, size_t error_size);
/* Writes bytes and label of these samples: rets[n]. -ERANGE: no such sample. */
int diesel_dataset_samples(const struct diesel_dataset *dataset, const uint64_t *samples, uint32_t n,
			   struct diesel_sample_info *rets);
/*
 * Reads these samples through the daemon's cache: samples[i] into buffers[i], which has sizes[i] bytes.
 * Samples in memory are copied from there without a request, others come many with one request. A sample may
 * occur more than once. Without a daemon, and if its cache cannot hold the dataset, reads samples that are
 * not in memory as diesel_dataset_read() does, with its errors. Threads may call it at the same time, but not
 * a child that was forked after the dataset was opened. -EINTR: a signal arrived; call again.
 */
int diesel_dataset_read_many(struct diesel_dataset *dataset, const uint64_t *samples, uint32_t n,
			     void *const *buffers, const size_t *sizes, char *error, size_t error_size);
/*
 * Reads these samples as diesel_dataset_read_many() does, one after another into one buffer. offsets[n + 1]
 * receives where each sample begins, and where the last one ends, in bytes; NULL: not needed. -ENOBUFS: the
 * buffer of `size` bytes is too small; offsets are set, and offsets[n] is the size that is needed. buffer
 * NULL: only sets offsets, which a forked child may do, too.
 */
int diesel_dataset_read_packed(struct diesel_dataset *dataset, const uint64_t *samples, uint32_t n,
			       void *buffer, size_t size, uint64_t *offsets, char *error, size_t error_size);

/*
 * Writes a dataset: samples from memory, then one commit. Until then, and if it fails or the process dies,
 * readers see the previous version, or no dataset. No daemon takes part: a process of the caller's user,
 * which is started here and ends with the writer, writes chunks while samples arrive.
 *
 * Any thread may put and commit. A dataset in a folder has one writer at a time, unless all of them have
 * DIESEL_WRITER_SHARED: then each writes its chunks on its own, and only the commits wait for each other. In
 * a bucket several may always append at once: the second one to commit continues from the version of the
 * first.
 */
struct diesel_writer;

enum diesel_writer_flag {
	DIESEL_WRITER_APPEND = 1 << 0, /* adds to existing samples; an existing path is replaced */
	DIESEL_WRITER_DIGESTS =
	    1 << 1, /* keep a SHA-256 of each chunk, as `dieselctl pack --digest sha256` */
	DIESEL_WRITER_SHARED =
	    1 << 2, /* with DIESEL_WRITER_APPEND: other processes may write to the folder at the same time */
};

struct diesel_writer_options {
	uint64_t chunk_bytes; /* 4 MiB to 64 MiB; 0: 8 MiB */
	uint32_t flags;       /* enum diesel_writer_flag */
	uint32_t zstd_level;  /* 1 to 19: as `dieselctl pack --zstd`; 0: chunks are not compressed */
	const char *meta_url; /* a Redis server for the metadata, redis://HOST[:PORT]/PREFIX; NULL: metadata
				 is in the dataset's folder */
};

/* Opens a folder, which is made if it is missing, or s3://BUCKET/PREFIX. options NULL: all 0. error receives
 * the line on failure. -EEXIST: there are samples, and no DIESEL_WRITER_APPEND; -ENOTEMPTY: the folder is
 * neither empty nor a dataset; -EBUSY: it has another writer; -ENOENT: no program dieselctl; -EACCES,
 * -EINVAL, -EINTR, ... */
int diesel_writer_open(const char *path, const struct diesel_writer_options *options,
		       struct diesel_writer **ret, char *error, size_t error_size);

enum diesel_field_kind {
	DIESEL_FIELD_BYTES,
	DIESEL_FIELD_TEXT, /* UTF-8 */
	DIESEL_FIELD_JSON,
	DIESEL_FIELD_IMAGE,         /* a file: JPEG, PNG, WebP, ... */
	DIESEL_FIELD_ARRAY,         /* a .npy file */
	DIESEL_FIELD_INT,           /* int64; in a dataset of tar shards decimal text */
	DIESEL_FIELD_FLOAT,         /* float64 */
	DIESEL_FIELD_BOOL,          /* 1 byte */
	DIESEL_FIELD_NONE,          /* 0 bytes */
	DIESEL_FIELD_ENCODED,       /* in another encoding of the format, such as "ndarray:float32"
				       (diesel_field.encoding) */
	DIESEL_FIELD_MISSING = 255, /* the sample has no such field */
};

#define DIESEL_FIELDS_MAX 1024 /* fields of a sample that is put */

struct diesel_field {
	const char *name; /* UTF-8 without NUL, 1 to 255 bytes, not terminated */
	size_t name_length;
	const void *data; /* of any alignment */
	size_t bytes;
	uint32_t kind; /* enum diesel_field_kind */
	uint32_t reserved;
	const char *encoding; /* of a column, as its format names it, not terminated; else NULL. Ignored by
				 diesel_writer_put_fields() */
	size_t encoding_length;
};

/* One sample of a batch. */
struct diesel_item {
	const uint8_t *data; /* NULL in a packed batch, unless a field was decoded: data is at batch.packed +
				i * batch.item_bytes */
	uint64_t sample;     /* number in the snapshot */
	uint32_t bytes;
	int32_t label; /* class index; -1: not in a class folder */
};

/*
 * Fields of samples in memory, which have a layout other than DIESEL_LAYOUT_PLAIN. Nothing is copied or
 * decoded. The bytes may come from anybody: results lie inside the sample, and numbers have their length.
 */
/* Lists the fields of one sample, in the order of storage: fields[max], or as many as there are. *ret_n is
 * their number. of: the dataset's diesel_dataset_info(), of which layout and columns count. sample NULL:
 * lists the columns, without data. -EBADMSG: the sample is damaged; -EINVAL: the layout has no fields. */
int diesel_fields_list(const struct diesel_dataset_info *of, const void *sample, size_t bytes,
		       struct diesel_field *fields, uint32_t max, uint32_t *ret_n);
/*
 * Finds n_names fields in each of n samples. The k-th field of sample i is at values[k * n + i], has
 * sizes[k * n + i] bytes, and is of kinds[k * n + i] (enum diesel_field_kind). Where a sample has a name
 * twice, the first one counts. n_fields[n] receives how many fields each sample has; NULL: not needed.
 * -EBADMSG: sample *wrong is damaged; -EINVAL: the layout has no fields.
 */
int diesel_fields_find(const struct diesel_dataset_info *of, const struct diesel_item *items, uint32_t n,
		       const char *const *names, const size_t *name_lengths, uint32_t n_names,
		       const void **values, uint32_t *sizes, uint8_t *kinds, uint32_t *n_fields,
		       uint32_t *wrong);
/* Copies n values, without the first `skip` bytes of each, one after another: to[n * bytes]. -EINVAL: a value
 * has not skip + bytes bytes, or its first `skip` bytes are not those of the first value. */
int diesel_fields_gather(const void *const *values, const uint32_t *sizes, uint32_t n, size_t skip,
			 size_t bytes, void *to);

struct diesel_sample {
	const char *path; /* relative, as `a/b.jpg`: no slash at either end, no empty name, no . or ..; not
			     terminated */
	size_t path_length;
	const void *data;
	size_t bytes;
	/* Modification time and mode to store with the sample; NULL: now, 0644. Mode 0: 0644. */
	const struct diesel_stat *stat;
};

/*
 * Adds a copy of a sample.
 *
 * Returns 0, or one of these errors, after which the writer still works: -EEXIST: this writer has already put
 * the path; -EINVAL: invalid path; -EFBIG: more than 1 GiB; -EINTR: a signal arrived during the wait, and the
 * sample was not accepted, so call again. Any other error, such as -ENOSPC, may come from an earlier sample,
 * and ends the writer: each later call returns it again.
 */
int diesel_writer_put(struct diesel_writer *writer, const struct diesel_sample *sample, char *error,
		      size_t error_size);

/* Adds a sample of fields, whose values are copied. Ignores data and bytes of `sample`. Errors are those of
 * diesel_writer_put(), after which the writer still works. In addition, -EINVAL: an invalid field, or samples
 * without fields were put; -EEXIST: a field occurs twice. */
int diesel_writer_put_fields(struct diesel_writer *writer, const struct diesel_sample *sample,
			     const struct diesel_field *fields, uint32_t n_fields, char *error,
			     size_t error_size);

/* Makes all samples durable and visible, as one version: *ret_version, which may be NULL. Without samples,
 * the dataset stays unchanged. -EINTR: call again; -EBUSY: other writers of a bucket were first, 16 times,
 * and nothing changed; -ESTALE: it is committed, but without a snapshot (error says what to do); otherwise
 * nothing changed. */
int diesel_writer_commit(struct diesel_writer *writer, uint64_t *ret_version, char *error, size_t error_size);

/* Frees the writer. Removes uncommitted samples, and the dataset if this writer created it. Accepts NULL. */
void diesel_writer_free(struct diesel_writer *writer);

/*
 * A subset of a dataset's samples, for a session or an order. It is shuffled chunk-wise like a whole dataset,
 * in an order of its own. Takes one bit for each sample of the dataset. Belongs to the version of the dataset
 * that it was made for. Immutable: any thread may use it, and so may forked children.
 *
 * The functions below make it from all samples, or from another subset (`of`; NULL: all). Indices count these
 * samples, in the order of their numbers. -ENOMEM.
 */
struct diesel_subset;

/* Selects the samples with these indices. -ERANGE: no such index; -EEXIST: an index occurs twice. */
int diesel_subset_select(const struct diesel_dataset *dataset, const struct diesel_subset *of,
			 const uint64_t *indices, uint64_t n, struct diesel_subset **ret);
/* Selects the indices first, first + step, ... below end. -ERANGE. */
int diesel_subset_slice(const struct diesel_dataset *dataset, const struct diesel_subset *of, uint64_t first,
			uint64_t end, uint64_t step, struct diesel_subset **ret);
/* Selects samples by class and path. classes[n_classes + 1]: 1 for each selected class, the last one for
 * samples without a class; NULL: any. pattern: as in fnmatch(3), but * also matches slashes; NULL: any. */
int diesel_subset_filter(const struct diesel_dataset *dataset, const struct diesel_subset *of,
			 const uint8_t *classes, const char *pattern, struct diesel_subset **ret);
/* Divides the samples at random into parts of these sizes, which add up to all of them
 * (docs/reference/formats.md has the algorithm). by_class: each class in the same proportions. rets[n_parts].
 * -EINVAL: the sizes do not add up. */
int diesel_subset_split(struct diesel_dataset *dataset, const struct diesel_subset *of, const uint64_t *sizes,
			uint32_t n_parts, uint64_t seed, int by_class, struct diesel_subset **rets);
void diesel_subset_free(struct diesel_subset *subset);

uint64_t diesel_subset_count(const struct diesel_subset *subset);
/* Returns the number of the k-th sample. -ERANGE. */
int diesel_subset_sample(const struct diesel_subset *subset, uint64_t k, uint64_t *ret_sample);
/* Writes the numbers of all samples: samples[diesel_subset_count()]. */
void diesel_subset_samples(const struct diesel_subset *subset, uint64_t *samples);
/* Replaces sample numbers with their indices in the subset. -ERANGE: a sample is not in it; the numbers
 * before it are replaced. */
int diesel_subset_indices(const struct diesel_subset *subset, uint64_t *samples, uint64_t n);
enum diesel_stranger {
	DIESEL_NO_IMAGE, /* the file extension is not .jpg, .jpeg, .png or .webp (case-insensitive) */
	DIESEL_NO_CLASS, /* the sample is in no class folder, but others are */
};
/* Returns 1 and the first sample (subset NULL: of the dataset) that does not match the others, or 0 if
 * there is none; -EBADMSG. Fast for a whole dataset that has none, unless an older program made it. */
int diesel_subset_stranger(const struct diesel_dataset *dataset, const struct diesel_subset *subset,
			   enum diesel_stranger kind, uint64_t *ret_sample);
/* Returns the total bytes of the subset's samples. -EBADMSG. */
int diesel_subset_bytes(const struct diesel_dataset *dataset, const struct diesel_subset *subset,
			uint64_t *ret_bytes);
/* Returns the subset's bits, for storing: sample i of the dataset's n_samples in bit i % 64 of word i / 64.
 * Borrowed.
 */
const uint64_t *diesel_subset_words(const struct diesel_subset *subset, uint64_t *ret_n_samples);
/* Makes a subset from such bits, for a dataset with n_samples: words[(n_samples + 63) / 64]. -EINVAL: a
 * bit beyond the last sample is set. */
int diesel_subset_load(uint64_t n_samples, const uint64_t *words, struct diesel_subset **ret);

enum diesel_session_flag {
	DIESEL_SHUFFLE = 1 << 0,   /* chunk-wise shuffle; else storage order */
	DIESEL_DROP_LAST = 1 << 1, /* only full batches */
	DIESEL_ASKED = 1 << 2,     /* no order: diesel_session_ask() names each batch's samples */
	DIESEL_VIEWS = 1 << 3, /* batches are never packed: items point to the stored samples in the cache */
	DIESEL_PINNABLE = 1 << 4, /* for diesel_session_map_pinnable(): private batch memory */
	DIESEL_WARM = 1 << 5,     /* with DIESEL_ASKED: only loads chunks into the daemon's cache */
};

struct recipe;

struct recipe_codec;

/* Asks the dataset's daemon for the output of its codec. Fills in the dimensions of codec, whose name and
 * options are given, and an enum recipe_type (diesel_recipe.h). -EINVAL: a name or options that no codec
 * can have; -ENOENT: no such codec in the daemon; otherwise the error of the codec or of
 * diesel_dataset_open(). error receives the line. */
int diesel_codec_output(const struct diesel_dataset *dataset, struct recipe_codec *codec, uint32_t *ret_type,
			char *error, size_t error_size);

/* Options of a session. The order of batches is a pure function of them (dataset/shuffle.h), except for the
 * recipe, which does not affect it. */
struct diesel_session_options {
	uint64_t seed;
	uint64_t epoch;       /* epoch of the first batch */
	uint64_t first_batch; /* batch of this rank within the epoch from which to resume */
	uint32_t flags;       /* enum diesel_session_flag */
	uint32_t rank, world; /* world >= 1 */
	uint32_t batch;       /* samples per batch, 1 to DIESEL_BATCH_MAX */
	uint32_t stride; /* this session delivers batches first, first+stride, ...; 1 unless several sessions
			    share a rank */
	uint32_t offset; /* worker processes share the work of one rank: batch % stride == offset */
	uint32_t window_chunks; /* 0: 8 (2 with lanes) or, if this is the only rank, the daemon's default */
	uint32_t reconnect_ms;  /* longest wait for a lost daemon, also while it opens the session; 0: fail at
				   once */
	uint32_t slots;         /* batches that the caller intends to hold at a time, if memory allows; 0: the
				   daemon's default */
	uint32_t nodes;         /* number of nodes of the job, for `cluster`; 0: from $LOCAL_WORLD_SIZE or
				   $SLURM_STEP_NUM_NODES, otherwise unknown */
	const struct diesel_subset *subset; /* used during the call only; NULL: all samples */
	const struct recipe *recipe; /* conversion of each image by the daemon (diesel_recipe.h), used during
					the call only; NULL: samples as stored */
	const char *group; /* the daemon's display name for the sessions that get the same batches, at most 31
			      bytes; used during the call only; NULL: none. Has no other effect */
	const char *cluster; /* name of the job on all of its nodes, whose daemons then read each chunk once
				together (docs/explanation/cluster.md); UTF-8 of at most 63 bytes, used during
				the call only. "": no other node. NULL: $TORCHELASTIC_RUN_ID unless that is
				"none", else $SLURM_JOB_ID.$SLURM_STEP_ID. Has no effect if world is 1 */
	uint64_t start; /* samples of `epoch` that all ranks together have consumed, in steps of any length.
			   If not 0, first_batch must be at least diesel_first_batch(). Other epochs are
			   whole */
	uint32_t lanes; /* number of lanes of the dataset (dataset/shuffle.h), at most 65536 and one per
			   sample; 0: 1 */
	uint32_t drift; /* m, at most 65536: each epoch deals 1/m of the chunks to lanes again; 0: none */
	const char *field; /* name of the field to which the recipe applies, of 1 to 255 bytes; used during
			      the call only. NULL: samples have no fields, or there is no recipe */
};

/* Opens a session. -EINVAL: invalid options, or the subset is empty or of another dataset. Errors of
 * diesel_dataset_open() if the daemon cannot be reached, otherwise the daemon's answer. error receives the
 * line.
 */
int diesel_session_open(struct diesel_dataset *dataset, const struct diesel_session_options *options,
			struct diesel_session **ret, char *error, size_t error_size);
/* Closes the session. Held batches stay readable until they are released. */
void diesel_session_close(struct diesel_session *session);

/* Returns the number of this rank's batches in an epoch (over all strides). */
uint64_t diesel_session_n_batches(const struct diesel_session *session);
/* Returns each rank's number of batches in an epoch of n_samples, without a session or a daemon. Returns 0
 * also if there are fewer samples than ranks: no session can be opened then. */
uint64_t diesel_n_batches(uint64_t n_samples, uint32_t world, uint32_t batch, uint32_t flags);

/*
 * A job may continue with another number of ranks or batch size after any number of samples that all of its
 * ranks consumed. The rest of that epoch is cut into steps as if it were a whole one, and its batches have
 * the last numbers of the epoch.
 */
/* Returns the number of the first batch of the rest of an epoch. -EINVAL: fewer samples than ranks are left,
 * or start > n_samples. */
int diesel_first_batch(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, uint32_t flags,
		       uint64_t *ret_batch);
/* Returns the samples that all ranks together consumed before this batch; n_samples for the number of
 * batches. */
uint64_t diesel_position(uint64_t n_samples, uint64_t start, uint32_t world, uint32_t batch, uint32_t flags,
			 uint64_t index);

/*
 * The order in which a session with these options delivers samples, without a session, for callers that read
 * samples by number. Makes no request to the daemon. Uses these options: seed, epoch, flags, rank, world,
 * batch, subset, start, lanes, drift, and window_chunks, which must be at least 1. One thread at a time; the
 * dataset and the subset must stay open.
 */
struct diesel_order;

/* Makes an order. -EINVAL, -ENOMEM; error receives the line. */
int diesel_order_new(const struct diesel_dataset *dataset, const struct diesel_session_options *options,
		     struct diesel_order **ret, char *error, size_t error_size);
void diesel_order_free(struct diesel_order *order);
uint64_t diesel_order_n_batches(const struct diesel_order *order);
/* Returns the length of the longest batch: options->batch, or 2 if one sample is left over at batch size 1.
 */
uint32_t diesel_order_max_batch(const struct diesel_order *order);
/* Writes the numbers of a batch's samples: samples[diesel_order_max_batch()]. Cheap for batches in order.
 * -ERANGE: no such batch. */
int diesel_order_batch(struct diesel_order *order, uint64_t batch, uint64_t *samples, uint32_t *ret_count);

/*
 * A batch in shared memory, valid until it is released (also after the session is closed). packed: all
 * samples have the same length and lie one after the other: a uint8 array [n_items, item_bytes], 64-byte
 * aligned. The mapping is private copy-on-write: the holder may write to it, and no other process sees the
 * changes. Otherwise (also with DIESEL_VIEWS) packed is NULL and each item points into a read-only mapping of
 * a cached chunk: writing there is a segmentation fault. If a field of the samples was decoded, the batch is
 * packed, and each item points to the stored sample, which has the other fields, too.
 */
struct diesel_batch {
	uint64_t epoch;
	uint64_t index; /* index of this rank's batch within the epoch */
	uint32_t n_items;
	uint32_t item_bytes;
	uint8_t *packed;
	const struct diesel_item *items; /* n_items, valid until release */
	const int64_t *labels;           /* n_items */
	void *lease;                     /* for diesel_batch_release() */
	/* Samples that could not be decoded, if the recipe continues without them. A sample that was replaced
	 * by zeros has items[i].bytes 0. The samples that were left out are items[n_items] and those after
	 * it. */
	uint32_t n_damaged;
	uint32_t reserved;
};

/*
 * Returns the next batch of the session. A batch that is ready costs no system call. 0: *ret is filled; 1:
 * the epoch is over (the next call starts the following epoch), or all requested batches are delivered.
 *
 * Errors of a batch, which is not delivered: -EBADMSG: a damaged chunk; -EACCES: access to the chunk is
 * refused; -ENOENT: it was deleted; -EIO: its storage cannot be read at the moment; -ETIMEDOUT: decoding
 * takes too long. diesel_session_error() names chunk and sample, and *ret has epoch and index of the batch;
 * the following call continues with the next batch.
 *
 * Other errors leave *ret unchanged: -ETIMEDOUT: the daemon did not return within reconnect_ms; -EINTR: a
 * signal arrived during the wait, or, as a notice reports, the daemon exited or did not answer (call again to
 * wait for it); -EPROTO: the daemon answered another request, or published a batch other than the next one.
 * Then nothing is delivered, and the next call opens the session again.
 */
int diesel_session_next(struct diesel_session *session, struct diesel_batch *ret);
/*
 * Requests a batch of these samples, in this order, in a session opened with DIESEL_ASKED. A sample may occur
 * more than once. diesel_session_next() delivers the batches in the order of the requests, as views, and
 * returns 1 when all of them are delivered. May be called while other batches are awaited or held. Does not
 * wait.
 *
 * ahead: how many chunks the daemon may read after the one of the last sample, because they will probably be
 * requested next; 0: none. DIESEL_ASK_FEW: none, and probably no other sample of these chunks is needed soon.
 * Then the daemon may read only these samples of a chunk that is not in memory, which takes less time. The
 * chunk's other bytes may be zeros.
 *
 * Such a session uses the options batch (at most DIESEL_ASK_MAX), slots and reconnect_ms. rank is 0, world is
 * 1, and all others are 0. Requested and held batches together: at most diesel_session_max_held() + 1.
 *
 * With DIESEL_WARM, the daemon loads the chunks into its cache, after all reads for others, and only into
 * unused memory. Batches then have no items. diesel_session_next() also returns -ENOSPC if there is no such
 * memory, and -EREMOTE if another node must load the chunk (if the session has a `cluster`, and `world` is
 * more than 1). The following call continues with the next batch.
 *
 * 0; -EINVAL: no samples, more than a batch, or a session without DIESEL_ASKED; -ERANGE: no such sample;
 * -EBUSY: too many batches are requested or held.
 */
#define DIESEL_ASK_MAX 64
#define DIESEL_ASK_FEW UINT32_MAX
int diesel_session_ask(struct diesel_session *session, const uint64_t *samples, uint32_t n, uint32_t ahead);
/* Continues at (epoch, batch of this rank), and drops batches that were prepared for the old position.
 * -EINVAL: the session has no order (DIESEL_ASKED). */
int diesel_session_seek(struct diesel_session *session, uint64_t epoch, uint64_t batch);
/* Returns the window in force: with window_chunks = 0 the daemon chose it. The order depends on it, so
 * callers that store a position to resume from must store the window too. */
uint32_t diesel_session_window_chunks(const struct diesel_session *session);
/* Returns the batches that the caller may hold while the daemon still has a slot to work ahead (>= 2). */
uint32_t diesel_session_max_held(const struct diesel_session *session);
/* Returns the number of batches that the caller holds, except those of a lost daemon. */
uint32_t diesel_session_n_held(const struct diesel_session *session);
/* Returns the batches that diesel_session_next() would return without a wait; 0 while the daemon is lost. */
uint32_t diesel_session_ready(const struct diesel_session *session);

/* Totals of the Python work for batches, and who sets the number of workers. struct ring_work of
 * client/ring.h defines each field. */
enum diesel_work_policy {
	DIESEL_POLICY_NONE = 0,  /* no Python work */
	DIESEL_POLICY_FIXED = 1, /* the user sets the number of workers */
	DIESEL_POLICY_AUTO = 2,  /* the daemon sets the number of workers */
};

struct diesel_work {
	uint64_t n_batches, n_samples;
	uint64_t next_ns, wait_ns, n_waits, inline_ns, handoff_ns;
	uint64_t worker_handoff_ns, n_handoffs;
	uint64_t cpu_ns, busy_ns, n_worked;
	uint64_t result_bytes, worker_bytes;
	uint32_t n_workers, n_deaths;
	uint32_t policy; /* enum diesel_work_policy */
	uint32_t reserved;
};

/* Reports the totals so far to the daemon's sensing. Costs a few stores to shared memory. */
void diesel_session_report(struct diesel_session *session, const struct diesel_work *totals);

/* The cost of the caller's checkpoints. Times are nanoseconds; 0: not known yet. */
struct diesel_checkpoints {
	uint64_t n_begun, n_failed;
	uint64_t interval_steps;       /* steps from one to the next */
	uint64_t step_ns;              /* a step while none is written */
	uint64_t snapshot_ns;          /* of the latest: how long it stopped the trainer */
	uint64_t slowdown_ns;          /* of the latest: how much longer steps took while it was written */
	uint64_t written_ns;           /* of the latest: from its snapshot until it was on disk */
	uint64_t spent_ns, elapsed_ns; /* time that all of them took, and time of all measured steps */
	uint64_t newest_ns;            /* CLOCK_MONOTONIC at the snapshot of the newest that is on disk */
	uint32_t writing;              /* 1: one is being written */
	uint32_t reserved;
	uint64_t storage; /* st_dev of the folder that it is written to; 0: no local file system */
};

/* Reports checkpoints for the daemon's status, and so that it pauses prefetch from `storage` for a bounded
 * time while one is being written. Costs a few stores to shared memory. */
void diesel_session_report_checkpoints(struct diesel_session *session,
				       const struct diesel_checkpoints *checkpoints);

/* Returns the number of worker processes of the caller (Python transforms) that the daemon requests now, 0
 * included. DIESEL_NO_WISH: no request, or the daemon is lost. No system call. */
uint32_t diesel_session_wanted_workers(const struct diesel_session *session);
const char *diesel_session_error(const struct diesel_session *session);
/* Returns one line about a notable event since the last call ("dieseld went away, waiting"), or NULL. */
const char *diesel_session_notice(struct diesel_session *session);

/* Releases a batch. Accepts NULL. */
void diesel_batch_release(void *lease);

/*
 * Returns the daemon's status as JSON, which the caller frees with free(). socket NULL: $DIESEL_SOCKET, else
 * the node's daemon or, if that one refuses access, the user's own that diesel_loader started.
 */
int diesel_status(const char *socket, char **ret_json, char *error, size_t error_size);

/* Recordings contain these numbers (enum mark_kind of bpf/event.h), so they never change. */
enum diesel_mark_kind {
	DIESEL_MARK_NEXT_BEGIN = 1,
	DIESEL_MARK_NEXT_END = 2,
	DIESEL_MARK_WAIT_BEGIN = 3, /* about to sleep for a batch */
	DIESEL_MARK_WAIT_END = 4,   /* the sleep has ended; value: enum diesel_mark_cause */
};

enum diesel_mark_cause {
	DIESEL_MARK_CAUSE_FETCH = 1,   /* chunk reads from storage delayed the batch */
	DIESEL_MARK_CAUSE_PREP = 2,    /* work after the reads delayed the batch */
	DIESEL_MARK_CAUSE_PEERS = 3,   /* chunk reads from other nodes of the job delayed the batch */
	DIESEL_MARK_CAUSE_STAGING = 4, /* chunk reads from the node's staging disk delayed the batch */
};

/*
 * A marker that does nothing by itself: diesel-analyze sets a probe on it and so knows exactly when a
 * loader's next() runs and what it waited for. kind: enum diesel_mark_kind.
 * The four kinds are also USDT probes, diesel:next_begin, next_end, wait_begin and wait_end, for bpftrace and
 * perf. libdiesel marks waits, and only when no batch was ready; loaders mark next().
 */
void diesel_mark(uint32_t kind, uint64_t value);

#ifdef __cplusplus
}
#endif
