/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/container.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct container_kind {
	/* start and end of a file's name, ignoring case; a suffix with a final '-' may be anywhere */
	const char *prefix, *suffix;
	struct container container;
};

/* Members of struct container behind `what`. */
#define EXTRACT "extract them into one folder", NULL, NULL
#define WRITE   "write its samples with diesel_loader.create()", NULL, NULL
#define COPY    "copy the dataset with cp -r", NULL, NULL
#define COMMAND(does, before, between)                                                                       \
	does " with " before "FOLDER" between "DATASET", does " with `" before, between
#define INDEX          COMMAND("index them in place", "dieselctl index ", " --output ")
#define IMPORT(format) COMMAND("import them", "dieselctl pack " format ":", " ")

static const struct container_kind kinds[] = {
    {"data.mdb", "data.mdb", {"LMDB files", INDEX}},
    {"lock.mdb", "lock.mdb", {"LMDB files", INDEX}},
    {"", ".lmdb", {"LMDB files", INDEX}},
    {"", ".tar", {"tar archives", INDEX}},
    {"", ".tar.gz", {"tar archives", EXTRACT}},
    {"", ".tgz", {"tar archives", EXTRACT}},
    {"", ".tar.zst", {"tar archives", EXTRACT}},
    {"", ".tar.xz", {"tar archives", EXTRACT}},
    {"", ".tar.bz2", {"tar archives", EXTRACT}},
    {"", ".zip", {"zip archives", INDEX}},
    {"", ".7z", {"7z archives", EXTRACT}},
    {"", ".rar", {"rar archives", EXTRACT}},
    {"", ".parquet", {"Parquet files", IMPORT("parquet")}},
    {"", ".arrow", {"Arrow files", IMPORT("hf")}},
    {"", ".feather", {"Arrow files", WRITE}},
    {"", ".mds", {"shards of MosaicML Streaming", INDEX}},
    {"", ".mds.zstd", {"shards of MosaicML Streaming", IMPORT("mds")}},
    {"shard.0", "", {"shards of MosaicML Streaming", WRITE}},
    {"chunk-0-", ".zstd.bin", {"chunks of LitData", IMPORT("litdata")}},
    {"chunk-0-", ".bin", {"chunks of LitData", INDEX}},
    {"", ".beton", {"FFCV datasets", WRITE}},
    {"", ".tfrecord", {"TFRecord files", IMPORT("tfrecord")}},
    {"", ".tfrecords", {"TFRecord files", IMPORT("tfrecord")}},
    {"", ".tfrecord-", {"TFRecord files", IMPORT("tfrecord")}}, /* train.tfrecord-00000-of-00010 */
    {"", ".array_record", {"ArrayRecord files", IMPORT("arrayrecord")}},
    {"", ".arrayrecord", {"ArrayRecord files", IMPORT("arrayrecord")}},
    {"", ".rec", {"RecordIO files", WRITE}},
    {"", ".hdf5", {"HDF5 files", WRITE}},
    {"", ".h5", {"HDF5 files", WRITE}},
    {"", ".chunk", {"chunks of a DIESEL dataset", COPY}},
};

static bool begins_with(const char *name, const char *prefix)
{
	return strncasecmp(name, prefix, strlen(prefix)) == 0;
}

static bool ends_in(const char *name, const char *suffix)
{
	size_t length = strlen(name), n = strlen(suffix);

	return length >= n && strcasecmp(name + length - n, suffix) == 0;
}

static bool is_of(const struct container_kind *kind, const char *name)
{
	return begins_with(name, kind->prefix) &&
	       (ends_in(name, kind->suffix) ||
		(ends_in(kind->suffix, "-") && strcasestr(name, kind->suffix)));
}

const struct container *container_of_path(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (is_of(&kinds[i], name))
			return &kinds[i].container;
	return NULL;
}

static const struct container *container_in_folder(const char *path)
{
	const struct container *found = NULL;
	DIR *folder = opendir(path);

	for (const struct dirent *e; folder && !found && (e = readdir(folder));)
		found = e->d_name[0] == '.' ? NULL : container_of_path(e->d_name);
	if (folder)
		closedir(folder);
	return found;
}

bool container_advise(const char *path, char *buffer, size_t size)
{
	const struct container *container = container_of_path(path);
	int length = (int)strlen(path);

	if (!container)
		container = container_in_folder(path);
	if (!container)
		return false;
	while (length > 1 && path[length - 1] == '/')
		length--;
	if (container->command)
		snprintf(buffer, size, "its samples are in %s, so %s%.*s%s%.*s.diesel`", container->what,
			 container->command, length, path, container->between, length, path);
	else
		snprintf(buffer, size, "its samples are in %s, so %s", container->what, container->instead);
	return true;
}
