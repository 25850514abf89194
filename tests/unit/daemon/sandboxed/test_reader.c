/* SPDX-License-Identifier: Apache-2.0 */
/* A helper process reads chunks into memory that it shares with the daemon. */
#include "tests/support_loop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/sandboxed/reader.h"
#include "daemon/storage/shared_memory.h"

#define FILE_BYTES ((5u << 20) + 4096)

struct node {
	uv_loop_t loop;
	struct fork_server fork_server;
	struct readers readers;
	struct reader_process *slot;
	struct shared_memory memory;
	char *path;
	int folder_fd;
	uint32_t n_done, n_ended;
};

static struct node *current;

static void on_done(struct reader_job *job)
{
	current->n_done++;
}

static void on_end(void *user)
{
	((struct node *)user)->n_ended++;
}

static void start(struct node *n, const char *root, bool use_uring)
{
	struct error err = ERROR_INIT;

	*n = (struct node){.path = path_in(root, "a.chunk")};
	current = n;
	n->folder_fd = open(root, O_PATH | O_DIRECTORY);
	assert_true(n->folder_fd >= 0);
	assert_int_equal(fork_server_fork(&n->fork_server, &err), 0);
	assert_int_equal(uv_loop_init(&n->loop), 0);
	assert_int_equal(shared_memory_new("test", FILE_BYTES, SHARED_MAPPABLE, &n->memory), 0);
	n->readers = (struct readers){.loop = &n->loop,
				      .fork_server = &n->fork_server,
				      .use_uring = use_uring,
				      .max = 1,
				      .on_end = on_end,
				      .user = n};
}

static void stop(struct node *n)
{
	readers_close(&n->readers);
	loop_end(&n->loop);
	fork_server_end(&n->fork_server);
	shared_memory_free(&n->memory);
	close(n->folder_fd);
	free(n->path);
}

static void prepare(struct reader_job *job, const char *name)
{
	struct stat st = {.st_uid = getuid(), .st_gid = getgid(), .st_mode = S_IFREG | 0600};

	*job =
	    (struct reader_job){.order = {.bytes = FILE_BYTES,
					  .rights = {.uid = st.st_uid, .gid = st.st_gid, .mode = st.st_mode}},
				.done = on_done};
	snprintf(job->order.name, sizeof(job->order.name), "%s", name);
	snprintf(job->order.origin, sizeof(job->order.origin), "here/%s", name);
}

static int submit(struct node *n, struct reader_job *job)
{
	return readers_submit(&n->readers, &n->slot, 1000, job, n->folder_fd, n->memory.fd);
}

static void write_file(const struct node *n, uint32_t bytes)
{
	int fd = open(n->path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	static uint8_t content[FILE_BYTES];

	for (uint32_t i = 0; i < FILE_BYTES; i++)
		content[i] = (uint8_t)(i * 7 + i / 1000);
	assert_int_equal(write(fd, content, bytes), bytes);
	close(fd);
}

static void check_reads(const char *root, bool use_uring)
{
	struct reader_job jobs[4], missing;
	struct node n;

	start(&n, root, use_uring);
	write_file(&n, FILE_BYTES);
	for (int i = 0; i < 4; i++) {
		prepare(&jobs[i], "a.chunk");
		assert_int_equal(submit(&n, &jobs[i]), 0);
	}
	assert_int_equal(n.n_done, 0);
	loop_until_count(&n.loop, &n.n_done, 4);
	for (int i = 0; i < 4; i++)
		assert_int_equal(jobs[i].result, 0);
	for (uint32_t i = 0; i < FILE_BYTES; i += 997)
		assert_int_equal(n.memory.data[i], (uint8_t)(i * 7 + i / 1000));
	prepare(&missing, "b.chunk");
	assert_int_equal(submit(&n, &missing), 0);
	loop_until_count(&n.loop, &n.n_done, 5);
	assert_int_equal(missing.result, -ENOENT);
	assert_non_null(strstr(missing.error.text, "here/b.chunk"));
	write_file(&n, FILE_BYTES - 4096);
	prepare(&missing, "a.chunk");
	assert_int_equal(submit(&n, &missing), 0);
	loop_until_count(&n.loop, &n.n_done, 6);
	assert_int_equal(missing.result, -EBADMSG);
	assert_non_null(strstr(missing.error.text, "truncated"));
	stop(&n);
}

TEST_IN_FOLDER(direct_and_buffered_reads_deliver_the_file)
{
	check_reads(*state, true);
	check_reads(*state, false);
}

/* Outside of the ranges, none of the memory's old contents are left. */
TEST_IN_FOLDER(ranges_are_read_and_the_rest_is_cleared)
{
	static const struct reader_range ranges[] = {
	    {0, 4096}, {8192, (2 << 20) + 4096}, {FILE_BYTES - 4096, 4096}};
	struct reader_job job;
	struct node n;

	start(&n, *state, true);
	write_file(&n, FILE_BYTES);
	memset(n.memory.data, 1, FILE_BYTES);
	prepare(&job, "a.chunk");
	job.order.n_ranges = 3;
	memcpy(job.order.ranges, ranges, sizeof(ranges));
	assert_int_equal(submit(&n, &job), 0);
	loop_until_count(&n.loop, &n.n_done, 1);
	assert_int_equal(job.result, 0);
	for (uint32_t i = 0; i < FILE_BYTES; i += 997) {
		bool read = false;

		for (int k = 0; k < 3; k++)
			read = read || (i >= ranges[k].offset && i < ranges[k].offset + ranges[k].bytes);
		assert_int_equal(n.memory.data[i], read ? (uint8_t)(i * 7 + i / 1000) : 0);
	}
	/* The ranges are not in order, or beyond the end. */
	job.order.ranges[1].offset = 0;
	assert_int_equal(submit(&n, &job), 0);
	loop_until_count(&n.loop, &n.n_done, 2);
	assert_int_equal(job.result, -EINVAL);
	job.order.ranges[1] = (struct reader_range){FILE_BYTES, 4096};
	assert_int_equal(submit(&n, &job), 0);
	loop_until_count(&n.loop, &n.n_done, 3);
	assert_int_equal(job.result, -EINVAL);
	stop(&n);
}

/* Contents that are already in memory are not read again, as long as the file is the same. */
TEST_IN_FOLDER(a_known_file)
{
	struct reader_job first, again;
	struct node n;

	start(&n, *state, true);
	write_file(&n, FILE_BYTES);
	prepare(&first, "a.chunk");
	assert_int_equal(submit(&n, &first), 0);
	loop_until_count(&n.loop, &n.n_done, 1);
	assert_false(first.unchanged);
	memset(n.memory.data, 0, FILE_BYTES);
	prepare(&again, "a.chunk");
	again.order.is_known = true;
	again.order.known = first.stamp;
	assert_int_equal(submit(&n, &again), 0);
	loop_until_count(&n.loop, &n.n_done, 2);
	assert_int_equal(again.result, 0);
	assert_true(again.unchanged);
	assert_int_equal(n.memory.data[5000], 0);
	/* The user for whom the file is read may no longer read it. */
	assert_int_equal(chmod(n.path, 0), 0);
	assert_int_equal(submit(&n, &again), 0);
	loop_until_count(&n.loop, &n.n_done, 3);
	assert_int_equal(again.result, -EACCES);
	/* The same bytes are in another file. */
	assert_int_equal(unlink(n.path), 0);
	write_file(&n, FILE_BYTES);
	assert_int_equal(submit(&n, &again), 0);
	loop_until_count(&n.loop, &n.n_done, 4);
	assert_int_equal(again.result, 0);
	assert_false(again.unchanged);
	assert_int_equal(n.memory.data[5000], (uint8_t)(5000 * 7 + 5));
	stop(&n);
}

/* Finds a process of this name whose parent is the fork server. */
static pid_t find_reader(const struct node *n)
{
	char path[300], text[200];
	DIR *proc = opendir("/proc");
	pid_t found = 0;

	for (struct dirent *e; (e = readdir(proc));) {
		int fd, parent = 0, pid = atoi(e->d_name);
		ssize_t size;

		snprintf(path, sizeof(path), "/proc/%s/stat", e->d_name);
		fd = pid > 0 ? open(path, O_RDONLY) : -1;
		if (fd < 0)
			continue;
		size = read(fd, text, sizeof(text) - 1);
		close(fd);
		text[size > 0 ? size : 0] = '\0';
		if (sscanf(text, "%*d (dieseld-reader) %*c %d", &parent) == 1 && parent == n->fork_server.pid)
			found = pid;
	}
	closedir(proc);
	return found;
}

TEST_IN_FOLDER(its_end_ends_what_it_had)
{
	struct reader_job job, other;
	struct reader_process *second = NULL;
	struct node n;

	start(&n, *state, false);
	write_file(&n, FILE_BYTES);
	prepare(&job, "a.chunk");
	assert_int_equal(submit(&n, &job), 0);
	loop_until_count(&n.loop, &n.n_done, 1);
	/* The limit on readers also holds for another dataset. */
	prepare(&other, "a.chunk");
	assert_int_equal(readers_submit(&n.readers, &second, 1000, &other, n.folder_fd, n.memory.fd),
			 -EAGAIN);
	assert_int_equal(readers_of(&n.readers, 1000), 1);
	assert_int_equal(readers_of(&n.readers, 0), 0);
	pid_t pid = find_reader(&n);
	/* The class is best effort, and the lowest level, which comes after a checkpoint's writes. */
	assert_int_equal(syscall(SYS_ioprio_get, 1, pid), 2 << 13 | 7);
	assert_true(pid > 0);
	kill(pid, SIGSTOP); /* as if storage blocked it */
	prepare(&job, "a.chunk");
	assert_int_equal(submit(&n, &job), 0);
	kill(pid, SIGKILL);
	loop_until_count(&n.loop, &n.n_done, 2);
	assert_int_equal(job.result, -EIO);
	assert_int_equal(n.n_ended, 1);
	assert_null(n.slot);
	/* Another reader takes the job. */
	prepare(&job, "a.chunk");
	assert_int_equal(submit(&n, &job), 0);
	loop_until_count(&n.loop, &n.n_done, 3);
	assert_int_equal(job.result, 0);
	/* A released reader ends by itself. */
	reader_let_go(&n.slot);
	assert_null(n.slot);
	loop_until_count(&n.loop, &n.n_ended, 2);
	assert_int_equal(n.readers.n, 0);
	stop(&n);
}

struct said {
	int fd;
	const char *word;
};

static bool is_said(void *user)
{
	const struct said *s = user;
	char text[4096];
	ssize_t n = pread(s->fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	return strstr(text, s->word);
}

TEST_IN_FOLDER(storage_that_does_not_answer)
{
	struct said late = {.word = "here/a.chunk: storage has not answered for "},
		    again = {.word = "here/a.chunk: storage answers again, after "};
	struct reader_job jobs[2];
	int old = dup(STDERR_FILENO);
	struct node n;

	late.fd = again.fd = memfd_create("said", MFD_CLOEXEC);
	assert_true(late.fd >= 0);
	start(&n, *state, false);
	n.readers.late_ms = 20;
	write_file(&n, FILE_BYTES);
	prepare(&jobs[0], "a.chunk");
	assert_int_equal(submit(&n, &jobs[0]), 0);
	loop_until_count(&n.loop, &n.n_done, 1);
	pid_t pid = find_reader(&n);
	assert_true(pid > 0);
	dup2(late.fd, STDERR_FILENO);
	kill(pid, SIGSTOP);
	for (int i = 0; i < 2; i++) {
		prepare(&jobs[i], "a.chunk");
		assert_int_equal(submit(&n, &jobs[i]), 0);
	}
	loop_until(&n.loop, is_said, &late);
	assert_false(is_said(&again));
	n.readers.late_ms = 0;
	kill(pid, SIGCONT);
	loop_until_count(&n.loop, &n.n_done, 3);
	assert_true(is_said(&again));
	dup2(old, STDERR_FILENO);
	close(old);
	close(late.fd);
	stop(&n);
}

/* A spare reader starts before its user is known. */
TEST_IN_FOLDER(a_spare_one)
{
	struct reader_job job;
	struct node n;
	pid_t pid, killed;

	start(&n, *state, true);
	write_file(&n, FILE_BYTES);
	readers_prepare(&n.readers);
	readers_prepare(&n.readers);
	assert_int_equal(n.readers.n, 1);
	assert_int_equal(readers_of(&n.readers, 1000), 0);
	while ((killed = find_reader(&n)) == 0)
		usleep(1000);
	/* The process is killed, as it would be if memory is short. */
	kill(killed, SIGKILL);
	loop_until_count(&n.loop, &n.n_ended, 1);
	assert_null(n.readers.spare);
	assert_int_equal(n.readers.n, 0);
	readers_prepare(&n.readers);
	while ((pid = find_reader(&n)) == 0 || pid == killed)
		usleep(1000);
	assert_true(readers_have_space(&n.readers));
	prepare(&job, "a.chunk");
	assert_int_equal(submit(&n, &job), 0);
	assert_null(n.readers.spare);
	assert_int_equal(n.readers.n, 1);
	assert_int_equal(readers_of(&n.readers, 1000), 1);
	loop_until_count(&n.loop, &n.n_done, 1);
	assert_int_equal(job.result, 0);
	assert_int_equal(n.memory.data[5000], (uint8_t)(5000 * 7 + 5));
	assert_int_equal(find_reader(&n), pid);
	/* There is no space for another reader. */
	assert_false(readers_have_space(&n.readers));
	readers_prepare(&n.readers);
	assert_null(n.readers.spare);
	stop(&n);
}
