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

#define EXTRACT        "extract them into one folder"
#define INDEX          "index them in place with dieselctl index FOLDER --output DATASET"
#define WRITE          "write its samples with diesel_loader.create()"
#define IMPORT(format) "import them with dieselctl pack " format ":FOLDER DATASET"

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
    {"", ".chunk", {"chunks of a DIESEL dataset", "copy the dataset with cp -r"}},
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
	static const char *const words[] = {"dieselctl", "FOLDER", "DATASET"};
	const struct container *container = container_of_path(path);
	const char *rest, *by[] = {"`dieselctl", path, path}, *after[] = {"", "", ".diesel"};
	int length = (int)strlen(path);
	bool has_command;
	FILE *text;

	if (!container)
		container = container_in_folder(path);
	text = container ? fmemopen(buffer, size, "w") : NULL;
	if (!text)
		return false;
	while (length > 1 && path[length - 1] == '/')
		length--;
	fprintf(text, "its samples are in %s, so ", container->what);
	has_command = strstr(container->instead, words[0]);
	for (rest = container->instead; *rest;) {
		size_t i = 0;

		while (i < 3 && strncmp(rest, words[i], strlen(words[i])) != 0)
			i++;
		if (i == 3) {
			fputc(*rest++, text);
			continue;
		}
		fprintf(text, "%.*s%s", i ? length : (int)strlen(by[0]), by[i], after[i]);
		rest += strlen(words[i]);
	}
	if (has_command)
		fputc('`', text);
	fclose(text);
	buffer[size - 1] = '\0';
	return true;
}
