/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* Makes a readable name of a C++ function from its mangled name (Itanium ABI): namespaces, classes and the
 * function, without template arguments and parameters. "_ZN2at6native3addIfEEvRKNS_6TensorE" becomes
 * at::native::add. Other names, and names that cannot be parsed, are kept unchanged. A truncated name ends
 * in "...". Any bytes are safe. */
void cxx_name(const char *mangled, char *name, size_t size);
