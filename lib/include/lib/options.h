/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Tables of options and verbs, with a row for each. The tables are used to parse a program's command line and
 * to print its --help, the lists of its manual, and its completions. Single-threaded, as getopt_long(3).
 */

#include "lib/error.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define OPTION_ROWS_MAX 96 /* maximum number of rows per verb, or per program without verbs */

struct option_row;

/* Stores an option's value; "yes" if the option takes none. options: the struct in which `at` is an offset.
 * -EINVAL: the error text has the option's name and valid values; -ENOMEM. A positive result ends
 * option_parse(). */
typedef int option_set(void *options, const struct option_row *row, const char *value, struct error *err);

/* When a changed setting of a configuration file takes effect. */
enum option_applies {
	OPTION_START,    /* takes effect at the next start */
	OPTION_RELOAD,   /* takes effect at once */
	OPTION_SESSIONS, /* applies to objects opened from then on */
};

/* Values that completions offer. */
enum option_takes {
	OPTION_TEXT, /* only the words of the row */
	OPTION_FILE,
	OPTION_FOLDER,
	OPTION_USER,
	OPTION_PROCESS,
	OPTION_RECORDING, /* a recording of diesel-analyze */
	OPTION_JOB,       /* a job of dieseld */
};

struct option_row {
	const char *name;
	option_set *set;
	const char *example;  /* example of a valid value */
	size_t at;            /* offset of the field in the struct of options */
	uint64_t least, most; /* limits of a number; for a flag in a file, `least` is its value for "no" */
	const char *says;     /* text for an invalid value */
	const char *words;    /* words of a choice, separated by "|"; a word's index is its value */
	unsigned key;         /* number that the program assigns to the row; 0: none */
	size_t bytes;   /* of the field, where a program compares and copies it; 0: a text, or no field */
	unsigned verbs; /* bits of the verbs that accept the option (struct option_verb); 0: all that have the
			   row */
	int command;    /* true: accepted only on the command line, not in the configuration file */
	char letter;    /* one-letter form; 0: none */
	const char *group; /* heading of the group that begins with this row */
	const char *value; /* name of its value on the command line; NULL: none, and yes or no in a file */
	const char *usual; /* the default; NULL: none, or the help text states it */
	enum option_applies applies;
	enum option_takes takes;
	bool repeats;      /* may be repeated */
	bool needed;       /* shown without brackets in the synopsis */
	const char *help;  /* one line; NULL: an alternative spelling, which no list shows */
	const char *about; /* full description, in which `TEXT` is literal and a newline begins a paragraph;
			      NULL: as help */
};

/* A verb, or the program when called without a verb. */
struct option_verb {
	const char *name;      /* name of the program, if called without a verb */
	const char *arguments; /* arguments after the options */
	const char *group;     /* heading of this and later verbs in the program's help; NULL: as before */
	const char *summary;   /* one line */
	const char *help;      /* text of --help below the options, printed unchanged */
	const char *about;     /* text for the manual, with the markup of a row's `about` */
	const struct option_row *rows;
	size_t n_rows;
	unsigned bit;            /* the verb's bit in the rows' `verbs`; 0: the verb accepts all rows */
	enum option_takes takes; /* each argument */
	const char *words;       /* words that an argument can be, separated by "|" */
	unsigned n_before;       /* arguments in front of a command and its options */
	bool command;            /* the arguments end in a command */
	int (*run)(const struct option_verb *verb, int argc, char **argv);
};

struct option_program {
	const struct option_verb *self; /* behaviour without a verb */
	const struct option_verb *const *verbs;
	size_t n_verbs;
};

#define OPTION_ROWS(table) .rows = (table), .n_rows = sizeof(table) / sizeof((table)[0])

/* Parses the next option. Returns 1 and the option's row, with its value in optarg; 0: no more options, and
 * the arguments begin at argv[optind]; OPTION_HELP: the option was --help or -h, and no row has that name.
 * -EINVAL: no such option, or its value is missing. */
#define OPTION_HELP 2
int option_next(const struct option_verb *verb, int argc, char **argv, const struct option_row **ret,
		struct error *err);
/* Parses all options. Returns 0, OPTION_HELP, or the error of a row's `set` or of option_next(). */
int option_parse(const struct option_verb *verb, int argc, char **argv, void *options, struct error *err);

const struct option_row *option_find(const struct option_row *rows, size_t n, const char *name);
/* Returns true if the edit distance between a name and the written word is below *least, and sets *least to
 * that distance. Begin with OPTION_FAR: more distant names are unrelated. */
#define OPTION_FAR 4
bool option_is_closer(const char *written, const char *name, size_t *least);
/* Finds a verb by its name. NULL: no such verb; err then suggests a similar one, if any. */
const struct option_verb *option_find_verb(const struct option_program *program, const char *name,
					   struct error *err);

/* Setters for rows, by the type of the field: bool, const char *, uint32_t (a number, or the index of a
 * word), uint64_t. For a number, a `most` of 0 stands for INT64_MAX. */
option_set option_set_flag, option_set_string, option_set_u32, option_set_u64, option_set_bytes,
    option_set_duration, option_set_choice;
/* Sets the error "--name value: TEXT", with the row's text. Returns -EINVAL. */
int option_wrong(const struct option_row *row, const char *value, struct error *err);
/* Returns the index of a word in the row, or -EINVAL. */
int option_word_place(const struct option_row *row, const char *value);

/* Prints --help of a verb, or of the program (its `self`). */
void option_print_help(FILE *out, const struct option_program *program, const struct option_verb *verb);
/* Prints "manual", "synopsis" and "verbs" (lists in roff), "pages" (a manual page for each verb), "bash"
 * or "zsh" (completions). -ENOENT: no such form. */
int option_print(FILE *out, const struct option_program *program, const char *form);

/* Prints text, wrapped at a width of 100, for other forms. before: text at the start of each line, or with
 * roff, the macro between paragraphs. */
void option_print_text(FILE *out, const char *before, const char *text, bool roff);
/* Returns "HELP (default: VALUE)" in new memory. NULL: no memory. */
char *option_help_new(const struct option_row *row);
/* Returns the full description, including when a setting takes effect, in new memory. NULL: no memory. */
char *option_about_new(const struct option_row *row);
