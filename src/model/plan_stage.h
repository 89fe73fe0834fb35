// SPDX-License-Identifier: Apache-2.0
/*
 * The stages of a pipeline: which layers each has, and their plans.
 *
 * Layers are cut into stages * chunks runs (model/pipeline.h), balanced by the FLOPs of the plan of
 * the whole model: the fullest run is as small as it can be, where the head counts for the last run
 * and each run has at least one layer. Among equal cuts, earlier runs get fewer layers, because
 * earlier stages hold more micro-batches. The cut is a function of the plan alone: all ranks, the
 * planner and a resumed run find the same one. Pure.
 */
#ifndef LS_MODEL_PLAN_STAGE_H
#define LS_MODEL_PLAN_STAGE_H

#include "model/pipeline.h"
#include "model/plan.h"

/*
 * Cuts the layers of `whole`, a plan of all layers, into `runs` runs: run r has layers
 * first_out[r] up to first_out[r + 1]. first_out: runs + 1 entries. scratch: for tables.
 * Errors: LS_ERR_INVALID when there are more runs than layers; first_out is then untouched.
 */
LS_MUST_CHECK ls_status ls_plan_cut_layers(ls_arena *scratch, const ls_plan *whole, uint32_t runs,
                                           uint32_t *first_out);

/*
 * Builds the plans of the chunks of stage `stage`. whole: the plan of all layers in one piece, as
 * training builds it; its options, with layers, slots and the split of the backward pass as the
 * pipeline needs them, are those of plans_out[pipeline->chunks]. list: of the stage
 * (ls_pipeline_list). A pipeline of one stage gives the plan of the whole again, with slots.
 * Errors: those of ls_pipeline_check, ls_plan_cut_layers and ls_plan_build.
 */
LS_MUST_CHECK ls_status ls_plan_build_stage(ls_arena *arena, const ls_plan *whole,
                                            const ls_pipeline *pipeline, uint32_t stage,
                                            const ls_pipeline_work *list, ls_plan *plans_out);

#endif
