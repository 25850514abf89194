/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The kinds of processes that the daemon consists of: their names, their rights, and the effect of their
 * death. helper.c has the table. The tables in docs/explanation/security.md and docs/reference/processes.md
 * are generated from it.
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
	HELPER_NOBODY, /* changes to the user nobody if the daemon is root; failing to change is an error */
	HELPER_NOBODY_IF_THERE, /* as HELPER_NOBODY, but keeps its user if the user namespace has no nobody */
};

struct helper_rights {
	enum sandbox_profile profile; /* HELPER_INHERITS: only its parent's filter */
	uint64_t capabilities;        /* set of lib/capabilities.h: keeps those that the daemon had */
	enum helper_user user;
};

#define HELPER_INHERITS SANDBOX_N_PROFILES

struct helper_row {
	const char *name;            /* at most 7 bytes; the process's name is "dieseld-NAME" */
	const char *title;           /* the command line is "dieseld: TITLE"; NULL: the name */
	struct helper_rights begins; /* rights at its start, before it sees any user's data */
	/* Rights at work. sandbox_enter() sets some of them, with limits; helper_settle() sets the others. */
	struct helper_rights works;
	bool ends_with_parent;             /* killed when its parent dies */
	uint32_t rest_min_ms, rest_max_ms; /* delay before it is started again; 0: no keeper restarts it */
	const char *user, *may, *end; /* texts for documents: its user, if not the daemon's; its permitted
					 operations; the effect of its death */
};

extern const struct helper_row helper_rows[HELPER_N_KINDS];

static inline const char *helper_title_of(const struct helper_row *row)
{
	return row->title ? row->title : row->name;
}

/* Makes space for titles; must be called first in main(). Without it, processes have only names. */
void helper_titles(int argc, char **argv);
/* Sets name and title of this process. uid: user for whom it works; HELPER_NOBODYS: no user in the title. */
void helper_title(enum helper_kind kind, uint32_t uid);
#define HELPER_NOBODYS UINT32_MAX

/* Makes this process, just forked by `parent`, a helper: sets signals, title, and initial rights. Exits if
 * the rights cannot be set. */
void helper_begin(enum helper_kind kind, pid_t parent);
/* Drops the initial rights that the row does not list for work. -errno: could not drop capabilities or change
 * the user. */
int helper_settle(enum helper_kind kind);
