/* SPDX-License-Identifier: Apache-2.0 */
/* Treats arbitrary bytes as a recording of diesel-top. Every record is read or refused, and every record that
 * was read can be drawn. The checksums would stop nearly every mutation, so JSON is fuzzed, too. The input's
 * first bit chooses. */
#include <locale.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lib/file_open.h"
#include "ui/feed/feed.h"
#include "ui/state/sample_json.h"
#include "ui/view/frame.h"
#include "ui/view/model.h"

#define RECORDS_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Draws every view of the sample, and the detail of a job. */
static void draw(struct top_sample *sample)
{
	static const unsigned int keys[] = {'2', 't', '3', '4', '5', '1', '\n', 27, 'h'};
	struct model model;
	struct screen *screen = screen_new(24, 80, (struct charset){.unicode = true});

	model_init(&model, (struct charset){.unicode = true}, 1);
	if (model_take(&model, sample) || !screen)
		abort();
	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		model_key(&model, keys[i]);
		frame_draw(&model, screen);
	}
	model_destroy(&model);
	screen_free(screen);
}

static void read_file(const uint8_t *data, size_t size)
{
	char path[FD_PATH_BYTES];
	struct top_sample *sample;
	struct feed *feed;
	int fd = memfd_create("reel", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (feed_replay_open(&(struct replay_options){.path = fd_path(fd, path)}, &feed, NULL) == 0) {
		for (size_t i = 0; i < RECORDS_MAX && !feed->ops->sample(feed, 0, 0, &sample, NULL); i++)
			draw(sample);
		feed_close(feed);
	}
	close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct top_sample *sample;
	char *json;

	setlocale(LC_CTYPE, "C.UTF-8");
	if (!size)
		return 0;
	if (data[0] & 1) {
		read_file(data + 1, size - 1);
		return 0;
	}
	if (sample_from_json((const char *)data + 1, size - 1, &sample, NULL))
		return 0;
	json = sample_to_json(sample, false);
	free(json);
	draw(sample);
	return 0;
}
