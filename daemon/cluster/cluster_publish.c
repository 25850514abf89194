/* SPDX-License-Identifier: Apache-2.0 */
/* Hands this node's report to the process that has the registry. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cluster_state.h"
#include "lib/cleanup.h"

int cluster_publish(struct cluster *c, const char *json)
{
	struct cluster_order order = {.verb = CLUSTER_PUBLISH, .bytes = strlen(json) + 1};
	_cleanup_(closep) int fd = -EBADF;
	int r;

	if (order.bytes > REGISTRY_REPORT_BYTES)
		return -E2BIG;
	if (!c->keeper.link)
		return -EPIPE;
	if (outbox_waits(&c->outbox))
		return -EAGAIN;
	fd = memfd_create("diesel-report", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (write(fd, json, order.bytes) != (ssize_t)order.bytes)
		return -EIO;
	r = cluster_order(c, &order, fd);
	closep(&c->report_fd);
	c->report_fd = steal_fd(&fd);
	return r;
}
