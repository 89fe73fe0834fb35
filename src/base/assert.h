// SPDX-License-Identifier: Apache-2.0
/*
 * Assertions: bugs stop the program, errors are returned.
 *
 * LS_ASSERT is cheap and on in every build: stopping beats training on with corrupt state.
 * LS_DCHECK is for full walks and hot loops; it is compiled out of Release builds.
 */
#ifndef LS_BASE_ASSERT_H
#define LS_BASE_ASSERT_H

_Noreturn void ls_assert_failed(const char *expression, const char *file, int line);

/* Text (borrowed, NULL: none) that a failed assertion on this thread also prints: whatever is
 * needed to replay the failure, such as the seed of a simulation. */
void ls_assert_set_note(const char *note);

#define LS_ASSERT(expression)                                                                                \
    (__builtin_expect(!!(expression), 1) ? (void)0 : ls_assert_failed(#expression, __FILE__, __LINE__))

#ifdef LS_DEBUG
#define LS_DCHECK(expression) LS_ASSERT(expression)
#else
#define LS_DCHECK(expression) ((void)sizeof(!!(expression)))
#endif

#endif
