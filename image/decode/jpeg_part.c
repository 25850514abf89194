/* SPDX-License-Identifier: Apache-2.0 */
#include "jpeg_part.h"

#include <errno.h>
#include <string.h>

#define N_RST      8
#define BLOCK      8 /* pixels */
#define MCUS_LEAST 4 /* minimum MCUs in a row: libjpeg does not interpolate chroma of very narrow images */

enum marker {
	SOF_BASELINE = 0xc0,
	SOF_EXTENDED = 0xc1,
	DHT = 0xc4,
	DAC = 0xcc,
	SOF_LAST = 0xcf,
	RST_FIRST = 0xd0,
	RST_LAST = 0xd7,
	EOI = 0xd9,
	SOS = 0xda,
	DRI = 0xdd,
};

/* A segment of the header, without its marker and length. */
struct part {
	uint8_t marker;
	size_t at, bytes;
};

static uint32_t two_bytes(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

/* Reads the next segment. It is strict: if libjpeg would have to search for the next marker, the header is
 * refused. */
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

static bool read_frame(const uint8_t *data, const struct part *part, unsigned *ret_n, struct jpeg_layout *ret)
{
	const uint8_t *p = data + part->at;
	struct jpeg_layout layout = {.height_at = part->at + 1};

	if (part->bytes < 6 || part->bytes != 6 + 3u * p[5])
		return false;
	layout.height = two_bytes(p + 1);
	layout.width = two_bytes(p + 3);
	for (unsigned i = 0; i < p[5]; i++) {
		uint32_t h = p[7 + 3 * i] >> 4, v = p[7 + 3 * i] & 15;

		if (!h || !v)
			return false;
		layout.h = h > layout.h ? h : layout.h;
		layout.v = v > layout.v ? v : layout.v;
	}
	*ret_n = p[5];
	*ret = layout;
	return layout.height && layout.width && p[5];
}

/* Counts MCUs. In a scan of one component each MCU is one block, regardless of the sampling. */
static void count_mcus(struct jpeg_layout *layout, unsigned n_components)
{
	uint32_t v = n_components == 1 ? layout->v : 1;

	layout->mcu_width = n_components == 1 ? BLOCK : BLOCK * layout->h;
	layout->in_order = v == 1;
	layout->row_mcus = (uint64_t)v * ((layout->width + layout->mcu_width - 1) / layout->mcu_width);
}

bool jpeg_layout_read(const uint8_t *data, size_t bytes, struct jpeg_layout *ret)
{
	struct jpeg_layout layout = {0};
	struct part part = {0};
	uint32_t interval = 0;
	unsigned n_components = 0;
	size_t at = 2; /* begin after the two bytes of the SOI marker */

	while (part.marker != SOS) {
		if (!next_part(data, bytes, &at, &part))
			return false;
		bool is_frame = part.marker <= SOF_LAST && part.marker != DHT && part.marker != DAC;

		if (is_frame && (n_components || part.marker > SOF_EXTENDED ||
				 !read_frame(data, &part, &n_components, &layout)))
			return false;
		if (part.marker == DRI) {
			if (part.bytes != 2)
				return false;
			interval = two_bytes(data + part.at);
		}
	}
	if (!n_components || !interval || !part.bytes || data[part.at] != n_components)
		return false;
	layout.scan_at = at;
	count_mcus(&layout, n_components);
	layout.interval_mcus = interval;
	*ret = layout;
	return true;
}

/* Limits the part to those intervals of each row that contain the box's columns. */
static void choose_columns(const struct jpeg_layout *layout, struct jpeg_part *part)
{
	uint64_t least = (MCUS_LEAST + layout->interval_mcus - 1) / layout->interval_mcus;
	uint64_t of_row = layout->row_mcus / layout->interval_mcus;
	uint64_t width = layout->interval_mcus * layout->mcu_width;
	uint64_t first = part->box.x / width, end = (part->box.x + part->box.width + width - 1) / width;

	if (end - first < least)
		end = first + least < of_row ? first + least : of_row;
	if (end - first < least)
		first = end > least ? end - least : 0;
	part->first += first;
	part->n = end - first;
	part->apart = of_row;
	part->n_runs = part->box.height;
	part->box.x = (uint32_t)(first * width);
	part->box.width = (uint32_t)(end < of_row ? end * width : layout->width) - part->box.x;
}

bool jpeg_part_choose(const struct jpeg_layout *layout, const struct image_box *box, struct jpeg_part *ret)
{
	uint32_t row = BLOCK * layout->v;
	uint32_t first = box->y / row, end = (box->y + box->height + row - 1) / row;

	while (first * layout->row_mcus % layout->interval_mcus)
		first--;
	uint64_t begin = first * layout->row_mcus / layout->interval_mcus;
	uint64_t last = (end * layout->row_mcus - 1) / layout->interval_mcus;
	struct jpeg_part part = {
	    .box = {0, first, layout->width,
		    end - first}, /* y and height are in rows of MCUs, not yet in pixels */
	    .first = begin,
	    .n = last + 1 - begin,
	    .n_runs = 1,
	};

	if (layout->in_order && layout->row_mcus % layout->interval_mcus == 0) {
		part.box.x = box->x;
		part.box.width = box->width;
		choose_columns(layout, &part);
	}
	part.box.y = first * row;
	part.box.height = (end * row < layout->height ? end * row : layout->height) - part.box.y;
	*ret = part;
	return first || part.box.width < layout->width;
}

/* Finds the next marker of the scan. *at: where the search starts, and afterwards the byte after the marker.
 * Returns the marker, and in *ret_begin where it begins; 0: there is none. */
static uint8_t next_marker(const uint8_t *data, size_t bytes, size_t *at, size_t *ret_begin)
{
	const uint8_t *end = data + bytes, *found = data + *at;

	while ((found = memchr(found, 0xff, (size_t)(end - found)))) {
		const uint8_t *begin = found;

		while (found < end && *found == 0xff)
			found++;
		if (found == end)
			return 0;
		*at = (size_t)(++found - data);
		*ret_begin = (size_t)(begin - data);
		if (found[-1]) /* otherwise an escaped 0xff byte */
			return found[-1];
	}
	return 0;
}

/* Iterates over the intervals of a scan. */
struct intervals {
	const uint8_t *data;
	size_t bytes;
	size_t at;     /* offset where the next interval begins */
	size_t end;    /* offset where the last interval ended */
	uint64_t i, n; /* number of the next interval, and number of intervals */
};

static bool next_interval(struct intervals *scan)
{
	uint8_t marker = next_marker(scan->data, scan->bytes, &scan->at, &scan->end);
	bool restarts = marker >= RST_FIRST && marker <= RST_LAST;

	if (++scan->i == scan->n)
		return marker && !restarts;
	return marker == RST_FIRST + (scan->i - 1) % N_RST;
}

int jpeg_part_write(const struct jpeg_layout *layout, const struct jpeg_part *part, const uint8_t *data,
		    size_t bytes, struct scratch_buffer *file, size_t *ret_bytes, size_t *ret_end)
{
	uint32_t row = BLOCK * layout->v;
	uint64_t n_rows = (layout->height + row - 1) / row;
	struct intervals scan = {
	    .data = data,
	    .bytes = bytes,
	    .at = layout->scan_at,
	    .n = (n_rows * layout->row_mcus + layout->interval_mcus - 1) / layout->interval_mcus,
	};

	/* Each interval of the original file is followed by a marker, too. */
	if (scratch_reserve(file, bytes, 1) < 0)
		return -ENOMEM;
	uint8_t *to = memcpy(file->bytes, data, layout->scan_at);
	uint8_t *size = to + layout->height_at;

	size[0] = (uint8_t)(part->box.height >> 8);
	size[1] = (uint8_t)part->box.height;
	size[2] = (uint8_t)(part->box.width >> 8);
	size[3] = (uint8_t)part->box.width;
	to += layout->scan_at;
	for (uint64_t run = 0, n_written = 0; run < part->n_runs; run++) {
		uint64_t first = part->first + run * part->apart;

		while (scan.i < first)
			if (!next_interval(&scan))
				return 0;
		while (scan.i < first + part->n) {
			size_t begin = scan.at;

			if (!next_interval(&scan))
				return 0;
			memcpy(to, data + begin, scan.end - begin);
			to += scan.end - begin;
			*to++ = 0xff;
			*to++ = (uint8_t)(RST_FIRST + n_written++ % N_RST);
		}
	}
	to[-1] = EOI;
	*ret_bytes = (size_t)(to - (uint8_t *)file->bytes);
	*ret_end = scan.end;
	return 1;
}
