/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Quantities in human-readable form. Parsers accept the whole string or nothing (-EINVAL), and report
 * overflow (-ERANGE). Formatters write into the caller's buffer and return it.
 */

#include <stddef.h>
#include <stdint.h>

/* Parses a size: "8M", "8MiB", "8MB", "4096", "1.5G" -> bytes. As in dd, K, M, G and T are powers of 1024,
 * with or without "iB", and powers of 1000 with "B" alone ("MB"). */
int units_parse_bytes(const char *text, uint64_t *ret_bytes);

/* Parses a duration: "30s", "5m", "1h", "250ms", "1.5" (seconds) -> nanoseconds. */
int units_parse_duration(const char *text, uint64_t *ret_ns);

/* Parses a decimal integer within [min, max]. */
int units_parse_integer(const char *text, int64_t min, int64_t max, int64_t *ret_value);

/* For "%llu chunk%s": "" for one, else "s". */
static inline const char *units_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* Formats a size: 113 KiB, 8.0 MiB, 1.2 GiB. size: 16 is enough. */
char *units_format_bytes(char *buffer, size_t size, uint64_t bytes);

/* Formats a duration: 310 us, 4.2 ms, 12.5 s, 3 min 20 s, 2 h 5 min. size: 24 is enough. */
char *units_format_duration(char *buffer, size_t size, uint64_t ns);
