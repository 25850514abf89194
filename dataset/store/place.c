/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/file_open.h"

static const struct place_ops *registered;

void place_register(const struct place_ops *ops)
{
	registered = ops;
}

bool place_is_elsewhere(const char *name)
{
	return registered && strncmp(name, registered->scheme, strlen(registered->scheme)) == 0;
}

int place_open(const char *name, enum place_mode mode, struct place **ret, struct error *err)
{
	struct place *p;

	if (place_is_elsewhere(name))
		return registered->open(name, mode, 0, ret, err);
	p = calloc(1, sizeof(*p));
	if (!p || !(p->folder = strdup(name))) {
		free(p);
		return error_errno(err, -ENOMEM, "%s", name);
	}
	p->dir_fd = -EBADF;
	place_open_folder(p, mode >= PLACE_CHANGE);
	*ret = p;
	return 0;
}

void place_open_folder(struct place *p, bool to_write)
{
	closep(&p->dir_fd);
	p->dir_fd = file_folder_open(p->folder, to_write);
}

int place_open_version(const char *name, uint64_t version, struct place **ret, struct error *err)
{
	if (place_is_elsewhere(name))
		return registered->open(name, PLACE_SNAPSHOT, version, ret, err);
	return place_open(name, PLACE_SNAPSHOT, ret, err);
}

void place_close(struct place *p)
{
	if (p && p->ops) {
		p->ops->close(p);
	} else if (p) {
		closep(&p->dir_fd);
		free(p->folder);
		free(p);
	}
}

int place_store(struct place *p, bool create, struct store **ret, struct error *err)
{
	return p->ops ? p->ops->store(p, ret, err) : store_open_at(p->dir_fd, p->folder, create, ret, err);
}

int place_publish(struct place *p, uint64_t version, const struct place_keep *keep, struct error *err)
{
	return p->ops ? p->ops->publish(p, version, keep, err) : 0;
}
