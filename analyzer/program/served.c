/* SPDX-License-Identifier: Apache-2.0 */
#include "served.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/fd_io.h"
#include "lib/file_open.h"
#include "lib/json_read.h"
#include "lib/units.h"

#define JSON_MAX_BYTES (64 << 20)

static double sum_known(double a, double b)
{
	if (isnan(a))
		return b;
	return isnan(b) ? a : a + b;
}

#define NAME_MAX_BYTES 40

/* Returns how many bytes of a name are shown: whole characters. */
static int name_bytes(const char *name)
{
	size_t n = strnlen(name, NAME_MAX_BYTES + 1);

	if (n > NAME_MAX_BYTES)
		for (n = NAME_MAX_BYTES; n && ((unsigned char)name[n] & 0xc0) == 0x80;)
			n--;
	return (int)n;
}

struct served served_read(const json_t *job)
{
	const json_t *now = json_object_get(job, "now");
	const char *name = json_string_value(json_object_get(job, "name"));
	double demand = json_number_of(json_object_get(job, "tuner"), "demand");
	struct served served = {
	    .rate = json_number_of(now, "samples_per_s"),
	    .demand = demand > 0 ? demand : json_number_of(now, "device_rate"),
	    .prep_rate = json_number_of(now, "prep_rate"),
	    .cpu_s = sum_known(json_number_of(now, "daemon_cpu_s_per_sample"),
			       json_number_of(now, "client_cpu_s_per_sample")),
	    .sample_bytes = json_number_of(now, "chunk_bytes") / json_number_of(now, "samples_per_chunk"),
	    .storage_bytes_per_s = json_number_of(now, "source_bytes_per_s"),
	    .dataset_bytes = json_number_of(now, "dataset_bytes"),
	    .need_bytes = json_number_of(now, "need_bytes"),
	    .cached_bytes = json_number_of(now, "cached_bytes"),
	};

	snprintf(served.name, sizeof(served.name), "%.*s:%.0f", name ? name_bytes(name) : 3,
		 name ? name : "job", json_number_of(job, "id"));
	return served;
}

bool served_knows_memory(const struct served *served)
{
	return served->dataset_bytes > 0 && served->need_bytes >= 0 && served->sample_bytes > 0 &&
	       served->storage_bytes_per_s > 0;
}

double served_speed(const struct served *served, const struct served_change *change,
		    enum model_bound *ret_bound)
{
	double demand = served->demand * change->device_factor, fetch = INFINITY;
	double prep = isnan(change->cores) ? served->prep_rate : change->cores / (served->cpu_s + 1 / demand);

	if (isnan(prep))
		prep = INFINITY;
	if (!isnan(change->cached_ratio) && change->cached_ratio < 1)
		fetch = model_fetch_rate(change->cached_ratio, served->sample_bytes, INFINITY,
					 served->storage_bytes_per_s * change->storage_factor);
	*ret_bound = model_bound_of(fetch, prep, demand);
	return model_speed(fetch, prep, demand);
}

#define PRESENT_TOLERANCE 0.2 /* of the present speed, within which the formulas must give it */

const char *served_why_unclear(const struct served *served)
{
	struct served_change none = {NAN, NAN, 1, 1};
	enum model_bound bound;

	if (!(served->demand > 0) || !(served->cpu_s >= 0) || !(served->rate > 0))
		return "dieseld has measured too little of it: ask again in a minute";
	if (served_knows_memory(served))
		none.cached_ratio = fmin(1, served->cached_bytes / served->dataset_bytes);
	if (fabs(served_speed(served, &none, &bound) / served->rate - 1) > PRESENT_TOLERANCE)
		return "its figures do not explain its present speed, as when other programs have its cores: "
		       "ask "
		       "again when the node is less busy";
	return NULL;
}

/* Returns a copy of the pipe's descriptor if the path names one that the caller gave to this program, as a
 * shell's <(...) does; else -1. A pipe with a name is not opened: that may wait forever. */
static int pipe_given(const char *path)
{
	static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
	struct stat st;
	int64_t n = -1;
	int fd;

	if (!strcmp(path, "/dev/stdin"))
		n = STDIN_FILENO;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (!strncmp(path, folders[i], strlen(folders[i])) &&
		    units_parse_integer(path + strlen(folders[i]), 0, INT32_MAX, &n))
			n = -1;
	if (n < 0 || fstat((int)n, &st) < 0 || !(S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)))
		return -1;
	fd = fcntl((int)n, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? -1 : fd;
}

int served_is_json(const char *path)
{
	_cleanup_(closep) int given = pipe_given(path);
	_cleanup_(closep) int fd = given < 0 ? file_to_read(AT_FDCWD, path, true) : -1;
	char begin[256];
	ssize_t n = fd < 0 ? fd : pread(fd, begin, sizeof(begin) - 1, 0);

	if (given >= 0)
		return 1; /* a pipe can be read only once, and a recording is a file */
	if (n < 0)
		return fd < 0 ? fd : -errno;
	begin[n] = '\0';
	return begin[strspn(begin, " \n\t\r")] == '{';
}

int served_load(const char *path, json_t **ret_root, struct error *err)
{
	_cleanup_(closep) int given = pipe_given(path);
	_cleanup_(closep) int fd = given < 0 ? file_to_read(AT_FDCWD, path, true) : steal_fd(&given);
	_cleanup_(freep) char *text = malloc(JSON_MAX_BYTES + 1);
	json_error_t wrong;
	size_t n;
	json_t *root;
	int r;

	if (fd < 0)
		return file_error(err, fd, "cannot open", path);
	if (!text)
		return error_set(err, -ENOMEM, "out of memory");
	r = fd_read(fd, text, JSON_MAX_BYTES + 1, &n);
	if (r < 0)
		return file_error(err, r, "cannot read", path);
	if (n > JSON_MAX_BYTES)
		return error_set(err, -EFBIG, "%s has more than %d MiB, and is no output of dieselctl jobs",
				 path, JSON_MAX_BYTES >> 20);
	root = json_loadb(text, n, 0, &wrong);
	if (!root)
		return error_set(err, -EINVAL, "%s: line %d: %s", path, wrong.line, wrong.text);
	*ret_root = root;
	return 0;
}

int served_check(const json_t *root, const char *path, struct error *err)
{
	return json_array_size(json_object_get(root, "jobs"))
		   ? 0
		   : error_set(err, -EINVAL, "%s: dieseld served no job", path);
}
