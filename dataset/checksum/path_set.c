/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/path_set.h"

#include <errno.h>
#include <stdlib.h>

#include "checksum.h"

#define FIRST_SLOTS 1024 /* initial number of slots, a power of two */

/* Returns the slot that holds the wanted entry, or a free slot for it. */
static struct path_set_slot *find(const struct path_set *s, const struct path_set_slot *wanted)
{
	for (size_t i = wanted->low & (s->n_slots - 1);; i = (i + 1) & (s->n_slots - 1)) {
		struct path_set_slot *slot = &s->slots[i];

		if ((slot->low == wanted->low && slot->high == wanted->high) || (!slot->low && !slot->high))
			return slot;
	}
}

static int grow(struct path_set *s)
{
	struct path_set grown = {.n = s->n, .n_slots = s->n_slots ? 2 * s->n_slots : FIRST_SLOTS};

	grown.slots = calloc(grown.n_slots, sizeof(*grown.slots));
	if (!grown.slots)
		return -ENOMEM;
	for (size_t i = 0; i < s->n_slots; i++)
		if (s->slots[i].low || s->slots[i].high)
			*find(&grown, &s->slots[i]) = s->slots[i];
	free(s->slots);
	*s = grown;
	return 0;
}

static struct path_set_slot slot_of(const char *path, size_t length)
{
	struct checksum_128 checksum = checksum_xxh3_128(path, length);

	return (struct path_set_slot){checksum.low, checksum.high | (!checksum.low && !checksum.high)};
}

bool path_set_has(const struct path_set *s, const char *path, size_t length)
{
	const struct path_set_slot wanted = slot_of(path, length);

	if (s->n == 0)
		return false;
	const struct path_set_slot *slot = find(s, &wanted);

	return slot->low || slot->high;
}

int path_set_add(struct path_set *s, const char *path, size_t length)
{
	const struct path_set_slot wanted = slot_of(path, length);

	if (s->n_slots == 0 || s->n >= s->n_slots / 4 * 3) {
		int r = grow(s);

		if (r < 0)
			return r;
	}
	struct path_set_slot *slot = find(s, &wanted);
	bool is_new = !slot->low && !slot->high;

	*slot = wanted;
	s->n += is_new;
	return is_new;
}

void path_set_free(struct path_set *s)
{
	free(s->slots);
	*s = (struct path_set){0};
}
