/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a job that writes the lines of a clock by itself, and reads the report. */
#include "tests/support.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "analyzer/truth/truth.h"
#include "lib/error.h"

#define TMPFS_MAGIC 0x01021994
#define FILE_BYTES  (1 << 20)

#define LINE(steps, seconds) COMPILING_LINE(steps, seconds, "0.000000")
#define COMPILING_LINE(steps, seconds, compiling)                                                            \
	"steps " steps " seconds " seconds " wait 0.5 loaders 1 mode clock truncated 1 compiling " compiling \
	" pid 7\n"
#define RUNS 7 /* learning, and two rounds of cached, cold and synthetic */

static const char *folder;
static char read_file[128]; /* path of a file that the job reads */

static char *path_of(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return path;
}

static void make_file(const char *name)
{
	static const char bytes[4096] = "x";
	int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	for (size_t i = 0; i < FILE_BYTES / sizeof(bytes); i++)
		assert_int_equal(write(fd, bytes, sizeof(bytes)), sizeof(bytes));
	close(fd);
}

/* The job copies the lines of its n-th run to the place where its clock would write them. In its second,
 * cached run it does what the file "cached" says. */
static int set_up(void **state)
{
	if (make_folder_below("/var/tmp", state) < 0)
		return -1;
	folder = *state;
	make_folders(folder, "data/class");
	make_file("data/b");
	make_file("data/class/a");
	snprintf(read_file, sizeof(read_file), "%s", path_of("data/b"));
	assert_int_equal(symlink("b", path_of("data/link")), 0);
	write_text(folder, "job",
		   "cd \"$1\"; echo >> runs; n=$(wc -l < runs)\n"
		   "cp files \"$DIESEL_TRUTH_FILES\"; cp \"$n\" \"$DIESEL_TRUTH_OUT\"\n"
		   "[ $n != 2 ] || . ./cached\n");
	return 0;
}

/* A run of `truth`, and its report. */
struct report {
	const char *lines[RUNS]; /* of the clock, by run; NULL: those of the first */
	const char *files;       /* paths that the job is seen to read */
	const char *cached;      /* shell commands of the cached run */
	struct truth_options options;
	struct error err;
	char json[8192];
};

static int report_make(struct report *report)
{
	char *command[] = {(char[]){"sh"}, strdup(path_of("job")), (char *)(uintptr_t)folder, NULL};
	int out = dup(STDOUT_FILENO),
	    to = open(path_of("json"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), r;
	ssize_t n;

	for (size_t i = 0; i < RUNS; i++)
		write_text(folder, (char[]){(char)('1' + i), '\0'},
			   report->lines[i] ? report->lines[i] : report->lines[0]);
	write_text(folder, "files", report->files ? report->files : "");
	write_text(folder, "cached", report->cached ? report->cached : "");
	write_text(folder, "runs", "");
	report->options.command = command;
	report->options.json = true;
	report->options.n_steps = 100;
	if (!report->options.n_rounds)
		report->options.n_rounds = 1;
	report->err = ERROR_INIT;
	fflush(stdout);
	assert_true(out >= 0 && dup2(to, STDOUT_FILENO) >= 0);
	r = truth_run(&report->options, &report->err);
	fflush(stdout);
	dup2(out, STDOUT_FILENO);
	close(out);
	n = pread(to, report->json, sizeof(report->json) - 1, 0);
	report->json[n < 0 ? 0 : n] = '\0';
	close(to);
	free(command[1]);
	return r;
}

/* Returns the report's first number of this name, after the first `after`; NAN: null. */
static double number(const struct report *report, const char *after, const char *name)
{
	const char *at = strstr(report->json, after);
	char key[64];

	snprintf(key, sizeof(key), "\"%s\": ", name);
	at = at ? strstr(at, key) : NULL;
	assert_non_null(at);
	at += strlen(key);
	return strncmp(at, "null", 4) ? strtod(at, NULL) : NAN;
}

static void check(const struct report *report, const char *name, double wanted)
{
	double value = number(report, "", name);

	if (isnan(wanted))
		assert_true(isnan(value));
	else
		assert_float_equal(value, wanted, 2e-6);
}

TEST(a_clock_s_line_is_reported)
{
	struct report report = {.lines = {LINE("60", "4.25")}};

	assert_int_equal(report_make(&report), 0);
	assert_true(number(&report, "cold\",", "steps") == 60 &&
		    number(&report, "cold\",", "seconds") == 4.25);
	assert_true(number(&report, "cold\",", "wait_s") == 0.5 &&
		    number(&report, "cold\",", "processes") == 1);
	report.lines[2] = COMPILING_LINE("60", "4.25", "1.5");
	assert_int_equal(report_make(&report), 0);
	assert_true(number(&report, "cold\",", "compiling_s") == 1.5);
	report.lines[2] = COMPILING_LINE("60", "4.25", "nan");
	assert_int_equal(report_make(&report), 0);
	assert_true(isnan(number(&report, "cold\",", "compiling_s")));
}

TEST(the_slowest_rank_counts)
{
	struct report report = {.lines = {LINE("60", "4.0") LINE("60", "5.0") LINE("60", "4.5")}};

	assert_int_equal(report_make(&report), 0);
	assert_true(number(&report, "cold\",", "processes") == 3 &&
		    number(&report, "cold\",", "seconds") == 5);
}

TEST(bad_lines_are_refused)
{
	static const char *const lines[] = {
	    "steps\n",
	    "\n",
	    "steps x seconds 1 wait 1 loaders 1 mode clock truncated 0 compiling 0 pid 1\n",
	    "steps 9 seconds 1 wait 1 loaders 1 mode clock truncated 0 pid 1\n",
	    COMPILING_LINE("60", "4", "-1"),
	    COMPILING_LINE("60", "4", "5"),
	    LINE("60", "nan"),
	    LINE("60", "inf"),
	    LINE("60", "-1"),
	    LINE("60", "1") "half a li"};
	struct report report = {0};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		report.lines[0] = lines[i];
		assert_int_equal(report_make(&report), -EBADMSG);
	}
	report.lines[0] = "";
	assert_int_equal(report_make(&report), -ENODATA);
}

/* Makes the report of a round whose job reads a file. */
static void report_runs(struct report *report, const char *cached, const char *cold, const char *synthetic)
{
	report->lines[0] = LINE("50", "1");
	report->lines[1] = cached;
	report->lines[2] = cold;
	report->lines[3] = synthetic;
	if (!report->files)
		report->files = read_file;
	assert_int_equal(report_make(report), 0);
}

TEST(shares_are_differences_of_runs)
{
	struct report report = {0};

	report_runs(&report, LINE("50", "5"), LINE("50", "10"), LINE("50", "2"));
	check(&report, "device", 0.2);
	check(&report, "prep_stall", 0.3);
	check(&report, "fetch_stall", 0.5);
	check(&report, "steps", 50);
}

/* The time of compiling is not the device's, however long the runs are. It is a one-time cost. */
TEST(compiling_is_no_share_of_the_device)
{
	struct report report = {0};

	/* 20 s of steps in the cold run */
	report_runs(&report, COMPILING_LINE("50", "45", "40"), COMPILING_LINE("100", "60", "40"),
		    COMPILING_LINE("50", "42", "40"));
	check(&report, "compiling", 0.8);
	check(&report, "device", 0.04);
	check(&report, "prep_stall", 0.06);
	check(&report, "fetch_stall", 0.1);
	report_runs(&report, COMPILING_LINE("50", "45", "40"), COMPILING_LINE("100", "60", "nan"),
		    COMPILING_LINE("50", "42", "40"));
	check(&report, "compiling", NAN);
	assert_true(isfinite(number(&report, "", "device")) && isfinite(number(&report, "", "fetch_stall")));
}

TEST(runs_of_different_length_are_compared_by_step)
{
	struct report report = {0};

	report_runs(&report, LINE("50", "5"), LINE("100", "20"), LINE("50", "2"));
	check(&report, "steps", 50);
	check(&report, "cold", 10);
	check(&report, "fetch_stall", 0.5);
}

TEST(rounds_give_means_and_spread)
{
	struct report report = {.options.n_rounds = 2,
				.lines = {[4] = LINE("50", "6"), LINE("50", "10"), LINE("50", "2")}};

	report_runs(&report, LINE("50", "5"), LINE("50", "10"), LINE("50", "2"));
	check(&report, "prep_stall", 0.35);
	check(&report, "fetch_stall", 0.45);
	check(&report, "spread", 0.1);
}

TEST(a_run_without_time_has_no_shares)
{
	static const char none[] =
	    "steps 50 seconds 0 wait 0 loaders 1 mode clock truncated 1 compiling 0 pid 7\n";
	struct report report = {0};

	report_runs(&report, none, none, none);
	check(&report, "device", 0);
	check(&report, "prep_stall", 0);
	check(&report, "fetch_stall", 0);
}

/* The cold and the cached run are the same, so their difference is chance. */
TEST(without_files_nothing_tells_fetching_from_preparing)
{
	struct report report = {.options.n_rounds = 2,
				.files = "/nonexistent\n",
				.lines = {[4] = LINE("50", "5"), LINE("50", "3"), LINE("50", "2")}};

	report_runs(&report, LINE("50", "3"), LINE("50", "5"), LINE("50", "2"));
	check(&report, "device", 0.5);
	check(&report, "wait", 0.5);
	check(&report, "prep_stall", NAN);
	check(&report, "fetch_stall", NAN);
	check(&report, "spread", 0);
	check(&report, "files", 0);
}

TEST(a_list_keeps_each_regular_file_once)
{
	struct report report = {.lines = {LINE("50", "1")}};
	char text[512], *at = text, *end = text + sizeof(text);

	at += snprintf(at, (size_t)(end - at), "%s\n\n", path_of("data/class/a"));
	at += snprintf(at, (size_t)(end - at), "%s\n/nonexistent\n", folder);
	at += snprintf(at, (size_t)(end - at), "%s\n", path_of("data/b"));
	snprintf(at, (size_t)(end - at), "%s", path_of("data/b"));
	report.files = text;
	assert_int_equal(report_make(&report), 0);
	check(&report, "files", 2);
	check(&report, "bytes", 2 * FILE_BYTES);
}

TEST(a_missing_folder_is_named)
{
	struct report report = {.lines = {LINE("50", "1")}, .options.data = "/nonexistent"};

	assert_int_equal(report_make(&report), -ENOENT);
	assert_non_null(strstr(report.err.text, "/nonexistent"));
}

TEST(the_files_of_a_folder_are_read_and_evicted)
{
	struct report report = {.lines = {LINE("50", "1")}};
	char data[128];
	struct statfs system;

	assert_int_equal(statfs(folder, &system), 0);
	if (system.f_type == TMPFS_MAGIC)
		skip(); /* the page cache of this file system cannot be evicted */
	snprintf(data, sizeof(data), "%s", path_of("data"));
	report.options.data = data;
	assert_int_equal(report_make(&report), 0);
	check(&report, "files", 2); /* not the link */
	check(&report, "bytes", 2 * FILE_BYTES);
	check(&report, "cached_before_cached", 1);
	check(&report, "cached_before_cold", 0);
	assert_non_null(strstr(report.json, "\"not_controlled\": []"));
	report.cached = "rm data/b\n";
	assert_int_equal(report_make(&report), 0);
	assert_non_null(strstr(report.json, "1 files could not be opened"));
	make_file("data/b");
}

int main(void)
{
	return run_unit_tests(set_up, remove_folder);
}
