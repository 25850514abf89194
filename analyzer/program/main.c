/* SPDX-License-Identifier: Apache-2.0 */
/* diesel-analyze: the glue between the command line and the parts that do the work. */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analyzer/analysis.h"
#include "analyzer/comparison.h"
#include "analyzer/record/record.h"
#include "analyzer/recording.h"
#include "analyzer/recording_analysis.h"
#include "analyzer/truth/truth.h"
#include "check.h"
#include "lib/cleanup.h"
#include "lib/commands.h"
#include "lib/error.h"
#include "lib/log.h"
#include "lib/units.h"
#include "options.h"
#include "output.h"
#include "plan.h"
#include "render.h"
#include "render_source.h"
#include "reports/difference.h"
#include "what_if.h"

/* One of two recordings that are compared, with its analysis. */

struct diff_side {
	struct recording *recording;
	struct analysis *analysis;
	struct render_source source;
};

static void side_close(struct diff_side *side)
{
	render_source_free(&side->source);
	analysis_free(side->analysis);
	recording_close(side->recording);
}

static int side_open(const char *path, struct diff_side *side, struct error *err)
{
	int r = recording_open(path, &side->recording, err);

	if (r == 0)
		r = recording_analyze(side->recording, &(struct recording_analysis_options){0},
				      &side->analysis, err);
	if (r < 0)
		return r;
	render_source_load(side->recording, path, &side->source);
	if (side->analysis->verdict == ANALYSIS_INSUFFICIENT)
		return error_set(err, -ENODATA, "%s: %s", path, side->analysis->insufficient);
	return 0;
}

static int write_text(FILE *stream, const void *user)
{
	struct report_text_options options = report_text_options_for(stream);

	return report_difference_text(stream, user, &options);
}

static int write_json(FILE *stream, const void *user)
{
	return report_difference_json(stream, user);
}

/* -ENODATA: one recording does not suffice for a verdict; err names it. Other errors: those of
 * recording_analyze() and of the output. */
static int diff_recordings(const struct options *options, struct error *err)
{
	_cleanup_(side_close) struct diff_side a = {0};
	_cleanup_(side_close) struct diff_side b = {0};
	bool json = options->json || (options->format && strcmp(options->format, "json") == 0);
	struct report_difference difference;
	struct comparison comparison;
	int r = side_open(options->recordings[0], &a, err);

	if (r == 0)
		r = side_open(options->recordings[1], &b, err);
	if (r < 0)
		return r;
	r = comparison_make(a.analysis, b.analysis, &comparison);
	if (r < 0)
		return error_errno(err, r, "cannot compare %s and %s", options->recordings[0],
				   options->recordings[1]);
	difference = (struct report_difference){.a = a.analysis,
						.b = b.analysis,
						.source_a = &a.source.report,
						.source_b = &b.source.report,
						.comparison = &comparison};
	return output_write(options->output, stdout, json ? write_json : write_text, &difference, err);
}

/* Handles a command that failed before its first training steps, so that there is nothing to report. */

/* Returns true if the command was stopped on purpose: the user knows why. */
static bool was_stopped(int status)
{
	int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;

	return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT;
}

/* *ret_steps: number of steps a report would have. Returns false if they suffice for a report, or are not
 * known. */
static bool has_few_steps(const char *path, uint32_t trainer_tid, size_t *ret_steps)
{
	const struct recording_analysis_options how = {.trainer_tid = trainer_tid};
	_cleanup_(recording_closep) struct recording *recording = NULL;
	_cleanup_(analysis_freep) struct analysis *analysis = NULL;
	bool few = recording_open(path, &recording, NULL) == 0 &&
		   recording_analyze(recording, &how, &analysis, NULL) == 0 &&
		   analysis->verdict == ANALYSIS_INSUFFICIENT && analysis->n_steps < ANALYSIS_STEPS_MIN &&
		   analysis->sampled.n_steps_estimated < ANALYSIS_STEPS_MIN;

	if (few) /* with sampling, the number of steps is only an estimate */
		*ret_steps = analysis->n_steps > analysis->sampled.n_steps_estimated
				 ? analysis->n_steps
				 : analysis->sampled.n_steps_estimated;
	return few;
}

/* If the command failed that early, logs one line and returns true. Returns false, and logs nothing, if it
 * did not or the recording cannot be read. */
static bool is_failed_run(const struct options *options, const struct record_result *result, const char *path)
{
	char end[64], duration[24], steps[40] = "no training step";
	size_t n_steps;

	if (!options->command || result->status == 0 || was_stopped(result->status) ||
	    !has_few_steps(path, options->trainer_tid, &n_steps))
		return false;
	if (WIFSIGNALED(result->status))
		snprintf(end, sizeof(end), "was killed by signal %d (%s)", WTERMSIG(result->status),
			 strsignal(WTERMSIG(result->status)));
	else
		snprintf(end, sizeof(end), "ended with status %d", WEXITSTATUS(result->status));
	if (n_steps)
		snprintf(steps, sizeof(steps), "only %zu step%s", n_steps, n_steps == 1 ? "" : "s");
	log_error("no report: the job %s, with %s seen in the %s that were recorded. Fix the error that the "
		  "job printed, then run it again.",
		  end, steps, units_format_duration(duration, sizeof(duration), result->duration_ns));
	return true;
}

/* Writes all events of a recording as the 64-byte records of bpf/event.h, sorted by end_ns, for scripts and
 * tests. */

/* Errors: those of recording_open(), such as -EBADMSG, and of the stream, such as -EIO. */
static int dump_recording(const char *path, FILE *stream, struct error *err)
{
	_cleanup_(recording_closep) struct recording *recording = NULL;
	struct recording_cursor *cursor = NULL;
	const struct event *event;
	int r = recording_open(path, &recording, err);

	if (r < 0)
		return r;
	r = recording_cursor_open(recording, NULL, &cursor, err);
	while (r == 0 && (r = recording_cursor_next(cursor, &event)) > 0)
		r = fwrite(event, sizeof(*event), 1, stream) == 1 ? 0 : -errno;
	if (r == 0 && fflush(stream))
		r = -errno;
	if (r < 0)
		error_errno(err, r, "cannot dump %s", path);
	else if (recording_under_way(recording))
		log_warning("%s is still being recorded: these are the events so far", path);
	else if (!recording_complete(recording))
		log_warning("%s was cut off: these are the events before the cut", path);
	recording_cursor_close(cursor);
	return r;
}

#define DEFAULT_RECORDING "diesel.db"

static int exit_code_of(int status)
{
	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	return WEXITSTATUS(status);
}

/* Blocks the signals that the recording receives. The command gets the previous mask. */
static void block_signals(sigset_t *ret_before)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigaddset(&signals, SIGQUIT);
	sigprocmask(SIG_BLOCK, &signals, ret_before);
}

/* Logs the result of a recording. path NULL: the recording is not kept. */
static void say_result(const struct record_result *result, uint64_t detail_bytes, const char *path)
{
	char duration[24], detail[16];
	struct error drawn = ERROR_INIT;

	error_set(&drawn, 0, "%s%s%s%s", path ? ": " : "; -o s.db keeps the recording, and ",
		  path ? path : "", path ? "" : "`diesel-analyze report s.db -o s.html`",
		  path ? "" : " draws it");
	_cleanup_(freep) char *end = commands_runnable_new(drawn.text, NULL);

	log_info("recorded %s, %llu events, %llu lost%s",
		 units_format_duration(duration, sizeof(duration), result->duration_ns),
		 (unsigned long long)result->n_events, (unsigned long long)result->n_lost,
		 end ? end : drawn.text);
	if (result->unrecorded_ns)
		log_info("%s of the recording have no detail, because --detail allows only %s per minute; "
			 "--detail all "
			 "records everything",
			 units_format_duration(duration, sizeof(duration), result->unrecorded_ns),
			 units_format_bytes(detail, sizeof(detail), detail_bytes));
	if (result->n_lost)
		log_warning(
		    "%llu events were lost because the kernel buffer was full: use a larger --ring, such "
		    "as --ring 64M",
		    (unsigned long long)result->n_lost);
}

static int record(const struct options *options, const char *output, struct record_result *result)
{
	struct record_options how = options->record;
	struct error err = ERROR_INIT;
	sigset_t before;
	int r;

	how.output = output;
	how.command = options->command;
	how.tgids = options->tgids;
	how.trainer_tid = options->trainer_tid;
	how.btf_path = options->btf_path;
	how.command_signals = &before;
	block_signals(&before);
	r = record_run(&how, result, &err);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (r != 0)
		log_error("%s", err.text);
	return r;
}

/* Returns the command's own status, even if the recording failed midway. */
static int exit_code_of_run(const struct options *options, int r, const struct record_result *result)
{
	if (options->command && result->status >= 0)
		return exit_code_of(result->status);
	if (result->launch_error) /* exit codes of a shell */
		return result->launch_error == -ENOENT ? 127 : 126;
	return r != 0 ? EXIT_FAILED : 0;
}

static int run_record(const struct options *options)
{
	const char *output = options->output;
	struct record_result result;
	int r;

	if (!output) {
		output = DEFAULT_RECORDING;
		rename(DEFAULT_RECORDING, DEFAULT_RECORDING ".old"); /* usually there is no such file */
	}
	r = record(options, output, &result);
	if (r == 0) {
		say_result(&result, options->record.detail_bytes_per_minute, output);
		(void)is_failed_run(options, &result, output);
	}
	if (r != 0 && !options->output && access(DEFAULT_RECORDING, F_OK))
		rename(DEFAULT_RECORDING ".old", DEFAULT_RECORDING); /* nothing was recorded */
	return exit_code_of_run(options, r, &result);
}

static int report(const char *recording, const struct options *options, FILE *stream)
{
	const struct render_options render = {.recording = recording,
					      .output = options->verb == VERB_REPORT ? options->output : NULL,
					      .format = options->format,
					      .steps = options->steps,
					      .trainer_tid = options->trainer_tid,
					      .checkpoint_overhead_max = options->checkpoint_overhead_max,
					      .stream = stream};
	struct error err = ERROR_INIT;
	bool sufficient;

	if (render_recording(&render, &sufficient, &err)) {
		log_error("%s", err.text);
		return EXIT_FAILED;
	}
	return sufficient ? 0 : EXIT_INSUFFICIENT;
}

/* Records and reports. The report goes to standard error, because standard output is the command's. */
static int run_plain(const struct options *options)
{
	const char *folder = getenv("TMPDIR");
	struct record_result result;
	char temporary[4000] = "", path[4096];
	int r, reported = 0;

	if (options->output) {
		snprintf(path, sizeof(path), "%s", options->output);
	} else {
		snprintf(temporary, sizeof(temporary), "%s/diesel-XXXXXX",
			 folder && *folder ? folder : "/tmp");
		if (!mkdtemp(temporary)) {
			log_error("cannot make a folder %s for the recording: %s", temporary,
				  strerror(errno));
			return EXIT_FAILED;
		}
		snprintf(path, sizeof(path), "%s/session.db", temporary);
	}
	r = record(options, path, &result);
	signal(SIGPIPE, SIG_IGN); /* a closed pipe must not end the program before it removes the recording */
	if (r == 0) {
		/* A user who asks for a format gets a report in it even if the command failed. */
		bool failed = !options->format && is_failed_run(options, &result, path);

		if (!failed || options->output)
			say_result(&result, options->record.detail_bytes_per_minute,
				   options->output ? path : NULL);
		if (!failed)
			reported = report(path, options, stderr);
	}
	if (!options->output) {
		unlink(path);
		rmdir(temporary);
	}
	if (options->command)
		return exit_code_of_run(options, r, &result);
	return r != 0 ? EXIT_FAILED : reported;
}

static int dump(const char *recording)
{
	struct error err = ERROR_INIT;

	if (isatty(STDOUT_FILENO)) {
		log_error("raw records cannot go to a terminal: redirect them to a file or a program");
		return EXIT_USAGE;
	}
	if (dump_recording(recording, stdout, &err)) {
		log_error("%s", err.text);
		return EXIT_FAILED;
	}
	return 0;
}

static int truth(const struct options *options, struct error *err)
{
	struct truth_options how = options->truth;

	how.command = options->command;
	how.json = options->json;
	how.verbose = options->verbose;
	return truth_run(&how, err);
}

/* Returns the exit code of a verb whose error was not printed yet. */
static int finish(int r, const struct error *err)
{
	if (r < 0)
		log_error("%s", err->text);
	return r == -ENODATA ? EXIT_INSUFFICIENT : r < 0 ? EXIT_FAILED : 0;
}

int main(int argc, char **argv)
{
	struct error err = ERROR_INIT;
	struct options options;
	int r;

	if (argc == 3 && strcmp(argv[1], "--print-options") == 0)
		return options_print(argv[2]);
	setlocale(LC_CTYPE, "");
	log_init("diesel-analyze", LOG_LEVEL_INFO);
	r = options_parse(argc, argv, &options);
	if (r != 0)
		return r - 1;
	if (options.verbose)
		log_init("diesel-analyze", LOG_LEVEL_DEBUG);
	switch (options.verb) {
	case VERB_CHECK: return check_run(options.btf_path, options.json, stdout);
	case VERB_RECORD: return run_record(&options);
	case VERB_REPORT: return report(options.recordings[0], &options, stdout);
	case VERB_RUN: return run_plain(&options);
	case VERB_DUMP: return dump(options.recordings[0]);
	case VERB_DIFF: return finish(diff_recordings(&options, &err), &err);
	case VERB_TRUTH: return finish(truth(&options, &err), &err);
	case VERB_WHAT_IF: return finish(what_if_run(&options, &err), &err);
	case VERB_PLAN: return finish(plan_run(&options.plan, options.json, &err), &err);
	case VERB_COUNT: break;
	}
	return EXIT_FAILED;
}
