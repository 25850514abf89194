/* SPDX-License-Identifier: Apache-2.0 */
#include "client/diesel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/transport.h"
#include "dataset.h"
#include "lib/cleanup.h"

#define STATUS_MAX_BYTES (64u << 20)

static int read_text(int fd, uint64_t bytes, char **ret_text, struct error *err)
{
	char *text;
	uint64_t done = 0;

	if (bytes > STATUS_MAX_BYTES)
		return error_set(err, -EPROTO, "dieseld's status is %llu bytes long",
				 (unsigned long long)bytes);
	text = malloc(bytes + 1);
	if (!text)
		return error_errno(err, -ENOMEM, "cannot read the status");
	while (done < bytes) {
		ssize_t n = pread(fd, text + done, bytes - done, (off_t)done);

		if (n <= 0) {
			int r = n < 0 ? -errno : -EPROTO;

			free(text);
			return error_errno(err, r, "cannot read the status");
		}
		done += (uint64_t)n;
	}
	text[bytes] = '\0';
	*ret_text = text;
	return 0;
}

int diesel_status(const char *socket, char **ret_json, char *error, size_t error_size)
{
	struct error err = ERROR_INIT;
	union wire_message request, reply;
	struct wire_fds fds;
	_cleanup_(closep) int fd = -EBADF;
	const char *path = socket && *socket ? socket : getenv("DIESEL_SOCKET");
	int r = transport_connect(path && *path ? path : DIESEL_DEFAULT_SOCKET, &fd, &err);

	if (r == 0) {
		protocol_init(&request, WIRE_HELLO);
		request.hello.magic = WIRE_MAGIC;
		request.hello.version = WIRE_VERSION;
		r = transport_call(fd, &request, NULL, 0, WIRE_HELLO_REPLY, &reply, NULL, &err);
	}
	if (r == 0) {
		protocol_init(&request, WIRE_STATUS);
		r = transport_call(fd, &request, NULL, 0, WIRE_STATUS_REPLY, &reply, &fds, &err);
	}
	if (r == 0) {
		r = read_text(fds.fd[0], reply.status_reply.bytes, ret_json, &err);
		wire_fds_close(&fds);
	}
	return r < 0 ? report_error(&err, r, error, error_size) : 0;
}
