/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions whose samples stay in the cache as views, although all have the same length. */
#include "tests/unit/daemon/node.h"

#include <errno.h>

#include "image/diesel_recipe.h"

#define N_SAMPLES 120
#define BATCH     16
#define ERROR     256

static const struct dataset_plan equal = {.n_samples = N_SAMPLES, .bytes = 64, .n_a_chunk = 7};

static struct diesel_session_options options(uint32_t flags)
{
	return (struct diesel_session_options){.flags = DIESEL_SHUFFLE | flags,
					       .seed = 5,
					       .world = 1,
					       .stride = 1,
					       .batch = BATCH,
					       .window_chunks = 2,
					       .reconnect_ms = 10000};
}

static struct diesel_session *open_session(struct diesel_dataset *dataset, uint32_t flags)
{
	const struct diesel_session_options o = options(flags);
	struct diesel_session *s;
	char error[ERROR];

	if (diesel_session_open(dataset, &o, &s, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	return s;
}

TEST_IN_FOLDER(the_same_samples_as_packed)
{
	char *path = make_dataset(*state, "data", &equal), error[ERROR];
	struct node node = {0};
	struct diesel_dataset *dataset;
	struct diesel_session *views, *packed;
	struct diesel_batch v, p;
	int r;

	node_start(&node, *state);
	if (diesel_dataset_open(path, node.socket, &dataset, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	views = open_session(dataset, DIESEL_VIEWS);
	packed = open_session(dataset, 0);
	for (int epoch = 0; epoch < 2; epoch++) {
		while ((r = diesel_session_next(views, &v)) == 0) {
			assert_int_equal(diesel_session_next(packed, &p), 0);
			assert_null(v.packed);
			assert_non_null(p.packed);
			assert_int_equal(v.n_items, p.n_items);
			for (uint32_t i = 0; i < v.n_items; i++) {
				assert_int_equal(v.items[i].sample, p.items[i].sample);
				assert_int_equal(v.labels[i], p.labels[i]);
				assert_true(node_item_is_right(&v, i));
				assert_true(node_item_is_right(&p, i));
			}
			diesel_batch_release(v.lease);
			diesel_batch_release(p.lease);
		}
		assert_int_equal(r, 1);
		assert_int_equal(diesel_session_next(packed, &p), 1);
	}
	diesel_session_close(views);
	diesel_session_close(packed);
	diesel_dataset_close(dataset);
	node_stop(&node);
	free(path);
}

TEST_IN_FOLDER(what_cannot_be_a_view)
{
	const struct recipe recipe = {
	    .kind = RECIPE_IMAGE, .shape = RECIPE_WHOLE, .width = 8, .height = 8, .filter = RECIPE_BILINEAR};
	struct diesel_session_options o = options(DIESEL_VIEWS);
	char *path = make_dataset(*state, "data", &equal), error[ERROR];
	struct node node = {0};
	struct diesel_dataset *dataset;
	struct diesel_session *s;

	node_start(&node, *state);
	if (diesel_dataset_open(path, node.socket, &dataset, error, sizeof(error)) < 0)
		fail_msg("%s", error);
	assert_int_equal(diesel_session_open(dataset, &o, &s, error, sizeof(error)), 0);
	diesel_session_close(s);
	o.recipe = &recipe;
	assert_int_equal(diesel_session_open(dataset, &o, &s, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "DIESEL_VIEWS"));
	o = options(0);
	o.field = "image";
	assert_int_equal(diesel_session_open(dataset, &o, &s, error, sizeof(error)), -EINVAL);
	assert_non_null(strstr(error, "have no fields"));
	diesel_dataset_close(dataset);
	node_stop(&node);
	free(path);
}
