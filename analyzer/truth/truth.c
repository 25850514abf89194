/* SPDX-License-Identifier: Apache-2.0 */
#include "truth.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "truth_files.h"
#include "truth_print.h"
#include "truth_run.h"

#define STAYED_RATIO     0.02 /* with more of the files in the page cache a run is not cold */
#define MISSING_RATIO    0.02 /* with more of the files missing a run is not cached */
#define WARM_MEMORY_PART 2    /* files of a folder are read in advance if they fill at most this part */

struct truth {
	const struct truth_options *options;
	struct truth_shim shim;
	struct truth_files files;
	struct truth_round rounds[TRUTH_ROUNDS_MAX];
	struct truth_report report;
	uint64_t n_runs, n_done;
};

__attribute__((format(printf, 2, 3))) static void add_note(struct truth_report *report, const char *format,
							   ...)
{
	char text[sizeof(report->notes[0])];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (size_t i = 0; i < report->n_notes; i++)
		if (!strcmp(report->notes[i], text))
			return;
	if (report->n_notes < TRUTH_NOTES_MAX)
		memcpy(report->notes[report->n_notes++], text, sizeof(text));
}

static int run(struct truth *truth, const char *what, const char *mode, struct truth_clock *ret_clock,
	       char **ret_files, struct error *err)
{
	int r;

	log_info("run %" PRIu64 " of %" PRIu64 ": %s", ++truth->n_done, truth->n_runs, what);
	r = truth_shim_run(&truth->shim, truth->options->command, mode, truth->options->n_steps, ret_clock,
			   ret_files, err);
	if (r < 0)
		error_prefix(err, "run %" PRIu64 " (%s)", truth->n_done, what);
	return r;
}

/* Finds which files are to be cold or warm: those below --data, or those that the job was seen to read. */
static int learn(struct truth *truth, struct error *err)
{
	_cleanup_(freep) char *text = NULL;
	struct truth_clock clock;
	int r = run(truth, "fills the page cache and shows what the job reads", "learn", &clock, &text, err);

	if (r < 0)
		return r;
	if (truth->options->data)
		r = truth_files_below(truth->options->data, &truth->files, err);
	else if ((r = truth_files_parse(text, &truth->files)))
		r = error_errno(err, r, "cannot list the files of the job");
	if (r < 0)
		return r;
	if (!truth->files.n)
		add_note(&truth->report,
			 truth->options->data
			     ? "there are no files below --data: every run found what it reads where it was"
			     : "the job was seen to read no files: if it does, name them by --data");
	truth->report.n_files = truth->files.n;
	return 0;
}

/* A folder that was named is read as a whole, because another run may read other files in it. */
static void warm(struct truth *truth)
{
	struct truth_report *report = &truth->report;
	struct truth_residence residence;
	struct proc_meminfo memory;

	truth_files_residence(&truth->files, &residence);
	if (residence.cached_bytes < residence.bytes && !proc_meminfo_read("/proc", &memory) &&
	    residence.bytes < memory.available_bytes / WARM_MEMORY_PART) {
		truth_files_warm(&truth->files);
		truth_files_residence(&truth->files, &residence);
	}
	if ((double)(residence.bytes - residence.cached_bytes) > MISSING_RATIO * (double)residence.bytes)
		add_note(report,
			 "not all of the files stay in memory: T_cached has reads from storage in it, and "
			 "fetch is a lower bound");
	report->warm = residence;
}

static void evict(struct truth *truth)
{
	struct truth_report *report = &truth->report;
	struct truth_residence residence;

	truth_files_evict(&truth->files);
	truth_files_residence(&truth->files, &residence);
	if ((double)residence.cached_bytes > STAYED_RATIO * (double)residence.bytes)
		add_note(report,
			 "%.0f %% of the files' bytes stayed in the page cache (mapped, locked or of a file "
			 "system in memory): fetch is a lower bound",
			 100 * (double)residence.cached_bytes / (double)residence.bytes);
	if (residence.n_unreadable)
		add_note(report, "%" PRIu64 " files could not be opened to evict them",
			 residence.n_unreadable);
	if (residence.n_unknown)
		add_note(report,
			 "of %" PRIu64
			 " files of other users the kernel does not tell whether they are cached",
			 residence.n_unknown);
	report->cold = residence;
}

static int run_round(struct truth *truth, struct truth_round *round, struct error *err)
{
	int r;

	warm(truth);
	r = run(truth, "cached", "clock", &round->runs[TRUTH_CACHED], NULL, err);
	if (r < 0)
		return r;
	evict(truth);
	r = run(truth, "cold", "clock", &round->runs[TRUTH_COLD], NULL, err);
	if (r < 0)
		return r;
	return run(truth, "synthetic: batches from memory", "synthetic", &round->runs[TRUTH_SYNTHETIC], NULL,
		   err);
}

static int run_all(struct truth *truth, struct error *err)
{
	uint64_t n_rounds = truth->options->n_rounds;
	int r = truth_shim_open(&truth->shim, err);

	truth->n_runs = 1 + TRUTH_KINDS * n_rounds;
	if (r == 0)
		r = learn(truth, err);
	for (uint64_t i = 0; r == 0 && i < n_rounds; i++)
		r = run_round(truth, &truth->rounds[i], err);
	truth_shim_close(&truth->shim);
	truth_files_free(&truth->files);
	return r;
}

/* The job's standard output is not ours: it goes to standard error, or nowhere. Returns a descriptor of our
 * own. */
static int divert_output(bool verbose)
{
	int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	_cleanup_(closep) int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (output < 0 || dup2(verbose || null < 0 ? STDERR_FILENO : null, STDOUT_FILENO) < 0)
		return -errno;
	return output;
}

int truth_run(const struct truth_options *options, struct error *err)
{
	struct truth truth = {.options = options};
	int output, r;

	output = divert_output(options->verbose);
	if (output < 0)
		return error_errno(err, output, "cannot divert the command's output");
	r = run_all(&truth, err);
	dup2(output, STDOUT_FILENO);
	close(output);
	if (r < 0)
		return r;
	truth.report.rounds = truth.rounds;
	truth.report.n_rounds = options->n_rounds;
	truth_result_compute(truth.rounds, options->n_rounds, truth.report.n_files > 0, &truth.report.result);
	truth_print(stdout, &truth.report, options->json);
	return 0;
}
