/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl_dataset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dataset/sample.h"
#include "lib/cleanup.h"

int ctl_dataset_open(const char *path, uint64_t version, bool from_meta, struct ctl_dataset *ret,
		     struct error *err)
{
	struct ctl_dataset d = {0};
	int r;

	if (version && from_meta)
		return error_set(err, -EINVAL, "--meta has the newest version alone: leave out --version");
	r = from_meta ? look_up_open(path, &d.look_up, err)
		      : dataset_open_version(path, version, &d.dataset, err);

	/* A snapshot can be missing where something went wrong after a commit, or on purpose. */
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

int ctl_dataset_read(const struct ctl_dataset *d, const char *path, unsigned char **ret, uint32_t *ret_bytes,
		     struct error *err)
{
	_cleanup_(freep) unsigned char *data = NULL;
	struct meta_path found;
	struct snapshot_sample sample;
	uint64_t number;
	int r;

	if (d->look_up)
		r = look_up_find(d->look_up, path, strlen(path), &found, err);
	else if ((r = snapshot_find(dataset_snapshot(d->dataset), path, strlen(path), &number)) == 0)
		r = snapshot_sample_get(dataset_snapshot(d->dataset), number, &sample) < 0 ? -ENOENT : 0;
	if (r < 0)
		return r;
	if (d->look_up)
		sample = ctl_sample_of(&found);
	data = malloc((size_t)sample.bytes + 1);
	if (!data)
		return error_errno(err, -ENOMEM, "a sample of %u bytes", sample.bytes);
	r = d->look_up ? look_up_read(d->look_up, &found, data, err)
		       : sample_read(dataset_snapshot(d->dataset), dataset_store(d->dataset), &sample, data,
				     sample.bytes, err);
	if (r == 0) {
		*ret = steal_pointer(data);
		*ret_bytes = sample.bytes;
	}
	return r;
}
