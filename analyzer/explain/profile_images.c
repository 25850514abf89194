/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the samples of preparing in which JPEG, PNG and WebP images are decoded or the decoded images
 * transformed. Names decide: of libraries, of Pillow's files and functions, of torchvision's classes. Code
 * with other names is not counted, whatever it does.
 *
 * Before Python 3.11 a frame has no class, so that torchvision's classes are not seen there; its functions
 * and Pillow's are.
 */
#include "profile_find.h"

#include <string.h>

#include "bpf/metadata.h"

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

static bool ends(const char *text, const char *with)
{
	size_t n = strlen(text), m = strlen(with);

	return n >= m && strcmp(text + n - m, with) == 0;
}

static bool is_one_of(const char *text, const char *const *names, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(text, names[i]) == 0)
			return true;
	return false;
}

/* Returns the method's name from "Image.resize", or, before Python 3.11, from "resize". */
static const char *method_of(const char *function)
{
	const char *dot = strrchr(function, '.');

	return dot ? dot + 1 : function;
}

static bool is_codec(const struct profile_frame *f)
{
	static const char *const pillow[] = {"JpegImagePlugin.py", "PngImagePlugin.py", "WebPImagePlugin.py"};
	static const char *const libraries[] = {"libjpeg", "libturbojpeg", "libpng", "libwebp"};

	if (f->kind >= FRAME_PYTHON)
		return is_one_of(f->library, pillow, LENGTH(pillow));
	for (size_t i = 0; i < LENGTH(libraries); i++)
		if (begins(f->library, libraries[i]))
			return true;
	return false;
}

/* Returns true for decoders of formats that dieseld does not decode. */
static bool is_other_codec(const struct profile_frame *f)
{
	static const char *const libraries[] = {"libtiff", "libopenjp2", "libavif", "libheif"};

	if (f->kind >= FRAME_PYTHON)
		return ends(f->library, "ImagePlugin.py") && !is_codec(f);
	for (size_t i = 0; i < LENGTH(libraries); i++)
		if (begins(f->library, libraries[i]))
			return true;
	return false;
}

static bool is_decoding(const struct profile_frame *f)
{
	static const char *const pillow[] = {"open", "load", "convert", "copy", "draft"};

	if (is_codec(f))
		return true;
	if (f->kind < FRAME_PYTHON)
		return false;
	if (strcmp(f->library, "ImageFile.py") == 0)
		return true;
	if (strcmp(f->library, "image.py") == 0) /* torchvision.io */
		return begins(f->function, "decode_") || strcmp(f->function, "read_image") == 0;
	return strcmp(f->library, "Image.py") == 0 &&
	       is_one_of(method_of(f->function), pillow, LENGTH(pillow));
}

/* Returns true if a class of torchvision's transforms is at work; *ret_n: the length of its name. */
static bool is_class_at_work(const struct profile_frame *f, size_t *ret_n)
{
	static const char *const files[] = {"transforms.py",       "_geometry.py",     "_misc.py",
					    "_type_conversion.py", "_color.py",        "_augment.py",
					    "_deprecated.py",      "_container.py",    "augmentation.py",
					    "autoaugment.py",      "_auto_augment.py", "_presets.py"};
	static const char *const methods[] = {"forward", "__call__", "transform", "_transform"};
	const char *dot = f->kind >= FRAME_PYTHON ? strchr(f->function, '.') : NULL;

	if (!dot || !is_one_of(f->library, files, LENGTH(files)) ||
	    !is_one_of(dot + 1, methods, LENGTH(methods)))
		return false;
	*ret_n = (size_t)(dot - f->function);
	return true;
}

static bool is_class(const struct profile_frame *f, size_t n, const char *name)
{
	return strlen(name) == n && strncmp(f->function, name, n) == 0;
}

/* Returns true for transforms that dieseld runs: the methods of _Builder in diesel_loader/recipe/plan.py. */
static bool is_transform(const struct profile_frame *f)
{
	static const char *const classes[] = {"RandomResizedCrop",
					      "Resize",
					      "CenterCrop",
					      "RandomHorizontalFlip",
					      "RandomVerticalFlip",
					      "ToTensor",
					      "PILToTensor",
					      "ToImage",
					      "ToPureTensor",
					      "ToDtype",
					      "ConvertImageDtype",
					      "Normalize",
					      "ColorJitter",
					      "Grayscale",
					      "RandomGrayscale",
					      "RandomCrop",
					      "RGB",
					      "ImageClassification"};
	static const char *const files[] = {"functional.py", "_functional_pil.py", "functional_pil.py",
					    "_functional_tensor.py", "functional_tensor.py"};
	static const char *const functions[] = {
	    "resize", "crop",      "resized_crop",  "center_crop", "hflip",
	    "vflip",  "to_tensor", "pil_to_tensor", "normalize",   "convert_image_dtype"};
	static const char *const pillow[] = {"resize", "crop", "transpose", "thumbnail", "reduce"};
	size_t n;

	if (f->kind < FRAME_PYTHON)
		return false;
	if (is_class_at_work(f, &n)) {
		for (size_t i = 0; i < LENGTH(classes); i++)
			if (is_class(f, n, classes[i]))
				return true;
		return false;
	}
	if (strcmp(f->library, "Image.py") == 0)
		return is_one_of(method_of(f->function), pillow, LENGTH(pillow));
	return is_one_of(f->library, files, LENGTH(files)) &&
	       is_one_of(f->function, functions, LENGTH(functions));
}

/* Returns true for a transform of torchvision that dieseld does not run, except containers of other
 * transforms. */
static bool is_foreign(const struct profile_frame *f)
{
	size_t n;

	return is_class_at_work(f, &n) && !is_transform(f) && !is_class(f, n, "Compose") &&
	       !is_class(f, n, "RandomApply") && !is_class(f, n, "Transform");
}

static bool any(const struct profile_frame *const *frames, size_t n,
		bool (*is)(const struct profile_frame *f))
{
	for (size_t i = 0; i < n; i++)
		if (is(frames[i]))
			return true;
	return false;
}

bool profile_is_assembly(const struct profile_metadata *metadata, uint64_t key)
{
	const struct profile_frame *frames[PROFILE_FRAMES_MAX];
	size_t n = profile_frames(metadata, key, frames);

	for (size_t i = 0; i < n; i++)
		if (frames[i]->kind >= FRAME_PYTHON && strcmp(frames[i]->library, "assembly.py") == 0 &&
		    strcmp(method_of(frames[i]->function), "batch") == 0)
			return true;
	return false;
}

void profile_images_add(const struct profile_metadata *metadata, const struct profile_group *group,
			struct profile_images *images)
{
	const struct profile_frame *frames[2 * PROFILE_FRAMES_MAX];
	size_t n = profile_frames(metadata, group->native, frames);

	n += profile_frames(metadata, group->python, frames + n);
	if (any(frames, n, is_other_codec))
		return;
	if (any(frames, n, is_decoding)) {
		images->n_decode += group->n_samples;
		images->n_codec += any(frames, n, is_codec) ? group->n_samples : 0;
	} else if (any(frames, n, is_foreign)) {
		images->n_foreign += group->n_samples;
	} else if (any(frames, n, is_transform)) {
		images->n_transform += group->n_samples;
	}
}
