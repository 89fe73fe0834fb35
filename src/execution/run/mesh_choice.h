// SPDX-License-Identifier: Apache-2.0
/*
 * `parallel: auto`: the mesh with the shortest predicted step on this machine.
 *
 * Every mesh that the run file allows is predicted (execution/run/prediction.h): ranks, unless they
 * are given, up to one per core; tensor and context degrees that divide the cuts of the run; up to
 * one stage per layer; all schedules. The fastest one that fits into the memory of the machine is
 * chosen; of those that are within 5 % of it, the one with the smallest crews. No bits depend on
 * the choice. Without a calibration of this machine, or on a GPU, ranks divide the batch only.
 */
#ifndef LS_EXECUTION_RUN_MESH_CHOICE_H
#define LS_EXECUTION_RUN_MESH_CHOICE_H

#include "execution/train/session.h"

/*
 * session: its plan is known; what its run file has as auto is open. parallel: as
 * ls_session_options.choose gives and wants it. why: two lines are appended, what was chosen, and
 * what was second and why.
 * Errors: those of ls_run_file_check when no mesh is possible.
 */
LS_MUST_CHECK ls_status ls_mesh_choose(const ls_session *session, ls_run_parallel *parallel, ls_text *why);

#endif
