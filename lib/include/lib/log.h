/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Log lines to standard error: "diesel-analyze: warning: text" (name and level only where they help).
 *
 * Programs log; libraries log at LOG_DEBUG only. The level and the program's name are set once by main().
 * When JOURNAL_STREAM is set (systemd), lines carry the journal's <N> priority prefix instead of a level
 * word. Thread-safe: one write(2) a line.
 */

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
