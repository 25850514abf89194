/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing datasets. This library lacks the database and the object-store libraries that writing needs. So it
 * hands samples to a process of the caller's user, `dieselctl put` (client/put_channel.h), which ends with
 * the writer.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/diesel.h"
#include "client/put_channel.h"
#include "client/dataset.h"
#include "dataset/chunk.h"
#include "dataset/fields.h"
#include "dataset/path_set.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"
#include "start.h"

/* Samples are sent together, because a call for each takes longer than copying a small sample. */
#define SEND_BYTES ((size_t)256 << 10)
#define MODE       (S_IFREG | 0644)

struct diesel_writer {
	char *name;
	pid_t owner; /* process that may use the writer; forked children may not */
	int channel_fd;
	pthread_mutex_t lock;
	struct path_set paths, folders;
	uint8_t *buffer; /* bytes of samples to send; [n_sent, n) is not sent yet */
	size_t n_sent, n, n_allocated;
	bool has_layout;            /* the next field is set */
	enum chunk_layout layout;   /* of the dataset's samples */
	bool committing, committed; /* the request to commit is in the buffer; its answer has arrived */
	struct error failure;       /* error of all further calls */
	uint64_t version;
};

/* Waits for an answer. -EINTR: a signal; call it again, as nothing is lost. */
static int receive(struct diesel_writer *w, struct error *err)
{
	struct put_reply reply;
	ssize_t n = recv(w->channel_fd, &reply, sizeof(reply), MSG_WAITALL);

	if (n < 0 && errno == EINTR)
		return error_errno(err, -EINTR, "%s", w->name);
	if (n != sizeof(reply) || reply.result > 0)
		return start_broken(w->name, err);
	reply.text[sizeof(reply.text) - 1] = '\0';
	if (reply.result < 0)
		return error_set(err, reply.result, "%s", reply.text);
	w->version = reply.version;
	if (reply.n_layout) {
		w->has_layout = true;
		w->layout = (enum chunk_layout)(reply.n_layout - 1);
	}
	return 0;
}

/* Reports the reason that the process sent before it closed its end. */
static int failed(struct diesel_writer *w, struct error *err)
{
	int r;

	do
		r = receive(w, &w->failure);
	while (r == -EINTR);
	if (r == 0) /* the process sent an answer that nobody requested */
		r = start_broken(w->name, &w->failure);
	if (err)
		*err = w->failure;
	return r;
}

/* -EINTR: a signal; the rest has not been sent yet. */
static int flush(struct diesel_writer *w, struct error *err)
{
	while (w->n_sent < w->n) {
		ssize_t n = send(w->channel_fd, w->buffer + w->n_sent, w->n - w->n_sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			return error_errno(err, -EINTR, "%s", w->name);
		if (n < 0)
			return failed(w, err);
		w->n_sent += (size_t)n;
	}
	w->n_sent = w->n = 0;
	if (w->n_allocated > 4 * SEND_BYTES) { /* buffer grown for a large sample */
		free(w->buffer);
		w->buffer = NULL;
		w->n_allocated = 0;
	}
	return 0;
}

static int reserve(struct diesel_writer *w, size_t bytes)
{
	size_t wanted = w->n + bytes;

	if (wanted <= w->n_allocated)
		return 0;
	if (wanted < 2 * SEND_BYTES)
		wanted = 2 * SEND_BYTES;
	uint8_t *grown = realloc(w->buffer, wanted);

	if (!grown)
		return -ENOMEM;
	w->buffer = grown;
	w->n_allocated = wanted;
	return 0;
}

/* Appends to the buffer. Callers have called reserve(). */
static void append(struct diesel_writer *w, const void *data, size_t bytes)
{
	if (bytes)
		memcpy(w->buffer + w->n, data, bytes);
	w->n += bytes;
}

static int check(const struct diesel_writer *w, struct error *err)
{
	if (w->failure.code < 0) {
		if (err)
			*err = w->failure;
		return w->failure.code;
	}
	if (w->owner != getpid())
		return error_set(err, -EINVAL, "%s: a forked process cannot use its parent's writer",
				 w->name);
	if (w->committing)
		return error_set(err, -EINVAL, "%s is already committed: to add samples, open a new writer",
				 w->name);
	return 0;
}

/* A sample to put. */
struct put_sample {
	const struct diesel_sample *sample;
	enum chunk_layout layout;
	const struct field *fields; /* with CHUNK_LAYOUT_FIELDS */
	uint32_t n_fields;
	size_t bytes;
};

static int check_sample(const struct diesel_writer *w, const struct put_sample *item, struct error *err)
{
	const struct diesel_sample *s = item->sample;
	char text[200];

	text_printable(text, sizeof(text), s->path, s->path_length);
	if (!chunk_name_is_valid(s->path, s->path_length))
		return error_set(err, -EINVAL,
				 "%s: invalid sample path '%s': must be relative, without empty, '.' or "
				 "'..' components, and have at most %u bytes",
				 w->name, text, CHUNK_NAME_MAX);
	if (item->bytes > CHUNK_SAMPLE_MAX_BYTES)
		return error_set(err, -EFBIG,
				 "%s: '%s' has %zu bytes, above the sample limit of 1 GiB: split it", w->name,
				 text, item->bytes);
	if (w->has_layout && w->layout != item->layout)
		return error_set(err, -EINVAL,
				 "%s has samples of the layout '%s', but '%s' is of the layout '%s': all "
				 "samples of a dataset have one layout, so put it into another dataset",
				 w->name, chunk_layout_name(w->layout), text,
				 chunk_layout_name(item->layout));
	if (s->stat && s->stat->mode & S_IFMT && !S_ISREG(s->stat->mode))
		return error_set(err, -EINVAL, "%s: '%s': mode must be that of a regular file, not %o",
				 w->name, text, s->stat->mode);
	return 0;
}

static void append_data(struct diesel_writer *w, const struct put_sample *item)
{
	if (item->fields) {
		fields_build(item->fields, item->n_fields, w->buffer + w->n);
		w->n += item->bytes;
	} else {
		append(w, item->sample->data, item->bytes);
	}
}

/* Returns the length of the folder of a path of this length; 0: the dataset's own folder. */
static size_t folder_length(const char *path, size_t length)
{
	while (length > 0 && path[length - 1] != '/')
		length--;
	return length > 0 ? length - 1 : 0;
}

/* Refuses a path that is a folder of another sample, or lies below a sample. Notes its folders. */
static int note_folders(struct diesel_writer *w, const struct diesel_sample *s, struct error *err)
{
	char text[200], other[200];
	int r = 1;

	text_printable(text, sizeof(text), s->path, s->path_length);
	if (path_set_has(&w->folders, s->path, s->path_length))
		return error_set(
		    err, -EEXIST,
		    "%s: '%s' is a folder of samples that this writer has put: give the sample another path",
		    w->name, text);
	for (size_t n = folder_length(s->path, s->path_length); n > 0; n = folder_length(s->path, n))
		if (path_set_has(&w->paths, s->path, n))
			return error_set(err, -EEXIST,
					 "%s: '%s' needs a folder '%s', but this writer has put a sample of "
					 "that path: give one of them another path",
					 w->name, text, text_printable(other, sizeof(other), s->path, n));
	for (size_t n = folder_length(s->path, s->path_length); n > 0 && r > 0; n = folder_length(s->path, n))
		r = path_set_add(&w->folders, s->path, n);
	return r < 0 ? error_errno(err, r, "%s", w->name) : 0;
}

static int put(struct diesel_writer *w, const struct put_sample *item, struct error *err)
{
	const struct diesel_sample *s = item->sample;
	struct put_record record = {
	    .bytes = item->bytes,
	    .mtime_ns = s->stat ? s->stat->mtime_ns : clock_realtime_ns(),
	    .mode = s->stat ? s->stat->mode | S_IFREG : MODE,
	    .path_length = (uint32_t)s->path_length,
	    .layout = item->layout,
	};
	char text[200];
	int r = check(w, err);

	if (r == 0)
		r = check_sample(w, item, err);
	if (r == 0 && w->n - w->n_sent >= SEND_BYTES) /* a signal interrupted an earlier flush */
		r = flush(w, err);
	if (r < 0)
		return r;
	r = reserve(w, sizeof(record) + s->path_length + item->bytes);
	if (r < 0)
		return error_errno(err, r, "%s", w->name);
	r = note_folders(w, s, err);
	if (r < 0)
		return r;
	r = path_set_add(&w->paths, s->path, s->path_length);
	if (r < 0)
		return error_errno(err, r, "%s", w->name);
	if (r == 0)
		return error_set(err, -EEXIST, "%s: this writer has already put '%s'", w->name,
				 text_printable(text, sizeof(text), s->path, s->path_length));
	append(w, &record, sizeof(record));
	append(w, s->path, s->path_length);
	append_data(w, item);
	w->has_layout = true;
	w->layout = item->layout;
	r = w->n < SEND_BYTES ? 0 : flush(w, err);
	return r == -EINTR ? 0 : r; /* the sample was accepted */
}

static int put_item(struct diesel_writer *w, const struct put_sample *item, struct error *err)
{
	pthread_mutex_lock(&w->lock);
	int r = put(w, item, err);

	pthread_mutex_unlock(&w->lock);
	return r;
}

int diesel_writer_put(struct diesel_writer *w, const struct diesel_sample *sample, char *error,
		      size_t error_size)
{
	const struct put_sample item = {.sample = sample, .bytes = sample->bytes};
	struct error err = ERROR_INIT;
	int r = put_item(w, &item, &err);

	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}

static int put_fields(struct diesel_writer *w, const struct diesel_sample *sample, const struct field *fields,
		      uint32_t n, struct error *err)
{
	struct put_sample item = {
	    .sample = sample, .layout = CHUNK_LAYOUT_FIELDS, .fields = fields, .n_fields = n};
	char text[200];
	int r = fields_check(fields, n, err);

	if (r < 0) {
		error_prefix(err, "%s: '%s':", w->name,
			     text_printable(text, sizeof(text), sample->path, sample->path_length));
		return r;
	}
	item.bytes = fields_bytes(fields, n);
	return put_item(w, &item, err);
}

int diesel_writer_put_fields(struct diesel_writer *w, const struct diesel_sample *sample,
			     const struct diesel_field *fields, uint32_t n_fields, char *error,
			     size_t error_size)
{
	_cleanup_(freep) struct field *converted = calloc(n_fields ? n_fields : 1, sizeof(*converted));
	struct error err = ERROR_INIT;
	int r = converted ? 0 : error_errno(&err, -ENOMEM, "%s", w->name);

	for (uint32_t i = 0; r == 0 && i < n_fields; i++)
		converted[i] = (struct field){.name = fields[i].name,
					      .name_length = fields[i].name_length,
					      .data = fields[i].data,
					      .bytes = fields[i].bytes,
					      .kind = (enum field_kind)fields[i].kind};
	if (r == 0)
		r = put_fields(w, sample, converted, n_fields, &err);
	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}

static int commit(struct diesel_writer *w, struct error *err)
{
	const struct put_record end = {.path_length = 0};
	int r = w->committing && w->failure.code == 0 ? 0 : check(w, err);

	if (r == 0 && !w->committing) {
		r = reserve(w, sizeof(end));
		if (r < 0)
			return error_errno(err, r, "%s", w->name);
		append(w, &end, sizeof(end));
		w->committing = true;
	}
	if (r == 0)
		r = flush(w, err);
	if (r < 0 || w->committed)
		return r;
	r = receive(w, err);
	w->committed = r == 0;
	if (r < 0 && r != -EINTR && err)
		w->failure = *err;
	return r;
}

int diesel_writer_commit(struct diesel_writer *w, uint64_t *ret_version, char *error, size_t error_size)
{
	struct error err = ERROR_INIT;

	pthread_mutex_lock(&w->lock);
	int r = commit(w, &err);

	if (r == 0 && ret_version)
		*ret_version = w->version;
	pthread_mutex_unlock(&w->lock);
	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}

static int start(const struct diesel_writer_options *o, struct diesel_writer *w, struct error *err)
{
	char size[32] = "--chunk-size=8388608", meta[1024] = "", level[24];
	char *arguments[10] = {(char *)"put", size};
	size_t n = 2;

	if (o->chunk_bytes)
		snprintf(size, sizeof(size), "--chunk-size=%llu", (unsigned long long)o->chunk_bytes);
	if (o->meta_url && snprintf(meta, sizeof(meta), "--meta=%s", o->meta_url) >= (int)sizeof(meta))
		return error_set(err, -EINVAL, "%s: the metadata URL is too long", w->name);
	if (o->meta_url)
		arguments[n++] = meta;
	if (o->flags & DIESEL_WRITER_APPEND)
		arguments[n++] = (char *)"--append";
	if (o->flags & DIESEL_WRITER_SHARED)
		arguments[n++] = (char *)"--shared";
	if (o->flags & DIESEL_WRITER_DIGESTS)
		arguments[n++] = (char *)"--digest=sha256";
	if (o->zstd_level) {
		snprintf(level, sizeof(level), "--zstd=%u", o->zstd_level);
		arguments[n++] = level;
	}
	arguments[n++] = (char *)"--";
	arguments[n++] = w->name;
	arguments[n] = NULL;
	int r = start_dieselctl(arguments, SOCK_STREAM, w->name, &w->channel_fd, err);

	return r < 0 ? r : receive(w, err);
}

int diesel_writer_open(const char *path, const struct diesel_writer_options *options,
		       struct diesel_writer **ret, char *error, size_t error_size)
{
	static const struct diesel_writer_options none;
	struct diesel_writer *w = calloc(1, sizeof(*w));
	struct error err = ERROR_INIT;
	int r = w && (w->name = strdup(path)) ? 0 : -ENOMEM;

	if (r < 0) {
		free(w);
		return report_error(&err, r, error, error_size);
	}
	w->channel_fd = -EBADF;
	w->owner = getpid();
	pthread_mutex_init(&w->lock, NULL);
	r = start(options ? options : &none, w, &err);
	if (r < 0) {
		diesel_writer_free(w);
		return report_error(&err, r, error, error_size);
	}
	*ret = w;
	return 0;
}

/* Waits for the process, which may have many files to remove, so that nobody finds some of them. */
static void end(const struct diesel_writer *w)
{
	char rest[256];
	ssize_t n;

	shutdown(w->channel_fd, SHUT_WR); /* forked children may also have it open */
	do
		n = recv(w->channel_fd, rest, sizeof(rest), 0);
	while (n > 0 || (n < 0 && errno == EINTR));
}

void diesel_writer_free(struct diesel_writer *w)
{
	if (!w)
		return;
	if (w->channel_fd >= 0 && w->owner == getpid())
		end(w);
	closep(&w->channel_fd);
	pthread_mutex_destroy(&w->lock);
	path_set_free(&w->paths);
	path_set_free(&w->folders);
	free(w->buffer);
	free(w->name);
	free(w);
}
