/* SPDX-License-Identifier: Apache-2.0 */
#include "place.h"

#include <stdlib.h>
#include <unistd.h>

#include "lib/list.h"

struct chunk_place *place_add(struct place_list *list, uint64_t mount_id, int fd, bool *ret_new)
{
	struct chunk_place *p = list->first;

	while (p && (p->mount_id != mount_id || mount_id == PLACE_MOUNT_UNKNOWN))
		p = p->next;
	*ret_new = !p;
	if (p) {
		close(fd);
		return place_ref(p);
	}
	p = calloc(1, sizeof(*p));
	if (!p) {
		close(fd);
		return NULL;
	}
	*p = (struct chunk_place){
	    .next = list->first, .list = list, .refs = 1, .mount_id = mount_id, .fd = fd};
	list->first = p;
	list->n_added++;
	return p;
}

struct chunk_place *place_ref(struct chunk_place *place)
{
	place->refs++;
	return place;
}

struct chunk_place *place_unref(struct chunk_place *place)
{
	if (!place || --place->refs > 0)
		return NULL;
	LL_DELETE(place->list->first, place);
	close(place->fd);
	free(place);
	return NULL;
}
