/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl jobs: one line per job. */
#include "ctl_daemon.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json_read.h"
#include "lib/text.h"

static const struct {
	const char *head;
	int width;
} knob_columns[TUNER_N_KNOBS] = {
    [TUNER_CACHE_BYTES] = {"CACHE", 10},     [TUNER_PREFETCH_CHUNKS] = {"PREFETCH", 8},
    [TUNER_DAEMON_WORKERS] = {"WORKERS", 7}, [TUNER_CLIENT_WORKERS] = {"CLIENT", 6},
    [TUNER_DECODED_BYTES] = {"DECODED", 8},
};

/* Prints a knob: with a star if the operator has pinned it, a dash if it has no value. */
static void print_knob(const json_t *job, const char *knob, int width)
{
	const json_t *k = json_object_get(json_object_get(job, "knobs"), knob);
	char value[24], text[32];

	snprintf(text, sizeof(text), "%s%s", ctl_knob(value, knob, json_number_of(k, "value")),
		 json_is_true(json_object_get(k, "pinned")) ? "*" : "");
	printf(" %*s", width, text);
}

static void print_job(const json_t *job)
{
	const json_t *now = json_object_get(job, "now"), *shares = json_object_get(now, "shares"),
		     *tuner = json_object_get(job, "tuner");
	double fetch = json_number_of(shares, "fetch_stall"), prep = json_number_of(shares, "prep_stall");
	char text[200], rate[24], percent[8];

	printf("%4llu %7llu %9s", (unsigned long long)ctl_number(job, "id"),
	       (unsigned long long)ctl_number(job, "pid"),
	       ctl_rate(rate, json_number_of(now, "samples_per_s")));
	printf(" %5s", ctl_percent(percent, json_number_of(shares, "device")));
	printf(" %5s", ctl_percent(percent, fetch));
	printf(" %5s", ctl_percent(percent, prep));
	for (int i = 0; i < TUNER_N_KNOBS; i++)
		print_knob(job, tuner_knob_table[i].name, knob_columns[i].width);
	printf("  %-8s", *ctl_string(tuner, "phase", text) ? text : "-");
	printf(" %s\n", ctl_string(job, "name", text));
}

static void print_tune(const json_t *tune)
{
	const json_t *sensing = json_object_get(tune, "sensing");
	char text[200], why[200];

	printf("tuning is %s", ctl_string(tune, "mode", text));
	if (json_is_object(sensing)) {
		printf("; waits are measured by %s", strcmp(ctl_string(sensing, "source", text), "bpf") == 0
							 ? "BPF"
						     : strcmp(text, "client") == 0 ? "the clients themselves"
										   : "nobody yet");
		if (*ctl_string(sensing, "why", why))
			printf(" (%s)", why);
	}
	putchar('\n');
}

static void print_head(void)
{
	printf("%4s %7s %9s %5s %5s %5s", "JOB", "PID", "SAMPLES/S", "DEV", "FETCH", "PREP");
	for (int i = 0; i < TUNER_N_KNOBS; i++)
		printf(" %*s", knob_columns[i].width, knob_columns[i].head);
	printf("  %-8s %s\n", "PHASE", "NAME");
}

static int print_jobs(const struct option_verb *verb, const char *text)
{
	json_t *root = ctl_parse(verb, text, "diesel.jobs/1"), *jobs = json_object_get(root, "jobs"), *job;
	size_t i;

	if (!root)
		return CTL_FAILED;
	ctl_print_where(root);
	print_tune(json_object_get(root, "tune"));
	if (json_array_size(jobs) == 0)
		puts("no jobs");
	else
		print_head();
	json_array_foreach(jobs, i, job) print_job(job);
	json_decref(root);
	return ctl_finish(verb);
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	struct ctl_daemon_options o = CTL_DAEMON_OPTIONS_INIT;
	_cleanup_(freep) char *text = NULL;
	struct admin_client *admin = NULL;
	struct error err = ERROR_INIT;
	int exit_status, r;

	if (!ctl_options(verb, argc, argv, &o, &exit_status))
		return exit_status;
	if (optind != argc)
		return ctl_usage(verb, "expected no arguments");
	r = admin_open(o.socket, o.timeout_s, &admin, &err);
	if (r == 0)
		r = admin_jobs(admin, &text, &err);
	admin_close(admin);
	if (r < 0)
		return ctl_failed(verb, &err);
	if (!o.json)
		return print_jobs(verb, text);
	text_put_json(stdout, text);
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct ctl_daemon_options, member)

static const struct option_row jobs_rows[] = {
    CTL_DAEMON_ROWS(AT(json), AT(socket), AT(timeout_s)),
};

#undef AT

const struct option_verb ctl_jobs = {
    .name = "jobs",
    .arguments = NULL,
    .summary = "List jobs: speed, where they wait, and their knobs",
    .help = "A star marks a pinned knob (dieselctl set).\n",
    .about = "Lists the jobs that `dieseld`(8) serves, one per line. Each line has samples per second and "
	     "how the trainer's time divides: device, waiting for storage, waiting for preparation. It also "
	     "has the job's cache, prefetch, workers and decoded copies. A star marks a pinned knob. Users "
	     "see their own jobs, root sees all (see `--admin-user` of `dieseld`(8)).",
    OPTION_ROWS(jobs_rows),
    .run = run,
};
