/* SPDX-License-Identifier: Apache-2.0 */
#include "own_daemon.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/file_safety.h"

/* Adds "<formatted>" to the list of places that will not do. */
__attribute__((format(printf, 2, 3))) static void add(struct error *problems, const char *format, ...)
{
	size_t used = strlen(problems->text);
	va_list args;

	used +=
	    (size_t)snprintf(problems->text + used, sizeof(problems->text) - used, "%s", used ? "; " : "");
	if (used >= sizeof(problems->text))
		return;
	va_start(args, format);
	vsnprintf(problems->text + used, sizeof(problems->text) - used, format, args);
	va_end(args);
}

/* No links are in path. */
static bool is_above_safe(const char *path, struct error *problems)
{
	char at[PATH_MAX];
	struct stat status;
	int r = file_safety_above(path, at, &status);

	if (r < 0)
		add(problems, "%s: %s", at, strerror(-r));
	else if (r != FILE_SAFE)
		add(problems, "%s can be changed by others", at);
	return r == FILE_SAFE;
}

/* Resolves links above the folder NAME in PARENT; nobody else can put anything into it, or in its place. */
static bool is_private(const char *parent, const char *name, char ret_folder[PATH_MAX],
		       struct error *problems)
{
	char real[PATH_MAX];
	struct stat status;

	if (!realpath(parent, real)) {
		add(problems, "%s: %s", parent, strerror(errno));
		return false;
	}
	if (!is_above_safe(real, problems))
		return false;
	if (snprintf(ret_folder, PATH_MAX, "%s/%s", strcmp(real, "/") ? real : "", name) >= PATH_MAX)
		add(problems, "%s is too long", real);
	else if (lstat(ret_folder, &status) < 0)
		add(problems, "%s: %s", ret_folder, strerror(errno));
	else if (!S_ISDIR(status.st_mode))
		add(problems, "%s is no folder", ret_folder);
	else if (status.st_uid != geteuid())
		add(problems, "%s belongs to another user (uid %u)", ret_folder, (unsigned)status.st_uid);
	else if (status.st_mode & (S_IRWXG | S_IRWXO))
		add(problems, "%s is open to others: chmod 700 %s", ret_folder, ret_folder);
	else
		return true;
	return false;
}

struct reaching {
	uint32_t timeout_s;
	struct transport *ret;
};

/* 0; -ECONNREFUSED: somebody else listens there; -ENOENT: nobody, which is among the problems. */
static int connect_in(const char *folder, struct reaching *reaching, struct error *problems,
		      struct error *err)
{
	struct transport *ret = reaching->ret;
	char path[PATH_MAX + 64];
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t size = sizeof(peer);
	int r;

	snprintf(path, sizeof(path), "%s/dieseld-" DIESEL_VERSION ".sock", folder);
	r = transport_reach(path, reaching->timeout_s, ret);
	if (r < 0) {
		if (r == -ETIMEDOUT)
			return error_set(err, r,
					 "dieseld at %s takes no connections: it is stopped, or hangs", path);
		add(problems, "%s: %s", path, strerror(-r));
		return -ENOENT;
	}
	if (getsockopt(ret->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
	    (peer.uid == 0 || peer.uid == geteuid()))
		return 0;
	transport_close(ret);
	return error_set(err, -ECONNREFUSED,
			 "%s is served by another user (uid %u), who is not to be trusted: remove it", path,
			 (unsigned)peer.uid);
}

/* A place: the folder NAME in PARENT. Returns -ENOENT to have the next one tried. */
typedef int try_place(const char *parent, const char *name, void *context, struct error *problems,
		      struct error *err);

static int connect_at(const char *parent, const char *name, void *context, struct error *problems,
		      struct error *err)
{
	char folder[PATH_MAX];

	return is_private(parent, name, folder, problems) ? connect_in(folder, context, problems, err)
							  : -ENOENT;
}

static int make_at(const char *parent, const char *name, void *context, struct error *problems,
		   struct error *err)
{
	char real[PATH_MAX], path[PATH_MAX];

	if (realpath(parent, real) && is_above_safe(real, problems) &&
	    snprintf(path, sizeof(path), "%s/%s", real, name) < PATH_MAX)
		(void)mkdir(path, 0700); /* what is there instead is looked at */
	return is_private(parent, name, context, problems) ? 0 : -ENOENT;
}

static int each_place(try_place *try, void *context, struct error *problems, struct error *err)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR"), *temporary = getenv("TMPDIR");
	char name[32];
	int r = -ENOENT;

	snprintf(name, sizeof(name), "diesel-%u", (unsigned)geteuid());
	if (runtime && runtime[0] == '/')
		r = try(runtime, "diesel", context, problems, err);
	if (r == -ENOENT && temporary && temporary[0] == '/' && strcmp(temporary, "/tmp") != 0 &&
	    strcmp(temporary, "/tmp/") != 0)
		r = try(temporary, name, context, problems, err);
	return r == -ENOENT ? try("/tmp", name, context, problems, err) : r;
}

int own_daemon_connect(uint32_t timeout_s, struct transport *ret, struct error *err)
{
	struct error problems = ERROR_INIT;
	struct reaching reaching = {timeout_s, ret};
	int r = each_place(connect_at, &reaching, &problems, err);

	return r == -ENOENT ? error_set(err, -ECONNREFUSED, "%s", problems.text) : r;
}

int own_daemon_folder(char *ret_folder, struct error *err)
{
	struct error problems = ERROR_INIT;
	int r = each_place(make_at, ret_folder, &problems, err);

	return r == -ENOENT ? error_set(err, r, "%s", problems.text) : r;
}
