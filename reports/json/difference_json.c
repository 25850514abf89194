/* SPDX-License-Identifier: Apache-2.0 */
#include "reports/difference.h"

#include <errno.h>

#include "analyzer/comparison.h"
#include "reports/words/difference_facts.h"
#include "json_build.h"

static json_t *share(const struct comparison_share *from)
{
	json_t *object = json_object();
	int r = 0;

	r |= json_object_set_new(object, "a", json_number(from->a));
	r |= json_object_set_new(object, "b", json_number(from->b));
	r |= json_object_set_new(object, "change", json_estimate(&from->change));
	r |= json_object_set_new(object, "significant", json_boolean(from->significant));
	return json_whole(object, r);
}

static json_t *side(const struct analysis *analysis, const struct report_source *source, double steps_per_s)
{
	json_t *object = json_object();
	int r = 0;

	r |= json_object_set_new(object, "session", json_bytes(source ? source->recording : NULL));
	r |= json_object_set_new(object, "verdict", json_string(analysis_verdict_name(analysis->verdict)));
	r |= json_object_set_new(object, "steps", json_count(report_n_steps(analysis)));
	r |= json_object_set_new(object, "steps_per_s", json_number(steps_per_s));
	return json_whole(object, r);
}

static json_t *facts(const struct report_difference *difference)
{
	struct difference_fact items[DIFFERENCE_FACTS_MAX];
	size_t n = difference_facts(difference, items);
	json_t *list = json_array();
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		json_t *item = json_object();

		r |= json_object_set_new(item, "name", json_string(items[i].name));
		r |= json_object_set_new(item, "a", json_bytes(items[i].a));
		r |= json_object_set_new(item, "b", json_bytes(items[i].b));
		r |= json_array_append_new(list, item);
	}
	return json_whole(list, r);
}

int report_difference_json(FILE *stream, const struct report_difference *difference)
{
	const struct comparison *made = difference->comparison;
	json_t *root = json_object(), *shares = json_object();
	int r = 0;

	for (size_t i = 0; i < SHARE_COUNT; i++)
		r |= json_object_set_new(shares, analysis_share_name((enum analysis_share)i),
					 share(&made->shares[i]));
	r |= json_object_set_new(root, "schema", json_string("diesel.diff/1"));
	r |= json_object_set_new(root, "a", side(difference->a, difference->source_a, made->steps_per_s_a));
	r |= json_object_set_new(root, "b", side(difference->b, difference->source_b, made->steps_per_s_b));
	r |= json_object_set_new(root, "speed", json_estimate(&made->speed));
	r |= json_object_set_new(root, "faster", json_boolean(made->faster));
	r |= json_object_set_new(root, "slower", json_boolean(made->slower));
	r |= json_object_set_new(root, "verdict_changed", json_boolean(made->verdict_changed));
	r |= json_object_set_new(root, "stall", share(&made->stall));
	r |= json_object_set_new(root, "shares", shares);
	r |= json_object_set_new(root, "confidence", json_real(0.99));
	r |= json_object_set_new(root, "differences", facts(difference));
	return json_write(json_whole(root, r), stream, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
}
