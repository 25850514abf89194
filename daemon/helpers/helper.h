/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The kinds of processes that the daemon consists of: their names, their rights, and what the death of one
 * means. helper.c has the table, from which those in docs/explanation/security.md and
 * docs/reference/processes.md come.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/sandbox.h"

enum helper_kind {
	HELPER_FORK_SERVER, /* sandboxed/fork_server.h */
	HELPER_READER,      /* sandboxed/reader.h */
	HELPER_UNPACKER,    /* sandboxed/work/unpack.h */
	HELPER_OPENER,      /* sandboxed/opener.h */
	HELPER_CLOSER,      /* sandboxed/closer.h */
	HELPER_CODEC,       /* sandboxed/codec.h */
	HELPER_PLUGIN,      /* sandboxed/plugin.h */
	HELPER_STAGER,      /* sandboxed/stager.h */
	HELPER_SENSOR_KEEPER,
	HELPER_SENSOR, /* sense/sensor_watch.c */
	HELPER_ASSIST_KEEPER,
	HELPER_ASSIST, /* assist/assist_message.h */
	HELPER_AHEAD,  /* assist/assist_message.h */
	HELPER_PEER_KEEPER,
	HELPER_PEER, /* cluster/cluster.h */
	HELPER_N_KINDS,
};

enum helper_user {
	HELPER_AS_IS,
	HELPER_NOBODY,          /* where the daemon is root, or it does not work at all */
	HELPER_NOBODY_IF_THERE, /* the same, unless a user namespace has no such user */
};

struct helper_rights {
	enum sandbox_profile profile; /* HELPER_INHERITS: no filter but its parent's */
	uint64_t capabilities;        /* a set of lib/capabilities.h: of these, what the daemon had */
	enum helper_user user;
};

#define HELPER_INHERITS SANDBOX_N_PROFILES

struct helper_row {
	const char *name;            /* at most 7 bytes: "dieseld-NAME" is the process's name */
	const char *title;           /* "dieseld: TITLE" is its command line; NULL: the name */
	struct helper_rights begins; /* before it sees anything of anybody's */
	/* At work. Some are set by sandbox_enter(), with limits; the others by helper_settle(). */
	struct helper_rights works;
	bool ends_with_parent;             /* killed when its parent dies */
	uint32_t rest_min_ms, rest_max_ms; /* before it is started again; 0: its keeper does not */
	const char *user, *may,
	    *end; /* for people: its user, if not the daemon's; what it asks the system for; its death */
};

extern const struct helper_row helper_rows[HELPER_N_KINDS];

static inline const char *helper_title_of(const struct helper_row *row)
{
	return row->title ? row->title : row->name;
}

/* Makes space for titles: to be called first in main(). Without it, processes have names alone. */
void helper_titles(int argc, char **argv);
/* Sets name and title of this process. uid: whose work it does; HELPER_NOBODYS: that is not in the title. */
void helper_title(enum helper_kind kind, uint32_t uid);
#define HELPER_NOBODYS UINT32_MAX

/* Makes this process, just forked by `parent`, a helper: signals, title, and the rights that it begins with.
 * Ends the process where the rights cannot be had. */
void helper_begin(enum helper_kind kind, pid_t parent);
/* Gives up what the row has no more at work. -errno: capabilities could not be given up, or the user not be
 * changed. */
int helper_settle(enum helper_kind kind);

/* Prints a table of docs/explanation/security.md ("rights") or docs/reference/processes.md ("ends"). -EINVAL:
 * there is no such. */
int helper_print(const char *what);
