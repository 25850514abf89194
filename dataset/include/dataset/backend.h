/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The location of a dataset: a folder, or a place that a program has registered for other names (s3://).
 * Metadata and snapshot are always files of a folder; chunks are in a store.
 *
 * A dataset in a folder needs nothing else. Elsewhere, the folder is a private copy of the newest version,
 * made when the place is opened and removed when it is closed. With BACKEND_SNAPSHOT, the user's programs
 * share and keep one copy. backend_publish() publishes the version in the copy atomically, and only if no
 * other writer has published since. Belongs to one thread at a time.
 */

#include "dataset/store.h"
#include "lib/error.h"
#include "lib/progress.h"

#include <stdbool.h>

struct place;
struct removal; /* dataset/copy.h */

enum backend_mode {
	BACKEND_SNAPSHOT, /* read only the snapshot */
	BACKEND_READ,     /* read the snapshot and the metadata */
	BACKEND_CHANGE,   /* write: metadata, and the snapshot if available */
	BACKEND_CREATE,   /* as BACKEND_CHANGE; the dataset may be missing */
	BACKEND_REBUILD,  /* as BACKEND_CHANGE; damaged or missing files are left out */
};

/* Selects the versions that keep their snapshots when a version is published. */
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
	int (*keep_version)(struct place *p, uint64_t version, int fd, struct error *err);
	int (*remove)(const char *name, uint64_t version, progress_callback *progress, void *context,
		      struct removal *ret, struct error *err);
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

/* Opens a place. A folder is only opened, not examined. All access goes through dir_fd, so that nobody can
 * exchange the folder meanwhile; for writing, as file_folder_open() does. Elsewhere: -ENOENT: there is no
 * dataset; -EACCES; -EIO, -ETIMEDOUT; -EBADMSG: damaged; -ESTALE: it has chunks and no version, run rebuild;
 * -EPROTONOSUPPORT: no such kind of place. */
int backend_open(const char *name, enum backend_mode mode, struct place **ret, struct error *err);
/* Opens, with BACKEND_SNAPSHOT, the snapshot of an earlier version. Not for folders, where that snapshot is a
 * file (snapshot_retained.h). version 0: the newest. -ENOENT also: no such version, or its snapshot is not
 * kept.
 */
int backend_open_version(const char *name, uint64_t version, struct place **ret, struct error *err);
void backend_close(struct place *p); /* accepts NULL */

/* Opens the folder, for callers that make it after the place was opened. */
void backend_open_folder(struct place *p, bool to_write);

/* Opens the store of the place. Errors as store_open(). */
int backend_store(struct place *p, bool create, struct store **ret, struct error *err);

/* Publishes the folder's metadata and snapshot, which are of this version, and drops earlier snapshots.
 * Returns 0 for a folder. -EBUSY: another writer has published since the place was opened. */
int backend_publish(struct place *p, uint64_t version, const struct backend_keep *keep, struct error *err);
/* Adds the snapshot of a version before the published one: the file behind fd. Versions are added from the
 * newest to the oldest. -EOPNOTSUPP for a folder. */
int backend_keep_version(struct place *p, uint64_t version, int fd, struct error *err);

/* Removes a dataset elsewhere, as dataset_remove(), if its newest version is this one; 0: any. -EBUSY: it
 * has another one. -EOPNOTSUPP for a folder. */
int backend_remove(const char *name, uint64_t version, progress_callback *progress, void *context,
		   struct removal *ret, struct error *err);
