/* SPDX-License-Identifier: Apache-2.0 */
#include "truth.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/array.h"
#include "lib/cleanup.h"
#include "lib/error.h"
#include "lib/launch.h"
#include "lib/log.h"
#include "lib/proc.h"
#include "lib/units.h"

/* Runs a job with the clock of share/diesel/truth loaded in front of it. */

/* A temporary folder for the clock's output, and the path of its code. */
struct truth_shim {
	char code[4096];   /* folder of sitecustomize.py */
	char folder[4096]; /* removed by truth_shim_close() */
};

#define OUT_BYTES_MAX   (1 << 16)
#define FILES_BYTES_MAX (1 << 30)

/* Finds the code relative to the program: BIN/../share/diesel/truth, installed or in the build folder. */
static int find_code(char *folder, size_t size, struct error *err)
{
	char program[4000], file[4200];
	ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);

	if (n < 0)
		return error_errno(err, -errno, "cannot find the path of this program");
	program[n] = '\0';
	*strrchr(program, '/') = '\0';
	snprintf(folder, size, "%s/../share/diesel/truth", program);
	snprintf(file, sizeof(file), "%s/sitecustomize.py", folder);
	if (access(file, R_OK))
		return error_errno(err, -errno, "cannot read %s, which is installed with diesel-analyze",
				   file);
	return 0;
}

/* Makes the folder and finds the code. Returns 0 or -errno. */
static int truth_shim_open(struct truth_shim *shim, struct error *err)
{
	const char *temporary = getenv("TMPDIR");
	int r;

	*shim = (struct truth_shim){0};
	r = find_code(shim->code, sizeof(shim->code), err);
	if (r < 0)
		return r;
	snprintf(shim->folder, sizeof(shim->folder), "%.4000s/diesel-truth-XXXXXX",
		 temporary && *temporary ? temporary : "/tmp");
	if (mkdtemp(shim->folder))
		return 0;
	r = error_errno(err, -errno, "cannot make a folder %s", shim->folder);
	shim->folder[0] = '\0';
	return r;
}

static void path_of(const struct truth_shim *shim, const char *name, char *path, size_t size)
{
	snprintf(path, size, "%s/%s", shim->folder, name);
}

static void remove_outputs(const struct truth_shim *shim)
{
	char path[4200];

	path_of(shim, "clock", path, sizeof(path));
	unlink(path);
	path_of(shim, "files", path, sizeof(path));
	unlink(path);
}

static void truth_shim_close(struct truth_shim *shim)
{
	if (!shim->folder[0])
		return;
	remove_outputs(shim);
	rmdir(shim->folder);
	shim->folder[0] = '\0';
}

/* Adds variables to the command's environment, which otherwise equals ours. */
static void set_environment(const struct truth_shim *shim, const char *mode, uint64_t n_steps)
{
	const char *before = getenv("PYTHONPATH");
	char text[8400];

	setenv("DIESEL_TRUTH_MODE", mode, 1);
	path_of(shim, "clock", text, sizeof(text));
	setenv("DIESEL_TRUTH_OUT", text, 1);
	path_of(shim, "files", text, sizeof(text));
	setenv("DIESEL_TRUTH_FILES", text, 1);
	snprintf(text, sizeof(text), "%" PRIu64, n_steps);
	setenv("DIESEL_TRUTH_STEPS", text, 1);
	snprintf(text, sizeof(text), "%s%s%s", shim->code, before && *before ? ":" : "",
		 before ? before : "");
	setenv("PYTHONPATH", text, 1);
}

static void restore_environment(const char *python_path)
{
	unsetenv("DIESEL_TRUTH_MODE");
	unsetenv("DIESEL_TRUTH_OUT");
	unsetenv("DIESEL_TRUTH_FILES");
	unsetenv("DIESEL_TRUTH_STEPS");
	if (python_path)
		setenv("PYTHONPATH", python_path, 1);
	else
		unsetenv("PYTHONPATH");
}

/* Like system(3): while the command runs, only the command handles the terminal's signals. */
static int run_command(char **command, int *ret_status, struct error *err)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
	struct launch launch;
	int r = launch_prepare(command, NULL, &launch, err);

	if (r < 0)
		return r;
	sigaction(SIGINT, &ignore, &interrupt);
	sigaction(SIGQUIT, &ignore, &quit);
	r = launch_go(&launch, err);
	if (r == 0)
		while (waitpid(launch.pid, ret_status, 0) < 0 && errno == EINTR)
			;
	sigaction(SIGINT, &interrupt, NULL);
	sigaction(SIGQUIT, &quit, NULL);
	return r;
}

/*
 * Results. Times are seconds, as the clock in the job writes them.
 */

#define TRUTH_STEPS_MIN 5

enum truth_kind {
	TRUTH_CACHED,
	TRUTH_COLD,
	TRUTH_SYNTHETIC,
	TRUTH_KINDS,
};

/* One run: a line of the clock. With several processes (ranks), the line of the slowest represents all. */
struct truth_clock {
	uint64_t n_steps;
	double seconds;   /* time from the first request for a batch to the end of the last step */
	double wait;      /* part of `seconds` spent in requests for batches */
	double compiling; /* part of `seconds` spent in torch.compile; NAN: not reported by PyTorch */
	uint64_t n_processes;
};

struct truth_round {
	struct truth_clock runs[TRUTH_KINDS];
};

struct truth_result {
	double seconds[TRUTH_KINDS];     /* time without compiling, for as many steps as the shortest run had;
					    mean over the rounds */
	double compiling_s[TRUTH_KINDS]; /* of each kind of run; NAN: unknown, and included in seconds */
	uint64_t n_steps;
	/* Shares of the cold run; they sum to 1, and noise can make one negative. Without files the cold
	 * run is a cached one, so fetching cannot be separated from preparing: both are NAN, and the other
	 * shares are means over both runs. */
	double prep, fetch, device;
	double compiling; /* NAN: not known, and included in device */
	double wait;      /* 1 - device - compiling */
	double spread;    /* largest difference of a share between rounds; 0 with one round */
};

/* "steps N seconds S wait S loaders N mode M truncated 0|1 compiling S|nan pid P" */
static int parse_line(const char *line, struct truth_clock *ret_clock)
{
	struct truth_clock clock = {.n_processes = 1};

	if (sscanf(line,
		   "steps %" SCNu64
		   " seconds %lf wait %lf loaders %*u mode %*15s truncated %*d compiling %lf",
		   &clock.n_steps, &clock.seconds, &clock.wait, &clock.compiling) != 4)
		return -EBADMSG;
	if (!isfinite(clock.seconds) || !isfinite(clock.wait) || clock.seconds < 0 || clock.wait < 0 ||
	    clock.compiling < 0 || clock.compiling > clock.seconds)
		return -EBADMSG;
	*ret_clock = clock;
	return 0;
}

/* Parses all lines of a clock's file. -EBADMSG: not in the clock's format; -ENODATA: no process had a
 * DataLoader. */
static int clock_parse(const char *text, struct truth_clock *ret_clock)
{
	struct truth_clock slowest = {0};
	uint64_t n_processes = 0;

	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		struct truth_clock clock;
		int r = parse_line(line, &clock);

		if (r < 0)
			return r;
		if (!n_processes++ || clock.seconds > slowest.seconds)
			slowest = clock;
	}
	if (!n_processes)
		return -ENODATA;
	slowest.n_processes = n_processes;
	*ret_clock = slowest;
	return 0;
}

static int read_clock(const struct truth_shim *shim, struct truth_clock *ret_clock, struct error *err)
{
	_cleanup_(freep) char *text = NULL;
	char path[4200];
	int r;

	path_of(shim, "clock", path, sizeof(path));
	r = proc_read_file(path, OUT_BYTES_MAX, &text, NULL);
	if (r == -ENOENT)
		return error_set(err, -ENODATA,
				 "no step was measured: the command does not use PyTorch's DataLoader, or "
				 "its Python ignores PYTHONPATH (options -E, -I, -S)");
	if (r == 0)
		r = clock_parse(text, ret_clock);
	if (r < 0)
		return error_errno(err, r, "cannot read %s, to which the job's clock wrote its measurements",
				   path);
	if (ret_clock->n_steps < TRUTH_STEPS_MIN)
		return error_set(err, -ENODATA,
				 "only %" PRIu64
				 " steps were measured, which is too few; at least %d are needed",
				 ret_clock->n_steps, TRUTH_STEPS_MIN);
	return 0;
}

static int read_files(const struct truth_shim *shim, char **ret_files, struct error *err)
{
	char path[4200];
	int r;

	path_of(shim, "files", path, sizeof(path));
	r = proc_read_file(path, FILES_BYTES_MAX, ret_files, NULL);
	if (r < 0)
		return error_errno(err, r, "cannot read %s, the list of files that the job reads", path);
	return 0;
}

static int failed(int status, struct error *err)
{
	if (WIFSIGNALED(status))
		return error_set(err, -ECANCELED, "signal %d ended the command", WTERMSIG(status));
	return error_set(err, -ECANCELED, "the command failed with exit status %d", WEXITSTATUS(status));
}

/*
 * Runs the command to its end. mode: "learn", "clock" or "synthetic". ret_files: with "learn" the files it
 * read, one path per line (caller frees); else NULL. -ECANCELED: the command failed or a signal ended it;
 * -ENODATA: no DataLoader, or too few steps; or another errno. err says which.
 */
static int truth_shim_run(const struct truth_shim *shim, char **command, const char *mode, uint64_t n_steps,
			  struct truth_clock *ret_clock, char **ret_files, struct error *err)
{
	_cleanup_(freep) char *python_path = NULL;
	int status = 0, r;

	if (getenv("PYTHONPATH")) {
		python_path = strdup(getenv("PYTHONPATH"));
		if (!python_path)
			return error_errno(err, -ENOMEM, "cannot run %s", command[0]);
	}
	remove_outputs(shim);
	set_environment(shim, mode, n_steps);
	r = run_command(command, &status, err);
	restore_environment(python_path);
	if (r < 0)
		return r;
	if (status)
		return failed(status, err);
	r = read_clock(shim, ret_clock, err);
	return r == 0 && ret_files ? read_files(shim, ret_files, err) : r;
}

static uint64_t fewest_steps(const struct truth_round *rounds, size_t n)
{
	uint64_t fewest = rounds[0].runs[0].n_steps;

	for (size_t i = 0; i < n; i++)
		for (size_t kind = 0; kind < TRUTH_KINDS; kind++)
			if (rounds[i].runs[kind].n_steps < fewest)
				fewest = rounds[i].runs[kind].n_steps;
	return fewest;
}

static double known(double seconds)
{
	return isnan(seconds) ? 0 : seconds;
}

static void take_shares(struct truth_result *result, bool has_files)
{
	double cold = result->seconds[TRUTH_COLD], compiling = result->compiling_s[TRUTH_COLD], whole;

	if (!has_files) {
		cold = (cold + result->seconds[TRUTH_CACHED]) / 2;
		compiling = (compiling + result->compiling_s[TRUTH_CACHED]) / 2;
		result->fetch = result->prep = NAN;
	}
	whole = cold + known(compiling);
	if (whole <= 0)
		return;
	result->compiling = compiling / whole;
	result->device = result->seconds[TRUTH_SYNTHETIC] / whole;
	result->wait = 1 - result->device - known(result->compiling);
	if (!has_files)
		return;
	result->prep = (result->seconds[TRUTH_CACHED] - result->seconds[TRUTH_SYNTHETIC]) / whole;
	result->fetch = (cold - result->seconds[TRUTH_CACHED]) / whole;
}

static void result_of(const struct truth_round *rounds, size_t n, uint64_t n_steps, bool has_files,
		      struct truth_result *ret_result)
{
	struct truth_result result = {.n_steps = n_steps};

	for (size_t i = 0; i < n; i++)
		for (size_t kind = 0; kind < TRUTH_KINDS; kind++) {
			const struct truth_clock *run = &rounds[i].runs[kind];

			if (run->n_steps)
				result.seconds[kind] += (run->seconds - known(run->compiling)) *
							(double)n_steps / (double)run->n_steps / (double)n;
			result.compiling_s[kind] += run->compiling / (double)n;
		}
	take_shares(&result, has_files);
	*ret_result = result;
}

static double spread_of(const struct truth_result *results, size_t n)
{
	double spread = 0;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < i; k++) {
			spread = fmax(spread, fabs(results[i].prep - results[k].prep));
			spread = fmax(spread, fabs(results[i].fetch - results[k].fetch));
			spread = fmax(spread, fabs(results[i].device - results[k].device));
		}
	return spread;
}

/* Computes the result of n >= 1 rounds, each run with TRUTH_STEPS_MIN steps or more. has_files: there were
 * files to evict or cache. */
static void result_compute(const struct truth_round *rounds, size_t n, bool has_files,
			   struct truth_result *ret_result)
{
	struct truth_result single[TRUTH_ROUNDS_MAX], result;
	uint64_t n_steps = fewest_steps(rounds, n);

	result_of(rounds, n, n_steps, has_files, &result);
	for (size_t i = 0; i < n; i++)
		result_of(&rounds[i], 1, n_steps, has_files, &single[i]);
	result.spread = spread_of(single, n);
	*ret_result = result;
}

/*
 * The files that a job reads, and whether they are in the page cache. Needs no privilege: posix_fadvise drops
 * clean pages that no process has mapped or locked, and mincore counts the remaining pages. mincore works
 * only for files that we own or may write.
 */

#define READ_BYTES (1 << 20)

static void ftsp(FTS **tree)
{
	if (*tree)
		fts_close(*tree);
}

/* The files that a job reads. */
struct truth_files {
	char **paths; /* sorted, without duplicates */
	size_t n, n_allocated;
};

struct truth_residence {
	uint64_t bytes;        /* bytes of the files whose pages could be counted */
	uint64_t cached_bytes; /* part of `bytes` that is in the page cache */
	uint64_t n_unreadable; /* files that could not be opened */
	uint64_t n_unknown;    /* files whose pages mincore does not report */
};

static int path_add(struct truth_files *files, const char *path, size_t length)
{
	if (array_reserve(files->paths, files->n, files->n_allocated) < 0)
		return -ENOMEM;
	files->paths[files->n] = strndup(path, length);
	if (!files->paths[files->n])
		return -ENOMEM;
	files->n++;
	return 0;
}

static void files_free(struct truth_files *files)
{
	for (size_t i = 0; i < files->n; i++)
		free(files->paths[i]);
	free(files->paths);
	*files = (struct truth_files){0};
}

static int path_compare(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Sorts the files, and drops duplicates. */
static void files_tidy(struct truth_files *files)
{
	size_t kept = 0;

	if (files->n)
		qsort(files->paths, files->n, sizeof(*files->paths), path_compare);
	for (size_t i = 0; i < files->n; i++) {
		if (kept && !strcmp(files->paths[kept - 1], files->paths[i]))
			free(files->paths[i]);
		else
			files->paths[kept++] = files->paths[i];
	}
	files->n = kept;
}

/* Lists the regular files below folder. Links are not followed. */
static int files_below(const char *folder, struct truth_files *files, struct error *err)
{
	char *const roots[] = {(char *)(uintptr_t)folder, NULL}; /* fts does not change the strings */
	_cleanup_(ftsp) FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *entry;

	if (!tree)
		return error_errno(err, -errno, "cannot read %s", folder);
	while ((entry = fts_read(tree))) {
		if (entry->fts_level == FTS_ROOTLEVEL && entry->fts_errno)
			return error_errno(err, -entry->fts_errno, "cannot read %s", folder);
		if (entry->fts_info == FTS_F && path_add(files, entry->fts_path, entry->fts_pathlen))
			return error_errno(err, -ENOMEM, "cannot list the files below %s", folder);
	}
	files_tidy(files);
	return 0;
}

/* Parses one path per line; leaves out paths that are not, or no longer, regular files. */
static int files_parse(const char *text, struct truth_files *files)
{
	for (const char *line = text; *line;) {
		size_t length = strcspn(line, "\n");
		struct stat status;

		if (path_add(files, line, length))
			return -ENOMEM;
		if (stat(files->paths[files->n - 1], &status) || !S_ISREG(status.st_mode))
			free(files->paths[--files->n]);
		line += length;
		line += *line == '\n';
	}
	files_tidy(files);
	return 0;
}

/* Opens a regular file, and stores its size. Returns a descriptor; < 0: not a regular file, or not
 * readable. */
static int open_regular(const char *path, uint64_t *ret_bytes)
{
	_cleanup_(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat status;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &status))
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL;
	*ret_bytes = (uint64_t)status.st_size;
	return steal_fd(&fd);
}

/* Writes dirty pages back and drops the files from the page cache, as far as the kernel permits. */
static void files_evict(const struct truth_files *files)
{
	for (size_t i = 0; i < files->n; i++) {
		uint64_t bytes;
		_cleanup_(closep) int fd = open_regular(files->paths[i], &bytes);

		if (fd < 0)
			continue;
		fdatasync(fd); /* the kernel does not drop dirty pages */
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	}
}

/* Reads all files into the page cache. */
static void files_warm(const struct truth_files *files)
{
	_cleanup_(freep) char *buffer = malloc(READ_BYTES);

	for (size_t i = 0; buffer && i < files->n; i++) {
		uint64_t bytes;
		_cleanup_(closep) int fd = open_regular(files->paths[i], &bytes);

		while (fd >= 0 && read(fd, buffer, READ_BYTES) > 0)
			;
	}
}

/* Returns the bytes of the file in the page cache. -errno: the kernel does not report them. */
static int64_t cached_bytes(int fd, uint64_t bytes)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t n_pages = (bytes + page_bytes - 1) / page_bytes, n_cached = 0;
	_cleanup_(freep) unsigned char *pages = malloc(n_pages);
	void *map;
	int r = 0;

	if (!pages)
		return -ENOMEM;
	map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -errno;
	if (mincore(map, bytes, pages))
		r = -errno;
	munmap(map, bytes);
	for (uint64_t i = 0; r == 0 && i < n_pages; i++)
		n_cached += pages[i] & 1;
	return r < 0 ? r : (int64_t)(n_cached * page_bytes < bytes ? n_cached * page_bytes : bytes);
}

/* Returns true if mincore() is reliable for this file. For files of other users it reports that all pages
 * are cached. */
static bool tells_residence(int fd)
{
	struct stat status;

	return geteuid() == 0 || (!fstat(fd, &status) && status.st_uid == geteuid()) ||
	       !faccessat(fd, "", W_OK, AT_EMPTY_PATH | AT_EACCESS);
}

static void files_residence(const struct truth_files *files, struct truth_residence *ret_residence)
{
	struct truth_residence residence = {0};

	for (size_t i = 0; i < files->n; i++) {
		uint64_t bytes;
		_cleanup_(closep) int fd = open_regular(files->paths[i], &bytes);
		int64_t cached;

		if (fd < 0) {
			residence.n_unreadable++;
			continue;
		}
		if (!bytes)
			continue;
		cached = tells_residence(fd) ? cached_bytes(fd, bytes) : -EPERM;
		if (cached < 0) {
			residence.n_unknown++;
			continue;
		}
		residence.bytes += bytes;
		residence.cached_bytes += (uint64_t)cached;
	}
	*ret_residence = residence;
}

/* The report of `truth`, as text and as JSON ("diesel.truth/1"). */

#define TRUTH_NOTES_MAX 8

struct truth_report {
	const struct truth_round *rounds;
	size_t n_rounds;
	struct truth_result result;
	size_t n_files;
	struct truth_residence warm, cold; /* before the cached and the cold run; the worst of all rounds */
	char notes[TRUTH_NOTES_MAX][200];  /* factors that could not be controlled */
	size_t n_notes;
};

static double ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : NAN;
}

static void print_run(FILE *out, const char *name, const char *what, double seconds)
{
	fprintf(out, "  T_%-10s %9.3f s   %s\n", name, seconds, what);
}

static void print_headline(FILE *out, const struct truth_report *report)
{
	const struct truth_result *result = &report->result;
	const char *means = report->n_rounds > 1 ? ", means" : "";
	char compiling[32] = "";

	if (result->compiling > 0)
		snprintf(compiling, sizeof(compiling), ", %.1f %% compiling", 100 * result->compiling);
	if (report->n_files)
		fprintf(
		    out,
		    "%.1f %% of the cold run is fetching, %.1f %% preparing, %.1f %% device time%s (%" PRIu64
		    " steps%s)\n\n",
		    100 * result->fetch, 100 * result->prep, 100 * result->device, compiling, result->n_steps,
		    means);
	else
		fprintf(out,
			"%.1f %% of the run is loading, %.1f %% device time%s (%" PRIu64
			" steps%s); without files, fetching and preparing cannot be told apart\n\n",
			100 * fmax(0, result->wait), 100 * result->device, compiling, result->n_steps, means);
}

/* Prints the time of compiling, which does not depend on the number of steps, so the other times leave it
 * out. */
static void print_compiling(FILE *out, const struct truth_result *result)
{
	if (isnan(result->compiling))
		fprintf(
		    out,
		    "\n  torch.compile's time is unknown (PyTorch before 2.4), so all three include it\n");
	else if (result->compiling > 0)
		fprintf(out,
			"\n  These times leave out compiling, which happens once: %.3f, %.3f and %.3f s. "
			"T_cold below includes it\n",
			result->compiling_s[TRUTH_SYNTHETIC], result->compiling_s[TRUTH_CACHED],
			result->compiling_s[TRUTH_COLD]);
}

static void print_text(FILE *out, const struct truth_report *report)
{
	const struct truth_result *result = &report->result;
	char bytes[16];

	print_headline(out, report);
	print_run(out, "synthetic", "batches from memory, no loading", result->seconds[TRUTH_SYNTHETIC]);
	print_run(out, "cached", report->n_files ? "files in the page cache" : "page cache unchanged",
		  result->seconds[TRUTH_CACHED]);
	print_run(out, "cold", report->n_files ? "files on storage" : "page cache unchanged, second run",
		  result->seconds[TRUTH_COLD]);
	print_compiling(out, result);
	if (report->n_files) {
		fprintf(out, "\n  prep  = (T_cached - T_synthetic) / T_cold = %.3f\n", result->prep);
		fprintf(out, "  fetch = (T_cold - T_cached) / T_cold      = %.3f\n", result->fetch);
	}
	if (report->n_rounds > 1)
		fprintf(out, "  the shares of the %zu rounds differ by up to %.1f percentage points\n",
			report->n_rounds, 100 * result->spread);
	if (report->n_files)
		fprintf(
		    out,
		    "\n  %zu files, %s; cached: %.0f %% before the cached run, %.0f %% before the cold one\n",
		    report->n_files, units_format_bytes(bytes, sizeof(bytes), report->cold.bytes),
		    100 * ratio(report->warm.cached_bytes, report->warm.bytes),
		    100 * ratio(report->cold.cached_bytes, report->cold.bytes));
	for (size_t i = 0; i < report->n_notes; i++)
		fprintf(out, "  not controlled: %s\n", report->notes[i]);
}

/* Prints a share or ratio; null: not known. */
static void print_number(FILE *out, const char *name, double value, const char *after)
{
	if (isfinite(value))
		fprintf(out, "\"%s\": %.6f%s", name, value, after);
	else
		fprintf(out, "\"%s\": null%s", name, after);
}

static const char *truth_kind_name(enum truth_kind kind)
{
	static const char *const names[] = {"cached", "cold", "synthetic"};

	return names[kind];
}

/* Notes are our own words, without quotes or backslashes. */
static void print_json(FILE *out, const struct truth_report *report)
{
	const struct truth_result *result = &report->result;

	fprintf(out, "{\n  \"schema\": \"diesel.truth/1\",\n  \"steps\": %" PRIu64 ",\n", result->n_steps);
	fprintf(out, "  \"seconds\": {\"synthetic\": %.6f, \"cached\": %.6f, \"cold\": %.6f},\n",
		result->seconds[TRUTH_SYNTHETIC], result->seconds[TRUTH_CACHED], result->seconds[TRUTH_COLD]);
	fprintf(out, "  \"shares\": {");
	print_number(out, "device", result->device, ", ");
	print_number(out, "compiling", result->compiling, ", ");
	print_number(out, "fetch_stall", result->fetch, ", ");
	print_number(out, "prep_stall", result->prep, ", ");
	print_number(out, "wait", result->wait, "},\n");
	if (report->n_rounds > 1)
		fprintf(out, "  \"spread\": %.6f,\n", result->spread);
	fprintf(out, "  \"files\": %zu,\n  \"bytes\": %" PRIu64 ",\n  ", report->n_files, report->cold.bytes);
	print_number(out, "cached_before_cached", ratio(report->warm.cached_bytes, report->warm.bytes),
		     ",\n  ");
	print_number(out, "cached_before_cold", ratio(report->cold.cached_bytes, report->cold.bytes),
		     ",\n  \"runs\": [");
	for (size_t i = 0; i < report->n_rounds; i++)
		for (size_t kind = 0; kind < TRUTH_KINDS; kind++) {
			const struct truth_clock *run = &report->rounds[i].runs[kind];

			fprintf(out,
				"%s\n    {\"kind\": \"%s\", \"steps\": %" PRIu64
				", \"seconds\": %.6f, \"wait_s\": %.6f, ",
				i || kind ? "," : "", truth_kind_name((enum truth_kind)kind), run->n_steps,
				run->seconds, run->wait);
			print_number(out, "compiling_s", run->compiling, ", ");
			fprintf(out, "\"processes\": %" PRIu64 "}", run->n_processes);
		}
	fprintf(out, "\n  ],\n  \"not_controlled\": [");
	for (size_t i = 0; i < report->n_notes; i++)
		fprintf(out, "%s\n    \"%s\"", i ? "," : "", report->notes[i]);
	fprintf(out, "%s]\n}\n", report->n_notes ? "\n  " : "");
}

static void truth_print(FILE *out, const struct truth_report *report, bool json)
{
	if (json)
		print_json(out, report);
	else
		print_text(out, report);
}

#define STAYED_RATIO     0.02 /* maximum share of the files in the page cache in a cold run */
#define MISSING_RATIO    0.02 /* maximum share of the files missing in a cached run */
#define WARM_MEMORY_PART 2    /* files are read in advance if below 1/2 of available memory */

struct truth {
	const struct truth_options *options;
	struct truth_shim shim;
	struct truth_files files;
	struct truth_round rounds[TRUTH_ROUNDS_MAX];
	struct truth_report report;
	uint64_t n_runs, n_done;
};

__attribute__((format(printf, 2, 3))) static void add_note(struct truth_report *report, const char *format,
							   ...)
{
	char text[sizeof(report->notes[0])];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	for (size_t i = 0; i < report->n_notes; i++)
		if (!strcmp(report->notes[i], text))
			return;
	if (report->n_notes < TRUTH_NOTES_MAX)
		memcpy(report->notes[report->n_notes++], text, sizeof(text));
}

static int run(struct truth *truth, const char *what, const char *mode, struct truth_clock *ret_clock,
	       char **ret_files, struct error *err)
{
	int r;

	log_info("run %" PRIu64 " of %" PRIu64 ": %s", ++truth->n_done, truth->n_runs, what);
	r = truth_shim_run(&truth->shim, truth->options->command, mode, truth->options->n_steps, ret_clock,
			   ret_files, err);
	if (r < 0)
		error_prefix(err, "run %" PRIu64 " (%s)", truth->n_done, what);
	return r;
}

/* Finds the files to make cold or warm: the files below --data, or the files that the job read in this
 * run. */
static int learn(struct truth *truth, struct error *err)
{
	_cleanup_(freep) char *text = NULL;
	struct truth_clock clock;
	int r = run(truth, "fills the page cache and shows what the job reads", "learn", &clock, &text, err);

	if (r < 0)
		return r;
	if (truth->options->data)
		r = files_below(truth->options->data, &truth->files, err);
	else if ((r = files_parse(text, &truth->files)))
		r = error_errno(err, r, "cannot list the files of the job");
	if (r < 0)
		return r;
	if (!truth->files.n)
		add_note(&truth->report,
			 truth->options->data
			     ? "the page cache, because the folder of --data contains no files"
			     : "the page cache, because the job was seen to read no files (if it does, give "
			       "their folder with --data)");
	truth->report.n_files = truth->files.n;
	return 0;
}

/* Warms the files. Reads a named folder completely, because another run may read other files in it. */
static void warm(struct truth *truth)
{
	struct truth_report *report = &truth->report;
	struct truth_residence residence;
	struct proc_meminfo memory;

	files_residence(&truth->files, &residence);
	if (residence.cached_bytes < residence.bytes && !proc_meminfo_read("/proc", &memory) &&
	    residence.bytes < memory.available_bytes / WARM_MEMORY_PART) {
		files_warm(&truth->files);
		files_residence(&truth->files, &residence);
	}
	if ((double)(residence.bytes - residence.cached_bytes) > MISSING_RATIO * (double)residence.bytes)
		add_note(report, "not all of the files stay in memory, so T_cached includes reads from "
				 "storage, and fetch is a lower bound");
	report->warm = residence;
}

static void evict(struct truth *truth)
{
	struct truth_report *report = &truth->report;
	struct truth_residence residence;

	files_evict(&truth->files);
	files_residence(&truth->files, &residence);
	if ((double)residence.cached_bytes > STAYED_RATIO * (double)residence.bytes)
		add_note(report,
			 "%.0f %% of the files' bytes stayed in the page cache (mapped, locked, or on a file "
			 "system in memory), so fetch is a lower bound",
			 100 * (double)residence.cached_bytes / (double)residence.bytes);
	if (residence.n_unreadable)
		add_note(report,
			 "%" PRIu64
			 " files could not be opened, so they may be in the page cache in the cold run",
			 residence.n_unreadable);
	if (residence.n_unknown)
		add_note(report,
			 "%" PRIu64 " files of other users, because the kernel does not report whether they "
			 "are in the page cache",
			 residence.n_unknown);
	report->cold = residence;
}

static int run_round(struct truth *truth, struct truth_round *round, struct error *err)
{
	int r;

	warm(truth);
	r = run(truth, "cached", "clock", &round->runs[TRUTH_CACHED], NULL, err);
	if (r < 0)
		return r;
	evict(truth);
	r = run(truth, "cold", "clock", &round->runs[TRUTH_COLD], NULL, err);
	if (r < 0)
		return r;
	return run(truth, "synthetic: batches from memory", "synthetic", &round->runs[TRUTH_SYNTHETIC], NULL,
		   err);
}

static int run_all(struct truth *truth, struct error *err)
{
	uint64_t n_rounds = truth->options->n_rounds;
	int r = truth_shim_open(&truth->shim, err);

	truth->n_runs = 1 + TRUTH_KINDS * n_rounds;
	if (r == 0)
		r = learn(truth, err);
	for (uint64_t i = 0; r == 0 && i < n_rounds; i++)
		r = run_round(truth, &truth->rounds[i], err);
	truth_shim_close(&truth->shim);
	files_free(&truth->files);
	return r;
}

/* Redirects the job's standard output to standard error, or drops it. Returns a descriptor of the original
 * standard output. */
static int divert_output(bool verbose)
{
	int output = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	_cleanup_(closep) int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (output < 0 || dup2(verbose || null < 0 ? STDERR_FILENO : null, STDOUT_FILENO) < 0)
		return -errno;
	return output;
}

int truth_run(const struct truth_options *options, struct error *err)
{
	struct truth truth = {.options = options};
	int output, r;

	output = divert_output(options->verbose);
	if (output < 0)
		return error_errno(err, output, "cannot redirect the command's standard output");
	r = run_all(&truth, err);
	dup2(output, STDOUT_FILENO);
	close(output);
	if (r < 0)
		return r;
	truth.report.rounds = truth.rounds;
	truth.report.n_rounds = options->n_rounds;
	result_compute(truth.rounds, options->n_rounds, truth.report.n_files > 0, &truth.report.result);
	truth_print(stdout, &truth.report, options->json);
	return 0;
}
