/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/capabilities.h"
#include "lib/cleanup.h"

#if defined(__x86_64__)
#define SANDBOX_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define SANDBOX_ARCH AUDIT_ARCH_AARCH64
#else
#error "sandbox.c: the audit architecture of this machine is missing"
#endif

/* The low halves of arguments, on a little-endian machine. */
#define ARGUMENT_2 (offsetof(struct seccomp_data, args) + sizeof(uint64_t))
#define ARGUMENT_3 (offsetof(struct seccomp_data, args) + 2 * sizeof(uint64_t))

#define LOAD(offset)    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)
#define RESULT(action)  BPF_STMT(BPF_RET | BPF_K, action)
#define ALLOW_IF(value) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1), RESULT(SECCOMP_RET_ALLOW)

static int set_filter(bool serves)
{
	/* Calls for those that serve: no number of a call where the process does not. */
	const uint32_t none = UINT32_MAX;
	struct sock_filter code[] = {
	    LOAD(offsetof(struct seccomp_data, arch)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SANDBOX_ARCH, 1, 0),
	    RESULT(SECCOMP_RET_KILL_PROCESS),
	    LOAD(offsetof(struct seccomp_data, nr)),
	    ALLOW_IF(SYS_sendto),
	    ALLOW_IF(SYS_sendmsg),
	    ALLOW_IF(SYS_fstat),
	    ALLOW_IF(SYS_newfstatat), /* what the C library's fstat() calls */
	    ALLOW_IF(SYS_munmap),
	    ALLOW_IF(SYS_mremap),
	    ALLOW_IF(SYS_madvise),
	    ALLOW_IF(SYS_brk),
	    ALLOW_IF(SYS_clock_gettime),
	    ALLOW_IF(SYS_rt_sigreturn),
	    ALLOW_IF(SYS_sigaltstack), /* AddressSanitizer calls it when the process ends */
	    ALLOW_IF(serves ? SYS_recvmsg : none),
	    ALLOW_IF(serves ? SYS_close : none),
	    ALLOW_IF(serves ? SYS_setitimer : none),
	    ALLOW_IF(SYS_exit),
	    ALLOW_IF(SYS_exit_group),
	    /* pthread_once() wakes those who wait, and there are none. */
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 4),
	    LOAD(ARGUMENT_2),
	    ALLOW_IF(FUTEX_WAKE_PRIVATE),
	    RESULT(SECCOMP_RET_KILL_PROCESS),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 2),
	    LOAD(ARGUMENT_3),
	    BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 0, 1),
	    RESULT(SECCOMP_RET_KILL_PROCESS),
	    RESULT(SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}

/* The private memory that the process has, as RLIMIT_DATA counts it. */
static int data_bytes(uint64_t *ret)
{
	_cleanup_(fclosep) FILE *file = fopen("/proc/self/statm", "re");
	unsigned long long pages;

	if (!file)
		return -errno;
	if (fscanf(file, "%*u %*u %*u %*u %*u %llu", &pages) != 1)
		return -EIO;
	*ret = pages * (uint64_t)sysconf(_SC_PAGESIZE);
	return 0;
}

static int limit(int what, uint64_t value)
{
	const struct rlimit l = {.rlim_cur = value, .rlim_max = value};

	return setrlimit(what, &l) < 0 ? -errno : 0;
}

int sandbox_enter(const struct sandbox_limits *limits)
{
	uint64_t used_bytes = 0;
	struct timespec cpu;
	int r = data_bytes(&used_bytes);

	if (r == 0)
		r = limit(RLIMIT_DATA, used_bytes + limits->memory_bytes);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	if (r == 0 && limits->cpu_s)
		r = limit(RLIMIT_CPU, (uint64_t)cpu.tv_sec + limits->cpu_s);
	if (r == 0)
		r = limit(RLIMIT_CORE, 0);
	if (r == 0)
		r = limit(RLIMIT_FSIZE, 0);
	if (r == 0)
		r = capabilities_keep(0); /* with no_new_privs, which the filter needs */
	return r < 0 ? r : set_filter(limits->serves);
}
