/* SPDX-License-Identifier: Apache-2.0 */
#include "net_tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include "dataset/tls_socket.h"

#define IDENTITY     "diesel-peer-1"
#define SECRET_BYTES 32
/* Both use SHA-256, because the key's hash must be the same. */
#define CIPHERS     "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
#define READ_BYTES  (128u << 10) /* size of the read buffer, which is freed while idle */
#define MAX_AT_ONCE (1u << 30)

static const unsigned char cipher_of_key[] = {0x13, 0x01}; /* TLS_AES_128_GCM_SHA256 */
static const char label[] = "diesel peer key 1:";

struct net_tls_keys {
	SSL_CTX *context;
	BIO_METHOD *socket;
	uint8_t secret[SECRET_BYTES];
};

struct net_tls {
	SSL *ssl;
};

/* Makes a session that never existed, with our secret: OpenSSL accepts an external key in this way. */
static SSL_SESSION *session_of_key(SSL *ssl)
{
	const struct net_tls_keys *k = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
	const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, cipher_of_key);
	SSL_SESSION *s = SSL_SESSION_new();

	if (s && cipher && SSL_SESSION_set1_master_key(s, k->secret, sizeof(k->secret)) &&
	    SSL_SESSION_set_cipher(s, cipher) && SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
		return s;
	SSL_SESSION_free(s);
	return NULL;
}

static int use_key(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_bytes,
		   SSL_SESSION **ret)
{
	*ret = NULL;
	if (digest && EVP_MD_get_type(digest) != NID_sha256)
		return 1; /* continues without a key, so that the handshake fails */
	*ret = session_of_key(ssl);
	*id = (const unsigned char *)IDENTITY;
	*id_bytes = strlen(IDENTITY);
	return *ret != NULL;
}

static int find_key(SSL *ssl, const unsigned char *identity, size_t bytes, SSL_SESSION **ret)
{
	*ret = NULL;
	if (bytes != strlen(IDENTITY) || memcmp(identity, IDENTITY, bytes) != 0)
		return 1;
	*ret = session_of_key(ssl);
	return *ret != NULL;
}

static int derive(const uint8_t *key, size_t bytes, uint8_t secret[SECRET_BYTES])
{
	EVP_MD_CTX *c = EVP_MD_CTX_new();
	bool done = c && EVP_DigestInit_ex(c, EVP_sha256(), NULL) &&
		    EVP_DigestUpdate(c, label, sizeof(label) - 1) && EVP_DigestUpdate(c, key, bytes) &&
		    EVP_DigestFinal_ex(c, secret, NULL);

	EVP_MD_CTX_free(c);
	return done ? 0 : -ENOMEM;
}

static int make_context(struct net_tls_keys *k)
{
	k->context = SSL_CTX_new(TLS_method());
	k->socket = tls_socket_method();
	if (!k->context || !k->socket || !SSL_CTX_set_min_proto_version(k->context, TLS1_3_VERSION) ||
	    !SSL_CTX_set_ciphersuites(k->context, CIPHERS) || !SSL_CTX_set_num_tickets(k->context, 0))
		return -ENOMEM;
	SSL_CTX_set_app_data(k->context, k);
	/* Reads many records at once, instead of each header and then its body. */
	SSL_CTX_set_read_ahead(k->context, 1);
	SSL_CTX_set_default_read_buffer_len(k->context, READ_BYTES);
	SSL_CTX_set_session_cache_mode(k->context, SSL_SESS_CACHE_OFF);
	SSL_CTX_set_options(k->context, SSL_OP_NO_TICKET);
	SSL_CTX_set_mode(k->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
					 SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_psk_use_session_callback(k->context, use_key);
	SSL_CTX_set_psk_find_session_callback(k->context, find_key);
	return 0;
}

static void keys_free(struct net_tls_keys *k)
{
	SSL_CTX_free(k->context);
	BIO_meth_free(k->socket);
	explicit_bzero(k->secret, sizeof(k->secret));
	free(k);
}

int net_tls_keys_new(const uint8_t *key, size_t bytes, struct net_tls_keys **ret, struct error *err)
{
	struct net_tls_keys *k = calloc(1, sizeof(*k));

	if (!k)
		return error_errno(err, -ENOMEM, "cannot secure connections");
	if (derive(key, bytes, k->secret) < 0 || make_context(k) < 0) {
		keys_free(k);
		return error_set(err, -ENOMEM,
				 "cannot secure connections: OpenSSL has no TLS 1.3 with pre-shared keys");
	}
	*ret = k;
	return 0;
}

int net_tls_new(struct net_tls_keys *keys, int fd, bool dials, struct net_tls **ret)
{
	struct net_tls *t = calloc(1, sizeof(*t));
	BIO *b;

	if (!t)
		return -ENOMEM;
	t->ssl = SSL_new(keys->context);
	b = t->ssl ? tls_socket_new(keys->socket, fd) : NULL;
	if (!b) {
		net_tls_free(t);
		return -ENOMEM;
	}
	SSL_set_bio(t->ssl, b, b);
	if (dials)
		SSL_set_connect_state(t->ssl);
	else
		SSL_set_accept_state(t->ssl);
	*ret = t;
	return 0;
}

struct net_tls *net_tls_free(struct net_tls *t)
{
	if (t) {
		SSL_free(t->ssl);
		free(t);
	}
	return NULL;
}

/* Returns why the last call on this connection failed. */
static const char *reason(void)
{
	unsigned long code = ERR_peek_error();

	switch (ERR_GET_REASON(code)) {
	case SSL_R_BINDER_DOES_NOT_VERIFY:
	case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
	case SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER: return "the peer has another --cluster-key";
	case SSL_R_WRONG_VERSION_NUMBER:
	case SSL_R_HTTP_REQUEST: return "the peer does not use TLS: check its --cluster-key";
	case SSL_R_UNSUPPORTED_PROTOCOL: return "the peer does not support TLS 1.3";
	case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
	case SSL_R_NO_SHARED_CIPHER:
	case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE: return "the peer does not have this cluster's key";
	}
	return code && ERR_reason_error_string(code) ? ERR_reason_error_string(code)
						     : "the connection was closed";
}

int net_tls_handshake(struct net_tls *t, bool *waits_to_write, struct error *err)
{
	int r, what;

	ERR_clear_error();
	r = SSL_do_handshake(t->ssl);
	if (r == 1) {
		/* There are no certificates, so the peer can only have proved that it has the key. */
		return SSL_session_reused(t->ssl)
			   ? 0
			   : error_set(err, -EACCES, "the peer did not prove that it has the --cluster-key");
	}
	what = SSL_get_error(t->ssl, r);
	if (what == SSL_ERROR_WANT_READ || what == SSL_ERROR_WANT_WRITE) {
		*waits_to_write = what == SSL_ERROR_WANT_WRITE;
		return -EAGAIN;
	}
	error_set(err, -EACCES, "%s", reason());
	ERR_clear_error();
	return -EACCES;
}

static ssize_t failed(struct net_tls *t, int r)
{
	int what = SSL_get_error(t->ssl, r);

	ERR_clear_error();
	switch (what) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE: return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN: return 0;
	}
	return -ECONNRESET;
}

ssize_t net_tls_read(struct net_tls *t, void *data, size_t bytes)
{
	int r;

	ERR_clear_error();
	r = SSL_read(t->ssl, data, (int)(bytes < MAX_AT_ONCE ? bytes : MAX_AT_ONCE));
	return r > 0 ? r : failed(t, r);
}

ssize_t net_tls_write(struct net_tls *t, const void *data, size_t bytes)
{
	int r;

	ERR_clear_error();
	r = SSL_write(t->ssl, data, (int)(bytes < MAX_AT_ONCE ? bytes : MAX_AT_ONCE));
	return r > 0 ? r : failed(t, r);
}

bool net_tls_has_more(const struct net_tls *t)
{
	return SSL_has_pending(t->ssl);
}
