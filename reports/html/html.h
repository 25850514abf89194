/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Writes the HTML report: page/page.html with its {{places}} filled in. Essential content needs no
 * JavaScript; page/ *.js draws charts from the JSON of html_data(). All untrusted text goes through
 * escape_html() or escape_json().
 */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "reports/report.h"

struct html {
	FILE *stream;
	const struct analysis *analysis;
	struct report_source source;
};

typedef void (*html_place_fn)(const struct html *html);

void html_summary(const struct html *html);
void html_actions(const struct html *html);
void html_figures(const struct html *html);

/* Writes <td class=n> with text that is not escaped. */
__attribute__((format(printf, 2, 3))) void html_number(const struct html *html, const char *format, ...);
