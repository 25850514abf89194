/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Variables that own a resource for a scope: `_cleanup_(closep) int fd = -EBADF;` is closed at its end. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

static inline void freep(void *p)
{
	free(*(void **)p);
}

/* Closes the descriptor, and preserves errno. */
static inline void closep(const int *fd)
{
	if (*fd >= 0) {
		int saved = errno;

		close(*fd);
		errno = saved;
	}
}

static inline void fclosep(FILE **file)
{
	if (*file)
		fclose(*file);
}

/* Takes the value out of an owning variable, so that the scope no longer frees it. */
#define steal_pointer(p)                                                                                     \
	({                                                                                                   \
		__typeof__(p) stolen_ = (p);                                                                 \
		(p) = NULL;                                                                                  \
		stolen_;                                                                                     \
	})

static inline int steal_fd(int *fd)
{
	int stolen = *fd;

	*fd = -EBADF;
	return stolen;
}
