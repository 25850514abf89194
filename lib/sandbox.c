/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/sandbox.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
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

/* Groups of system calls by purpose. A profile is a set of groups. */
enum {
	COMPUTE = 1 << 0, /* and exit */
	SEND = 1 << 1,
	SERVE = 1 << 2,
	PROCESS = 1 << 3, /* calls of every process of ours outside of sandbox_enter(), except for files and
			     processes */
	THREADS = 1 << 4,
	FORK = 1 << 5,
	SIGNAL = 1 << 6,  /* signals to other processes */
	FILES = 1 << 7,   /* opens and reads files; also creates them, through openat() */
	WRITES = 1 << 8,  /* writes to files */
	FOLDERS = 1 << 9, /* names */
	LOOP = 1 << 10,
	URING = 1 << 11,       /* requests of a ring bypass the filter... */
	URING_SETUP = 1 << 20, /* ... so they are restricted when the ring is made (storage/io_uring.c) */
	MEMORY = 1 << 12,
	LOCAL = 1 << 13, /* sockets within this machine */
	NETWORK = 1 << 14,
	CODE = 1 << 15, /* loading libraries */
	TRACE = 1 << 16,
	LOAD = 1 << 17, /* loading programs into the kernel */
	IDENTITY = 1 << 18,
	SEND_FILE = 1 << 19,
};

static const struct {
	uint32_t number, groups;
} calls[] = {
    {SYS_sendto, SEND | PROCESS},
    {SYS_sendmsg, SEND | PROCESS},
    {SYS_recvmsg, SERVE | PROCESS},
    {SYS_fstat, COMPUTE | PROCESS},
    {SYS_newfstatat, COMPUTE | PROCESS}, /* the C library's fstat() */
    {SYS_munmap, COMPUTE | PROCESS},
    {SYS_mremap, COMPUTE | PROCESS},
    {SYS_madvise, COMPUTE | PROCESS},
    {SYS_brk, COMPUTE | PROCESS},
    {SYS_clock_gettime, COMPUTE | PROCESS},
    {SYS_rt_sigreturn, COMPUTE | PROCESS},
    {SYS_sigaltstack, COMPUTE | PROCESS}, /* AddressSanitizer calls it when the process ends */
    {SYS_close, SERVE | PROCESS},
    {SYS_setitimer, SERVE | PROCESS},
    {SYS_exit, COMPUTE | PROCESS},
    {SYS_exit_group, COMPUTE | PROCESS},

    {SYS_futex, PROCESS},
    {SYS_read, PROCESS},
    {SYS_write, PROCESS},
    {SYS_writev, PROCESS},
    {SYS_readv, PROCESS},
    {SYS_recvfrom, PROCESS},
    {SYS_ppoll, PROCESS},
    {SYS_lseek, PROCESS},
    {SYS_fcntl, PROCESS},
    {SYS_dup, PROCESS},
    {SYS_dup3, PROCESS},
    {SYS_pipe2, PROCESS},
    {SYS_socketpair, PROCESS},
    {SYS_shutdown, PROCESS},
    {SYS_getsockopt, PROCESS},
    {SYS_setsockopt, PROCESS},
    {SYS_getsockname, PROCESS},
    {SYS_getpeername, PROCESS},
    {SYS_close_range, PROCESS},
    {SYS_pidfd_open, PROCESS},
    {SYS_clock_getres, PROCESS},
    {SYS_clock_nanosleep, PROCESS},
    {SYS_nanosleep, PROCESS},
    {SYS_gettimeofday, PROCESS},
    {SYS_restart_syscall, PROCESS},
    {SYS_getrandom, PROCESS},
    {SYS_rt_sigaction, PROCESS},
    {SYS_rt_sigprocmask, PROCESS},
    {SYS_rt_sigtimedwait, PROCESS},
    {SYS_sched_yield, PROCESS},
    {SYS_sched_getaffinity, PROCESS},
    {SYS_getcpu, PROCESS},
    {SYS_membarrier, PROCESS},
    {SYS_getpid, PROCESS},
    {SYS_gettid, PROCESS},
    {SYS_getppid, PROCESS},
    {SYS_getuid, PROCESS},
    {SYS_geteuid, PROCESS},
    {SYS_getgid, PROCESS},
    {SYS_getegid, PROCESS},
    {SYS_getgroups, PROCESS},
    {SYS_getresuid, PROCESS},
    {SYS_getresgid, PROCESS},
    {SYS_getrusage, PROCESS},
    {SYS_prctl, PROCESS},
    {SYS_seccomp, PROCESS},
    {SYS_capget, PROCESS},
    {SYS_capset, PROCESS},
    {SYS_getitimer, PROCESS},
    {SYS_uname, PROCESS},
    {SYS_sysinfo, PROCESS},
    {SYS_times, PROCESS},
    {SYS_umask, PROCESS},
    {SYS_ioprio_set, PROCESS},
    {SYS_ioprio_get, PROCESS},
#ifdef SYS_poll /* exists only on x86, like others below; newer architectures have only its replacement */
    {SYS_poll, PROCESS},
    {SYS_dup2, PROCESS},
    {SYS_pipe, PROCESS},
    {SYS_getrlimit, PROCESS},
    {SYS_setrlimit, PROCESS},
    {SYS_time, PROCESS},
    {SYS_arch_prctl, PROCESS},
#endif

    {SYS_set_robust_list, THREADS | FORK},
    {SYS_get_robust_list, THREADS | FORK},
    {SYS_rseq, THREADS | FORK},
    {SYS_set_tid_address, THREADS | FORK},
    {SYS_sched_setaffinity, THREADS},
    {SYS_sched_getparam, THREADS},
    {SYS_sched_getscheduler, THREADS},

    {SYS_wait4, FORK},
    {SYS_waitid, FORK},

    {SYS_kill, SIGNAL},
    {SYS_pidfd_send_signal, SIGNAL},

    {SYS_openat2, FILES},
    {SYS_openat, FILES},
    {SYS_pread64, FILES | WRITES},
    {SYS_preadv, FILES},
    {SYS_preadv2, FILES},
    {SYS_statx, FILES},
    {SYS_readlinkat, FILES},
    {SYS_faccessat, FILES},
    {SYS_faccessat2, FILES},
    {SYS_getdents64, FILES},
    {SYS_getxattr, FILES},
    {SYS_fgetxattr, FILES},
    {SYS_listxattr, FILES},
    {SYS_flistxattr, FILES},
    {SYS_statfs, FILES},
    {SYS_fstatfs, FILES},
    {SYS_getcwd, FILES},
    {SYS_fadvise64, FILES},
    {SYS_readahead, FILES},
    {451, FILES}, /* cachestat */
#ifdef SYS_open
    {SYS_open, FILES},
    {SYS_stat, FILES},
    {SYS_lstat, FILES},
    {SYS_readlink, FILES},
    {SYS_access, FILES},
#endif

    {SYS_pwrite64, WRITES},
    {SYS_pwritev, WRITES},
    {SYS_pwritev2, WRITES},
    {SYS_ftruncate, WRITES | MEMORY},
    {SYS_fallocate, WRITES | MEMORY},
    {SYS_fchmod, WRITES | MEMORY},
    {SYS_fchown, WRITES},
    {SYS_fsync, WRITES},
    {SYS_fdatasync, WRITES},
    {SYS_flock, WRITES},

    {SYS_mkdirat, FOLDERS},
    {SYS_unlinkat, FOLDERS},
    {SYS_renameat2, FOLDERS},
    {SYS_fchmodat, FOLDERS},
    {SYS_linkat, FOLDERS},
    {SYS_utimensat, FOLDERS},
#ifdef SYS_renameat
    {SYS_renameat, FOLDERS},
#endif
#ifdef SYS_unlink
    {SYS_mkdir, FOLDERS},
    {SYS_unlink, FOLDERS},
    {SYS_rmdir, FOLDERS},
    {SYS_rename, FOLDERS},
    {SYS_chmod, FOLDERS},
#endif

    {SYS_epoll_create1, LOOP},
    {SYS_epoll_ctl, LOOP},
    {SYS_epoll_pwait, LOOP},
    {SYS_eventfd2, LOOP},
    {SYS_timerfd_create, LOOP},
    {SYS_timerfd_settime, LOOP},
    {SYS_signalfd4, LOOP},
#ifdef SYS_epoll_wait
    {SYS_epoll_wait, LOOP},
#endif

    {SYS_io_uring_enter, URING},
    {SYS_io_uring_setup, URING_SETUP},
    {SYS_io_uring_register, URING_SETUP},

    {SYS_memfd_create, MEMORY},
    {SYS_mlock, MEMORY},
    {SYS_munlock, MEMORY},
    {SYS_msync, MEMORY},
    {SYS_mincore, MEMORY},

    {SYS_bind, LOCAL | NETWORK},
    {SYS_listen, LOCAL | NETWORK},
    {SYS_accept4, LOCAL | NETWORK},
    {SYS_accept, LOCAL | NETWORK},
    {SYS_connect, LOCAL | NETWORK},
    {SYS_sendmmsg, NETWORK}, /* used by the C library's resolver */
    {SYS_recvmmsg, NETWORK},

    {SYS_perf_event_open, TRACE},
    {SYS_process_vm_readv, TRACE},

    {SYS_setresuid, IDENTITY},
    {SYS_setresgid, IDENTITY},
    {SYS_setgroups, IDENTITY},
    {SYS_setns, IDENTITY},
    {SYS_chroot, IDENTITY},
    {SYS_fchdir, IDENTITY},

    {SYS_sendfile, SEND_FILE},
#ifdef DIESEL_SANITIZED /* LeakSanitizer stops the threads when the process ends */
    {SYS_ptrace, FORK},
#ifdef SYS_getdents
    {SYS_getdents, FORK},
#endif
#endif
};

#define ANY_PROCESS (COMPUTE | SEND | SERVE | PROCESS)
#define READER      (ANY_PROCESS | THREADS | FILES | WRITES | LOOP | MEMORY | SIGNAL)
#define HELPERS     (READER | FOLDERS | URING | URING_SETUP | CODE)
#define SENSES      (ANY_PROCESS | THREADS | FILES | LOOP | MEMORY | TRACE)
#define AHEAD       (ANY_PROCESS | THREADS | FILES | SEND_FILE)
#define PEER        (ANY_PROCESS | THREADS | FILES | WRITES | LOOP | MEMORY | NETWORK | CODE)

static const struct {
	uint32_t groups;
	bool kills;
} profiles[SANDBOX_N_PROFILES] = {
    [SANDBOX_COMPUTES] = {COMPUTE | SEND, true},
    [SANDBOX_SERVES] = {COMPUTE | SEND | SERVE, true},
    [SANDBOX_DAEMON] = {ANY_PROCESS | THREADS | FORK | FILES | WRITES | FOLDERS | LOOP | URING | URING_SETUP |
			    MEMORY | LOCAL | NETWORK | SIGNAL | CODE,
			false},
    [SANDBOX_FORK_SERVER] = {HELPERS | FORK, false},
    [SANDBOX_READER] = {READER, false},
    [SANDBOX_RING_READER] = {READER | URING, false},
    [SANDBOX_RING_MAKER] = {READER | URING | URING_SETUP, false},
    [SANDBOX_OPENER] = {ANY_PROCESS | THREADS | FILES | WRITES | MEMORY, false},
    [SANDBOX_CLOSER] = {ANY_PROCESS, false},
    [SANDBOX_LOADER] = {ANY_PROCESS | THREADS | FILES | MEMORY | CODE, false},
    [SANDBOX_STAGER] = {ANY_PROCESS | THREADS | FILES | WRITES | FOLDERS, false},
    [SANDBOX_SENSOR_KEEPER] = {SENSES | LOAD | FORK | SIGNAL | IDENTITY, false},
    [SANDBOX_SENSOR] = {SENSES, false},
    [SANDBOX_ASSIST_KEEPER] = {SENSES | LOAD | FORK | SIGNAL | IDENTITY | AHEAD, false},
    [SANDBOX_ASSIST] = {SENSES, false},
    [SANDBOX_AHEAD] = {AHEAD, false},
    [SANDBOX_PEER_KEEPER] = {PEER | FORK | SIGNAL | IDENTITY, false},
    [SANDBOX_PEER] = {PEER, false},
};

struct filter {
	struct sock_filter code[2 * sizeof(calls) / sizeof(calls[0]) + 160];
	uint32_t n, refuse;
};

static void add(struct filter *f, struct sock_filter what)
{
	f->code[f->n++] = what;
}

static void load(struct filter *f, size_t offset)
{
	add(f, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset));
}

/* Loads the low half of a call's argument. Requires a little-endian machine. */
static void load_argument(struct filter *f, unsigned i)
{
	load(f, offsetof(struct seccomp_data, args) + i * sizeof(uint64_t));
}

static void result(struct filter *f, uint32_t what)
{
	add(f, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

static void result_if(struct filter *f, uint32_t value, uint32_t what)
{
	add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1));
	result(f, what);
}

static void result_if_any(struct filter *f, uint32_t bits, uint32_t what)
{
	add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1));
	result(f, what);
}

/* Begins rules that apply to this call only, until end_call(). Returns the position of the rules. */
static uint32_t begin_call(struct filter *f, uint32_t number)
{
	add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 0));
	return f->n - 1;
}

static void end_call(struct filter *f, uint32_t at, uint32_t what)
{
	result(f, what);
	f->code[at].jf = (uint8_t)(f->n - at - 1);
}

static void add_memory(struct filter *f, uint32_t groups)
{
	static const uint32_t numbers[] = {SYS_mmap, SYS_mprotect};
	size_t n = groups & PROCESS ? 2 : 1;

	for (size_t i = 0; i < n; i++) {
		uint32_t at = begin_call(f, numbers[i]);

		load_argument(f, 2);
		if (!(groups & CODE))
			result_if_any(f, PROT_EXEC, f->refuse);
		end_call(f, at, SECCOMP_RET_ALLOW);
	}
}

/* Allows futex() wake-ups: pthread_once() wakes waiters even if there are none. */
static void add_wake(struct filter *f)
{
	uint32_t at = begin_call(f, SYS_futex);

	load_argument(f, 1);
	result_if(f, FUTEX_WAKE_PRIVATE, SECCOMP_RET_ALLOW);
	end_call(f, at, f->refuse);
}

/* Allows threads and processes, without new namespaces. Refuses clone3(), whose flags a filter cannot see:
 * the C library then uses clone(). */
static void add_clone(struct filter *f, uint32_t groups)
{
	const uint32_t namespaces = CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC |
				    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET;
	uint32_t at = begin_call(f, SYS_clone);

	load_argument(f, 0);
	result_if_any(f, namespaces, f->refuse);
	if (!(groups & FORK)) {
		result_if_any(f, CLONE_THREAD, SECCOMP_RET_ALLOW);
		end_call(f, at, f->refuse);
	} else {
		end_call(f, at, SECCOMP_RET_ALLOW);
	}
	result_if(f, SYS_clone3, SECCOMP_RET_ERRNO | ENOSYS);
}

static void add_socket(struct filter *f, uint32_t groups)
{
	uint32_t at = begin_call(f, SYS_socket);

	load_argument(f, 0);
	result_if(f, AF_UNIX, SECCOMP_RET_ALLOW);
	if (groups & NETWORK) {
		result_if(f, AF_INET, SECCOMP_RET_ALLOW);
		result_if(f, AF_INET6, SECCOMP_RET_ALLOW);
		result_if(f, AF_NETLINK, SECCOMP_RET_ALLOW); /* used by getaddrinfo() */
	}
	end_call(f, at, f->refuse);
}

/* Allows ioctl() calls on terminals, sockets and pipes, on perf events, and on address spaces
 * (PROCMAP_QUERY). */
static void add_ioctl(struct filter *f, uint32_t groups)
{
	static const uint32_t all[] = {0x5401 /* TCGETS */,  0x5413 /* TIOCGWINSZ */, 0x541b /* FIONREAD */,
				       0x5421 /* FIONBIO */, 0x5450 /* FIONCLEX */,   0x5451 /* FIOCLEX */};
	uint32_t at = begin_call(f, SYS_ioctl);

	load_argument(f, 1);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		result_if(f, all[i], SECCOMP_RET_ALLOW);
	if (groups & TRACE) {
		result_if(f, 0xc0686611, SECCOMP_RET_ALLOW);
		add(f, (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xff00));
		result_if(f, '$' << 8, SECCOMP_RET_ALLOW);
	}
	end_call(f, at, f->refuse);
}

/* Allows bpf() calls that attach loaded programs and read maps. */
static void add_bpf(struct filter *f, uint32_t groups)
{
	uint32_t at = begin_call(f, SYS_bpf);

	load_argument(f, 0);
	if (!(groups & LOAD)) {
		result_if(f, BPF_PROG_LOAD, f->refuse);
		result_if(f, BPF_BTF_LOAD, f->refuse);
		result_if(f, BPF_OBJ_PIN, f->refuse);
	}
	end_call(f, at, SECCOMP_RET_ALLOW);
}

/* Allows a process to use prlimit64() on itself, and to send signals to itself (abort()). */
static void add_own(struct filter *f)
{
	uint32_t at = begin_call(f, SYS_prlimit64);

	load_argument(f, 0);
	result_if(f, 0, SECCOMP_RET_ALLOW);
	end_call(f, at, f->refuse);
	at = begin_call(f, SYS_tgkill);
	load_argument(f, 0);
	result_if(f, (uint32_t)getpid(), SECCOMP_RET_ALLOW);
	end_call(f, at, f->refuse);
}

static void filter_make(struct filter *f, uint32_t groups, bool kills)
{
	f->n = 0;
	f->refuse = kills ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | EPERM;
	load(f, offsetof(struct seccomp_data, arch));
	add(f, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SANDBOX_ARCH, 1, 0));
	result(f, SECCOMP_RET_KILL_PROCESS);
	load(f, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		if (calls[i].groups & groups)
			result_if(f, calls[i].number, SECCOMP_RET_ALLOW);
	}
	add_memory(f, groups);
	if (!(groups & PROCESS))
		add_wake(f);
	else
		add_own(f);
	if (groups & PROCESS)
		add_ioctl(f, groups);
	if (groups & (THREADS | FORK))
		add_clone(f, groups);
	if (groups & (LOCAL | NETWORK))
		add_socket(f, groups);
	if (groups & TRACE)
		add_bpf(f, groups);
	result(f, f->refuse);
}

/* Sets the filter. guards: keep the mitigations of speculative execution, which slow a process down and
 * protect only against its own code. Processes that parse others' bytes keep them. Before Linux 4.17 there is
 * no choice. */
static int filter_set(const struct filter *f, bool guards)
{
	const struct sock_fprog program = {.len = (unsigned short)f->n,
					   .filter = (struct sock_filter *)f->code};

	if (!guards &&
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &program) == 0)
		return 0;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}

int sandbox_filter(enum sandbox_profile profile)
{
	struct filter f;

	filter_make(&f, profiles[profile].groups, profiles[profile].kills);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return filter_set(&f, profiles[profile].kills);
}

/* Returns the private memory of the process, as RLIMIT_DATA counts it. */
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
	return r < 0 ? r : sandbox_filter(limits->serves ? SANDBOX_SERVES : SANDBOX_COMPUTES);
}
