/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* cmocka, with the headers it needs in front of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
