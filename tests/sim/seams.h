// SPDX-License-Identifier: Apache-2.0
/*
 * Mutations at the seams between the coordinator and its parts, put there by the linker's --wrap
 * (cmake/tests.cmake): the program itself has no switch for them.
 */
#ifndef LS_TESTS_SIM_SEAMS_H
#define LS_TESTS_SIM_SEAMS_H

#include "execution/team/reform.h"

/* From now on; NULL: the program as it is. Names that are not a mutation of a seam have no
 * effect. */
void seams_break(const char *mutation);

/* For the wrapper of ls_host_side_form. */
bool seams_forget_move(const ls_cut *cut, const ls_cut *held);

#endif
