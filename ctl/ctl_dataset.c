/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/sample.h"
#include "lib/cleanup.h"
#include "lib/text.h"

int ctl_dataset_open(const char *path, uint64_t version, bool from_meta, struct ctl_dataset *ret,
		     struct error *err)
{
	struct ctl_dataset d = {0};
	int r;

	if (version && from_meta)
		return error_set(err, -EINVAL, "--meta reads only the newest version: leave out --version");
	r = from_meta ? look_up_open(path, &d.look_up, err)
		      : dataset_open_version(path, version, &d.dataset, err);

	/* A snapshot can be missing on purpose, or because an error occurred after a commit. */
	if (r == -ENOENT && !from_meta && !version && look_up_open(path, &d.look_up, NULL) == 0)
		r = 0;
	if (r == 0)
		*ret = d;
	return r;
}

void ctl_dataset_closep(const struct ctl_dataset *d)
{
	dataset_close(d->dataset);
	look_up_close(d->look_up);
}

struct snapshot_sample ctl_sample_of(const struct meta_path *path)
{
	return (struct snapshot_sample){
	    .record = path->record_index,
	    .offset = path->record.offset,
	    .bytes = path->record.bytes,
	    .stored_bytes = path->record.stored_bytes,
	    .encoding = path->record.encoding,
	    .class_index = SNAPSHOT_NO_CLASS,
	    .xxh3 = path->record.xxh3,
	    .mtime_ns = path->record.mtime_ns,
	    .mode = path->record.mode,
	    .path = path->path,
	    .path_length = (uint16_t)path->path_length,
	};
}

int ctl_dataset_find(const struct ctl_dataset *d, const char *path, struct ctl_sample *ret, struct error *err)
{
	const struct snapshot *s = d->dataset ? dataset_snapshot(d->dataset) : NULL;
	struct ctl_sample one = {0};
	struct snapshot_chunk chunk = {0};
	uint64_t number;
	char text[200];
	int r = s ? snapshot_find(s, path, strlen(path), &number)
		  : look_up_find(d->look_up, path, strlen(path), &one.found, err);

	if (r == 0 && s &&
	    (snapshot_sample_stat(s, number, &one.sample) < 0 ||
	     snapshot_chunk_get(s, one.sample.chunk, &chunk) < 0))
		r = -ENOENT;
	if (r < 0)
		return err->code ? r
				 : error_set(err, r, "there is no sample '%s'; `dieselctl ls` lists them",
					     text_printable(text, sizeof(text), path, strlen(path)));
	if (!s)
		one.sample = ctl_sample_of(&one.found);
	one.chunk = s ? chunk.id : one.found.chunk;
	*ret = one;
	return 0;
}

int ctl_dataset_read(const struct ctl_dataset *d, const char *path, unsigned char **ret, uint32_t *ret_bytes,
		     struct error *err)
{
	_cleanup_(freep) unsigned char *data = NULL;
	struct ctl_sample one;
	int r = ctl_dataset_find(d, path, &one, err);

	if (r < 0)
		return r;
	data = malloc((size_t)one.sample.bytes + 1);
	if (!data)
		return error_errno(err, -ENOMEM, "a sample of %u bytes", one.sample.bytes);
	r = d->look_up ? look_up_read(d->look_up, &one.found, data, err)
		       : sample_read(dataset_snapshot(d->dataset), dataset_store(d->dataset), &one.sample,
				     data, one.sample.bytes, err);
	if (r == 0) {
		*ret = steal_pointer(data);
		*ret_bytes = one.sample.bytes;
	}
	return r;
}
