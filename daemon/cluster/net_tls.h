/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * TLS 1.3 with a pre-shared key, over a non-blocking socket: both ends prove that they have the key, and
 * there are no certificates. Each connection's key also comes from a key exchange (X25519 and the like), so
 * that an attacker who learns the pre-shared key later cannot decrypt earlier connections.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/error.h"

struct net_tls_keys;
struct net_tls;

int net_tls_keys_new(const uint8_t *key, size_t bytes, struct net_tls_keys **ret, struct error *err);

/* Makes one end of a secured connection. fd: borrowed. dials: this end made the connection. -ENOMEM. */
int net_tls_new(struct net_tls_keys *keys, int fd, bool dials, struct net_tls **ret);
/* Frees this end of the connection without sending anything. Accepts NULL. Returns NULL. */
struct net_tls *net_tls_free(struct net_tls *t);

/* Continues the handshake. 0: the connection is secured. -EAGAIN: call again when the socket can be read, or
 * written if *waits_to_write. Otherwise the handshake has failed, and *err says why. */
int net_tls_handshake(struct net_tls *t, bool *waits_to_write, struct error *err);
/* As recv(2) and send(2): return the number of bytes, 0 at the end, or a negative errno. After -EAGAIN, send
 * the same bytes again, or more that begin with them. */
ssize_t net_tls_read(struct net_tls *t, void *data, size_t bytes);
ssize_t net_tls_write(struct net_tls *t, const void *data, size_t bytes);
/* Returns true if TLS has buffered received bytes, which polling the socket does not show. */
bool net_tls_has_more(const struct net_tls *t);
