/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
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

int redis_wait(int fd, short events, uint64_t until_ns)
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
static int redis_tls_open(const struct redis_login *login, int fd, struct redis_tls **ret, struct error *err)
{
	const char *name = login->names[0];
	struct redis_tls *t = calloc(1, sizeof(*t));
	X509 *certificate;
	BIO *bio = tls_socket_new(login->tls->socket, fd);
	int r;

	if (t)
		t->ssl = SSL_new(login->tls->context);
	if (!t || !t->ssl || !bio || (!is_address(name) && SSL_set_tlsext_host_name(t->ssl, name) != 1)) {
		BIO_free(bio);
		redis_tls_close(t);
		return error_errno(err, -ENOMEM, "TLS");
	}
	SSL_set_bio(t->ssl, bio, bio);
	r = shake(t, fd, login->until_ns, name, err);
	certificate = r == 0 ? SSL_get1_peer_certificate(t->ssl) : NULL;
	if (r == 0 && !(certificate && (is_for(certificate, name) || is_for(certificate, login->names[1]))))
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

#define LINE_MAX_BYTES (64 << 10)

/* Since version 1, hiredis counts elements in another type. */
#if HIREDIS_MAJOR < 1
typedef int element_count;
#else
typedef size_t element_count;
#endif

struct redis_conn {
	int fd;
	struct redis_tls *tls;
	redisReader *reader;
	redisReplyObjectFunctions bounded;
	const redisReplyObjectFunctions *plain;
	size_t n_bytes, n_objects; /* received since the batch began */
	uint64_t silence_ns, until_ns;

	struct buffer out;
	size_t sent;
	size_t n_wanted;
	bool failed; /* no memory for the outgoing data */
	redisReply **replies;
	size_t n_replies, n_space;
};

/* hiredis allocates memory for as many elements as a reply announces, before one of them has arrived. */
static void *create_array(const redisReadTask *task, element_count n)
{
	struct redis_conn *c = task->privdata;

	if ((size_t)n > REDIS_CONN_OBJECTS - c->n_objects)
		return NULL;
	c->n_objects += (size_t)n;
	return c->plain->createArray(task, n);
}

static int make_reader(struct redis_conn *c)
{
	c->reader = redisReaderCreate();
	if (!c->reader)
		return -ENOMEM;
	c->plain = c->reader->fn;
	c->bounded = *c->plain;
	c->bounded.createArray = create_array;
	c->reader->fn = &c->bounded;
	c->reader->privdata = c;
	return 0;
}

/* Returns true if the line is too long. hiredis would search an incomplete line from its start each time that
 * more bytes arrive. */
static bool is_endless_line(const redisReader *reader)
{
	return reader->len - reader->pos > LINE_MAX_BYTES &&
	       !memchr(reader->buf + reader->pos, '\n', LINE_MAX_BYTES);
}

static int feed(struct redis_conn *c, const void *data, size_t bytes)
{
	c->n_bytes += bytes;
	return c->n_bytes <= REDIS_CONN_BYTES && !is_endless_line(c->reader) &&
		       redisReaderFeed(c->reader, data, bytes) == REDIS_OK
		   ? 0
		   : -EPROTO;
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
		void *reply = NULL;

		if (redisReaderGetReply(c->reader, &reply) != REDIS_OK)
			return -EPROTO;
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
		int r = n < 0 ? (int)n : feed(c, bytes, (size_t)n);

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
	c->n_bytes = c->n_objects = 0;
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

static int greet(struct redis_conn *c, const struct redis_login *login, struct redis_facts *ret,
		 struct error *err)
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
	return r < 0 ? error_errno(err, r, "%s does not answer", login->text)
		     : take_greeting(c, first, login->text, ret, err);
}

int redis_conn_open(int fd, const struct redis_login *login, struct redis_conn **ret,
		    struct redis_facts *ret_facts, struct error *err)
{
	_cleanup_(closep) int owned = fd;
	struct redis_conn *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return error_errno(err, -ENOMEM, "%s", login->text);
	c->fd = steal_fd(&owned);
	c->silence_ns = login->silence_ns;
	r = make_reader(c);
	if (r < 0)
		error_errno(err, r, "%s", login->text);
	if (r == 0 && login->tls) {
		r = redis_tls_open(login, c->fd, &c->tls, err);
		if (r < 0)
			error_prefix(err, "%s", login->text);
	}
	if (r == 0)
		r = greet(c, login, ret_facts, err);
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
	if (c->reader)
		redisReaderFree(c->reader);
	for (size_t i = 0; i < c->n_replies; i++)
		if (c->replies[i])
			freeReplyObject(c->replies[i]);
	free(c->replies);
	buffer_free(&c->out);
	free(c);
}
