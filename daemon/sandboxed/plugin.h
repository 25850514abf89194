/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Plug-ins: codecs that the operator names as shared objects (diesel/diesel_codec.h). Only the daemon's user
 * and root may be able to change such a file, or what is in its place. The daemon itself never loads one: it
 * opens the file once, and helper processes (fork_server.h) get the descriptor. So what is loaded stays the
 * same as long as the daemon lives, whatever becomes of the path.
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
#define PLUGIN_MAX_ASKING     32 /* processes that say what comes out of a codec, at one time... */
#define PLUGIN_MAX_ASKING_UID 4  /* ... and of one user who is no administrator (admin.h) */

struct plugin {
	char name[RECIPE_NAME_BYTES]; /* "": it could not be loaded */
	const char *path;             /* borrowed */
	int fd;
	struct error problem; /* why it could not be loaded */
};

struct plugins {
	struct plugin all[PLUGINS_MAX];
	uint32_t n;
	const struct fork_server *fork_server; /* borrowed */
	struct plugin_question *asking;        /* until their processes answer or end */
};

/* Opens a file that may be loaded. -EPERM: others could change it; -ELOOP: there are links in the path;
 * -EINVAL: it is no absolute path of a regular file; or what open(2) says. */
int plugin_file_open(const char *path, int *ret_fd, struct error *err);

/* Has a helper load each file and say its name: waits for that, at most some seconds each. One that cannot be
 * loaded stays in the list with its problem. Paths and fork server are borrowed. */
void plugins_start(struct plugins *p, const struct fork_server *fork_server, char *const *paths, uint32_t n);
void plugins_free(struct plugins *p);
/* Drops all questions: no more callbacks. The loop must run once more. */
void plugins_stop(struct plugins *p);

/* -ENOENT: there is none of this name; err says which there are. plugins may be NULL. */
int plugins_find(const struct plugins *p, const char *name, const struct plugin **ret, struct error *err);

/*
 * Asks a codec what comes out of it with some options: in a process of its own, in a sandbox, that has some
 * seconds. Loop thread only.
 */
struct plugin_question;
struct plugin_answer {
	uint32_t type; /* enum recipe_type */
	struct recipe_codec codec;
};

/* answer: NULL, with err, if there is none. The question is gone then. */
typedef void plugin_answered(void *user, const struct plugin_answer *answer, const struct error *err);

struct plugin_asker {
	uv_loop_t *loop;
	uint32_t uid;
	plugin_answered *answered;
	void *user;
};

/* -ENOENT as plugins_find(); -EAGAIN: this user, or all, ask too much at one time; -ENOMEM, ... The callback
 * does not come from within this call. */
int plugin_ask(struct plugins *p, const struct recipe_codec *codec, const struct plugin_asker *asker,
	       struct plugin_question **ret, struct error *err);
/* No callback any more. The process ends by itself. */
void plugin_forget(struct plugin_question *q);

/* The helper of both: loads one plug-in and answers. Returns its exit status. */
int plugin_run(int fd);

/* What the daemon asks a process that loads a plug-in, with the file's descriptor, and what that answers:
 * fixed structs between copies of one program. The answer is not to be trusted. */

#define PLUGIN_OPEN_CPU_S 5  /* of CPU time, for open() */
#define PLUGIN_PATIENCE_S 30 /* then the process is ended, whatever it does */

struct plugin_order {
	bool opens; /* what comes out with the codec's options; else its name alone */
	struct recipe_codec codec;
};

struct plugin_reply {
	int32_t status; /* 0 or a negative errno, of error */
	uint32_t type;
	struct recipe_codec codec;
	struct error error;
};
