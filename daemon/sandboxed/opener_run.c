/* SPDX-License-Identifier: Apache-2.0 */
#include "opener.h"

#include <errno.h>
#include <stdbool.h>
#include <unistd.h>

#include "client/transport.h"
#include "daemon/helpers/helper.h"
#include "daemon/helpers/message.h"
#include "daemon/helpers/process.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"
#include "lib/sandbox.h"
#include "opener_message.h"

/* Limits of verification. Its CPU time hardly grows with the number of samples, and its memory does not. */
#define VERIFY_CPU_S        120
#define VERIFY_MEMORY_BYTES (64u << 20)

static int say(int socket, const struct opener_reply *reply, const int *fds, size_t n_fds)
{
	return fd_message_send(socket, reply, sizeof(*reply), fds, n_fds, 0);
}

static void say_failed(int socket, const struct error *err, int code)
{
	struct opener_reply reply = {.type = OPENER_FAILED, .code = code, .error = *err};

	(void)say(socket, &reply, NULL, 0);
}

static int say_started(int socket)
{
	struct opener_reply reply = {.type = OPENER_STARTED};
	int pidfd = helper_own_pidfd();

	return pidfd < 0 ? pidfd : say(socket, &reply, &pidfd, 1);
}

static bool may_go_on(int socket)
{
	char go;

	return message_receive(socket, &go, sizeof(go), 0, NULL, 0) == 0;
}

static int verify(int socket, const struct proof *proof, int copy_fd, struct error *err)
{
	const struct sandbox_limits limits = {.memory_bytes = VERIFY_MEMORY_BYTES, .cpu_s = VERIFY_CPU_S};
	struct opener_reply reply = {.type = OPENER_VERIFIED};
	int r;

	reply.sandbox = sandbox_enter(&limits);
	r = proof_verify(proof, copy_fd, err);
	return r < 0 ? r : say(socket, &reply, NULL, 0);
}

static int open_dataset(int socket, int dir_fd, int snapshot_fd, struct error *err)
{
	struct opener_reply reply = {.type = OPENER_IDENTIFIED}, copied = {.type = OPENER_COPIED};
	int copy_fd = -EBADF, r;

	r = proof_identify(dir_fd, snapshot_fd, &reply.proof, err);
	if (r == 0)
		r = say(socket, &reply, (int[]){reply.proof.chunks_fd, reply.proof.snapshot_fd}, 2);
	if (r < 0 || !may_go_on(socket))
		return r;
	r = proof_copy(&reply.proof, snapshot_fd, &copy_fd, err);
	if (r == 0)
		r = say(socket, &copied, &copy_fd, 1);
	return r < 0 ? r : verify(socket, &reply.proof, copy_fd, err);
}

static int take_and_open(int socket, int connection, struct error *err)
{
	struct wire_fds fds = {.n = 0};
	union wire_message request;
	int r = say_started(socket);

	if (r == 0)
		r = transport_receive(connection, &request, &fds);
	/* If this process kept the connection open, the client would not see the daemon close it. */
	close(connection);
	if (r == 0 && request.header.type != WIRE_OPEN_DATASET)
		r = -EPROTO;
	return r < 0 ? error_errno(err, r, "cannot receive the dataset's file descriptors from the client")
		     : open_dataset(socket, fds.fd[0], fds.fd[1], err);
}

int opener_run(int socket)
{
	struct error err = ERROR_INIT;
	int connection, r;
	uint32_t uid;

	if (message_receive(socket, &uid, sizeof(uid), 0, &connection, 1) < 0 || connection < 0)
		return 1;
	helper_title(HELPER_OPENER, uid);
	r = take_and_open(socket, connection, &err);
	if (r < 0)
		say_failed(socket, &err, r);
	return r < 0;
}
