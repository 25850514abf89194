/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Formats quantities in at most 6 characters. A quantity that is not known is "N/A", never 0. All functions
 * write into the caller's buffer of FORMAT_BYTES and return it. */

#include <stdint.h>

#define FORMAT_BYTES 24

char *format_percent(char *buffer, double ratio); /* 7, 42, 100: without the percent sign */
char *format_seconds(char *buffer, double s);     /* 310us 4.2ms 12.5s 3m20 2h05 1d04 */
char *format_bytes(char *buffer, double bytes);   /* 512 1.2K 113M 1.2G */
char *format_rate(char *buffer, double per_s);    /* 0.31 3.1 310 12.5k */
char *format_count(char *buffer, uint64_t n);     /* SAMPLE_UNKNOWN: N/A */
char *format_time(char *buffer, double time_s);   /* local time of day, 14:03:22 */
