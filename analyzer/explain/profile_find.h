/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Samples of threads that prepare batches, in the window and outside of calls that fetch. The threads are
 * workers (after their start-up) and their hand-off threads, loader threads, diesel_loader's workers while
 * they make batches, and the trainer within its data waits if it loads by itself.
 */

#include <stdbool.h>

#include "analyzer/profile.h"
#include "bpf/metadata.h"
#include "analyzer/shares/study.h"

/* *ret_profile is NULL if there are no samples, or none of a thread that prepares data. -ENOMEM. */
int profile_find(const struct study *study, struct profile **ret_profile);

/* A distinct sample, and its number of occurrences. */
struct profile_group {
	uint64_t native, python; /* keys of traces; 0: none */
	uint64_t n_samples;
	uint16_t syscall_nr; /* 0xffff: not in a system call */
	bool in_kernel;
};

/* The texts for one group, each cut if it is too long. */
struct profile_label {
	char library[64];   /* "libjpeg", "Python", "Linux"; "": not known */
	char function[200]; /* "": not known */
	char file[128];     /* library of the function, or its Python file */
	char caller[256];   /* "": no Python frame */
	char frames[8192];
};

#define PROFILE_FRAMES_MAX METADATA_STACK_FRAMES_MAX

/* Returns true if the Python stack of this key shows diesel_loader making a batch. */
bool profile_is_assembly(const struct profile_metadata *metadata, uint64_t key);

/* Adds the group's samples to the kind of work on images that they belong to, if any. */
void profile_images_add(const struct profile_metadata *metadata, const struct profile_group *group,
			struct profile_images *images);

/* Readable names. Frames that the metadata lacks are left out. */
void profile_label(const struct profile_metadata *metadata, const struct profile_group *group,
		   struct profile_label *ret_label);

/* "libjpeg-0e09f8ba.so.62.4.0" -> "libjpeg", "_imaging.cpython-311-x86_64-linux-gnu.so" ->
 * "_imaging". */
void profile_library_name(const char *file, char *name, size_t size);

/* Sums the groups up by library, function and stack. -ENOMEM. */
int profile_fold(const struct profile_metadata *metadata, const struct profile_group *groups, size_t n_groups,
		 struct profile *profile);
