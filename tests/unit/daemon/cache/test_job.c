/* SPDX-License-Identifier: Apache-2.0 */
/* Which sessions are one job, in a made-up /proc, and how long a job lives, with a real process. */
#include "tests/support_loop.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/cache/job.h"

struct fixture {
	struct jobs jobs;
	uv_loop_t loop;
	char *root;
	int n_begun, n_ended;
};

static void on_begin(void *user, struct job *job)
{
	((struct fixture *)user)->n_begun++;
}

static void on_end(void *user, struct job *job)
{
	assert_int_equal(job->n_sessions, 0);
	((struct fixture *)user)->n_ended++;
}

static void fixture_start(struct fixture *f, const char *root)
{
	*f = (struct fixture){.root = path_in(root, "proc")};
	assert_int_equal(uv_loop_init(&f->loop), 0);
	f->jobs = (struct jobs){
	    .loop = &f->loop, .proc_root = f->root, .handler = {.begin = on_begin, .end = on_end, .user = f}};
}

static void fixture_end(struct fixture *f)
{
	jobs_close(&f->jobs);
	loop_end(&f->loop);
	free(f->root);
}

/* Numbers beyond the kernel's largest, which no real process has. */
#define TRAINER 9000001
#define OTHER   9000100

static void process(struct fixture *f, const char *scratch, int pid, int parent)
{
	char name[64];

	snprintf(name, sizeof(name), "proc/%d/stat", pid);
	write_format(scratch, name, "%d (py (th) on) S %d 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0 0 0\n",
		     pid, parent);
}

static struct job *join(struct fixture *f, int pid, uint32_t rank, uint32_t stride)
{
	struct job *j = jobs_join(
	    &f->jobs, &(struct job_member){.pid = pid, .uid = 7, .rank = rank, .world = 4, .stride = stride});

	assert_non_null(j);
	return j;
}

TEST_IN_FOLDER(workers_are_their_trainers)
{
	struct fixture f;
	struct job *a, *b;

	fixture_start(&f, *state);
	process(&f, *state, 9000000, 1); /* torchrun */
	process(&f, *state, TRAINER, 9000000);
	process(&f, *state, TRAINER + 1, TRAINER);     /* a worker */
	process(&f, *state, TRAINER + 2, TRAINER);     /* a fork server */
	process(&f, *state, TRAINER + 3, TRAINER + 2); /* its worker */
	process(&f, *state, OTHER, 9000000);
	process(&f, *state, OTHER + 1, OTHER);
	/* The worker comes first, and gets its parent's job. */
	a = join(&f, TRAINER + 1, 0, 2);
	assert_int_equal(a->pid, TRAINER);
	assert_ptr_equal(join(&f, TRAINER + 3, 0, 2), a);
	assert_ptr_equal(join(&f, TRAINER, 0, 1), a);
	assert_ptr_equal(join(&f, TRAINER, 1, 1), a); /* one process is one job */
	assert_ptr_equal(join(&f, TRAINER + 1, 0, 1), a);
	/* Another rank of the same torchrun is another job, and so is a process that the trainer started. */
	b = join(&f, OTHER, 1, 1);
	assert_ptr_not_equal(a, b);
	assert_ptr_equal(join(&f, OTHER + 1, 1, 2), b);
	assert_int_equal(join(&f, TRAINER + 2, 3, 1)->pid, TRAINER + 2);
	/* The process is not visible. */
	assert_int_equal(join(&f, 0, 0, 1)->pid, 0);
	assert_ptr_not_equal(join(&f, 0, 0, 1), join(&f, 0, 0, 1));
	assert_int_equal(f.n_begun, 6);
	assert_ptr_equal(jobs_find(&f.jobs, a->id), a);
	assert_null(jobs_find(&f.jobs, 99));
	for (struct job *j = f.jobs.first, *next; j; j = next) {
		next = j->next;
		for (uint32_t n = j->n_sessions; n > 0; n--)
			jobs_leave(j);
	}
	fixture_end(&f);
}

TEST_IN_FOLDER(few_wait_for_another_session)
{
	const int n = JOB_MAX_LINGERING + 3;
	pid_t children[JOB_MAX_LINGERING + 3];
	struct job *busy = NULL, *newest, *again;
	struct fixture f;

	fixture_start(&f, *state);
	for (int i = 0; i < n; i++) {
		children[i] = fork();
		if (children[i] == 0) {
			pause();
			_exit(0);
		}
		/* The first job keeps its session, the others have none. */
		if (i == 0)
			busy = join(&f, children[i], 0, 1);
		else
			jobs_leave(join(&f, children[i], 0, 1));
	}
	assert_int_equal(f.n_ended, 2);
	newest = join(&f, children[n - 1], 0, 1);
	assert_int_equal(f.n_begun, n);
	again = join(&f, children[1], 0, 1);
	assert_int_equal(f.n_begun, n + 1);
	for (int i = 0; i < n; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], NULL, 0);
	}
	jobs_leave(busy);
	jobs_leave(newest);
	jobs_leave(again);
	fixture_end(&f);
}

TEST_IN_FOLDER(another_users_process_is_another_job)
{
	struct fixture f;
	struct job *a, *b;

	fixture_start(&f, *state);
	process(&f, *state, TRAINER, 1);
	process(&f, *state, TRAINER + 1, TRAINER);
	a = join(&f, TRAINER, 0, 1);
	b = jobs_join(&f.jobs,
		      &(struct job_member){.pid = TRAINER + 1, .uid = 8, .rank = 0, .world = 4, .stride = 1});
	assert_ptr_not_equal(a, b);
	jobs_leave(a);
	jobs_leave(b);
	fixture_end(&f);
}

/* While the process lives, the job outlives its sessions. After the process ends, the job ends with the last
 * session. */
static void on_tick(uv_timer_t *timer)
{
}

TEST_IN_FOLDER(a_job_lives_as_long_as_its_process)
{
	struct fixture f;
	uint64_t id;
	uv_timer_t tick;
	pid_t child = fork();

	if (child == 0) {
		pause();
		_exit(0);
	}
	fixture_start(&f, *state);
	uv_timer_init(&f.loop, &tick); /* the watch of the process does not keep a loop running */
	uv_timer_start(&tick, on_tick, 1, 1);
	struct job *j = join(&f, child, 0, 1);
	id = j->id;
	jobs_leave(j);
	assert_ptr_equal(join(&f, child, 0, 1), j);
	kill(child, SIGKILL);
	for (int i = 0; i < 5000 && !j->process_ended; i++)
		uv_run(&f.loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&tick, NULL);
	assert_true(j->process_ended);
	assert_int_equal(f.n_ended, 0);
	jobs_leave(j);
	assert_int_equal(f.n_ended, 1);
	assert_null(jobs_find(&f.jobs, id));
	waitpid(child, NULL, 0);
	fixture_end(&f);
}

TEST(time_of_reads_that_overlap_counts_once)
{
	struct job j = {.n_reading = 0};

	job_read_begin(&j, 100);
	job_read_begin(&j, 150);
	job_read_end(&j, 100, 200, 10);
	job_read_end(&j, 150, 300, 20);
	job_read_begin(&j, 500);
	job_read_end(&j, 500, 510, 1);
	assert_int_equal(j.counters.reading_ns, 200 + 10);
	assert_int_equal(j.counters.read_ns, 100 + 150 + 10);
	assert_int_equal(j.counters.read_bytes, 31);
	assert_int_equal(j.counters.chunk_reads, 3);
	/* Chunks from other nodes count in the same way, among the reads. */
	job_read_begin(&j, 600);
	job_ask_begin(&j, 610);
	job_read_end(&j, 600, 650, 1);
	job_ask_end(&j, 610, 700, 0, 5);
	job_ask_begin(&j, 800);
	job_ask_end(&j, 800, 850, -EAGAIN, 0);
	assert_int_equal(j.counters.reading_ns, 200 + 10 + 50);
	assert_int_equal(j.counters.coming_ns, 200 + 10 + 100 + 50);
	assert_int_equal(j.counters.peer_ns, 90);
	assert_int_equal(j.counters.peer_chunks, 1);
	assert_int_equal(read_latency_below(&j.counters.came, 0, &(double){0}), 5);
}

TEST_IN_FOLDER(numbers_in_control_groups)
{
#define POD  "0a1b2c3d-0000-4444-8888-0123456789ab"
#define POD_ "0a1b2c3d_0000_4444_8888_0123456789ab"
	static const struct {
		const char *text, *slurm_job, *pod_uid;
	} cases[] = {
	    {"0::/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0\n", "4711", ""},
	    {"0::/system.slice/n1_slurmstepd.scope/job_4711/step_batch/user/task_0\n", "4711", ""},
	    {"12:memory:/slurm/uid_1000/job_12/step_0\n1:name=systemd:/system.slice/slurmd.service\n", "12",
	     ""},
	    {"4:cpuset:/slurm_node-1/uid_7/job_13/step_0\n", "13", ""},
	    {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" POD_
	     ".slice/cri-containerd-1.scope\n",
	     "said", POD},
	    {"0::/kubepods.slice/kubepods-pod" POD_ ".slice/crio-1.scope\n", "said", POD},
	    {"9:pids:/kubepods/besteffort/pod" POD "/1\n", "said", POD},
	    /* The path as a daemon in a pod sees it. */
	    {"0::/../../kubepods-burstable-pod" POD_ ".slice/cri-containerd-1.scope\n", "said", POD},
	    {"0::/../../../besteffort/pod" POD "/1\n", "said", POD},
	    /* Groups that a user has created. */
	    {"0::/user.slice/user-7.slice/user@7.service/slurm/job_1\n", "said", ""},
	    {"0::/user.slice/user-7.slice/user@7.service/kubepods-pod" POD_ ".slice\n", "said", ""},
	    {"0::/system.slice/slurmstepd.scope/job_1/step_0/user/task_0/job_2\n", "1", ""},
	    {"0::/kubepods/pod" POD "/1/podffffffff-0000-4444-8888-0123456789ab\n", "said", POD},
	    /* No such group exists. */
	    {"0::/\n", "said", ""},
	    {"0::/system.slice/slurmstepd.scope/job_/step_0\n", "said", ""},
	    {"0::/system.slice/slurmstepd.scope/job_12x/step_0\n", "said", ""},
	    {"0::/kubepods/podabc/1\n", "said", ""},
	    {"0::", "said", ""},
	    {"\n\n:\n::::\n", "said", ""},
	    {"", "said", ""},
	};

	const struct wire_origin said = {.slurm_job = "said"};
	struct fixture f;

	fixture_start(&f, *state);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int pid = TRAINER + (int)i;
		char name[64];

		process(&f, *state, pid, 1);
		snprintf(name, sizeof(name), "proc/%d/cgroup", pid);
		write_text(*state, name, cases[i].text);
		struct job *a = jobs_join(
		    &f.jobs,
		    &(struct job_member){.pid = pid, .uid = 7, .world = 4, .stride = 1, .origin = &said});
		assert_non_null(a);
		assert_string_equal(a->origin.slurm_job, cases[i].slurm_job);
		assert_string_equal(a->origin.pod_uid, cases[i].pod_uid);
		jobs_leave(a);
	}
	fixture_end(&f);
}

TEST_IN_FOLDER(the_kernel_s_word_beats_the_client_s)
{
	const struct wire_origin said = {.slurm_job = "1", .account = "physics", .pod = "train-0"};
	struct fixture f;

	fixture_start(&f, *state);
	process(&f, *state, TRAINER, 1);
	write_format(*state, "proc/9000001/cgroup", "0::/system.slice/slurmstepd.scope/job_4711/step_0\n");
	struct job *a = jobs_join(
	    &f.jobs,
	    &(struct job_member){.pid = TRAINER, .uid = 7, .world = 4, .stride = 1, .origin = &said});
	assert_non_null(a);
	assert_string_equal(a->origin.slurm_job, "4711");
	assert_string_equal(a->origin.account, "physics");
	assert_string_equal(a->origin.pod, "train-0");
	jobs_leave(a);
	fixture_end(&f);
}
