/* SPDX-License-Identifier: Apache-2.0 */
#include "mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "ahead.h"
#include "client/mapped.h"
#include "dataset/backend.h"
#include "dataset/snapshot_retained.h"
#include "dataset/survey.h"
#include "files.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/error.h"
#include "lib/thread.h"
#include "lister.h"

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
