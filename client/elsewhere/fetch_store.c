/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of a dataset in a bucket, read through the process that has its credentials. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/fetch_channel.h"
#include "fetch.h"
#include "lib/cleanup.h"
#include "lib/container_of.h"
#include "lib/fd_io.h"
#include "lib/fd_message.h"
#include "dataset/chunk_id.h"

struct fetch_store {
	struct store store;
	int channel_fd;
	char *url;
};

static struct fetch_store *fetch_store_of(const struct store *s)
{
	return container_of(s, struct fetch_store, store);
}

static void fetch_describe(const struct store *s, const struct chunk_id *id, char *text, size_t size)
{
	char name[CHUNK_ID_TEXT];

	snprintf(text, size, "%s/chunks/%s.chunk", fetch_store_of(s)->url, chunk_id_format(id, name));
}

static int take(int fd, const char *name, void *buffer, size_t bytes, struct error *err)
{
	struct fetch_reply reply;
	size_t done;
	int r = fd_read(fd, &reply, sizeof(reply), &done);

	if (r == 0 && done == sizeof(reply)) {
		reply.text[sizeof(reply.text) - 1] = '\0';
		if (reply.result < 0)
			return error_set(err, reply.result, "%s", reply.text);
		r = fd_read(fd, buffer, bytes, &done);
		if (r == 0 && done == bytes)
			return 0;
	}
	return error_set(err, -EIO, "%s: the process that reads the bucket (dieselctl fetch) has ended",
			 name);
}

static int fetch_read(struct store *s, const struct chunk_id *id, uint64_t offset, void *buffer, size_t bytes,
		      struct error *err)
{
	_cleanup_(closep) int ours = -EBADF, theirs = -EBADF;
	struct fetch_request request = {.offset = offset, .bytes = bytes};
	char name[STORE_NAME_MAX], text[CHUNK_ID_TEXT];
	int ends[2], r;

	fetch_describe(s, id, name, sizeof(name));
	snprintf(request.object, sizeof(request.object), "%s.chunk", chunk_id_format(id, text));
	/* Each request brings its own socket for the answer, because other threads and forked processes
	 * use the same channel. */
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
		return error_errno(err, -errno, "%s", name);
	ours = ends[0];
	theirs = ends[1];
	r = fd_message_send(fetch_store_of(s)->channel_fd, &request, sizeof(request), &theirs, 1, 0);
	closep(&theirs);
	theirs = -EBADF;
	if (r < 0 && r != -EPIPE && r != -ECONNRESET)
		return error_errno(err, r, "%s", name);
	return take(ours, name, buffer, bytes, err);
}

static void fetch_free(struct store *s)
{
	free(fetch_store_of(s)->url);
	free(fetch_store_of(s));
}

static const struct store_ops fetch_ops = {
    .read = fetch_read,
    .describe = fetch_describe,
    .free = fetch_free,
};

int fetch_store_open(const char *url, int channel_fd, struct store **ret, struct error *err)
{
	struct fetch_store *s = calloc(1, sizeof(*s));

	if (!s || !(s->url = strdup(url))) {
		free(s);
		return error_errno(err, -ENOMEM, "%s", url);
	}
	s->store.ops = &fetch_ops;
	s->channel_fd = channel_fd;
	*ret = &s->store;
	return 0;
}
