/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/report.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WIDTH_DEFAULT 80
#define WIDTH_MIN     60
#define WIDTH_MAX     100 /* maximum width, because longer lines are hard to read */

struct report_text_options report_text_options_for(FILE *stream)
{
	struct report_text_options options = {.width = WIDTH_DEFAULT};
	const char *no_colour = getenv("NO_COLOR"), *term = getenv("TERM");
	struct winsize size;

	options.ascii = strcmp(nl_langinfo(CODESET), "UTF-8") != 0;
	if (!isatty(fileno(stream)))
		return options;
	options.colour = !(no_colour && *no_colour) && term && strcmp(term, "dumb") != 0;
	if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col)
		options.width = size.ws_col;
	if (options.width < WIDTH_MIN)
		options.width = WIDTH_MIN;
	if (options.width > WIDTH_MAX)
		options.width = WIDTH_MAX;
	return options;
}
