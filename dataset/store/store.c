/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/store.h"

#include <errno.h>

#include "dataset/chunk_id.h"

#include "lib/cleanup.h"
#include "lib/file_open.h"

/* id NULL: nothing in particular. */
static int cannot(const struct store *s, const struct chunk_id *id, struct error *err)
{
	static const struct chunk_id any;
	char name[STORE_NAME_MAX];

	return error_set(err, -EOPNOTSUPP, "%s: chunks can be read here, and nothing else",
			 store_describe(s, id ? id : &any, name));
}

int store_open_at(int dir_fd, const char *dataset_path, bool create, struct store **ret, struct error *err)
{
	return store_posix_open_at(dir_fd, dataset_path, create, ret, err);
}

int store_open(const char *dataset_path, bool create, struct store **ret, struct error *err)
{
	_cleanup_(closep) int dir_fd = file_folder_open(dataset_path, create);

	return store_open_at(dir_fd, dataset_path, create, ret, err);
}

void store_free(struct store *s)
{
	if (s)
		s->ops->free(s);
}

int store_put(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
	      struct error *err)
{
	return s->ops->put ? s->ops->put(s, id, parts, n_parts, err) : cannot(s, id, err);
}

int store_replace(struct store *s, const struct chunk_id *id, const struct iovec *parts, int n_parts,
		  struct error *err)
{
	return s->ops->replace ? s->ops->replace(s, id, parts, n_parts, err) : cannot(s, id, err);
}

int store_size(struct store *s, const struct chunk_id *id, uint64_t *ret_bytes, struct error *err)
{
	return s->ops->size ? s->ops->size(s, id, ret_bytes, err) : cannot(s, id, err);
}

int store_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
	       struct error *err)
{
	return s->ops->read(s, id, offset, buffer, bytes, err);
}

int store_list(struct store *s, const struct chunk_id *after, struct store_object **ret, size_t *ret_n,
	       struct error *err)
{
	return s->ops->list ? s->ops->list(s, after, ret, ret_n, err) : cannot(s, after, err);
}

int store_remove(struct store *s, const struct chunk_id *id, struct error *err)
{
	return s->ops->remove ? s->ops->remove(s, id, err) : cannot(s, id, err);
}

int store_sweep(struct store *s, struct error *err)
{
	return s->ops->sweep ? s->ops->sweep(s, err) : cannot(s, NULL, err);
}

char *store_describe(const struct store *s, const struct chunk_id *id, char text[STORE_NAME_MAX])
{
	s->ops->describe(s, id, text, STORE_NAME_MAX);
	return text;
}
