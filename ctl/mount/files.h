/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The file system's answers to the kernel. */

#define FUSE_USE_VERSION 314

#include <fuse3/fuse_lowlevel.h>

#include "tree.h"
#include "views.h"

struct files {
	struct tree tree;
	struct views *views;
	bool without_open; /* the kernel asks for no open() and release() any more */
	bool without_opendir;
};

/* Its user data is a struct files. */
extern const struct fuse_lowlevel_ops files_operations;
