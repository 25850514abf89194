/* SPDX-License-Identifier: Apache-2.0 */
#include "difference_facts.h"

#include <math.h>
#include <string.h>

#include "analyzer/analysis.h"
#include "lib/units.h"

#define ALIKE_RATIO 0.02 /* quantities with a smaller relative difference count as equal */

struct facts {
	struct difference_fact *items;
	size_t n;
};

static void add_text(struct facts *facts, const char *name, const char *a, const char *b)
{
	struct difference_fact *fact = &facts->items[facts->n];

	if (!a || !b || !strcmp(a, b) || facts->n == DIFFERENCE_FACTS_MAX)
		return;
	fact->name = name;
	snprintf(fact->a, sizeof(fact->a), "%s", a);
	snprintf(fact->b, sizeof(fact->b), "%s", b);
	facts->n++;
}

static void add_count(struct facts *facts, const char *name, uint64_t a, uint64_t b)
{
	char of_a[24], of_b[24];

	snprintf(of_a, sizeof(of_a), "%llu", (unsigned long long)a);
	snprintf(of_b, sizeof(of_b), "%llu", (unsigned long long)b);
	add_text(facts, name, of_a, of_b);
}

static bool alike(double a, double b)
{
	return fabs(a - b) <= ALIKE_RATIO * fmax(fabs(a), fabs(b));
}

static void add_bytes(struct facts *facts, const char *name, uint64_t a, uint64_t b)
{
	char of_a[24], of_b[24];

	if (!alike((double)a, (double)b))
		add_text(facts, name, units_format_bytes(of_a, sizeof(of_a), a),
			 units_format_bytes(of_b, sizeof(of_b), b));
}

static void add_read(struct facts *facts, const struct analysis *a, const struct analysis *b)
{
	size_t of_a = report_n_steps(a), of_b = report_n_steps(b);

	if (of_a && of_b && a->window.read_bytes_known && b->window.read_bytes_known)
		add_bytes(facts, "read a step", a->window.read_bytes / of_a, b->window.read_bytes / of_b);
}

static void add_cache(struct facts *facts, const struct analysis *a, const struct analysis *b)
{
	const struct page_cache *of_a = a->page_cache, *of_b = b->page_cache;
	char text_a[24], text_b[24];

	if (!of_a || !of_b || !of_a->accessed_pages || !of_b->accessed_pages)
		return;
	snprintf(text_a, sizeof(text_a), "%.0f %%",
		 100 * page_cache_hit_ratio(of_a->accessed_pages, of_a->missed_pages));
	snprintf(text_b, sizeof(text_b), "%.0f %%",
		 100 * page_cache_hit_ratio(of_b->accessed_pages, of_b->missed_pages));
	add_text(facts, "page cache hits", text_a, text_b);
}

size_t difference_facts(const struct report_difference *difference,
			struct difference_fact ret_facts[DIFFERENCE_FACTS_MAX])
{
	const struct analysis *a = difference->a, *b = difference->b;
	const struct report_source *from_a = difference->source_a, *from_b = difference->source_b;
	struct facts facts = {.items = ret_facts};

	add_text(&facts, "command", a->job.command, b->job.command);
	add_text(&facts, "loader", analysis_loader_name(a->job.loader), analysis_loader_name(b->job.loader));
	add_count(&facts, "workers", a->workers.n_at_once, b->workers.n_at_once);
	add_count(&facts, "trainers", a->job.n_trainers, b->job.n_trainers);
	add_read(&facts, a, b);
	add_cache(&facts, a, b);
	if (a->checkpoints && b->checkpoints)
		add_count(&facts, "checkpoints", a->checkpoints->n_items, b->checkpoints->n_items);
	add_count(&facts, "CPUs", a->job.n_cpus, b->job.n_cpus);
	if (from_a && from_b) {
		add_text(&facts, "host", from_a->host, from_b->host);
		add_text(&facts, "kernel", from_a->kernel, from_b->kernel);
		add_text(&facts, "version of diesel", from_a->version, from_b->version);
	}
	add_text(&facts, "how split", analysis_method_name(a->job.method),
		 analysis_method_name(b->job.method));
	add_count(&facts, "lost events", a->recorded.n_lost, b->recorded.n_lost);
	return facts.n;
}
