/* SPDX-License-Identifier: Apache-2.0 */

/* diesel-analyze: the glue between the command line and the parts that do the work. */

#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "diff.h"
#include "dump.h"
#include "failed_run.h"
#include "lib/cleanup.h"
#include "lib/commands.h"
#include "lib/error.h"
#include "lib/log.h"
#include "lib/units.h"
#include "options.h"
#include "analyzer/record/record.h"
#include "render.h"
#include "analyzer/truth/truth.h"
#include "what_if.h"

#define DEFAULT_RECORDING "diesel.db"

static int exit_code_of(int status)
{
	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	return WEXITSTATUS(status);
}

/* Blocks the signals, which the recording then receives. The command gets the mask from before. */
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

/* path NULL: the recording is not kept. */
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
		log_info("%s of it are without detail, as --detail allows %s a minute; --detail all records "
			 "everything",
			 units_format_duration(duration, sizeof(duration), result->unrecorded_ns),
			 units_format_bytes(detail, sizeof(detail), detail_bytes));
	if (result->n_lost)
		log_warning(
		    "%llu events were lost because the kernel buffer was full; a larger --ring loses fewer",
		    (unsigned long long)result->n_lost);
}

static int record(const struct options *options, const char *output, struct record_result *result)
{
	struct error err = ERROR_INIT;
	sigset_t before;
	int r;

	block_signals(&before);
	r = record_run(&(struct record_options){.output = output,
						.command = options->command,
						.tgids = options->tgids,
						.n_tgids = options->n_tgids,
						.cgroup = options->cgroup,
						.no_children = options->no_children,
						.unprivileged = options->unprivileged,
						.trainer_tid = options->trainer_tid,
						.duration_ns = options->duration_ns,
						.ring_bytes = options->ring_bytes,
						.detail_bytes_per_minute = options->detail_bytes_per_minute,
						.profile_hz = (uint32_t)options->profile_hz,
						.btf_path = options->btf_path,
						.command_signals = &before},
		       result, &err);
	sigprocmask(SIG_SETMASK, &before, NULL);
	if (r != 0)
		log_error("%s", err.text);
	return r;
}

/* Returns true, and logs a line, if the command failed before there was anything to report. */
static bool is_failed_run(const struct options *options, const struct record_result *result, const char *path)
{
	return options->command && failed_run_say(&(struct failed_run){.recording = path,
								       .status = result->status,
								       .duration_ns = result->duration_ns,
								       .trainer_tid = options->trainer_tid});
}

/* The command's own status, also when its recording failed in the middle. */
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
		say_result(&result, options->detail_bytes_per_minute, output);
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
	signal(SIGPIPE, SIG_IGN); /* while writing the report: the recording must be removed after it */
	if (r == 0) {
		/* A user who asks for a format gets a report in it even if the command failed. */
		bool failed = !options->format && is_failed_run(options, &result, path);

		if (!failed || options->output)
			say_result(&result, options->detail_bytes_per_minute, options->output ? path : NULL);
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
		log_error("raw records are not for a terminal; redirect them to a file or a program");
		return EXIT_USAGE;
	}
	if (dump_recording(recording, stdout, &err)) {
		log_error("%s", err.text);
		return EXIT_FAILED;
	}
	return 0;
}

static int diff(const struct options *options)
{
	struct error err = ERROR_INIT;
	int r = diff_recordings(
	    &(struct diff_options){.recording_a = options->recordings[0],
				   .recording_b = options->recordings[1],
				   .output = options->output,
				   .stream = stdout,
				   .json = options->json ||
					   (options->format && !strcmp(options->format, "json"))},
	    &err);

	if (r != 0)
		log_error("%s", err.text);
	return r == -ENODATA ? EXIT_INSUFFICIENT : r != 0 ? EXIT_FAILED : 0;
}

static int truth(const struct options *options)
{
	struct error err = ERROR_INIT;
	int r = truth_run(&(struct truth_options){.command = options->command,
						  .data = options->data,
						  .n_steps = options->n_steps,
						  .n_rounds = options->n_rounds,
						  .json = options->json,
						  .verbose = options->verbose},
			  &err);

	if (r < 0)
		log_error("%s", err.text);
	return r == -ENODATA ? EXIT_INSUFFICIENT : r < 0 ? EXIT_FAILED : 0;
}

static int what_if(const struct options *options)
{
	struct error err = ERROR_INIT;
	int r = what_if_run(&(struct what_if_options){.recording = options->recordings[0],
						      .question = options->what_if,
						      .asked = options->what_if_asked,
						      .json = options->json,
						      .stream = stdout},
			    &err);

	if (r != 0)
		log_error("%s", err.text);
	return r == -ENODATA ? EXIT_INSUFFICIENT : r != 0 ? EXIT_FAILED : 0;
}

int main(int argc, char **argv)
{
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
	case VERB_DIFF: return diff(&options);
	case VERB_TRUTH: return truth(&options);
	case VERB_WHAT_IF: return what_if(&options);
	case VERB_COUNT: break;
	}
	return EXIT_FAILED;
}
