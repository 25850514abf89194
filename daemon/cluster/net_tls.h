/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * TLS 1.3 with a pre-shared key, over a socket that does not block: both ends show that they have the key,
 * and nobody has a certificate. A key per connection comes from an exchange beside it (X25519 and the like):
 * who learns the key later cannot read what was said before.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/error.h"

struct net_tls_keys;
struct net_tls;

int net_tls_keys_new(const uint8_t *key, size_t bytes, struct net_tls_keys **ret, struct error *err);

/* fd: borrowed. dials: this end has connected. -ENOMEM. */
int net_tls_new(struct net_tls_keys *keys, int fd, bool dials, struct net_tls **ret);
/* Sends nothing. */
struct net_tls *net_tls_free(struct net_tls *t);

/* 0: secured. -EAGAIN: when the socket can be read, or written if *waits_to_write. Else it has failed, and
 * *err says why. */
int net_tls_handshake(struct net_tls *t, bool *waits_to_write, struct error *err);
/* As recv(2) and send(2): how many bytes, 0 at the end, or a negative errno. After -EAGAIN, the same bytes
 * are to be sent, or more that begin with them. */
ssize_t net_tls_read(struct net_tls *t, void *data, size_t bytes);
ssize_t net_tls_write(struct net_tls *t, const void *data, size_t bytes);
/* Bytes that have been received wait to be read: the socket does not show them. */
bool net_tls_has_more(const struct net_tls *t);
