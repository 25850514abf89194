/* SPDX-License-Identifier: Apache-2.0 */
/* One connection to a peer. It is read in turns, unless the peer asks too much, and written while there is
 * something to send: frames first, then the next piece of an answer, so that no question waits for a whole
 * chunk. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>

#include "lib/cleanup.h"
#include "lib/list.h"
#include "net.h"

#include "dataset/tls_socket.h"

/* Maximum bytes in and out in one turn of the loop, so that each peer gets its turn. */
#define TURN_BYTES ((size_t)2 << 20)
/* Maximum number of frames received at once, before checking again whether more may come. */
#define FRAMES_AT_ONCE 64
/* Maximum of unsent bytes in the kernel, because frames have to wait behind them. */
#define UNSENT_BYTES (256 << 10)

static void on_poll(uv_poll_t *poll, int status, int events);

/*
 * TLS 1.3 with a pre-shared key, over a non-blocking socket: both ends prove that they have the key, and
 * there are no certificates. Each connection's key also comes from a key exchange (X25519 and the like), so
 * that an attacker who learns the pre-shared key later cannot decrypt earlier connections.
 */

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

/* Makes one end of a secured connection. fd: borrowed. dials: this end made the connection. NULL: no memory.
 */
static SSL *tls_new(struct net_tls_keys *keys, int fd, bool dials)
{
	SSL *ssl = SSL_new(keys->context);
	BIO *b = ssl ? tls_socket_new(keys->socket, fd) : NULL;

	if (!b) {
		SSL_free(ssl);
		return NULL;
	}
	SSL_set_bio(ssl, b, b);
	if (dials)
		SSL_set_connect_state(ssl);
	else
		SSL_set_accept_state(ssl);
	return ssl;
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

/* Continues the handshake. 0: the connection is secured. -EAGAIN: call again when the socket can be read, or
 * written if *waits_to_write. Otherwise the handshake has failed, and *err says why. */
static int tls_handshake(SSL *t, bool *waits_to_write, struct error *err)
{
	int r, what;

	ERR_clear_error();
	r = SSL_do_handshake(t);
	if (r == 1) {
		/* There are no certificates, so the peer can only have proved that it has the key. */
		return SSL_session_reused(t)
			   ? 0
			   : error_set(err, -EACCES, "the peer did not prove that it has the --cluster-key");
	}
	what = SSL_get_error(t, r);
	if (what == SSL_ERROR_WANT_READ || what == SSL_ERROR_WANT_WRITE) {
		*waits_to_write = what == SSL_ERROR_WANT_WRITE;
		return -EAGAIN;
	}
	error_set(err, -EACCES, "%s", reason());
	ERR_clear_error();
	return -EACCES;
}

static ssize_t failed(SSL *t, int r)
{
	int what = SSL_get_error(t, r);

	ERR_clear_error();
	switch (what) {
	case SSL_ERROR_WANT_READ:
	case SSL_ERROR_WANT_WRITE: return -EAGAIN;
	case SSL_ERROR_ZERO_RETURN: return 0;
	}
	return -ECONNRESET;
}

/* As recv(2) and send(2): return the number of bytes, 0 at the end, or a negative errno. After -EAGAIN, send
 * the same bytes again, or more that begin with them. */
static ssize_t tls_read(SSL *t, void *data, size_t bytes)
{
	int r;

	ERR_clear_error();
	r = SSL_read(t, data, (int)(bytes < MAX_AT_ONCE ? bytes : MAX_AT_ONCE));
	return r > 0 ? r : failed(t, r);
}

static ssize_t tls_write(SSL *t, const void *data, size_t bytes)
{
	int r;

	ERR_clear_error();
	r = SSL_write(t, data, (int)(bytes < MAX_AT_ONCE ? bytes : MAX_AT_ONCE));
	return r > 0 ? r : failed(t, r);
}

static bool has_output(const struct net_conn *c)
{
	if (c->out || c->ring_n > 0)
		return true;
	for (const struct net_question *q = c->questions; q; q = q->next)
		if (q->state == NET_QUESTION_GIVES)
			return true;
	return false;
}

void net_conn_poll(struct net_conn *c)
{
	int events = 0;

	switch (c->state) {
	case NET_CONNECTING: events = UV_WRITABLE; break;
	case NET_SECURING: events = c->tls_writes ? UV_WRITABLE : UV_READABLE; break;
	case NET_GREETING: events = UV_READABLE | (c->out ? UV_WRITABLE : 0); break;
	case NET_OPEN: events = (c->is_paused ? 0 : UV_READABLE) | (has_output(c) ? UV_WRITABLE : 0); break;
	case NET_CLOSED: return;
	}
	if (events == c->polls)
		return;
	c->polls = events;
	if (events)
		uv_poll_start(&c->poll, events, on_poll);
	else
		uv_poll_stop(&c->poll);
}

/* ---- the end ------------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
	struct net_conn *c = handle->data;

	LL_DELETE(c->net->conns, c);
	close(c->fd);
	free(c);
}

static void leave_again(struct net_conn *c)
{
	if (c->net->agains) /* on_again() may have removed it already */
		LL_DELETE2(c->net->agains, c, next_again);
	c->reads_again = false;
}

/* Makes close() reset the connection and drop unsent bytes: they are not worth waiting for. */
static void close_at_once(int fd)
{
	const struct linger now = {.l_onoff = 1, .l_linger = 0};

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

void net_conn_close(struct net_conn *c, const char *why)
{
	bool was_open = c->state == NET_OPEN;

	if (c->state == NET_CLOSED)
		return;
	if (!was_open && !c->dialled)
		c->net->n_half--;
	c->state = NET_CLOSED;
	if (was_open)
		close_at_once(c->fd);
	else if (!c->dialled && why)
		log_limited(&c->net->said_conn, LOG_LEVEL_WARNING, "refused a connection from %s: %s",
			    c->address, why);
	if (c->peer) {
		net_chunks_lost(c, why);
		c->net->on_conn->lost(c, why);
	}
	leave_again(c);
	SSL_free(c->tls);
	c->tls = NULL;
	free(c->ring);
	free(c->out);
	c->ring = NULL;
	c->out = NULL;
	uv_close((uv_handle_t *)&c->poll, on_closed);
}

/* ---- out ----------------------------------------------------------------------------------------------- */

void net_conn_send_frame(struct net_conn *c, const struct net_frame *frame)
{
	if (c->state != NET_OPEN || c->ring_n == NET_RING)
		return; /* the limits of both ends leave space: net_chunks_may_read() */
	c->ring[(c->ring_first + c->ring_n++) % NET_RING] = *frame;
	net_conn_poll(c);
}

void net_conn_send(struct net_conn *c, enum net_kind kind, uint64_t id, int32_t code, uint64_t bytes)
{
	const struct net_frame f = {.kind = (uint16_t)kind, .id = id, .code = code, .bytes = bytes};

	net_conn_send_frame(c, &f);
}

static int send_hello(struct net_conn *c, const char *to)
{
	struct net_hello *hello = malloc(sizeof(*hello));

	if (!hello)
		return -ENOMEM;
	net_hello_fill(hello, c->net->config->node, to, c->net->incarnation);
	free(c->out);
	c->out = (uint8_t *)hello;
	c->out_at = 0;
	c->out_bytes = sizeof(*hello);
	c->out_ns = c->net->now_ns;
	return 0;
}

/* Fills the output buffer with the next frames and bytes. Returns false if there is nothing to send, or no
 * memory. */
static bool fill(struct net_conn *c)
{
	size_t n = 0, space;

	if (!has_output(c))
		return false;
	space = (c->ring_n + 1) * sizeof(struct net_frame) + NET_PIECE_BYTES;
	c->out = malloc(space);
	if (!c->out)
		return false; /* no memory: tries again later */
	for (; c->ring_n > 0; c->ring_n--) {
		memcpy(c->out + n, &c->ring[c->ring_first], sizeof(struct net_frame));
		n += sizeof(struct net_frame);
		c->ring_first = (c->ring_first + 1) % NET_RING;
	}
	n += net_chunks_next(c, c->out + n, space - n);
	c->out_at = 0;
	c->out_bytes = n;
	c->out_ns = c->net->now_ns;
	return true;
}

static ssize_t send_some(struct net_conn *c, const uint8_t *data, size_t bytes)
{
	ssize_t n;

	if (c->tls)
		return tls_write(c->tls, data, bytes);
	n = send(c->fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
	return n < 0 ? (errno == EINTR ? -EAGAIN : -errno) : n;
}

static void write_on(struct net_conn *c)
{
	size_t turn = TURN_BYTES;

	while (turn > 0 && (c->out || (c->state == NET_OPEN && fill(c)))) {
		ssize_t n = send_some(c, c->out + c->out_at, c->out_bytes - c->out_at);

		if (n == -EAGAIN)
			break;
		if (n <= 0) {
			net_conn_close(c, n < 0 ? strerror((int)-n) : "the peer closed the connection");
			return;
		}
		c->out_ns = c->net->now_ns;
		c->out_at += (size_t)n;
		turn -= (size_t)n < turn ? (size_t)n : turn;
		if (c->out_at == c->out_bytes) {
			free(c->out);
			c->out = NULL;
		}
	}
	net_conn_poll(c);
}

/* ---- greeting ------------------------------------------------------------------------------------------ */

/* Without a key, checks that the connection belongs to this process's user or root. Called when the first
 * bytes have arrived: then a process has the other end open. */
static int check_owner(struct net_conn *c, char *why, size_t size)
{
	uint32_t uid;
	int r;

	if (c->is_known || c->net->keys)
		return 0;
	r = net_address_owner(c->fd, &uid);
	if (r < 0) {
		snprintf(why, size, "cannot find out which user runs the peer (%s)", strerror(-r));
		return -EPERM;
	}
	if (uid != 0 && uid != c->net->config->uid) {
		snprintf(why, size,
			 "the peer runs as user %u: without --cluster-key, it must run as this user or root",
			 uid);
		return -EPERM;
	}
	c->is_known = true;
	return 0;
}

static int open_up(struct net_conn *c, struct net_peer *p)
{
	c->ring = malloc(NET_RING * sizeof(struct net_frame));
	if (!c->ring)
		return -ENOMEM;
	if (p->conn)
		net_conn_close(p->conn, "the peer connected again");
	if (p->dialled == c)
		p->dialled = NULL;
	if (!c->dialled)
		c->net->n_half--;
	c->peer = p;
	p->conn = c;
	c->state = NET_OPEN;
	c->in_ns = c->net->now_ns;
	c->accepts = (struct net_budget){.tokens = 1, .at_ns = c->net->now_ns};
	p->back_off_ns = 0;
	p->is_changed = true;
	return 0;
}

static int greeted(struct net_conn *c, const struct net_hello *hello, char *why, size_t size)
{
	const char *self = c->net->config->node;
	struct net_peer *p = c->peer;

	if (strcmp(hello->from, self) == 0) {
		snprintf(why, size,
			 "the peer has this node's own name, %s: give each node its own --cluster-name",
			 self);
		return -EPROTO;
	}
	if (strcmp(hello->to, self) != 0 || (p && strcmp(hello->from, p->node) != 0)) {
		snprintf(why, size, "the peer is node %s, and expects to reach node %s here", hello->from,
			 hello->to);
		return -EPROTO;
	}
	if (!p)
		p = net_peer_get(c->net, hello->from);
	if (!p || (!c->dialled && send_hello(c, p->node) < 0) || open_up(c, p) < 0) {
		snprintf(why, size, "too many nodes, or out of memory");
		return -ENOMEM;
	}
	p->incarnation = hello->incarnation;
	return 0;
}

/* ---- in ------------------------------------------------------------------------------------------------ */

static int take_frame(struct net_conn *c, const struct net_frame *f)
{
	switch (f->kind) {
	case NET_PING:
		c->accepts.tokens -= 1;
		net_conn_send(c, NET_PONG, f->id, 0, 0);
		return 0;
	case NET_PONG:
		if (f->id == c->ping_id && c->ping_waits) {
			c->ping_waits = false;
			c->net->on_conn->answered(c);
		}
		return 0;
	default: return net_chunks_frame(c, f);
	}
}

static int take_event(struct net_conn *c, const struct net_event *event, char *why, size_t size)
{
	int r = 0;

	switch (event->kind) {
	case NET_EVENT_HELLO: return greeted(c, &event->hello, why, size);
	case NET_EVENT_FRAME: r = take_frame(c, &event->frame); break;
	case NET_EVENT_BYTES: net_chunks_bytes(c, event->data, event->bytes); break;
	}
	if (r < 0)
		snprintf(why, size, "the peer sent an answer without a request");
	return r;
}

/* Sends this node's hello to a peer of another version, so that both ends can report the problem. */
static void tell_version(struct net_conn *c)
{
	struct net_hello hello;

	if (c->dialled || c->out)
		return;
	net_hello_fill(&hello, c->net->config->node, c->net->config->node, c->net->incarnation);
	(void)send_some(c, (const uint8_t *)&hello, sizeof(hello));
}

static void take_bytes(struct net_conn *c, const uint8_t *data, size_t bytes)
{
	struct error err = ERROR_INIT;
	char why[200] = "";
	int r = check_owner(c, why, sizeof(why));

	while (r >= 0 && c->state != NET_CLOSED) {
		struct net_event event;

		r = net_parse(&c->parser, &data, &bytes, &event, &err);
		if (r == 0)
			return;
		if (r == -EPROTONOSUPPORT)
			tell_version(c);
		if (r < 0)
			snprintf(why, sizeof(why), "%s", err.text);
		else
			r = take_event(c, &event, why, sizeof(why));
	}
	if (r < 0)
		net_conn_close(c, why);
}

static ssize_t receive_some(struct net_conn *c, uint8_t *data, size_t bytes)
{
	ssize_t n;

	if (c->tls)
		return tls_read(c->tls, data, bytes);
	n = recv(c->fd, data, bytes, MSG_DONTWAIT);
	return n < 0 ? (errno == EINTR ? -EAGAIN : -errno) : n;
}

static size_t frames_space(const struct net_conn *c)
{
	if (c->state != NET_OPEN)
		return sizeof(struct net_hello);
	return c->parser.piece_left > 0 ? NET_BUFFER_BYTES : FRAMES_AT_ONCE * sizeof(struct net_frame);
}

/* Returns the number of bytes read; 0: no more now, or the connection is closed. */
static size_t read_some(struct net_conn *c)
{
	uint8_t *data = c->net->shared;
	size_t space = c->state == NET_OPEN ? net_chunks_space(c, &data) : 0;
	bool is_piece = space > 0;
	ssize_t n = receive_some(c, data, is_piece ? space : frames_space(c));

	if (n == -EAGAIN)
		return 0;
	if (n <= 0) {
		net_conn_close(c, n < 0 ? strerror((int)-n) : "the peer closed the connection");
		return 0;
	}
	c->in_ns = c->net->now_ns;
	if (is_piece) {
		c->parser.piece_left -= (size_t)n;
		net_chunks_bytes(c, data, (size_t)n);
	} else {
		take_bytes(c, data, (size_t)n);
	}
	return c->state == NET_CLOSED ? 0 : (size_t)n;
}

static void on_again(uv_idle_t *idle);

static void read_on(struct net_conn *c)
{
	size_t turn = TURN_BYTES, n;

	if (c->state == NET_CLOSED)
		return;
	do {
		c->is_paused = c->state == NET_OPEN && !net_chunks_may_read(c);
		if (c->is_paused)
			break;
		n = read_some(c);
		turn -= n < turn ? n : turn;
	} while (n > 0 && turn > 0);
	if (c->state == NET_CLOSED)
		return;
	if (!c->is_paused && turn == 0 && c->tls && SSL_has_pending(c->tls) && !c->reads_again) {
		c->reads_again = true;
		c->next_again = c->net->agains;
		c->net->agains = c;
		uv_idle_start(&c->net->again, on_again);
	}
	net_conn_poll(c);
}

static void on_again(uv_idle_t *idle)
{
	struct net *n = idle->data;
	struct net_conn *c = n->agains;

	n->now_ns = clock_monotonic_ns();
	n->agains = NULL;
	uv_idle_stop(idle);
	while (c) {
		struct net_conn *next = c->next_again;

		c->reads_again = false;
		read_on(c);
		c = next;
	}
}

/* ---- the beginning ------------------------------------------------------------------------------------- */

static void greet(struct net_conn *c)
{
	c->state = NET_GREETING;
	if (c->dialled && send_hello(c, c->peer->node) < 0)
		net_conn_close(c, "no memory");
	else
		write_on(c);
}

static void secure(struct net_conn *c)
{
	struct error err = ERROR_INIT;
	int r = tls_handshake(c->tls, &c->tls_writes, &err);

	if (r == 0) {
		greet(c);
		/* The peer's hello may have arrived with the end of the handshake. */
		if (c->state != NET_CLOSED)
			read_on(c);
	} else if (r == -EAGAIN) {
		net_conn_poll(c);
	} else {
		net_conn_close(c, err.text);
	}
}

static void begin(struct net_conn *c)
{
	if (!c->net->keys) {
		greet(c);
		return;
	}
	c->tls = tls_new(c->net->keys, c->fd, c->dialled);
	if (!c->tls) {
		net_conn_close(c, "no memory");
		return;
	}
	c->state = NET_SECURING;
	secure(c);
}

static void connected(struct net_conn *c)
{
	int error = 0;
	socklen_t size = sizeof(error);

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		error = errno;
	if (error)
		net_conn_close(c, strerror(error));
	else
		begin(c);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct net_conn *c = poll->data;

	c->net->now_ns = clock_monotonic_ns();
	if (c->state == NET_CONNECTING) {
		connected(c);
	} else if (c->state == NET_SECURING) {
		secure(c);
	} else {
		if (events & UV_WRITABLE || status < 0)
			write_on(c);
		if ((events & UV_READABLE || status < 0) && c->state != NET_CLOSED)
			read_on(c);
	}
}

static void set_options(int fd, uint64_t bytes_per_s)
{
	const int one = 1, unsent = UNSENT_BYTES, timeout_ms = (int)(NET_SEND_NS / NS_PER_MS);
	const unsigned long pace = bytes_per_s;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
	if (pace)
		(void)setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &pace, sizeof(pace));
}

int net_conn_new(struct net *n, int fd, const struct net_address *far, struct net_peer *dialled,
		 struct net_conn **ret)
{
	struct net_conn *c = calloc(1, sizeof(*c));
	int r = c ? uv_poll_init(&n->loop, &c->poll, fd) : -ENOMEM;

	if (r < 0) {
		free(c);
		return r;
	}
	set_options(fd, n->config->peer_bytes_per_s);
	c->poll.data = c;
	c->net = n;
	c->fd = fd;
	c->far = *far;
	net_address_format(far, c->address);
	c->peer = dialled;
	c->dialled = dialled;
	c->begin_ns = c->in_ns = c->out_ns = n->now_ns;
	c->next = n->conns;
	n->conns = c;
	*ret = c;
	if (dialled) {
		c->state = NET_CONNECTING;
		net_conn_poll(c);
	} else {
		n->n_half++;
		c->state = NET_GREETING;
		begin(c);
	}
	return 0;
}

/* ---- time ---------------------------------------------------------------------------------------------- */

static const char *stuck(const struct net_conn *c)
{
	uint64_t now_ns = c->net->now_ns;

	if (c->state != NET_OPEN)
		return now_ns > c->begin_ns + NET_HELLO_NS
			   ? (c->state == NET_CONNECTING ? "the peer did not answer within 2 s"
							 : "the peer sent no hello within 2 s")
			   : NULL;
	if ((c->out || has_output(c)) && now_ns > c->out_ns + NET_SEND_NS)
		return "the peer does not read what this node sends";
	if (!c->is_paused && net_parser_is_within(&c->parser) && now_ns > c->in_ns + NET_STALL_NS)
		return "the peer stopped in the middle of a message";
	if (!c->is_paused && now_ns > c->in_ns + NET_SILENCE_NS)
		return "the peer sends nothing";
	return NULL;
}

static void ping(struct net_conn *c)
{
	uint64_t now_ns = c->net->now_ns;

	if (c->ping_waits && now_ns > c->ping_ns + 3 * NET_PING_NS / 2 && !c->peer->is_unreachable)
		net_peer_set_unreachable(c->net, c->peer, 0, "the peer does not answer");
	if (c->ping_id && now_ns < c->ping_ns + NET_PING_NS)
		return;
	if (c->ping_waits)
		return; /* one at a time */
	c->ping_id = c->net->next_id++;
	c->ping_ns = now_ns;
	c->ping_waits = true;
	net_conn_send(c, NET_PING, c->ping_id, 0, 0);
}

void net_conn_tick(struct net_conn *c)
{
	const char *why;

	if (c->state == NET_CLOSED)
		return;
	why = stuck(c);
	if (why) {
		net_conn_close(c, why);
		return;
	}
	if (c->state != NET_OPEN)
		return;
	net_chunks_tick(c);
	if (c->state != NET_OPEN)
		return;
	ping(c);
	if (c->is_paused)
		read_on(c);
	net_conn_poll(c);
}
