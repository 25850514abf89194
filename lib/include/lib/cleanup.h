/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Scope-owned things: `_cleanup_(closep) int fd = -EBADF;` closes at the end of the scope. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

static inline void freep(void *p)
{
	free(*(void **)p);
}

/* close(2) that keeps errno. */
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

/* Takes the value out of an owning variable: the scope no longer frees it. */
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
