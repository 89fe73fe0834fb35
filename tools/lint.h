// SPDX-License-Identifier: Apache-2.0
/*
 * Told to clang-tidy alone, by tools/lint.sh: ls_fail never returns LS_OK. The analyzer looks at
 * one file at a time, so without this it would follow every LS_TRY into a world where a call failed
 * and its caller went on.
 */
#ifndef LS_TOOLS_LINT_H
#define LS_TOOLS_LINT_H

#include "base/status.h"

#define ls_fail(status, ...)            ((void)ls_fail(status, __VA_ARGS__), (status))
#define ls_fail_errno(errno_value, ...) ((void)ls_fail_errno(errno_value, __VA_ARGS__), LS_ERR_IO)

#endif
