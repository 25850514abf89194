/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Loads the facts about a recording itself, for reports. Missing facts are left out. */

#include "reports/report.h"

struct recording;

struct render_source {
	struct report_source report; /* borrows from the fields below */
	char *host, *kernel, *machine, *version;
};

/* The result also borrows path. */
void render_source_load(struct recording *recording, const char *path, struct render_source *ret_source);
void render_source_free(struct render_source *source);
