/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl mount: shows a dataset as files. */
#include "ctl.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <syslog.h>

#include "client/admin.h"
#include "ctl_own_daemon.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "ctl/mount/mount.h"

static bool to_syslog;

/* Reports a line, with a rate limit, because other threads, or the kernel on behalf of any reader, can cause
 * such lines without bound. */
static void say(const char *line)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct log_limit lines;
	uint64_t n_left_out;

	pthread_mutex_lock(&lock);
	if (!to_syslog)
		log_limited(&lines, LOG_LEVEL_WARNING, "%s", line);
	else if (log_limit_take(&lines, clock_monotonic_ns(), &n_left_out))
		syslog(LOG_WARNING, "%s", line);
	pthread_mutex_unlock(&lock);
}

struct mount_command {
	struct mount_options options;
	uint32_t timeout_s;
};

static int run_mount(const struct option_verb *verb, int argc, char **argv)
{
	struct mount_command c = {.options = {.say = say}, .timeout_s = ADMIN_TIMEOUT_S};
	struct mount_options *o = &c.options;
	struct error err = ERROR_INIT;
	char socket[CTL_SOCKET_MAX];
	int status = 0, r;

	if (!ctl_options(verb, argc, argv, &c, &status))
		return status;
	argc -= optind;
	argv += optind;
	if (argc < 2)
		return ctl_usage(verb, "expected a dataset and a folder");
	o->dataset = argv[0];
	o->where = argv[1];
	if (argc > 2) {
		bool dashes = !strcmp(argv[2], "--");

		o->command = argv + 2 + dashes;
		if (!dashes || !*o->command)
			return ctl_usage(verb, "a command comes behind --");
		o->private = true;
	}
	r = ctl_own_daemon(o->socket, c.timeout_s, socket, &o->socket, &err);
	if (r < 0)
		return ctl_failed(verb, &err);
	to_syslog = !o->foreground && !o->command;
	r = mount_run(o, &status, &err);
	if (r < 0)
		return ctl_failed(verb, &err);
	return status;
}

#define AT(member) .at = offsetof(struct mount_command, member)

static const struct option_row mount_rows[] = {
    {"over", option_set_flag, AT(options.over),
     .help = "allow DIR to have files, such as those that the dataset was packed from",
     .about =
	 "Allows DIR to have files, such as those that the dataset was packed from. If DIR has names that "
	 "are not in the dataset, the command fails, because the mount would hide them."},
    CTL_ROW_VERSION(AT(options.version),
		    .help = "version to show (default: the newest); the mount stays at its version",
		    .about = "Shows that version instead of the newest, if its snapshot is kept. `stat` "
			     "lists the versions whose snapshots are kept."),
    {"allow-other", option_set_flag, AT(options.allow_other),
     .help = "give access to other users who may read DATASET/snapshot",
     .about = "Gives access to other users who may read the dataset's snapshot by its owner, group and mode, "
	      "regardless of the folders above it. Needs root, or `user_allow_other` in /etc/fuse.conf. "
	      "Refused for a dataset in a bucket, or one whose samples stay in other files."},
    {"foreground", option_set_flag, .letter = 'f', AT(options.foreground),
     .help = "stay in the foreground, and print messages instead of sending them to syslog",
     .about = "Stays in the foreground, and prints messages. Without it, messages go to syslog."},
    CTL_ROW_SOCKET(AT(options.socket)),
    CTL_ROW_TIMEOUT(AT(timeout_s)),
};

#undef AT

const struct option_verb ctl_mount = {
    .name = "mount",
    .arguments = "DATASET DIR [-- COMMAND [ARGUMENT ...]]",
    .summary = "Show a dataset as read-only files, from dieseld's cache",
    .help =
	"With a command: only the command sees the files, and the mount ends with it. Without one, all "
	"processes "
	"of this\n"
	"user see them, until fusermount3 -u DIR. The command starts a daemon of your own if none runs.\n",
    .about = "Shows the dataset at DIR as read-only files (FUSE), for programs that cannot read datasets. "
	     "The dataset may be in a bucket. Names and attributes come from the snapshot, bytes from the "
	     "cache of `dieseld`(8). The kernel caches both, since neither ever changes.\n"
	     "With a command, only the command sees the files, the mount ends with it, and `mount` passes on "
	     "its exit status. This needs no root where the system gives users namespaces. Without a "
	     "command, the mount stays until `fusermount3 -u` DIR, and only the user can see it.\n"
	     "If the daemon is unreachable, reads wait up to a minute for it to come back. The mount keeps "
	     "the version that the dataset had, also when samples are added. A restarted daemon may no "
	     "longer have that version in memory, and `pack` may have removed its snapshot. Then reads of "
	     "bytes that the kernel has not cached fail with `ESTALE` (Stale file handle), and the log has "
	     "one line about it: mount the dataset again.",
    OPTION_ROWS(mount_rows),
    .takes = OPTION_FOLDER,
    .n_before = 2,
    .command = true,
    .run = run_mount,
};
