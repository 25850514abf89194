/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* How a value is taken: the functions of the rows of options.c. */

#include <stddef.h>

#include "options.h"

#define OPTIONS_MIN_CACHE_BYTES (UINT64_C(16) << 20) /* a few of the smallest chunks */

struct daemon_option;

/* -EINVAL: the text has the option's name and what its value must be; -ENOMEM. */
typedef int option_set(struct daemon_options *o, const struct daemon_option *row, const char *value,
		       struct error *err);

/* When a setting that was changed applies. */
enum option_applies {
	OPTION_START,    /* when dieseld starts again */
	OPTION_RELOAD,   /* at once */
	OPTION_SESSIONS, /* to what is opened from then on */
};

/* For completions. */
enum option_takes { OPTION_TEXT, OPTION_FILE, OPTION_FOLDER, OPTION_USER };

/* An option, and a setting of the file unless it is of the command line alone. */
struct daemon_option {
	const char *name;
	option_set *set;           /* NULL: --config */
	const char *example;       /* of a value, for whoever has to write another one */
	size_t at;                 /* of the field in struct daemon_options */
	uint64_t least, most;      /* of a number; of a flag: least is its value for "no" */
	const char *says;          /* of a value that will not do */
	const char *words;         /* of a choice, by "|"; their places are the values */
	enum wire_setting_key key; /* `dieselctl set` can set it, too; 0: it cannot */
	bool command;
	/* For people: */
	const char *group; /* that begins with it */
	const char *value; /* what it takes on the command line; NULL: nothing, and in the file yes or no */
	const char *usual; /* the default; NULL: it depends on the machine */
	enum option_applies applies;
	enum option_takes takes;
	const char *help;  /* a line */
	const char *about; /* all there is to say; what is in backquotes is literal */
};

extern const struct daemon_option option_rows[];
extern const size_t n_option_rows;

option_set option_number, option_size, option_flag, option_word, option_flag_of_words, option_text,
    option_path, option_cache, option_tuned, option_tune, option_admin, option_codec, option_metrics,
    option_stage, option_quotas, option_cluster, option_cluster_limit, option_ready_fd;

/* Checks that take more than one setting. */
int option_check_cache(const struct daemon_options *o, struct error *err);
int option_check_cluster(struct daemon_options *o, struct error *err);
