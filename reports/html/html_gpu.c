/* SPDX-License-Identifier: Apache-2.0 */
#include "html.h"

#include <math.h>

#include "analyzer/analysis.h"
#include "reports/words/escape.h"
#include "lib/units.h"

void html_gpu(const struct html *html)
{
	const struct gpu_use *gpu = html->analysis->gpu;
	char wait[24], spin[24], starved[24];

	if (!gpu)
		return;
	html_section(html, "gpu", "GPU", NULL);
	fprintf(html->stream,
		"<p>%llu launches, %llu copies; the trainer waited %s for the GPU (%s of it spinning on a "
		"CPU). The GPU had nothing to do for at least %s while the trainer waited for data.",
		(unsigned long long)gpu->n_launches, (unsigned long long)gpu->n_copies,
		units_format_duration(wait, sizeof(wait), gpu->wait_ns),
		units_format_duration(spin, sizeof(spin), gpu->spin_ns),
		units_format_duration(starved, sizeof(starved), gpu->starved_ns));
	if (isfinite(gpu->utilization))
		fprintf(html->stream, " Utilisation by NVML: %.0f %%.", 100 * gpu->utilization);
	if (!gpu->launches_known)
		fputs(" Too many launches to count all: these figures are too low.", html->stream);
	fputs("</p><p class=\"quiet\">Driver: <code>", html->stream);
	escape_html(html->stream, gpu->library);
	fputs("</code></p>\n<div class=\"scroll\"><table><thead><tr><th>call</th><th></th><th "
	      "class=\"n\">calls</th>"
	      "<th class=\"n\">time</th><th class=\"n\">spinning</th></tr></thead><tbody>\n",
	      html->stream);
	for (size_t i = 0; i < gpu->n_calls; i++) {
		const struct gpu_call *call = &gpu->calls[i];

		fputs("<tr><td class=\"mono\">", html->stream);
		escape_html(html->stream, call->name);
		fputs("</td>", html->stream);
		html_meter(html, gpu->calls[0].ns ? (double)call->ns / (double)gpu->calls[0].ns : 0, "gpu");
		html_number(html, "%llu", (unsigned long long)call->n);
		html_number(html, "%s", units_format_duration(wait, sizeof(wait), call->ns));
		html_number(html, "%s", units_format_duration(spin, sizeof(spin), call->spin_ns));
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div></section>\n", html->stream);
}

void html_phases(const struct html *html)
{
	const struct phase_times *phases = html->analysis->phases;
	double wall_ns = (double)html->analysis->window.observed_ns;
	char text[24];

	if (!phases || !phases->n)
		return;
	html_section(html, "phases", "Ranges of the program",
		     "NVTX and USDT ranges on the trainer's thread; ranges may be nested");
	fputs("<div class=\"scroll\"><table><thead><tr><th>range</th><th></th><th class=\"n\">times</th><th "
	      "class=\"n\">time</th><th class=\"n\">of step time</th></tr></thead><tbody>\n",
	      html->stream);
	for (size_t i = 0; i < phases->n; i++) {
		const struct phase_time *phase = &phases->items[i];

		fputs("<tr><td class=\"path mono\">", html->stream);
		escape_html(html->stream, phase->name);
		fputs("</td>", html->stream);
		html_meter(html, phases->items[0].ns ? (double)phase->ns / (double)phases->items[0].ns : 0,
			   "device");
		html_number(html, "%llu", (unsigned long long)phase->n);
		html_number(html, "%s", units_format_duration(text, sizeof(text), phase->ns));
		html_number(html, "%.0f %%", wall_ns > 0 ? 100 * (double)phase->ns / wall_ns : 0);
		fputs("</tr>\n", html->stream);
	}
	fputs("</tbody></table></div></section>\n", html->stream);
}
