/* SPDX-License-Identifier: Apache-2.0 */
#include "libarchive.h"

#include <pthread.h>

#include "lib/library.h"

struct libarchive libarchive;

static struct error failure;

#define ROW(name) {"archive_" #name, &libarchive.name, true},

static const struct library_function functions[] = {{"archive_errno", &libarchive.error_number, true},
						    LIBARCHIVE_FUNCTIONS(ROW)};

static void load(void)
{
	library_load("libarchive.so.13", "libarchive13", functions, sizeof(functions) / sizeof(functions[0]),
		     &failure);
}

int libarchive_load(struct error *err)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, load);
	if (failure.code < 0 && err)
		*err = failure;
	return failure.code;
}
