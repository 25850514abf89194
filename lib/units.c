/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/units.h"

#include "lib/clock.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct unit {
	const char *suffix;
	double factor;
};

static int parse_scaled(const char *text, const struct unit *units, size_t n_units, uint64_t *ret_value)
{
	char *end;

	/* strtod() also accepts "inf", "nan", hexadecimal numbers and leading blanks. */
	if (!isdigit((unsigned char)text[0]) || (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')))
		return -EINVAL;
	double number = strtod(text, &end);

	for (size_t i = 0; i < n_units; i++) {
		if (strcasecmp(end, units[i].suffix) != 0)
			continue;
		double value = number * units[i].factor;

		if (value >= 0x1p63)
			return -ERANGE;
		*ret_value = (uint64_t)llround(value);
		return 0;
	}
	return -EINVAL;
}

int units_parse_bytes(const char *text, uint64_t *ret_bytes)
{
	static const struct unit units[] = {
	    {"", 1},       {"B", 1},        {"K", 0x1p10},   {"KiB", 0x1p10}, {"KB", 1e3},
	    {"M", 0x1p20}, {"MiB", 0x1p20}, {"MB", 1e6},     {"G", 0x1p30},   {"GiB", 0x1p30},
	    {"GB", 1e9},   {"T", 0x1p40},   {"TiB", 0x1p40}, {"TB", 1e12},
	};

	return parse_scaled(text, units, sizeof(units) / sizeof(units[0]), ret_bytes);
}

int units_parse_duration(const char *text, uint64_t *ret_ns)
{
	static const struct unit units[] = {
	    {"", 1e9}, {"s", 1e9},  {"ms", 1e6},   {"us", 1e3},
	    {"ns", 1}, {"m", 60e9}, {"min", 60e9}, {"h", 3600e9},
	};

	return parse_scaled(text, units, sizeof(units) / sizeof(units[0]), ret_ns);
}

int units_parse_integer(const char *text, int64_t min, int64_t max, int64_t *ret_value)
{
	char *end;

	if (!isdigit((unsigned char)text[0]) && text[0] != '-')
		return -EINVAL;
	errno = 0;
	long long value = strtoll(text, &end, 10);

	if (*end || end == text)
		return -EINVAL;
	if (errno == ERANGE || value < min || value > max)
		return -ERANGE;
	*ret_value = value;
	return 0;
}

char *units_format_bytes(char *buffer, size_t size, uint64_t bytes)
{
	static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes;
	size_t i = 0;

	while (value >= 1023.5 && i + 1 < sizeof(names) / sizeof(names[0])) {
		value /= 1024;
		i++;
	}
	snprintf(buffer, size, i && value < 9.95 ? "%.1f %s" : "%.0f %s", value, names[i]);
	return buffer;
}

char *units_format_duration(char *buffer, size_t size, uint64_t ns)
{
	double s = (double)ns / NS_PER_S;

	if (s < 1e-3)
		snprintf(buffer, size, "%.0f us", s * 1e6);
	else if (s < 1)
		snprintf(buffer, size, s < 0.00995 ? "%.1f ms" : "%.0f ms", s * 1e3);
	else if (s < 120)
		snprintf(buffer, size, "%.1f s", s);
	else if (s < 7200)
		snprintf(buffer, size, "%.0f min %.0f s", floor(s / 60), floor(fmod(s, 60)));
	else
		snprintf(buffer, size, "%.0f h %.0f min", floor(s / 3600), floor(fmod(s / 60, 60)));
	return buffer;
}
