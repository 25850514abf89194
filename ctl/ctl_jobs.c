/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl jobs: one line per job. */
#include "ctl_daemon.h"

#include <stdio.h>
#include <string.h>

#include "lib/json_read.h"

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

	printf("%4llu %7llu %9s", ctl_number(job, "id"), ctl_number(job, "pid"),
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

static void print_jobs(const json_t *root, const void *what)
{
	const json_t *jobs = json_object_get(root, "jobs");

	(void)what;
	ctl_print_where(root);
	print_tune(json_object_get(root, "tune"));
	if (json_array_size(jobs) == 0)
		puts("no jobs");
	else
		print_head();
	for (size_t i = 0; i < json_array_size(jobs); i++)
		print_job(json_array_get(jobs, i));
}

static int ask(struct admin_client *admin, const void *what, char **ret_json, struct error *err)
{
	(void)what;
	return admin_jobs(admin, ret_json, err);
}

static int run(const struct option_verb *verb, int argc, char **argv)
{
	static const struct ctl_question question = {"diesel.jobs/1", ask, print_jobs};

	return ctl_run_question(verb, argc, argv, &question);
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
