/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/what_if.h"

#include "analyzer/analysis.h"
#include "json_build.h"

static json_t *shares(double device, double fetch_stall, double prep_stall)
{
	return JSON_OBJECT({"device", json_number(device)}, {"fetch_stall", json_number(fetch_stall)},
			   {"prep_stall", json_number(prep_stall)});
}

static json_t *question(const struct what_if_question *from)
{
	return JSON_OBJECT({"cache_ratio", json_number(from->cache_ratio)},
			   {"workers", json_number(from->n_workers)}, {"cores", json_number(from->n_cores)},
			   {"storage_bytes_per_s", json_number(from->storage_bytes_per_s)},
			   {"storage_speed", json_number(from->storage_factor)},
			   {"device_speed", json_number(from->device_factor)},
			   {"sample_size", json_number(from->sample_factor)},
			   {"nodes", json_number(from->n_nodes)}, {"native", json_boolean(from->native)},
			   {"decoded_ratio", json_number(from->decoded_ratio)});
}

static json_t *answer(const struct what_if_answer *from)
{
	return JSON_OBJECT({"speedup", json_estimate(&from->speedup)},
			   {"steps_per_s", json_estimate(&from->steps_per_s)},
			   {"bound_by", json_string(what_if_bound(from->fetch_stall, from->prep_stall))},
			   {"cached_ratio", json_number(from->cached_ratio)},
			   {"shares", shares(from->device, from->fetch_stall, from->prep_stall)},
			   {"recorded_shares", shares(from->recorded_device, from->recorded_fetch_stall,
						      from->recorded_prep_stall)});
}

int report_what_if_json(FILE *stream, const struct report_what_if *what_if)
{
	const struct predictions *from = what_if->analysis->predictions;

	return json_write(JSON_OBJECT({"schema", json_string("diesel.what-if/1")},
				      {"session", json_bytes(what_if->recording)},
				      {"recorded_steps_per_s", json_number(1 / from->recorded_step_s)},
				      {"question", from->answer ? question(&what_if->question) : json_null()},
				      {"answer", from->answer ? answer(from->answer) : json_null()},
				      {"predictions", json_predictions(what_if->analysis)}),
			  stream, JSON_INDENT(1));
}
