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
#include "lib/text.h"
#include "lib/units.h"
#include "output.h"

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

/* Opens such a file. *ret_root: to be freed with json_decref(). -ENOENT and the like, -EINVAL. */
static int served_open(const char *path, json_t **ret_root, struct error *err)
{
	__attribute__((cleanup(json_freep))) json_t *root = NULL;
	int r = served_load(path, &root, err);

	if (r < 0)
		return r;
	if (strcmp(json_string_of(root, "schema"), SERVED_SCHEMA) != 0)
		return error_set(err, -EINVAL,
				 "%s: expected a recording or the output of dieselctl jobs --json", path);
	r = served_check(root, path, err);
	if (r < 0)
		return r;
	*ret_root = steal_pointer(root);
	return 0;
}

/* ---- what-if ----------------------------------------------------------------------------------------- */

/* An answer for one job. */
struct served_answer {
	struct served served;
	const char *unclear; /* NULL: the speed is known */
	double speed;
	enum model_bound bound;
};

static struct served_change change_of(const struct served *served, const struct what_if_question *question)
{
	struct served_change change = {.cores = question->n_cores,
				       .cached_ratio = question->cache_ratio,
				       .storage_factor = 1,
				       .device_factor = 1};

	if (isnan(change.cached_ratio) && served_knows_memory(served))
		change.cached_ratio = fmin(1, served->cached_bytes / served->dataset_bytes);
	if (!isnan(question->storage_factor))
		change.storage_factor = question->storage_factor;
	if (!isnan(question->storage_bytes_per_s))
		change.storage_factor = question->storage_bytes_per_s / served->storage_bytes_per_s;
	if (!isnan(question->device_factor))
		change.device_factor = question->device_factor;
	return change;
}

static struct served_answer answer_make(const json_t *job, const struct what_if_question *question)
{
	const struct served served = served_read(job);
	struct served_answer answer = {
	    .served = served, .unclear = served_why_unclear(&served), .speed = NAN};
	bool reads = !isnan(question->cache_ratio) || !isnan(question->storage_factor) ||
		     !isnan(question->storage_bytes_per_s);
	struct served_change change = change_of(&answer.served, question);

	if (answer.unclear)
		return answer;
	if (reads && !served_knows_memory(&answer.served))
		answer.unclear = "it read nothing from storage, so how slow storage is was not seen";
	else
		answer.speed = served_speed(&answer.served, &change, &answer.bound);
	return answer;
}

static const char *bound_name(enum model_bound bound)
{
	static const char *const names[] = {[MODEL_DEVICE_BOUND] = "device-bound",
					    [MODEL_FETCH_BOUND] = "fetch-bound",
					    [MODEL_PREP_BOUND] = "prep-bound"};

	return names[bound];
}

struct served_report {
	const char *path;
	const json_t *jobs;
	const struct what_if_question *question;
};

static int write_text(FILE *stream, const void *user)
{
	const struct served_report *report = user;
	const json_t *job;
	size_t i;

	json_array_foreach(report->jobs, i, job)
	{
		const struct served_answer answer = answer_make(job, report->question);
		char name[200];

		text_printable(name, sizeof(name), answer.served.name, strlen(answer.served.name));
		if (answer.unclear)
			fprintf(stream, "%s: unclear: %s\n", name, answer.unclear);
		else
			fprintf(stream, "%s: %.4g samples/s instead of %.4g; the job is then %s\n", name,
				answer.speed, answer.served.rate, bound_name(answer.bound));
	}
	return ferror(stream) ? (errno ? -errno : -EIO) : 0;
}

static json_t *known(double value)
{
	return isfinite(value) ? json_real(value) : json_null();
}

static int write_json(FILE *stream, const void *user)
{
	const struct served_report *report = user;
	__attribute__((cleanup(json_freep))) json_t *list = json_array();
	const json_t *job;
	_cleanup_(freep) char *text = NULL;
	size_t i;

	json_array_foreach(report->jobs, i, job)
	{
		const struct served_answer answer = answer_make(job, report->question);

		json_array_append_new(
		    list, json_pack("{s:s%, s:o, s:o, s:o, s:o}", "name", answer.served.name,
				    strlen(answer.served.name), "samples_per_s", known(answer.speed),
				    "samples_per_s_now", known(answer.served.rate), "bound_by",
				    answer.unclear ? json_null() : json_string(bound_name(answer.bound)),
				    "unclear", answer.unclear ? json_string(answer.unclear) : json_null()));
	}
	__attribute__((cleanup(json_freep))) json_t *root =
	    json_pack("{s:s, s:O}", "schema", "diesel.what-if-served/1", "jobs", list);

	text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
	if (!text)
		return -ENOMEM;
	text_put_json(stream, text);
	return ferror(stream) ? (errno ? -errno : -EIO) : 0;
}

static bool has_answer(const struct served_report *report)
{
	const json_t *job;
	size_t i;

	json_array_foreach(report->jobs, i, job)
	{
		if (!answer_make(job, report->question).unclear)
			return true;
	}
	return false;
}

int served_what_if(const char *path, const struct what_if_question *question, bool json, struct error *err)
{
	__attribute__((cleanup(json_freep))) json_t *root = NULL;
	struct served_report report = {.path = path, .question = question};
	int r;

	if (!isnan(question->n_workers) || !isnan(question->sample_factor) || !isnan(question->n_nodes) ||
	    question->native)
		return error_set(err, -EINVAL,
				 "%s: of jobs that dieseld serves, only --cores, --cache, --storage-mbps, "
				 "--storage-speed and --device-speed can be predicted",
				 path);
	r = served_open(path, &root, err);
	if (r < 0)
		return r;
	report.jobs = json_object_get(root, "jobs");
	r = output_write(NULL, stdout, json ? write_json : write_text, &report, err);
	return r < 0 || has_answer(&report)
		   ? r
		   : error_set(err, -ENODATA, "%s: no job's speed can be predicted", path);
}
