/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/tls_socket.h"

#include <errno.h>
#include <sys/socket.h>

#include <openssl/bio.h>

static int socket_write(BIO *b, const char *data, int bytes)
{
	ssize_t n = send((int)(intptr_t)BIO_get_data(b), data, (size_t)bytes, MSG_NOSIGNAL);

	BIO_clear_retry_flags(b);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		BIO_set_retry_write(b);
	return (int)n;
}

static int socket_read(BIO *b, char *data, int bytes)
{
	ssize_t n = recv((int)(intptr_t)BIO_get_data(b), data, (size_t)bytes, 0);

	BIO_clear_retry_flags(b);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		BIO_set_retry_read(b);
	return (int)n;
}

static long socket_control(BIO *b, int what, long number, void *data)
{
	return what == BIO_CTRL_FLUSH;
}

struct bio_method_st *tls_socket_method(void)
{
	BIO_METHOD *m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket");

	if (!m)
		return NULL;
	BIO_meth_set_write(m, socket_write);
	BIO_meth_set_read(m, socket_read);
	BIO_meth_set_ctrl(m, socket_control);
	return m;
}

struct bio_st *tls_socket_new(struct bio_method_st *method, int fd)
{
	BIO *b = BIO_new(method);

	if (!b)
		return NULL;
	BIO_set_data(b, (void *)(intptr_t)fd);
	BIO_set_init(b, 1);
	return b;
}
