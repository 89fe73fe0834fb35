// SPDX-License-Identifier: Apache-2.0
/* How the ranks of a session divide the model, and what each of them works with. */
#include "execution/parallel/data_parallel.h"
#include "execution/parallel/slices.h"
#include "execution/train/memory.h"
#include "execution/train/session_internal.h"
#include "model/plan_stage.h"

#include <string.h>

ls_mesh ls_session_mesh(const ls_session *session)
{
    const ls_run_parallel *parallel = &session->run.parallel;
    return (ls_mesh){.tensor = (uint32_t)parallel->tensor,
                     .pipeline = (uint32_t)parallel->pipeline,
                     .context = (uint32_t)parallel->context,
                     .expert = (uint32_t)parallel->expert};
}

uint64_t ls_session_rooms_at(const ls_session *session, uint32_t local_ranks)
{
    const uint64_t align = 64, bytes = ls_data_parallel_exchange_bytes(&session->layout, local_ranks);
    return (bytes + align - 1) / align * align;
}

uint64_t ls_session_exchange_bytes(const ls_session *session, uint32_t local_ranks)
{
    return ls_session_rooms_at(session, local_ranks) +
           ls_data_parallel_room_bytes(&session->plan, ls_session_mesh(session), local_ranks);
}

ls_pipeline ls_session_pipeline(const ls_session *session, const ls_run_parallel *parallel)
{
    const ls_run_train *train = &session->run.train;
    const int schedule = parallel->schedule;
    return (ls_pipeline){
        .kind = schedule == LS_RUN_ZERO_BUBBLE ? LS_PIPELINE_ZERO_BUBBLE : LS_PIPELINE_ONE_BY_ONE,
        .stages = (uint32_t)parallel->pipeline,
        .chunks = schedule == LS_RUN_INTERLEAVED && parallel->pipeline > 1 ? LS_RUN_CHUNKS : 1,
        .micro_batches = (uint32_t)(train->global_batch / train->leaves / train->micro_batch)};
}

static ls_plan_options member_options(const ls_session *session, ls_mesh mesh, uint32_t member)
{
    const ls_mesh_place place = ls_mesh_place_of(mesh, member);
    ls_plan_options options = session->plan.options;
    options.tensor_degree = mesh.tensor;
    options.tensor_member = place.tensor;
    options.context_degree = mesh.context;
    options.context_member = place.context;
    options.expert_degree = mesh.expert;
    options.expert_member = place.expert;
    return options;
}

ls_status ls_session_build_member_plan(const ls_session *session, ls_arena *arena, ls_mesh mesh,
                                       uint32_t member, ls_plan *plan_out)
{
    const ls_plan_options options = member_options(session, mesh, member);
    return ls_plan_build(arena, &session->config, &session->layout, &options, plan_out);
}

/* The plans of a rank, one per chunk of its stage. member: its number in its crew; *list_out is
 * untouched with a single stage. */
static ls_status build_plans_of(const ls_session *session, ls_arena *arena, uint32_t member,
                                const ls_pipeline_work **list_out, ls_plan **plans_out)
{
    const ls_mesh mesh = ls_session_mesh(session);
    const uint32_t stage = ls_mesh_place_of(mesh, member).pipeline;
    *plans_out = ls_arena_new(arena, ls_plan, session->pipeline.chunks);
    if (mesh.pipeline == 1) {
        return ls_session_build_member_plan(session, arena, mesh, member, *plans_out);
    }
    ls_plan whole = session->plan;
    whole.options = member_options(session, mesh, member);
    LS_TRY(ls_pipeline_check(&session->pipeline));
    *list_out = ls_pipeline_list(arena, &session->pipeline, stage);
    return ls_plan_build_stage(arena, &whole, &session->pipeline, stage, *list_out, *plans_out);
}

static uint64_t work_bytes_of(const ls_session *session, const ls_plan *plans)
{
    uint64_t bytes = 0;
    for (uint32_t chunk = 0; chunk < session->pipeline.chunks; chunk++) {
        const ls_memory_plan memory = ls_plan_memory(&plans[chunk], 1, 0, 0);
        bytes += memory.activations + memory.logits + memory.other;
    }
    return bytes;
}

static uint64_t unvisited_bytes_of(const ls_session *session, ls_arena *scratch, const ls_plan *plans)
{
    uint64_t bytes = 0;
    for (uint32_t chunk = 0; chunk < session->pipeline.chunks; chunk++) {
        bytes += ls_plan_unvisited_bytes(scratch, &plans[chunk]);
    }
    return bytes;
}

/* A bucket belongs to the first stage that makes gradients of it. */
static void note_stages(ls_session *session, const ls_plan *plans, uint32_t stage, bool *is_known)
{
    for (uint32_t bucket = 0; bucket < session->layout.bucket_count; bucket++) {
        for (uint32_t chunk = 0; chunk < session->pipeline.chunks && !is_known[bucket]; chunk++) {
            is_known[bucket] = ls_plan_last_gradient_step(&plans[chunk], bucket) > 0;
            session->stages[bucket] = is_known[bucket] ? stage : 0;
        }
    }
}

/* ---- what ranks exchange ---- */

/* Leaves, or with expert groups nodes of leaves, that the crews compute one after the other. */
static uint64_t rounds_of(const ls_session *session)
{
    const ls_mesh mesh = ls_session_mesh(session);
    const uint32_t leaves = (uint32_t)session->run.train.leaves, crew = ls_mesh_crew(mesh);
    uint64_t rounds = 0;
    if (!session->is_gang) {
        return 0; /* a rank does not know how many there are */
    }
    for (uint32_t leader = 0; leader < session->ranks; leader += crew) {
        const ls_leaf_range range = ls_mesh_leaves(mesh, leaves, session->ranks, leader);
        const uint32_t past = range.first + range.count;
        for (uint32_t leaf = range.first; leaf < past; rounds++) {
            leaf += ls_tree_next_node(leaf, past, mesh.expert).count;
        }
    }
    return rounds;
}

/* Adds what a member sends in a step that has its crew compute all leaves; to experts, if all get
 * as many visits. */
static void add_member_bytes(ls_session *session, const ls_plan *plans)
{
    const uint64_t rounds = rounds_of(session), width = (uint64_t)session->config.width;
    const uint64_t passes = rounds * session->pipeline.micro_batches * sizeof(float);
    const ls_plan *last = &plans[session->pipeline.chunks - 1];
    uint64_t *sent_bytes = session->sent_bytes;
    for (uint32_t chunk = 0; chunk < session->pipeline.chunks; chunk++) {
        const ls_plan *plan = &plans[chunk];
        const uint64_t stream = (uint64_t)plan->own_rows * plan->pieces * width;
        const uint64_t visits = (uint64_t)plan->rows * (uint64_t)session->config.experts_per_token;
        const uint64_t crossing = visits - visits / plan->options.expert_degree;
        for (uint32_t step = 0; step < plan->step_count; step++) {
            sent_bytes[LS_AXIS_TENSOR] += passes * ls_plan_tensor_floats_given(plan, step);
            sent_bytes[LS_AXIS_CONTEXT] += passes * ls_plan_context_floats_given(plan, step);
            sent_bytes[LS_AXIS_EXPERT] += passes * ls_plan_visit_floats(plan, step, crossing);
        }
        sent_bytes[LS_AXIS_PIPELINE] += plan->stage.out != LS_NONE ? passes * stream : 0;
        sent_bytes[LS_AXIS_PIPELINE] += plan->stage.din != LS_NONE ? passes * stream : 0;
    }
    /* the head's part of a tied table's gradient (executor/stage.h) */
    if (session->pipeline.stages > 1 && last->stage.out == LS_NONE && last->head_gradient != LS_NONE) {
        sent_bytes[LS_AXIS_PIPELINE] +=
            rounds * last->pieces * (uint64_t)last->config.vocab * width * sizeof(float);
    }
}

/* The owner of a slice reads it in the nodes of all crews but its own. */
static void add_data_bytes(ls_session *session)
{
    const ls_mesh mesh = ls_session_mesh(session);
    const uint32_t leaves = (uint32_t)session->run.train.leaves, crew = ls_mesh_crew(mesh);
    const uint32_t group = ls_run_file_group(&session->run);
    ls_leaf_range nodes[LS_TREE_NODES_MAX];
    uint64_t all = 0;
    for (uint32_t leader = 0; leader < session->ranks; leader += crew) {
        all += ls_tree_handover(leaves, group, ls_mesh_leaves(mesh, leaves, session->ranks, leader),
                                mesh.expert, nodes);
    }
    for (uint32_t rank = 0; rank < session->ranks; rank++) {
        const uint32_t own = ls_tree_handover(
            leaves, group, ls_mesh_leaves(mesh, leaves, session->ranks, rank), mesh.expert, nodes);
        for (uint32_t bucket = 0; bucket < session->layout.bucket_count; bucket++) {
            const ls_slice slice = ls_slice_of(&session->layout, bucket, session->ranks, rank);
            session->sent_bytes[LS_AXIS_DATA] += (all - own) * (uint64_t)slice.count * sizeof(float);
        }
    }
}

/* ---- plans of all members ---- */

static ls_status measure_work(ls_session *session)
{
    const ls_mesh mesh = ls_session_mesh(session);
    const uint32_t crew = ls_mesh_crew(mesh);
    bool *is_known = ls_arena_new(session->arena, bool, session->layout.bucket_count);
    session->stages = ls_arena_new(session->arena, uint32_t, session->layout.bucket_count);
    for (uint32_t member = 0; member < crew; member++) {
        ls_arena scratch = {0};
        const ls_pipeline_work *list = NULL;
        ls_plan *plans = NULL;
        const ls_status status = build_plans_of(session, &scratch, member, &list, &plans);
        const uint64_t bytes = status == LS_OK ? work_bytes_of(session, plans) : 0;
        session->work_bytes[member] = bytes;
        if (status == LS_OK) {
            session->work_bytes[member] -= unvisited_bytes_of(session, &scratch, plans);
            note_stages(session, plans, ls_mesh_place_of(mesh, member).pipeline, is_known);
            add_member_bytes(session, plans);
        }
        ls_arena_release(&scratch);
        LS_TRY(status);
        session->work_bytes_max = bytes > session->work_bytes_max ? bytes : session->work_bytes_max;
        session->work_bytes_crew += bytes;
    }
    return LS_OK;
}

ls_status ls_session_build_own_plans(ls_session *session, uint32_t member)
{
    session->pipeline = ls_session_pipeline(session, &session->run.parallel);
    session->work_bytes_max = session->work_bytes_crew = 0;
    session->stages = NULL;
    memset(session->sent_bytes, 0, sizeof session->sent_bytes);
    if (session->is_gang && session->run.train.leaves <= LS_LEAVES_MAX) {
        add_data_bytes(session);
    }
    session->work_bytes = ls_arena_new(session->arena, uint64_t, ls_mesh_crew(ls_session_mesh(session)));
    if (ls_mesh_crew(ls_session_mesh(session)) == 1) {
        session->own_plans = &session->plan;
        session->work_bytes[0] = work_bytes_of(session, &session->plan);
        session->work_bytes_max = session->work_bytes_crew = session->work_bytes[0];
        return LS_OK;
    }
    LS_TRY(measure_work(session));
    return build_plans_of(session, session->arena, member, &session->pipeline_list, &session->own_plans);
}

ls_status ls_session_bytes_divided(const ls_session *session, const ls_run_parallel *parallel,
                                   uint64_t *bytes_out)
{
    ls_arena scratch = {0};
    ls_session divided = *session;
    divided.arena = &scratch;
    divided.run.parallel = *parallel;
    ls_session_set_ranks(&divided);
    const ls_status status = ls_session_plan_ranks(&divided, 0);
    if (status == LS_OK) {
        *bytes_out = ls_session_bytes(&divided);
    }
    ls_arena_release(&scratch);
    return status;
}

/* ---- in words ---- */

/* Idle time of the pipeline as a fraction of a leaf's time, if all passes take the same time and
 * sending takes none. */
static double bubble_of(const ls_session *session)
{
    const ls_pipeline *pipeline = &session->pipeline;
    ls_pipeline_costs *costs = ls_arena_new(session->arena, ls_pipeline_costs, pipeline->stages);
    for (uint32_t stage = 0; stage < pipeline->stages; stage++) {
        costs[stage] = (ls_pipeline_costs){.forward_s = 1.0, .input_s = 1.0, .weight_s = 1.0};
    }
    const ls_pipeline_times times = ls_pipeline_run(session->arena, pipeline, costs, pipeline->stages);
    return times.idle_s / times.total_s;
}

json_t *ls_session_mesh_to_json(const ls_session *session)
{
    static const char *const schedules[] = {"1f1b", "interleaved", "zero-bubble"};
    const ls_mesh mesh = ls_session_mesh(session);
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:s}", "ranks", (int)session->ranks, "data",
                     (int)(session->ranks / ls_mesh_crew(mesh)), "expert", (int)mesh.expert, "pipeline",
                     (int)mesh.pipeline, "context", (int)mesh.context, "tensor", (int)mesh.tensor, "schedule",
                     schedules[session->run.parallel.schedule]);
}

/* "layers 0 to 2, half 1 of 2 of each". */
static void describe_member(const ls_session *session, const ls_plan *plans, uint32_t member, ls_text *text)
{
    const ls_mesh mesh = ls_session_mesh(session);
    const ls_mesh_place place = ls_mesh_place_of(mesh, member);
    char name[LS_MESH_NAME_BYTES], bytes[32];
    ls_text_printf(text, "  %-30s ", ls_mesh_name(mesh, member, NULL, name));
    for (uint32_t chunk = 0; chunk < session->pipeline.chunks; chunk++) {
        const ls_plan_options *o = &plans[chunk].options;
        const uint32_t count = o->layer_count > 0 ? o->layer_count : (uint32_t)session->config.layers;
        ls_text_printf(text, "%s%u",
                       chunk > 0                                   ? " and "
                       : count > 1 || session->pipeline.chunks > 1 ? "layers "
                                                                   : "layer ",
                       o->first_layer);
        if (count > 1) {
            ls_text_printf(text, " to %u", o->first_layer + count - 1);
        }
    }
    if (mesh.tensor > 1) {
        ls_text_printf(text, ", part %u of %u of each", place.tensor + 1, mesh.tensor);
    }
    if (mesh.context > 1) {
        ls_text_printf(text, ", part %u of %u of the tokens", place.context + 1, mesh.context);
    }
    if (mesh.expert > 1) {
        const uint32_t own = (uint32_t)session->config.experts / mesh.expert;
        ls_text_printf(text, ", experts %u to %u", place.expert * own, place.expert * own + own - 1);
    }
    ls_text_printf(text, "; %s of activations and tables\n",
                   ls_memory_text(session->work_bytes[member], bytes));
}

enum { DESCRIBED_MAX = 16 };

/* What the members of a crew compute; all crews are alike. */
static void describe_members(const ls_session *session, ls_text *text)
{
    const uint32_t crew = ls_mesh_crew(ls_session_mesh(session));
    for (uint32_t member = 0; member < crew && member < DESCRIBED_MAX; member++) {
        ls_arena scratch = {0};
        const ls_pipeline_work *list = NULL;
        ls_plan *plans = NULL;
        if (build_plans_of(session, &scratch, member, &list, &plans) == LS_OK) {
            describe_member(session, plans, member, text);
        } else {
            ls_error_clear(); /* they were built when the session was opened */
        }
        ls_arena_release(&scratch);
    }
    if (crew > DESCRIBED_MAX) {
        ls_text_printf(text, "  and %u more\n", crew - DESCRIBED_MAX);
    }
}

void ls_session_describe_mesh(const ls_session *session, ls_text *text)
{
    const ls_mesh mesh = ls_session_mesh(session);
    const uint32_t crew = ls_mesh_crew(mesh);
    if (crew == 1) {
        return;
    }
    ls_text_printf(text, "mesh    data %u", session->ranks / crew);
    if (mesh.expert > 1) {
        ls_text_printf(text, " x expert %u", mesh.expert);
    }
    ls_text_printf(text, " x pipeline %u x context %u x tensor %u = %u ranks; %u compute each leaf together",
                   mesh.pipeline, mesh.context, mesh.tensor, session->ranks, crew / mesh.expert);
    if (mesh.pipeline > 1) {
        ls_text_printf(text, "; stages idle for %.1f %% of a leaf of %u micro-batch%s",
                       100.0 * bubble_of(session), session->pipeline.micro_batches,
                       session->pipeline.micro_batches == 1 ? "" : "es");
    }
    ls_text_append(text, "\n");
    describe_members(session, text);
}
