/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* TLS on a connected socket that does not block. Not thread-safe. */

#include <stdint.h>
#include <sys/types.h>

#include "lib/error.h"

struct redis_tls_files {
	const char *ca;   /* CA certificates; NULL: the system's */
	const char *cert; /* client certificate, with key; NULL: none */
	const char *key;
};

struct redis_tls_config; /* shared by all connections of a link */
struct redis_tls;

int redis_tls_configure(const struct redis_tls_files *files, struct redis_tls_config **ret,
			struct error *err);
void redis_tls_config_free(struct redis_tls_config *c);
