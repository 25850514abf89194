/* SPDX-License-Identifier: Apache-2.0 */
#include "dataset/survey.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/container.h"
#include "lib/text.h"

/* Endings of image names, as in torchvision.datasets.folder.IMG_EXTENSIONS. */
static const char *const image_endings[] = {".jpg", ".jpeg", ".png",  ".ppm", ".bmp",
					    ".pgm", ".tif",  ".tiff", ".webp"};

/* Names of files that file managers leave, in addition to hidden files. */
static const char *const leavings[] = {"Thumbs.db", "ehthumbs.db", "desktop.ini",  "Icon\r",
				       "__MACOSX",  "@eaDir",      "$RECYCLE.BIN", "lost+found"};

#define N_OF(array) (sizeof(array) / sizeof((array)[0]))

static bool ends_in(const char *name, const char *suffix)
{
	size_t length = strlen(name), n = strlen(suffix);

	return length >= n && strcasecmp(name + length - n, suffix) == 0;
}

bool survey_is_hidden(const char *name, size_t length)
{
	for (size_t i = 0; i < N_OF(leavings); i++)
		if (strlen(leavings[i]) == length && strncmp(name, leavings[i], length) == 0)
			return true;
	return name[0] == '.';
}

/* Returns the length of the path up to its first hidden component; 0: none is hidden. All components are
 * checked, since an archive's folders need not come before their files. */
static size_t hidden_length(const char *path)
{
	for (size_t at = 0;; at++) {
		size_t length = strcspn(path + at, "/");

		if (survey_is_hidden(path + at, length))
			return at + length;
		at += length;
		if (!path[at])
			return 0;
	}
}

/* Counts a hidden file or folder. Returns 1 if the path is hidden, else 0. */
static int leave_hidden(struct survey *s, const char *path, struct error *err)
{
	size_t length = hidden_length(path);

	if (length == 0)
		return 0;
	if (path_set_add(&s->hidden, path, length) < 0)
		return error_errno(err, -ENOMEM, "%s", s->source);
	return 1;
}

static bool is_image(const char *name)
{
	for (size_t i = 0; i < N_OF(image_endings); i++)
		if (ends_in(name, image_endings[i]))
			return true;
	return false;
}

static int check_no_container(const struct survey *s, const char *path, struct error *err)
{
	const struct container *container = container_of_path(path);
	char text[200];

	return container
		   ? error_set(err, -EINVAL,
			       "%s contains %s (%s), but pack would make a sample of each file: %s, or add "
			       "--as-files to pack each file unchanged",
			       s->source, container->what,
			       text_printable(text, sizeof(text), path, strlen(path)), container->instead)
		   : 0;
}

static int keep_folder(struct survey *s, const char *name, struct error *err)
{
	size_t bytes = strlen(name) + 1;

	if (s->folders_bytes + bytes > s->folders_capacity) {
		size_t capacity = 2 * s->folders_capacity + bytes;
		char *grown = realloc(s->folders, capacity);

		if (!grown)
			return error_errno(err, -ENOMEM, "%s", s->source);
		s->folders = grown;
		s->folders_capacity = capacity;
	}
	memcpy(s->folders + s->folders_bytes, name, bytes);
	s->folders_bytes += bytes;
	return 1;
}

int survey_folder(struct survey *s, const char *path, struct error *err)
{
	int r;

	if (s->as_files)
		return 1;
	r = leave_hidden(s, path, err);
	if (r != 0)
		return r < 0 ? r : 0;
	return strchr(path, '/') || s->labels ? 1 : keep_folder(s, path, err);
}

static void note_example(char *text, size_t size, const char *path)
{
	if (!*text)
		text_printable(text, size, path, strlen(path));
}

void survey_leave_dataset(struct survey *s, const char *path)
{
	s->n_datasets++;
	note_example(s->dataset, sizeof(s->dataset), path);
}

/* Takes a class folder. Adding its name to the known classes shows whether it is one of them. */
static int take_class(struct survey *s, const char *path, size_t length, struct error *err)
{
	char text[200];
	int r = path_set_add(&s->classes, path, length);

	if (r > 0 && s->classes_of && (r = path_set_add(&s->known, path, length)) > 0)
		return error_set(err, -EINVAL, "the class %s%s of %s is not a class of %s",
				 s->labels ? "" : "folder ", text_printable(text, sizeof(text), path, length),
				 s->source, s->classes_of);
	return r < 0 ? error_errno(err, r, "%s", s->source) : 0;
}

/* Returns false if the file has no label. */
static bool take_label(struct survey *s, const char *path)
{
	s->class_name = s->labels->class_of(path, s->labels->context);
	if (s->class_name)
		return true;
	s->n_unlabelled++;
	note_example(s->unlabelled, sizeof(s->unlabelled), path);
	return false;
}

int survey_file(struct survey *s, const char *path, struct error *err)
{
	const char *class = path;
	size_t top = strchr(path, '/') ? strcspn(path, "/") : 0;
	bool image = is_image(path);
	int r = s->as_files ? 0 : leave_hidden(s, path, err);

	if (r != 0)
		return r < 0 ? r : 0;
	if (s->labels) {
		if (!take_label(s, path))
			return 0;
		class = s->class_name;
		top = strlen(class);
	}
	if (s->as_files)
		return 1;
	if (s->images_only && !(image && top)) {
		s->n_left++;
		return 0;
	}
	r = check_no_container(s, path, err);
	if (r == 0 && top)
		r = take_class(s, class, top, err);
	if (r < 0)
		return r;
	if (!image) {
		s->n_others++;
		note_example(s->other, sizeof(s->other), path);
	} else {
		s->n_images++;
		if (!top) {
			s->n_outside++;
			note_example(s->outside, sizeof(s->outside), path);
		}
	}
	return 1;
}

int survey_end(struct survey *s, struct error *err)
{
	size_t n_classes = s->classes.n;
	char text[200];

	if (s->labels)
		return s->labels->end(s->labels->context, err);
	for (size_t at = 0; n_classes && !s->drop_empty && at < s->folders_bytes;
	     at += strlen(s->folders + at) + 1) {
		const char *name = s->folders + at;
		int r = path_set_add(&s->classes, name, strlen(name));

		if (r < 0)
			return error_errno(err, r, "%s", s->source);
		if (r > 0 && s->classes_of && (r = path_set_add(&s->known, name, strlen(name))) == 0)
			note_example(s->empty, sizeof(s->empty), name);
		if (r > 0)
			return error_set(
			    err, -EINVAL,
			    "the class folder %s of %s has no samples, and leaving it out changes the "
			    "numbers of later classes. Remove it, or add --drop-empty to number only the "
			    "other classes. If it is a class of DATASET, add --classes-of DATASET",
			    text_printable(text, sizeof(text), name, strlen(name)), s->source);
	}
	return 0;
}

void survey_begin(struct survey *s, const char *source)
{
	survey_free(s);
	*s = (struct survey){.as_files = s->as_files,
			     .images_only = s->images_only,
			     .drop_empty = s->drop_empty,
			     .classes_of = s->classes_of,
			     .known = s->known,
			     .labels = s->labels,
			     .source = source};
}

void survey_free(struct survey *s)
{
	path_set_free(&s->hidden);
	path_set_free(&s->classes);
	free(s->folders);
	s->folders = NULL;
}
