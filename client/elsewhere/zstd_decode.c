/* SPDX-License-Identifier: Apache-2.0 */
#include "zstd_decode.h"

#include <dlfcn.h>
#include <errno.h>

#include "lib/zstd_frame.h"

/* Before glibc 2.34, these functions were in a library of their own, which libdiesel does not link. Every
 * Python process has loaded it; in a process without it, they are NULL. */
#pragma weak dlopen
#pragma weak dlsym
#pragma weak dlclose

/* Signatures that are unchanged since zstd 1.0. */
typedef size_t decompress_function(void *to, size_t capacity, const void *from, size_t bytes);
typedef unsigned is_error_function(size_t code);

int zstd_decode(void *plain, size_t plain_bytes, const void *stored, size_t stored_bytes)
{
	/* RTLD_NODELETE keeps the library loaded, so no global handle and no lock are needed. */
	void *library =
	    dlopen && dlsym && dlclose ? dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : NULL;
	decompress_function *decompress;
	is_error_function *is_error;
	uint64_t content;
	int r = -ENOSYS;

	if (!library)
		return r;
	decompress = (decompress_function *)dlsym(library, "ZSTD_decompress");
	is_error = (is_error_function *)dlsym(library, "ZSTD_isError");
	if (decompress && is_error &&
	    (zstd_frame_content(stored, stored_bytes, &content) < 0 || content != plain_bytes)) {
		r = -EBADMSG;
	} else if (decompress && is_error) {
		size_t n = decompress(plain, plain_bytes, stored, stored_bytes);

		r = is_error(n) || n != plain_bytes ? -EBADMSG : 0;
	}
	dlclose(library);
	return r;
}
