/* SPDX-License-Identifier: Apache-2.0 */

/* diesel-analyze: the glue between the command line and the parts that do the work. */

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "lib/error.h"
#include "lib/log.h"
#include "lib/units.h"
#include "options.h"
#include "record.h"

#define DEFAULT_SESSION "diesel.db"

static int exit_code_of(int status)
{
	if (WIFSIGNALED(status))
		return 128 + WTERMSIG(status);
	return WEXITSTATUS(status);
}

/* From here on signals are taken by the recording; the command gets the mask of before. */
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

static void say_result(const struct record_result *result, const char *path)
{
	char duration[24];

	log_info("recorded %s, %llu events, %llu lost: %s",
		 units_format_duration(duration, sizeof(duration), result->duration_ns),
		 (unsigned long long)result->n_events, (unsigned long long)result->n_lost, path);
	if (result->n_lost)
		log_warning(
		    "%llu events were lost as the kernel buffer was full; a larger --ring loses fewer",
		    (unsigned long long)result->n_lost);
}

static int run_record(const struct options *options)
{
	const char *output = options->output;
	struct error err = ERROR_INIT;
	struct record_result result;
	sigset_t before;
	int r;

	if (!output) {
		output = DEFAULT_SESSION;
		rename(DEFAULT_SESSION, DEFAULT_SESSION ".old"); /* mostly there is none */
	}
	block_signals(&before);
	r = record_run(&(struct record_options){.output = output,
						.command = options->command,
						.tgid = options->tgid,
						.duration_ns = options->duration_ns,
						.ring_bytes = options->ring_bytes,
						.btf_path = options->btf_path,
						.command_signals = &before},
		       &result, &err);
	if (r) {
		log_error("%s", err.text);
		return result.status >= 0 && options->command ? exit_code_of(result.status) : EXIT_FAILED;
	}
	say_result(&result, output);
	return exit_code_of(result.status);
}

int main(int argc, char **argv)
{
	struct options options;
	int r;

	log_init("diesel-analyze", LOG_LEVEL_INFO);
	r = options_parse(argc, argv, &options);
	if (r)
		return r - 1;
	if (options.verbose)
		log_init("diesel-analyze", LOG_LEVEL_DEBUG);
	switch (options.verb) {
	case VERB_CHECK: return check_run(options.btf_path, options.json, stdout);
	case VERB_RECORD: return run_record(&options);
	case VERB_RUN:
	case VERB_REPORT: break;
	}
	return EXIT_FAILED;
}
