/* SPDX-License-Identifier: Apache-2.0 */

/* The first process of a guest that tests/kernels/kernels.py boots. It checks the guest's kernel as root and
 * as a user with the three capabilities that the README names, writes the results to the second serial port,
 * and ends the guest. Each part begins with a line "== NAME". */

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/diesel.h"
#include "lib/cleanup.h"
#include "bpf/collect/private.h"

#define FETCH_NS  40000000
#define PREP_S    0.04
#define STEP_S    0.12
#define STEPS     30
#define NOBODY    65534
#define LOG_BYTES (16U << 20)

static const int capabilities[] = {CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE};

#define N_CAPABILITIES (sizeof(capabilities) / sizeof(capabilities[0]))

static void require(bool held, const char *what)
{
	if (held)
		return;
	printf("== failed\n%s: %s\n", what, strerror(errno));
	exit(1);
}

/* Leaves root, and keeps the three capabilities over the next exec. */
static void become_user(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {0};

	for (size_t i = 0; i < N_CAPABILITIES; i++)
		data[capabilities[i] / 32].permitted |= 1U << capabilities[i] % 32;
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].inheritable = data[i].permitted;
	require(!prctl(PR_SET_KEEPCAPS, 1) && !setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY) &&
		    !setresuid(NOBODY, NOBODY, NOBODY) && !syscall(SYS_capset, &header, data),
		"user");
	for (size_t i = 0; i < N_CAPABILITIES; i++)
		require(!prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capabilities[i], 0, 0), "capability");
}

static void run(const char *name, bool as_user, const char *const argv[])
{
	int status = 0;
	pid_t pid;

	printf("== %s\n", name);
	pid = fork();
	require(pid >= 0, "fork");
	if (!pid) {
		if (as_user)
			become_user();
		execv(argv[0], (char *const *)argv);
		require(false, argv[0]);
	}
	require(waitpid(pid, &status, 0) == pid, "waitpid");
	printf("\n== %s ended\n%d\n", name, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	(void)format;
	(void)args;
	return 0;
}

static struct bpf_object *object_open(const char *path, const struct btf *btf, char *log)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .btf_custom_path = DEFAULT_BTF, .kernel_log_buf = log,
		    .kernel_log_size = log ? LOG_BYTES : 0, .kernel_log_level = log ? 1 | 4 : 0);
	struct bpf_object *object = bpf_object__open_file(path, &opts);
	struct error err = ERROR_INIT;
	struct bpf_map *map;

	require(object, path);
	if (bpf_object__find_program_by_name(object, "sys_enter") && hooks_select(object, btf, true, &err)) {
		printf("== failed\n%s\n", err.text);
		exit(1);
	}
	bpf_object__for_each_map(map, object)
	{
		if (bpf_map__type(map) == BPF_MAP_TYPE_RINGBUF)
			bpf_map__set_max_entries(map, 1 << 20);
	}
	return object;
}

static void print_tail(const char *log)
{
	size_t n = strlen(log);

	printf("%s\n", log + (n > 1500 ? n - 1500 : 0));
}

/* Loads one program, and says how many instructions the verifier looked at. Returns true if it was loaded. */
static bool program_load(const char *path, const char *name, const struct btf *btf, char *log)
{
	struct bpf_object *object;
	struct bpf_program *program;
	const char *looked;
	int r;

	log[0] = '\0';
	object = object_open(path, btf, log);
	bpf_object__for_each_program(program, object)
	{
		bpf_program__set_autoload(program, !strcmp(bpf_program__name(program), name));
	}
	r = bpf_object__load(object);
	looked = strstr(log, "processed ");
	printf("%s %s %d\n", r < 0 ? "refused" : "loaded", name,
	       looked ? atoi(looked + strlen("processed ")) : 0);
	if (r < 0)
		print_tail(log);
	bpf_object__close(object);
	return r == 0;
}

/* Loads each program that the collector would choose on this kernel, by itself. */
static int load_programs(const char *path)
{
	_cleanup_(btf_freep) struct btf *btf = NULL;
	struct error err = ERROR_INIT;
	char *log = malloc(LOG_BYTES);
	struct bpf_program *program;
	struct bpf_object *all;
	int n_refused = 0;

	libbpf_set_print(quiet);
	require(log && hooks_btf(DEFAULT_BTF, &btf, &err) == 0, "BTF");
	all = object_open(path, btf, log);
	bpf_object__for_each_program(program, all)
	{
		if (bpf_program__autoload(program) &&
		    !program_load(path, bpf_program__name(program), btf, log))
			n_refused++;
		fflush(stdout);
	}
	bpf_object__close(all);
	free(log);
	return n_refused ? 1 : 0;
}

static void check(const char *who, bool as_user)
{
	const char *const json[] = {"/bin/diesel-analyze", "check", "--json", NULL};
	const char *const text[] = {"/bin/diesel-analyze", "check", NULL};
	char name[64];

	snprintf(name, sizeof(name), "%s: check", who);
	run(name, as_user, json);
	snprintf(name, sizeof(name), "%s: text", who);
	run(name, as_user, text);
}

static void each_program(const char *who, bool as_user, bool can_cast)
{
	const char *const recorder[] = {"/init", can_cast ? "/recorder.o" : "/recorder_without_cast.o", NULL};
	const char *const index_watch[] = {"/init", "/index_watch.o", NULL};
	char name[64];

	snprintf(name, sizeof(name), "%s: recorder", who);
	run(name, as_user, recorder);
	snprintf(name, sizeof(name), "%s: index_watch", who);
	run(name, as_user, index_watch);
}

/* Prints the names of the programs that the collector chooses on a kernel with this type information. */
static int select_programs(const char *path, const char *btf_path)
{
	_cleanup_(btf_freep) struct btf *btf = NULL;
	struct error err = ERROR_INIT;
	struct bpf_program *program;
	struct bpf_object *object;

	libbpf_set_print(quiet);
	require(hooks_btf(btf_path, &btf, &err) == 0, btf_path);
	object = object_open(path, btf, NULL);
	printf("%s\n", hooks_can_cast(btf) ? "can cast" : "cannot cast");
	bpf_object__for_each_program(program, object)
	{
		if (bpf_program__autoload(program))
			printf("%s\n", bpf_program__name(program));
	}
	bpf_object__close(object);
	return 0;
}

static double seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void compute(double s)
{
	double end = seconds(CLOCK_THREAD_CPUTIME_ID) + s;

	while (seconds(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

/* A loader's next(): it waits for a read, prepares a sample, and has its marks. */
static void next_batch(void)
{
	diesel_mark(DIESEL_MARK_NEXT_BEGIN, 1);
	diesel_mark(DIESEL_MARK_WAIT_BEGIN, 1);
	nanosleep(&(struct timespec){.tv_nsec = FETCH_NS}, NULL);
	diesel_mark(DIESEL_MARK_WAIT_END, DIESEL_MARK_CAUSE_FETCH);
	compute(PREP_S);
	diesel_mark(DIESEL_MARK_NEXT_END, 1);
}

/* A training job that knows how long it waited for data. */
static int train(void)
{
	double begin = seconds(CLOCK_MONOTONIC), waited = 0;

	for (int i = 0; i < STEPS; i++) {
		double before = seconds(CLOCK_MONOTONIC);

		next_batch();
		waited += seconds(CLOCK_MONOTONIC) - before;
		compute(STEP_S);
	}
	printf("%.4f\n", waited / (seconds(CLOCK_MONOTONIC) - begin));
	return 0;
}

static void record(const char *who, bool as_user)
{
	static const char path[] = "/tmp/job.db";
	const char *const job[] = {"/bin/diesel-analyze", "record", "-o", path, "--", "/init", "train", NULL};
	const char *const report[] = {"/bin/diesel-analyze", "report", path, "--format", "json", NULL};
	char name[64];

	unlink(path);
	snprintf(name, sizeof(name), "%s: job", who);
	run(name, as_user, job);
	snprintf(name, sizeof(name), "%s: report", who);
	run(name, as_user, report);
}

static void guest(void)
{
	_cleanup_(btf_freep) struct btf *btf = NULL;
	struct error err = ERROR_INIT;
	struct utsname system;

	uname(&system);
	printf("== kernel\n%s\n", system.release);
	check("root", false);
	check("user", true);
	require(hooks_btf(DEFAULT_BTF, &btf, &err) == 0, "BTF");
	if (access("/each", F_OK) == 0) {
		each_program("root", false, hooks_can_cast(btf));
		each_program("user", true, hooks_can_cast(btf));
	}
	record("root", false);
	record("user", true);
	printf("== end\n");
}

int main(int argc, char **argv)
{
	pid_t pid;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc > 1 && argv[1][0] == '/')
		return load_programs(argv[1]);
	if (argc > 3 && !strcmp(argv[1], "select"))
		return select_programs(argv[2], argv[3]);
	if (argc > 1 && !strcmp(argv[1], "train"))
		return train();
	(void)mount("proc", "/proc", "proc", 0, NULL);
	(void)mount("sys", "/sys", "sysfs", 0, NULL);
	(void)mount("dev", "/dev", "devtmpfs", 0, NULL);
	(void)mount("security", "/sys/kernel/security", "securityfs", 0, NULL);
	(void)chmod("/tmp", 01777);
	pid = fork();
	if (!pid) {
		int fd = open("/dev/ttyS1", O_RDWR | O_NOCTTY);

		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		guest();
		return 0;
	}
	while (wait(NULL) > 0 || errno == EINTR)
		;
	sync();
	reboot(RB_POWER_OFF);
	return 1;
}
