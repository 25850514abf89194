/* SPDX-License-Identifier: Apache-2.0 */
#include "spawn.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/fd_message.h"
#include "lib/kernel_calls.h"
#include "message.h"

#define FORK_SERVER_FD (STDERR_FILENO + 1)  /* descriptor of its own socket */
#define HELPER_FD      (FORK_SERVER_FD + 1) /* socket of each helper */

/* Number of checks, one per second, without a heartbeat after which a kept helper is killed: after its
 * first beat, and before it. Checks are counted instead of time, so that a frozen machine counts as only
 * one check. */
#define HUNG_CHECKS  10
#define BEGIN_CHECKS 90

struct keeping {
	const struct fork_server_program *program;
	pid_t pid;     /* process ID of the kept helper; 0: not running */
	int orders_fd; /* socket for its orders */
	bool is_wanted, hung;
	bool is_asked; /* the kept helper was told to end */
	uint64_t begin_ns, next_ns;
	uint32_t rest_ms;
	_Atomic uint32_t *beat;
	uint32_t last_beat, n_silent;
};

static int socket_pair(int *ret_a, int *ret_b)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	*ret_a = fds[0];
	*ret_b = fds[1];
	return 0;
}

/* ---- forking ------------------------------------------------------------------------------------------- */

static void fork_helper(const struct fork_server_program *program, uint32_t kind, int theirs)
{
	pid_t parent = getpid();

	if (kind >= HELPER_N_KINDS || !program->runs || !program->runs[kind] || fork() != 0)
		return;
	if (theirs != HELPER_FD && dup2(theirs, HELPER_FD) < 0)
		_exit(1);
	close(FORK_SERVER_FD);
	(void)kernel_close_range(HELPER_FD + 1, UINT32_MAX);
	helper_begin((enum helper_kind)kind, parent);
	_exit(program->runs[kind](HELPER_FD));
}

/* Receives and executes an order. Returns false if the sender is gone. */
static bool take_order(struct keeping *k, int fd)
{
	struct fork_server_order order;
	int theirs, r = message_receive(fd, &order, sizeof(order), MSG_DONTWAIT, &theirs, 1);

	if (r == -EAGAIN)
		return true;
	if (r < 0)
		return false;
	if (order.verb == FORK_SERVER_FORK && theirs >= 0)
		fork_helper(k->program, order.kind, theirs);
	closep(&theirs);
	if (fd != FORK_SERVER_FD)
		return true;
	if (order.verb == FORK_SERVER_KEEP || order.verb == FORK_SERVER_REST)
		k->is_wanted = order.verb == FORK_SERVER_KEEP && k->program->run;
	if (order.verb == FORK_SERVER_REST)
		k->is_asked = true;
	if (order.verb == FORK_SERVER_KILL && k->pid && order.pid == k->pid)
		kill(k->pid, SIGKILL);
	return true;
}

/* ---- keeping ------------------------------------------------------------------------------------------- */

static void rest(struct keeping *k)
{
	const struct helper_row *row = &helper_rows[k->program->keeps];
	uint64_t now_ns = clock_monotonic_ns();

	if (!k->rest_ms || now_ns - k->begin_ns > row->rest_max_ms * NS_PER_MS)
		k->rest_ms = row->rest_min_ms;
	else if ((k->rest_ms *= 2) > row->rest_max_ms)
		k->rest_ms = row->rest_max_ms;
	k->next_ns = now_ns + k->rest_ms * NS_PER_MS;
}

_Noreturn static void kept_process(const struct keeping *k, const struct kept_helper *self, pid_t parent)
{
	close(FORK_SERVER_FD);
	helper_begin(k->program->keeps, parent);
	_exit(k->program->run(self));
}

static void start_kept(struct keeping *k)
{
	_cleanup_(closep) int ours = -EBADF, theirs = -EBADF, orders = -EBADF, takes = -EBADF;
	struct fork_server_news news = {.status = 0};
	pid_t parent = getpid();

	k->begin_ns = clock_monotonic_ns();
	if (socket_pair(&ours, &theirs) < 0 || socket_pair(&orders, &takes) < 0) {
		rest(k);
		return;
	}
	if (k->beat)
		atomic_store(k->beat, 0);
	k->hung = k->is_asked = false;
	k->last_beat = k->n_silent = 0;
	k->pid = fork();
	if (k->pid == 0) {
		const struct kept_helper self = {
		    .fd = theirs, .fork_server = {.fd = orders}, .beat = k->beat};

		closep(&ours);
		closep(&takes);
		kept_process(k, &self, parent);
	}
	if (k->pid < 0) {
		k->pid = 0;
		rest(k);
		return;
	}
	news.pid = k->pid;
	k->orders_fd = steal_fd(&takes);
	(void)fd_message_send(FORK_SERVER_FD, &news, sizeof(news), &ours, 1, 0);
}

static void kept_ended(struct keeping *k, int status)
{
	const struct fork_server_news news = {.pid = k->pid, .status = status, .hung = k->hung};

	k->pid = 0;
	closep(&k->orders_fd);
	k->orders_fd = -EBADF;
	if (status == 0 && k->program->on_demand && !k->hung) {
		/* If the kept helper was asked to end, a FORK_SERVER_KEEP that arrived since then starts the
		 * next one. */
		k->is_wanted = k->is_wanted && k->is_asked;
		k->next_ns = k->rest_ms = 0;
	} else {
		rest(k);
	}
	(void)fd_message_send(FORK_SERVER_FD, &news, sizeof(news), NULL, 0, 0);
}

static void reap(struct keeping *k)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == k->pid)
			kept_ended(k, status);
}

/* Kills the kept helper if it no longer beats. A stopped or looping process keeps its resources, and only its
 * keeper can start another one. */
static void check_beat(struct keeping *k)
{
	uint32_t now = atomic_load_explicit(k->beat, memory_order_relaxed);

	k->n_silent = now == k->last_beat ? k->n_silent + 1 : 0;
	k->last_beat = now;
	if (k->n_silent != (now ? HUNG_CHECKS : BEGIN_CHECKS))
		return;
	k->hung = true;
	kill(k->pid, SIGKILL);
}

/* Returns how long to wait for the next event; NULL: for ever. */
static const struct timespec *pause_of(const struct keeping *k, struct timespec *space)
{
	uint64_t now_ns = clock_monotonic_ns(), ns = NS_PER_S;

	if (k->pid ? !k->beat : !k->is_wanted)
		return NULL;
	if (!k->pid)
		ns = k->next_ns > now_ns ? k->next_ns - now_ns : 0;
	*space = (struct timespec){.tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S)};
	return space;
}

static void on_child(int signal)
{
}

/* Allows only the end of a child to interrupt ppoll(). */
static void await_children(void)
{
	const struct sigaction action = {.sa_handler = on_child};
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGCHLD);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	sigaction(SIGCHLD, &action, NULL);
}

_Noreturn static void fork_server_run(const struct fork_server_program *program)
{
	struct keeping k = {.program = program, .orders_fd = -EBADF};
	sigset_t none;

	sigemptyset(&none);
	if (program->beats) {
		k.beat =
		    mmap(NULL, sizeof(*k.beat), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (k.beat == MAP_FAILED)
			_exit(1);
	}
	if ((program->prepare && program->prepare(FORK_SERVER_FD) < 0) || helper_settle(program->kind) < 0)
		_exit(1);
	await_children();
	k.is_wanted = program->run && !program->on_demand;
	for (;;) {
		struct pollfd fds[2] = {{.fd = FORK_SERVER_FD, .events = POLLIN},
					{.fd = k.orders_fd, .events = POLLIN}};
		struct timespec space;
		int n = ppoll(fds, 2, pause_of(&k, &space), &none);

		if (n > 0 && fds[0].revents && !take_order(&k, FORK_SERVER_FD))
			_exit(0); /* the daemon is gone */
		if (n > 0 && fds[1].revents && !take_order(&k, k.orders_fd)) {
			closep(&k.orders_fd); /* the helper is about to end */
			k.orders_fd = -EBADF;
		}
		if (n == 0 && k.pid && k.beat)
			check_beat(&k);
		reap(&k);
		if (!k.pid && k.is_wanted && clock_monotonic_ns() >= k.next_ns)
			start_kept(&k);
	}
}

/* ---- the daemon ---------------------------------------------------------------------------------------- */

static void ignore_signals(void)
{
	static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGQUIT};

	/* Terminals and service managers signal all processes. The daemon decides, and the child exits when
	 * the daemon does. */
	for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
		signal(ignored[i], SIG_IGN);
}

int fork_server_spawn(const struct fork_server_program *program, struct fork_server *ret, struct error *err)
{
	const char *title = helper_title_of(&helper_rows[program->kind]);
	_cleanup_(closep) int ours = -EBADF, theirs = -EBADF;
	pid_t parent = getpid(), pid;
	int r = socket_pair(&ours, &theirs);

	if (r < 0)
		return error_errno(err, r, "cannot make a socket to the process \"%s\"", title);
	pid = fork();
	if (pid < 0)
		return error_errno(err, -errno, "cannot fork the process \"%s\"", title);
	if (pid == 0) {
		if (dup2(theirs, FORK_SERVER_FD) < 0 || kernel_close_range(HELPER_FD, UINT32_MAX) < 0)
			_exit(1);
		ignore_signals();
		helper_begin(program->kind, parent);
		fork_server_run(program);
	}
	*ret = (struct fork_server){.fd = steal_fd(&ours), .pid = pid};
	return 0;
}

int fork_server_start(const struct fork_server *n, enum helper_kind kind, int *ret_fd)
{
	const struct fork_server_order order = {.verb = FORK_SERVER_FORK, .kind = kind};
	_cleanup_(closep) int ours = -EBADF, theirs = -EBADF;
	int r = n->fd < 0 ? -EPIPE : socket_pair(&ours, &theirs);

	if (r == 0)
		r = fd_message_send(n->fd, &order, sizeof(order), &theirs, 1, MSG_DONTWAIT);
	if (r == 0)
		*ret_fd = steal_fd(&ours);
	return r;
}

int fork_server_start_with(const struct fork_server *n, enum helper_kind kind, const void *message,
			   size_t bytes, const int *fds, size_t n_fds, int *ret_fd)
{
	_cleanup_(closep) int fd = -EBADF;
	int r = fork_server_start(n, kind, &fd);

	if (r == 0)
		r = fd_message_send(fd, message, bytes, fds, n_fds, MSG_DONTWAIT);
	if (r == 0)
		*ret_fd = steal_fd(&fd);
	return r;
}

void fork_server_end(struct fork_server *n)
{
	closep(&n->fd);
	/* Does not wait for the process: it may be stopped. */
	if (n->pid > 0)
		(void)waitpid(n->pid, NULL, WNOHANG);
	*n = FORK_SERVER_NONE;
}
