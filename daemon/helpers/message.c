/* SPDX-License-Identifier: Apache-2.0 */
#include "message.h"

#include <errno.h>
#include <unistd.h>

#include "lib/fd_message.h"

int message_receive(int socket, void *message, size_t bytes, int flags, int *fds, size_t n_fds)
{
	int came[FD_MESSAGE_MAX_FDS], r;
	size_t n_came;

	r = fd_message_receive(socket, message, bytes, flags, came, &n_came);
	for (size_t i = 0; i < n_fds; i++)
		fds[i] = r == (int)bytes && i < n_came ? came[i] : -EBADF;
	for (size_t i = r == (int)bytes ? n_fds : 0; i < n_came; i++)
		close(came[i]);
	return r == (int)bytes ? 0 : r == 0 ? -ECONNRESET : r < 0 ? r : -EPROTO;
}
