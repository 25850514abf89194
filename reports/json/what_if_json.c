/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/what_if.h"

#include <errno.h>

#include "analyzer/analysis.h"
#include "json_build.h"

static json_t *shares(double device, double fetch_stall, double prep_stall)
{
	json_t *object = json_object();
	int r = 0;

	r |= json_object_set_new(object, "device", json_number(device));
	r |= json_object_set_new(object, "fetch_stall", json_number(fetch_stall));
	r |= json_object_set_new(object, "prep_stall", json_number(prep_stall));
	return json_whole(object, r);
}

static json_t *question(const struct what_if_question *from)
{
	json_t *object = json_object();
	int r = 0;

	r |= json_object_set_new(object, "cache_ratio", json_number(from->cache_ratio));
	r |= json_object_set_new(object, "workers", json_number(from->n_workers));
	r |= json_object_set_new(object, "cores", json_number(from->n_cores));
	r |= json_object_set_new(object, "storage_bytes_per_s", json_number(from->storage_bytes_per_s));
	r |= json_object_set_new(object, "storage_speed", json_number(from->storage_factor));
	r |= json_object_set_new(object, "device_speed", json_number(from->device_factor));
	r |= json_object_set_new(object, "sample_size", json_number(from->sample_factor));
	r |= json_object_set_new(object, "nodes", json_number(from->n_nodes));
	r |= json_object_set_new(object, "native", json_boolean(from->native));
	r |= json_object_set_new(object, "decoded_ratio", json_number(from->decoded_ratio));
	return json_whole(object, r);
}

static json_t *answer(const struct what_if_answer *from)
{
	json_t *object = json_object();
	int r = 0;

	r |= json_object_set_new(object, "speedup", json_estimate(&from->speedup));
	r |= json_object_set_new(object, "steps_per_s", json_estimate(&from->steps_per_s));
	r |= json_object_set_new(object, "bound_by",
				 json_string(what_if_bound(from->fetch_stall, from->prep_stall)));
	r |= json_object_set_new(object, "cached_ratio", json_number(from->cached_ratio));
	r |= json_object_set_new(object, "shares", shares(from->device, from->fetch_stall, from->prep_stall));
	r |= json_object_set_new(
	    object, "recorded_shares",
	    shares(from->recorded_device, from->recorded_fetch_stall, from->recorded_prep_stall));
	return json_whole(object, r);
}

int report_what_if_json(FILE *stream, const struct report_what_if *what_if)
{
	const struct predictions *predictions = what_if->analysis->predictions;
	json_t *root = json_object();
	int r = 0;

	r |= json_object_set_new(root, "schema", json_string("diesel.what-if/1"));
	r |= json_object_set_new(root, "session", json_bytes(what_if->recording));
	r |= json_object_set_new(root, "recorded_steps_per_s", json_number(1 / predictions->recorded_step_s));
	r |= json_object_set_new(root, "question",
				 predictions->answer ? question(&what_if->question) : json_null());
	r |= json_object_set_new(root, "answer",
				 predictions->answer ? answer(predictions->answer) : json_null());
	r |= json_set_predictions(root, what_if->analysis);
	return json_write(json_whole(root, r), stream, JSON_INDENT(1));
}
