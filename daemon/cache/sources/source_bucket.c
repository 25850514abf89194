/* SPDX-License-Identifier: Apache-2.0 */
/* Storage: chunks in a bucket, read by the user's own processes (fetcher.h). */
#include "source.h"

#include "daemon/fetch/fetcher.h"

static void *bucket_find(struct chunk_load *l, const struct cached_want *want)
{
	(void)want;
	return l->dataset->identity.is_fetched ? &l->dataset->fetchers : NULL;
}

static int bucket_begin(struct chunk_load *l)
{
	return fetchers_submit(l->storage.state, l->cache->pool, &l->job->lane, &l->read,
			       l->dataset->identity.chunks_dev, l->segment->memory.fd);
}

const struct chunk_source source_bucket = {
    .kind = SOURCE_STORAGE,
    .find = bucket_find,
    .begin = bucket_begin,
};
