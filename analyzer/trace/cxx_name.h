/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stddef.h>

/* A readable name of a C++ function, from its mangled one (Itanium ABI): namespaces, classes and the
 * function, without template arguments and parameters. "_ZN2at6native3addIfEEvRKNS_6TensorE" is
 * at::native::add. A name that is not understood, or not C++, stays as it is; a name that was cut off ends in
 * "...". Any bytes are safe. */
void cxx_name(const char *mangled, char *name, size_t size);
