/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct bio_method_st;
struct bio_st;

/* How OpenSSL sends and receives on a socket: as by its own, but without a signal for a peer that went away.
 * The caller frees it by BIO_meth_free(). NULL: no memory. */
struct bio_method_st *tls_socket_method(void);
/* One of that method for a connected socket, which stays the caller's. NULL: no memory. */
struct bio_st *tls_socket_new(struct bio_method_st *method, int fd);
