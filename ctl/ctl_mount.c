/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl mount: a dataset as files. */
#include "ctl.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <syslog.h>

#include "client/admin.h"
#include "ctl_own_daemon.h"
#include "dataset/backend.h"
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
		return ctl_usage(verb, "a dataset and a folder are needed");
	o->dataset = argv[0];
	o->where = argv[1];
	if (argc > 2) {
		bool dashes = !strcmp(argv[2], "--");

		o->command = argv + 2 + dashes;
		if (!dashes || !*o->command)
			return ctl_usage(verb, "a command comes behind --");
		o->private = true;
	}
	if (backend_is_elsewhere(o->dataset)) {
		error_set(&err, -EOPNOTSUPP,
			  "%s is in a bucket, and a mount shows a dataset in a folder: jobs read it by "
			  "diesel_loader, "
			  "and `dieselctl cat` writes single samples out",
			  o->dataset);
		return ctl_failed(verb, &err);
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
     .help = "DIR may have something in it: the files it was packed from",
     .about = "DIR may have something in it: what the dataset was packed from. Names that the dataset does "
	      "not have are refused: they would be out of sight."},
    CTL_ROW_VERSION(
	AT(options.version), .help = "not the newest version; it stays that one in any case",
	.about =
	    "That version, whose snapshot is kept (`stat` says of which one is), instead of the newest."),
    {"allow-other", option_set_flag, AT(options.allow_other),
     .help = "let other users in, as far as they may read DATASET/snapshot",
     .about = "Lets other users in, as far as owner, group and mode of the dataset's snapshot let them read, "
	      "whatever folders it lies in. Takes root, or `user_allow_other` in /etc/fuse.conf."},
    {"foreground", option_set_flag, .letter = 'f', AT(options.foreground),
     .help = "stay, and print what happens, rather than write it to syslog",
     .about = "Stays in the foreground, and prints what happens. Else it goes to syslog."},
    CTL_ROW_SOCKET(AT(options.socket)),
    CTL_ROW_TIMEOUT(AT(timeout_s)),
};

#undef AT

const struct option_verb ctl_mount = {
    .name = "mount",
    .arguments = "DATASET DIR [-- COMMAND [ARGUMENT ...]]",
    .summary = "Show a dataset as read-only files, from dieseld's cache",
    .help = "With a command: it alone sees the files, and the mount ends with it. Without: everybody of this "
	    "user does, until\n"
	    "fusermount3 -u DIR. A daemon of the user's own is started if need be.\n",
    .about = "Shows the dataset at DIR as read-only files (FUSE), for programs that know nothing of "
	     "datasets. Names and attributes come from the snapshot, bytes from the cache of `dieseld`(8), "
	     "and the kernel keeps both, since neither ever changes. With a command, it alone sees the "
	     "files, the mount ends with it, and its exit status is passed on; that takes no root where the "
	     "system gives users namespaces. Without one, the mount stays until `fusermount3 -u` DIR and is "
	     "the user's alone. If the daemon goes away, reads wait up to a minute for it to come back. The "
	     "mount keeps the version that the dataset had, also when samples are added. Once the daemon "
	     "that has that version in memory is restarted, or lets go of it, and the snapshot of it is not "
	     "kept any more, reads of what the kernel does not have fail with `ESTALE` (Stale file handle), "
	     "and one line says so: mount the dataset again.",
    OPTION_ROWS(mount_rows),
    .takes = OPTION_FOLDER,
    .n_before = 2,
    .command = true,
    .run = run_mount,
};
