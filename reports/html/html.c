/* SPDX-License-Identifier: Apache-2.0 */
#include "html.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>

#include "analyzer/analysis.h"
#include "reports/assets/assets.h"
#include "reports/words/escape.h"

static void place_version(const struct html *html)
{
	escape_html(html->stream, html->source.version ? html->source.version : DIESEL_VERSION);
}

static void place_title(const struct html *html)
{
	fprintf(html->stream, "%s", analysis_verdict_name(html->analysis->verdict));
	if (html->analysis->job.command) {
		fputs(": ", html->stream);
		escape_html(html->stream, html->analysis->job.command);
	}
}

static void place_command(const struct html *html)
{
	if (html->analysis->job.command)
		escape_html(html->stream, html->analysis->job.command);
	else
		fprintf(html->stream, "process %u", html->analysis->job.root_tgid);
}

static void place_where(const struct html *html)
{
	time_t seconds = (time_t)(html->source.clocks.realtime_ns / NS_PER_S);
	struct tm utc;
	char text[40];

	if (html->source.host)
		escape_html(html->stream, html->source.host);
	if (seconds && gmtime_r(&seconds, &utc)) {
		strftime(text, sizeof(text), "%Y-%m-%d %H:%M UTC", &utc);
		fprintf(html->stream, "%s<time>%s</time>", html->source.host ? ", " : "", text);
	}
}

static void asset_print(const struct html *html, struct asset asset)
{
	fwrite(asset.bytes, 1, asset.length, html->stream);
}

static void place_style(const struct html *html)
{
	asset_print(html, asset_style());
}

static void place_script(const struct html *html)
{
	asset_print(html, asset_script());
}

static const struct {
	const char *name;
	html_place_fn print;
} places[] = {
    {"version", place_version}, {"title", place_title},
    {"command", place_command}, {"where", place_where},
    {"style", place_style},     {"script", place_script},
    {"summary", html_summary},  {"actions", html_actions},
    {"figures", html_figures},  {"evidence", html_evidence},
    {"what_if", html_what_if},  {"reads", html_reads},
    {"profile", html_profile},  {"gpu", html_gpu},
    {"phases", html_phases},    {"checkpoints", html_checkpoints},
    {"ranks", html_ranks},      {"about", html_about},
    {"data", html_data},
};

static void place_print(const struct html *html, const char *name, size_t length)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (strlen(places[i].name) == length && !memcmp(places[i].name, name, length)) {
			places[i].print(html);
			return;
		}
	assert(!"page.html has a placeholder without content");
}

int report_html(FILE *stream, const struct analysis *analysis, const struct report_source *source)
{
	struct html html = {.stream = stream, .analysis = analysis};
	struct asset page = asset_page();
	const char *at = page.bytes, *end = page.bytes + page.length;

	if (source)
		html.source = *source;
	errno = 0;
	while (at < end) {
		const char *open = memmem(at, (size_t)(end - at), "{{", 2);
		const char *close = open ? memmem(open, (size_t)(end - open), "}}", 2) : NULL;

		if (!close) {
			fwrite(at, 1, (size_t)(end - at), stream);
			break;
		}
		fwrite(at, 1, (size_t)(open - at), stream);
		place_print(&html, open + 2, (size_t)(close - open - 2));
		at = close + 2;
	}
	if (fflush(stream) || ferror(stream))
		return errno ? -errno : -EIO;
	return 0;
}

void html_section(const struct html *html, const char *id, const char *title, const char *hint)
{
	fprintf(html->stream, "<section id=\"%s\" class=\"panel\">\n<h2>%s", id, title);
	if (hint)
		fprintf(html->stream, " <span class=\"hint\">%s</span>", hint);
	fputs("</h2>\n", html->stream);
}

void html_meter(const struct html *html, double ratio, const char *class_name)
{
	if (!(ratio >= 0))
		ratio = 0;
	fprintf(html->stream,
		"<td class=\"fill\"><span class=\"meter %s\" style=\"width:%.1f%%\"></span></td>", class_name,
		100 * (ratio < 1 ? ratio : 1));
}

void html_number(const struct html *html, const char *format, ...)
{
	va_list arguments;

	fputs("<td class=\"n\">", html->stream);
	va_start(arguments, format);
	vfprintf(html->stream, format, arguments);
	va_end(arguments);
	fputs("</td>", html->stream);
}
