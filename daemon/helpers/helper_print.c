/* SPDX-License-Identifier: Apache-2.0 */
/* Prints the table for dieseld --print-helpers. */
#include "helper.h"

#include <errno.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>

#include "lib/capabilities.h"

static void print_capabilities(const struct helper_rights *r)
{
	static const struct {
		uint64_t bit;
		const char *name;
	} names[] = {{CAPABILITY(CAP_DAC_READ_SEARCH), "DAC_READ_SEARCH"},
		     {CAPABILITY(CAP_BPF), "BPF"},
		     {CAPABILITY(CAP_PERFMON), "PERFMON"},
		     {CAPABILITY(CAP_SYS_PTRACE), "SYS_PTRACE"},
		     {CAPABILITY(CAP_SYS_ADMIN), "SYS_ADMIN"},
		     {CAPABILITY(CAP_SYS_CHROOT), "SYS_CHROOT"},
		     {CAPABILITY(CAP_SETUID), "SETUID"},
		     {CAPABILITY(CAP_SETGID), "SETGID"},
		     {CAPABILITY(CAP_KILL), "KILL"},
		     {CAPABILITY(CAP_NET_BIND_SERVICE), "NET_BIND_SERVICE"}};
	const char *between = "";

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (!(r->capabilities & names[i].bit))
			continue;
		printf("%s`%s`", between, names[i].name);
		between = ", ";
	}
	if (!*between)
		printf("none");
}

static void print_rights(const struct helper_row *row)
{
	printf("| `dieseld-%s` | %s | ", row->name, row->user ? row->user : "the daemon's");
	print_capabilities(&row->begins);
	printf(" | ");
	print_capabilities(&row->works);
	printf(" | %s |\n", row->may);
}

int helper_print(const char *what)
{
	bool rights = strcmp(what, "rights") == 0;

	if (!rights && strcmp(what, "ends") != 0)
		return -EINVAL;
	puts(rights ? "| process | user | capabilities as it begins | at work | allowed actions |\n"
		      "|---|---|---|---|---|"
		    : "| process | in `ps` | effect of its death |\n|---|---|---|");
	for (size_t i = 0; i < HELPER_N_KINDS; i++) {
		const struct helper_row *row = &helper_rows[i];

		if (rights)
			print_rights(row);
		else
			printf("| `dieseld-%s` | `dieseld: %s` | %s |\n", row->name, helper_title_of(row),
			       row->end);
	}
	return 0;
}
