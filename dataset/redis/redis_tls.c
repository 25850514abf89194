/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "dataset/tls_socket.h"
#include "lib/clock.h"
#include "redis_wait.h"

struct redis_tls_config {
	SSL_CTX *context;
	BIO_METHOD *socket;
};

struct redis_tls {
	SSL *ssl;
};

static int make_context(struct redis_tls_config *c)
{
	c->context = SSL_CTX_new(TLS_client_method());
	c->socket = tls_socket_method();
	if (!c->context || !c->socket)
		return -ENOMEM;
	SSL_CTX_set_min_proto_version(c->context, TLS1_2_VERSION);
	SSL_CTX_set_verify(c->context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_mode(c->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return 0;
}

/* The newest failure that OpenSSL knows of, in its words. */
static const char *reason(void)
{
	unsigned long code = ERR_peek_last_error();
	const char *text = code ? ERR_reason_error_string(code) : NULL;

	ERR_clear_error();
	return text ? text : "it failed";
}

static int load(struct redis_tls_config *c, const struct redis_tls_files *files, struct error *err)
{
	if (files->ca) {
		if (SSL_CTX_load_verify_locations(c->context, files->ca, NULL) != 1)
			return error_set(err, -EINVAL, "DIESEL_REDIS_CA: %s: %s", files->ca, reason());
	} else if (SSL_CTX_set_default_verify_paths(c->context) != 1) {
		return error_set(err, -EINVAL, "the system's certificates: %s", reason());
	}
	if (!files->cert != !files->key)
		return error_set(err, -EINVAL, "DIESEL_REDIS_CERT and DIESEL_REDIS_KEY go together");
	if (!files->cert)
		return 0;
	if (SSL_CTX_use_certificate_chain_file(c->context, files->cert) != 1)
		return error_set(err, -EINVAL, "DIESEL_REDIS_CERT: %s: %s", files->cert, reason());
	if (SSL_CTX_use_PrivateKey_file(c->context, files->key, SSL_FILETYPE_PEM) != 1 ||
	    SSL_CTX_check_private_key(c->context) != 1)
		return error_set(err, -EINVAL, "DIESEL_REDIS_KEY: %s: %s", files->key, reason());
	return 0;
}

int redis_tls_configure(const struct redis_tls_files *files, struct redis_tls_config **ret, struct error *err)
{
	struct redis_tls_config *c = calloc(1, sizeof(*c));
	int r = c ? make_context(c) : -ENOMEM;

	r = r < 0 ? error_errno(err, r, "TLS") : load(c, files, err);
	if (r < 0)
		redis_tls_config_free(c);
	else
		*ret = c;
	return r;
}

void redis_tls_config_free(struct redis_tls_config *c)
{
	if (!c)
		return;
	SSL_CTX_free(c->context);
	BIO_meth_free(c->socket);
	free(c);
}

static bool is_address(const char *name)
{
	unsigned char bytes[16];

	return inet_pton(AF_INET, name, bytes) == 1 || inet_pton(AF_INET6, name, bytes) == 1;
}

static bool is_for(X509 *certificate, const char *name)
{
	if (!name || !name[0])
		return false;
	return is_address(name)
		   ? X509_check_ip_asc(certificate, name, 0) == 1
		   : X509_check_host(certificate, name, 0, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1;
}

/* Returns the outcome of an operation that did not succeed, and the events that it waits for. */
static int outcome(SSL *ssl, int n, short *events)
{
	int wants = SSL_get_error(ssl, n);

	if (wants != SSL_ERROR_WANT_READ && wants != SSL_ERROR_WANT_WRITE)
		return -ECONNRESET;
	*events = wants == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
	return -EAGAIN;
}

static int shake(struct redis_tls *t, int fd, uint64_t until_ns, const char *name, struct error *err)
{
	for (;;) {
		short events = 0;
		int n, r;

		ERR_clear_error();
		n = SSL_connect(t->ssl);
		if (n == 1)
			return 0;
		r = outcome(t->ssl, n, &events);
		if (r == -EAGAIN)
			r = redis_wait(fd, events, until_ns);
		else if (SSL_get_verify_result(t->ssl) != X509_V_OK)
			return error_set(err, -EACCES, "%s: its certificate is not accepted: %s", name,
					 X509_verify_cert_error_string(SSL_get_verify_result(t->ssl)));
		else
			return error_set(err, ERR_peek_error() ? -EPROTO : -ECONNRESET, "%s: TLS: %s", name,
					 ERR_peek_error() ? reason() : "the server hung up");
		if (r < 0)
			return error_errno(err, r, "%s: TLS", name);
	}
}

int redis_tls_open(struct redis_tls_config *c, int fd, const char *name, const char *other_name,
		   uint64_t until_ns, struct redis_tls **ret, struct error *err)
{
	struct redis_tls *t = calloc(1, sizeof(*t));
	X509 *certificate;
	BIO *bio = tls_socket_new(c->socket, fd);
	int r;

	if (t)
		t->ssl = SSL_new(c->context);
	if (!t || !t->ssl || !bio || (!is_address(name) && SSL_set_tlsext_host_name(t->ssl, name) != 1)) {
		BIO_free(bio);
		redis_tls_close(t);
		return error_errno(err, -ENOMEM, "TLS");
	}
	SSL_set_bio(t->ssl, bio, bio);
	r = shake(t, fd, until_ns, name, err);
	certificate = r == 0 ? SSL_get1_peer_certificate(t->ssl) : NULL;
	if (r == 0 && !(certificate && (is_for(certificate, name) || is_for(certificate, other_name))))
		r = error_set(err, -EACCES, "%s: its certificate is for another name", name);
	X509_free(certificate);
	if (r < 0)
		redis_tls_close(t);
	else
		*ret = t;
	return r;
}

void redis_tls_close(struct redis_tls *t)
{
	if (t)
		SSL_free(t->ssl);
	free(t);
}

ssize_t redis_tls_recv(struct redis_tls *t, void *data, size_t bytes, short *events)
{
	int n;

	ERR_clear_error();
	n = SSL_read(t->ssl, data, bytes > INT_MAX ? INT_MAX : (int)bytes);
	return n > 0 ? n : outcome(t->ssl, n, events);
}

ssize_t redis_tls_send(struct redis_tls *t, const void *data, size_t bytes, short *events)
{
	int n;

	ERR_clear_error();
	n = SSL_write(t->ssl, data, bytes > INT_MAX ? INT_MAX : (int)bytes);
	return n > 0 ? n : outcome(t->ssl, n, events);
}
