/* SPDX-License-Identifier: Apache-2.0 */
#include "helper.h"

#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/capabilities.h"

#define NOBODY  65534u
#define READS   CAPABILITY(CAP_DAC_READ_SEARCH)
#define SENSES  (CAPABILITY(CAP_PERFMON) | CAPABILITY(CAP_SYS_PTRACE) | READS)
#define BECOMES (CAPABILITY(CAP_SETUID) | CAPABILITY(CAP_SETGID))
#define ASSISTS                                                                                              \
	(CAPABILITY(CAP_BPF) | CAPABILITY(CAP_PERFMON) | CAPABILITY(CAP_SYS_PTRACE) |                        \
	 CAPABILITY(CAP_SYS_ADMIN) | CAPABILITY(CAP_SYS_CHROOT) | BECOMES)
#define KEEPS_PEER (BECOMES | CAPABILITY(CAP_KILL))

const struct helper_row helper_rows[HELPER_N_KINDS] = {
    [HELPER_FORK_SERVER] = {.name = "forks",
			    .begins = {SANDBOX_FORK_SERVER, READS, HELPER_AS_IS},
			    .works = {SANDBOX_FORK_SERVER, READS, HELPER_AS_IS},
			    .may = "everything that the processes it forks may do",
			    .end = "the daemon ends, because it can no longer read"},
    [HELPER_READER] = {.name = "reader",
		       .begins = {SANDBOX_RING_MAKER, READS, HELPER_AS_IS},
		       .works = {SANDBOX_RING_READER, READS, HELPER_AS_IS},
		       .may = "opening and reading files, writing to memory, threads, signals; io_uring "
			      "requests bypass the filter, and are limited to opening and reading",
		       .end = "another process reads the chunks again"},
    [HELPER_UNPACKER] =
	{.name = "unpack",
	 .begins = {SANDBOX_LOADER, 0, HELPER_AS_IS},
	 .works = {SANDBOX_SERVES, 0, HELPER_AS_IS},
	 .ends_with_parent = true,
	 .may = "opening files and loading libraries; then only computing and answering",
	 .end = "another process tries the blocks once more; if that fails, the chunk is damaged"},
    [HELPER_OPENER] = {.name = "opener",
		       .begins = {SANDBOX_OPENER, READS, HELPER_AS_IS},
		       .works = {SANDBOX_COMPUTES, 0, HELPER_AS_IS},
		       .ends_with_parent = true,
		       .may = "opening and reading, memory, threads; then only computing",
		       .end = "the request fails: that client's dataset is not opened"},
    [HELPER_CLOSER] = {.name = "closer",
		       .begins = {SANDBOX_CLOSER, 0, HELPER_AS_IS},
		       .works = {SANDBOX_CLOSER, 0, HELPER_AS_IS},
		       .may = "nothing",
		       .end = "nothing: it is expected to end"},
    [HELPER_CODEC] = {.name = "codec",
		      .begins = {SANDBOX_LOADER, 0, HELPER_AS_IS},
		      .works = {SANDBOX_SERVES, 0, HELPER_AS_IS},
		      .ends_with_parent = true,
		      .may = "opening files and loading libraries; then only computing and answering",
		      .end = "another process continues; a sample that crashes three processes is damaged"},
    [HELPER_PLUGIN] = {.name = "plugin",
		       .begins = {SANDBOX_LOADER, 0, HELPER_AS_IS},
		       .works = {SANDBOX_COMPUTES, 0, HELPER_AS_IS},
		       .ends_with_parent = true,
		       .may = "opening files and loading libraries; then only computing and answering",
		       .end = "the request fails: the codec is not loaded, or not asked"},
    [HELPER_STAGER] = {.name = "stager",
		       .begins = {SANDBOX_STAGER, READS, HELPER_AS_IS},
		       .works = {SANDBOX_STAGER, 0, HELPER_AS_IS},
		       .may = "files and their names",
		       .end = "chunks come from storage; another process is started after a minute"},
    [HELPER_SENSOR_KEEPER] =
	{.name = "ksensor",
	 .title = "keeper of sensor",
	 .begins = {SANDBOX_SENSOR_KEEPER, SENSES | CAPABILITY(CAP_BPF), HELPER_NOBODY_IF_THERE},
	 .works = {SANDBOX_SENSOR_KEEPER, SENSES | CAPABILITY(CAP_BPF), HELPER_AS_IS},
	 .user = "nobody",
	 .may = "everything that the next process may do, loading BPF programs, starting processes",
	 .end = "jobs are measured only by the figures that they report, until the daemon is restarted"},
    [HELPER_SENSOR] =
	{.name = "sensor",
	 .begins = {HELPER_INHERITS, SENSES | CAPABILITY(CAP_BPF), HELPER_AS_IS},
	 .works = {SANDBOX_SENSOR, SENSES, HELPER_AS_IS},
	 .ends_with_parent = true,
	 .rest_min_ms = 1000,
	 .rest_max_ms = 60000,
	 .user = "nobody",
	 .may = "opening and reading, tracing; loading BPF programs until all are loaded",
	 .end =
	     "another process is started; meanwhile jobs are measured only by the figures that they report"},
    [HELPER_ASSIST_KEEPER] =
	{.name = "kassist",
	 .title = "keeper of assist",
	 .begins = {SANDBOX_ASSIST_KEEPER, ASSISTS, HELPER_AS_IS},
	 .works = {SANDBOX_ASSIST_KEEPER, ASSISTS, HELPER_AS_IS},
	 .user = "root",
	 .may = "everything that the next two processes may do, loading BPF programs, starting processes",
	 .end = "no files are prefetched until the daemon is restarted"},
    [HELPER_ASSIST] = {.name = "assist",
		       .begins = {HELPER_INHERITS, ASSISTS, HELPER_AS_IS},
		       .works = {SANDBOX_ASSIST, 0, HELPER_NOBODY},
		       .rest_min_ms = 500,
		       .rest_max_ms = 60000,
		       .user = "nobody",
		       .may = "opening and reading, tracing; loading BPF programs until all are loaded",
		       .end = "another process is started; meanwhile no files are prefetched"},
    [HELPER_AHEAD] = {.name = "ahead",
		      .begins = {HELPER_INHERITS, ASSISTS, HELPER_AS_IS},
		      .works = {SANDBOX_AHEAD, 0, HELPER_AS_IS},
		      .user = "the job's",
		      .may = "opening and reading",
		      .end = "no more files are prefetched for the job"},
    [HELPER_PEER_KEEPER] = {.name = "kpeer",
			    .title = "keeper of peer",
			    .begins = {SANDBOX_PEER_KEEPER, KEEPS_PEER | CAPABILITY(CAP_NET_BIND_SERVICE),
				       HELPER_AS_IS},
			    .works = {SANDBOX_PEER_KEEPER, KEEPS_PEER, HELPER_AS_IS},
			    .may = "everything that the next process may do, starting processes",
			    .end = "the node reads all its chunks itself until the daemon is restarted"},
    [HELPER_PEER] =
	{.name = "peer",
	 .begins = {HELPER_INHERITS, BECOMES, HELPER_AS_IS},
	 .works = {SANDBOX_PEER, 0, HELPER_AS_IS},
	 .rest_min_ms = 100,
	 .rest_max_ms = 10000,
	 .user = "nobody, if there is a cluster key and Redis needs no private file; else the daemon's",
	 .may = "TCP and local sockets, opening files, memory, threads, libraries",
	 .end = "another process is started; meanwhile chunks come from storage"},
};

/* ---- titles -------------------------------------------------------------------------------------------- */

static struct {
	char *begin;
	size_t bytes;
	char **environment; /* the moved environment: pointers, followed by their texts */
} title_space;

void helper_titles(int argc, char **argv)
{
	char *end = argv[argc - 1] + strlen(argv[argc - 1]) + 1, **copy, *text;
	size_t n = 0, bytes = 0;

	/* Moves away the environment, which follows the arguments in memory. Uses __environ, because a
	 * program made by another linker may have its own variable "environ", which the C library does not
	 * fill. */
	for (; __environ && __environ[n]; n++)
		bytes += strlen(__environ[n]) + 1;
	copy = malloc((n + 1) * sizeof(*copy) + bytes);
	if (!copy)
		return;
	text = (char *)(copy + n + 1);
	for (size_t i = 0; i < n; i++) {
		if (__environ[i] == end)
			end += strlen(end) + 1;
		copy[i] = text;
		text = stpcpy(text, __environ[i]) + 1;
	}
	copy[n] = NULL;
	__environ = title_space.environment = copy;
	title_space.begin = argv[0];
	title_space.bytes = (size_t)(end - argv[0]);
}

void helper_title(enum helper_kind kind, uint32_t uid)
{
	const struct helper_row *row = &helper_rows[kind];
	char name[16];
	int n = 0;

	if (title_space.bytes) {
		memset(title_space.begin, 0, title_space.bytes);
		n = snprintf(title_space.begin, title_space.bytes, "dieseld: %s", helper_title_of(row));
	}
	if (n > 0 && (size_t)n < title_space.bytes && uid != HELPER_NOBODYS)
		snprintf(title_space.begin + n, title_space.bytes - (size_t)n, " %u", uid);
	snprintf(name, sizeof(name), "dieseld-%s", row->name);
	prctl(PR_SET_NAME, name);
}

/* ---- rights -------------------------------------------------------------------------------------------- */

static int take_user(const struct helper_rights *r)
{
	int code = r->user == HELPER_AS_IS || geteuid() != 0
		       ? capabilities_keep(r->capabilities)
		       : capabilities_keep_as(r->capabilities, NOBODY, NOBODY);

	return code < 0 && r->user == HELPER_NOBODY_IF_THERE ? capabilities_keep(r->capabilities) : code;
}

void helper_begin(enum helper_kind kind, pid_t parent)
{
	const struct helper_row *row = &helper_rows[kind];
	sigset_t none;

	sigemptyset(&none);
	signal(SIGCHLD, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	if (row->ends_with_parent)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || take_user(&row->begins) < 0)
		_exit(1);
	/* If the system refuses filters, the daemon logs that. */
	if (row->begins.profile != HELPER_INHERITS)
		(void)sandbox_filter(row->begins.profile);
	helper_title(kind, HELPER_NOBODYS);
}

int helper_settle(enum helper_kind kind)
{
	const struct helper_row *row = &helper_rows[kind];
	int r = take_user(&row->works);

	if (r == 0 && row->works.profile != row->begins.profile)
		(void)sandbox_filter(row->works.profile);
	return r;
}
