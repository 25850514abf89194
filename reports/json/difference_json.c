/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/difference.h"

#include "analyzer/comparison.h"
#include "json_build.h"
#include "reports/words/difference_facts.h"

static json_t *share(const struct comparison_share *from)
{
	return JSON_OBJECT({"a", json_number(from->a)}, {"b", json_number(from->b)},
			   {"change", json_estimate(&from->change)},
			   {"significant", json_boolean(from->significant)});
}

static json_t *side(const struct analysis *analysis, const struct report_source *source, double steps_per_s)
{
	return JSON_OBJECT({"session", json_bytes(source ? source->recording : NULL)},
			   {"verdict", json_string(analysis_verdict_name(analysis->verdict))},
			   {"steps", json_count(report_n_steps(analysis))},
			   {"steps_per_s", json_number(steps_per_s)});
}

static json_t *facts(const struct report_difference *difference)
{
	struct difference_fact items[DIFFERENCE_FACTS_MAX];
	size_t n = difference_facts(difference, items);
	json_t *list = json_array();

	for (size_t i = 0; i < n; i++)
		json_append(&list, JSON_OBJECT({"name", json_string(items[i].name)},
					       {"a", json_bytes(items[i].a)}, {"b", json_bytes(items[i].b)}));
	return list;
}

int report_difference_json(FILE *stream, const struct report_difference *difference)
{
	const struct comparison *made = difference->comparison;
	json_t *shares = json_object();

	for (size_t i = 0; i < SHARE_COUNT; i++)
		json_set(&shares, analysis_share_name((enum analysis_share)i), share(&made->shares[i]));
	return json_write(JSON_OBJECT({"schema", json_string("diesel.diff/1")},
				      {"a", side(difference->a, difference->source_a, made->steps_per_s_a)},
				      {"b", side(difference->b, difference->source_b, made->steps_per_s_b)},
				      {"speed", json_estimate(&made->speed)},
				      {"faster", json_boolean(made->faster)},
				      {"slower", json_boolean(made->slower)},
				      {"verdict_changed", json_boolean(made->verdict_changed)},
				      {"stall", share(&made->stall)}, {"shares", shares},
				      {"confidence", json_real(0.99)}, {"differences", facts(difference)}),
			  stream, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
}
