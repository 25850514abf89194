/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* TLS on a connected socket that does not block. Not thread-safe. */

#include <stdint.h>
#include <sys/types.h>

#include "lib/error.h"

struct redis_tls_files {
	const char *ca;   /* NULL: the system's */
	const char *cert; /* of the client, with key; NULL: none */
	const char *key;
};

struct redis_tls_config; /* shared by all connections of a link */
struct redis_tls;

int redis_tls_configure(const struct redis_tls_files *files, struct redis_tls_config **ret,
			struct error *err);
void redis_tls_config_free(struct redis_tls_config *c);

/* Performs the handshake. The server's certificate must be in force, come from the CA, and be for one of the
 * two names (or addresses). -EACCES if not; -ETIMEDOUT; -EPROTO. */
int redis_tls_open(struct redis_tls_config *c, int fd, const char *name, const char *other_name,
		   uint64_t until_ns, struct redis_tls **ret, struct error *err);
void redis_tls_close(struct redis_tls *t);
/* As recv() and send(); -EAGAIN: *events is the poll() event to wait for. -ECONNRESET */
ssize_t redis_tls_recv(struct redis_tls *t, void *data, size_t bytes, short *events);
ssize_t redis_tls_send(struct redis_tls *t, const void *data, size_t bytes, short *events);
