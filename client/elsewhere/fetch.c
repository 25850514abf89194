/* SPDX-License-Identifier: Apache-2.0 */
#include "fetch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "client/fetch_channel.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"
#include "start.h"

#define SCHEME "s3://"

bool fetch_is_elsewhere(const char *name)
{
	return strncmp(name, SCHEME, strlen(SCHEME)) == 0;
}

/* Waits for the reply. -EINTR: a signal arrived, and the caller decides whether to continue. */
static int receive(int channel_fd, const char *url, struct shown *ret, struct error *err)
{
	struct pollfd p = {.fd = channel_fd, .events = POLLIN};
	struct fetch_reply reply;
	int fds[FD_MESSAGE_MAX_FDS], n;
	size_t n_fds;

	if (poll(&p, 1, -1) < 0)
		return error_errno(err, -errno, "cannot wait for the process that reads %s", url);
	n = fd_message_receive(channel_fd, &reply, sizeof(reply), 0, fds, &n_fds);
	if (n == sizeof(reply) && reply.result == 0 && n_fds == 2) {
		ret->dir_fd = fds[0];
		ret->snapshot_fd = fds[1];
		return 0;
	}
	for (size_t i = 0; n > 0 && i < n_fds; i++)
		closep(&fds[i]);
	if (n != sizeof(reply) || reply.result >= 0)
		return start_broken(url, err);
	reply.text[sizeof(reply.text) - 1] = '\0';
	return error_set(err, reply.result, "%s", reply.text);
}

int fetch_start(const char *url, uint64_t version, const char *socket_path, struct shown *ret,
		struct error *err)
{
	_cleanup_(closep) int channel_fd = -EBADF;
	char number[40];
	char *const arguments[] = {(char *)"fetch",
				   (char *)"--socket",
				   (char *)socket_path,
				   version ? number : (char *)"--",
				   version ? (char *)"--" : (char *)url,
				   version ? (char *)url : NULL,
				   NULL};

	snprintf(number, sizeof(number), "--version=%llu", (unsigned long long)version);
	int r = start_dieselctl(arguments, SOCK_SEQPACKET, url, &channel_fd, err);

	if (r == 0)
		r = receive(channel_fd, url, ret, err);
	if (r == 0)
		ret->channel_fd = steal_fd(&channel_fd);
	return r;
}
