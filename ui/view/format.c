/* SPDX-License-Identifier: Apache-2.0 */
#include "format.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "ui/state/sample.h"

static char *unknown(char *buffer)
{
	snprintf(buffer, FORMAT_BYTES, "N/A");
	return buffer;
}

/* Writes a value with three significant digits and its unit. */
static char *scaled(char *buffer, double value, const char *unit)
{
	snprintf(buffer, FORMAT_BYTES, value < 9.95 ? "%.1f%s" : "%.0f%s", value, unit);
	return buffer;
}

char *format_percent(char *buffer, double ratio)
{
	if (!isfinite(ratio))
		return unknown(buffer);
	snprintf(buffer, FORMAT_BYTES, "%.0f", fmin(fabs(ratio) < 0.005 ? 0 : 100 * ratio, 99999));
	return buffer;
}

char *format_seconds(char *buffer, double s)
{
	if (!isfinite(s))
		return unknown(buffer);
	if (s < 0)
		s = 0;
	if (s < 5e-7)
		snprintf(buffer, FORMAT_BYTES, "0s");
	else if (s < 0.0009995)
		snprintf(buffer, FORMAT_BYTES, "%.0fus", s * 1e6);
	else if (s < 0.9995)
		scaled(buffer, s * 1e3, "ms");
	else if (s < 99.5)
		snprintf(buffer, FORMAT_BYTES, "%.1fs", s);
	else if (s < 3600)
		snprintf(buffer, FORMAT_BYTES, "%dm%02d", (int)s / 60, (int)s % 60);
	else if (s < 100 * 3600)
		snprintf(buffer, FORMAT_BYTES, "%dh%02d", (int)s / 3600, (int)s / 60 % 60);
	else
		snprintf(buffer, FORMAT_BYTES, "%.0fd%02d", fmin(floor(s / 86400), 9999),
			 (int)(fmod(s, 86400) / 3600));
	return buffer;
}

char *format_bytes(char *buffer, double bytes)
{
	static const char *const units[] = {"", "K", "M", "G", "T", "P"};
	size_t i = 0;

	if (!isfinite(bytes))
		return unknown(buffer);
	for (; bytes >= 999.5 && i < 5; i++)
		bytes /= 1024;
	if (!i)
		snprintf(buffer, FORMAT_BYTES, "%.0f", fmax(bytes, 0));
	else
		scaled(buffer, bytes, units[i]);
	return buffer;
}

char *format_rate(char *buffer, double per_s)
{
	if (!isfinite(per_s))
		return unknown(buffer);
	if (per_s == 0)
		snprintf(buffer, FORMAT_BYTES, "0");
	else if (per_s < 0.995)
		snprintf(buffer, FORMAT_BYTES, "%.2f", per_s);
	else if (per_s < 9995)
		scaled(buffer, per_s, "");
	else if (per_s < 999500)
		scaled(buffer, per_s / 1e3, "k");
	else
		scaled(buffer, fmin(per_s / 1e6, 9999), "M");
	return buffer;
}

char *format_count(char *buffer, uint64_t n)
{
	if (n == SAMPLE_UNKNOWN)
		return unknown(buffer);
	if (n >= 100000)
		return format_rate(buffer, (double)n);
	snprintf(buffer, FORMAT_BYTES, "%u", (unsigned int)n);
	return buffer;
}

char *format_time(char *buffer, double time_s)
{
	time_t seconds;
	struct tm local;

	if (!isfinite(time_s) || time_s < 0 || time_s > 1e11)
		return unknown(buffer);
	seconds = (time_t)time_s;
	if (!localtime_r(&seconds, &local))
		return unknown(buffer);
	snprintf(buffer, FORMAT_BYTES, "%02d:%02d:%02d", local.tm_hour, local.tm_min, local.tm_sec);
	return buffer;
}
