/* SPDX-License-Identifier: Apache-2.0 */
#include "node_report.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analyzer/share.h"
#include "daemon_status.h"
#include "census.h"
#include "ui/state/sample.h"
#include "lib/hash.h"
#include "lib/json_read.h"

#define JOBS_MAX 256 /* maximum jobs of a node; a daemon's report has space for fewer */

/* Sets *ret to a number from 0 to max; any other value stays unknown. */
static void get_real(const json_t *object, const char *key, double max, double *ret)
{
	double number = json_number_of(object, key);

	if (number >= 0 && number <= max)
		*ret = number;
}

/* Makes an id from the names of node and job: job numbers are unique only within a node. */
static void make_id(const char *node, uint64_t number, char *buffer, size_t size)
{
	uint64_t hash = hash_bytes(HASH_START, node, strlen(node));

	snprintf(buffer, size, "%016llx.%llu", (unsigned long long)hash, (unsigned long long)number);
}

static void fill_name(const json_t *from, struct job_sample *to)
{
	char command[512] = "", program[sizeof(to->name)] = "", job[64] = "";

	json_get_text(from, "name", command, sizeof(command));
	json_get_text(from, "job", job, sizeof(job));
	if (command[0])
		process_name(command, program, sizeof(program));
	if (job[0])
		snprintf(to->name, sizeof(to->name), "%s%s%.80s%s", job, program[0] ? " (" : "", program,
			 program[0] ? ")" : "");
	else
		snprintf(to->name, sizeof(to->name), "%s", program);
}

static int fill_job(const json_t *from, const char *node, double age_s, struct top_sample *sample)
{
	struct job_sample *to = sample_add(sample, SAMPLE_JOBS);
	const json_t *shares = json_object_get(from, "shares");
	uint64_t number = 0, uid = SAMPLE_UNKNOWN;

	if (!to)
		return -ENOMEM;
	json_get_count(from, "id", &number);
	make_id(node, number, to->id, sizeof(to->id));
	fill_name(from, to);
	snprintf(to->node, sizeof(to->node), "%s", node);
	snprintf(to->state, sizeof(to->state), "%s", age_s > NODE_SILENT_S ? "silent" : "running");
	snprintf(to->loader, sizeof(to->loader), "diesel");
	json_get_count(from, "uid", &uid);
	if (uid <= UINT32_MAX)
		snprintf(to->user, sizeof(to->user), "%llu", (unsigned long long)uid);
	json_get_text(from, "dataset", to->dataset, sizeof(to->dataset));
	json_get_text(from, "source", to->method, sizeof(to->method));
	json_get_count(from, "pid", &to->pid);
	get_real(from, "samples_per_s", 1e15, &to->served.samples_per_s);
	get_real(from, "steps_per_s", 1e15, &to->steps_per_s);
	get_real(from, "stall_s", 1e12, &to->stall_s);
	get_real(from, "measured_s", 1e12, &to->measured_s);
	for (int i = 0; i < SHARE_COUNT; i++)
		get_real(shares, analysis_share_name((enum analysis_share)i), 1, &to->share[i]);
	daemon_job_judge(to);
	to->age_s = age_s;
	return 0;
}

int node_report_fill(const char *json, const char *node, double age_s, struct top_sample *sample)
{
	json_t *root = json_loads(json, 0, NULL), *jobs = json_object_get(root, "jobs");
	const char *schema = json_string_value(json_object_get(root, "schema"));
	bool is_known = schema && strcmp(schema, "diesel.node/1") == 0;
	struct node_sample *to = sample_add(sample, SAMPLE_NODES);
	int r = to ? 0 : -ENOMEM;

	if (to) {
		snprintf(to->name, sizeof(to->name), "%s", node);
		snprintf(to->state, sizeof(to->state), "%s",
			 age_s > NODE_SILENT_S ? "silent"
			 : is_known            ? "up"
					       : "unknown");
		to->age_s = age_s;
	}
	if (to && is_known) {
		json_get_text(root, "version", to->version, sizeof(to->version));
		get_real(root, "uptime_s", 1e12, &to->uptime_s);
		json_get_count(root, "omitted", &to->n_omitted);
		to->n_jobs = json_array_size(jobs) + (to->n_omitted == SAMPLE_UNKNOWN ? 0 : to->n_omitted);
	}
	for (size_t i = 0; r == 0 && is_known && i < json_array_size(jobs) && i < JOBS_MAX; i++)
		r = fill_job(json_array_get(jobs, i), node, age_s, sample);
	json_decref(root);
	return r;
}
