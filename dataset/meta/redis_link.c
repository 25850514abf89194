/* SPDX-License-Identifier: Apache-2.0 */
#include "redis_link.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "buffer.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"
#include "redis_scripts.h"

#define CONNECT_NS   (5 * NS_PER_S)
#define REPLY_NS     (30 * NS_PER_S) /* without a byte from the server */
#define RECONNECT_NS (5 * NS_PER_S)

struct redis_link {
	struct redis_url url;
	char text[REDIS_URL_TEXT];
	int fd;
	redisReader *reader;
	char sha[N_REDIS_SCRIPTS][41];

	struct buffer batch; /* commands as they go out */
	size_t n;
	bool failed; /* no memory for it */
	bool ran;
	redisReply **replies;
	size_t n_replies, n_room;
};

static void drop(struct redis_link *l)
{
	closep(&l->fd);
	l->fd = -EBADF;
	if (l->reader)
		redisReaderFree(l->reader);
	l->reader = NULL;
}

static void free_replies(struct redis_link *l)
{
	for (size_t i = 0; i < l->n_replies; i++)
		freeReplyObject(l->replies[i]);
	l->n_replies = 0;
}

static int wait_for(int fd, short events, uint64_t until_ns)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct pollfd p = {.fd = fd, .events = events};
	int n = now_ns < until_ns ? poll(&p, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1) : 0;

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	return n == 0 ? -ETIMEDOUT : p.revents;
}

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
			r = wait_for(fd, POLLOUT, until_ns);
		if (r < 0)
			return r;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0 || error)
			return error ? -error : -errno;
	}
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	return steal_fd(&fd);
}

static int dial(struct redis_link *l, struct error *err)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	uint64_t until_ns = clock_monotonic_ns() + CONNECT_NS;
	struct addrinfo *found = NULL;
	int r = getaddrinfo(l->url.host, l->url.port, &hints, &found), fd = -EADDRNOTAVAIL;

	if (r != 0)
		return error_set(err, -EHOSTUNREACH, "%s: %s", l->text, gai_strerror(r));
	for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next)
		fd = connect_to(a, until_ns);
	freeaddrinfo(found);
	if (fd < 0)
		return error_errno(err, fd, "cannot connect to %s", l->text);
	l->fd = fd;
	l->reader = redisReaderCreate();
	return l->reader ? 0 : error_errno(err, -ENOMEM, "%s", l->text);
}

/* Reads what is there. Returns -EAGAIN if nothing was, -ECONNRESET at the end. */
static int receive(struct redis_link *l)
{
	char bytes[64 << 10];
	ssize_t n = recv(l->fd, bytes, sizeof(bytes), 0);

	if (n <= 0)
		return n == 0 ? -ECONNRESET : errno == EINTR ? -EAGAIN : -errno;
	return redisReaderFeed(l->reader, bytes, (size_t)n) == REDIS_OK ? 0 : -EPROTO;
}

static int take_replies(struct redis_link *l, size_t n)
{
	while (l->n_replies < n) {
		void *reply = NULL;

		if (redisReaderGetReply(l->reader, &reply) != REDIS_OK)
			return -EPROTO;
		if (!reply)
			break;
		l->replies[l->n_replies++] = reply;
	}
	return 0;
}

/* Sends and receives at once: a server does not read on while nobody takes its replies. */
static int exchange(struct redis_link *l, const unsigned char *data, size_t bytes, size_t n)
{
	uint64_t until_ns = clock_monotonic_ns() + REPLY_NS;
	size_t sent = 0;

	while (l->n_replies < n) {
		int r = wait_for(l->fd, sent < bytes ? POLLIN | POLLOUT : POLLIN, until_ns);

		if (r < 0)
			return r;
		if (r & POLLOUT && sent < bytes) {
			ssize_t k = send(l->fd, data + sent, bytes - sent, MSG_NOSIGNAL);

			if (k < 0 && errno != EAGAIN && errno != EINTR)
				return -errno;
			sent += k > 0 ? (size_t)k : 0;
		}
		if (!(r & ~POLLOUT))
			continue;
		r = receive(l);
		if (r < 0 && r != -EAGAIN)
			return r;
		if (r == 0)
			until_ns = clock_monotonic_ns() + REPLY_NS;
		r = take_replies(l, n);
		if (r < 0)
			return r;
	}
	return 0;
}

struct refusal {
	const char *begins;
	int code;
	const char *advice;
};

static int refused(const struct redis_link *l, const redisReply *reply, struct error *err)
{
	static const struct refusal known[] = {
	    {"DIESELLOST", -EBADMSG, "keys of the dataset are missing or not ours: run `dieselctl rebuild`"},
	    {"DIESELBUSY", -EBUSY, "the metadata was changed by another dieselctl just now; try again"},
	    {"DIESELOTHER", -EEXIST,
	     "the prefix holds another dataset's metadata: choose another one, or remove its keys"},
	    {"WRONGTYPE", -EBADMSG, "a key of the dataset has the wrong type: run `dieselctl rebuild`"},
	    {"OOM", -ENOSPC, "the server has no memory left (maxmemory); nothing was changed"},
	    {"NOAUTH", -EACCES,
	     "the server wants a password: set DIESEL_REDIS to redis://USER:PASSWORD@HOST:PORT"},
	    {"WRONGPASS", -EACCES, "the server refuses this user and password"},
	    {"MOVED", -EOPNOTSUPP, "the server is a node of a Redis Cluster, which is not supported"},
	};
	char text[200];

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strstr(reply->str, known[i].begins))
			return error_set(err, known[i].code, "%s: %s", l->text, known[i].advice);
	return error_set(err, -EIO, "%s: the server says: %s", l->text,
			 text_printable(text, sizeof(text), reply->str, reply->len));
}

static int append_command(struct buffer *b, size_t n, const char *const *args, const size_t *sizes)
{
	char head[32];
	int r = buffer_append(b, head, (size_t)snprintf(head, sizeof(head), "*%zu\r\n", n));

	for (size_t i = 0; i < n && r == 0; i++) {
		r = buffer_append(b, head, (size_t)snprintf(head, sizeof(head), "$%zu\r\n", sizes[i]));
		if (r == 0)
			r = buffer_append(b, args[i], sizes[i]);
		if (r == 0)
			r = buffer_append(b, "\r\n", 2);
	}
	return r;
}

static int append_text(struct buffer *b, size_t n, const char *const *args)
{
	size_t sizes[4];

	for (size_t i = 0; i < n; i++)
		sizes[i] = strlen(args[i]);
	return append_command(b, n, args, sizes);
}

static int reserve_replies(struct redis_link *l, size_t n)
{
	redisReply **grown = n > l->n_room ? realloc(l->replies, n * sizeof(redisReply *)) : l->replies;

	if (!grown)
		return -ENOMEM;
	l->replies = grown;
	if (n > l->n_room)
		l->n_room = n;
	return 0;
}

/* Says who we are, and has the server learn the scripts. */
static int greet(struct redis_link *l, struct error *err)
{
	struct buffer hello = {0};
	size_t n = N_REDIS_SCRIPTS + (l->url.password[0] != '\0');
	int r = reserve_replies(l, n);

	if (r == 0 && l->url.password[0])
		r = l->url.user[0]
			? append_text(&hello, 3, (const char *[]){"AUTH", l->url.user, l->url.password})
			: append_text(&hello, 2, (const char *[]){"AUTH", l->url.password});
	for (size_t i = 0; i < N_REDIS_SCRIPTS && r == 0; i++)
		r = append_text(&hello, 3, (const char *[]){"SCRIPT", "LOAD", redis_scripts[i]});
	if (r == 0)
		r = exchange(l, hello.data, hello.bytes, n);
	buffer_free(&hello);
	if (r < 0)
		return error_errno(err, r, "%s does not answer", l->text);
	for (size_t i = 0; i < n; i++) {
		const redisReply *reply = l->replies[i];

		if (reply->type == REDIS_REPLY_ERROR)
			return refused(l, reply, err);
		if (i < n - N_REDIS_SCRIPTS)
			continue;
		if (reply->type != REDIS_REPLY_STRING || reply->len != 40)
			return error_set(err, -EPROTO, "%s is no Redis server", l->text);
		memcpy(l->sha[i - (n - N_REDIS_SCRIPTS)], reply->str, 41);
	}
	return 0;
}

static int connect_link(struct redis_link *l, struct error *err)
{
	int r = dial(l, err);

	if (r == 0)
		r = greet(l, err);
	free_replies(l);
	if (r < 0)
		drop(l);
	return r;
}

int redis_link_open(const struct redis_url *url, struct redis_link **ret, struct error *err)
{
	struct redis_link *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return error_errno(err, -ENOMEM, "%s", url->host);
	l->url = *url;
	l->fd = -EBADF;
	redis_url_public(url, l->text, sizeof(l->text));
	r = connect_link(l, err);
	if (r < 0) {
		redis_link_close(l);
		return r;
	}
	*ret = l;
	return 0;
}

void redis_link_close(struct redis_link *l)
{
	if (!l)
		return;
	drop(l);
	free_replies(l);
	free(l->replies);
	buffer_free(&l->batch);
	explicit_bzero(&l->url, sizeof(l->url));
	free(l);
}

const char *redis_link_text(const struct redis_link *l)
{
	return l->text;
}

void redis_link_add(struct redis_link *l, size_t n, const char *const *args, const size_t *sizes)
{
	if (l->ran) {
		l->batch.bytes = 0;
		l->n = 0;
		l->failed = l->ran = false;
	}
	l->failed |= append_command(&l->batch, n, args, sizes) < 0;
	l->n++;
}

void redis_link_add_text(struct redis_link *l, size_t n, const char *const *args)
{
	size_t sizes[32];

	for (size_t i = 0; i < n && i < 32; i++)
		sizes[i] = strlen(args[i]);
	redis_link_add(l, n, args, sizes);
}

void redis_link_add_script(struct redis_link *l, enum redis_script script, const char *key, size_t n,
			   const char *const *args, const size_t *sizes)
{
	const char *all[4 + SCRIPT_MAX_ARGS] = {"EVALSHA", l->sha[script], "1", key};
	size_t all_sizes[4 + SCRIPT_MAX_ARGS] = {7, 40, 1, strlen(key)};

	for (size_t i = 0; i < n && i < SCRIPT_MAX_ARGS; i++) {
		all[4 + i] = args[i];
		all_sizes[4 + i] = sizes ? sizes[i] : strlen(args[i]);
	}
	redis_link_add(l, 4 + n, all, all_sizes);
}

size_t redis_link_n(const struct redis_link *l)
{
	return l->ran ? 0 : l->n;
}

size_t redis_link_bytes(const struct redis_link *l)
{
	return l->ran ? 0 : l->batch.bytes;
}

static bool is_lost(int r)
{
	return r == -ECONNRESET || r == -EPIPE || r == -ECONNREFUSED || r == -ECONNABORTED;
}

int redis_link_run(struct redis_link *l, struct error *err)
{
	uint64_t until_ns = clock_monotonic_ns() + RECONNECT_NS;
	int r = 0;

	l->ran = true;
	for (;;) {
		r = l->failed ? -ENOMEM : 0;
		if (r == 0 && l->fd < 0)
			r = connect_link(l, err);
		else
			error_set(err, 0, "%s", "");
		free_replies(l);
		if (r == 0)
			r = reserve_replies(l, l->n);
		if (r == 0) {
			r = exchange(l, l->batch.data, l->batch.bytes, l->n);
			if (r < 0) {
				drop(l);
				error_errno(err, r, "%s does not answer", l->text);
			}
		}
		if (!is_lost(r) || clock_monotonic_ns() > until_ns)
			break;
		nanosleep(&(struct timespec){.tv_nsec = 200 * 1000 * 1000}, NULL);
	}
	if (r == -ENOMEM)
		return error_errno(err, r, "%s", l->text);
	for (size_t i = 0; i < l->n && r == 0; i++)
		if (l->replies[i]->type == REDIS_REPLY_ERROR)
			r = refused(l, l->replies[i], err);
	return r;
}

const redisReply *redis_link_reply(const struct redis_link *l, size_t i)
{
	return l->replies[i];
}
