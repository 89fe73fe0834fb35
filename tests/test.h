// SPDX-License-Identifier: Apache-2.0
/* What every unit test includes: cmocka in the order it wants its headers. */
#ifndef LS_TESTS_TEST_H
#define LS_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
