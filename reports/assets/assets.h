/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Files of reports/assets/page and docs that are built into the program. They are not NUL-terminated. */

#include <stddef.h>

struct asset {
	const char *bytes;
	size_t length;
};

struct asset asset_page(void);
struct asset asset_style(void);
struct asset asset_script(void); /* all of page/ *.js, in dependency order */
struct asset asset_schema(void); /* schema of the JSON report */
