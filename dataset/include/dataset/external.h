/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * External chunks (chunk.h, CHUNK_FLAG_EXTERNAL): the payload is a range of another file, called the source,
 * that is read where it is. The head has struct chunk_external at blocks_offset, and the source's name behind
 * it. In the plain form, byte payload_offset + i is the source's byte offset + i; zeros follow the range.
 *
 * Samples have no checksums, because reading a source's headers is enough to index it. Instead, the source
 * must still have the length and the stamp that it had then. Both are compared before and after each read of
 * a file. Each answer of a bucket has the stamp.
 *
 * Sources are opened by name with the rights of the process that reads, so only processes of the job's own
 * user read them: tools, libdiesel, and `dieselctl fetch` for the daemon. Whoever made the chunk chose the
 * name, and must not get this user to read what only this user may read. So a source is read only if one of
 * these is true (dataset/store/external.c):
 *
 *   - this user or root made the chunk;
 *   - the source is a file that everybody may read, or of the user who made the chunk;
 *   - the source is an object of the bucket that has the chunk;
 *   - the source is in one of the places that EXTERNAL_PLACES lists, separated by commas.
 *
 * A copy of a dataset makes the copying user the maker of chunks whose names another user chose. So later
 * links of other users lead only to files of their own (file_to_read_led()).
 */

#include "dataset/chunk.h"

struct chunk_external {
	uint64_t offset, bytes; /* the range in the source */
	uint64_t source_bytes;  /* length of the source */
	uint64_t
	    stamp; /* modification time of the source in ns since 1970; of an object, a hash of its ETag */
	uint32_t part;        /* number of this chunk among those of the source, in order */
	uint32_t is_last;     /* 1: no further chunk has samples of the source */
	uint32_t name_length; /* bytes of the source's name, which follows: an absolute path, or a URL */
	uint32_t chunk_bytes; /* the size of chunks into which the source was cut */
};

_Static_assert(sizeof(struct chunk_external) == 48, "stored");

#define EXTERNAL_NAME_MAX 4095u

#define EXTERNAL_PLACES "DIESEL_SOURCES" /* an environment variable */

/* Who made a chunk. {0}: unknown. */
struct external_maker {
	bool is_trusted; /* external_trust() */
	bool has_uid;
	uint32_t uid;       /* owner of the chunk's file, to which nobody else may write */
	const char *bucket; /* URL of the bucket that has the chunk, or of a prefix in it; or NULL */
};

/* The source of a chunk, parsed. */
struct external {
	struct chunk_external range;
	struct external_maker maker; /* external_in_head() leaves it unknown */
	char name[EXTERNAL_NAME_MAX + 1];
};

/* Parses the source in the head of an external chunk, which is in memory up to payload_offset. -EBADMSG: the
 * fields contradict the header. ret may be NULL. */
int external_in_head(const struct chunk_header *header, struct external *ret);
/* Trusts the chunk as if this user had made it: for callers that read no samples. */
void external_trust(struct external *e);

/* Returns the name by which samples of this source are read. If a link of another user leads to a file that
 * everybody may read, or in a place of EXTERNAL_PLACES, that is the link's target. Other such files are
 * refused by external_stat(), because the dataset would show them to all of its readers. free() it. NULL:
 * errno. */
char *external_find_name(const char *name);
/* Gets the length and the stamp of a source. -ENOENT, -EACCES, -EINVAL: not a regular file. */
int external_stat(const char *name, uint64_t *ret_bytes, uint64_t *ret_stamp, struct error *err);
/* Checks that the source has not changed since it was indexed. -EBADMSG: it has; -ENOENT; -EACCES, also if
 * it may not be read for whoever made the chunk. err names the source. */
int external_check(const struct external *e, struct error *err);
/* As external_check(), of a chunk that neither this user nor root has made; of others does nothing. */
int external_check_others(const struct external *e, struct error *err);
/* Reads [offset, offset + bytes) of the range, and zeros beyond its end. Errors as external_check(). Any
 * thread. */
int external_read(const struct external *e, uint64_t offset, void *buffer, size_t bytes, struct error *err);

/* Returns 0 to continue; any other value ends the list, which returns it. */
typedef int external_list_callback(const char *name, void *context);

/* Reads sources of another scheme than files, such as s3:// objects. Register before threads start. */
struct external_ops {
	const char *scheme; /* prefix of the names */
	int (*stat)(const char *name, uint64_t *ret_bytes, uint64_t *ret_stamp, struct error *err);
	/* Reads exactly these bytes. *ret_stamp is that of the object that they come from. */
	int (*read)(const char *name, uint64_t offset, void *buffer, size_t bytes, uint64_t *ret_stamp,
		    struct error *err);
	int (*list)(const char *name, external_list_callback *callback, void *context, struct error *err);
};
void external_register(const struct external_ops *ops);
/* Returns true if the name has the registered scheme. */
bool external_is_registered(const char *name);
/* Calls back for each source below a name of the registered scheme, by its name. */
int external_list(const char *name, external_list_callback *callback, void *context, struct error *err);
/* Reads exactly [offset, offset + bytes) of a source by its name, without any check. *ret_stamp is that of
 * the state that was read. -EBADMSG: the source is shorter. */
int external_read_source(const char *name, uint64_t offset, void *buffer, size_t bytes, uint64_t *ret_stamp,
			 struct error *err);
