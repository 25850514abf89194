/* SPDX-License-Identifier: Apache-2.0 */
#define FUSE_USE_VERSION 314

#include "mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse3/fuse_lowlevel.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "ahead.h"
#include "connection.h"
#include "client/mapped.h"
#include "dataset/backend.h"
#include "dataset/snapshot_retained.h"
#include "dataset/survey.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/thread.h"
#include "lister.h"
#include "tree.h"
#include "views.h"

/* The file system's replies to the kernel's requests. */

enum files_checked { CHECKED_NOT, CHECKED_RIGHT, CHECKED_WRONG };

struct files {
	struct tree tree;
	struct views *views;
	struct mount_ahead *ahead; /* NULL: none */
	void (*say)(const char *line);
	pthread_mutex_t lock; /* serialises files_check() */
	_Atomic(enum files_checked) checked;
	bool without_open; /* the kernel no longer sends open() and release() */
};

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

/* Verifies the snapshot's checksums, once. This takes a while for a large snapshot, so the file
 * system is mounted first, and look-ups wait until verification is done. Thread-safe. -EIO: the snapshot is
 * damaged; the reason is reported once, in err or, if err is NULL, by say(). */
static int files_check(struct files *f, struct error *err)
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
static int files_store(void *session, uint64_t inode, const uint8_t *data, size_t bytes)
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

/* Its user data is a struct files. */
static const struct fuse_lowlevel_ops files_operations = {
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

static int write_line(const char *path, const char *text)
{
	_cleanup_(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -errno;
	return 0;
}

/* Maps this user and this group to themselves. */
static int map_ids(uid_t uid, gid_t gid)
{
	char text[64];
	int r = write_line("/proc/self/setgroups", "deny");

	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "%u %u 1", uid, uid);
	r = write_line("/proc/self/uid_map", text);
	if (r < 0)
		return r;
	snprintf(text, sizeof(text), "%u %u 1", gid, gid);
	return write_line("/proc/self/gid_map", text);
}

/* Gives this process its own mount namespace: mounts that other processes make appear in it, but its own
 * mounts stay inside. Without root it uses a user namespace, in which the process keeps its user. Call it
 * before any thread is started. -EPERM: the system does not permit it. */
static int namespace_enter(struct error *err)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r = 0;

	if (unshare(CLONE_NEWNS) < 0) {
		r = unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? -errno : map_ids(uid, gid);
		if (r < 0)
			return error_set(err, -EPERM,
					 "this system does not permit a private mount namespace (%s): run "
					 "the command as root, or mount without a command, for all "
					 "processes of this user",
					 strerror(-r));
	}
	if (mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
		return error_errno(err, -errno, "cannot keep mounts private");
	return 0;
}

#define IDLE_NS   (30 * NS_PER_S)
#define TIDY_S    10
#define N_THREADS 16

struct mounted {
	const struct mount_options *options;
	struct diesel_dataset *dataset;
	struct files files;
	struct fuse_session *session;
	char where[PATH_MAX]; /* absolute */
	struct mount_connection connection;
	pthread_t main, keeper;
	pthread_mutex_t lock;
	pthread_cond_t ends;
	bool ending, has_keeper;
	int go; /* closing it starts the command */
	pid_t child, lister;
	int status;
};

/* Finds the snapshot's file, from which the mount takes its permissions. */
static int look_at_snapshot(const struct mount_options *o, uint64_t version, char *path, size_t size,
			    struct stat *ret, struct error *err)
{
	char name[SNAPSHOT_RETAINED_NAME];

	snprintf(path, size, "%s/%s", o->dataset, snapshot_retained_name(version, name));
	if (o->version && stat(path, ret) == 0)
		return 0;
	snprintf(path, size, "%s/" SNAPSHOT_FILE, o->dataset);
	return stat(path, ret) < 0 ? error_errno(err, -errno, "cannot look at %s", path) : 0;
}

static int open_dataset(struct mounted *m, struct error *err)
{
	const struct mount_options *o = m->options;
	const struct snapshot_info *info;
	char text[sizeof(err->text)], path[4096];
	struct stat st = {.st_uid = geteuid(), .st_gid = getegid()};
	int r =
	    diesel_dataset_open_version(o->dataset, o->version, o->socket, &m->dataset, text, sizeof(text));

	if (r < 0)
		return error_set(err, r, "%s", text);
	m->files.tree.snapshot = mapped_snapshot(m->dataset);
	/* For a large snapshot, the daemon has verified only the tables. The first look-up verifies the other
	 * checksums, and the daemon verifies a record with its chunk. */
	info = snapshot_info(m->files.tree.snapshot);
	if (o->allow_other && (info->is_external || backend_is_elsewhere(o->dataset)))
		return error_set(
		    err, -EPERM,
		    "%s has samples outside of its folder, whose rights a mount cannot enforce: leave out "
		    "--allow-other",
		    o->dataset);
	if (!backend_is_elsewhere(o->dataset))
		r = look_at_snapshot(o, info->version, path, sizeof(path), &st, err);
	if (r < 0)
		return r;
	if (o->allow_other && getxattr(path, "system.posix_acl_access", NULL, 0) > 0)
		return error_set(
		    err, -EPERM,
		    "%s has an access control list, which a mount cannot enforce: leave out --allow-other",
		    path);
	/* Users who may not read the dataset may not read the mount either, if others have access. */
	m->files.tree.uid = st.st_uid;
	m->files.tree.gid = st.st_gid;
	m->files.tree.mask = o->allow_other ? st.st_mode & 0777 : 0777;
	r = views_new(m->dataset, o->say, &m->files.views);
	return r < 0 ? error_errno(err, r, "cannot mount %s", o->dataset) : 0;
}

/* Checks that everything in the folder is in the dataset too, because the mount would hide the rest. */
static int check_covered(struct mounted *m, struct error *err)
{
	const struct mount_options *o = m->options;
	DIR *folder = opendir(o->where);
	int r = folder ? 0 : -errno;

	if (r < 0)
		return r == -EACCES ? 0 : error_errno(err, r, "cannot mount at %s", o->where);
	for (const struct dirent *e; r == 0 && (e = readdir(folder));) {
		uint64_t inode;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") ||
		    (o->over && survey_is_hidden(e->d_name, strlen(e->d_name)))) /* pack leaves it out */
			continue;
		if (!o->over)
			r = error_set(err, -ENOTEMPTY, "%s is not empty: use an empty folder, or --over",
				      o->where);
		else if ((r = files_check(&m->files, err)) == 0 &&
			 tree_lookup(&m->files.tree, TREE_ROOT, e->d_name, &inode) < 0)
			r = error_set(err, -EEXIST,
				      "%s has %s, which is not in %s, so the mount would hide it: pack the "
				      "folder again, or mount the dataset elsewhere",
				      o->where, e->d_name, o->dataset);
	}
	closedir(folder);
	return r;
}

static int make_session(struct mounted *m, struct error *err)
{
	const struct mount_options *o = m->options;
	char options[512], name[256];
	size_t n = 0;

	/* A comma would end the option. */
	for (const char *c = o->dataset; *c && n + 2 < sizeof(name); c++) {
		if (*c == ',' || *c == '\\')
			name[n++] = '\\';
		name[n++] = *c;
	}
	name[n] = '\0';
	snprintf(options, sizeof(options), "ro,default_permissions,subtype=diesel,fsname=%s%s%s", name,
		 o->allow_other ? ",allow_other" : "",
		 o->private ? "" : ",auto_unmount"); /* a private mount ends with its processes */
	struct fuse_args args = FUSE_ARGS_INIT(0, NULL);

	if (!realpath(o->where, m->where))
		return error_errno(err, -errno, "cannot mount at %s", o->where);
	if (fuse_opt_add_arg(&args, "dieselctl") < 0 || fuse_opt_add_arg(&args, "-o") < 0 ||
	    fuse_opt_add_arg(&args, options) < 0)
		return error_errno(err, -ENOMEM, "cannot mount");
	m->session = fuse_session_new(&args, &files_operations, sizeof(files_operations), &m->files);
	fuse_opt_free_args(&args);
	if (!m->session)
		return error_set(err, -EINVAL, "cannot mount: FUSE refused the options %s", options);
	if (fuse_session_mount(m->session, o->where) < 0)
		return error_set(err, -EIO,
				 "cannot mount at %s: check that FUSE is installed (/dev/fuse, and "
				 "fusermount3 without root)%s",
				 o->where,
				 o->allow_other ? ", that the folder is yours, and that /etc/fuse.conf has "
						  "user_allow_other"
						: ", and that the folder is yours");
	return 0;
}

/* Forks the command, before there are threads. The command waits until the mount exists. */
static int fork_command(struct mounted *m, struct error *err)
{
	int go[2];

	if (pipe(go) < 0)
		return error_errno(err, -errno, "cannot start %s", m->options->command[0]);
	m->child = fork();
	if (m->child == 0) {
		char byte, text[512];

		close(go[1]);
		/* Waits for one byte, which means that the mount exists. The pipe ends without it if the
		 * mount failed. */
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		close(go[0]);
		/* Enters the current folder again by its path, to see the mount if it covers that folder. */
		char *here = getcwd(NULL, 0);

		if (here)
			(void)!chdir(here);
		execvp(m->options->command[0], m->options->command);
		int r = -errno;

		snprintf(text, sizeof(text), "cannot run %s: %s", m->options->command[0], strerror(-r));
		m->options->say(text);
		_exit(r == -ENOENT ? 127 : 126);
	}
	close(go[0]);
	m->go = go[1];
	if (m->child < 0)
		return error_errno(err, -errno, "cannot start %s", m->options->command[0]);
	return 0;
}

/* Closes idle views regularly, and ends the loop when the command has ended. */
static void *keep(void *argument)
{
	struct mounted *m = argument;
	struct timespec until;

	siginfo_t unused;

	(void)files_check(&m->files, NULL);
	if (m->child > 0) {
		/* WNOWAIT leaves the command a zombie, so that no other process gets its pid. */
		while (waitid(P_PID, (id_t)m->child, &unused, WEXITED | WNOWAIT) < 0 && errno == EINTR)
			continue;
		views_stop(m->files.views);
		fuse_session_exit(m->session);
		pthread_kill(m->main, SIGTERM);
		return NULL;
	}
	pthread_mutex_lock(&m->lock);
	while (!m->ending) {
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += TIDY_S;
		pthread_cond_timedwait(&m->ends, &m->lock, &until);
		views_tidy(m->files.views, IDLE_NS);
	}
	pthread_mutex_unlock(&m->lock);
	return NULL;
}

static void start_keeper(struct mounted *m)
{
	m->main = pthread_self();
	m->has_keeper = thread_start(&m->keeper, keep, m) == 0;
}

static void end_keeper(struct mounted *m)
{
	if (!m->has_keeper)
		return;
	if (m->child > 0)
		kill(m->child, SIGTERM); /* a signal stopped the mount, or the dataset's files are gone */
	pthread_mutex_lock(&m->lock);
	m->ending = true;
	pthread_cond_signal(&m->ends);
	pthread_mutex_unlock(&m->lock);
	pthread_join(m->keeper, NULL);
}

/* Starts the prefetch. Ignores errors, because without prefetch, reading is only slower. */
static void start_ahead(struct mounted *m)
{
	int lister_fd = -EBADF;

	connection_find(m->where, &m->connection);
	(void)lister_fork(m->where, &lister_fd, &m->lister);
	if (ahead_new(&m->files.tree, m->files.views, lister_fd, files_store, m->session, &m->files.ahead) <
	    0)
		closep(&lister_fd);
}

static int serve(struct mounted *m, struct error *err)
{
	struct fuse_loop_config *config = fuse_loop_cfg_create();
	int r;

	fuse_loop_cfg_set_clone_fd(config, 1);
	fuse_loop_cfg_set_max_threads(config, N_THREADS);
	if (m->child > 0) {
		signal(SIGINT, SIG_IGN); /* Ctrl-C must stop only the command */
		if (write(m->go, "g", 1) < 0)
			error_errno(err, -errno, "cannot start %s", m->options->command[0]);
		closep(&m->go);
		m->go = -1;
	}
	start_ahead(m);
	start_keeper(m);
	r = m->has_keeper ? fuse_session_loop_mt(m->session, config) : -EAGAIN;
	/* Nobody answers now: a store that waits for a reader's page would never end. */
	if (!ahead_end(m->files.ahead))
		connection_abort(&m->connection);
	ahead_free(m->files.ahead);
	views_stop(m->files.views);
	end_keeper(m);
	fuse_loop_cfg_destroy(config);
	/* A signal ends the command as usual. */
	return r < 0 ? error_errno(err, r, "cannot serve %s", m->options->dataset) : 0;
}

static int run(struct mounted *m, struct error *err)
{
	const struct mount_options *o = m->options;
	int r = open_dataset(m, err);

	if (r == 0)
		r = check_covered(m, err);
	if (r == 0 && o->private)
		r = namespace_enter(err);
	if (r == 0 && o->command)
		r = fork_command(m, err);
	if (r == 0)
		r = make_session(m, err);
	if (r < 0)
		return r;
	if (fuse_set_signal_handlers(m->session) < 0)
		r = error_set(err, -EIO, "cannot handle signals");
	if (r == 0 && !o->foreground && !o->command && fuse_daemonize(0) < 0)
		r = error_set(err, -EAGAIN, "cannot continue in the background");
	if (r == 0)
		r = serve(m, err);
	fuse_remove_signal_handlers(m->session);
	fuse_session_unmount(m->session);
	return r;
}

static int exit_status(int status)
{
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int mount_run(const struct mount_options *options, int *ret_status, struct error *err)
{
	struct mounted m = {.options = options, .go = -1};
	int r;

	m.files.say = options->say;
	pthread_mutex_init(&m.files.lock, NULL);
	pthread_mutex_init(&m.lock, NULL);
	pthread_cond_init(&m.ends, NULL);
	r = run(&m, err);
	closep(&m.go); /* if nothing was written, the command's process exits without running it */
	if (m.child > 0)
		waitpid(m.child, &m.status, 0);
	*ret_status = exit_status(m.status);
	if (m.session)
		fuse_session_destroy(m.session);
	if (m.lister > 0)
		waitpid(m.lister, NULL, 0);
	views_free(m.files.views);
	diesel_dataset_close(m.dataset);
	return r;
}
