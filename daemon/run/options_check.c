/* SPDX-License-Identifier: Apache-2.0 */
/* --check-config: finds the mistakes that dieseld would otherwise find only at its start, or later. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/diesel.h"
#include "lib/cleanup.h"
#include "lib/commands.h"
#include "lib/log.h"
#include "options.h"

/* Returns true for a folder that the unit, its drop-in for the admin socket, or the pod makes when the
 * service starts. */
static bool is_units_own(const char *folder)
{
	return !strcmp(folder, "/run/diesel") || !strcmp(folder, "/run/diesel-admin") ||
	       !strcmp(folder, "/var/lib/diesel");
}

/* Checks that the path exists as this kind, or can be created. kind: S_IFREG, S_IFSOCK or S_IFDIR. */
static int check_path(const char *name, const char *path, mode_t kind, struct error *err)
{
	const char *slash = strrchr(path, '/');
	char folder[PATH_MAX];
	struct stat st;

	if (stat(path, &st) == 0) {
		if ((st.st_mode & S_IFMT) == kind)
			return 0;
		return error_set(err, -EEXIST, "%s: %s is %s: write the path of %s", name, path,
				 S_ISDIR(st.st_mode)    ? "a folder"
				 : S_ISSOCK(st.st_mode) ? "a socket"
							: "neither a folder nor a socket",
				 kind == S_IFDIR   ? "a folder"
				 : kind == S_IFREG ? "a file"
						   : "a socket");
	}
	if (errno != ENOENT)
		return error_errno(err, -errno, "%s: %s: write another path", name, path);
	snprintf(folder, sizeof(folder), "%.*s", slash && slash > path ? (int)(slash - path) : 1,
		 slash ? path : ".");
	if (stat(folder, &st) == 0 || is_units_own(folder))
		return 0;
	_cleanup_(freep) char *word = commands_word_new(folder);

	return error_set(err, -ENOENT,
			 "%s: the folder %s does not exist: run mkdir -p %s, or write another path", name,
			 folder, word ? word : folder);
}

/* Checks a path that was given. Whoever installs dieseld is responsible for the default paths. */
static int check_given(const struct daemon_options *o, const char *name, const char *path, mode_t kind,
		       struct error *err)
{
	const struct settings_source *source = options_source(o, name);
	int r = source->given && strcmp(path, "off") ? check_path(name, path, kind, err) : 0;

	if (r < 0)
		settings_place_error(source, err);
	return r;
}

/* Refuses a staging folder that other users may use: they could read the staged chunks, or replace them. */
static int check_stage(const struct daemon_options *o, struct error *err)
{
	_cleanup_(freep) char *word = NULL;
	struct stat st;

	if (!strcmp(o->stage, "off") || stat(o->stage, &st) < 0 || !(st.st_mode & 077))
		return 0;
	word = commands_word_new(o->stage);
	error_set(err, -EPERM, "stage: other users can access %s: run chmod 700 %s", o->stage,
		  word ? word : o->stage);
	settings_place_error(options_source(o, "stage"), err);
	return -EPERM;
}

/* Refuses an admin socket in the folder of the other socket: a container that mounts the folder has both. */
static int check_admin_socket(const struct daemon_options *o, struct error *err)
{
	const char *slash = strrchr(o->admin_socket, '/'), *other = strrchr(o->socket_path, '/');

	if (!slash || !other || slash - o->admin_socket != other - o->socket_path ||
	    strncmp(o->admin_socket, o->socket_path, (size_t)(slash - o->admin_socket)) != 0)
		return 0;
	error_set(err, -EINVAL,
		  "admin-socket: %s is in the folder of the socket of clients, which containers mount: write "
		  "admin-socket = /run/diesel-admin/admin.sock",
		  o->admin_socket);
	settings_place_error(options_source(o, "admin-socket"), err);
	return -EINVAL;
}

/* Serving does not depend on a codec: one of the command line that cannot be loaded is only logged. */
static int check_codecs(const struct daemon_options *o, struct error *err)
{
	for (uint32_t i = 0; i < o->n_codecs; i++) {
		_cleanup_(closep) int fd = -EBADF;
		struct error problem = ERROR_INIT;
		int r = plugin_file_open(o->codecs[i], &fd, &problem);

		if (r == 0)
			continue;
		if (!o->codec_source[i].file) {
			log_error("%s", problem.text);
			continue;
		}
		error_set(err, r, "codec: %s (or write another path, or remove the line)", problem.text);
		settings_place_error(&o->codec_source[i], err);
		return r;
	}
	return 0;
}

/* Prefixes the error with the line of the option that its text names. */
static void place_cluster_error(const struct daemon_options *o, struct error *err)
{
	static const char *const names[] = {"cluster-listen", "cluster-advertise", "cluster-name",
					    "cluster-key"};
	const char *first = "cluster", *found, *at = err->text + strlen(err->text);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char option[32];

		snprintf(option, sizeof(option), "--%s", names[i]);
		found = strstr(err->text, option);
		if (found && found < at && options_source(o, names[i])->given) {
			at = found;
			first = names[i];
		}
	}
	settings_place_error(options_source(o, first), err);
}

/* Refuses a line that has no effect without another option: the operator expects one. */
static int check_needed(const struct daemon_options *o, const char *name, const char *needed,
			struct error *err)
{
	const struct settings_source *source = options_source(o, name);

	if (!source->file || options_source(o, needed)->given)
		return 0;
	error_set(err, -EINVAL, "%s has no effect without %s: write %s, too, or remove the line", name,
		  needed, needed);
	settings_place_error(source, err);
	return -EINVAL;
}

/* Refuses unknown names, although dieseld starts with them (daemon.c). */
static int check_names(const struct daemon_options *o, struct error *err)
{
	const char *setting = "cache-quota";
	int r = cache_quotas_check(setting, &o->serve.quotas, err);

	if (r == 0 && o->admin.is_unknown) {
		setting = "admin-user";
		r = error_set(err, -EINVAL,
			      "admin-user: \"%s\" is not a user that this machine knows: write admin-user = "
			      "root, or another name",
			      o->admin.name);
	}
	if (r < 0)
		settings_place_error(options_source(o, setting), err);
	return r;
}

int options_check(const struct daemon_options *o, struct error *err)
{
	static const char *const needs[][2] = {
	    {"cluster-listen", "cluster"}, {"cluster-advertise", "cluster"}, {"cluster-name", "cluster"},
	    {"cluster-key", "cluster"},    {"cluster-limit", "cluster"},     {"stage-size", "stage"},
	    {"stage-when", "stage"},
	};
	int r = check_given(o, "socket", o->socket_path, S_IFSOCK, err);

	for (size_t i = 0; i < sizeof(needs) / sizeof(needs[0]) && r == 0; i++)
		r = check_needed(o, needs[i][0], needs[i][1], err);
	if (r == 0)
		r = check_names(o, err);
	if (r == 0)
		r = check_given(o, "admin-socket", o->admin_socket, S_IFSOCK, err);
	if (r == 0)
		r = check_admin_socket(o, err);
	if (r == 0)
		r = check_given(o, "history", o->history, S_IFREG, err);
	if (r == 0)
		r = check_given(o, "stage", o->stage, S_IFDIR, err);
	if (r == 0)
		r = check_stage(o, err);
	if (r == 0)
		r = check_codecs(o, err);
	if (r < 0)
		return r;
	r = cluster_check(&o->share, err);
	if (r < 0)
		place_cluster_error(o, err);
	return r;
}
