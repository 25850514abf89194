/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/proc.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"

/* Bits of a task's flags, as the kernel shows them. */
#define FORKED_ONLY   0x40
#define KERNEL_THREAD 0x200000

#define SMALL_BYTES   16384 /* for stat, status, comm, cmdline and meminfo, which have a few KiB */
#define STAT_CPU_LINE 512   /* enough for the first line of /proc/stat */

int proc_read_file(const char *path, size_t max_bytes, char **ret_text, size_t *ret_length)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_(freep) char *text = NULL;
	size_t length;
	int r;

	if (fd < 0)
		return -errno;
	text = malloc(max_bytes + 1);
	if (!text)
		return -ENOMEM;
	r = fd_read(fd, text, max_bytes, &length);
	if (r < 0)
		return r;
	text[length] = '\0';
	if (ret_length)
		*ret_length = length;
	*ret_text = steal_pointer(text);
	return 0;
}

static int read_of(const char *root, pid_t pid, const char *name, char **ret_text, size_t *ret_length)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/%d/%s", root, (int)pid, name);
	return proc_read_file(path, SMALL_BYTES, ret_text, ret_length);
}

static int read_at(const char *root, const char *name, size_t max_bytes, char **ret_text)
{
	char path[4200];

	snprintf(path, sizeof(path), "%s/%s", root, name);
	return proc_read_file(path, max_bytes, ret_text, NULL);
}

int proc_stat_parse(const char *text, struct proc_stat *ret_stat)
{
	const char *open = strchr(text, '(');
	const char *close = strrchr(text, ')'); /* the last bracket ends the name; others are part of it */
	struct proc_stat stat = {0};
	size_t length;
	unsigned flags;
	int pid, parent;

	if (!open || !close || close < open || sscanf(text, "%d", &pid) != 1)
		return -EBADMSG;
	length = (size_t)(close - open - 1);
	if (length >= sizeof(stat.comm))
		length = sizeof(stat.comm) - 1;
	memcpy(stat.comm, open + 1, length);
	if (sscanf(close + 1,
		   " %c %d %*d %*d %*d %*d %u %" SCNu64 " %*u %" SCNu64 " %*u %" SCNu64 " %" SCNu64
		   " %*d %*d %*d %*d %" SCNu64 " %*d %" SCNu64 " %*u %" SCNu64,
		   &stat.state, &parent, &flags, &stat.minor_faults, &stat.major_faults, &stat.user_ticks,
		   &stat.system_ticks, &stat.n_threads, &stat.start_ticks, &stat.resident_pages) != 10)
		return -EBADMSG;
	stat.pid = pid;
	stat.parent = parent;
	stat.forked_only = (flags & FORKED_ONLY) && !(flags & KERNEL_THREAD);
	*ret_stat = stat;
	return 0;
}

int proc_stat_read(const char *root, pid_t pid, struct proc_stat *ret_stat)
{
	_cleanup_(freep) char *text = NULL;
	int r = read_of(root, pid, "stat", &text, NULL);

	return r < 0 ? r : proc_stat_parse(text, ret_stat);
}

/* Returns the text after "key:" at the start of a line, or NULL. */
static const char *value_of(const char *text, const char *key)
{
	size_t length = strlen(key);

	while (text) {
		if (!strncmp(text, key, length) && text[length] == ':')
			return text + length + 1;
		text = strchr(text, '\n');
		if (text)
			text++;
	}
	return NULL;
}

static uint64_t number_of(const char *text, const char *key)
{
	const char *value = value_of(text, key);

	return value ? strtoull(value, NULL, 10) : 0;
}

/* Returns the last number of a line: NSpid lists the PID in every namespace, the innermost one last. */
static pid_t last_number(const char *line)
{
	long number = 0;

	while (*line && *line != '\n') {
		if (isdigit((unsigned char)*line)) {
			char *end;

			number = strtol(line, &end, 10);
			line = end;
		} else {
			line++;
		}
	}
	return (pid_t)number;
}

int proc_status_read(const char *root, pid_t pid, struct proc_status *ret_status)
{
	_cleanup_(freep) char *text = NULL;
	int r = read_of(root, pid, "status", &text, NULL);

	if (r < 0)
		return r;

	const char *tgid = value_of(text, "Tgid");
	const char *uid = value_of(text, "Uid");
	const char *capabilities = value_of(text, "CapEff");
	const char *ns_pid = value_of(text, "NSpid");
	struct proc_status status = {0};
	unsigned effective;

	if (!tgid || !uid || !capabilities || sscanf(uid, "%*u %u", &effective) != 1)
		return -EBADMSG;
	status.tgid = (pid_t)strtol(tgid, NULL, 10);
	status.ns_pid = ns_pid ? last_number(ns_pid) : status.tgid;
	status.uid = effective;
	status.effective_capabilities = strtoull(capabilities, NULL, 16);
	status.resident_bytes = number_of(text, "VmRSS") * 1024;
	status.voluntary_switches = number_of(text, "voluntary_ctxt_switches");
	status.forced_switches = number_of(text, "nonvoluntary_ctxt_switches");
	*ret_status = status;
	return 0;
}

int proc_comm_read(const char *root, pid_t pid, char *buffer, size_t size)
{
	_cleanup_(freep) char *text = NULL;
	size_t length;
	int r = read_of(root, pid, "comm", &text, &length);

	if (r < 0)
		return r;
	if (length > 0 && text[length - 1] == '\n')
		text[length - 1] = '\0';
	snprintf(buffer, size, "%s", text);
	return 0;
}

int proc_cmdline_read(const char *root, pid_t pid, char *buffer, size_t size)
{
	_cleanup_(freep) char *text = NULL;
	size_t length;
	int r = read_of(root, pid, "cmdline", &text, &length);

	if (r < 0)
		return r;
	while (length > 0 && !text[length - 1])
		length--;
	text[length] = '\0';
	for (size_t i = 0; i < length; i++) {
		if (!text[i])
			text[i] = ' ';
		else if (iscntrl((unsigned char)text[i]))
			text[i] = '?';
	}
	snprintf(buffer, size, "%s", text);
	return 0;
}

int proc_cpu_ticks_read(const char *root, struct proc_cpu_ticks *ret_ticks)
{
	_cleanup_(freep) char *text = NULL;
	struct proc_cpu_ticks t = {0};
	int r = read_at(root, "stat", STAT_CPU_LINE, &text);

	if (r < 0)
		return r;
	/* In old kernels the line ends after idle; steal is there since 2.6.11. */
	if (sscanf(text,
		   "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
		   " %" SCNu64,
		   &t.user, &t.nice, &t.system, &t.idle, &t.iowait, &t.irq, &t.softirq, &t.steal) != 8)
		return -EBADMSG;
	*ret_ticks = t;
	return 0;
}

int proc_meminfo_read(const char *root, struct proc_meminfo *ret_meminfo)
{
	_cleanup_(freep) char *text = NULL;
	int r = read_at(root, "meminfo", SMALL_BYTES, &text);

	if (r < 0)
		return r;
	if (!value_of(text, "MemTotal") || !value_of(text, "MemAvailable"))
		return -EBADMSG;
	ret_meminfo->total_bytes = number_of(text, "MemTotal") * 1024;
	ret_meminfo->free_bytes = number_of(text, "MemFree") * 1024;
	ret_meminfo->available_bytes = number_of(text, "MemAvailable") * 1024;
	ret_meminfo->cached_bytes = number_of(text, "Cached") * 1024;
	ret_meminfo->dirty_bytes = number_of(text, "Dirty") * 1024;
	ret_meminfo->writeback_bytes = number_of(text, "Writeback") * 1024;
	return 0;
}

void proc_unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from;) {
		if (from[0] == '\\' && from[1] >= '0' && from[1] <= '3' && from[2] >= '0' && from[2] <= '7' &&
		    from[3] >= '0' && from[3] <= '7') {
			*to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	*to = '\0';
}
