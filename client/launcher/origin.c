/* SPDX-License-Identifier: Apache-2.0 */
#include "origin.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"

#define NAMESPACE_FILE "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

/* Truncates the text to the field. Replaces characters that the protocol does not allow with '_'. */
static void put(char *field, size_t size, const char *text)
{
	size_t length = text ? strnlen(text, size - 1) : 0;

	memcpy(field, text ? text : "", length);
	field[length] = '\0';
	for (size_t i = 0; i < length; i++)
		if (!protocol_origin_ok((const char[]){field[i], '\0'}, 2))
			field[i] = '_';
}

static void put_namespace(struct wire_origin *m)
{
	_cleanup_(closep) int fd = open(NAMESPACE_FILE, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char text[WIRE_ORIGIN_BYTES];
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	if (n <= 0)
		return;
	text[n] = '\0';
	text[strcspn(text, "\n")] = '\0';
	put(m->pod_namespace, sizeof(m->pod_namespace), text);
}

bool origin_fill(struct wire_origin *m)
{
	put(m->slurm_job, sizeof(m->slurm_job), getenv("SLURM_JOB_ID"));
	put(m->account, sizeof(m->account), getenv("SLURM_JOB_ACCOUNT"));
	put(m->pod, sizeof(m->pod), getenv("POD_NAME"));
	put(m->pod_namespace, sizeof(m->pod_namespace), getenv("POD_NAMESPACE"));
	if (getenv("KUBERNETES_SERVICE_HOST")) {
		if (!m->pod[0]) /* the kubelet sets the host name in a pod to the pod's name */
			put(m->pod, sizeof(m->pod), getenv("HOSTNAME"));
		if (!m->pod_namespace[0])
			put_namespace(m);
	}
	return m->slurm_job[0] || m->account[0] || m->pod[0] || m->pod_namespace[0];
}
