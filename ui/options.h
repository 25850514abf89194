/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Parses the command line of diesel-top. */

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "lib/error.h"

#define OPTIONS_PIDS_MAX 64

enum top_exit {
	TOP_FAILED = 1,
	TOP_USAGE = 2,
};

enum options_source {
	OPTIONS_AUTO,   /* the daemon, if one is running, and this node */
	OPTIONS_DAEMON, /* --daemon */
	OPTIONS_NODE,   /* --node */
	OPTIONS_NODES,  /* --nodes */
};

struct top_options {
	double interval_s; /* -d */
	bool interval_given;
	pid_t pids[OPTIONS_PIDS_MAX]; /* -p */
	size_t n_pids;
	const char *sort, *filter;
	bool no_colour, ascii, tree;
	bool batch, once;
	long n_samples; /* value of -n; 0: print samples until stopped */
	const char *write_path, *read_path;
	const char *begin, *end; /* limits of the replay, as the user wrote them; NULL: none */
	enum options_source source;
	const char *socket; /* dieseld's socket; NULL: the default */
	const char *redis;  /* URL given with --nodes */
	bool unprivileged;
};
