/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs image/decoder.h for the tests in this folder. Each request is one line of input with these words:
 *
 *	x y width height output_width output_height filter layout
 *	window_x window_y window_width window_height path
 *
 * Each answer is a line: "ok BYTES WARNINGS", followed by the pixels, or "error ERRNO TEXT". A crop of 0 x 0
 * requests only the header: "info WIDTH HEIGHT KIND". With a second argument, `whole`, pixels come out of the
 * whole image, which is decoded once for each scale and stays in memory as long as the path stays the same.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "image/decoder.h"
#include "lib/cleanup.h"

/* Reads into memory of exactly the file's length, so that a read past its end is detected. */
static void *read_file(const char *path, size_t *ret_bytes)
{
	_cleanup_(fclosep) FILE *file = fopen(path, "re");
	struct stat st;

	if (!file || fstat(fileno(file), &st) < 0)
		return NULL;
	size_t bytes = (size_t)st.st_size;
	_cleanup_(freep) void *data = malloc(bytes ? bytes : 1);

	if (!data || fread(data, 1, bytes, file) != bytes)
		return NULL;
	*ret_bytes = bytes;
	return steal_pointer(data);
}

static void print_error(int r, const struct error *err)
{
	printf("error %d %s\n", -r, err->text);
}

static const char *const kinds[] = {[IMAGE_JPEG] = "JPEG", [IMAGE_PNG] = "PNG", [IMAGE_WEBP] = "WebP"};

/* The whole images of a path. */
struct wholes {
	char path[4096];
	uint8_t *at[9]; /* by scale */
};

static void wholes_free(struct wholes *w)
{
	for (size_t i = 0; i < sizeof(w->at) / sizeof(*w->at); i++)
		free(w->at[i]);
	memset(w, 0, sizeof(*w));
}

static int decode_out_of_whole(struct image_decoder *decoder, struct wholes *wholes, const char *path,
			       const void *data, size_t bytes, const struct image_request *request,
			       uint8_t *output, struct error *err)
{
	struct image_whole whole = {.by = 1};
	int r = image_probe(data, bytes, &whole.info, err);

	if (r < 0)
		return r;
	whole.by = image_scale(&whole.info, request);
	whole.is_planes = whole.info.has_planes && whole.by == 1;
	if (strcmp(wholes->path, path) != 0) {
		wholes_free(wholes);
		snprintf(wholes->path, sizeof(wholes->path), "%s", path);
	}
	if (!wholes->at[whole.by]) {
		wholes->at[whole.by] = malloc(image_whole_bytes(&whole));
		r = wholes->at[whole.by]
			? image_decode_whole(decoder, data, bytes, &whole, wholes->at[whole.by], err)
			: -ENOMEM;
	}
	return r < 0 ? r : image_resize(decoder, &whole, wholes->at[whole.by], request, output, err);
}

static void answer(struct image_decoder *decoder, struct wholes *wholes, const struct image_request *request,
		   const char *path)
{
	const struct image_box *w = &request->window;
	size_t bytes = 0, n = (size_t)(w->width ? w->width : request->width) *
			      (w->height ? w->height : request->height) * IMAGE_CHANNELS;
	_cleanup_(freep) void *data = read_file(path, &bytes);
	_cleanup_(freep) uint8_t *output = malloc(n ? n : 1);
	struct error err = ERROR_INIT;
	struct image_info info;
	int r;

	if (!data || !output) {
		fprintf(stderr, "image_probe: %s: %s\n", path, strerror(errno));
		exit(1);
	}
	if (!request->crop.width && !request->crop.height) {
		r = image_probe(data, bytes, &info, &err);
		if (r < 0)
			print_error(r, &err);
		else
			printf("info %u %u %s\n", info.width, info.height, kinds[info.kind]);
		return;
	}
	r = wholes ? decode_out_of_whole(decoder, wholes, path, data, bytes, request, output, &err)
		   : image_decode(decoder, data, bytes, request, output, &err);
	if (r < 0) {
		print_error(r, &err);
		return;
	}
	printf("ok %zu %llu\n", n, (unsigned long long)image_decoder_warnings(decoder));
	fwrite(output, 1, n, stdout);
}

int main(int argc, char **argv)
{
	_cleanup_(image_decoder_freep) struct image_decoder *decoder = NULL;
	static struct wholes wholes;
	struct image_request q = {.width = 0};
	char path[4096];
	unsigned filter, layout;
	unsigned long long pixels_max = argc > 1 ? strtoull(argv[1], NULL, 10) : IMAGE_PIXELS_MAX;

	if (image_decoder_new(pixels_max, &decoder) < 0)
		return 1;
	while (scanf("%u %u %u %u %u %u %u %u %u %u %u %u %4095[^\n]", &q.crop.x, &q.crop.y, &q.crop.width,
		     &q.crop.height, &q.width, &q.height, &filter, &layout, &q.window.x, &q.window.y,
		     &q.window.width, &q.window.height, path) == 13) {
		q.filter = filter;
		q.layout = layout;
		answer(decoder, argc > 2 ? &wholes : NULL, &q, path);
		fflush(stdout);
	}
	wholes_free(&wholes);
	return 0;
}
