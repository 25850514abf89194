/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Log lines to standard error: "diesel-analyze: warning: text" (name and level only where they help).
 *
 * Programs log; libraries log at LOG_DEBUG only. The level and the program's name are set once by main().
 * When JOURNAL_STREAM is set (systemd), lines carry the journal's <N> priority prefix instead of a level
 * word. Thread-safe: one write(2) a line.
 *
 * A line stays a line whatever names are in it: control characters, and bytes that are no UTF-8, are written
 * as \xHH.
 */

#include <stdbool.h>
#include <stdint.h>

enum log_level {
	LOG_LEVEL_ERROR,
	LOG_LEVEL_WARNING,
	LOG_LEVEL_INFO,
	LOG_LEVEL_DEBUG,
};

void log_init(const char *program, enum log_level max_level);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...)   log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)   log_write(LOG_LEVEL_DEBUG, __VA_ARGS__)

/*
 * For what somebody else can cause as often as he likes: LOG_BURST lines at once, and one more every
 * LOG_REFILL_NS. The next line that is written says how many were left out. Zeroed, it begins full; one
 * thread uses it.
 */
#define LOG_BURST     10
#define LOG_REFILL_NS UINT64_C(5000000000)

struct log_limit {
	uint64_t full_ns; /* when it is full again */
	uint64_t n_left_out;
};

/* Returns true if a line may be written now; if so, *ret_left_out were not since the last one. */
bool log_limit_take(struct log_limit *limit, uint64_t now_ns, uint64_t *ret_left_out);

void log_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
