/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A survey of a source selects the files that are samples, and counts the other contents. Its rules:
 *
 * - Hidden files and folders, and the leftovers of file managers, are left out.
 * - A source of containers, such as an LMDB or tar shards, is refused: its files are not samples.
 * - A class folder without a sample is refused: the numbers of later classes depend on it.
 * - In a source of images, other files and files outside class folders are taken, too, and counted.
 *
 * {0} is an empty survey. Not thread-safe.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dataset/path_set.h"
#include "lib/error.h"

/* Classes from elsewhere than the first folders of the paths. */
struct survey_labels {
	/* Returns the class of a file by its path in the source, or NULL: the file is left out. */
	const char *(*class_of)(const char *path, void *context);
	/* All files are known. An error ends the pack. */
	int (*end)(void *context, struct error *err);
	void *context;
};

struct survey {
	/* Set by the owner. */
	bool as_files;    /* each file is a sample, whatever its type */
	bool images_only; /* take only images in class folders, by the endings of names, as torchvision's
			     ImageFolder */
	bool drop_empty;  /* class folders without a sample do not count as classes */
	const char *classes_of; /* a dataset, for error texts, that has all classes, with samples or without;
				   or NULL */
	struct path_set known;  /* the classes of classes_of */
	const struct survey_labels *labels; /* NULL: classes are first folders */

	const char *source;                     /* path of the source, for error texts */
	uint64_t n_left;                        /* files left out by images_only */
	uint64_t n_datasets;                    /* datasets left out, including the one that is written */
	uint64_t n_images, n_others, n_outside; /* taken: images; other files; images in no class folder */
	uint64_t n_unlabelled;                  /* files left out by labels */
	const char *class_name;                 /* of the file that was taken last; with labels */
	char unlabelled[100];
	char other[100], outside[100], dataset[100]; /* one example each, for messages */

	char empty[100]; /* a class of classes_of that has a folder, and no sample */
	struct path_set
	    hidden; /* hidden files and folders that were left out, without the contents of the folders */
	struct path_set classes; /* class folders that have a sample */
	char *folders;           /* names of the top folders, each with a terminator */
	size_t folders_bytes, folders_capacity;
};

/* Returns true if a file or folder of this name is left out. */
bool survey_is_hidden(const char *name, size_t length);

/* Resets the survey for another source. */
void survey_begin(struct survey *s, const char *source);
void survey_free(struct survey *s);

/* Adds a folder, or a file, with this path in the source. 1: taken; 0: left out, a folder with all its
 * contents; -EINVAL: the source is no folder of samples; -ENOMEM. */
int survey_folder(struct survey *s, const char *path, struct error *err);
int survey_file(struct survey *s, const char *path, struct error *err);

/* Records that a dataset lies at this path and is left out. */
void survey_leave_dataset(struct survey *s, const char *path);

/* Completes the survey, after all files were added. -EINVAL: a class folder has no sample, and no other
 * dataset has the class. */
int survey_end(struct survey *s, struct error *err);
