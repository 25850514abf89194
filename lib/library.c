/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/library.h"

#include <dlfcn.h>
#include <errno.h>

int library_load(const char *file, const char *package, const struct library_function *functions, size_t n,
		 struct error *err)
{
	void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	bool is_usable = library;

	for (size_t i = 0; is_usable && i < n; i++) {
		void *function = dlsym(library, functions[i].name);

		*(void **)functions[i].place =
		    function; /* POSIX allows storing a function pointer this way */
		is_usable = function || !functions[i].is_needed;
	}
	return is_usable ? 0
			 : error_set(err, -ELIBACC, "there is no usable %s%s%s", file,
				     package ? "; install the package " : "", package ? package : "");
}
