/* SPDX-License-Identifier: Apache-2.0 */
#include "reader.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <webp/decode.h>
#include <webp/demux.h>

#include "lib/cleanup.h"

#define RIFF_HEADER 8 /* bytes of the header: "RIFF", and the number of bytes that follow */
/* Number of additional pixels to decode on each side: one chroma sample. Chroma has half of the samples and
 * is interpolated, and the decoder treats the edges of the decoded part as edges of the image. */
#define MARGIN 2u

static void demuxer_freep(WebPDemuxer **demuxer)
{
	WebPDemuxDelete(*demuxer);
}

static bool is_truncated(const uint8_t *data, size_t bytes)
{
	uint32_t length;

	if (bytes < RIFF_HEADER)
		return true;
	length = data[4] | (uint32_t)data[5] << 8 | (uint32_t)data[6] << 16 | (uint32_t)data[7] << 24;
	return bytes - RIFF_HEADER < length;
}

static int damaged(const uint8_t *data, size_t bytes, const char *what, struct error *err)
{
	if (is_truncated(data, bytes))
		return error_set(err, -EBADMSG,
				 "WebP image is truncated: its %zu bytes end before the image does", bytes);
	return error_set(err, -EBADMSG, "WebP image of %zu bytes cannot be decoded: %s", bytes, what);
}

static bool begins(const uint8_t *data, size_t bytes)
{
	return bytes >= 12 && memcmp(data, "RIFF", 4) == 0 && memcmp(data + 8, "WEBP", 4) == 0;
}

static int probe(const uint8_t *data, size_t bytes, struct image_info *ret, struct error *err)
{
	WebPBitstreamFeatures features;

	if (WebPGetFeatures(data, bytes, &features) != VP8_STATUS_OK)
		return damaged(data, bytes, "the header is damaged", err);
	*ret = (struct image_info){
	    .kind = IMAGE_WEBP, .width = (uint32_t)features.width, .height = (uint32_t)features.height};
	return 0;
}

static int failed(VP8StatusCode status, const struct image_source *reading, struct error *err)
{
	if (status == VP8_STATUS_OUT_OF_MEMORY)
		return error_errno(err, -ENOMEM, "WebP image of %zu bytes", reading->bytes);
	return damaged(reading->data, reading->bytes,
		       status == VP8_STATUS_NOT_ENOUGH_DATA || status == VP8_STATUS_SUSPENDED
			   ? "the data ends before the image does"
			   : "the data is damaged",
		       err);
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Returns the box of the frame to decode for `part` of it: at least `part`, starting at even columns and
 * rows. */
static struct image_box with_margin(const struct image_box *part, const WebPIterator *frame)
{
	struct image_box box = {.x = part->x & ~1u, .y = part->y & ~1u};

	box.x -= least(box.x, MARGIN);
	box.y -= least(box.y, MARGIN);
	box.width = least(part->x + part->width + MARGIN, (uint32_t)frame->width) - box.x;
	box.height = least(part->y + part->height + MARGIN, (uint32_t)frame->height) - box.y;
	return box;
}

/* Decodes a box of the frame to reading->rows. */
static int decode(const struct image_source *reading, const WebPIterator *frame, const struct image_box *box,
		  struct error *err)
{
	size_t row = (size_t)box->width * IMAGE_CHANNELS;
	WebPDecoderConfig config;
	VP8StatusCode status;

	if (scratch_reserve(reading->rows, box->height, row) < 0)
		return failed(VP8_STATUS_OUT_OF_MEMORY, reading, err);
	if (!WebPInitDecoderConfig(&config))
		return error_set(
		    err, -EOPNOTSUPP,
		    "WebP image cannot be decoded: dieseld was built for another version of libwebp");
	config.options.use_cropping = 1;
	config.options.crop_left = (int)box->x;
	config.options.crop_top = (int)box->y;
	config.options.crop_width = (int)box->width;
	config.options.crop_height = (int)box->height;
	config.output.colorspace = MODE_RGB;
	config.output.is_external_memory = 1;
	config.output.u.RGBA.rgba = reading->rows->bytes;
	config.output.u.RGBA.stride = (int)row;
	config.output.u.RGBA.size = row * box->height;
	status = WebPDecode(frame->fragment.bytes, frame->fragment.size, &config);
	return status == VP8_STATUS_OK ? 0 : failed(status, reading, err);
}

/* Finds the part of the crop that the frame covers, in the frame's coordinates: the first frame of an
 * animation may be smaller than the canvas. Returns false if there is none. */
static bool covered(const struct image_box *crop, const WebPIterator *frame, struct image_box *ret)
{
	uint32_t left = (uint32_t)frame->x_offset, top = (uint32_t)frame->y_offset;
	uint32_t right = least(crop->x + crop->width, left + (uint32_t)frame->width),
		 bottom = least(crop->y + crop->height, top + (uint32_t)frame->height);
	uint32_t x = crop->x > left ? crop->x : left, y = crop->y > top ? crop->y : top;

	if (x >= right || y >= bottom)
		return false;
	*ret = (struct image_box){x - left, y - top, right - x, bottom - y};
	return true;
}

/* Passes the rows of the crop to the resampler, with black outside of the frame. */
static void hand_on(const struct image_source *reading, const struct image_box *crop,
		    const WebPIterator *frame, const struct image_box *part, const struct image_box *box)
{
	uint32_t left = (uint32_t)frame->x_offset + part->x - crop->x,
		 top = (uint32_t)frame->y_offset + part->y - crop->y;
	size_t row = (size_t)box->width * IMAGE_CHANNELS;
	const uint8_t *from = (uint8_t *)reading->rows->bytes + (part->y - box->y) * row +
			      (size_t)(part->x - box->x) * IMAGE_CHANNELS;

	for (uint32_t y = 0; y < crop->height; y++) {
		uint8_t *to = resample_row(reading->resample);

		if (part->width < crop->width || part->height < crop->height)
			memset(to, 0, (size_t)crop->width * IMAGE_CHANNELS);
		if (y < top || y - top >= part->height)
			continue;
		memcpy(to + (size_t)left * IMAGE_CHANNELS, from + (y - top) * row,
		       (size_t)part->width * IMAGE_CHANNELS);
	}
}

static int read_frame(struct image_source *reading, const WebPIterator *frame, struct error *err)
{
	struct resample_plan plan;
	struct image_box crop = reading_plan(reading, 1, &plan);
	struct image_box part = {.x = crop.x}, box = {.x = 0};
	int r = 0;

	if (covered(&crop, frame, &part)) {
		box = with_margin(&part, frame);
		r = decode(reading, frame, &box, err);
	}
	if (r < 0)
		return r;
	if (resample_begin(reading->resample, &plan) < 0)
		return failed(VP8_STATUS_OUT_OF_MEMORY, reading, err);
	hand_on(reading, &crop, frame, &part, &box);
	return 0;
}

/* Reads the first frame of an animation, as Pillow does. */
static int read_image(struct image_source *reading, struct error *err)
{
	const WebPData file = {.bytes = reading->data, .size = reading->bytes};
	_cleanup_(demuxer_freep) WebPDemuxer *demuxer = NULL;
	struct image_info info = {.width = 0};
	WebPIterator frame;
	int r = probe(reading->data, reading->bytes, &info, err);

	if (r == 0)
		r = reading_check(reading, "WebP", info.width, info.height, err);
	if (r < 0)
		return r;
	demuxer = WebPDemux(&file);
	if (!demuxer || WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_WIDTH) != info.width ||
	    WebPDemuxGetI(demuxer, WEBP_FF_CANVAS_HEIGHT) != info.height ||
	    !WebPDemuxGetFrame(demuxer, 1, &frame))
		return damaged(reading->data, reading->bytes, "the RIFF chunks are damaged", err);
	r = read_frame(reading, &frame, err);
	WebPDemuxReleaseIterator(&frame);
	return r;
}

const struct image_format image_webp = {.name = "WebP", .begins = begins, .probe = probe, .read = read_image};
