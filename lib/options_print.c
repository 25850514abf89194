/* SPDX-License-Identifier: Apache-2.0 */
/* Prints options and verbs for people and shells. */
#include "lib/options.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

#define HELP_COLUMN 26
#define HELP_WIDTH  79
#define TEXT_WIDTH  100
#define USAGE_MOST  4 /* maximum number of options that a synopsis lists one by one */

/* Shell code that completes a value: for bash, and for zsh. */
static const struct {
	const char *bash, *zsh;
} takes[] = {
    [OPTION_FILE] = {"$(compgen -f -- \"$current\")", "_files"},
    [OPTION_FOLDER] = {"$(compgen -d -- \"$current\")", "_files -/"},
    [OPTION_USER] = {"$(compgen -u -- \"$current\")", "_users"},
    [OPTION_PROCESS] = {"$(compgen -W \"$(cd /proc && printf '%s ' [0-9]*)\" -- \"$current\")", "_pids"},
    [OPTION_RECORDING] = {"$(compgen -f -X '!*.db' -- \"$current\") $(compgen -d -- \"$current\")",
			  "_files -g \"*.db(-.)\""},
    [OPTION_JOB] = {"$(compgen -W \"all $(_diesel_jobs)\" -- \"$current\")", "{compadd all $(_diesel_jobs)}"},
};

static const char list_jobs[] = "_diesel_jobs()\n{\n\tdieselctl jobs --json 2>/dev/null | sed -n "
				"'s/^ *\"id\": \\([0-9]*\\),*$/\\1/p'\n}\n";

char *option_help_new(const struct option_row *row)
{
	char *text = NULL;

	return asprintf(&text, row->usual && row->value ? "%s (default: %s)" : "%s", row->help, row->usual) <
		       0
		   ? NULL
		   : text;
}

static void put_roff(FILE *out, char letter, bool *bold)
{
	if (letter == '`')
		fputs((*bold = !*bold) ? "\\fB" : "\\fR", out);
	else if (letter == '-' || letter == '\\')
		fputs(letter == '-' ? "\\-" : "\\e", out);
	else
		fputc(letter, out);
}

static void put_roff_text(FILE *out, const char *text)
{
	for (bool bold = false; *text; text++)
		put_roff(out, *text, &bold);
}

/* Prints the words of a line, and begins a new line with `before` if a word would exceed the width. at:
 * the column. */
static void print_words(FILE *out, const char *before, size_t at, size_t width, const char *text, bool roff)
{
	bool bold = false;
	size_t n;

	for (const char *word = text; *word && *word != '\n'; word += n + strspn(word + n, " ")) {
		n = strcspn(word, " \n");
		if (word > text && at + 1 + n > width) {
			fprintf(out, "\n%s", before);
			at = strlen(before);
		} else if (word > text) {
			fputc(' ', out);
			at++;
		}
		if (roff && (*word == '.' || *word == '\''))
			fputs("\\&", out);
		for (size_t i = 0; i < n; i++)
			if (roff)
				put_roff(out, word[i], &bold);
			else
				fputc(word[i], out);
		at += n;
	}
	fputc('\n', out);
}

void option_print_text(FILE *out, const char *before, const char *text, bool roff)
{
	for (;; text++) {
		print_words(out, roff ? "" : before, roff ? 0 : strlen(before), TEXT_WIDTH, text, roff);
		text += strcspn(text, "\n");
		if (!*text)
			return;
		fprintf(out, "%s%s", before, roff ? "\n" : "");
	}
}

/* Returns true if the verb accepts the option and lists it. A row without help is an alternative spelling. */
static bool is_of(const struct option_verb *verb, const struct option_row *row)
{
	return row->help && (!verb->bit || !row->verbs || row->verbs & verb->bit);
}

/* Returns true if the program and its verbs share one table of options. */
static bool is_shared(const struct option_program *program)
{
	return program->n_verbs && program->verbs[0]->rows == program->self->rows;
}

static const char *value_of(const struct option_row *row)
{
	return !row->value                                                        ? ""
	       : row->words && strchr(row->words, '|') && strlen(row->words) < 25 ? row->words
										  : row->value;
}

/* ---- --help -------------------------------------------------------------------------------------------- */

static void print_row(FILE *out, const struct option_row *row, bool letters)
{
	_cleanup_(freep) char *text = option_help_new(row);
	char letter[] = {'-', row->letter, ',', ' ', '\0'};
	int n = fprintf(out, "  %s--%s%s%s",
			row->letter ? letter
			: letters   ? "    "
				    : "",
			row->name, row->value ? " " : "", value_of(row));

	if (n + 2 > HELP_COLUMN)
		n = fprintf(out, "\n") - 1;
	fprintf(out, "%*s", HELP_COLUMN - n, "");
	print_words(out, "                          ", HELP_COLUMN, HELP_WIDTH, text ? text : row->help,
		    false);
}

/* Prints the options for --help. whole: those of all verbs. */
static void print_rows(FILE *out, const struct option_verb *verb, bool whole)
{
	bool letters = false, begun = false;

	for (size_t i = 0; i < verb->n_rows; i++)
		letters |= verb->rows[i].letter && (whole || is_of(verb, &verb->rows[i]));
	for (size_t i = 0; i < verb->n_rows; i++) {
		const struct option_row *row = &verb->rows[i];

		if (!row->help || (!whole && !is_of(verb, row)))
			continue;
		if (row->group && whole)
			fprintf(out, "\n%s:\n", row->group);
		else if (!begun)
			fputc('\n', out);
		begun = true;
		print_row(out, row, letters);
	}
}

/* Returns false for an option that all verbs of a table take: a synopsis leaves these out. */
static bool is_in_synopsis(const struct option_verb *verb, const struct option_row *row)
{
	return is_of(verb, row) && (row->verbs || !verb->bit);
}

/* Prints the arguments of a synopsis: literal text in bold, and placeholders in italics. */
static void put_roff_arguments(FILE *out, const char *text)
{
	char font = 'R';

	fputc(' ', out);
	for (const char *c = text; *c; c++) {
		char next = strchr(" ()[]|.", *c)        ? 'R'
			    : islower((unsigned char)*c) ? 'B'
			    : isupper((unsigned char)*c) ? 'I'
			    : *c == '-' && font == 'R'   ? 'B'
							 : font;

		if (next != font)
			fprintf(out, "\\f%c", next);
		font = next;
		put_roff_text(out, (char[]){*c, '\0'});
	}
	fputs(font == 'R' ? "" : "\\fR", out);
}

/* Prints the options of a synopsis. */
static void print_synopsis(FILE *out, const struct option_verb *verb, bool roff)
{
	size_t n = 0;

	for (size_t i = 0; i < verb->n_rows; i++)
		n += is_in_synopsis(verb, &verb->rows[i]);
	if (n > USAGE_MOST)
		fputs(roff ? " \\fR[\\fIOPTION\\fR ...]" : " [OPTION ...]", out);
	for (size_t i = 0; i < verb->n_rows; i++) {
		const struct option_row *row = &verb->rows[i];

		if (!is_in_synopsis(verb, row) || (n > USAGE_MOST && !row->needed))
			continue;
		fputs(row->needed ? (roff ? " \\fB" : " ") : (roff ? " \\fR[\\fB" : " ["), out);
		if (!roff) {
			fprintf(out, "--%s%s%s", row->name, row->value ? " " : "", value_of(row));
		} else {
			fputs("\\-\\-", out);
			put_roff_text(out, row->name);
			fputs(row->value ? " \\fI" : "", out);
			put_roff_text(out, value_of(row));
			fputs("\\fR", out);
		}
		fputs(row->needed ? "" : "]", out);
		if (row->repeats)
			fputs(" ...", out);
	}
	if (verb->arguments && roff)
		put_roff_arguments(out, verb->arguments);
	else if (verb->arguments)
		fprintf(out, " %s", verb->arguments);
}

static void print_verb(FILE *out, const struct option_verb *verb, int width, bool is_first)
{
	if (verb->group)
		fprintf(out, "\n%s:\n", verb->group);
	else if (is_first)
		fputc('\n', out);
	fprintf(out, "  %-*s  %s\n", width, verb->name, verb->summary);
}

void option_print_help(FILE *out, const struct option_program *program, const struct option_verb *verb)
{
	const struct option_verb *self = program->self;
	bool whole = verb == self;
	int width = 0;

	fprintf(out, "usage: %s%s%s", self->name, whole ? "" : " ", whole ? "" : verb->name);
	if (whole && program->n_verbs && !is_shared(program))
		fprintf(out, " %s", self->arguments);
	else
		print_synopsis(out, verb, false);
	for (size_t i = 0; whole && is_shared(program) && i < program->n_verbs; i++) {
		fprintf(out, "\n       %s %s", self->name, program->verbs[i]->name);
		print_synopsis(out, program->verbs[i], false);
	}
	fprintf(out, "\n\n%s%s\n", verb->summary, strchr(verb->summary, '\n') ? "" : ".");
	for (size_t i = 0; whole && i < program->n_verbs; i++)
		width = (int)strlen(program->verbs[i]->name) > width ? (int)strlen(program->verbs[i]->name)
								     : width;
	for (size_t i = 0; whole && i < program->n_verbs; i++)
		print_verb(out, program->verbs[i], width, i == 0);
	print_rows(out, verb, whole);
	if (verb->help)
		fprintf(out, "\n%s", verb->help);
}

/* ---- the manual ---------------------------------------------------------------------------------------- */

char *option_about_new(const struct option_row *row)
{
	static const char *const when[] = {
	    [OPTION_START] = " The option takes effect at the next start.",
	    [OPTION_RELOAD] = " A reload applies it.",
	    [OPTION_SESSIONS] =
		" After a reload, the option applies to datasets and sessions that are opened later.",
	};
	_cleanup_(freep) char *help = option_help_new(row);
	char *text = NULL;

	/* An option with an example is also a setting of the configuration file. A line of help becomes a
	 * sentence. */
	if (asprintf(&text, "%s%s%s", row->about ? row->about : help, row->about ? "" : ".",
		     row->example ? when[row->applies] : "") < 0)
		return NULL;
	*text = (char)toupper((unsigned char)*text);
	return text;
}

static void print_manual_row(FILE *out, const struct option_row *row)
{
	_cleanup_(freep) char *text = option_about_new(row);

	fputs(".TP\n", out);
	if (row->letter)
		fprintf(out, "\\fB\\-%c\\fR, ", row->letter);
	fputs("\\fB\\-\\-", out);
	put_roff_text(out, row->name);
	fputs("\\fR", out);
	if (row->value) {
		fputs(" \\fI", out);
		put_roff_text(out, row->value);
		fputs("\\fR", out);
	}
	fputc('\n', out);
	option_print_text(out, ".IP", text ? text : row->help, true);
}

static void print_manual(FILE *out, const struct option_program *program)
{
	const struct option_verb *self = program->self;

	for (size_t i = 0; i < self->n_rows; i++) {
		if (self->rows[i].group)
			fprintf(out, ".SS %s\n", self->rows[i].group);
		if (self->rows[i].help)
			print_manual_row(out, &self->rows[i]);
	}
}

static void print_manual_synopsis(FILE *out, const struct option_program *program)
{
	const struct option_verb *self = program->self;
	size_t n = is_shared(program) ? program->n_verbs : 0;

	for (size_t i = 0; i <= n; i++) {
		fputs(i ? ".br\n.B " : ".B ", out);
		put_roff_text(out, self->name);
		fprintf(out, "%s%s", i ? " " : "", i ? program->verbs[i - 1]->name : "");
		print_synopsis(out, i ? program->verbs[i - 1] : self, true);
		fputc('\n', out);
	}
}

static void print_manual_verbs(FILE *out, const struct option_program *program)
{
	for (size_t i = 0; i < program->n_verbs; i++) {
		const struct option_verb *verb = program->verbs[i];

		fputs(".TP\n.B ", out);
		put_roff_text(out, verb->name);
		print_synopsis(out, verb, true);
		fputc('\n', out);
		option_print_text(out, ".IP", verb->about ? verb->about : verb->summary, true);
		if (is_shared(program) || verb->n_rows == 0)
			continue;
		fputs(".RS\n", out);
		for (size_t k = 0; k < verb->n_rows; k++)
			print_manual_row(out, &verb->rows[k]);
		fputs(".RE\n", out);
	}
}

static void put_upper(FILE *out, const char *text)
{
	for (; *text; text++)
		fputc(toupper((unsigned char)*text), out);
}

/* Prints a manual page for each verb. Each begins with a line `.\" page: NAME`. */
static void print_manual_pages(FILE *out, const struct option_program *program)
{
	const char *name = program->self->name;

	for (size_t i = 0; i < program->n_verbs; i++) {
		const struct option_verb *verb = program->verbs[i];

		fprintf(out, ".\\\" page: %s-%s\n.\\\" SPDX-License-Identifier: Apache-2.0\n.TH ", name,
			verb->name);
		put_upper(out, name);
		fputs("\\-", out);
		put_upper(out, verb->name);
		fputs(" 1 2026-11-21 DIESEL \"User Commands\"\n.SH NAME\n", out);
		put_roff_text(out, name);
		fputs("\\-", out);
		put_roff_text(out, verb->name);
		fprintf(out, " \\- %c%s\n", tolower((unsigned char)*verb->summary), verb->summary + 1);
		fprintf(out, ".SH SYNOPSIS\n.B %s %s", name, verb->name);
		print_synopsis(out, verb, true);
		fputs("\n.SH DESCRIPTION\n", out);
		option_print_text(out, ".PP", verb->about ? verb->about : verb->summary, true);
		fputs(".SH OPTIONS\n", out);
		for (size_t k = 0; k < verb->n_rows; k++)
			if (is_of(verb, &verb->rows[k]))
				print_manual_row(out, &verb->rows[k]);
		fprintf(out, ".SH SEE ALSO\n.BR %s (1)\n", name);
	}
}

/* ---- completions --------------------------------------------------------------------------------------- */

static bool takes_job(const struct option_program *program)
{
	for (size_t i = 0; i < program->n_verbs; i++)
		if (program->verbs[i]->takes == OPTION_JOB)
			return true;
	return false;
}

static void print_list(FILE *out, const char *words)
{
	for (; *words; words++)
		fputc(*words == '|' ? ' ' : *words, out);
}

static bool is_assigned(const char *words)
{
	return words && words[strlen(words) - 1] == '=';
}

static void print_bash_reply(FILE *out, const char *words, enum option_takes what)
{
	if (is_assigned(words))
		fputs("compopt -o nospace +o filenames 2>/dev/null; ", out);
	fputs("COMPREPLY=(", out);
	if (words) {
		fputs("$(compgen -W '", out);
		print_list(out, words);
		fputs("' -- \"$current\") ", out);
	}
	fprintf(out, "%s); return ;;\n", takes[what].bash ? takes[what].bash : "");
}

static void print_bash_verb(FILE *out, const struct option_program *program, const struct option_verb *verb)
{
	const char *name = verb == program->self ? "" : verb->name;

	for (size_t i = 0; i < verb->n_rows; i++) {
		const struct option_row *row = &verb->rows[i];

		if (!row->value || !is_of(verb, row))
			continue;
		fprintf(out, "\t%s,*,--%s", name, row->name);
		if (row->letter)
			fprintf(out, " | %s,*,-%c", name, row->letter);
		fputs(") ", out);
		print_bash_reply(out, row->words, row->takes);
	}
	fprintf(out, "\t%s,-*) COMPREPLY=($(compgen -W '", name);
	for (size_t i = 0; i < verb->n_rows; i++)
		if (is_of(verb, &verb->rows[i]))
			fprintf(out, "--%s ", verb->rows[i].name);
	fprintf(out, "%s' -- \"$current\")) ;;\n\t%s,*) ",
		option_find(verb->rows, verb->n_rows, "help") ? "" : "--help", name);
	if (verb != program->self || !program->n_verbs) {
		print_bash_reply(out, verb->words, verb->takes);
		return;
	}
	fputs("COMPREPLY=($(compgen -W '", out);
	for (size_t i = 0; i < program->n_verbs; i++)
		fprintf(out, "%s ", program->verbs[i]->name);
	fputs("' -- \"$current\")) ;;\n", out);
}

/* Prints the name of the shell function that completes a program. */
static void print_function(FILE *out, const char *name)
{
	for (fputc('_', out); *name; name++)
		fputc(*name == '-' ? '_' : *name, out);
}

static void print_bash(FILE *out, const struct option_program *program)
{
	const char *name = program->self->name;

	fprintf(out,
		"# SPDX-License-Identifier: Apache-2.0\n"
		"# bash completion of %s, made from its table of options\n%s",
		name, takes_job(program) ? list_jobs : "");
	print_function(out, name);
	fputs("()\n{\n"
	      "\tlocal current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} verb= i\n"
	      "\tCOMPREPLY=()\n"
	      "\tfor ((i = 1; i < COMP_CWORD; i++)); do\n"
	      "\t\tcase $verb,${COMP_WORDS[i]} in\n"
	      "\t\t*,--)\n" /* after `--`: completes the user's command by that command's own completions */
	      "\t\t\t_command_offset $((i + 1)) 2>/dev/null || COMPREPLY=($(compgen -c -f -- \"$current\"))\n"
	      "\t\t\treturn ;;\n",
	      out);
	for (size_t i = 0; i < program->n_verbs; i++)
		fprintf(out, "%s,%s", i ? " | " : "\t\t", program->verbs[i]->name);
	fputs(program->n_verbs ? ") verb=${COMP_WORDS[i]} ;;\n" : "", out);
	fputs("\t\tesac\n\tdone\n\tcase $verb,$current,$previous in\n", out);
	for (size_t i = 0; i < program->n_verbs; i++)
		print_bash_verb(out, program, program->verbs[i]);
	print_bash_verb(out, program, program->self);
	fputs("\tesac\n}\ncomplete -o filenames -F ", out);
	print_function(out, name);
	fprintf(out, " %s\n", name);
}

/* Prints text for zsh's _arguments in single quotes, to stand within brackets or between colons. */
static void print_zsh_text(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\'", out);
		else if (strchr("[]:\\", *text))
			fputc('\\', out);
		fputc(*text, out);
	}
}

static void print_zsh_values(FILE *out, const char *words, enum option_takes what)
{
	const char *places = takes[what].zsh;

	if (is_assigned(words))
		fputs("{compadd -S \"\" -- ", out);
	else if (words && places)
		fputs("_alternative \"words\\:word\\:(", out);
	else if (words)
		fputc('(', out);
	if (words)
		print_list(out, words);
	if (is_assigned(words))
		fprintf(out, "%s}", what == OPTION_JOB ? "; compadd all $(_diesel_jobs)" : "");
	else if (words && places)
		fprintf(out, ")\" \"places\\:place\\:%s\"", places);
	else
		fputs(words ? ")" : places ? places : " ", out);
}

static void print_zsh_row(FILE *out, const struct option_row *row)
{
	fputs(" \\\n\t\t'", out);
	if (row->repeats)
		fputc('*', out);
	else if (row->letter)
		fprintf(out, "(-%c --%s)", row->letter, row->name);
	if (row->letter)
		fprintf(out, "'{-%c,--%s}'", row->letter, row->name);
	else
		fprintf(out, "--%s", row->name);
	fputc('[', out);
	print_zsh_text(out, row->help);
	fputc(']', out);
	if (row->value) {
		fputc(':', out);
		print_zsh_text(out, row->value);
		fputc(':', out);
		print_zsh_values(out, row->words, row->takes);
	}
	fputc('\'', out);
}

static void print_zsh_verb(FILE *out, const struct option_verb *verb)
{
	fputs("_arguments", out);
	for (size_t i = 0; i < verb->n_rows; i++)
		if (is_of(verb, &verb->rows[i]))
			print_zsh_row(out, &verb->rows[i]);
	if (!option_find(verb->rows, verb->n_rows, "help"))
		fputs(" \\\n\t\t'--help[print help]'", out);
	for (unsigned i = 0; i < verb->n_before; i++) {
		fprintf(out, " \\\n\t\t'%u:argument:", i + 1);
		print_zsh_values(out, verb->words, verb->takes);
		fputc('\'', out);
	}
	if (verb->command) {
		fputs(" \\\n\t\t'*::command:_normal'", out);
	} else if (verb->words || verb->takes != OPTION_TEXT) {
		fputs(" \\\n\t\t'*:argument:", out);
		print_zsh_values(out, verb->words, verb->takes);
		fputc('\'', out);
	}
	fputc('\n', out);
}

/* Prints the zsh completion. It removes the verb from the words, because _arguments would take the verb for
 * its first argument. */
static void print_zsh(FILE *out, const struct option_program *program)
{
	fprintf(out,
		"#compdef %s\n"
		"# SPDX-License-Identifier: Apache-2.0\n"
		"# zsh completion of %s, made from its table of options\n%s",
		program->self->name, program->self->name, takes_job(program) ? list_jobs : "");
	if (program->n_verbs) {
		fputs("local -a verbs=(\n", out);
		for (size_t i = 0; i < program->n_verbs; i++) {
			fprintf(out, "\t'%s:", program->verbs[i]->name);
			print_zsh_text(out, program->verbs[i]->summary);
			fputs("'\n", out);
		}
		fputs(")\nif (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
		      "\t_describe verb verbs\n\treturn\nfi\ncase $words[2] in\n",
		      out);
	}
	for (size_t i = 0; i < program->n_verbs; i++) {
		fprintf(out, "%s)\n\tshift words\n\t(( CURRENT-- ))\n\t", program->verbs[i]->name);
		print_zsh_verb(out, program->verbs[i]);
		fputs("\t;;\n", out);
	}
	fputs(program->n_verbs ? "*)\n\t" : "", out);
	print_zsh_verb(out, program->self);
	fputs(program->n_verbs ? "\t;;\nesac\n" : "", out);
}

int option_print(FILE *out, const struct option_program *program, const char *form)
{
	static const struct {
		const char *name;
		void (*print)(FILE *out, const struct option_program *program);
	} forms[] = {{"manual", print_manual},      {"synopsis", print_manual_synopsis},
		     {"verbs", print_manual_verbs}, {"pages", print_manual_pages},
		     {"bash", print_bash},          {"zsh", print_zsh}};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (strcmp(forms[i].name, form) != 0)
			continue;
		forms[i].print(out, program);
		return 0;
	}
	return -ENOENT;
}
