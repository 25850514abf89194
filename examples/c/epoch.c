/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads one epoch of a dataset, shuffled, and prints the samples of each class.
 *
 *	epoch DATASET [SIDE]
 *
 * With SIDE, samples are images, which dieseld decodes: a random part of each, SIDE x SIDE pixels, RGB.
 * Without SIDE, samples come as they are stored. The daemon is the node's, or the one that DIESEL_SOCKET
 * names.
 *
 *	cc -O2 -o epoch epoch.c $(pkg-config --cflags --libs diesel)
 */
#include <diesel/diesel.h>
#include <diesel/diesel_recipe.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct epoch_sum {
	uint64_t samples, bytes;
	uint64_t sum; /* sum of all bytes; each byte is read, as in a job */
};

/* Matches torchvision's RandomResizedCrop and RandomHorizontalFlip. */
static struct recipe recipe_of_images(uint32_t side)
{
	return (struct recipe){
	    .kind = RECIPE_IMAGE,
	    .shape = RECIPE_RANDOM_BOX,
	    .width = side,
	    .height = side,
	    .filter = RECIPE_BILINEAR,
	    .type = RECIPE_UINT8,
	    .flags = RECIPE_ROWS,
	    .damage = RECIPE_DAMAGE_SKIP,
	    .scale = {0.08, 1},
	    .ratio = {3.0 / 4, 4.0 / 3},
	    .flip_sideways = 0.5,
	};
}

/* Adds a batch to tallies[n_classes + 1], of which the last one counts samples without a class. */
static void tally_batch(const struct diesel_batch *batch, struct epoch_sum *tallies, uint32_t n_classes)
{
	for (uint32_t i = 0; i < batch->n_items; i++) {
		const struct diesel_item *item = &batch->items[i];
		struct epoch_sum *t = &tallies[item->label < 0 ? n_classes : (uint32_t)item->label];
		/* A packed batch is one array; otherwise, each sample has its own address. */
		const uint8_t *data =
		    batch->packed ? batch->packed + (size_t)i * batch->item_bytes : item->data;

		t->samples++;
		t->bytes += item->bytes;
		for (uint32_t k = 0; k < item->bytes; k++)
			t->sum += data[k];
	}
}

/* Returns the number of damaged samples, or a negative errno. */
static int64_t run_epoch(struct diesel_session *session, struct epoch_sum *tallies, uint32_t n_classes)
{
	struct diesel_batch batch;
	int64_t damaged = 0;
	int r;

	while ((r = diesel_session_next(session, &batch)) != 1) {
		const char *notice = diesel_session_notice(session);

		if (notice)
			fprintf(stderr, "%s\n", notice);
		if (r == -EINTR) /* the connection to the daemon is lost: wait for it */
			continue;
		if (r < 0)
			return r;
		tally_batch(&batch, tallies, n_classes);
		damaged += batch.n_damaged;
		diesel_batch_release(batch.lease);
	}
	return damaged;
}

static void print(const struct diesel_dataset *dataset, const struct epoch_sum *tallies, uint32_t n_classes)
{
	for (uint32_t i = 0; i <= n_classes; i++) {
		const char *name = "(no class)";
		size_t length = 10;

		if (tallies[i].samples == 0)
			continue;
		if (i < n_classes)
			diesel_dataset_class(dataset, i, &name, &length);
		printf("%.*s: %" PRIu64 " samples, %" PRIu64 " bytes, %.1f on average\n", (int)length, name,
		       tallies[i].samples, tallies[i].bytes,
		       tallies[i].bytes ? (double)tallies[i].sum / (double)tallies[i].bytes : 0.0);
	}
}

static int fail(const char *line)
{
	fprintf(stderr, "epoch: %s\n", line);
	return 1;
}

static int use(struct diesel_dataset *dataset, const struct diesel_session_options *options)
{
	struct diesel_dataset_info info;
	struct diesel_session *session;
	struct epoch_sum *tallies;
	char error[512];
	int64_t damaged;

	diesel_dataset_info(dataset, &info);
	if (diesel_session_open(dataset, options, &session, error, sizeof(error)) < 0)
		return fail(error);
	tallies = calloc(info.n_classes + 1, sizeof(*tallies));
	damaged = tallies ? run_epoch(session, tallies, info.n_classes) : 0;
	if (!tallies)
		fail("no memory");
	else if (damaged < 0)
		fail(diesel_session_error(session));
	else
		print(dataset, tallies, info.n_classes);
	if (damaged > 0)
		fprintf(stderr, "epoch: %" PRId64 " samples are damaged\n", damaged);
	diesel_session_close(session);
	free(tallies);
	return !tallies || damaged != 0;
}

int main(int argc, char **argv)
{
	struct diesel_session_options options = {
	    .flags = DIESEL_SHUFFLE,
	    .seed = 1,
	    .world = 1, /* one rank, one session */
	    .stride = 1,
	    .batch = 64,
	    .reconnect_ms = 60000,
	};
	struct diesel_dataset *dataset;
	struct recipe recipe;
	char error[512], *end;
	int status;

	if (argc != 2 && argc != 3) {
		fprintf(stderr, "usage: epoch DATASET [SIDE]\n");
		return 2;
	}
	if (argc == 3) {
		unsigned long side = strtoul(argv[2], &end, 10);

		if (*end || end == argv[2] || side > UINT32_MAX)
			return fail("invalid SIDE: must be a number of pixels");
		recipe = recipe_of_images((uint32_t)side);
		options.recipe = &recipe;
	}
	if (diesel_dataset_open(argv[1], NULL, &dataset, error, sizeof(error)) < 0)
		return fail(error);
	status = use(dataset, &options);
	diesel_dataset_close(dataset);
	return status;
}
