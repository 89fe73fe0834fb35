// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/describe.h"

#include "comm/transport/tree.h"
#include "config/run_file.h"
#include "execution/executor/executor.h"

#include <inttypes.h>
#include <stdio.h>

static void describe_activity(void *context, uint32_t activity, uint32_t number, char *text_out,
                              size_t text_bytes)
{
    const ls_plan *plan = context;
    text_out[0] = 0;
    const bool is_step = activity == LS_ACTIVITY_FORWARD || activity == LS_ACTIVITY_BACKWARD;
    if (!is_step || !plan || number >= plan->step_count) {
        return;
    }
    const ls_plan_step *step = &plan->steps[number];
    const ls_op *op = &plan->ops[step->op];
    const char *kind = ls_op_kind_name(op->kind);
    const char *part = step->phase == LS_PHASE_BACKWARD_WEIGHT ? ", weight gradient" : "";
    if (op->layer >= 0) {
        snprintf(text_out, text_bytes, "layer %d %s%s", op->layer, kind, part);
    } else {
        snprintf(text_out, text_bytes, "%s%s", kind, part);
    }
}

ls_describe ls_describe_plan(const ls_plan *plan, ls_mesh mesh)
{
    return (ls_describe){.mesh = mesh, .activity = describe_activity, .context = (void *)(uintptr_t)plan};
}

ls_status ls_describe_run(ls_arena *arena, const char *run_yaml, ls_describe *describe_out)
{
    ls_run_file run;
    LS_TRY(ls_run_file_load(run_yaml, NULL, 0, arena, &run));
    if (run.model.vocab == LS_AUTO_U64) {
        return ls_fail(
            LS_ERR_UNSUPPORTED,
            "cannot name operations: %s does not give the size of the vocabulary (model.vocab is auto)",
            run_yaml);
    }
    const ls_mesh mesh = {.tensor = (uint32_t)run.parallel.tensor,
                          .context = (uint32_t)run.parallel.context,
                          .pipeline = (uint32_t)run.parallel.pipeline,
                          .expert = (uint32_t)run.parallel.expert};
    if (mesh.pipeline > 1) {
        *describe_out = ls_describe_plan(NULL, mesh);
        return LS_OK;
    }
    ls_model_config config;
    ls_layout *layout = ls_arena_new(arena, ls_layout, 1);
    ls_plan *plan = ls_arena_new(arena, ls_plan, 1);
    LS_TRY(ls_run_file_model_config(&run, &config));
    ls_layout_build(arena, &config, layout);
    ls_plan_options options = ls_executor_plan_options(NULL, LS_F32);
    options.sequences = (int64_t)run.train.micro_batch;
    options.length = (int64_t)run.model.context;
    options.training = options.losses = true;
    options.recompute = (ls_recompute)run.train.recompute;
    options.tensor_cut = (uint32_t)run.train.tensor_cut;
    options.sequence_cut = (uint32_t)run.train.sequence_cut;
    LS_TRY(ls_plan_build(arena, &config, layout, &options, plan));
    *describe_out = ls_describe_plan(plan, mesh);
    return LS_OK;
}

ls_status ls_describe_leaves(ls_arena *arena, const char *run_yaml, uint32_t ranks, uint32_t *leaves_out)
{
    ls_run_file run;
    LS_TRY(ls_run_file_load(run_yaml, NULL, 0, arena, &run));
    const uint32_t leaves = (uint32_t)run.train.leaves;
    const ls_run_parallel *parallel = &run.parallel;
    const uint32_t crew =
        (uint32_t)(parallel->tensor * parallel->context * parallel->pipeline * parallel->expert);
    if (ranks < crew || leaves < ranks / crew) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "cannot tell what the recorded operations were for: %s sets train.leaves to %" PRIu32
                       ", which is less than the run's %" PRIu32 " ranks",
                       run_yaml, leaves, ranks);
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const uint32_t crews = ranks / crew, own = rank / crew;
        leaves_out[rank] = own < crews ? ls_leaves_of_rank(leaves, crews, own).count : 0;
    }
    return LS_OK;
}
