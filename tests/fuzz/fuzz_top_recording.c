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

#include "ui/view/frame.h"
#include "ui/view/model.h"
#include "ui/replay/top_recording.h"
#include "ui/state/sample_json.h"

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
	struct top_recording_reader *reader;
	int fd = memfd_create("reel", MFD_CLOEXEC);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size)
		abort();
	if (top_recording_open_fd(fd, "fuzz", &reader, NULL))
		return;
	for (size_t i = 0; i < top_recording_n(reader) && i < RECORDS_MAX; i++) {
		struct top_sample *sample;

		if (!top_recording_read(reader, i, &sample, NULL))
			draw(sample);
	}
	top_recording_reader_close(reader);
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
