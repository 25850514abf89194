/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

#define FOR_EVER 1e9 /* seconds: what a snapshot says never changes */
#define READ_MAX (1u << 20)

static void on_init(void *user, struct fuse_conn_info *connection)
{
	struct files *f = user;

	f->without_open = connection->capable & FUSE_CAP_NO_OPEN_SUPPORT;
	f->without_opendir = connection->capable & FUSE_CAP_NO_OPENDIR_SUPPORT;
	connection->want |= connection->capable & (FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ |
						   FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_READDIRPLUS);
	/* Who lists a folder opens its files next: all entries come with their attributes, without a lookup
	 * each. */
	connection->want &=
	    ~(unsigned)(FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_SPLICE_READ | FUSE_CAP_AUTO_INVAL_DATA);
	connection->max_write = connection->max_readahead = READ_MAX; /* max_write bounds reads, too */
	connection->time_gran = 1;
}

static struct files *files_of(fuse_req_t request)
{
	return fuse_req_userdata(request);
}

static int make_entry(const struct files *f, uint64_t inode, struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){.ino = inode, .attr_timeout = FOR_EVER, .entry_timeout = FOR_EVER};
	return tree_stat(&f->tree, inode, &ret->attr);
}

static void on_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
	const struct files *f = files_of(request);
	struct fuse_entry_param entry = {.entry_timeout = FOR_EVER};
	uint64_t inode;
	int r = tree_lookup(&f->tree, parent, name, &inode);

	if (r == 0)
		r = make_entry(f, inode, &entry);
	if (r == 0 || r == -ENOENT) /* number 0: that there is no such name is kept, too */
		fuse_reply_entry(request, &entry);
	else
		fuse_reply_err(request, -r);
}

static void on_getattr(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
	struct stat st;
	int r = tree_stat(&files_of(request)->tree, inode, &st);

	(void)info;
	if (r < 0)
		fuse_reply_err(request, -r);
	else
		fuse_reply_attr(request, &st, FOR_EVER);
}

/* Nothing has to be done to open or close, and once it was told so, the kernel asks no more. */
static void on_open(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
	(void)inode;
	info->keep_cache = 1;
	if (files_of(request)->without_open)
		fuse_reply_err(request, ENOSYS);
	else
		fuse_reply_open(request, info);
}

static void on_opendir(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
	(void)inode;
	info->keep_cache = info->cache_readdir = 1;
	if (files_of(request)->without_opendir)
		fuse_reply_err(request, ENOSYS);
	else
		fuse_reply_open(request, info);
}

static void on_read(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
		    struct fuse_file_info *info)
{
	const struct files *f = files_of(request);
	struct snapshot_sample sample;
	struct view *view;
	const uint8_t *data;
	uint64_t number;
	int r = tree_sample(&f->tree, inode, &number, &sample);

	(void)info;
	if (r == 0 && (uint64_t)offset >= sample.bytes) {
		fuse_reply_buf(request, NULL, 0);
		return;
	}
	if (r == 0)
		r = views_get(f->views, number, &sample, &view, &data);
	if (r < 0) {
		fuse_reply_err(request, -r);
		return;
	}
	if (size > sample.bytes - (uint64_t)offset)
		size = sample.bytes - (size_t)offset;
	fuse_reply_buf(request, (const char *)data + offset, size);
	views_release(f->views, view);
}

/* Offsets: 0 ".", 1 "..", and then those of snapshot_list() (which are 2 or more between entries) + 2. */
struct listing {
	fuse_req_t request;
	const struct files *files;
	char *buffer;
	size_t size, used;
	bool plus; /* with attributes, which saves a lookup of each */
};

/* Returns false when the buffer is full. */
static bool add(struct listing *l, const char *name, size_t length, uint64_t inode, off_t next)
{
	char terminated[CHUNK_NAME_MAX + 1];
	struct fuse_entry_param entry;
	char *at = l->buffer + l->used;
	size_t left = l->size - l->used, needed;

	memcpy(terminated, name, length);
	terminated[length] = '\0';
	if (make_entry(l->files, inode, &entry) < 0)
		return true;
	/* A folder's own entry and its parent's are not looked up: 0 says so. */
	if (next <= 2)
		entry.ino = 0;
	needed = l->plus ? fuse_add_direntry_plus(l->request, at, left, terminated, &entry, next)
			 : fuse_add_direntry(l->request, at, left, terminated, &entry.attr, next);
	if (needed > left)
		return false;
	l->used += needed;
	return true;
}

static void list(struct listing *l, uint64_t inode, const char *folder, size_t length, off_t offset)
{
	uint64_t cursor = offset > 2 ? (uint64_t)offset - 2 : 0;
	struct snapshot_entry entry;

	if (offset < 1 && !add(l, ".", 1, inode, 1))
		return;
	if (offset < 2 && !add(l, "..", 2, inode, 2))
		return;
	while (snapshot_list(l->files->tree.snapshot, folder, length, &cursor, &entry) == 0) {
		uint64_t number = tree_entry_inode(&entry, folder, length);

		if (!add(l, entry.name, entry.name_length, number, (off_t)cursor + 2))
			return;
	}
}

static void answer_listing(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset, bool plus)
{
	struct listing l = {.request = request, .files = files_of(request), .size = size, .plus = plus};
	_cleanup_(freep) char *buffer = l.buffer = malloc(size);
	const char *folder;
	size_t length;
	int r = tree_folder(&l.files->tree, inode, &folder, &length);

	if (r == 0 && !buffer)
		r = -ENOMEM;
	if (r < 0) {
		fuse_reply_err(request, -r);
		return;
	}
	list(&l, inode, folder, length, offset);
	fuse_reply_buf(request, buffer, l.used);
}

static void on_readdir(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
		       struct fuse_file_info *info)
{
	(void)info;
	answer_listing(request, inode, size, offset, false);
}

static void on_readdirplus(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
			   struct fuse_file_info *info)
{
	(void)info;
	answer_listing(request, inode, size, offset, true);
}

static void on_statfs(fuse_req_t request, fuse_ino_t inode)
{
	const struct snapshot_info *info = snapshot_info(files_of(request)->tree.snapshot);
	const struct statvfs st = {.f_bsize = 4096,
				   .f_frsize = 4096,
				   .f_blocks = (info->total_bytes + 4095) / 4096,
				   .f_files = info->n_samples,
				   .f_namemax = 255,
				   .f_flag = ST_RDONLY};

	(void)inode;
	fuse_reply_statfs(request, &st);
}

const struct fuse_lowlevel_ops files_operations = {
    .init = on_init,
    .lookup = on_lookup,
    .getattr = on_getattr,
    .open = on_open,
    .opendir = on_opendir,
    .read = on_read,
    .readdir = on_readdir,
    .readdirplus = on_readdirplus,
    .statfs = on_statfs,
};
