/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "bpf/metadata.h"
#include "analyzer/explain/profile_find.h"

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

static struct profile_label label_of(uint64_t native, uint64_t python)
{
	const struct profile_group group = {.native = native, .python = python, .syscall_nr = 0xffff};
	struct profile_label label;

	profile_label(&metadata, &group, &label);
	return label;
}

static void test_library_names_lose_versions_and_hashes(void **state)
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
	char name[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		profile_library_name(names[i][0], name, sizeof(name));
		assert_string_equal(name, names[i][1]);
	}
	profile_library_name("libjpeg.so", name, 4);
	assert_string_equal(name, "lib");
}

static void test_python_frames_come_before_what_they_call(void **state)
{
	struct profile_label label = label_of(10, 20);

	assert_string_equal(label.frames,
			    "job.py:main;ImageFile.py:ImageFile.load;libjpeg;libjpeg:jpeg_idct_islow");
	assert_string_equal(label.library, "libjpeg");
	assert_string_equal(label.function, "jpeg_idct_islow");
	assert_string_equal(label.file, "libjpeg");
	assert_string_equal(label.caller, "ImageFile.py:ImageFile.load");
	label = label_of(11, 20);
	assert_string_equal(label.frames, "job.py:main;ImageFile.py:ImageFile.load;libjpeg");
	assert_string_equal(label.function, "");
}

static void test_cxx_names_are_for_people(void **state)
{
	struct profile_label label = label_of(9, 0);

	assert_string_equal(label.function, "at::native::add");
	assert_string_equal(label.frames, "libtorch_cpu:at::native::add");
}

static void test_the_interpreter_s_time_is_its_python_function_s(void **state)
{
	struct profile_label label = label_of(13, 21);

	assert_string_equal(label.frames, "job.py:main;Image.py:Image.resize");
	assert_string_equal(label.library, "Python");
	assert_string_equal(label.function, "Image.resize");
	assert_string_equal(label.file, "Image.py");
	label = label_of(13, 0);
	assert_string_equal(label.library, "Python");
	assert_string_equal(label.function, "_PyEval_EvalFrameDefault");
	assert_string_equal(label.frames, "Python:_PyEval_EvalFrameDefault;Python:_PyEval_EvalFrameDefault");
	assert_string_equal(label.caller, "");
}

static void test_time_in_the_kernel_is_linux_s(void **state)
{
	struct profile_group group = {.native = 12, .python = 21, .syscall_nr = 0xffff, .in_kernel = true};
	struct profile_label label;

	profile_label(&metadata, &group, &label);
	assert_string_equal(label.library, "Linux");
	assert_string_equal(label.function, "page faults");
	assert_string_equal(label.frames, "job.py:main;Image.py:Image.resize;_imaging;Linux:page faults");
	group.syscall_nr = 1;
	profile_label(&metadata, &group, &label);
	assert_string_equal(label.function, "writing");
}

static void test_what_is_not_known(void **state)
{
	struct profile_label label = label_of(0, 0);

	assert_string_equal(label.library, "");
	assert_string_equal(label.frames, "not known");
	label = label_of(15, 4711);
	assert_string_equal(label.library, "_imaging");
	assert_string_equal(label.frames, "_imaging");
	label = label_of(0, 20);
	assert_string_equal(label.library, "Python");
}

static void test_groups_with_one_label_are_folded(void **state)
{
	const struct profile_group groups[] = {
	    {.native = 10, .python = 20, .n_samples = 50, .syscall_nr = 0xffff},
	    {.native = 11, .python = 20, .n_samples = 11, .syscall_nr = 0xffff},
	    {.native = 12, .python = 21, .n_samples = 15, .syscall_nr = 0xffff},
	    {.native = 12, .python = 20, .n_samples = 5, .syscall_nr = 0xffff},
	    {.native = 15, .python = 21, .n_samples = 2, .syscall_nr = 0xffff},
	    {.native = 13, .python = 20, .n_samples = 8, .syscall_nr = 0xffff},
	    {.n_samples = 9, .syscall_nr = 0xffff},
	};
	struct profile *profile = calloc(1, sizeof(*profile));
	uint64_t sum = 0;

	assert_int_equal(profile_fold(&metadata, groups, 7, profile), 0);
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
	const struct profile_group group = {.native = native, .python = python, .n_samples = 1};
	struct profile_images images = {0};

	profile_images_add(&metadata, &group, &images);
	return images;
}

static void test_image_decoders_are_recognised(void **state)
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
	assert_true(profile_is_assembly(&metadata, 29));
	assert_false(profile_is_assembly(&metadata, 24));
	assert_false(profile_is_assembly(&metadata, 0));
}

static void test_nothing_to_fold(void **state)
{
	static const struct profile_metadata none = {0};
	const struct profile_group group = {.native = 1, .python = 2, .n_samples = 3};
	struct profile *profile = calloc(1, sizeof(*profile));

	assert_int_equal(profile_fold(&none, NULL, 0, profile), 0);
	assert_int_equal(profile->n_stacks, 0);
	profile_free(profile);
	profile = calloc(1, sizeof(*profile));
	assert_int_equal(profile_fold(&none, &group, 1, profile), 0);
	assert_int_equal(profile->n_unknown, 3);
	profile_free(profile);
	profile_free(NULL);
}

UNIT_TESTS(cmocka_unit_test(test_library_names_lose_versions_and_hashes),
	   cmocka_unit_test(test_python_frames_come_before_what_they_call),
	   cmocka_unit_test(test_cxx_names_are_for_people),
	   cmocka_unit_test(test_the_interpreter_s_time_is_its_python_function_s),
	   cmocka_unit_test(test_time_in_the_kernel_is_linux_s), cmocka_unit_test(test_what_is_not_known),
	   cmocka_unit_test(test_groups_with_one_label_are_folded),
	   cmocka_unit_test(test_image_decoders_are_recognised), cmocka_unit_test(test_nothing_to_fold))
