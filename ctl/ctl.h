/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the verbs of dieselctl share. A verb gets its own arguments (argv[0] is its name) and returns the
 * exit status: 0 done, 1 failed (one line on standard error says why), 2 wrong use.
 */

#include "lib/error.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum ctl_exit { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2 };

struct ctl_verb {
	const char *name;
	const char *arguments; /* for the usage line */
	const char *summary;   /* one line */
	const char *help;      /* the options, one a line */
	int (*run)(const struct ctl_verb *verb, int argc, char **argv);
};

extern const struct ctl_verb ctl_pack, ctl_ls, ctl_cat, ctl_stat, ctl_verify, ctl_snapshot, ctl_rebuild,
    ctl_log, ctl_diff, ctl_purge, ctl_rm, ctl_mount, ctl_status, ctl_jobs, ctl_why, ctl_set, ctl_replay,
    ctl_fetch, ctl_put, ctl_cluster, ctl_warm, ctl_advise;

/* Options that every verb has: --help prints and ends. */
#define CTL_OPTION_HELP                                                                                      \
	{                                                                                                    \
		"help", no_argument, NULL, 'h'                                                               \
	}

#define CTL_OPTION_VERSION                                                                                   \
	{                                                                                                    \
		"version", required_argument, NULL, 'V'                                                      \
	}
/* The argument of --version. CTL_OK or CTL_USAGE. */
int ctl_version(const struct ctl_verb *verb, uint64_t *ret);

#define CTL_OPTION_TIMEOUT                                                                                   \
	{                                                                                                    \
		"timeout", required_argument, NULL, 'T'                                                      \
	}
#define CTL_TIMEOUT_HELP "      --timeout SECONDS  the most that an answer of dieseld may take (5)\n"
/* The argument of --timeout. CTL_OK or CTL_USAGE. */
int ctl_timeout(const struct ctl_verb *verb, uint32_t *ret);

#define CTL_OPTION_KEEP_SNAPSHOTS                                                                            \
	{                                                                                                    \
		"keep-snapshots", required_argument, NULL, 'K'                                               \
	}
#define CTL_KEEP_SNAPSHOTS_HELP                                                                              \
	"      --keep-snapshots N  of how many versions, the newest, the snapshots stay, so that jobs can "  \
	"go\n"                                                                                               \
	"                          on with them (default 4)\n"
/* The argument of --keep-snapshots. CTL_OK or CTL_USAGE. */
int ctl_keep_snapshots(const struct ctl_verb *verb, uint64_t *ret);

/* The argument of --chunk-size. Returns false if no chunk can have this size. */
bool ctl_chunk_bytes(uint64_t *ret);

/* The argument of --zstd. Returns false if there is no such level. */
bool ctl_zstd_level(int *ret);

/* The command as it was given, without secrets: for a dataset's log. */
const char *ctl_command(void);

/* Returns true if it has handled the option: --help, an unknown option, or one whose argument is missing (the
 * short options must start with ':'). */
bool ctl_common_option(const struct ctl_verb *verb, int option, char **argv);

/* The options of a verb that has --json alone. Returns true; or false with the exit status, if there is
 * nothing left to do. */
bool ctl_json_option(const struct ctl_verb *verb, int argc, char **argv, bool *ret_json, int *ret_status);

/* For verbs that a program of the user's starts, with one end of a socket pair as standard input. Returns
 * true if it is a socket of this type. */
bool ctl_is_started_by_program(int socket_type);
/* Keeps nothing of the program's open, leaves no secret in a core file, and becomes nobody's child. -errno.
 */
int ctl_detach(void);

/* A line, or a part of one, that names may be in: as text_line() writes it, uncut. */
void ctl_print(FILE *stream, const char *text);

/* The same of a text that may name commands: as they can be run, on the dataset that this command is about.
 */
void ctl_print_advice(FILE *stream, const struct ctl_verb *verb, const char *text);

/* "dieselctl VERB: text" and CTL_USAGE. */
int ctl_usage(const struct ctl_verb *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* "dieselctl VERB: text" and CTL_FAILED. */
int ctl_failed(const struct ctl_verb *verb, const struct error *err);
int ctl_warn(const struct ctl_verb *verb, const char *text);

/* Flushes standard output. CTL_OK, or says why not and returns CTL_FAILED: a full disk or a closed pipe is a
 * failure too. */
int ctl_finish(const struct ctl_verb *verb);
