/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/list.h"
#include "lib/log.h"
#include "lib/units.h"
#include "daemon/server/server.h"

/* Each connection is for one request and lasts this long at most: a client that sends byte by byte does not
 * keep others out. When there are too many, the newest takes the place of the oldest. */
#define TIMEOUT_S       5
#define MAX_CLIENTS     16
#define CONTENT_TYPE    "text/plain; version=0.0.4; charset=utf-8"
#define ADDRESS_MAX     64
#define IDLE_TIMEOUT_MS 1000

struct client {
	struct client *next;
	struct MHD_Connection *connection;
	uint64_t begin_ns;
};

struct metrics_server {
	struct client *clients; /* the newest first */
	struct metrics_sources sources;
	struct MHD_Daemon *http;
	uv_poll_t poll;
	uv_timer_t timer; /* runs while there are clients: MHD acts on timeouts only when called */
	unsigned n_handles;
};

static enum MHD_Result reply(struct MHD_Connection *client, unsigned status, char *text, size_t length,
			     enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(length, text, mode);
	enum MHD_Result result;

	if (!response) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, CONTENT_TYPE);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
	result = MHD_queue_response(client, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result reply_ready(struct MHD_Connection *client, const struct server *server)
{
	struct error err = ERROR_INIT;
	char line[sizeof(err.text) + 1] = "ok\n";
	bool ready = server_check_ready(server, &err) == 0;

	if (!ready)
		snprintf(line, sizeof(line), "%s\n", err.text);
	return reply(client, ready ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, line, strlen(line),
		     MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *client, const char *url,
				  const char *method, const char *version, const char *upload,
				  size_t *upload_size, void **state)
{
	static char not_found[] = "dieseld has /metrics, /healthz and /readyz\n",
		    not_allowed[] = "GET only\n", fine[] = "ok\n";
	struct metrics_server *metrics = user;
	size_t length = 0;
	char *text;

	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return reply(client, MHD_HTTP_METHOD_NOT_ALLOWED, not_allowed, sizeof(not_allowed) - 1,
			     MHD_RESPMEM_PERSISTENT);
	if (strcmp(url, "/healthz") == 0)
		return reply(client, MHD_HTTP_OK, fine, sizeof(fine) - 1, MHD_RESPMEM_PERSISTENT);
	if (strcmp(url, "/readyz") == 0)
		return reply_ready(client, metrics->sources.server);
	if (strcmp(url, "/metrics") != 0)
		return reply(client, MHD_HTTP_NOT_FOUND, not_found, sizeof(not_found) - 1,
			     MHD_RESPMEM_PERSISTENT);
	text = metrics_text(&metrics->sources, &length);
	return text ? reply(client, MHD_HTTP_OK, text, length, MHD_RESPMEM_MUST_FREE) : MHD_NO;
}

/* Shuts the socket down; MHD then sees the end and forgets the connection. */
static void hang_up(const struct client *c)
{
	const union MHD_ConnectionInfo *info =
	    MHD_get_connection_info(c->connection, MHD_CONNECTION_INFO_CONNECTION_FD);

	if (info)
		shutdown(info->connect_fd, SHUT_RDWR);
}

static void hang_up_old(const struct metrics_server *metrics)
{
	uint64_t now_ns = clock_monotonic_ns();
	uint32_t n = 0;

	for (const struct client *c = metrics->clients; c; c = c->next)
		if (++n > MAX_CLIENTS || now_ns - c->begin_ns > TIMEOUT_S * NS_PER_S)
			hang_up(c);
}

static void on_connection(void *user, struct MHD_Connection *connection, void **context,
			  enum MHD_ConnectionNotificationCode what)
{
	struct metrics_server *metrics = user;
	struct client *c;

	if (what == MHD_CONNECTION_NOTIFY_STARTED) {
		c = calloc(1, sizeof(*c));
		if (!c)
			return; /* only the library's timeout then ends the connection */
		*c = (struct client){
		    .next = metrics->clients, .connection = connection, .begin_ns = clock_monotonic_ns()};
		metrics->clients = *context = c;
		return;
	}
	c = *context;
	if (!c)
		return;
	LL_DELETE(metrics->clients, c);
	free(c);
}

static void on_timer(uv_timer_t *timer);

static void run(struct metrics_server *metrics)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;

	MHD_run(metrics->http);
	hang_up_old(metrics);
	if (MHD_get_timeout(metrics->http, &wait_ms) == MHD_YES)
		uv_timer_start(&metrics->timer, on_timer,
			       wait_ms < IDLE_TIMEOUT_MS ? wait_ms + 1 : IDLE_TIMEOUT_MS, 0);
	else
		uv_timer_stop(&metrics->timer);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	run(poll->data);
}

static void on_timer(uv_timer_t *timer)
{
	run(timer->data);
}

/* Parses "ADDRESS:PORT" or "[ADDRESS]:PORT", both numeric: no name server decides where we listen. */
static int resolve(const char *text, struct addrinfo **ret_info, struct error *err)
{
	const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
				       .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(text, ':');
	char host[ADDRESS_MAX];
	size_t length = colon ? (size_t)(colon - text) : 0;
	int64_t port;

	if (length > 1 && text[0] == '[' && text[length - 1] == ']') {
		text++;
		length -= 2;
	}
	if (!length || length >= sizeof(host))
		return error_set(err, -EINVAL, "metrics: \"%s\" is not ADDRESS:PORT, such as 127.0.0.1:9467",
				 text);
	memcpy(host, text, length);
	host[length] = '\0';
	/* getaddrinfo() takes the lower 16 bits of a number that is greater. */
	if (units_parse_integer(colon + 1, 0, UINT16_MAX, &port) < 0)
		return error_set(err, -EINVAL, "metrics: \"%s\" is not a port from 0 to 65535", colon + 1);
	if (getaddrinfo(host, colon + 1, &hints, ret_info))
		return error_set(err, -EINVAL,
				 "metrics: \"%s\" port \"%s\" is not an address such as 127.0.0.1:9467", host,
				 colon + 1);
	return 0;
}

int metrics_check_address(const char *address, struct error *err)
{
	struct addrinfo *info;
	int r = resolve(address, &info, err);

	if (r == 0)
		freeaddrinfo(info);
	return r;
}

/* Returns true if the socket listens on this address. */
static bool listens_on(int fd, const char *address)
{
	struct sockaddr_storage at = {0};
	socklen_t size = sizeof(at);
	struct addrinfo *info;
	bool same;

	if (getsockname(fd, (struct sockaddr *)&at, &size) < 0 || resolve(address, &info, NULL) < 0)
		return false;
	same = size == info->ai_addrlen && memcmp(&at, info->ai_addr, size) == 0;
	freeaddrinfo(info);
	return same;
}

static int start_http(struct metrics_server *metrics, int fd, const char *address, struct error *err)
{
	struct addrinfo *info;
	int r = resolve(address, &info, err);
	unsigned flags = MHD_USE_EPOLL;
	const struct MHD_OptionItem given[] = {{MHD_OPTION_LISTEN_SOCKET, fd, NULL},
					       {MHD_OPTION_END, 0, NULL}};

	if (r < 0)
		return r;
	if (info->ai_family == AF_INET6)
		flags |= MHD_USE_IPv6;
	errno = 0;
	metrics->http = MHD_start_daemon(
	    flags, 0, NULL, NULL, on_request, metrics, fd < 0 ? MHD_OPTION_SOCK_ADDR : MHD_OPTION_ARRAY,
	    fd < 0 ? (void *)info->ai_addr : (void *)given, MHD_OPTION_CONNECTION_LIMIT, 4u * MAX_CLIENTS,
	    MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)TIMEOUT_S, MHD_OPTION_NOTIFY_CONNECTION, on_connection,
	    metrics, MHD_OPTION_END);
	r = errno ? -errno : -EIO;
	freeaddrinfo(info);
	if (metrics->http)
		return 0;
	if (r == -EAFNOSUPPORT && fd < 0)
		return error_set(
		    err, r,
		    "cannot answer Prometheus on %s: the systemd unit permits no network sockets. Run "
		    "`systemctl start dieseld-metrics.socket`, then restart dieseld",
		    address);
	return error_errno(err, r, "cannot answer Prometheus on %s", address);
}

int metrics_start(uv_loop_t *loop, int fd, const char *address, const struct metrics_sources *sources,
		  struct metrics_server **ret_metrics, struct error *err)
{
	struct metrics_server *metrics = calloc(1, sizeof(*metrics));
	const union MHD_DaemonInfo *info;
	int r;

	if (!metrics)
		return error_set(err, -ENOMEM, "cannot serve metrics: out of memory");
	metrics->sources = *sources;
	if (fd >= 0 && !listens_on(fd, address))
		log_warning("metrics are not served on %s, but on the address of dieseld-metrics.socket. To "
			    "change that address: systemctl edit dieseld-metrics.socket",
			    address);
	r = start_http(metrics, fd, address, err);
	if (r < 0) {
		free(metrics);
		return r;
	}
	info = MHD_get_daemon_info(metrics->http, MHD_DAEMON_INFO_EPOLL_FD);
	uv_poll_init(loop, &metrics->poll, info->epoll_fd);
	uv_timer_init(loop, &metrics->timer);
	metrics->poll.data = metrics->timer.data = metrics;
	metrics->n_handles = 2;
	uv_poll_start(&metrics->poll, UV_READABLE, on_poll);
	*ret_metrics = metrics;
	return 0;
}

static void on_closed(uv_handle_t *handle)
{
	struct metrics_server *metrics = handle->data;

	if (--metrics->n_handles > 0)
		return;
	MHD_stop_daemon(metrics->http);
	free(metrics);
}

void metrics_stop(struct metrics_server *metrics)
{
	if (!metrics)
		return;
	uv_close((uv_handle_t *)&metrics->poll, on_closed);
	uv_close((uv_handle_t *)&metrics->timer, on_closed);
}
