/* SPDX-License-Identifier: Apache-2.0 */
/* Prints texts made from the table of options: the manual of the configuration file, and the shipped file. */
#include "options_print.h"

#include <string.h>

#include "lib/cleanup.h"
#include "options_table.h"

static void print_settings_that_apply(enum option_applies when, const char *title)
{
	printf(".SS %s\n", title);
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct option_row *row = &option_rows[i];
		_cleanup_(freep) char *help = option_help_new(row);

		if (row->command || row->applies != when)
			continue;
		printf(".TP\n.B %s\n", row->name);
		option_print_text(stdout, ".IP", help ? help : row->help, true);
	}
}

static void print_file(void)
{
	fputs(
	    "# dieseld's configuration. Made from the table of options; see man dieseld.conf. A line with ; "
	    "in\n"
	    "# front shows the default, or an example where the default depends on the machine. After a "
	    "change:\n"
	    "#   dieseld --check-config --config /etc/diesel/dieseld.conf && systemctl reload dieseld\n"
	    "# As it is, dieseld tunes itself. A value from `dieselctl set` overrides this file until\n"
	    "# `dieselctl set --unset NAME`; `dieselctl status` names the source of each value.\n\n"
	    "[dieseld]\n",
	    stdout);
	for (size_t i = 0; i < n_option_rows; i++) {
		const struct option_row *row = &option_rows[i];
		_cleanup_(freep) char *text = option_about_new(row);

		if (row->command)
			continue;
		if (row->group)
			printf("\n# ---- %s ----\n", row->group);
		fputs("\n# ", stdout);
		option_print_text(stdout, "# ", text ? text : row->help, false);
		printf(";%s = %s\n", row->name, row->usual ? row->usual : row->example);
	}
}

int options_print(const char *form)
{
	if (strcmp(form, "file") == 0) {
		print_file();
	} else if (strcmp(form, "settings") == 0) {
		print_settings_that_apply(OPTION_RELOAD, "Applied by a reload (SIGHUP)");
		print_settings_that_apply(OPTION_SESSIONS,
					  "Applied to datasets and sessions opened after a reload");
		print_settings_that_apply(OPTION_START, "Applied when dieseld restarts");
	} else {
		return option_print(stdout, &dieseld_program, form);
	}
	return 0;
}
