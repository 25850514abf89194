/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_rows.h"

#include <string.h>

#define BLOCK 8 /* pixels */

enum marker {
	SOF_BASELINE = 0xc0,
	SOF_EXTENDED = 0xc1,
	DHT = 0xc4,
	DAC = 0xcc,
	SOF_LAST = 0xcf,
	RST_FIRST = 0xd0,
	EOI = 0xd9,
	SOS = 0xda,
	DRI = 0xdd,
};

/* One of the header's parts: what follows the length. */
struct part {
	uint8_t marker;
	size_t at, bytes;
};

static uint32_t two_bytes(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

/* Strict: where libjpeg would look for the next marker, the header is one of another kind. */
static bool next_part(const uint8_t *data, size_t bytes, size_t *at, struct part *ret)
{
	size_t i = *at;

	if (i >= bytes || data[i] != 0xff)
		return false;
	while (i < bytes && data[i] == 0xff)
		i++;
	if (bytes - i < 3)
		return false;
	uint8_t marker = data[i];
	size_t length = two_bytes(data + i + 1);

	if (marker < SOF_BASELINE || (marker >= RST_FIRST && marker <= EOI) || length < 2 ||
	    length > bytes - i - 1)
		return false;
	*ret = (struct part){marker, i + 3, length - 2};
	*at = i + 1 + length;
	return true;
}

static bool read_frame(const uint8_t *data, const struct part *part, unsigned *ret_n, struct jpeg_rows *ret)
{
	const uint8_t *p = data + part->at;
	struct jpeg_rows rows = {.height_at = part->at + 1};

	if (part->bytes < 6 || part->bytes != 6 + 3u * p[5])
		return false;
	rows.height = two_bytes(p + 1);
	rows.width = two_bytes(p + 3);
	for (unsigned i = 0; i < p[5]; i++) {
		uint32_t h = p[7 + 3 * i] >> 4, v = p[7 + 3 * i] & 15;

		if (!h || !v)
			return false;
		rows.h = h > rows.h ? h : rows.h;
		rows.v = v > rows.v ? v : rows.v;
	}
	*ret_n = p[5];
	*ret = rows;
	return rows.height && rows.width && p[5];
}

/* A scan of one component has blocks one by one, whatever its sampling. */
static uint64_t mcus_of_row(const struct jpeg_rows *rows, unsigned n_components)
{
	uint32_t columns = n_components == 1 ? BLOCK : BLOCK * rows->h;
	uint64_t mcus = (rows->width + columns - 1) / columns;

	return n_components == 1 ? mcus * rows->v : mcus;
}

bool jpeg_rows_read(const uint8_t *data, size_t bytes, struct jpeg_rows *ret)
{
	struct jpeg_rows rows = {0};
	struct part part = {0};
	uint32_t interval = 0;
	unsigned n_components = 0;
	size_t at = 2; /* behind the first two bytes, which are those of a JPEG file */

	while (part.marker != SOS) {
		if (!next_part(data, bytes, &at, &part))
			return false;
		bool is_frame = part.marker <= SOF_LAST && part.marker != DHT && part.marker != DAC;

		if (is_frame && (n_components || part.marker > SOF_EXTENDED ||
				 !read_frame(data, &part, &n_components, &rows)))
			return false;
		if (part.marker == DRI) {
			if (part.bytes != 2)
				return false;
			interval = two_bytes(data + part.at);
		}
	}
	if (!n_components || !interval || !part.bytes || data[part.at] != n_components)
		return false;
	rows.scan_at = at;
	rows.row_mcus = mcus_of_row(&rows, n_components);
	rows.interval_mcus = interval;
	*ret = rows;
	return true;
}

/* Goes on to the n-th marker of the scan, and behind it: *at is where the search begins and ends, and
 * *i_marker how many came before. Returns false if one comes that is another. */
static bool pass_markers(const uint8_t *data, size_t bytes, size_t *at, uint64_t *i_marker, uint64_t n)
{
	while (*i_marker < n) {
		const uint8_t *found = memchr(data + *at, 0xff, bytes - *at);
		const uint8_t *end = data + bytes;

		while (found && found < end && *found == 0xff)
			found++;
		if (!found || found == end)
			return false;
		*at = (size_t)(found - data) + 1;
		if (*found == 0)
			continue; /* a coded 0xff */
		if (*found != RST_FIRST + *i_marker % 8)
			return false;
		++*i_marker;
	}
	return true;
}

bool jpeg_rows_find(const struct jpeg_rows *rows, const uint8_t *data, size_t bytes, uint32_t first,
		    uint32_t end, struct jpeg_rows_start *ret)
{
	uint64_t n_rows = (rows->height + BLOCK * rows->v - 1) / (BLOCK * rows->v), i_marker = 0;
	struct jpeg_rows_start start = {.row = first};
	size_t at = rows->scan_at;

	while (start.row && start.row * rows->row_mcus % rows->interval_mcus)
		start.row--;
	if (!start.row)
		return false;
	if (!pass_markers(data, bytes, &at, &i_marker, start.row * rows->row_mcus / rows->interval_mcus))
		return false;
	start.at = at;
	start.marker = i_marker % 8;
	uint64_t last = (end < n_rows ? end : n_rows) * rows->row_mcus - 1;

	if (!pass_markers(data, bytes, &at, &i_marker, last / rows->interval_mcus))
		return false;
	*ret = start;
	return true;
}
