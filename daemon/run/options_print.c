/* SPDX-License-Identifier: Apache-2.0 */
/* The options as people read them. Each form is made from the rows of options_table.c. */
#include "options_print.h"

#include <errno.h>
#include <string.h>

#include "options_set.h"

#define HELP_COLUMN 26
#define HELP_WIDTH  79
#define FILE_WIDTH  100

#define TEXT_BYTES 2048 /* more than any row says */

/* Prints words, and begins a new line with `before` where one would go beyond the width. at: the column. */
static void print_words(const char *before, size_t at, size_t width, const char *text)
{
	size_t n, begin = strlen(before);

	for (bool first = true; *text; text += n + strspn(text + n, " "), first = false) {
		n = strcspn(text, " ");
		if (!first && at + 1 + n > width) {
			printf("\n%s", before);
			at = begin;
		} else if (!first) {
			at += (size_t)printf(" ");
		}
		at += (size_t)printf("%.*s", (int)n, text);
	}
	putchar('\n');
}

static const char *value_of(const struct daemon_option *row)
{
	return !row->value ? "" : row->words && strchr(row->words, '|') ? row->words : row->value;
}

static const char *help_of(const struct daemon_option *row, char text[TEXT_BYTES])
{
	snprintf(text, TEXT_BYTES, row->usual && row->value ? "%s (default: %s)" : "%s", row->help,
		 row->usual);
	return text;
}

/* ---- --help -------------------------------------------------------------------------------------------- */

static void print_help(void)
{
	char text[TEXT_BYTES], blanks[HELP_COLUMN + 1] = {0};

	memset(blanks, ' ', HELP_COLUMN);
	fputs("usage: dieseld [OPTION ...]\n\n"
	      "Serves datasets (dieselctl pack) to the training jobs of this node, from shared memory.\n"
	      "Runs in the foreground; SIGTERM or SIGINT ends it, SIGHUP reads the file again.\n",
	      stdout);
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct daemon_option *row = &option_rows[i];
		size_t n;

		if (row->group)
			printf("\n%s:\n", row->group);
		n = (size_t)printf("  --%s%s%s", row->name, row->value ? " " : "", value_of(row));
		if (n + 2 > HELP_COLUMN) {
			putchar('\n');
			n = 0;
		}
		printf("%.*s", (int)(HELP_COLUMN - n), blanks);
		print_words(blanks, HELP_COLUMN, HELP_WIDTH, help_of(row, text));
	}
}

/* ---- the manual ---------------------------------------------------------------------------------------- */

/* Text in backquotes becomes bold, and hyphens those that are typed. */
static const char *roff_of(const char *text, char roff[TEXT_BYTES])
{
	bool bold = false;
	size_t n = 0;

	for (; *text && n + 8 < TEXT_BYTES; text++) {
		const char *as = *text == '-' ? "\\-" : *text == '`' ? (bold ? "\\fR" : "\\fB") : NULL;

		bold ^= *text == '`';
		if (!as) {
			roff[n++] = *text;
			continue;
		}
		memcpy(roff + n, as, strlen(as));
		n += strlen(as);
	}
	roff[n] = '\0';
	return roff;
}

static const char *when_of(const struct daemon_option *row)
{
	return row->command                    ? ""
	       : row->applies == OPTION_RELOAD ? " A reload applies it."
	       : row->applies == OPTION_SESSIONS
		   ? " After a reload it applies to what is opened from then on."
		   : " It takes effect at the next start.";
}

static const char *about_of(const struct daemon_option *row, char text[TEXT_BYTES])
{
	snprintf(text, TEXT_BYTES, "%s%s", row->about, when_of(row));
	return text;
}

static void print_manual(void)
{
	char text[TEXT_BYTES], roff[TEXT_BYTES];

	for (size_t i = 0; i < n_option_rows; i++) {
		const struct daemon_option *row = &option_rows[i];

		if (row->group)
			printf(".SS %s\n", row->group);
		printf(".TP\n\\fB\\-\\-%s\\fR%s", roff_of(row->name, roff), row->value ? " " : "");
		if (row->value)
			printf("\\fI%s\\fR", roff_of(row->value, roff));
		putchar('\n');
		print_words("", 0, FILE_WIDTH, roff_of(about_of(row, text), roff));
	}
}

static void print_settings_that_apply(enum option_applies when, const char *title)
{
	char text[TEXT_BYTES], roff[TEXT_BYTES];

	printf(".SS %s\n", title);
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct daemon_option *row = &option_rows[i];

		if (row->command || row->applies != when)
			continue;
		printf(".TP\n.B %s\n", roff_of(row->name, roff));
		print_words("", 0, FILE_WIDTH, roff_of(help_of(row, text), roff));
	}
}

static void print_settings(void)
{
	print_settings_that_apply(OPTION_RELOAD, "Applied by a reload (SIGHUP)");
	print_settings_that_apply(OPTION_SESSIONS, "Applied to what is opened after a reload");
	print_settings_that_apply(OPTION_START, "Applied when dieseld starts again");
}

/* ---- the file that is shipped -------------------------------------------------------------------------- */

static void print_file(void)
{
	char text[TEXT_BYTES];

	fputs(
	    "# dieseld's configuration. Made from the table of options; see man dieseld.conf. A line with ; "
	    "in\n"
	    "# front shows the default, or an example where the default depends on the machine. After a "
	    "change:\n"
	    "#   dieseld --check-config --config /etc/diesel/dieseld.conf && systemctl reload dieseld\n"
	    "# As it is, dieseld tunes itself. What `dieselctl set` says while it runs wins over this file,\n"
	    "# until `dieselctl set --unset NAME`; `dieselctl status` names the source of each value.\n\n"
	    "[dieseld]\n",
	    stdout);
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct daemon_option *row = &option_rows[i];

		if (row->command)
			continue;
		if (row->group)
			printf("\n# ---- %s ----\n", row->group);
		fputs("\n# ", stdout);
		print_words("# ", 2, FILE_WIDTH, about_of(row, text));
		printf(";%s = %s\n", row->name, row->usual ? row->usual : row->example);
	}
}

/* ---- completions --------------------------------------------------------------------------------------- */

static void print_list(const char *words)
{
	for (; *words; words++)
		putchar(*words == '|' ? ' ' : *words);
}

static void print_bash(void)
{
	fputs("# SPDX-License-Identifier: Apache-2.0\n"
	      "# bash completion of dieseld, made from its table of options\n"
	      "_dieseld()\n{\n"
	      "\tlocal current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
	      "\tCOMPREPLY=()\n"
	      "\tcase $previous in\n",
	      stdout);
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct daemon_option *row = &option_rows[i];

		if (!row->value)
			continue;
		printf("\t--%s) COMPREPLY=(", row->name);
		if (row->words) {
			printf("$(compgen -W '");
			print_list(row->words);
			printf("' -- \"$current\") ");
		}
		if (row->takes != OPTION_TEXT)
			printf("$(compgen -%c -- \"$current\")", row->takes == OPTION_FILE     ? 'f'
								 : row->takes == OPTION_FOLDER ? 'd'
											       : 'u');
		puts("); return ;;");
	}
	fputs("\tesac\n\tCOMPREPLY=($(compgen -W '", stdout);
	for (size_t i = 0; i < n_option_rows; i++)
		printf(" --%s", option_rows[i].name);
	puts("' -- \"$current\"))\n}\ncomplete -o filenames -F _dieseld dieseld");
}

/* In single quotes, within brackets or between colons. */
static void print_zsh_text(const char *text)
{
	for (; *text; text++) {
		if (*text == '\'')
			fputs("'\\'", stdout);
		else if (strchr("[]:\\", *text))
			putchar('\\');
		putchar(*text);
	}
}

static void print_zsh_values(const struct daemon_option *row)
{
	static const char *const places[] = {"", "_files", "_files -/", "_users"};

	if (row->words && row->takes != OPTION_TEXT) {
		printf("_alternative \"words\\:word\\:(");
		print_list(row->words);
		printf(")\" \"places\\:place\\:%s\"", places[row->takes]);
	} else if (row->words) {
		putchar('(');
		print_list(row->words);
		putchar(')');
	} else {
		fputs(places[row->takes], stdout);
	}
}

static void print_zsh(void)
{
	fputs("#compdef dieseld\n"
	      "# SPDX-License-Identifier: Apache-2.0\n"
	      "# zsh completion of dieseld, made from its table of options\n"
	      "_arguments",
	      stdout);
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct daemon_option *row = &option_rows[i];

		printf(" \\\n\t'%s--%s[", row->set == option_codec ? "*" : "", row->name);
		print_zsh_text(row->help);
		putchar(']');
		if (row->value) {
			printf(":%s:", row->value);
			print_zsh_values(row);
		}
		putchar('\'');
	}
	putchar('\n');
}

int options_print(const char *what)
{
	static const struct {
		const char *name;
		void (*print)(void);
	} forms[] = {
	    {"help", print_help}, {"manual", print_manual}, {"settings", print_settings},
	    {"file", print_file}, {"bash", print_bash},     {"zsh", print_zsh},
	};

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
		if (strcmp(forms[i].name, what) != 0)
			continue;
		forms[i].print();
		return 0;
	}
	return -ENOENT;
}
