/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/file_open.h"

static const struct backend_ops *registered;

void backend_register(const struct backend_ops *ops)
{
	registered = ops;
}

bool backend_is_elsewhere(const char *name)
{
	return registered && strncmp(name, registered->scheme, strlen(registered->scheme)) == 0;
}

int backend_open(const char *name, enum backend_mode mode, struct place **ret, struct error *err)
{
	struct place *p;

	if (backend_is_elsewhere(name))
		return registered->open(name, mode, 0, ret, err);
	p = calloc(1, sizeof(*p));
	if (!p || !(p->folder = strdup(name))) {
		free(p);
		return error_errno(err, -ENOMEM, "%s", name);
	}
	p->dir_fd = -EBADF;
	backend_open_folder(p, mode >= BACKEND_CHANGE);
	*ret = p;
	return 0;
}

void backend_open_folder(struct place *p, bool to_write)
{
	closep(&p->dir_fd);
	p->dir_fd = file_folder_open(p->folder, to_write);
}

int backend_open_version(const char *name, uint64_t version, struct place **ret, struct error *err)
{
	if (backend_is_elsewhere(name))
		return registered->open(name, BACKEND_SNAPSHOT, version, ret, err);
	return backend_open(name, BACKEND_SNAPSHOT, ret, err);
}

void backend_close(struct place *p)
{
	if (p && p->ops) {
		p->ops->close(p);
	} else if (p) {
		closep(&p->dir_fd);
		free(p->folder);
		free(p);
	}
}

int backend_store(struct place *p, bool create, struct store **ret, struct error *err)
{
	return p->ops ? p->ops->store(p, ret, err) : store_open_at(p->dir_fd, p->folder, create, ret, err);
}

int backend_publish(struct place *p, uint64_t version, const struct backend_keep *keep, struct error *err)
{
	return p->ops ? p->ops->publish(p, version, keep, err) : 0;
}

int backend_keep_version(struct place *p, uint64_t version, int fd, struct error *err)
{
	return p->ops && p->ops->keep_version
		   ? p->ops->keep_version(p, version, fd, err)
		   : error_set(err, -EOPNOTSUPP, "%s keeps no snapshots of earlier versions", p->folder);
}

int backend_remove(const char *name, uint64_t version, progress_callback *progress, void *context,
		   struct removal *ret, struct error *err)
{
	return backend_is_elsewhere(name) && registered->remove
		   ? registered->remove(name, version, progress, context, ret, err)
		   : error_set(err, -EOPNOTSUPP, "%s cannot be removed", name);
}
