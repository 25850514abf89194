/* SPDX-License-Identifier: Apache-2.0 */
/* dieselctl fetch: reads a dataset in a bucket for dieseld and for the job that started it
 * (client/fetch_channel.h): with the rights, the credentials and the network of the user whom both belong to.
 */
#include "ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/fetch_channel.h"
#include "client/transport.h"
#include "ctl_fetch.h"
#include "dataset/compress.h"
#include "dataset/place.h"
#include "dataset/snapshot.h"
#include "lib/cleanup.h"
#include "lib/fd_message.h"

#define CHANNEL      STDIN_FILENO
#define PAUSE_MIN_MS 20
#define PAUSE_MAX_MS 2000

struct fetch {
	const char *url, *socket_path;
	uint64_t version;    /* 0: the newest */
	struct place *place; /* open to the end: it keeps the folder */
	struct store *store;
	int dir_fd, snapshot_fd;
	struct fetch_pool *pool;
};

static int say(int result, const char *text, const int *fds, size_t n_fds)
{
	struct fetch_reply reply = {.result = result};

	snprintf(reply.text, sizeof(reply.text), "%s", text);
	return fd_message_send(CHANNEL, &reply, sizeof(reply), fds, n_fds, 0);
}

/* The daemon gets the plain form of chunks: who reads for somebody else decompresses for him, too. */
static int make_plain(struct fetch *f, struct error *err)
{
	struct snapshot *s;
	int r = snapshot_open(f->place->folder, &s, err);

	if (r < 0)
		return r;
	if (snapshot_info(s)->is_compressed)
		r = store_plain_open(f->store, compress_decode, &f->store, err);
	snapshot_close(s);
	return r;
}

static int open_snapshot(struct fetch *f, struct error *err)
{
	int r = place_open_version(f->url, f->version, &f->place, err);

	if (r == 0)
		r = place_store(f->place, false, &f->store, err);
	if (r == 0)
		r = make_plain(f, err);
	if (r < 0)
		return r;
	f->dir_fd = open(f->place->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	f->snapshot_fd =
	    f->dir_fd < 0 ? -EBADF : openat(f->dir_fd, SNAPSHOT_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (f->snapshot_fd < 0)
		return error_errno(err, -errno, "cannot open %s/" SNAPSHOT_FILE, f->place->folder);
	return 0;
}

/* The connection, on which orders come from now on. */
static int attach(const struct fetch *f, struct transport *t, struct fetch_link **ret, struct error *err)
{
	union wire_message request, reply;
	struct wire_fds fds = {.n = 0};
	int r;

	protocol_init(&request, WIRE_OPEN_DATASET);
	request.open_dataset.flags = WIRE_DATASET_FETCHED;
	r = transport_call(t, &request, (int[]){f->dir_fd, f->snapshot_fd}, 2, WIRE_DATASET_REPLY, &reply,
			   NULL, err);
	if (r == 0) {
		protocol_init(&request, WIRE_FETCHER);
		r = transport_call(t, &request, NULL, 0, WIRE_FETCHER_REPLY, &reply, &fds, err);
	}
	if (r == 0) {
		r = fetch_link_new(t->fd, fds.fd[0], ret);
		if (r < 0)
			error_errno(err, r, "cannot map what is to be read into");
		else
			t->fd = -EBADF;
		wire_fds_close(&fds);
	}
	return r;
}

static int greet(const char *socket_path, struct transport *ret, struct error *err)
{
	struct transport t = TRANSPORT_INIT;
	int r = transport_connect(socket_path, &t, err);

	if (r == 0)
		r = transport_hello(&t, err);
	if (r < 0)
		transport_close(&t);
	else
		*ret = t;
	return r;
}

/* Returns false when nobody has the channel any more. Requests that come are served. */
static bool serve_channel(struct fetch *f)
{
	struct fetch_request request;
	int fds[FD_MESSAGE_MAX_FDS], n;
	size_t n_fds;

	n = fd_message_receive(CHANNEL, &request, sizeof(request), MSG_DONTWAIT, fds, &n_fds);
	if (n == -EAGAIN || n == -EINTR)
		return true;
	if (n == sizeof(request) && n_fds == 1) {
		request.object[sizeof(request.object) - 1] = '\0';
		fetch_pool_read(f->pool, &request, fds[0]);
		return true;
	}
	for (size_t i = 0; n > 0 && i < n_fds; i++)
		closep(&fds[i]);
	return n > 0;
}

/* Returns false when the daemon is gone. */
static bool serve_daemon(struct fetch *f, struct fetch_link *link)
{
	union wire_message m;
	struct wire_fds fds;
	int r = transport_receive(fetch_link_socket(link), &m, &fds);

	if (r < 0)
		return r == -EAGAIN || r == -EINTR;
	wire_fds_close(&fds);
	if (m.header.type != WIRE_FETCH)
		return false;
	fetch_pool_order(f->pool, link, &m.fetch);
	return true;
}

/* Returns 0 when the channel has ended, or -ECONNRESET: the daemon. */
static int serve(struct fetch *f, struct fetch_link *link)
{
	for (;;) {
		struct pollfd p[2] = {{.fd = CHANNEL, .events = POLLIN},
				      {.fd = fetch_link_socket(link), .events = POLLIN}};

		if (poll(p, 2, -1) < 0)
			continue;
		if (p[0].revents && !serve_channel(f))
			return 0;
		if (p[1].revents && !serve_daemon(f, link))
			return -ECONNRESET;
	}
}

/* The daemon went away: another one may follow, and sessions go on there. Returns 0, or -ECONNRESET: the
 * channel has ended. */
static int reach_again(struct fetch *f, struct fetch_link **ret)
{
	for (int pause_ms = PAUSE_MIN_MS;;
	     pause_ms = pause_ms * 2 < PAUSE_MAX_MS ? pause_ms * 2 : PAUSE_MAX_MS) {
		struct pollfd p = {.fd = CHANNEL, .events = POLLIN};
		struct transport t = TRANSPORT_INIT;
		int r = greet(f->socket_path, &t, NULL);

		if (r == 0)
			r = attach(f, &t, ret, NULL);
		transport_close(&t);
		if (r == 0)
			return 0;
		if (poll(&p, 1, pause_ms) > 0 && !serve_channel(f))
			return -ECONNRESET;
	}
}

static int begin(struct fetch *f, struct fetch_link **ret, struct error *err)
{
	struct transport t = TRANSPORT_INIT;
	int r = greet(f->socket_path, &t, err); /* first: whoever starts a daemon has to know */

	if (r == 0)
		r = open_snapshot(f, err);
	if (r == 0)
		r = fetch_pool_new(f->store, &f->pool);
	if (r == 0)
		r = attach(f, &t, ret, err);
	transport_close(&t);
	return r;
}

static int run(const struct ctl_verb *verb, int argc, char **argv)
{
	static const struct option options[] = {{"socket", required_argument, NULL, 's'},
						CTL_OPTION_VERSION,
						CTL_OPTION_HELP,
						{NULL, 0, NULL, 0}};
	struct fetch f = {.dir_fd = -EBADF, .snapshot_fd = -EBADF};
	struct error err = ERROR_INIT;
	struct fetch_link *link = NULL;
	int option, r;

	while ((option = getopt_long(argc, argv, ":", options, NULL)) != -1) {
		if (option == 's')
			f.socket_path = optarg;
		else if (option == 'V' && ctl_version(verb, &f.version) != CTL_OK)
			return CTL_USAGE;
		else if (ctl_common_option(verb, option, argv))
			return option == 'h' ? CTL_OK : CTL_USAGE;
	}
	if (argc != optind + 1 || !f.socket_path)
		return ctl_usage(verb, "needs --socket and the URL of a dataset");
	if (!ctl_is_started_by_program(SOCK_SEQPACKET))
		return ctl_usage(verb, "is started by a job that opens a dataset in a bucket, not by hand");
	f.url = argv[optind];
	r = chdir("/") < 0 ? -errno : ctl_detach(); /* in no file system's way */
	if (r < 0)
		error_errno(&err, r, "cannot start what reads %s", f.url);
	else
		r = begin(&f, &link, &err);
	if (r < 0) {
		(void)say(r, err.text[0] ? err.text : strerror(-r), NULL, 0);
		return CTL_FAILED;
	}
	r = say(0, "", (int[]){f.dir_fd, f.snapshot_fd}, 2);
	while (r == 0) {
		r = serve(&f, link);
		fetch_link_unref(link);
		if (r == 0)
			break;
		r = reach_again(&f, &link);
	}
	/* What is being read is for nobody. */
	_exit(CTL_OK);
}

const struct ctl_verb ctl_fetch = {
    .name = "fetch",
    .arguments = "--socket PATH [--version N] s3://BUCKET/PREFIX",
    .summary = "read a dataset in a bucket for dieseld; jobs start it",
    .help = "It ends with the job. Credentials and endpoint are those of its environment and files.\n\n"
	    "  --socket PATH  where dieseld listens\n"
	    "  --version N    not the newest version\n",
    .run = run,
};
