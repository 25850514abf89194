/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/analyzer/scene.h"

#include <string.h>

#include "analyzer/explain/finders.h"
#include "analyzer/profile.h"
#include "bpf/metadata.h"

enum key {
	JPEG_IDCT = 1,
	JPEG_UNNAMED,
	IMAGING,
	EVAL,
	MEMMOVE,
	TORCH_ADD,
	PY_MAIN,
	PY_LOAD,
	PY_RESIZE,
	PY_RESIZE_OLD,
	PY_CROP,
	PY_BLUR,
	PY_COMPOSE,
	PY_GIF,
	PY_OWN_CROP,
	PY_BATCH,
	PY_PRESET,
	PY_RANDOM_CROP,
	PY_RGB,
};

static const struct profile_frame frames[] = {
    {JPEG_IDCT, FRAME_NATIVE, "libjpeg-0e09f8ba.so.62.4.0", "jpeg_idct_islow"},
    {JPEG_UNNAMED, FRAME_NATIVE, "libjpeg-0e09f8ba.so.62.4.0", ""},
    {IMAGING, FRAME_NATIVE, "_imaging.cpython-311-x86_64-linux-gnu.so", ""},
    {EVAL, FRAME_INTERPRETER, "python3.11", "_PyEval_EvalFrameDefault"},
    {MEMMOVE, FRAME_NATIVE, "libc.so.6", "memmove"},
    {TORCH_ADD, FRAME_NATIVE, "libtorch_cpu.so", "_ZN2at6native3addIfEEvRKNS_6TensorE"},
    {PY_MAIN, FRAME_PYTHON, "job.py", "main"},
    {PY_LOAD, FRAME_PYTHON, "ImageFile.py", "ImageFile.load"},
    {PY_RESIZE, FRAME_PYTHON, "Image.py", "Image.resize"},
    {PY_RESIZE_OLD, FRAME_PYTHON, "Image.py", "resize"}, /* name before Python 3.11 */
    {PY_CROP, FRAME_PYTHON, "transforms.py", "RandomResizedCrop.forward"},
    {PY_BLUR, FRAME_PYTHON, "transforms.py", "GaussianBlur.forward"},
    {PY_COMPOSE, FRAME_PYTHON, "transforms.py", "Compose.__call__"},
    {PY_GIF, FRAME_PYTHON, "GifImagePlugin.py", "GifImageFile.load_end"},
    {PY_OWN_CROP, FRAME_PYTHON, "transforms.py", "RandomResizedCrop.apply"}, /* of another library */
    {PY_BATCH, FRAME_PYTHON, "assembly.py", "Assembly.batch"},
    {PY_PRESET, FRAME_PYTHON, "_presets.py", "ImageClassification.forward"},
    {PY_RANDOM_CROP, FRAME_PYTHON, "transforms.py", "RandomCrop.forward"},
    {PY_RGB, FRAME_PYTHON, "_color.py", "RGB.transform"},
};

#define TRACE(key, ...)                                                                                      \
	{                                                                                                    \
		key, (const uint64_t[]){__VA_ARGS__}, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)   \
	}

/* Frames are innermost first. One of the 15 frames is not in the notes. */
static const struct profile_trace traces[] = {
    TRACE(9, TORCH_ADD),
    TRACE(10, JPEG_IDCT, JPEG_UNNAMED, EVAL, EVAL),
    TRACE(11, JPEG_UNNAMED),
    TRACE(12, IMAGING),
    TRACE(13, EVAL, EVAL),
    TRACE(14, MEMMOVE),
    TRACE(15, 99, IMAGING),
    TRACE(20, PY_LOAD, PY_MAIN),
    TRACE(21, PY_RESIZE, PY_MAIN),
    TRACE(22, PY_RESIZE_OLD, PY_MAIN),
    TRACE(23, PY_RESIZE, PY_CROP, PY_COMPOSE, PY_MAIN),
    TRACE(24, PY_LOAD, PY_RESIZE, PY_CROP, PY_COMPOSE, PY_MAIN), /* Pillow decodes late */
    TRACE(25, PY_RESIZE, PY_BLUR, PY_COMPOSE, PY_MAIN),
    TRACE(26, PY_COMPOSE, PY_MAIN),
    TRACE(27, PY_LOAD, PY_GIF, PY_MAIN),
    TRACE(28, PY_OWN_CROP, PY_MAIN),
    TRACE(29, PY_BATCH, PY_MAIN),
    TRACE(30, PY_PRESET, PY_MAIN),
    TRACE(31, PY_RANDOM_CROP, PY_COMPOSE, PY_MAIN),
    TRACE(32, PY_RGB, PY_COMPOSE, PY_MAIN),
};

static const struct profile_metadata metadata = {frames, traces, sizeof(frames) / sizeof(frames[0]),
						 sizeof(traces) / sizeof(traces[0]), 99};

/* A thread was seen n times with these stacks. */
struct sample {
	uint64_t native, python;
	size_t n;
	uint16_t syscall_nr; /* in the kernel; 0: not there */
};

#define PAGE_FAULT 0xffff

static struct script s; /* too large for the stack */

/* Takes samples of a worker that decodes a batch, and folds them. thread: the worker, or a process that
 * shares no pipe with the trainer. */
static struct profile *profile_of(const struct profile_metadata *notes, uint32_t thread,
				  const struct sample *samples, size_t n_samples)
{
	struct event events[200] = {0};
	struct analysis_input input = {.events = events, .profile = notes};
	struct profile *profile = NULL;

	script_begin(&s);
	for (uint64_t tick = 0; tick < 4000; tick += 1000)
		scene_batch(&s, 0, tick);
	script_off(&s, 300, 0, 10, 10, 1, TIMER_WOKE);
	script_off(&s, 300, 4000, 4010, 4010, 1, TIMER_WOKE);
	struct scene scene = scene_of(&s);
	const struct data_waits waits = {.loader = thread == WORKER ? LOADER_WORKERS : LOADER_DIESEL};
	const struct window window = {.begin_ns = at(0), .end_ns = at(4000)};
	const struct study study = {.input = &input,
				    .timeline = scene.timeline,
				    .roles = &scene.roles,
				    .waits = &waits,
				    .window = &window};

	for (size_t i = 0; i < n_samples; i++)
		for (size_t k = 0; k < samples[i].n; k++) {
			struct event *event = &events[input.n_events++];

			*event = (struct event){.type = EVENT_STACK,
						.tid = thread,
						.tgid = thread,
						.start_ns = at(2400),
						.end_ns = at(2400)};
			event->stack.native = samples[i].native;
			event->stack.python = samples[i].python;
			event->stack.in_kernel = samples[i].syscall_nr != 0;
			event->stack.syscall_nr = samples[i].syscall_nr ? samples[i].syscall_nr : 0xffff;
		}
	assert_int_equal(profile_find(&study, &profile), 0);
	scene_free(&scene);
	return profile;
}

static struct profile *profile_of_one(uint64_t native, uint64_t python, uint16_t syscall_nr)
{
	return profile_of(&metadata, WORKER, &(struct sample){native, python, 1, syscall_nr}, 1);
}

static void assert_text(const char *text, const char *wanted)
{
	assert_string_equal(text ? text : "", wanted);
}

/* Asserts what a report says of one sample. "": nothing. */
static void check_labels(uint64_t native, uint64_t python, uint16_t syscall_nr, const char *library,
			 const char *function, const char *stack)
{
	struct profile *profile = profile_of_one(native, python, syscall_nr);

	assert_non_null(profile);
	assert_text(profile->n_libraries ? profile->libraries[0].name : NULL, library);
	assert_text(profile->n_functions ? profile->functions[0].name : NULL, function);
	assert_text(profile->stacks[0].frames, stack);
	assert_int_equal(profile->n_unknown, !*library);
	profile_free(profile);
}

TEST(library_names_lose_versions_and_hashes)
{
	static const char *const names[][2] = {
	    {"libjpeg.so.62.3.0", "libjpeg"},
	    {"libjpeg-0e09f8ba.so.62.4.0", "libjpeg"},
	    {"_imaging.cpython-311-x86_64-linux-gnu.so", "_imaging"},
	    {"_rust.abi3.so", "_rust"},
	    {"libtorch_cpu.so", "libtorch_cpu"},
	    {"ld-linux-x86-64.so.2", "ld-linux-x86-64"},
	    {"libm-2.31.so", "libm-2.31"},
	    {"job", "job"},
	    {".so", ".so"},
	    {"", ""},
	    {"lib-deadbeef-more.so", "lib-deadbeef-more"},
	};
	static char longest[80];

	for (size_t i = 0; i <= sizeof(names) / sizeof(names[0]); i++) {
		bool cut = i == sizeof(names) / sizeof(names[0]);
		const struct profile_frame frame = {1, FRAME_NATIVE, cut ? longest : names[i][0], ""};
		const struct profile_trace trace = TRACE(2, 1);
		const struct profile_metadata one = {&frame, &trace, 1, 1, 99};

		memset(longest, 'a', sizeof(longest) - 1);
		struct profile *profile = profile_of(&one, WORKER, &(struct sample){.native = 2, .n = 1}, 1);
		longest[63] = '\0';
		assert_text(profile->n_libraries ? profile->libraries[0].name : NULL,
			    cut ? longest : names[i][1]);
		profile_free(profile);
	}
}

TEST(python_frames_come_before_what_they_call)
{
	struct profile *profile = profile_of_one(10, 20, 0);

	assert_string_equal(profile->functions[0].library, "libjpeg");
	assert_string_equal(profile->functions[0].caller, "ImageFile.py:ImageFile.load");
	profile_free(profile);
	check_labels(10, 20, 0, "libjpeg", "jpeg_idct_islow",
		     "job.py:main;ImageFile.py:ImageFile.load;libjpeg;libjpeg:jpeg_idct_islow");
	check_labels(11, 20, 0, "libjpeg", "", "job.py:main;ImageFile.py:ImageFile.load;libjpeg");
}

TEST(cxx_names_are_for_people)
{
	check_labels(9, 0, 0, "libtorch_cpu", "at::native::add", "libtorch_cpu:at::native::add");
}

TEST(the_interpreter_s_time_is_its_python_function_s)
{
	struct profile *profile = profile_of_one(13, 21, 0);

	assert_string_equal(profile->functions[0].library, "Image.py");
	profile_free(profile);
	check_labels(13, 21, 0, "Python", "Image.resize", "job.py:main;Image.py:Image.resize");
	check_labels(13, 0, 0, "Python", "_PyEval_EvalFrameDefault",
		     "Python:_PyEval_EvalFrameDefault;Python:_PyEval_EvalFrameDefault");
	profile = profile_of_one(13, 0, 0);
	assert_null(profile->libraries[0].caller);
	profile_free(profile);
}

TEST(time_in_the_kernel_is_linux_s)
{
	check_labels(12, 21, PAGE_FAULT, "Linux", "page faults",
		     "job.py:main;Image.py:Image.resize;_imaging;Linux:page faults");
	check_labels(12, 21, 1, "Linux", "writing",
		     "job.py:main;Image.py:Image.resize;_imaging;Linux:writing");
}

TEST(what_is_not_known)
{
	check_labels(0, 0, 0, "", "", "not known");
	check_labels(15, 4711, 0, "_imaging", "", "_imaging");
	check_labels(0, 20, 0, "Python", "ImageFile.load", "job.py:main;ImageFile.py:ImageFile.load");
}

TEST(groups_with_one_label_are_folded)
{
	static const struct sample samples[] = {
	    {10, 20, 50, 0}, {11, 20, 11, 0}, {12, 21, 15, 0}, {12, 20, 5, 0},
	    {15, 21, 2, 0},  {13, 20, 8, 0},  {0, 0, 9, 0},
	};
	struct profile *profile = profile_of(&metadata, WORKER, samples, 7);
	uint64_t sum = 0;

	assert_int_equal(profile->n_samples, 100);
	assert_int_equal(profile->n_unknown, 9);
	assert_int_equal(profile->n_libraries, 3);
	assert_string_equal(profile->libraries[0].name, "libjpeg");
	assert_int_equal(profile->libraries[0].n_samples, 61);
	assert_string_equal(profile->libraries[0].caller, "ImageFile.py:ImageFile.load");
	assert_string_equal(profile->libraries[1].name, "_imaging");
	assert_int_equal(profile->libraries[1].n_samples, 22);
	assert_string_equal(profile->libraries[1].caller, "Image.py:Image.resize");
	assert_string_equal(profile->libraries[2].name, "Python");
	assert_int_equal(profile->n_functions, 2);
	assert_string_equal(profile->functions[0].name, "jpeg_idct_islow");
	assert_int_equal(profile->functions[0].n_samples, 50);
	assert_string_equal(profile->functions[1].name, "ImageFile.load");
	assert_string_equal(profile->functions[1].library, "ImageFile.py");
	/* Two traces of the same text are one stack. */
	assert_int_equal(profile->n_stacks, 6);
	for (size_t i = 0; i < profile->n_stacks; i++) {
		sum += profile->stacks[i].n_samples;
		if (i)
			assert_true(profile->stacks[i].n_samples <= profile->stacks[i - 1].n_samples);
	}
	assert_int_equal(sum, 100);
	profile_free(profile);
}

static struct profile_images images_of(uint64_t native, uint64_t python)
{
	struct profile *profile = profile_of_one(native, python, 0);
	struct profile_images images = profile->images;

	profile_free(profile);
	return images;
}

TEST(image_decoders_are_recognised)
{
	struct profile_images found = images_of(10, 0);

	assert_true(found.n_decode == 1 && found.n_codec == 1);
	assert_int_equal(images_of(11, 24).n_decode, 1);
	found = images_of(14, 20); /* Pillow's calls, of any kind of image */
	assert_true(found.n_decode == 1 && found.n_codec == 0);
	assert_int_equal(images_of(12, 21).n_transform, 1);
	assert_int_equal(images_of(12, 22).n_transform, 1);
	assert_int_equal(images_of(12, 23).n_transform, 1);
	for (uint64_t python = 30; python <= 32; python++)
		assert_int_equal(images_of(9, python).n_transform, 1);
	found = images_of(12, 24);
	assert_true(found.n_decode == 1 && found.n_transform == 0);
	found = images_of(12, 25);
	assert_true(found.n_foreign == 1 && found.n_transform == 0);
	/* Neither decoding nor transforming is counted for these stacks. */
	for (size_t i = 0; i < 6; i++) {
		static const uint64_t stacks[][2] = {{9, 0}, {0, 26}, {12, 27}, {9, 28}, {13, 0}, {0, 0}};

		found = images_of(stacks[i][0], stacks[i][1]);
		assert_int_equal(found.n_decode + found.n_transform + found.n_foreign, 0);
	}
}

/* diesel_loader's workers share no pipe with the trainer. */
TEST(a_process_that_assembles_batches_is_diesel_loader_s_worker)
{
	for (uint64_t python = 0; python < 30; python++) {
		struct profile *profile = profile_of(&metadata, 300, &(struct sample){9, python, 1, 0}, 1);

		assert_int_equal(profile != NULL, python == 29);
		profile_free(profile);
	}
}

TEST(nothing_to_fold)
{
	static const struct profile_metadata none = {0};
	struct profile *profile = profile_of(&none, WORKER, &(struct sample){1, 2, 3, 0}, 1);

	assert_int_equal(profile->n_unknown, 3);
	profile_free(profile);
	assert_null(profile_of(&none, WORKER, NULL, 0));
	assert_null(profile_of(NULL, WORKER, &(struct sample){1, 2, 3, 0}, 1));
	profile_free(NULL);
}
