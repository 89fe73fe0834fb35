// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/gang_adopt.h"
#include "execution/elastic/gang_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "execution/diagnose/guard.h"
#include "execution/parallel/data_parallel.h"
#include "execution/parallel/slices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

/* Ranks that one host may come to have: ranks are asked for, and leaves bound them. */
static uint32_t places_of(const ls_gang_options *options)
{
    const ls_run_file *run = &options->session->run;
    uint64_t places = run->job.max_ranks < run->train.leaves ? run->job.max_ranks : run->train.leaves;
    places = places < LS_LOCAL_RANKS_MAX ? places : LS_LOCAL_RANKS_MAX;
    return places > options->ranks ? (uint32_t)places : options->ranks;
}

static bool take_left(ls_gang *gang)
{
    const ls_session *session = gang->options.session;
    const ls_gang_hosts *hosts = gang->options.hosts;
    const ls_gang_left_options options = {.run_dir = gang->options.run_dir,
                                          .identity = session->identity,
                                          .heard = gang->options.heard,
                                          .ranks = hosts ? gang->options.ranks : 0,
                                          .local_ranks = hosts ? hosts->local_ranks : 0};
    if (!ls_gang_find_left(&options, &gang->segment, &gang->left)) {
        return false;
    }
    if (!ls_segment_fits(&gang->segment, &session->layout)) {
        ls_segment_release(&gang->segment);
        return false;
    }
    gang->control = gang->segment.control;
    gang->gathered_step = UINT64_MAX;
    gang->adopted = gang->granted = true;
    atomic_store(&gang->wanted, gang->options.ranks);
    return true;
}

uint64_t ls_gang_granted(const ls_gang *gang)
{
    return atomic_load(&gang->control->until);
}

bool ls_gang_is_fresh(const ls_gang *gang)
{
    return gang->fresh;
}

bool ls_gang_is_adopted(const ls_gang *gang, uint64_t *finished_out)
{
    uint64_t finished = 0;
    for (uint32_t i = 0; i < gang->control->local_ranks; i++) {
        const uint64_t of_rank = atomic_load(&gang->control->slots[i].finished);
        finished = of_rank > finished ? of_rank : finished;
    }
    *finished_out = finished;
    return gang->adopted;
}

/* late: an epoch of a run that goes on without this host, whose ranks join it; 0: the run begins. */
static ls_status make_segment(ls_gang *gang, const ls_text *text, uint64_t late)
{
    const ls_gang_options *options = &gang->options;
    const ls_session *session = options->session;
    const uint32_t places = options->hosts ? options->ranks : places_of(options);
    const uint32_t local_ranks = options->hosts ? options->hosts->local_ranks : places;
    const ls_segment_plan plan = {
        .float_count = (uint64_t)session->layout.float_count,
        .frozen_floats = (uint64_t)(session->layout.parameter_floats - session->layout.float_count),
        .exchange_bytes = ls_data_parallel_exchange_bytes(&session->layout, local_ranks),
        .leaves = (uint32_t)session->run.train.leaves,
        .ranks = places,
        .local_ranks = local_ranks,
        .parts = late > 0 || !options->hosts ? options->ranks : 0,
        .local_parts = options->hosts ? 0 : options->ranks,
        .epoch = late > 0 ? late : 1,
        .lease_ns = (uint64_t)(session->run.job.lease_s * 1e9),
        .text = text->data,
        .text_bytes = text->bytes,
    };
    LS_TRY(ls_segment_create(&plan, &gang->segment));
    gang->control = gang->segment.control;
    if (late > 0) {
        ls_segment_begin_at(&gang->segment, options->heard);
        ls_control_fence(gang->control, late + 1, true);
    }
    return LS_OK;
}

/* The agents of several hosts may wait, and know where this trainer is. */
static bool may_ask(const ls_gang *gang)
{
    const ls_gang_hosts *hosts = gang->options.hosts;
    return hosts && gang->left && gang->left->cuts.newest.parts > 0 &&
           strcmp(strrchr(hosts->listen, ':'), ":0") != 0;
}

/* With an empty segment, which then has the steps that were granted. */
static bool ask_others(ls_gang *gang)
{
    const ls_gang_options *options = &gang->options;
    const ls_run_file *run = &options->session->run;
    const ls_gang_roll roll = {.listen = options->hosts->listen,
                               .token = options->hosts->token,
                               .run_dir = options->run_dir,
                               .segment = &gang->segment,
                               .log = gang->left,
                               .heard = options->heard,
                               .node_lease_ns = (uint64_t)(run->job.node_lease_s * 1e9),
                               .settings = ls_gang_reform_settings(gang)};
    uint64_t until = 0;
    ls_log_info("asking the other hosts of the trainer before this one whether they wait");
    const bool can = ls_gang_ask_others(&roll, &until);
    ls_control_grant(gang->control, until);
    return can;
}

ls_status ls_gang_create(const ls_gang_options *options, ls_gang **gang_out)
{
    const ls_session *session = options->session;
    ls_gang *gang = calloc(1, sizeof *gang);
    if (!gang) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a gang of %u ranks", options->ranks);
    }
    gang->options = *options;
    pthread_mutex_init(&gang->queue.lock, NULL);
    ls_text text = {0};
    ls_run_file_append(&session->run, &text);
    if (options->adopt && take_left(gang)) {
        ls_text_release(&text);
        *gang_out = gang;
        return LS_OK;
    }
    ls_status status = make_segment(gang, &text, 0);
    if (status == LS_OK && may_ask(gang) && ask_others(gang)) {
        const uint64_t until = ls_gang_granted(gang);
        ls_segment_release(&gang->segment);
        status = make_segment(gang, &text, gang->left->epoch);
        gang->adopted = gang->fresh = gang->granted = true;
        ls_control_grant(gang->control, until);
    }
    ls_text_release(&text);
    if (status != LS_OK) {
        free(gang->left);
        free(gang);
        return status;
    }
    gang->gathered_step = UINT64_MAX;
    *gang_out = gang;
    return LS_OK;
}

void ls_gang_state(ls_gang *gang, ls_queue *queue, const ls_layout *layout, ls_state *state_out)
{
    ls_segment_state(&gang->segment, LS_SEGMENT_NO_RANK, queue, layout, state_out);
}

void ls_gang_snapshot(ls_gang *gang, ls_queue *queue, const ls_layout *layout, ls_state *state_out)
{
    ls_gang_state(gang, queue, layout, state_out);
    state_out->parameters = gang->segment.snapshot[0];
    state_out->m = gang->segment.snapshot[1];
    state_out->v = gang->segment.snapshot[2];
}

bool ls_gang_keep(ls_gang *gang, uint64_t step)
{
    if (gang->options.hosts) {
        return false;
    }
    atomic_store(&gang->control->keep, step);
    return true;
}

/* ---- waiting ---- */

typedef struct step_wait {
    ls_gang *gang;
    uint64_t step;
} step_wait;

static bool look_for_stop(void *context)
{
    const step_wait *w = context;
    ls_gang *gang = w->gang;
    ls_gang_take_events(gang);
    if (gang->options.should_stop && atomic_load(&gang->control->stop) == 0 &&
        gang->options.should_stop(gang->options.stop_context)) {
        ls_gang_stop(gang);
    }
    return true;
}

/* Waits until the service thread has ended, which it does when all ranks have. */
static void join_service(ls_gang *gang)
{
    if (gang->launched) {
        pthread_join(gang->service, NULL);
        gang->launched = false;
        ls_gang_take_events(gang);
    }
}

static bool is_running_or_stopped(void *context)
{
    const step_wait *w = context;
    return atomic_load(&w->gang->running) || atomic_load(&w->gang->control->stop) != 0;
}

ls_status ls_gang_wait(ls_gang *gang)
{
    step_wait w = {.gang = gang};
    const ls_wait wait = {.abort = &gang->control->abort, .look = look_for_stop, .context = &w};
    if (ls_wait_for(&gang->control->news, is_running_or_stopped, &w, &wait) != LS_WAIT_DONE) {
        join_service(gang);
        return ls_control_aborted(gang->control);
    }
    if (gang->fresh && atomic_load(&gang->running)) {
        /* The state comes here with what is behind the steps that were granted. */
        LS_TRY(ls_gang_gather(gang, ls_gang_granted(gang)));
    }
    return atomic_load(&gang->running) ? LS_OK : LS_STOPPED;
}

/* When the step began: for a process that took over what another left, later than for the others. */
static uint64_t begin_of_step(const ls_gang *gang, const ls_rank_result *result)
{
    uint64_t begin_ns = result->begin_ns;
    for (uint32_t local = 0; local < gang->control->local_ranks; local++) {
        const ls_rank_slot *slot = ls_segment_slot(&gang->segment, local);
        const ls_rank_result *other = &slot->results[result->step % LS_RANK_RESULTS];
        if (atomic_load(&slot->finished) > result->step && other->step == result->step &&
            other->end_ns != 0 && other->begin_ns < begin_ns) {
            begin_ns = other->begin_ns;
        }
    }
    return begin_ns;
}

static ls_step_fault fault_of_ranks(const ls_gang *gang)
{
    ls_step_fault fault = {.leaf = LS_NO_LEAF, .rank = LS_NO_RANK};
    for (uint32_t local = 0; local < gang->control->local_ranks && fault.kind == LS_STEP_FAULT_NONE;
         local++) {
        const ls_step_fault *found = &ls_segment_slot(&gang->segment, local)->fault;
        fault = found->kind != LS_STEP_FAULT_NONE ? *found : fault;
    }
    return fault;
}

/* Any rank's will do: all come to the same, and some may be gone. */
static bool has_answer(void *context)
{
    const step_wait *w = context;
    bool gave_up = false;
    for (uint32_t local = 0; local < w->gang->control->local_ranks && !gave_up; local++) {
        gave_up = atomic_load(&ls_segment_slot(&w->gang->segment, local)->gave_up) == w->step + 1;
    }
    return gave_up || ls_control_with_result(w->gang->control, w->step) != NULL;
}

ls_status ls_gang_step(ls_gang *gang, uint64_t step, uint64_t until, ls_step_result *result_out,
                       double *seconds_out)
{
    LS_ASSERT(step < until);
    const uint64_t ahead = step + LS_RANK_RESULTS;
    gang->granted = true;
    ls_control_grant(gang->control, until < ahead ? until : ahead);
    step_wait w = {.gang = gang, .step = step};
    const ls_wait wait = {.abort = &gang->control->abort, .look = look_for_stop, .context = &w};
    if (!atomic_load(&gang->running) && atomic_load(&gang->control->abort) == 0) {
        return LS_STOPPED; /* told to stop before all were ready */
    }
    (void)look_for_stop(&w);
    const ls_wait_result waited = ls_wait_for(&gang->control->news, has_answer, &w, &wait);
    if (waited != LS_WAIT_DONE) {
        join_service(gang);
    }
    const ls_rank_slot *slot = ls_control_with_result(gang->control, step);
    if (!slot) {
        result_out->fault = fault_of_ranks(gang);
        return waited == LS_WAIT_DONE ? LS_STOPPED : ls_control_aborted(gang->control);
    }
    const ls_rank_result *result = &slot->results[step % LS_RANK_RESULTS];
    *result_out = result->result;
    *seconds_out = 1e-9 * (double)(result->end_ns - begin_of_step(gang, result));
    return LS_OK;
}

/* Those that hold parts: a place may be empty, or its process know nothing yet. */
static bool has_gathered(void *context)
{
    const step_wait *w = context;
    const ls_control *control = w->gang->control;
    ls_team team;
    ls_control_read_team(control, &team);
    for (uint32_t part = 0; part < team.local_parts; part++) {
        if (atomic_load(&ls_segment_slot(&w->gang->segment, team.holder[part])->gathered) !=
            atomic_load(&control->gather)) {
            return false;
        }
    }
    return team.local_parts > 0;
}

ls_status ls_gang_gather(ls_gang *gang, uint64_t step)
{
    if (!ls_gang_is_several(gang) || !gang->granted || gang->gathered_step == step) {
        return LS_OK;
    }
    step_wait w = {.gang = gang};
    const ls_wait wait = {.abort = &gang->control->abort};
    ls_control_gather(gang->control, atomic_load(&gang->control->gather) + 1);
    if (ls_wait_for(&gang->control->news, has_gathered, &w, &wait) != LS_WAIT_DONE) {
        join_service(gang);
        return ls_control_aborted(gang->control);
    }
    gang->gathered_step = step;
    return LS_OK;
}

/* ---- what there is to know ---- */

uint32_t ls_gang_ranks(const ls_gang *gang)
{
    return gang->options.ranks;
}

uint64_t ls_gang_epoch(const ls_gang *gang)
{
    return gang->control->epoch;
}

void ls_gang_append_team(const ls_gang *gang, json_t *object)
{
    ls_control_append_team(gang->control, object);
}

ls_gang_member ls_gang_member_at(const ls_gang *gang, uint32_t rank)
{
    const ls_preflight_member *member = ls_coordinator_member(gang->coordinator, rank);
    return (ls_gang_member){.rank = rank, .pid = member->pid, .host = member->host};
}

bool ls_gang_is_consistent(const ls_gang *gang, uint64_t *finished_out)
{
    const bool together = !ls_gang_is_several(gang) || !gang->granted;
    return ls_control_is_consistent(gang->control, finished_out) &&
           (together || *finished_out == gang->gathered_step);
}

bool ls_gang_lost(const ls_gang *gang, uint32_t *rank_out, double *silent_s_out)
{
    const int32_t rank = atomic_load(&gang->control->abort_rank);
    if (ls_gang_is_elastic(gang) || gang->launched || !gang->lost || rank < 0) {
        return false;
    }
    *rank_out = (uint32_t)rank;
    *silent_s_out = 1e-9 * (double)gang->lost_silent_ns;
    return true;
}

/* The sum over what the owner of `part` of `parts` owns, as the state is now. */
static ls_status sum_of_part(const ls_state *state, uint32_t parts, uint32_t part, ls_hash128 *sum_out)
{
    const ls_layout *layout = state->layout;
    ls_arena arena = {0};
    ls_flat_piece *pieces = ls_arena_new(&arena, ls_flat_piece, layout->bucket_count);
    uint32_t *buckets = ls_arena_new(&arena, uint32_t, layout->bucket_count);
    uint32_t count = 0;
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        const ls_slice slice = ls_slice_of(layout, b, parts, part);
        if (slice.count > 0) {
            buckets[count] = b;
            pieces[count++] = (ls_flat_piece){slice.offset, slice.count};
        }
    }
    ls_guard guard;
    const ls_status status = ls_guard_init(&guard, state, true, pieces, buckets, count);
    if (status == LS_OK) {
        ls_guard_take(&guard, 0);
        *sum_out = ls_guard_sum(&guard);
        ls_guard_release(&guard);
    }
    ls_arena_release(&arena);
    return status;
}

/* What the rank that holds part `part`, and no other, hashed behind its update of the last step; NULL: there is none. */
static const ls_rank_slot *slot_that_hashed(const ls_gang *gang, const ls_team *team, uint32_t part,
                                            uint64_t step)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        held += team->holder[i] == team->holder[part];
    }
    const ls_rank_slot *slot = ls_segment_slot(&gang->segment, team->holder[part]);
    const ls_rank_result *result = &slot->results[(step - 1) % LS_RANK_RESULTS];
    const bool is_its = held == 1 && step > team->first_step && atomic_load(&slot->finished) == step &&
                        result->step == step - 1 && result->result.state_is_hashed;
    return is_its ? slot : NULL;
}

ls_status ls_gang_check_state(ls_gang *gang, const ls_state *state, uint64_t step, ls_step_fault *fault_out)
{
    const bool is_here = gang->control->ranks == gang->control->local_ranks;
    ls_team team; /* the service thread may publish another one meanwhile */
    ls_control_read_team(gang->control, &team);
    for (uint32_t part = 0; is_here && step > 0 && part < team.local_parts; part++) {
        const ls_rank_slot *slot = slot_that_hashed(gang, &team, part, step);
        ls_hash128 now;
        if (!slot) {
            continue;
        }
        LS_TRY(sum_of_part(state, team.parts, part, &now));
        if (!ls_hash128_equal(now, slot->results[(step - 1) % LS_RANK_RESULTS].result.state_sum)) {
            const uint32_t rank = team.holder[part];
            *fault_out = (ls_step_fault){
                .kind = LS_STEP_FAULT_STATE, .leaf = LS_NO_LEAF, .bucket = LS_NO_BUCKET, .rank = rank};
            return ls_fail(LS_ERR_MISMATCH,
                           "step %" PRIu64
                           ": silent corruption: the weights or moments that rank %u (%s, process %d) owns "
                           "are no longer what its update of that step left. A stray write or failing memory "
                           "changed them; "
                           "the state can't be trusted",
                           step, rank, gang->control->host, (int)atomic_load(&slot->pid));
        }
    }
    return LS_OK;
}

uint32_t ls_gang_places(const ls_gang *gang)
{
    return gang->control->ranks;
}

ls_status ls_gang_resize(ls_gang *gang, uint32_t ranks)
{
    const uint64_t min = gang->options.session->run.job.min_ranks;
    if (!ls_gang_is_elastic(gang)) {
        return ls_fail(LS_ERR_INVALID,
                       "ranks of a run on several hosts can't be added or taken away one by one");
    }
    if (ranks < min || ranks < 1 || ranks > ls_gang_places(gang)) {
        return ls_fail(LS_ERR_INVALID,
                       "%u ranks: this run can have %" PRIu64
                       " to %u (job.min_ranks, job.max_ranks, train.leaves)",
                       ranks, min, ls_gang_places(gang));
    }
    atomic_store(&gang->wanted, ranks);
    return LS_OK;
}

ls_status ls_gang_leave(ls_gang *gang, uint32_t rank)
{
    if (!ls_gang_is_elastic(gang) || rank >= ls_gang_places(gang)) {
        return ls_fail(LS_ERR_INVALID, "there is no rank %u that could leave", rank);
    }
    atomic_store(&gang->leaver, (int32_t)rank + 1);
    return LS_OK;
}

void ls_gang_stop(ls_gang *gang)
{
    ls_control_stop(gang->control);
}

uint64_t ls_gang_memory(const ls_gang *gang)
{
    uint64_t bytes = ls_segment_touched_bytes(&gang->segment);
    for (uint32_t local = 0; local < gang->control->local_ranks; local++) {
        bytes += atomic_load(&ls_segment_slot(&gang->segment, local)->private_bytes);
    }
    return bytes;
}

void ls_gang_destroy(ls_gang *gang)
{
    if (!gang) {
        return;
    }
    gang->options.event = NULL; /* who would hear it may be gone */
    ls_control_quit(gang->control);
    join_service(gang);
    ls_coordinator_log *log = ls_cluster_take_log(gang->cluster);
    ls_cluster_close(gang->cluster);
    ls_starter_stop(gang->starter);
    ls_agent_destroy(gang->agent);
    ls_watch_destroy(gang->watch);
    ls_env_real_destroy(gang->env);
    ls_coordinator_log_close(log);
    ls_coordinator_destroy(gang->coordinator);
    free(gang->left);
    ls_segment_release(&gang->segment);
    ls_arena_release(&gang->arena);
    pthread_mutex_destroy(&gang->queue.lock);
    free(gang);
}
