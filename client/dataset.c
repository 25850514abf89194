/* SPDX-License-Identifier: Apache-2.0 */
#include "client/diesel.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attachment.h"
#include "client/mapped.h"
#include "client/transport.h"
#include "dataset.h"
#include "dataset/snapshot_retained.h"
#include "client/elsewhere/fetch.h"
#include "image/recipe.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/container.h"
#include "patience.h"

/* Time to wait for a daemon that exited while it opened a dataset. */
#define OPEN_PATIENCE_MS 10000

_Static_assert((int)DIESEL_LAYOUT_FIELDS == (int)CHUNK_LAYOUT_FIELDS &&
		   (int)DIESEL_LAYOUT_TAR == (int)CHUNK_LAYOUT_TAR &&
		   (int)DIESEL_LAYOUT_LITDATA == (int)CHUNK_LAYOUT_LITDATA,
	       "they have the same numbers");

int report_error(const struct error *err, int code, char *text, size_t size)
{
	if (text && size > 0)
		snprintf(text, size, "%s", err->text[0] ? err->text : strerror(-code));
	return code;
}

static const char *socket_or_default(const char *socket)
{
	if (socket && *socket)
		return socket;
	socket = getenv("DIESEL_SOCKET");
	return socket && *socket ? socket : DIESEL_DEFAULT_SOCKET;
}

#define ADVICE_BYTES 400

/* Sets the error for a folder without snapshot: a damaged dataset, or a folder of source files. */
static int no_snapshot(const struct diesel_dataset *d, struct error *err)
{
	int length = (int)strlen(d->path);
	char advice[ADVICE_BYTES];

	while (length > 1 && d->path[length - 1] == '/')
		length--;
	if (faccessat(d->shown.dir_fd, "chunks", F_OK, 0) == 0)
		return error_set(err, -ENOENT,
				 "%s has no " SNAPSHOT_FILE
				 ": if it is a dataset, rebuild the snapshot with `dieselctl %s %s`",
				 d->path, snapshot_verb_again(d->shown.dir_fd), d->path);
	if (container_advise(d->path, advice, sizeof(advice)))
		return error_set(err, -ENOENT, "%s is not a dataset: %s", d->path, advice);
	return error_set(err, -ENOENT,
			 "%s is a folder of files, not a dataset: make one with `dieselctl pack %.*s "
			 "%.*s.diesel`, and use %.*s.diesel",
			 d->path, length, d->path, length, d->path, length, d->path);
}

/* Opens the dataset's folder and snapshot. */
static int open_folder(struct diesel_dataset *d, struct error *err)
{
	char advice[ADVICE_BYTES];

	d->shown.dir_fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (d->shown.dir_fd < 0 && errno == EACCES) /* permission to pass through the folder is enough */
		d->shown.dir_fd = open(d->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (d->shown.dir_fd < 0) {
		if (errno == ENOTDIR && container_advise(d->path, advice, sizeof(advice)))
			return error_set(err, -ENOENT, "%s is not a dataset: %s", d->path, advice);
		if (errno == ENOTDIR)
			return error_set(err, -ENOENT, "%s is a file, not a dataset folder", d->path);
		if (errno == ENOENT)
			return error_set(err, -ENOENT,
					 "there is no dataset %s: make one with `dieselctl pack SOURCE %s`",
					 d->path, d->path);
		return error_errno(err, -errno, "cannot open dataset %s", d->path);
	}
	if (d->wanted)
		return snapshot_retained_open(d->shown.dir_fd, d->path, d->wanted, &d->shown.snapshot_fd,
					      err);
	d->shown.snapshot_fd = openat(d->shown.dir_fd, SNAPSHOT_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (d->shown.snapshot_fd < 0) {
		if (errno == ENOENT)
			return no_snapshot(d, err);
		return error_errno(err, -errno, "may not read %s/" SNAPSHOT_FILE, d->path);
	}
	return 0;
}

static int open_files(struct diesel_dataset *d, struct error *err)
{
	int r;

	d->is_fetched = fetch_is_elsewhere(d->path);
	if (d->is_fetched)
		return fetch_start(d->path, d->wanted, d->socket_path, &d->shown, err);
	r = open_folder(d, err);
	/* Sources of external chunks are opened by name, so only the user's own process reads them. */
	if (r < 0 || !snapshot_is_external(d->shown.snapshot_fd))
		return r;
	/* The process has another working directory. */
	_cleanup_(freep) char *whole = realpath(d->path, NULL);

	if (!whole)
		return error_errno(err, -errno, "cannot open dataset %s", d->path);
	d->is_fetched = true;
	shown_close(&d->shown);
	return fetch_start(whole, d->wanted, d->socket_path, &d->shown, err);
}

static int ask_for_snapshot(struct diesel_dataset *d, int *ret_copy_fd, struct error *err)
{
	return attachment_connect(d->socket_path, &d->shown, d->wanted, &d->connection, ret_copy_fd, err);
}

/* The snapshot may be deleted between our open and the daemon's check. Opens it again, which reports this. */
static int ask_for_version(struct diesel_dataset *d, int *ret_copy_fd, struct error *err)
{
	int r = ask_for_snapshot(d, ret_copy_fd, err);

	if (r != -ESTALE || !d->wanted || d->is_fetched)
		return r;
	shown_close(&d->shown);
	int again = open_files(d, err);

	return again < 0 ? again : ask_for_snapshot(d, ret_copy_fd, err);
}

/* Connects to the daemon. If the daemon exited while it answered, waits for another one. If no daemon was
 * running, reports this at once. */
static int reach_daemon(struct diesel_dataset *d, int *ret_copy_fd, struct error *err)
{
	struct patience patience = patience_begin(OPEN_PATIENCE_MS, clock_monotonic_ns());
	int r = ask_for_version(d, ret_copy_fd, err);
	bool was_there = r == -ECONNRESET;

	while (was_there && patience_helps(r)) {
		int pause = patience_pause(&patience);

		if (pause == -ETIMEDOUT)
			return error_set(err, -ECONNRESET,
					 "dieseld at %s went away while it opened %s, and did not come back "
					 "within %d s: start it and try again",
					 d->socket_path, d->path, OPEN_PATIENCE_MS / 1000);
		if (pause < 0)
			return error_errno(err, pause, "dieseld at %s went away", d->socket_path);
		r = ask_for_version(d, ret_copy_fd, err);
	}
	return r;
}

int diesel_dataset_needs_dieselctl(const char *path)
{
	_cleanup_(closep) int fd = -EBADF, dir_fd = -EBADF;

	if (fetch_is_elsewhere(path))
		return 1;
	dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (dir_fd >= 0)
		fd = openat(dir_fd, SNAPSHOT_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	return fd >= 0 && snapshot_is_external(fd);
}

int diesel_dataset_open(const char *path, const char *socket, struct diesel_dataset **ret, char *error,
			size_t error_size)
{
	return diesel_dataset_open_version(path, 0, socket, ret, error, error_size);
}

int diesel_dataset_open_version(const char *path, uint64_t version, const char *socket,
				struct diesel_dataset **ret, char *error, size_t error_size)
{
	struct error err = ERROR_INIT;
	struct diesel_dataset *d = calloc(1, sizeof(*d));
	_cleanup_(closep) int copy_fd = -EBADF;
	int r;

	if (!d)
		return report_error(&err, -ENOMEM, error, error_size);
	d->shown = SHOWN_NOTHING;
	pthread_mutex_init(&d->store_lock, NULL);
	d->connection = (struct transport)TRANSPORT_INIT;
	d->wanted = version;
	d->path = strdup(path);
	d->socket_path = strdup(socket_or_default(socket));
	r = d->path && d->socket_path ? by_number_new(&d->by_number) : -ENOMEM;
	if (r == 0)
		r = resident_reader_new(&d->residents);
	if (r == 0)
		r = open_files(d, &err);
	if (r == 0)
		r = reach_daemon(d, &copy_fd, &err);
	if (r == 0)
		r = snapshot_open_fd(copy_fd, path, &d->snapshot, &err);
	if (r < 0) {
		diesel_dataset_close(d);
		return report_error(&err, r, error, error_size);
	}
	*ret = d;
	return 0;
}

void diesel_dataset_close(struct diesel_dataset *d)
{
	if (!d)
		return;
	by_number_free(d->by_number);
	resident_reader_free(d->residents);
	store_free(d->store);
	pthread_mutex_destroy(&d->store_lock);
	snapshot_close(d->snapshot);
	transport_close(&d->connection);
	shown_close(&d->shown);
	free(d->socket_path);
	free(d->path);
	free(d);
}

int diesel_dataset_info(const struct diesel_dataset *dataset, struct diesel_dataset_info *ret)
{
	const struct snapshot_info *info = snapshot_info(dataset->snapshot);

	*ret = (struct diesel_dataset_info){
	    .version = info->version,
	    .n_samples = info->n_samples,
	    .n_chunks = info->n_chunks,
	    .total_bytes = info->total_bytes,
	    .n_classes = info->n_classes,
	    .equal_bytes = info->equal_bytes,
	    .max_bytes = info->max_bytes,
	    .layout = info->layout,
	    .columns = info->columns.data,
	    .columns_bytes = info->columns.bytes,
	};
	return 0;
}

int dataset_look_up(const struct diesel_dataset *d, uint64_t sample, struct snapshot_sample *ret)
{
	int r = snapshot_check_lookups(d->snapshot, NULL);

	return r < 0 ? r : snapshot_sample_get(d->snapshot, sample, ret);
}

int diesel_dataset_class(const struct diesel_dataset *dataset, uint32_t class_index, const char **ret_name,
			 size_t *ret_length)
{
	int r = snapshot_check_lookups(dataset->snapshot, NULL);

	return r < 0 ? r : snapshot_class_name(dataset->snapshot, class_index, ret_name, ret_length);
}

int diesel_dataset_path(const struct diesel_dataset *dataset, uint64_t sample, const char **ret_path,
			size_t *ret_length)
{
	struct snapshot_sample s;
	int r = dataset_look_up(dataset, sample, &s);

	if (r < 0)
		return r;
	if (!chunk_name_is_valid(s.path, s.path_length))
		return -EBADMSG;
	*ret_path = s.path;
	*ret_length = s.path_length;
	return 0;
}

int diesel_dataset_find(const struct diesel_dataset *dataset, const char *path, size_t path_length,
			uint64_t *ret_sample)
{
	int r = snapshot_check_lookups(dataset->snapshot, NULL);

	return r < 0 ? r : snapshot_find(dataset->snapshot, path, path_length, ret_sample);
}

int diesel_dataset_find_many(const struct diesel_dataset *dataset, const char *const *paths,
			     const size_t *path_lengths, uint64_t n, uint64_t *samples)
{
	enum { N_AT_ONCE = 256 };
	int r = snapshot_check_lookups(dataset->snapshot, NULL);
	uint64_t n_found = 0;

	for (uint64_t first = 0; r == 0 && first < n; first += N_AT_ONCE) {
		uint64_t n_now = n - first < N_AT_ONCE ? n - first : N_AT_ONCE;
		struct path_text texts[N_AT_ONCE];

		for (uint64_t i = 0; i < n_now; i++)
			texts[i] = (struct path_text){paths[first + i], path_lengths[first + i]};
		n_found += snapshot_find_many(dataset->snapshot, texts, n_now, samples + first);
	}
	return r == 0 && n_found < n ? -ENOENT : r;
}

int diesel_dataset_list(const struct diesel_dataset *dataset, const char *directory, size_t length,
			uint64_t *cursor, struct diesel_entry *ret)
{
	struct snapshot_entry entry;
	int r = snapshot_check_lookups(dataset->snapshot, NULL);

	if (r == 0)
		r = snapshot_list(dataset->snapshot, directory, length, cursor, &entry);
	if (r == 0)
		*ret = (struct diesel_entry){
		    .name = entry.name,
		    .name_length = entry.name_length,
		    .sample = entry.is_directory ? 0 : entry.sample,
		    .is_directory = entry.is_directory,
		};
	return r;
}

int diesel_dataset_stat(const struct diesel_dataset *dataset, uint64_t sample, struct diesel_stat *ret)
{
	struct snapshot_sample s;
	uint64_t mtime_ns = 0;
	int r = dataset_look_up(dataset, sample, &s);

	if (r == 0)
		r = snapshot_mtime(dataset->snapshot, sample, &mtime_ns);
	if (r == 0)
		*ret = (struct diesel_stat){
		    .mtime_ns = mtime_ns,
		    .mode = s.mode,
		    .bytes = s.bytes,
		    .label = s.class_index,
		};
	return r;
}

const struct snapshot *mapped_snapshot(const struct diesel_dataset *dataset)
{
	return dataset->snapshot;
}

static int ask_codec(const char *socket_path, struct recipe_codec *codec, uint32_t *ret_type,
		     struct error *err)
{
	struct transport transport = TRANSPORT_INIT;
	union wire_message request, reply;
	int r = transport_connect(socket_path, &transport, err);

	protocol_init(&request, WIRE_CODEC);
	request.codec.codec = *codec;
	if (r == 0)
		r = transport_hello(&transport, err);
	if (r == 0)
		r = transport_call(&transport, &request, NULL, WIRE_CODEC_REPLY, &reply, NULL, err);
	if (r == 0 && (strcmp(reply.codec.codec.name, codec->name) != 0 ||
		       strcmp(reply.codec.codec.options, codec->options) != 0))
		r = transport_refuse(&transport, err, "answer for another codec");
	transport_close(&transport);
	if (r < 0)
		return r;
	*codec = reply.codec.codec;
	*ret_type = reply.codec.type;
	return 0;
}

int diesel_codec_output(const struct diesel_dataset *dataset, struct recipe_codec *codec, uint32_t *ret_type,
			char *error, size_t error_size)
{
	struct error err = ERROR_INIT;
	const char *wrong = recipe_check_name(codec);
	int r;

	codec->n_dimensions = 0;
	memset(codec->dimensions, 0, sizeof(codec->dimensions));
	r = wrong ? error_set(&err, -EINVAL, "%s", wrong)
		  : ask_codec(dataset->socket_path, codec, ret_type, &err);
	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}
