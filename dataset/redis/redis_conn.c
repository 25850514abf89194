/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "dataset/chunk/buffer.h"
#include "dataset/tls_socket.h"
#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "redis_command.h"
#include "redis_refusal.h"
#include "redis_scripts.h"
#include "redis_tls.h"

struct redis_tls_config {
	SSL_CTX *context;
	BIO_METHOD *socket;
};

struct redis_tls {
	SSL *ssl;
};

/* Waits for one descriptor. Returns the events that poll() found, 0 after a signal, or -ETIMEDOUT. */
static int redis_wait(int fd, short events, uint64_t until_ns)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct pollfd p = {.fd = fd, .events = events};
	int n = now_ns < until_ns ? poll(&p, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1) : 0;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n == 0 ? -ETIMEDOUT : p.revents;
}

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

/* Returns OpenSSL's text for its newest failure. */
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

void redis_tls_config_free(struct redis_tls_config *c)
{
	if (!c)
		return;
	SSL_CTX_free(c->context);
	BIO_meth_free(c->socket);
	free(c);
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
			return error_set(err, -EACCES, "%s: the server's TLS certificate was rejected: %s",
					 name, X509_verify_cert_error_string(SSL_get_verify_result(t->ssl)));
		else
			return error_set(err, ERR_peek_error() ? -EPROTO : -ECONNRESET, "%s: TLS: %s", name,
					 ERR_peek_error() ? reason() : "the server closed the connection");
		if (r < 0)
			return error_errno(err, r, "%s: TLS", name);
	}
}

static void redis_tls_close(struct redis_tls *t)
{
	if (t)
		SSL_free(t->ssl);
	free(t);
}

/* Performs the handshake. The server's certificate must be valid now, come from the CA, and be for one of the
 * two names (or addresses). -EACCES if not; -ETIMEDOUT; -EPROTO. */
static int redis_tls_open(struct redis_tls_config *c, int fd, const char *name, const char *other_name,
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
		r = error_set(err, -EACCES, "%s: the server's TLS certificate is for another name", name);
	X509_free(certificate);
	if (r < 0)
		redis_tls_close(t);
	else
		*ret = t;
	return r;
}

/* As recv() and send(); -EAGAIN: *events is the poll() event to wait for. -ECONNRESET */
static ssize_t redis_tls_recv(struct redis_tls *t, void *data, size_t bytes, short *events)
{
	int n;

	ERR_clear_error();
	n = SSL_read(t->ssl, data, bytes > INT_MAX ? INT_MAX : (int)bytes);
	return n > 0 ? n : outcome(t->ssl, n, events);
}

static ssize_t redis_tls_send(struct redis_tls *t, const void *data, size_t bytes, short *events)
{
	int n;

	ERR_clear_error();
	n = SSL_write(t->ssl, data, bytes > INT_MAX ? INT_MAX : (int)bytes);
	return n > 0 ? n : outcome(t->ssl, n, events);
}

#define CONNECT_NS (5 * NS_PER_S)

struct redis_conn {
	int fd;
	struct redis_tls *tls;
	struct redis_reader *reader;
	uint64_t silence_ns, until_ns;

	struct buffer out;
	size_t sent;
	size_t n_wanted;
	bool failed; /* no memory for the outgoing data */
	redisReply **replies;
	size_t n_replies, n_space;
};

static int connect_to(const struct addrinfo *a, uint64_t until_ns)
{
	_cleanup_(closep) int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int error = 0, yes = 1, r = 0;
	socklen_t size = sizeof(error);

	if (fd < 0)
		return -errno;
	if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
		if (errno != EINPROGRESS)
			return -errno;
		while (r == 0)
			r = redis_wait(fd, POLLOUT, until_ns);
		if (r < 0)
			return r;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)
			return error ? -error : -errno;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	return steal_fd(&fd);
}

static int dial(const struct redis_address *to, const char *text, uint64_t until_ns, struct error *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	struct addrinfo *found = NULL;
	int r = getaddrinfo(to->host, to->port, &hints, &found), fd = -EADDRNOTAVAIL;

	if (r != 0)
		return error_set(err, -EHOSTUNREACH, "%s: %s", text, gai_strerror(r));
	for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
		fd = connect_to(a, until_ns);
	freeaddrinfo(found);
	return fd < 0 ? error_errno(err, fd, "cannot connect to %s", text) : fd;
}

static ssize_t receive(struct redis_conn *c, void *data, size_t bytes, short *events)
{
	ssize_t n = c->tls ? redis_tls_recv(c->tls, data, bytes, events) : recv(c->fd, data, bytes, 0);

	if (c->tls || n > 0)
		return n;
	*events = POLLIN;
	return n == 0 ? -ECONNRESET : errno == EINTR ? -EAGAIN : -errno;
}

static ssize_t transmit(struct redis_conn *c, const void *data, size_t bytes, short *events)
{
	ssize_t n =
	    c->tls ? redis_tls_send(c->tls, data, bytes, events) : send(c->fd, data, bytes, MSG_NOSIGNAL);

	if (c->tls || n >= 0)
		return n;
	*events = POLLOUT;
	return errno == EINTR ? -EAGAIN : -errno;
}

/* Takes complete replies. Only they end a server's silence: one that sends single bytes is as silent as one
 * that sends none. */
static int take_replies(struct redis_conn *c)
{
	while (c->n_replies < c->n_wanted) {
		redisReply *reply;
		int r = redis_reader_take(c->reader, &reply);

		if (r < 0)
			return r;
		if (!reply)
			return 0;
		if (array_reserve(c->replies, c->n_replies, c->n_space) < 0) {
			freeReplyObject(reply);
			return -ENOMEM;
		}
		c->replies[c->n_replies++] = reply;
		c->until_ns = clock_monotonic_ns() + c->silence_ns;
	}
	return 0;
}

static int pull(struct redis_conn *c, short *events)
{
	char bytes[64 << 10];

	while (c->n_replies < c->n_wanted) {
		ssize_t n = receive(c, bytes, sizeof(bytes), events);
		int r = n < 0 ? (int)n : redis_reader_feed(c->reader, bytes, (size_t)n);

		r = r < 0 ? r : take_replies(c);
		if (r < 0)
			return r;
	}
	return 0;
}

static int push(struct redis_conn *c, short *events)
{
	while (c->sent < c->out.bytes) {
		ssize_t n = transmit(c, c->out.data + c->sent, c->out.bytes - c->sent, events);

		if (n < 0)
			return (int)n;
		c->sent += (size_t)n;
	}
	return 0;
}

int redis_conn_step(struct redis_conn *c, struct pollfd *ret, uint64_t *ret_until_ns)
{
	short for_push = 0, for_pull = 0;
	int r = c->failed ? -ENOMEM : push(c, &for_push);

	if (r == 0 || r == -EAGAIN)
		r = pull(c, &for_pull);
	if (r != -EAGAIN)
		return r < 0 ? r : 1;
	if (clock_monotonic_ns() >= c->until_ns)
		return -ETIMEDOUT;
	*ret = (struct pollfd){.fd = c->fd, .events = (short)(for_push | for_pull)};
	*ret_until_ns = c->until_ns;
	return 0;
}

int redis_conn_run(struct redis_conn *c)
{
	for (;;) {
		uint64_t until_ns;
		struct pollfd p;
		int r = redis_conn_step(c, &p, &until_ns);

		if (r != 0)
			return r < 0 ? r : 0;
		r = redis_wait(p.fd, p.events, until_ns);
		if (r < 0 && r != -ETIMEDOUT)
			return r;
	}
}

void redis_conn_begin(struct redis_conn *c)
{
	for (size_t i = 0; i < c->n_replies; i++)
		if (c->replies[i])
			freeReplyObject(c->replies[i]);
	c->n_replies = c->n_wanted = c->sent = c->out.bytes = 0;
	c->failed = false;
	c->until_ns = clock_monotonic_ns() + c->silence_ns;
	redis_reader_begin(c->reader);
}

void redis_conn_add(struct redis_conn *c, const void *command, size_t bytes)
{
	c->failed |= buffer_append(&c->out, command, bytes) < 0;
	c->n_wanted++;
}

void redis_conn_add_text(struct redis_conn *c, size_t n, const char *const *args)
{
	c->failed |= redis_command_text(&c->out, n, args) < 0;
	c->n_wanted++;
}

size_t redis_conn_n(const struct redis_conn *c)
{
	return c->n_wanted;
}

const redisReply *redis_conn_reply(const struct redis_conn *c, size_t i)
{
	return i < c->n_replies ? c->replies[i] : NULL;
}

redisReply *redis_conn_take(struct redis_conn *c, size_t i)
{
	return i < c->n_replies ? steal_pointer(c->replies[i]) : NULL;
}

/* Returns true if INFO's reply contains this line. */
static bool says(const char *info, const char *line)
{
	const char *at = strstr(info, line);

	return at && (at == info || at[-1] == '\n');
}

/* Reads facts from the reply to INFO. A user without permission for INFO does without: redirections show a
 * cluster, too. */
static void take_info(const redisReply *reply, struct redis_facts *facts)
{
	if (reply->type != REDIS_REPLY_STRING)
		return;
	facts->is_cluster = says(reply->str, "cluster_enabled:1");
	facts->evicts = says(reply->str, "maxmemory_policy:allkeys-") && !says(reply->str, "maxmemory:0\r");
	facts->has_replicas =
	    says(reply->str, "connected_slaves:") && !says(reply->str, "connected_slaves:0");
}

static int take_greeting(struct redis_conn *c, size_t first, const char *text, struct redis_facts *ret,
			 struct error *err)
{
	struct redis_facts facts = {0};

	for (size_t i = 0; i < c->n_wanted; i++) {
		const redisReply *reply = c->replies[i];

		if (reply->type == REDIS_REPLY_ERROR && (i != first || redis_refusal_is(reply, "NOAUTH")))
			return redis_refusal(reply, text, err);
		if (i <= first)
			continue;
		if (reply->type != REDIS_REPLY_STRING || reply->len != 40)
			return error_set(err, -EPROTO, "%s is not a Redis server", text);
		memcpy(facts.sha[i - first - 1], reply->str, 41);
	}
	take_info(c->replies[first], &facts);
	*ret = facts;
	return 0;
}

static int greet(struct redis_conn *c, const struct redis_login *login, const char *text,
		 struct redis_facts *ret, struct error *err)
{
	size_t first = login->password[0] ? 1 : 0;
	int r;

	redis_conn_begin(c);
	if (first && login->user[0])
		redis_conn_add_text(c, 3, (const char *[]){"AUTH", login->user, login->password});
	else if (first)
		redis_conn_add_text(c, 2, (const char *[]){"AUTH", login->password});
	redis_conn_add_text(c, 1, (const char *[]){"INFO"});
	for (size_t i = 0; i < N_REDIS_SCRIPTS; i++)
		redis_conn_add_text(c, 3, (const char *[]){"SCRIPT", "LOAD", redis_scripts[i]});
	r = redis_conn_run(c);
	if (c->out.data)
		explicit_bzero(c->out.data, c->out.bytes);
	return r < 0 ? error_errno(err, r, "%s does not answer", text)
		     : take_greeting(c, first, text, ret, err);
}

int redis_conn_open(const struct redis_address *to, const struct redis_login *login, const char *text,
		    struct redis_conn **ret, struct redis_facts *ret_facts, struct error *err)
{
	uint64_t until_ns =
	    clock_monotonic_ns() + (login->silence_ns < CONNECT_NS ? login->silence_ns : CONNECT_NS);
	struct redis_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_errno(err, -ENOMEM, "%s", text);
	c->silence_ns = login->silence_ns;
	c->reader = redis_reader_new();
	c->fd = c->reader ? dial(to, text, until_ns, err) : error_errno(err, -ENOMEM, "%s", text);
	r = c->fd < 0 ? c->fd : 0;
	if (r == 0 && login->tls) {
		r = redis_tls_open(login->tls, c->fd, to->host, login->name, until_ns, &c->tls, err);
		if (r < 0)
			error_prefix(err, "%s", text);
	}
	if (r == 0)
		r = greet(c, login, text, ret_facts, err);
	if (r < 0)
		redis_conn_close(c);
	else
		*ret = c;
	return r;
}

void redis_conn_close(struct redis_conn *c)
{
	if (!c)
		return;
	redis_tls_close(c->tls);
	closep(&c->fd);
	redis_reader_free(c->reader);
	for (size_t i = 0; i < c->n_replies; i++)
		if (c->replies[i])
			freeReplyObject(c->replies[i]);
	free(c->replies);
	buffer_free(&c->out);
	free(c);
}
