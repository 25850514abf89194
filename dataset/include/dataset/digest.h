/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * SHA-256 by libcrypto, which uses the CPU's instructions for it; nobody else includes its headers. Unlike
 * XXH3, SHA-256 resists attackers: nobody can make other bytes with the same digest. Thread-safe; a stream
 * belongs to one thread.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define DIGEST_BYTES 32
#define DIGEST_NAME  "sha256" /* name of the digest in options and output */

struct digest {
	uint8_t bytes[DIGEST_BYTES];
};

struct digest_stream;

/* Starts a stream. -ENOMEM; -ENOTSUP: libcrypto is configured without SHA-256. */
int digest_stream_new(struct digest_stream **ret);
int digest_stream_add(struct digest_stream *s, const void *data, size_t bytes);
int digest_stream_finish(struct digest_stream *s, struct digest *ret);
void digest_stream_free(struct digest_stream *s); /* accepts NULL */

/* Computes the digest of several parts, one after the other. Errors as digest_stream_new(). */
int digest_of(const struct iovec *parts, int n_parts, struct digest *ret);

bool digest_equal(const struct digest *a, const struct digest *b);
