/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl mount: a dataset as files. */
#include "ctl.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <syslog.h>

#include "client/admin.h"
#include "ctl/starting/ctl_own_daemon.h"
#include "dataset/place.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "ctl/mount/mount.h"

static bool to_syslog;

/* What another thread, or the kernel on behalf of whoever reads, can cause as often as it likes. */
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

static int run_mount(const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct option long_options[] = {{"allow-other", no_argument, NULL, 'a'},
						     {"foreground", no_argument, NULL, 'f'},
						     {"over", no_argument, NULL, 'o'},
						     {"socket", required_argument, NULL, 's'},
						     CTL_OPTION_TIMEOUT,
						     CTL_OPTION_VERSION,
						     CTL_OPTION_HELP,
						     {0}};
	struct mount_options o = {.say = say};
	struct error err = ERROR_INIT;
	uint32_t timeout_s = ADMIN_TIMEOUT_S;
	char socket[CTL_SOCKET_MAX];
	int option, status = 0, r;

	/* '+': what comes behind DIR is the command's own. */
	while ((option = getopt_long(argc, argv, "+:hfs:", long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
		o.allow_other |= option == 'a';
		o.foreground |= option == 'f';
		o.over |= option == 'o';
		if (option == 's')
			o.socket = optarg;
		if (option == 'T' && ctl_timeout(verb, &timeout_s) != CTL_OK)
			return CTL_USAGE;
		if (option == 'V' && ctl_version(verb, &o.version) != CTL_OK)
			return CTL_USAGE;
	}
	argc -= optind;
	argv += optind;
	if (argc < 2)
		return ctl_usage(verb, "a dataset and a folder are needed");
	o.dataset = argv[0];
	o.where = argv[1];
	if (argc > 2) {
		bool dashes = !strcmp(argv[2], "--");

		o.command = argv + 2 + dashes;
		if (!dashes || !*o.command)
			return ctl_usage(verb, "a command comes behind --");
		o.private = true;
	}
	if (place_is_elsewhere(o.dataset)) {
		error_set(&err, -EOPNOTSUPP,
			  "%s is in a bucket, and a mount shows a dataset in a folder: jobs read it by "
			  "diesel_loader, "
			  "and `dieselctl cat` writes single samples out",
			  o.dataset);
		return ctl_failed(verb, &err);
	}
	r = ctl_own_daemon(o.socket, timeout_s, socket, &o.socket, &err);
	if (r < 0)
		return ctl_failed(verb, &err);
	to_syslog = !o.foreground && !o.command;
	r = mount_run(&o, &status, &err);
	if (r < 0)
		return ctl_failed(verb, &err);
	return status;
}

const struct ctl_verb ctl_mount = {
    .name = "mount",
    .arguments = "[OPTION ...] DATASET DIR [-- COMMAND [ARGUMENT ...]]",
    .summary = "Show a dataset as read-only files, from dieseld's cache",
    .help = "With a command: it alone sees the files, and the mount ends with it. Without: everybody of this "
	    "user does, until\n"
	    "fusermount3 -u DIR.\n\n"
	    "      --over         DIR may have something in it: the files it was packed from\n"
	    "      --version N    not the newest version; it stays that one in any case\n"
	    "      --allow-other  let other users in, as far as they may read DATASET/snapshot\n"
	    "  -f, --foreground   stay, and print what happens, rather than write it to syslog\n"
	    "  -s, --socket PATH  of dieseld (default $DIESEL_SOCKET, else the node's, else your own, which "
	    "is started)\n" CTL_TIMEOUT_HELP,
    .run = run_mount,
};
