/* SPDX-License-Identifier: Apache-2.0 */

/* Writes a made-up report, for tests that read files from outside: report_sample FORMAT WHAT > FILE. The
 * kinds (WHAT) are full, hostile (with hostile text from outside), bare (only the shares), insufficient,
 * and long (100 times as many steps as a page shows). */

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/reports/fixture.h"

static struct fixture fixture; /* too large for the stack */

/* Makes many steps from few: all other parts stay unchanged. */
static void make_long(struct fixture *f)
{
	size_t n = 500000;
	struct analysis_step *steps = calloc(n, sizeof(*steps));
	uint64_t at_ns = FIXTURE_BEGIN;

	if (!steps)
		exit(1);
	for (size_t i = 0; i < n; i++) {
		steps[i] = f->steps[i % FIXTURE_STEPS];
		steps[i].end_ns = at_ns + steps[i].end_ns - steps[i].begin_ns;
		steps[i].begin_ns = at_ns;
		at_ns = steps[i].end_ns;
	}
	f->analysis.steps = steps;
	f->analysis.n_steps = n;
	f->analysis.window.end_ns = at_ns;
	f->analysis.window.observed_ns = at_ns - FIXTURE_BEGIN;
	for (size_t k = 0; k < SHARE_COUNT; k++)
		f->analysis.share_ns[k] = 0;
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < SHARE_COUNT; k++)
			f->analysis.share_ns[k] += steps[i].share_ns[k];
}

static void make(struct fixture *f, const char *what)
{
	fixture_make(f, strcmp(what, "hostile") == 0 ? FIXTURE_HOSTILE : "/datasets/imagenet");
	if (strcmp(what, "long") == 0)
		make_long(f);
	if (strcmp(what, "bare") && strcmp(what, "insufficient"))
		return;
	f->analysis.page_cache = NULL;
	f->analysis.profile = NULL;
	f->analysis.gpu = NULL;
	f->analysis.phases = NULL;
	f->analysis.parts.gpu_wait_known = false;
	f->analysis.checkpoints = NULL;
	f->analysis.predictions = NULL;
	f->analysis.lanes = NULL;
	f->analysis.n_ranks = 0;
	f->analysis.job.command = NULL;
	if (strcmp(what, "bare") == 0)
		return;
	f->analysis = (struct analysis){.verdict = ANALYSIS_INSUFFICIENT, .insufficient = "no step was seen"};
}

int main(int argc, char **argv)
{
	struct report_text_options text = {.width = 80};
	struct report_source source;
	int r = -EINVAL;

	setlocale(LC_CTYPE, "");
	if (argc != 3)
		return 2;
	make(&fixture, argv[2]);
	source = fixture_source(strcmp(argv[2], "hostile") == 0 ? FIXTURE_HOSTILE : "gpu-node-7");
	if (strcmp(argv[1], "text") == 0)
		r = report_text(stdout, &fixture.analysis, &text);
	else if (strcmp(argv[1], "json") == 0)
		r = report_json(stdout, &fixture.analysis, &source, true);
	else if (strcmp(argv[1], "html") == 0)
		r = report_html(stdout, &fixture.analysis, &source);
	else if (strcmp(argv[1], "perfetto") == 0)
		r = report_perfetto(stdout, &fixture.analysis, &source);
	else if (strcmp(argv[1], "openmetrics") == 0)
		r = report_openmetrics(stdout, &fixture.analysis, &source);
	else if (strcmp(argv[1], "schema") == 0)
		r = report_json_schema(stdout);
	if (r != 0)
		fprintf(stderr, "report_sample: %s\n", strerror(-r));
	return r != 0;
}
