/* SPDX-License-Identifier: Apache-2.0 */
#include "html.h"

#include <math.h>

#include "analyzer/analysis.h"
#include "reports/words/escape.h"
#include "lib/units.h"

#define PLACES_SHOWN 8    /* number of places shown; the JSON report has all */
#define NOTABLE_WAIT 0.05 /* minimum share of data wait for which remedies are shown */

static void places(const struct html *html, const char *title, const struct page_cache_place *items, size_t n)
{
	uint64_t most = 1;
	char text[16];

	if (!n)
		return;
	for (size_t i = 0; i < n; i++)
		most = items[i].cold_bytes > most ? items[i].cold_bytes : most;
	fprintf(
	    html->stream,
	    "<h3>%s</h3><div class=\"scroll\"><table><thead><tr><th>path</th><th></th><th class=\"n\">from "
	    "storage</th><th class=\"n\">used</th><th class=\"n\">reads</th><th class=\"n\">hits</th></tr>"
	    "</thead><tbody>\n",
	    title);
	for (size_t i = 0; i < n && i < PLACES_SHOWN; i++) {
		const struct page_cache_place *item = &items[i];

		fputs("<tr><td class=\"path mono\">", html->stream);
		escape_html(html->stream, item->path ? item->path : "?");
		fputs("</td>", html->stream);
		html_meter(html, (double)item->cold_bytes / (double)most, "fetch");
		html_number(html, "%s", units_format_bytes(text, sizeof(text), item->cold_bytes));
		html_number(html, "%s", units_format_bytes(text, sizeof(text), item->used_bytes));
		html_number(html, "%llu", (unsigned long long)item->n_reads);
		if (item->accessed_pages)
			html_number(html, "%.0f %%",
				    100 * page_cache_hit_ratio(item->accessed_pages, item->missed_pages));
		else
			html_number(html, "-");
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div>\n", html->stream);
}

static void read_sizes(const struct html *html, const struct page_cache *cache)
{
	uint64_t most = 0;
	char from[16], to[16];

	for (size_t i = 0; i < PAGE_CACHE_SIZES; i++)
		most = cache->read_sizes[i] > most ? cache->read_sizes[i] : most;
	if (!most)
		return;
	fputs("<div><h3>Sizes of read calls</h3><table><tbody>\n", html->stream);
	for (size_t i = 0; i < PAGE_CACHE_SIZES; i++) {
		if (!cache->read_sizes[i])
			continue;
		fprintf(html->stream, "<tr><td>%s to %s</td>",
			units_format_bytes(from, sizeof(from), i ? UINT64_C(1) << i : 0),
			units_format_bytes(to, sizeof(to), UINT64_C(2) << i));
		html_meter(html, (double)cache->read_sizes[i] / (double)most, "fetch");
		html_number(html, "%llu", (unsigned long long)cache->read_sizes[i]);
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div>\n", html->stream);
}

static void bytes_row(const struct html *html, const char *name, uint64_t bytes)
{
	char text[16];

	fprintf(html->stream, "<tr><td>%s</td>", name);
	html_number(html, "%s", units_format_bytes(text, sizeof(text), bytes));
	fputs("</tr>\n", html->stream);
}

static void totals(const struct html *html, const struct page_cache *cache)
{
	fputs("<div><h3>In all</h3><table><tbody>\n", html->stream);
	bytes_row(html, "requested by read calls, or touched in mapped files", cache->used_bytes);
	bytes_row(html, "read from storage", cache->cold_bytes);
	if (cache->direct_bytes)
		bytes_row(html, "of these, past the page cache (O_DIRECT)", cache->direct_bytes);
	if (cache->network_bytes)
		bytes_row(html, "over sockets", cache->network_bytes);
	fputs("<tr><td>read calls</td>", html->stream);
	html_number(html, "%llu", (unsigned long long)cache->n_reads);
	fputs("</tr>\n", html->stream);
	if (cache->accessed_pages) {
		fputs("<tr><td>page cache hits</td>", html->stream);
		html_number(html, "%.1f %%",
			    100 * page_cache_hit_ratio(cache->accessed_pages, cache->missed_pages));
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div>\n", html->stream);
}

static void mapped(const struct html *html, const struct page_cache *cache)
{
	const struct page_cache_mapped *from = &cache->mapped;
	char text[24];

	if (!from->n_major_faults && !from->n_minor_faults)
		return;
	fprintf(html->stream, "<p>Mapped files: %llu page faults, ",
		(unsigned long long)(from->n_major_faults + from->n_minor_faults));
	if (!from->n_major_faults) {
		fputs("none of which had to read from storage.</p>\n", html->stream);
		return;
	}
	fprintf(html->stream, "of which %llu had to read from storage: %s of thread time",
		(unsigned long long)from->n_major_faults,
		units_format_duration(text, sizeof(text), from->fault_ns));
	if (isfinite(from->random_ratio))
		fprintf(html->stream, "; %.0f %% of them jump", 100 * from->random_ratio);
	fprintf(html->stream, "; %llu pages read ahead.</p>\n", (unsigned long long)from->read_ahead_pages);
}

void html_reads(const struct html *html)
{
	const struct page_cache *cache = html->analysis->page_cache;

	if (!cache)
		return;
	fputs("<section id=\"reads\" class=\"panel\">\n<h2>File reads</h2>\n<div "
	      "class=\"columns\">",
	      html->stream);
	totals(html, cache);
	read_sizes(html, cache);
	fputs("</div>\n", html->stream);
	if (page_cache_excess(cache) > 0)
		fprintf(html->stream,
			"<p class=\"note\">%.1f times as much came from storage as was used: read-ahead that "
			"nobody "
			"wanted.</p>\n",
			page_cache_excess(cache));
	mapped(html, cache);
	places(html, "Folders", cache->folders, cache->n_folders);
	places(html, "Files", cache->files, cache->n_files);
	fputs("</section>\n", html->stream);
}

static const struct {
	const char *title, *unit;
	double factor;
} axes[WHAT_IF_AXES] = {
    [WHAT_IF_CACHE] = {"share of the dataset in memory", "%", 100},
    [WHAT_IF_WORKERS] = {"worker processes", "", 1},
    [WHAT_IF_STORAGE] = {"storage bandwidth", "x", 1},
    [WHAT_IF_DEVICE] = {"device speed", "x", 1},
    [WHAT_IF_SAMPLE_SIZE] = {"bytes a sample", "x", 1},
    [WHAT_IF_CORES] = {"cores", "", 1},
};

static void what_if_table(const struct html *html, enum what_if_axis axis, const struct what_if_curve *curve)
{
	fprintf(html->stream,
		"<div><h3>%s</h3><table><thead><tr><th class=\"n\">at</th><th class=\"n\">steps/s</th><th "
		"class=\"n\">95 %% interval</th><th class=\"n\">fetch stall</th><th class=\"n\">prep "
		"stall</th></tr>"
		"</thead><tbody>\n",
		axes[axis].title);
	for (size_t i = 0; i < curve->n_points; i++) {
		const struct what_if_point *point = &curve->points[i];

		fputs("<tr>", html->stream);
		html_number(html, "%.4g %s", point->x * axes[axis].factor, axes[axis].unit);
		html_number(html, "%.2fx", point->speedup.value);
		html_number(html, "%.2f to %.2f", point->speedup.low, point->speedup.high);
		html_number(html, "%.0f %%", 100 * point->fetch_stall);
		html_number(html, "%.0f %%", 100 * point->prep_stall);
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div>\n", html->stream);
}

static void needed(const struct html *html, const char *before, const struct estimate *estimate,
		   double factor, const char *unit)
{
	if (isfinite(estimate->value))
		fprintf(html->stream,
			"<tr><td>%s</td><td class=\"n\">%.3g%s</td><td class=\"n quiet\">%.3g to "
			"%.3g</td></tr>\n",
			before, estimate->value * factor, unit, estimate->low * factor,
			estimate->high * factor);
}

static void all_needed(const struct html *html, const struct predictions *from)
{
	fputs("<h3>The least that, by itself, leaves under 2 % of data wait</h3><table><tbody>\n",
	      html->stream);
	needed(html, "of the dataset in memory", &from->cache_ratio_needed, 100, " %");
	needed(html, "worker processes", &from->workers_needed, 1, "");
	needed(html, "times the storage bandwidth", &from->storage_factor_needed, 1, "x");
	if (!isfinite(from->cache_ratio_needed.value) && !isfinite(from->workers_needed.value) &&
	    !isfinite(from->storage_factor_needed.value))
		fputs("<tr><td>none of memory, workers and storage does</td></tr>\n", html->stream);
	fputs("</tbody></table>\n", html->stream);
}

void html_what_if(const struct html *html)
{
	const struct predictions *from = html->analysis->predictions;

	if (!from)
		return;
	fputs(
	    "<section id=\"what-if\" class=\"panel\">\n<h2>What if <span class=\"hint\">predicted speed-up, "
	    "with "
	    "95 % intervals; the ring is where the job is now</span></h2>\n<div id=\"curves\" class=\"curves "
	    "needs-js\"></div>\n",
	    html->stream);
	if (analysis_steady_ratio(html->analysis, SHARE_FETCH_STALL) +
		analysis_steady_ratio(html->analysis, SHARE_PREP_STALL) >=
	    NOTABLE_WAIT)
		all_needed(html, from);
	fputs("<details><summary>The curves as tables</summary><div class=\"columns\">", html->stream);
	for (enum what_if_axis i = 0; i < WHAT_IF_AXES; i++)
		if (from->curves[i].n_points)
			what_if_table(html, i, &from->curves[i]);
	fputs("</div></details></section>\n", html->stream);
}
