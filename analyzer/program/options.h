/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The command line of diesel-analyze. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "analyzer/predictions.h"
#include "analyzer/record/record.h"
#include "analyzer/truth/truth.h"
#include "plan.h"

enum verb {
	VERB_RUN, /* plain `diesel-analyze -- CMD`: record and report */
	VERB_RECORD,
	VERB_REPORT,
	VERB_CHECK,
	VERB_DUMP,
	VERB_DIFF,
	VERB_TRUTH,
	VERB_WHAT_IF,
	VERB_PLAN,
	VERB_COUNT,
};

#define OPTIONS_RECORDINGS_MAX 2

/* Exit codes of the program itself; `record -- CMD` and `-- CMD` exit with the command's code. */
enum exit_code {
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_INSUFFICIENT = 3, /* report, diff, what-if: the recording is not sufficient to judge the job */
};

#define OPTIONS_PIDS_MAX 64 /* enough for all ranks of a node */

struct options {
	enum verb verb;
	const char *output;                             /* -o; NULL: not given */
	const char *format;                             /* report */
	const char *recordings[OPTIONS_RECORDINGS_MAX]; /* their number depends on the verb */
	size_t n_recordings;
	const char *btf_path;            /* NULL: the kernel's own */
	char **command;                  /* after --; NULL with -p, --cgroup */
	pid_t tgids[OPTIONS_PIDS_MAX];   /* -p */
	uint32_t trainer_tid;            /* --trainer; 0: found automatically */
	double checkpoint_overhead_max;  /* --checkpoint-overhead; 0: not given */
	bool steps;                      /* report */
	bool json;                       /* diff, check, truth */
	struct record_options record;    /* the options that no other verb has, and n_tgids */
	struct truth_options truth;      /* the options that no other verb has */
	struct what_if_question what_if; /* what-if */
	bool what_if_asked;
	struct plan_arguments plan; /* plan */
	bool verbose;
};

/* Returns 0 if the caller is to run the verb. > 0: the caller must exit with the result minus 1 (0 after
 * --help, 2 after a usage error, which was printed). */
int options_parse(int argc, char **argv, struct options *ret_options);
/* Prints a form of option_print() on standard output, for the build. Returns the exit status. */
int options_print(const char *form);
