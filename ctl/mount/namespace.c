/* SPDX-License-Identifier: Apache-2.0 */
#include "namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "lib/cleanup.h"

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

int namespace_enter(struct error *err)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();
	int r = 0;

	if (unshare(CLONE_NEWNS) < 0) {
		r = unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0 ? -errno : map_ids(uid, gid);
		if (r < 0)
			return error_set(
			    err, -EPERM,
			    "this system gives no mount namespace of its own (%s): run it as root, or "
			    "mount for the node, without a command",
			    strerror(-r));
	}
	if (mount(NULL, "/", NULL, MS_SLAVE | MS_REC, NULL) < 0)
		return error_errno(err, -errno, "cannot keep mounts private");
	return 0;
}
