/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the sampler on real processes, and on a tree that looks like /proc. */
#include "tests/support.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/error.h"
#include "lib/proc_task.h"
#include "analyzer/source.h"

#define EVENTS_MAX 20000
#define POLLS_MAX  4000 /* far more than a loaded machine needs: a bound, not an expectation */

struct seen {
	struct event events[EVENTS_MAX];
	size_t n;
};

static struct seen seen;

static void on_event(void *user, const struct event *event)
{
	(void)user;
	assert_true(seen.n < EVENTS_MAX);
	seen.events[seen.n++] = *event;
}

static const struct collector_sink sink = {.event = on_event};

static const struct event *find(uint16_t type, pid_t tid, int wait)
{
	for (size_t i = 0; i < seen.n; i++)
		if (seen.events[i].type == type && seen.events[i].tid == (uint32_t)tid &&
		    (wait < 0 || seen.events[i].sample.wait == wait))
			return &seen.events[i];
	return NULL;
}

/* Polls until there is such an event. */
static const struct event *await(struct source *sampler, uint16_t type, pid_t tid, int wait)
{
	for (int i = 0; i < POLLS_MAX; i++) {
		struct pollfd fd = {.fd = source_fd(sampler), .events = POLLIN};

		assert_true(poll(&fd, 1, 1000) >= 0);
		assert_true(source_poll(sampler, 0, &sink) >= 0);
		if (find(type, tid, wait))
			return find(type, tid, wait);
	}
	fail_msg("no event of type %d of %d", type, (int)tid);
	return NULL;
}

static struct source *sampler_make(void)
{
	struct source *sampler;

	seen.n = 0;
	assert_int_equal(
	    source_open(SOURCE_SAMPLER, &(struct collector_options){.no_children = false}, &sampler, NULL),
	    0);
	return sampler;
}

/* Starts a child that waits at the pipe until its other end is closed. */
static pid_t waiting_child(int ends[2], bool with_child)
{
	char byte;

	assert_int_equal(pipe(ends), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid)
		return pid;
	close(ends[1]);
	if (with_child && fork() == 0)
		_exit(read(ends[0], &byte, 1) == 1);
	if (read(ends[0], &byte, 1) < 0)
		_exit(1);
	while (wait(NULL) > 0)
		;
	_exit(0);
}

TEST(what_a_process_sleeps_in)
{
	struct source *sampler = sampler_make();
	struct stat st;
	int ends[2], status;
	pid_t pid = waiting_child(ends, false);

	assert_int_equal(source_attach(sampler, pid, NULL), 0);
	const struct event *look = await(sampler, EVENT_SAMPLE, pid, PROC_WAIT_PIPE);
	assert_int_equal(fstat(ends[0], &st), 0);
	assert_int_equal(look->sample.inode, st.st_ino);
	assert_true(look->start_ns < look->end_ns);
	assert_true(look->sample.known & SAMPLE_KNOWN_PROCESS);
	assert_non_null(find(EVENT_ALIVE, pid, -1));
	close(ends[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	await(sampler, EVENT_EXIT, pid, -1);
	assert_int_equal(source_alive(sampler), 0);
	source_close(sampler);
	close(ends[0]);
}

/* A zombie does not count as a sleeping process. */
TEST(a_zombie_has_ended)
{
	struct source *sampler = sampler_make();
	int ends[2];
	pid_t pid = waiting_child(ends, false);

	assert_int_equal(source_attach(sampler, pid, NULL), 0);
	await(sampler, EVENT_SAMPLE, pid, -1);
	close(ends[1]);
	await(sampler, EVENT_EXIT, pid, -1); /* not waited for */
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	source_close(sampler);
	close(ends[0]);
}

TEST(children_and_what_they_are)
{
	struct source *sampler = sampler_make();
	const struct event *event = NULL;
	int ends[2];
	pid_t pid = waiting_child(ends, true);

	assert_int_equal(source_attach(sampler, pid, NULL), 0);
	for (int i = 0; i < POLLS_MAX && !event; i++) {
		poll(&(struct pollfd){.fd = source_fd(sampler), .events = POLLIN}, 1, 1000);
		assert_true(source_poll(sampler, 0, &sink) >= 0);
		for (size_t k = 0; k < seen.n; k++)
			if (seen.events[k].type == EVENT_SAMPLE_PROCESS &&
			    seen.events[k].tid != (uint32_t)pid)
				event = &seen.events[k];
	}
	assert_non_null(event);
	assert_int_equal(event->process.parent_tgid, pid);
	assert_int_equal(event->process.flags, SAMPLE_PROCESS_SHARES_PIPE | SAMPLE_PROCESS_COPY);
	assert_int_equal(source_alive(sampler), 2);
	assert_true(source_has(sampler, (pid_t)event->tid));
	/* The first one's parent is this test, which is not part of the job. */
	assert_int_equal(find(EVENT_SAMPLE_PROCESS, pid, -1)->process.flags, 0);
	close(ends[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	source_close(sampler);
	close(ends[0]);
}

TEST(children_are_left_out_where_asked)
{
	struct source *sampler;
	int ends[2];
	pid_t pid = waiting_child(ends, true);

	seen.n = 0;
	assert_int_equal(
	    source_open(SOURCE_SAMPLER, &(struct collector_options){.no_children = true}, &sampler, NULL), 0);
	assert_int_equal(source_attach(sampler, pid, NULL), 0);
	await(sampler, EVENT_SAMPLE, pid, PROC_WAIT_PIPE);
	for (int i = 0; i < 50; i++) {
		poll(&(struct pollfd){.fd = source_fd(sampler), .events = POLLIN}, 1, 1000);
		assert_true(source_poll(sampler, 0, &sink) >= 0);
	}
	assert_int_equal(source_alive(sampler), 1);
	close(ends[1]);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	source_close(sampler);
	close(ends[0]);
}

static size_t n_open_files(void)
{
	DIR *directory = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(directory);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

/* Many processes that come and go leave nothing behind. */
TEST(many_short_processes)
{
	size_t before = n_open_files();
	struct source *sampler = sampler_make();
	struct collector_stats stats;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		for (int i = 0; i < 300; i++) {
			pid_t child = fork();

			if (child == 0)
				_exit(0);
			waitpid(child, NULL, 0);
		}
		_exit(0);
	}
	assert_int_equal(source_attach(sampler, pid, NULL), 0);
	await(sampler, EVENT_EXIT, pid, -1);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (int i = 0; i < POLLS_MAX && source_alive(sampler); i++) {
		poll(&(struct pollfd){.fd = source_fd(sampler), .events = POLLIN}, 1, 1000);
		assert_true(source_poll(sampler, 0, &sink) >= 0);
	}
	assert_int_equal(source_alive(sampler), 0);
	source_stats_get(sampler, &stats);
	assert_int_equal(stats.storage_failures, 0);
	source_close(sampler);
	assert_int_equal(n_open_files(), before);
}

TEST(no_such_process)
{
	struct source *sampler = sampler_make();
	struct error err = ERROR_INIT;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	assert_int_equal(source_attach(sampler, pid, &err), -ESRCH);
	assert_non_null(strstr(err.text, "no process"));
	source_close(sampler);
}

TEST(no_proc)
{
	char folder[] = "/tmp/diesel-no-proc-XXXXXX";
	struct error err = ERROR_INIT;
	struct source *sampler;
	int status;
	pid_t pid;

	assert_non_null(mkdtemp(folder));
	pid = fork();
	if (pid == 0) {
		if (chroot(folder) < 0 && (unshare(CLONE_NEWUSER) < 0 || chroot(folder) < 0))
			_exit(77); /* no privilege */
		_exit(source_open(SOURCE_SAMPLER, &(struct collector_options){0}, &sampler, &err) != -ENOENT);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	rmdir(folder);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* the tree that looks like /proc */
static const char *root;

static int setup(void **state)
{
	int r = make_folder(state);

	root = *state;
	return r;
}

static void write_stat(pid_t pid, char state, unsigned int ticks, unsigned int start_ticks)
{
	char name[64];

	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), i ? "%d/task/%d/stat" : "%d/stat", (int)pid, (int)pid);
		write_format(
		    root, name,
		    "%d (python3) %c 1 40 40 0 -1 4194560 11 0 22 0 %u 0 0 0 20 0 1 0 %u 1000 77 18 0 0\n",
		    (int)pid, state, ticks, start_ticks);
	}
}

/* Attaches the sampler to a sleeping child, which the tree shows as it likes. */
static struct source *sampler_of_tree(pid_t pid)
{
	struct source *sampler;
	char name[64];

	seen.n = 0;
	write_text(root, "self/stat", "");
	snprintf(name, sizeof(name), "%d/task/%d/wchan", (int)pid, (int)pid);
	write_text(root, name, "folio_wait_bit_common");
	write_stat(pid, 'R', 100, 5);
	assert_int_equal(
	    source_open(SOURCE_SAMPLER, &(struct collector_options){.proc_path = root}, &sampler, NULL), 0);
	assert_int_equal(source_attach(sampler, pid, NULL), 0);
	return sampler;
}

/* If schedstat and syscall are hidden, the thread's state, its ticks and wchan still show. */
TEST(a_kernel_that_shows_little)
{
	int ends[2];
	pid_t pid = waiting_child(ends, false);
	struct source *sampler = sampler_of_tree(pid);
	const struct event *event;

	await(sampler, EVENT_SAMPLE, pid, PROC_WAIT_NONE);
	write_stat(pid, 'D', 103, 5);
	event = await(sampler, EVENT_SAMPLE, pid, PROC_WAIT_FILE_READ);
	assert_true(event->start_ns < event->end_ns);
	assert_int_equal(event->start_ns, (event - 1)->end_ns);
	assert_int_equal(event->sample.state, 'D');
	assert_int_equal(event->sample.known, SAMPLE_KNOWN_WCHAN | SAMPLE_KNOWN_PROCESS);
	assert_int_equal(event->sample.exec_ns, 3 * (NS_PER_S / (uint64_t)sysconf(_SC_CLK_TCK)));
	write_stat(pid, 'Z', 103, 5);
	await(sampler, EVENT_EXIT, pid, -1);
	source_close(sampler);
	close(ends[1]);
	waitpid(pid, NULL, 0);
	close(ends[0]);
}

TEST(a_number_that_is_used_again)
{
	int ends[2];
	pid_t pid = waiting_child(ends, false);
	struct source *sampler = sampler_of_tree(pid);

	await(sampler, EVENT_SAMPLE, pid, -1);
	assert_int_equal(source_alive(sampler), 1);
	write_stat(pid, 'R', 0, 900);
	await(sampler, EVENT_EXIT, pid, -1);
	source_close(sampler);
	close(ends[1]);
	waitpid(pid, NULL, 0);
	close(ends[0]);
}

int main(void)
{
	return run_unit_tests(setup, remove_folder);
}
