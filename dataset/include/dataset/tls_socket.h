/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct bio_method_st;
struct bio_st;

/* Returns a method by which OpenSSL sends and receives on a socket. It works as OpenSSL's own, but raises no
 * SIGPIPE if the peer has closed the connection. The caller frees it with BIO_meth_free(). NULL: no memory.
 */
struct bio_method_st *tls_socket_method(void);
/* Returns a BIO of that method for a connected socket, which still belongs to the caller. NULL: no memory. */
struct bio_st *tls_socket_new(struct bio_method_st *method, int fd);
