/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Plug-ins: codecs that the operator names as shared objects (diesel/diesel_codec.h). Only the daemon's user
 * and root may be able to change or replace such a file. The daemon itself never loads one: it opens the file
 * once, and helper processes (fork_server.h) get the descriptor. So the loaded file stays the same as long as
 * the daemon lives, even if the path changes.
 *
 * Clients name codecs, never files.
 */

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "image/recipe.h"
#include "lib/error.h"
#include "fork_server.h"

#define PLUGINS_MAX           64
#define PLUGIN_MAX_ASKING     32 /* maximum number of processes at one time that report a codec's output */
#define PLUGIN_MAX_ASKING_UID 4  /* limit for one user who is not an administrator (admin.h) */

struct plugin {
	char name[RECIPE_NAME_BYTES]; /* "": the file could not be loaded */
	const char *path;             /* borrowed */
	int fd;
	struct error problem; /* why the file could not be loaded */
};

struct plugins {
	struct plugin all[PLUGINS_MAX];
	uint32_t n;
	const struct fork_server *fork_server; /* borrowed */
	struct plugin_question *asking; /* open questions: their processes have neither answered nor ended */
};

/* Opens a file that is safe to load. -EPERM: others could change it; -ELOOP: the path contains links;
 * -EINVAL: not an absolute path of a regular file; or an error of open(2). */
int plugin_file_open(const char *path, int *ret_fd, struct error *err);

/* Has a helper load each file and report the codec's name. Blocks for at most PLUGIN_PATIENCE_S + 2 s per
 * file. A file that cannot be loaded stays in the list with its problem. Paths and fork server are
 * borrowed. */
void plugins_start(struct plugins *p, const struct fork_server *fork_server, char *const *paths, uint32_t n);
void plugins_free(struct plugins *p);
/* Drops all questions: no more callbacks. The loop must run once more. */
void plugins_stop(struct plugins *p);

/* Finds a plug-in by name. -ENOENT: no such name; err lists the names that exist. plugins may be NULL. */
int plugins_find(const struct plugins *p, const char *name, const struct plugin **ret, struct error *err);

/*
 * Asks a codec for its output (type and dimensions) with given options. The codec runs in a process of its
 * own, in a sandbox, within time limits (below). Loop thread only.
 */
struct plugin_question;
struct plugin_answer {
	uint32_t type; /* enum recipe_type */
	struct recipe_codec codec;
};

/* Receives the answer, or NULL with err. The question is freed then. */
typedef void plugin_answered(void *user, const struct plugin_answer *answer, const struct error *err);

struct plugin_asker {
	uv_loop_t *loop;
	uint32_t uid;
	plugin_answered *answered;
	void *user;
};

/* Starts a question. -ENOENT as plugins_find(); -EAGAIN: this user, or all users, have too many questions
 * under way; -ENOMEM, ... The callback is never called before this function returns. */
int plugin_ask(struct plugins *p, const struct recipe_codec *codec, const struct plugin_asker *asker,
	       struct plugin_question **ret, struct error *err);
/* Drops the question: its callback will not be called. The process ends by itself. */
void plugin_forget(struct plugin_question *q);

/* Runs the helper for plugins_start() and plugin_ask(): loads one plug-in and answers. Returns its exit
 * status. */
int plugin_run(int fd);

/* Messages between the daemon and a process that loads a plug-in: fixed structs between copies of one
 * program. The order comes with the file's descriptor. The reply must not be trusted. */

#define PLUGIN_OPEN_CPU_S 5  /* CPU time limit of open() */
#define PLUGIN_PATIENCE_S 30 /* total time limit of the process, in seconds, set by alarm(2) */

struct plugin_order {
	bool opens; /* true: open the codec and report its output; false: report only its name */
	struct recipe_codec codec;
};

struct plugin_reply {
	int32_t status; /* 0 or a negative errno that belongs to `error` */
	uint32_t type;
	struct recipe_codec codec;
	struct error error;
};
