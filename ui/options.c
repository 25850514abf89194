/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/log.h"
#include "lib/units.h"
#include "ui/view/model.h"

#define USAGE (TOP_USAGE + 1)

enum {
	OPTION_ONCE = 256,
	OPTION_BEGIN,
	OPTION_DAEMON,
	OPTION_NODE,
	OPTION_NODES,
	OPTION_SOCKET,
	OPTION_UNPRIVILEGED,
	OPTION_VERSION,
};

static const struct option long_options[] = {
    {"delay", required_argument, NULL, 'd'},
    {"pid", required_argument, NULL, 'p'},
    {"sort", required_argument, NULL, 's'},
    {"filter", required_argument, NULL, 'F'},
    {"no-color", no_argument, NULL, 'C'},
    {"no-colour", no_argument, NULL, 'C'},
    {"no-unicode", no_argument, NULL, 'U'},
    {"tree", no_argument, NULL, 't'},
    {"batch", no_argument, NULL, 'b'},
    {"samples", required_argument, NULL, 'n'},
    {"once", no_argument, NULL, OPTION_ONCE},
    {"write", required_argument, NULL, 'w'},
    {"read", required_argument, NULL, 'r'},
    {"begin", required_argument, NULL, OPTION_BEGIN},
    {"end", required_argument, NULL, 'e'},
    {"daemon", no_argument, NULL, OPTION_DAEMON},
    {"node", no_argument, NULL, OPTION_NODE},
    {"nodes", required_argument, NULL, OPTION_NODES},
    {"socket", required_argument, NULL, OPTION_SOCKET},
    {"unprivileged", no_argument, NULL, OPTION_UNPRIVILEGED},
    {"help", no_argument, NULL, 'h'},
    {"version", no_argument, NULL, OPTION_VERSION},
    {NULL, 0, NULL, 0},
};

static void usage(void)
{
	fputs("usage: diesel-top [OPTION ...]\n\n"
	      "Shows where the training jobs of this machine wait. The keys: F1 or h.\n\n"
	      "  -d, --delay SEC       a sample every so many seconds (0.1 to 60; default 1)\n"
	      "  -p, --pid PID,...     only these jobs (a job is a process with all its descendants)\n"
	      "  -s, --sort COLUMN     sort by it\n"
	      "  -F, --filter TEXT     only jobs with this in their name, user or verdict\n"
	      "  -t, --tree            begin with the tree of processes\n"
	      "  -C, --no-color        no colours (so does NO_COLOR); -U, --no-unicode: ASCII only\n"
	      "  -b, --batch           print tables instead of a screen; -n, --samples N: so many\n"
	      "      --once            print one sample as JSON; it looks for the time of -d (default 3)\n"
	      "  -w, --write FILE      record every sample; goes with every way of showing\n"
	      "  -r, --read FILE       show a recording; --begin TIME and -e, --end TIME: part of it\n"
	      "                        (HH:MM[:SS] or YYYY-MM-DDTHH:MM[:SS])\n"
	      "      --daemon, --node  ask only dieseld, or look only at this machine's processes\n"
	      "      --nodes REDIS_URL     the jobs of all nodes whose dieseld --cluster names this server\n"
	      "      --socket PATH     where dieseld listens (default $DIESEL_SOCKET, else the node's, else\n"
	      "                        your own)\n"
	      "      --unprivileged    sample /proc even where BPF is permitted\n"
	      "      --help, --version\n",
	      stdout);
}

/* 0 or USAGE. */
static int parse_pids(const char *text, struct top_options *options)
{
	while (options->n_pids < OPTIONS_PIDS_MAX) {
		char *end;
		long pid = strtol(text, &end, 10);

		if (end == text || pid < 1 || pid > INT_MAX || (*end && *end != ','))
			break;
		options->pids[options->n_pids++] = (pid_t)pid;
		if (!*end)
			return 0;
		text = end + 1;
	}
	log_error("-p %s: not a list of at most %d process numbers, such as 1234,1250", text,
		  OPTIONS_PIDS_MAX);
	return USAGE;
}

static int parse_delay(const char *text, struct top_options *options)
{
	uint64_t ns;

	if (units_parse_duration(text, &ns) || ns < (uint64_t)(MODEL_INTERVAL_MIN * 1e9) ||
	    ns > (uint64_t)(MODEL_INTERVAL_MAX * 1e9)) {
		log_error("-d %s: not a time from 0.1 to 60 seconds", text);
		return USAGE;
	}
	options->interval_s = (double)ns / 1e9;
	options->interval_given = true;
	return 0;
}

static int parse_samples(const char *text, struct top_options *options)
{
	int64_t n;

	if (units_parse_integer(text, 1, LONG_MAX, &n)) {
		log_error("-n %s: not a number of samples from 1 up", text);
		return USAGE;
	}
	options->n_samples = (long)n;
	return 0;
}

static int parse_one(int letter, struct top_options *options)
{
	switch (letter) {
	case 'd': return parse_delay(optarg, options);
	case 'p': return parse_pids(optarg, options);
	case 's': options->sort = optarg; return 0;
	case 'F': options->filter = optarg; return 0;
	case 'C': options->no_colour = true; return 0;
	case 'U': options->ascii = true; return 0;
	case 't': options->tree = true; return 0;
	case 'b': options->batch = true; return 0;
	case OPTION_BEGIN: options->begin = optarg; return 0;
	case 'e': options->end = optarg; return 0;
	case 'n': return parse_samples(optarg, options);
	case OPTION_ONCE: options->once = true; return 0;
	case 'w': options->write_path = optarg; return 0;
	case 'r': options->read_path = optarg; return 0;
	case OPTION_DAEMON: options->source = OPTIONS_DAEMON; return 0;
	case OPTION_NODE: options->source = OPTIONS_NODE; return 0;
	case OPTION_NODES:
		options->source = OPTIONS_NODES;
		options->redis = optarg;
		return 0;
	case OPTION_SOCKET: options->socket = optarg; return 0;
	case OPTION_UNPRIVILEGED: options->unprivileged = true; return 0;
	case 'h': usage(); return 1;
	case OPTION_VERSION: printf("diesel-top %s\n", DIESEL_VERSION); return 1;
	default: fputs("diesel-top --help lists all options\n", stderr); return USAGE;
	}
}

/* Checks that the options go together. */
static int check(const struct top_options *options)
{
	const char *why = NULL;

	if (options->read_path && options->write_path)
		why = "-r shows a recording and -w makes one: choose one of them";
	else if (options->read_path && (options->n_pids || options->source != OPTIONS_AUTO ||
					options->socket || options->unprivileged))
		why = "-r shows a recording: -p, --daemon, --node, --nodes, --socket and --unprivileged are "
		      "for live jobs";
	else if ((options->begin || options->end) && !options->read_path)
		why = "--begin and -e choose a part of a recording: -r FILE is missing";
	else if (options->source == OPTIONS_NODES &&
		 (options->n_pids || options->socket || options->unprivileged))
		why = "--nodes asks a Redis server: -p, --socket and --unprivileged are for this machine";
	else if (options->once && options->batch)
		why = "--once and --batch: choose one of them";
	else if (options->n_samples && !options->batch)
		why = "-n is for --batch (-b)";
	else if (options->source == OPTIONS_DAEMON && (options->n_pids || options->unprivileged))
		why = "--daemon asks dieseld: -p and --unprivileged are for looking at processes";
	else if (options->source == OPTIONS_NODE && options->socket)
		why = "--node does not ask dieseld: --socket is useless";
	if (!why)
		return 0;
	log_error("%s", why);
	return USAGE;
}

int options_parse(int argc, char **argv, struct top_options *ret_options)
{
	struct top_options options = {.interval_s = 1};
	int letter, r;

	while ((letter = getopt_long(argc, argv, "d:p:s:F:CUtbe:n:w:r:h", long_options, NULL)) != -1) {
		r = parse_one(letter, &options);
		if (r != 0)
			return r;
	}
	if (optind < argc) {
		log_error("%s: diesel-top takes no arguments; a job is named by -p PID", argv[optind]);
		return USAGE;
	}
	r = check(&options);
	if (r == 0)
		*ret_options = options;
	return r;
}
