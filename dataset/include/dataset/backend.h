/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where a dataset lies: a folder, or what a program has registered for names of another kind (s3://). Its
 * metadata and its snapshot are files of a folder in any case, its chunks are in a store.
 *
 * For a folder nothing else is needed. Elsewhere the folder is a copy of its own of the newest version, made
 * when the place is opened and removed when it is closed, or, with BACKEND_SNAPSHOT, one that the user's
 * programs share and keep; backend_publish() makes the version in it everybody's, whole or not at all, and
 * only if no other writer has published since. Belongs to one thread at a time.
 */

#include "dataset/store.h"
#include "lib/error.h"

#include <stdbool.h>

struct place;

enum backend_mode {
	BACKEND_SNAPSHOT, /* read only the snapshot */
	BACKEND_READ,     /* read the snapshot and the metadata */
	BACKEND_CHANGE,   /* write: metadata, and the snapshot if available */
	BACKEND_CREATE,   /* as BACKEND_CHANGE; the dataset may be missing */
	BACKEND_REBUILD,  /* as BACKEND_CHANGE; damaged or missing files are left out */
};

/* Versions that keep their snapshots when a version is published. */
struct backend_keep {
	uint64_t n;      /* number of versions to keep: the newest ones, with the published one; >= 1 */
	uint64_t oldest; /* no version before this one is kept: its chunks may be removed next */
};

struct backend_ops {
	const char *scheme; /* prefix of its names */
	int (*open)(const char *name, enum backend_mode mode, uint64_t version, struct place **ret,
		    struct error *err);
	int (*store)(struct place *p, struct store **ret, struct error *err);
	int (*publish)(struct place *p, uint64_t version, const struct backend_keep *keep, struct error *err);
	void (*close)(struct place *p);
};

struct place {
	const struct backend_ops *ops; /* NULL: a folder */
	char *folder; /* contains metadata and snapshot; contains no dataset if none was ever published */
	int dir_fd;   /* the folder (O_PATH), as it was when the place was opened; -errno: it could not be */
	uint64_t version; /* elsewhere: the newest published version; 0: none */
};

/* Registers a kind of place. Call before threads start. */
void backend_register(const struct backend_ops *ops);

/* Returns true if the name belongs to a registered kind of place. */
bool backend_is_elsewhere(const char *name);

/* A folder is opened, and not looked at: all that is done in it is done by dir_fd, so that nobody can put
 * another one in its place meanwhile; where it is to be written, as file_folder_open() does. Elsewhere:
 * -ENOENT: there is no dataset; -EACCES; -EIO, -ETIMEDOUT; -EBADMSG: damaged; -ESTALE: it has chunks and no
 * version, run rebuild; -EPROTONOSUPPORT: no such kind of place. */
int backend_open(const char *name, enum backend_mode mode, struct place **ret, struct error *err);
/* Opens, with BACKEND_SNAPSHOT, the snapshot of an earlier version. Not for folders, where that snapshot is a
 * file (snapshot_retained.h). version 0: the newest. -ENOENT also: no such version, or its snapshot is not
 * kept.
 */
int backend_open_version(const char *name, uint64_t version, struct place **ret, struct error *err);
void backend_close(struct place *p); /* accepts NULL */

/* Opens the folder, for callers that make it after the place was opened. */
void backend_open_folder(struct place *p, bool to_write);

/* Errors as store_open(). */
int backend_store(struct place *p, bool create, struct store **ret, struct error *err);

/* Publishes the folder's metadata and snapshot, which are of this version, and drops earlier snapshots.
 * Returns 0 for a folder. -EBUSY: another writer has published since the place was opened. */
int backend_publish(struct place *p, uint64_t version, const struct backend_keep *keep, struct error *err);
