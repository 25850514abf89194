/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Writes log lines to standard error: "diesel-analyze: warning: text", with name and level only if they help.
 *
 * Programs log; libraries log at LOG_DEBUG only. main() sets the level and the program's name once, at the
 * start. When JOURNAL_STREAM is set (systemd), lines carry the journal's <N> priority prefix instead of a
 * level word. Thread-safe: each line is one write(2).
 *
 * Names in a line cannot break it: control characters, and bytes that are not UTF-8, are written as \xHH.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

void log_init(const char *program, enum log_level max_level);

/* Makes logging non-blocking, for a program that must continue even if nobody reads its log, as when the
 * journal hangs. From now on, a line that standard error does not accept at once is left out. The next
 * accepted line gives the number of lines left out. */
void log_never_wait(void);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/* A field of an event, such as "slurm_job", "4711". Names are in lower case, values have no blanks. */
struct log_field {
	const char *name;
	char value[256];
};

/*
 * Writes an event as one line: "text name=value name=value ...". The journal gets the same line and, in
 * addition, searchable fields: DIESEL_EVENT=event, DIESEL_SLURM_JOB=4711. A field whose value is "" is left
 * out.
 */
void log_event(const char *event, const char *text, const struct log_field *fields, size_t n);

/*
 * Limits messages that others can cause at will to LOG_BURST lines at once and one more every LOG_REFILL_NS.
 * The next line that is written gives the number of lines left out. A zeroed limit starts with the whole
 * burst available. Only one thread may use a limit.
 */
#define LOG_BURST     10
#define LOG_REFILL_NS UINT64_C(5000000000)

struct log_limit {
	uint64_t full_ns; /* time at which the whole burst is available again */
	uint64_t n_left_out;
};

/* Returns true if a line may be written now; *ret_left_out is the number left out since the last one. */
bool log_limit_take(struct log_limit *limit, uint64_t now_ns, uint64_t *ret_left_out);

void log_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
