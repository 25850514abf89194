/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/link.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

static double real(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

/* Returns true if the job had chunks from other nodes in the last seconds. */
static bool link_of(const json_t *job, struct report_link *ret)
{
	const json_t *now = json_object_get(job, "now");
	double bytes = real(now, "peer_chunk_bytes"), latency_s = real(now, "peer_latency_s");
	double bytes_per_s = real(now, "peer_bytes_per_s"), n = real(now, "nodes");

	if (!(bytes > 0) || !(latency_s > 0) || !(bytes_per_s > 0) || !(n >= 2) || !isfinite(bytes_per_s))
		return false;
	*ret = (struct report_link){.bytes_per_s = bytes_per_s,
				    .latency_s = fmax(latency_s - bytes / bytes_per_s, 0),
				    .job = (uint64_t)json_integer_value(json_object_get(job, "id")),
				    .n_nodes = (uint64_t)n};
	return true;
}

int report_link_read(FILE *stream, const char *name, struct report_link *ret, struct error *err)
{
	json_error_t problem;
	json_t *root = json_loadf(stream, JSON_REJECT_DUPLICATES, &problem);
	const char *schema = json_string_value(json_object_get(root, "schema"));
	const json_t *jobs = json_object_get(root, "jobs");
	struct report_link one;
	int r = 0;

	*ret = (struct report_link){0};
	if (!schema || strcmp(schema, "diesel.status/1") != 0)
		r = error_set(err, -EBADMSG,
			      "--link-from %s: not what dieselctl status --json of this version says", name);
	for (size_t i = 0; r == 0 && i < json_array_size(jobs); i++)
		if (link_of(json_array_get(jobs, i), &one) && one.bytes_per_s > ret->bytes_per_s)
			*ret = one;
	json_decref(root);
	if (r == 0 && !(ret->bytes_per_s > 0))
		r = error_set(
		    err, -ENODATA,
		    "--link-from %s: no job there has had chunks from other nodes in the last seconds, so "
		    "nothing was measured; ask while one reads, or give --link-mbps and --link-ms",
		    name);
	return r;
}
