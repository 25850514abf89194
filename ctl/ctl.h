/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Shared by the verbs of dieselctl. A verb gets its own arguments (argv[0] is its name) and returns the exit
 * status: 0 success, 1 failure (with the reason in one line on standard error), 2 usage error.
 */

#include "lib/options.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum ctl_exit { CTL_OK = 0, CTL_FAILED = 1, CTL_USAGE = 2 };

extern const struct option_verb ctl_pack, ctl_index, ctl_export, ctl_ls, ctl_cat, ctl_stat, ctl_verify,
    ctl_snapshot, ctl_rebuild, ctl_log, ctl_diff, ctl_purge, ctl_rm, ctl_mount, ctl_status, ctl_jobs, ctl_why,
    ctl_set, ctl_replay, ctl_fetch, ctl_put, ctl_objects, ctl_cluster, ctl_warm, ctl_advise, ctl_copy,
    ctl_move, ctl_delete;

/* Parses a verb's options by its rows. Returns true: the arguments begin at argv[optind]. Returns false: the
 * verb must return *ret_status. */
bool ctl_options(const struct option_verb *verb, int argc, char **argv, void *options, int *ret_status);
/* Prints the help text and returns CTL_OK. */
int ctl_help(const struct option_verb *verb);

/* Stores the URL of a Redis server in a const char *. Messages never show the URL, because it may contain a
 * password. */
option_set ctl_set_meta;
/* Checks the only valid word, sha256, and sets a bool. */
option_set ctl_set_digest;

/* Option rows that verbs share. The macros' arguments are further fields of the row. */
#define CTL_ROW_VERSION(...)                                                                                 \
	{                                                                                                    \
		"version", option_set_u64,                                                                   \
		    .least = 1, .value = "N",                                                                \
		    .says = "must be a version number from 1; dieselctl log lists them", __VA_ARGS__         \
	}
#define CTL_ROW_TIMEOUT(...)                                                                                 \
	{                                                                                                    \
		"timeout", option_set_u32, .least = 1, .most = 3600, .value = "SECONDS", .usual = "5",       \
					   .says = "must be whole seconds from 1 to 3600",                   \
					   .help = "time to wait for dieseld's answer", __VA_ARGS__          \
	}
#define CTL_ROW_SOCKET(...)                                                                                  \
	{                                                                                                    \
		"socket", option_set_string,                                                                 \
		    .letter = 's', .value = "PATH", .takes = OPTION_FILE,                                    \
		    .help = "socket of dieseld (default $DIESEL_SOCKET, else the node's, else your own)",    \
		    __VA_ARGS__                                                                              \
	}
#define CTL_ROW_KEEP_SNAPSHOTS(...)                                                                          \
	{                                                                                                    \
		"keep-snapshots", option_set_u64,                                                            \
		    .least = 1, .value = "N", .usual = "4", .says = "must be a number of versions from 1",   \
		    .help =                                                                                  \
			"number of newest versions whose snapshots are kept, so that jobs can open them",    \
		    __VA_ARGS__                                                                              \
	}
#define CTL_ROW_WAIT(...)                                                                                    \
	{                                                                                                    \
		"wait", option_set_duration,                                                                 \
		    .value = "SECONDS", .usual = "0", .says = "must be a time such as 60 or 5m",             \
		    .help = "time to wait for another writer of the dataset, such as 60 or 5m", __VA_ARGS__  \
	}
#define CTL_ROW_ZSTD(...)                                                                                    \
	{                                                                                                    \
		"zstd", option_set_u32,                                                                      \
		    .least = 1, .most = 19, .value = "LEVEL", .says = "must be a level from 1 to 19",        \
		    .help = "compression level, 1 (fast) to 19 (small); used where it saves 1/16 or more",   \
		    __VA_ARGS__                                                                              \
	}
#define CTL_ROW_META(...)                                                                                    \
	{                                                                                                    \
		"meta", ctl_set_meta, .value = "URL", __VA_ARGS__                                            \
	}
#define CTL_ROW_DIGEST(...)                                                                                  \
	{                                                                                                    \
		"digest", ctl_set_digest, .value = "NAME", .words = "sha256", .says = "it must be sha256",   \
					  __VA_ARGS__                                                        \
	}

/* Returns the command line without secrets, for a dataset's log. */
const char *ctl_command(void);

/* For verbs that a user's program starts with one end of a socket pair as standard input. Returns true if
 * standard input is a socket of this type. */
bool ctl_is_started_by_program(int socket_type);
/* Closes all descriptors above standard error, and disables core files, because memory may hold secrets. */
void ctl_keep_secrets(void);
/* Calls ctl_keep_secrets(), and continues in a forked child while the parent exits. -errno. */
int ctl_detach(void);

/* Prints a line, or a part of one, that may contain names, as text_line() does, but without cutting it. */
void ctl_print(FILE *stream, const char *text);

/* Like ctl_print(), for text that may contain commands: prints them as commands that run on the verb's
 * dataset. */
void ctl_print_advice(FILE *stream, const struct option_verb *verb, const char *text);

/* Prints a JSON string with its quotes. Writes bytes that are not UTF-8 as lib/utf8.h describes. Python's
 * os.fsdecode() makes lone surrogates of them, which most other parsers refuse. */
void ctl_json_string(const char *text, size_t length);

/* Prints "dieselctl VERB: text" and returns CTL_USAGE. */
int ctl_usage(const struct option_verb *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Both print "dieselctl VERB: text" and return CTL_FAILED. */
int ctl_failed(const struct option_verb *verb, const struct error *err);
int ctl_warn(const struct option_verb *verb, const char *text);

/* Make SIGINT, SIGTERM and SIGHUP request a stop from now on, for long work. A second signal kills the
 * process. The context, which callbacks have, is not used. */
void ctl_stop_on_signals(void);
bool ctl_is_stopped(void *context);

/* Flushes standard output. Returns CTL_OK, or prints the error and returns CTL_FAILED: a full disk or a
 * closed pipe is a failure too. */
int ctl_finish(const struct option_verb *verb);

/* Rewrites a file for `pack --jpeg-restarts`, and again for `verify --repair`: a pack_rewriter
 * (dataset/pack.h). Returns a code of enum jpeg_restarts, or -errno. */
int ctl_add_restarts(const void *data, size_t bytes, void **ret, size_t *ret_bytes, struct error *ret_note);

/* Datasets of other formats, which Python reads and writes (diesel_loader.importing), because their own
 * packages are in Python. Returns true if an argument is FORMAT:PATH with the name of such a format. */
bool ctl_is_foreign(int argc, char **argv);
