/* SPDX-License-Identifier: Apache-2.0 */
#include "identity.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/capabilities.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/proc.h"

#define GROUPS_MAX   1024
#define STATUS_BYTES 65536

struct identity_credentials {
	uid_t uid;
	gid_t gid, groups[GROUPS_MAX];
	size_t n_groups;
};

static int read_text(int folder, const char *name, char *text, size_t size)
{
	_cleanup_(closep) int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t n = 1;

	while (fd >= 0 && n > 0 && used < size - 1) {
		n = read(fd, text + used, size - 1 - used);
		used += n > 0 ? (size_t)n : 0;
	}
	text[used] = '\0';
	return fd < 0 || n < 0 ? -errno : 0;
}

/* Checks that all four numbers of the line are the expected ID. A program that runs with another user's
 * rights, or could regain them, is not the one that wrote the indices. */
static int check_id(const char *text, const char *line, uint32_t expected)
{
	const char *at = strstr(text, line);
	unsigned id[4];

	if (!at || sscanf(at + strlen(line), "%u %u %u %u", &id[0], &id[1], &id[2], &id[3]) != 4)
		return -EBADMSG;
	for (int i = 0; i < 4; i++)
		if (id[i] != expected)
			return -EPERM;
	return 0;
}

static int parse_groups(const char *text, struct identity_credentials *c)
{
	const char *at = strstr(text, "\nGroups:");
	char *end;

	if (!at)
		return -EBADMSG;
	for (at += strlen("\nGroups:");; at = end) {
		unsigned long group;

		at += strspn(at, " \t");
		if (*at < '0' || *at > '9')
			break;
		if (c->n_groups == GROUPS_MAX)
			return -E2BIG;
		group = strtoul(at, &end, 10);
		c->groups[c->n_groups++] = (gid_t)group;
	}
	return 0;
}

/* Reads the groups of a process that has only this user and group; else -EPERM. */
static int credentials_read(int process, uid_t uid, gid_t gid, struct identity_credentials *ret)
{
	_cleanup_(freep) char *text = malloc(STATUS_BYTES);
	int r = text ? read_text(process, "status", text, STATUS_BYTES) : -ENOMEM;

	ret->uid = uid;
	ret->gid = gid;
	if (r == 0)
		r = check_id(text, "\nUid:", ret->uid);
	if (r == 0)
		r = check_id(text, "\nGid:", ret->gid);
	return r < 0 ? r : parse_groups(text, ret);
}

int identity_open_group(const char *hierarchies, const char *hierarchy, const char *group)
{
	const struct open_how how = {.flags = O_WRONLY | O_CLOEXEC, .resolve = RESOLVE_BENEATH};
	_cleanup_(closep) int folder = open(hierarchies, O_PATH | O_DIRECTORY | O_CLOEXEC);
	char path[4096];
	long fd;

	if (folder < 0)
		return -errno;
	if (snprintf(path, sizeof(path), "./%s%s/cgroup.procs", hierarchy, group) >= (int)sizeof(path))
		return -ENAMETOOLONG;
	fd = syscall(SYS_openat2, folder, path, &how, sizeof(how));
	return fd < 0 ? -errno : (int)fd;
}

static bool join(const char *hierarchy, const char *group)
{
	_cleanup_(closep) int fd = identity_open_group("/sys/fs/cgroup", hierarchy, group);
	char pid[16];
	int n = snprintf(pid, sizeof(pid), "%d", getpid());

	return fd >= 0 && write(fd, pid, (size_t)n) == n;
}

/* Joins the process's control groups: version 2, or those of version 1 that account for memory, CPU and I/O.
 * Returns true if memory is charged there. */
static bool join_groups(int process)
{
	char text[8192], hierarchy[64], *line, *rest = NULL;
	bool charged = false;

	if (read_text(process, "cgroup", text, sizeof(text)) < 0)
		return false;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;

		if (!group)
			continue;
		*group++ = '\0';
		names++;
		if (!*names)
			charged |= join("", group);
		else if (!strcmp(names, "memory") || !strcmp(names, "blkio") || !strncmp(names, "cpu", 3)) {
			snprintf(hierarchy, sizeof(hierarchy), "/%.60s", names);
			charged |= join(hierarchy, group) && !strcmp(names, "memory");
		}
	}
	return charged;
}

/* Enters the process's mount namespace, root and current folder, after checking its user again. It may
 * execute a program with other rights at any moment, and its current folder may be one that its user may not
 * enter. */
static int enter_root(int process, const struct identity_credentials *c)
{
	static struct identity_credentials now;
	_cleanup_(closep) int mounts = openat(process, "ns/mnt", O_RDONLY | O_CLOEXEC);
	_cleanup_(closep) int root = openat(process, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	_cleanup_(closep) int current = openat(process, "cwd", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (mounts < 0 || root < 0 || current < 0)
		return -errno;
	r = credentials_read(process, c->uid, c->gid, &now);
	if (r < 0)
		return r;
	if (setns(mounts, CLONE_NEWNS) < 0 || fchdir(root) < 0 || chroot(".") < 0 || fchdir(current) < 0)
		return -errno;
	return 0;
}

static int become(const struct identity_credentials *c)
{
	const struct rlimit none = {0, 0}, files = {256, 256};

	if (setgroups(c->n_groups, c->groups) < 0 || setresgid(c->gid, c->gid, c->gid) < 0 ||
	    setresuid(c->uid, c->uid, c->uid) < 0)
		return -errno;
	/* The user must not trace this process or make it dump core. */
	if (prctl(PR_SET_DUMPABLE, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0 ||
	    setrlimit(RLIMIT_NOFILE, &files) < 0)
		return -errno;
	return capabilities_keep(0);
}

int identity_take(pid_t pid, uint64_t start_ticks, uid_t uid, gid_t gid, bool *ret_charged, struct error *err)
{
	static struct identity_credentials c;
	_cleanup_(closep) int process = -EBADF;
	struct proc_stat stat;
	char path[32];
	bool charged;
	int r;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (process < 0)
		return error_errno(err, -errno, "process %d is gone", pid);
	/* From here on the descriptor identifies the process, even if its number is reused. */
	r = proc_stat_read("/proc", pid, &stat);
	if (r == 0 && stat.start_ticks != start_ticks)
		r = -ESRCH;
	if (r == 0)
		r = credentials_read(process, uid, gid, &c);
	if (r == -EPERM)
		return error_set(err, r, "process %d has the rights of several users or groups", pid);
	if (r < 0)
		return error_errno(err, r, "cannot determine the user of process %d", pid);
	charged = join_groups(process);
	r = enter_root(process, &c);
	if (r < 0)
		return error_errno(err, r, "cannot enter the mount namespace and root of process %d", pid);
	r = become(&c);
	if (r < 0)
		return error_errno(err, r, "cannot take on the user and groups of process %d", pid);
	*ret_charged = charged;
	return 0;
}
