/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of users, which stay when their jobs end. */
#include "metrics_private.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "job_events.h"
#include "lib/cleanup.h"

#define AMOUNT(member) offsetof(struct usage_amounts, member)

static const struct {
	const char *name, *type, *help, *label; /* name NULL: another label of the same */
	size_t offset;
	double scale;
} figures[] = {
    {"diesel_user_jobs_total", "counter", "Jobs of the user that began.", "", AMOUNT(jobs), 1},
    {"diesel_user_samples_total", "counter", "Samples made ready for the user's jobs.", "", AMOUNT(samples),
     1},
    {"diesel_user_bytes_total", "counter", "Bytes made ready for the user's jobs.", "", AMOUNT(bytes), 1},
    {"diesel_user_read_bytes_total", "counter", "Bytes read from storage for the user's jobs.", "",
     AMOUNT(read_bytes), 1},
    {"diesel_user_node_bytes_total", "counter", "Bytes that came from other nodes for the user's jobs.", "",
     AMOUNT(node_bytes), 1},
    {"diesel_user_cache_bytes", "gauge",
     "Memory that counts for the user's jobs: of what several users have open, an equal part.", "",
     AMOUNT(cache_bytes), 1},
    {"diesel_user_cache_byte_seconds_total", "counter", "That memory, times the time for which they had it.",
     "", AMOUNT(cache_kib_s), 1024},
    {"diesel_user_cpu_seconds_total", "counter",
     "CPU time of the daemon's workers and decoders for the user's jobs.", "", AMOUNT(cpu_ns), 1e-9},
    {"diesel_user_wait_seconds_total", "counter",
     "Time the user's loaders slept for a batch, as they report it.", ",stall=\"fetch\"",
     AMOUNT(wait_fetch_ns), 1e-9},
    {NULL, NULL, NULL, ",stall=\"preprocess\"", AMOUNT(wait_prep_ns), 1e-9},
};

static void write_row(FILE *text, const char *name, size_t i, const struct usage_row *row)
{
	char uid[16] = USAGE_OTHER;
	const char *account = row->account, *pod_namespace = row->pod_namespace;
	uint64_t value;

	if (row->is_other_user)
		account = pod_namespace = USAGE_OTHER;
	else
		snprintf(uid, sizeof(uid), "%" PRIu32, row->uid);
	memcpy(&value, (const char *)&row->amounts + figures[i].offset, sizeof(value));
	fprintf(text, "%s{uid=\"%s\",account=\"%s\",job_namespace=\"%s\"%s} %.15g\n", name, uid, account,
		pod_namespace, figures[i].label, (double)value * figures[i].scale);
}

void metrics_users_text(FILE *text, const struct job_events *events)
{
	_cleanup_(freep) struct usage_totals *usage = calloc(1, sizeof(*usage));
	const char *name = NULL;
	const struct usage_row *row;

	if (!usage)
		return;
	job_events_usage(events, usage);
	for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
		if (figures[i].name) {
			name = figures[i].name;
			metrics_head(text, name, figures[i].type, figures[i].help);
		}
		for (uint32_t k = 0; (row = usage_row_at(usage, k)); k++)
			write_row(text, name, i, row);
	}
}
