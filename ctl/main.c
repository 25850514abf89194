/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl: datasets and control. One file per group of verbs: ctl_*.c. */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ctl.h"
#include "dataset/chunk.h"
#include "dataset/compress.h"
#include "dataset/remote.h"
#include "lib/bus_error.h"
#include "lib/cleanup.h"
#include "lib/commands.h"
#include "lib/kernel_calls.h"
#include "lib/log.h"
#include "lib/text.h"
#include "lib/units.h"

static const struct ctl_verb *const verbs[] = {
    &ctl_pack,  &ctl_ls,       &ctl_cat,     &ctl_stat,   &ctl_verify, &ctl_rm,     &ctl_log,  &ctl_diff,
    &ctl_purge, &ctl_snapshot, &ctl_rebuild, &ctl_mount,  &ctl_warm,   &ctl_status, &ctl_jobs, &ctl_why,
    &ctl_set,   &ctl_cluster,  &ctl_replay,  &ctl_advise, &ctl_fetch,  &ctl_put,
};

#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

static char command_line[1024];
static char **words; /* of the command, options first once they are parsed */
static int n_words;

const char *ctl_command(void)
{
	return command_line;
}

/* A URL may have a password. */
static void keep_command(int argc, char **argv)
{
	size_t used = 0;

	for (int i = 1; i < argc; i++) {
		const char *plain = strstr(argv[i], "redis://"),
			   *secret = plain ? plain : strstr(argv[i], "rediss://");
		size_t length = secret ? (size_t)(secret - argv[i]) : strlen(argv[i]);

		used += (size_t)snprintf(command_line + used, sizeof(command_line) - used, "%s%.*s%s",
					 i > 1 ? " " : "", (int)length, argv[i], secret ? "redis://..." : "");
		if (used >= sizeof(command_line))
			return;
	}
}

bool ctl_common_option(const struct ctl_verb *verb, int option, char **argv)
{
	if (option == 'h')
		printf("usage: dieselctl %s %s\n%s.\n\n%s", verb->name, verb->arguments, verb->summary,
		       verb->help);
	else if (option == ':')
		ctl_usage(verb, "%s needs an argument", argv[optind - 1]);
	else if (option == '?' && optopt)
		ctl_usage(verb, "there is no option -%c", optopt);
	else if (option == '?')
		ctl_usage(verb, "there is no option %s", argv[optind - 1]);
	else
		return false;
	return true;
}

bool ctl_json_option(const struct ctl_verb *verb, int argc, char **argv, bool *ret_json, int *ret_status)
{
	static const struct option long_options[] = {{"json", no_argument, NULL, 'J'}, CTL_OPTION_HELP, {0}};
	bool json = false;
	int option;

	while ((option = getopt_long(argc, argv, ":h", long_options, NULL)) >= 0) {
		if (ctl_common_option(verb, option, argv)) {
			*ret_status = option == 'h' ? CTL_OK : CTL_USAGE;
			return false;
		}
		json = true;
	}
	*ret_json = json;
	return true;
}

int ctl_version(const struct ctl_verb *verb, uint64_t *ret)
{
	int64_t value;

	if (units_parse_integer(optarg, 1, INT64_MAX, &value) < 0)
		return ctl_usage(verb, "--version %s: a number from 1 is needed; dieselctl log lists them",
				 optarg);
	*ret = (uint64_t)value;
	return CTL_OK;
}

int ctl_timeout(const struct ctl_verb *verb, uint32_t *ret)
{
	int64_t value;

	if (units_parse_integer(optarg, 1, 3600, &value) < 0)
		return ctl_usage(verb, "--timeout %s: it must be whole seconds from 1 to 3600", optarg);
	*ret = (uint32_t)value;
	return CTL_OK;
}

int ctl_keep_snapshots(const struct ctl_verb *verb, uint64_t *ret)
{
	int64_t value;

	if (units_parse_integer(optarg, 1, INT64_MAX, &value) < 0)
		return ctl_usage(verb, "--keep-snapshots %s: a number of versions from 1 is needed", optarg);
	*ret = (uint64_t)value;
	return CTL_OK;
}

bool ctl_chunk_bytes(uint64_t *ret)
{
	return units_parse_bytes(optarg, ret) == 0 && *ret >= CHUNK_MIN_BYTES && *ret <= CHUNK_MAX_BYTES;
}

bool ctl_zstd_level(int *ret)
{
	int64_t value;

	if (units_parse_integer(optarg, COMPRESS_LEVEL_MIN, COMPRESS_LEVEL_MAX, &value) < 0)
		return false;
	*ret = (int)value;
	return true;
}

bool ctl_is_started_by_program(int socket_type)
{
	int type = 0;
	socklen_t size = sizeof(type);

	return getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == socket_type;
}

int ctl_detach(void)
{
	const struct rlimit none = {0};
	pid_t pid;

	(void)setrlimit(RLIMIT_CORE, &none);
	(void)kernel_close_range(STDERR_FILENO + 1, UINT32_MAX);
	pid = fork();
	if (pid > 0)
		_exit(0);
	return pid < 0 ? -errno : 0;
}

void ctl_print(FILE *stream, const char *text)
{
	_cleanup_(freep) char *line = text_line_new(text);

	fputs(line ? line : "(out of memory)", stream);
}

/* The dataset that the command is about; NULL: it is about none. */
static const char *dataset_of(const struct ctl_verb *verb)
{
	int at = optind + 1 + (strstr(verb->arguments, "SOURCE DATASET") ? 1 : 0);

	return strstr(verb->arguments, "DATASET") && at < n_words ? words[at] : NULL;
}

void ctl_print_advice(FILE *stream, const struct ctl_verb *verb, const char *text)
{
	_cleanup_(freep) char *runnable = commands_runnable_new(text, dataset_of(verb));

	ctl_print(stream, runnable ? runnable : text);
}

int ctl_usage(const struct ctl_verb *verb, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "dieselctl %s: ", verb->name);
	ctl_print(stderr, text);
	snprintf(text, sizeof(text), "; `dieselctl %s --help` tells more\n", verb->name);
	_cleanup_(freep) char *runnable = commands_runnable_new(text, NULL);

	fputs(runnable ? runnable : text, stderr);
	return CTL_USAGE;
}

int ctl_failed(const struct ctl_verb *verb, const struct error *err)
{
	return ctl_warn(verb, err->text);
}

int ctl_warn(const struct ctl_verb *verb, const char *text)
{
	fprintf(stderr, "dieselctl %s: ", verb->name);
	ctl_print_advice(stderr, verb, text);
	fputc('\n', stderr);
	return CTL_FAILED;
}

int ctl_finish(const struct ctl_verb *verb)
{
	struct error err = ERROR_INIT;

	if (fflush(stdout) == 0 && !ferror(stdout))
		return CTL_OK;
	error_errno(&err, -errno, "cannot write to standard output");
	return ctl_failed(verb, &err);
}

static void print_usage(FILE *out)
{
	fputs("usage: dieselctl VERB [ARGUMENT ...]\n\n", out);
	for (size_t i = 0; i < N_VERBS; i++)
		fprintf(out, "  %-9s %s\n", verbs[i]->name, verbs[i]->summary);
	fputs("\ndieselctl VERB --help tells more of one. Exit status: 0 done, 1 failed, 2 wrong use.\n",
	      out);
}

int main(int argc, char **argv)
{
	log_init("dieselctl", LOG_LEVEL_INFO);
	place_s3_register();
	bus_error_init("dieselctl"); /* snapshots are mapped, and may belong to others */
	signal(SIGXFSZ,
	       SIG_IGN); /* a write over the file size limit is an error to be reported, not the end */
	if (argc < 2) {
		print_usage(stderr);
		return CTL_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		print_usage(stdout);
		return CTL_OK;
	}
	if (!strcmp(argv[1], "--version")) {
		puts("dieselctl " DIESEL_VERSION);
		return CTL_OK;
	}
	keep_command(argc, argv);
	words = argv;
	n_words = argc;
	for (size_t i = 0; i < N_VERBS; i++)
		if (!strcmp(argv[1], verbs[i]->name))
			return verbs[i]->run(verbs[i], argc - 1, argv + 1);
	fputs("dieselctl: there is no verb '", stderr);
	ctl_print(stderr, argv[1]);
	fputs("'; dieselctl --help lists them\n", stderr);
	return CTL_USAGE;
}
