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
#include "dataset/meta.h"
#include "dataset/remote.h"
#include "lib/bus_error.h"
#include "lib/cleanup.h"
#include "lib/commands.h"
#include "lib/kernel_calls.h"
#include "lib/log.h"
#include "lib/text.h"
#include "lib/utf8.h"

static const struct option_verb *const verbs[] = {
    &ctl_pack,     &ctl_index,   &ctl_export, &ctl_ls,     &ctl_cat,    &ctl_stat,   &ctl_verify,
    &ctl_rm,       &ctl_log,     &ctl_diff,   &ctl_copy,   &ctl_move,   &ctl_delete, &ctl_purge,
    &ctl_snapshot, &ctl_rebuild, &ctl_mount,  &ctl_warm,   &ctl_status, &ctl_jobs,   &ctl_why,
    &ctl_set,      &ctl_cluster, &ctl_replay, &ctl_advise, &ctl_fetch,  &ctl_put,    &ctl_objects,
};

static int set_help(void *options, const struct option_row *row, const char *value, struct error *err);
static int set_version(void *options, const struct option_row *row, const char *value, struct error *err);

static const struct option_row rows[] = {
    {"help", set_help, .letter = 'h', .help = "print this help; after a verb, the verb's options"},
    {"version", set_version, .letter = 'V', .help = "print the version"},
};

static const struct option_verb self = {
    .name = "dieselctl",
    .arguments = "VERB [ARGUMENT ...]",
    .summary = "Packs, inspects, checks and repairs datasets, and controls dieseld",
    .help = "dieselctl VERB --help describes a verb. Exit status: 0 success, 1 failure, 2 usage error.\n",
    OPTION_ROWS(rows),
    .command = true,
};

static const struct option_program program = {
    .self = &self, .verbs = verbs, .n_verbs = sizeof(verbs) / sizeof(verbs[0])};

static char command_line[1024];
static char **words; /* the command's arguments; after parsing, options come first */
static int n_words;

const char *ctl_command(void)
{
	return command_line;
}

/* Stores the command line, with Redis URLs cut because they may have a password. */
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

static volatile sig_atomic_t stop_signal;

static void on_stop(int number)
{
	stop_signal = number;
}

void ctl_stop_on_signals(void)
{
	struct sigaction action = {.sa_handler = on_stop,
				   .sa_flags = SA_RESETHAND}; /* a second signal kills the process */

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
}

bool ctl_is_stopped(void *context)
{
	(void)context;
	return stop_signal != 0;
}

int ctl_help(const struct option_verb *verb)
{
	option_print_help(stdout, &program, verb);
	return CTL_OK;
}

bool ctl_options(const struct option_verb *verb, int argc, char **argv, void *options, int *ret_status)
{
	struct error err = ERROR_INIT;
	int r = option_parse(verb, argc, argv, options, &err);

	if (r != 0)
		*ret_status = r == OPTION_HELP ? ctl_help(verb) : ctl_usage(verb, "%s", err.text);
	return r == 0;
}

int ctl_set_meta(void *options, const struct option_row *row, const char *value, struct error *err)
{
	struct error why = ERROR_INIT;

	if (meta_redis_check_url(value, &why) < 0)
		return error_set(err, -EINVAL, "--meta URL: %s", why.text);
	return option_set_string(options, row, value, err);
}

int ctl_set_digest(void *options, const struct option_row *row, const char *value, struct error *err)
{
	return option_word_place(row, value) < 0 ? option_wrong(row, value, err)
						 : option_set_flag(options, row, value, err);
}

bool ctl_is_started_by_program(int socket_type)
{
	int type = 0;
	socklen_t size = sizeof(type);

	return getsockopt(STDIN_FILENO, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == socket_type;
}

void ctl_keep_secrets(void)
{
	const struct rlimit none = {0};

	(void)setrlimit(RLIMIT_CORE, &none);
	(void)kernel_close_range(STDERR_FILENO + 1, UINT32_MAX);
}

int ctl_detach(void)
{
	pid_t pid;

	ctl_keep_secrets();
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

void ctl_json_string(const char *text, size_t length)
{
	putchar('"');
	for (size_t i = 0; i < length;) {
		unsigned char byte = (unsigned char)text[i];
		uint32_t code = 0;
		size_t n = utf8_decode(text + i, length - i, &code);

		if (n == 0)
			printf("\\" TEXT_ESCAPE, byte);
		else if (utf8_is_hidden(code))
			text_put_json_escape(stdout, code);
		else if (byte == '"' || byte == '\\')
			printf("\\%c", byte);
		else
			fwrite(text + i, 1, n, stdout);
		i += n ? n : 1;
	}
	putchar('"');
}

/* Returns the dataset that the command works on; NULL: none. */
static const char *dataset_of(const struct option_verb *verb)
{
	const char *arguments = verb->arguments ? verb->arguments : "";
	int at = optind + 1 + (strstr(arguments, "SOURCE DATASET") ? 1 : 0);

	return strstr(arguments, "DATASET") && at < n_words ? words[at] : NULL;
}

void ctl_print_advice(FILE *stream, const struct option_verb *verb, const char *text)
{
	_cleanup_(freep) char *runnable = commands_runnable_new(text, dataset_of(verb));

	ctl_print(stream, runnable ? runnable : text);
}

int ctl_usage(const struct option_verb *verb, const char *format, ...)
{
	char text[512];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	fprintf(stderr, "dieselctl %s: ", verb->name);
	ctl_print(stderr, text);
	snprintf(text, sizeof(text), ". Try `dieselctl %s --help` for more information.\n", verb->name);
	_cleanup_(freep) char *runnable = commands_runnable_new(text, NULL);

	for (char *mark = runnable ? runnable : text; (mark = strchr(mark, '`')); mark++)
		*mark = '\'';
	fputs(runnable ? runnable : text, stderr);
	return CTL_USAGE;
}

int ctl_failed(const struct option_verb *verb, const struct error *err)
{
	return ctl_warn(verb, err->text);
}

int ctl_warn(const struct option_verb *verb, const char *text)
{
	fprintf(stderr, "dieselctl %s: ", verb->name);
	ctl_print_advice(stderr, verb, text);
	fputc('\n', stderr);
	return CTL_FAILED;
}

int ctl_finish(const struct option_verb *verb)
{
	struct error err = ERROR_INIT;

	if (fflush(stdout) == 0 && !ferror(stdout))
		return CTL_OK;
	error_errno(&err, -errno, "cannot write to standard output");
	return ctl_failed(verb, &err);
}

static int set_help(void *options, const struct option_row *row, const char *value, struct error *err)
{
	ctl_help(&self);
	return OPTION_HELP;
}

/* Some verbs have an option --version with a value: the version of the dataset. */
static bool is_version(const struct option_verb *verb, const char *word)
{
	return !strcmp(word, "-V") ||
	       (!strcmp(word, "--version") && !option_find(verb->rows, verb->n_rows, "version"));
}

static int print_version(void)
{
	puts("dieselctl " DIESEL_VERSION);
	return CTL_OK;
}

static int set_version(void *options, const struct option_row *row, const char *value, struct error *err)
{
	print_version();
	return OPTION_HELP;
}

/* "dieselctl: text" */
static int wrong_use(const char *text)
{
	fputs("dieselctl: ", stderr);
	ctl_print(stderr, text);
	fputs(". Try 'dieselctl --help' for more information.\n", stderr);
	return CTL_USAGE;
}

int main(int argc, char **argv)
{
	const struct option_verb *verb;
	struct error err = ERROR_INIT;
	int r;

	if (argc == 3 && strcmp(argv[1], "--print-options") == 0) /* used by the build */
		return option_print(stdout, &program, argv[2]) < 0 ? CTL_USAGE : CTL_OK;
	log_init("dieselctl", LOG_LEVEL_INFO);
	backend_s3_register();
	bus_error_init("dieselctl"); /* snapshots are mapped, and may belong to others */
	signal(SIGXFSZ,
	       SIG_IGN); /* a write over the file size limit must return an error, not end the process */
	if (argc < 2) {
		option_print_help(stderr, &program, &self);
		return CTL_USAGE;
	}
	if (!strcmp(argv[1], "help"))
		return ctl_help(&self);
	r = option_parse(&self, argc, argv, NULL, &err);
	if (r != 0)
		return r == OPTION_HELP ? CTL_OK : wrong_use(err.text);
	keep_command(argc, argv);
	words = argv;
	n_words = argc;
	verb = option_find_verb(&program, argv[1], &err);
	if (verb && argc == 3 && is_version(verb, argv[2]))
		return print_version();
	return verb ? verb->run(verb, argc - 1, argv + 1) : wrong_use(err.text);
}
