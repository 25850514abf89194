/* SPDX-License-Identifier: Apache-2.0 */
#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

#define FOR_EVER 1e9 /* cache timeout, in seconds: unlimited, because a snapshot never changes */
#define READ_MAX (1u << 20)

static void on_init(void *user, struct fuse_conn_info *connection)
{
	struct files *f = user;

	f->without_open = connection->capable & FUSE_CAP_NO_OPEN_SUPPORT;
	connection->want |= connection->capable & (FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_READ |
						   FUSE_CAP_CACHE_SYMLINKS | FUSE_CAP_READDIRPLUS);
	/* A program that lists a folder usually opens its files next. Listings include the attributes of
	 * all entries, which saves a look-up of each. */
	connection->want &=
	    ~(unsigned)(FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_SPLICE_READ | FUSE_CAP_AUTO_INVAL_DATA);
	connection->max_write = connection->max_readahead = READ_MAX; /* max_write also limits reads */
	connection->time_gran = 1;
}

static struct files *files_of(fuse_req_t request)
{
	return fuse_req_userdata(request);
}

int files_check(struct files *f, struct error *err)
{
	struct error own = ERROR_INIT;

	if (atomic_load(&f->checked) == CHECKED_RIGHT)
		return 0;
	pthread_mutex_lock(&f->lock);
	if (atomic_load(&f->checked) == CHECKED_NOT) {
		bool right = snapshot_check_rest(f->tree.snapshot, err ? err : &own) == 0;

		if (!right && !err)
			f->say(own.text);
		atomic_store(&f->checked, right ? CHECKED_RIGHT : CHECKED_WRONG);
	}
	pthread_mutex_unlock(&f->lock);
	return atomic_load(&f->checked) == CHECKED_RIGHT ? 0 : -EIO;
}

static int make_entry(const struct files *f, uint64_t inode, struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){.ino = inode, .attr_timeout = FOR_EVER, .entry_timeout = FOR_EVER};
	return tree_stat(&f->tree, inode, &ret->attr);
}

static void on_lookup(fuse_req_t request, fuse_ino_t parent, const char *name)
{
	struct files *f = files_of(request);
	struct fuse_entry_param entry = {.entry_timeout = FOR_EVER};
	uint64_t inode;
	int r = files_check(f, NULL);

	if (r == 0)
		r = tree_lookup(&f->tree, parent, name, &inode);
	if (r == 0)
		r = make_entry(f, inode, &entry);
	if (r == 0 || r == -ENOENT) /* inode 0 in the reply makes the kernel cache that the name is missing */
		fuse_reply_entry(request, &entry);
	else
		fuse_reply_err(request, -r);
}

static void on_getattr(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
	struct files *f = files_of(request);
	struct stat st;
	int r = inode == TREE_ROOT ? 0 : files_check(f, NULL);

	(void)info;
	if (r == 0)
		r = tree_stat(&f->tree, inode, &st);
	if (r < 0)
		fuse_reply_err(request, -r);
	else
		fuse_reply_attr(request, &st, FOR_EVER);
}

/* Replies ENOSYS, because opening or closing a file needs no work. The kernel then does not ask again. */
static void on_open(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
	(void)inode;
	info->keep_cache = 1;
	if (files_of(request)->without_open)
		fuse_reply_err(request, ENOSYS);
	else
		fuse_reply_open(request, info);
}

/* Handles opendir(), which the kernel must ask for: fusermount3 removes the mount of a killed server only if
 * this request fails. */
static void on_opendir(fuse_req_t request, fuse_ino_t inode, struct fuse_file_info *info)
{
	(void)inode;
	info->keep_cache = info->cache_readdir = 1;
	fuse_reply_open(request, info);
}

static void on_read(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset,
		    struct fuse_file_info *info)
{
	struct files *f = files_of(request);
	struct snapshot_sample sample;
	struct view *view;
	const uint8_t *data;
	uint64_t number;
	int r = files_check(f, NULL);

	(void)info;
	if (r == 0)
		r = tree_sample(&f->tree, inode, &number, &sample);
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
	if (f->ahead && size == sample.bytes && size <= AHEAD_FILE_BYTES)
		ahead_read(f->ahead, number, &sample);
}

/*
 * The kernel may wait here for a page that it is requesting from another thread. So another thread must be
 * able to reply: never call this on a thread that replies, nor after those threads have ended.
 */
int files_store(void *session, uint64_t inode, const uint8_t *data, size_t bytes)
{
	struct fuse_bufvec buffer = FUSE_BUFVEC_INIT(bytes);

	buffer.buf[0].mem = (void *)data;
	return fuse_lowlevel_notify_store(session, inode, 0, &buffer, FUSE_BUF_NO_SPLICE);
}

struct folder_listing {
	fuse_req_t request;
	const struct files *files;
	char *buffer;
	size_t size, used;
	bool plus; /* list with attributes (readdirplus), which saves a look-up per entry */
};

/* 1: the buffer is full. -EIO. */
static int add(struct folder_listing *l, const char *name, size_t length, uint64_t inode, off_t next)
{
	char terminated[CHUNK_NAME_MAX + 1];
	struct fuse_entry_param entry;
	char *at = l->buffer + l->used;
	size_t left = l->size - l->used, needed;
	int r = make_entry(l->files, inode, &entry);

	if (r < 0)
		return r;
	memcpy(terminated, name, length);
	terminated[length] = '\0';
	/* Inode 0 means that an entry needs no look-up, as "." and "..". */
	if (next <= 2)
		entry.ino = 0;
	needed = l->plus ? fuse_add_direntry_plus(l->request, at, left, terminated, &entry, next)
			 : fuse_add_direntry(l->request, at, left, terminated, &entry.attr, next);
	if (needed > left)
		return 1;
	l->used += needed;
	return 0;
}

/* Returns 1 if more entries follow. */
static int list(struct folder_listing *l, uint64_t inode, const char *folder, size_t length, off_t offset)
{
	uint64_t cursor = offset > 2 ? (uint64_t)offset - TREE_OFFSET_LISTED : 0;
	struct snapshot_entry entry;
	int r = 0;

	if (offset < 1)
		r = add(l, ".", 1, inode, 1);
	if (r == 0 && offset < 2)
		r = add(l, "..", 2, inode, 2);
	while (r == 0 && snapshot_list(l->files->tree.snapshot, folder, length, &cursor, &entry) == 0) {
		uint64_t number;

		r = tree_entry_inode(&entry, folder, length, &number);
		if (r == 0)
			r = add(l, entry.name, entry.name_length, number,
				(off_t)(cursor + TREE_OFFSET_LISTED));
	}
	return r;
}

static void answer_listing(fuse_req_t request, fuse_ino_t inode, size_t size, off_t offset, bool plus)
{
	struct files *f = files_of(request);
	struct folder_listing l = {.request = request, .files = f, .size = size, .plus = plus};
	_cleanup_(freep) char *buffer = l.buffer = malloc(size);
	const char *folder;
	size_t length;
	int r = files_check(f, NULL);

	if (r == 0)
		r = tree_folder(&f->tree, inode, &folder, &length);
	if (r == 0 && !buffer)
		r = -ENOMEM;
	if (r == 0)
		r = list(&l, inode, folder, length, offset);
	/* If an error occurs after some entries, the reply has these entries. The kernel then continues
	 * from there. */
	if (r < 0 && !l.used)
		fuse_reply_err(request, -r);
	else
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
