/* SPDX-License-Identifier: Apache-2.0 */
#include "client/admin.h"

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

#include "client/diesel.h"
#include "client/transport.h"
#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/file_safety.h"

/* Adds "<formatted>" to the list of unsuitable places. */
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

/* Returns true if only root and this user can change the folders above. path has no links. */
static bool is_above_safe(const char *path, struct error *problems)
{
	char at[PATH_MAX];
	struct stat status;
	int r = file_safety_above(path, at, &status);

	if (r < 0)
		add(problems, "%s: %s", at, strerror(-r));
	else if (r != FILE_SAFE)
		add(problems, "others can change %s", at);
	return r == FILE_SAFE;
}

/* Resolves links above the folder NAME in PARENT; nobody else can put anything into the folder, or replace
 * it. */
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
		add(problems, "%s is accessible to other users; run: chmod 700 %s", ret_folder, ret_folder);
	else
		return true;
	return false;
}

struct reaching {
	uint32_t timeout_s;
	struct transport *ret;
};

/* Connects to the daemon in a folder. 0; -ECONNREFUSED: another user's program listens there; -ENOENT: no
 * program does, which is added to the problems. */
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
			return error_set(
			    err, r, "dieseld at %s accepts no connections: it is stopped, or hangs", path);
		add(problems, "%s: %s", path, strerror(-r));
		return -ENOENT;
	}
	if (getsockopt(ret->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
	    (peer.uid == 0 || peer.uid == geteuid()))
		return 0;
	transport_close(ret);
	return error_set(err, -ECONNREFUSED,
			 "%s is served by another user (uid %u), who is not trusted: remove the socket", path,
			 (unsigned)peer.uid);
}

/* A place: the folder NAME in PARENT. Returns -ENOENT if the next place is to be tried. */
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
		(void)mkdir(path, 0700); /* an existing one is checked below */
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

/*
 * Connects to the user's own daemon, of this version, which diesel_loader starts where the node has none.
 * Starts no daemon. The places, and the reasons against one, are those of on_demand.py: a folder that only
 * this user can change, whose socket is served by this user or root, as the kernel reports before anything is
 * sent.
 *
 * 0; -ECONNREFUSED: no daemon, and err lists each place with its problem, or the daemon is another user's.
 * -ETIMEDOUT: it accepted no connection for timeout_s (transport_reach()).
 */
static int own_daemon_connect(uint32_t timeout_s, struct transport *ret, struct error *err)
{
	struct error problems = ERROR_INIT;
	struct reaching reaching = {timeout_s, ret};
	int r = each_place(connect_at, &reaching, &problems, err);

	return r == -ENOENT ? error_set(err, -ECONNREFUSED, "%s", problems.text) : r;
}

/* Finds the first suitable place, and creates it if it is missing. -ENOENT. */
static int own_daemon_folder(char *ret_folder, struct error *err)
{
	struct error problems = ERROR_INIT;
	int r = each_place(make_at, ret_folder, &problems, err);

	return r == -ENOENT ? error_set(err, r, "%s", problems.text) : r;
}

#define TEXT_MAX_BYTES (64u << 20)

struct admin_client {
	struct transport transport;
	bool asked; /* a request was made, so the next one restarts the timeout */
};

static int read_text(int fd, uint64_t bytes, char **ret_text, struct error *err)
{
	char *text;
	size_t done;
	int r;

	if (bytes > TEXT_MAX_BYTES)
		return error_set(err, -EPROTO, "dieseld's answer is too long (%llu bytes)",
				 (unsigned long long)bytes);
	text = malloc(bytes + 1);
	if (!text)
		return error_errno(err, -ENOMEM, "cannot read dieseld's answer");
	r = fd_read_at(fd, text, bytes, 0, &done);
	if (r == 0 && done < bytes)
		r = -EPROTO;
	if (r < 0) {
		free(text);
		return error_errno(err, r, "cannot read dieseld's answer");
	}
	text[bytes] = '\0';
	*ret_text = text;
	return 0;
}

static int ask(struct admin_client *c, union wire_message *request, char **ret_json, struct error *err)
{
	union wire_message reply;
	struct wire_fds fds;
	int r;

	if (c->asked)
		transport_restart(&c->transport);
	c->asked = true;
	r = transport_call(&c->transport, request, NULL, WIRE_STATUS_REPLY, &reply, &fds, err);
	if (r < 0)
		return r;
	r = read_text(fds.fd[0], reply.status_reply.bytes, ret_json, err);
	wire_fds_close(&fds);
	return r;
}

/* Connects to the node's daemon or, if it refuses access, to the user's own. */
static int connect_to_one(uint32_t timeout_s, struct transport *transport, struct error *err)
{
	struct error own = ERROR_INIT;
	int r = transport_connect_within(DIESEL_DEFAULT_SOCKET, timeout_s, transport, err);

	if (r != -ECONNREFUSED && r != -EACCES)
		return r;
	if (own_daemon_connect(timeout_s, transport, &own) == 0) {
		if (err)
			*err = ERROR_INIT;
		return 0;
	}
	if (err) {
		size_t used = strlen(err->text);

		snprintf(err->text + used, sizeof(err->text) - used, "; and no dieseld of your own (%s)",
			 own.text);
	}
	return r;
}

int admin_open(const char *socket, uint32_t timeout_s, struct admin_client **ret, struct error *err)
{
	const char *path = socket && *socket ? socket : getenv("DIESEL_SOCKET");
	struct admin_client *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_errno(err, -ENOMEM, "cannot ask dieseld");
	c->transport = (struct transport)TRANSPORT_INIT;
	r = path && *path ? transport_connect_within(path, timeout_s, &c->transport, err)
			  : connect_to_one(timeout_s, &c->transport, err);
	if (r == 0)
		r = transport_hello(&c->transport, err);
	if (r < 0) {
		admin_close(c);
		return r;
	}
	*ret = c;
	return 0;
}

void admin_close(struct admin_client *c)
{
	if (!c)
		return;
	transport_close(&c->transport);
	free(c);
}

int admin_own_folder(char *ret_folder, struct error *err)
{
	return own_daemon_folder(ret_folder, err);
}

int admin_status(struct admin_client *c, char **ret_json, struct error *err)
{
	union wire_message request;

	protocol_init(&request, WIRE_STATUS);
	return ask(c, &request, ret_json, err);
}

int admin_jobs(struct admin_client *c, char **ret_json, struct error *err)
{
	union wire_message request;

	protocol_init(&request, WIRE_JOBS);
	return ask(c, &request, ret_json, err);
}

int admin_why(struct admin_client *c, uint64_t job, uint32_t max, char **ret_json, struct error *err)
{
	union wire_message request;

	protocol_init(&request, WIRE_WHY);
	request.why.job = job;
	request.why.max = max;
	return ask(c, &request, ret_json, err);
}

int admin_set(struct admin_client *c, uint64_t job, const struct wire_setting *settings, uint32_t n_settings,
	      char **ret_json, struct error *err)
{
	union wire_message request;

	if (n_settings < 1 || n_settings > WIRE_SETTINGS_MAX)
		return error_set(err, -EINVAL, "expected 1 to %d settings per command", WIRE_SETTINGS_MAX);
	for (uint32_t i = 0; i < n_settings && c->transport.version < 8; i++)
		if (settings[i].flags & WIRE_SETTING_UNTIL_RESTART)
			return error_set(err, -EOPNOTSUPP,
					 "dieseld is too old for --until-restart (protocol %u, needs 8): "
					 "upgrade dieseld (apt install diesel), or leave out --until-restart",
					 c->transport.version);
	protocol_init(&request, WIRE_SET);
	request.set.job = job;
	request.set.n_settings = n_settings;
	memcpy(request.set.settings, settings, n_settings * sizeof(*settings));
	return ask(c, &request, ret_json, err);
}
