/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl snapshot: writes the snapshot of the newest or an earlier version again, or removes the metadata
 * (--frozen). */
#include "ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "dataset/frozen.h"
#include "dataset/meta.h"
#include "dataset/backend.h"
#include "dataset/snapshot.h"
#include "dataset/version.h"
#include "dataset/writer.h"
#include "lib/cleanup.h"
#include "lib/file_open.h"
#include "lib/progress.h"
#include "lib/units.h"

/* Completes a freeze that was interrupted after it had marked the dataset as frozen. */
static int freeze_again(const char *dataset, struct error *err)
{
	_cleanup_(closep) int folder_fd = file_folder_open(dataset, true);
	_cleanup_(closep) int fd =
	    folder_fd < 0 ? folder_fd : openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct writer_sign sign;

	if (fd < 0)
		return file_error(err, folder_fd < 0 ? folder_fd : -errno, "open", dataset);
	if (!frozen_is(fd, "."))
		return error_set(err, -EBUSY,
				 "%s was changed by another program meanwhile: run the same command again",
				 dataset);
	if (writer_at_work(dataset, &sign))
		return error_set(err, -EBUSY,
				 "%s is being changed by another program: run the same command again",
				 dataset);
	return frozen_drop_metadata(fd, dataset, err);
}

static int freeze(const char *dataset, struct error *err)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	int r;

	if (!backend_is_elsewhere(dataset) && frozen_is(AT_FDCWD, dataset))
		return freeze_again(dataset, err);
	r = writer_open(dataset, WRITER_CHANGE, CHUNK_DEFAULT_BYTES, &w, err);
	return r < 0 ? r : writer_freeze(w, err);
}

static int write_snapshot(const char *dataset, struct error *err)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	struct progress bar = {0};
	int r = writer_open(dataset, WRITER_CHANGE, CHUNK_DEFAULT_BYTES, &w, err);

	if (r < 0)
		return r;
	writer_show(w, progress_show, &bar);
	r = writer_snapshot(w, err);
	progress_end(&bar);
	return r;
}

/* Writes the snapshot of an earlier version. Needs no lock: the chunks of that version do not change.
 */
static int keep_version(const char *dataset, uint64_t version, struct snapshot **ret, struct error *err)
{
	_cleanup_(writer_freep) struct writer *w = NULL;
	_cleanup_(closep) int fd = -EBADF;
	struct place *place = NULL;
	char path[PATH_MAX];
	int r = version_open(dataset, version, &place, err);

	if (r == 0 && place->version != version) { /* `version` is the newest one */
		backend_close(place);
		r = write_snapshot(dataset, err);
		return r < 0 ? r : snapshot_open(dataset, ret, err);
	}
	if (r == 0) {
		snprintf(path, sizeof(path), "%s/" SNAPSHOT_FILE, place->folder);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		r = fd < 0 ? error_errno(err, -errno, "cannot open %s", path) : 0;
	}
	if (r == 0)
		r = writer_open(dataset, WRITER_CHANGE, CHUNK_DEFAULT_BYTES, &w, err);
	if (r == 0)
		r = writer_keep_version(w, version, fd, err);
	if (r == 0)
		r = snapshot_open_fd(fd, path, ret, err);
	backend_close(place);
	return r;
}

static void print_snapshot(const struct snapshot_info *info, bool frozen, bool json)
{
	if (json)
		printf("{\"schema\": \"diesel.snapshot/1\", \"version\": %llu, \"samples\": %llu, "
		       "\"chunks\": %llu, \"frozen\": %s}\n",
		       (unsigned long long)info->version, (unsigned long long)info->n_samples,
		       (unsigned long long)info->n_chunks, frozen ? "true" : "false");
	else
		printf("%s version %llu: %llu sample%s in %llu chunk%s\n",
		       frozen ? "frozen at" : "snapshot of", (unsigned long long)info->version,
		       (unsigned long long)info->n_samples, units_plural(info->n_samples),
		       (unsigned long long)info->n_chunks, units_plural(info->n_chunks));
}

struct snapshot_options {
	bool frozen, json;
	uint64_t version;
};

static int run_snapshot(const struct option_verb *verb, int argc, char **argv)
{
	struct snapshot *s = NULL;
	struct error err = ERROR_INIT;
	struct snapshot_options o = {0};
	int r;

	if (!ctl_options(verb, argc, argv, &o, &r))
		return r;
	if (argc - optind != 1)
		return ctl_usage(verb, "expected one dataset");
	if (o.frozen && o.version)
		return ctl_usage(verb, "--frozen applies to the newest version: leave out --version");
	if (o.version)
		r = keep_version(argv[optind], o.version, &s, &err);
	else
		r = o.frozen ? freeze(argv[optind], &err) : write_snapshot(argv[optind], &err);
	if (r == 0 && !o.version)
		r = snapshot_open(argv[optind], &s, &err);
	if (r < 0)
		return ctl_failed(verb, &err);
	print_snapshot(snapshot_info(s), o.frozen, o.json);
	snapshot_close(s);
	return ctl_finish(verb);
}

#define AT(member) .at = offsetof(struct snapshot_options, member)

static const struct option_row snapshot_rows[] = {
    {"frozen", option_set_flag, AT(frozen),
     .help =
	 "remove the metadata: only the snapshot is left, and the dataset cannot be changed until a rebuild"},
    CTL_ROW_VERSION(AT(version),
		    .help = "recreate the snapshot of an earlier version, so that jobs can open it; the "
			    "next command that makes a version removes it like any other"),
    {"json", option_set_flag, AT(json), .help = "print the result as a JSON object"},
};

#undef AT

const struct option_verb ctl_snapshot = {
    .name = "snapshot",
    .arguments = "DATASET",
    .summary = "Write the snapshot again from the metadata",
    .help = "For a snapshot that is damaged, missing or behind the metadata.\n",
    .about = "Writes the snapshot again from the metadata.\n"
	     "With `--version` it recreates the snapshot of an earlier version, so that jobs can open that "
	     "version. `log` shows which versions can be read. This works only for a dataset in a folder, "
	     "and the next command that makes a version removes such a snapshot.\n"
	     "With `--frozen` it removes the metadata instead. Jobs, mounts, `ls`, `cat`, `stat` and "
	     "`verify` then use the snapshots that are there. Commands that change the dataset, or print its "
	     "log, fail until `rebuild` has made metadata again. Use it for a finished dataset in a folder: "
	     "only the chunks and snapshots are left to back up, and no server has to run. If the metadata "
	     "is on a Redis server, its keys stay there, unused.",
    OPTION_ROWS(snapshot_rows),
    .takes = OPTION_FILE,
    .run = run_snapshot,
};
