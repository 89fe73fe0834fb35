// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/workers/workers_adopt.h"
#include "execution/elastic/workers/workers_internal.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/math.h"
#include "execution/integrity/guard.h"
#include "execution/parallel/data_parallel.h"
#include "execution/parallel/slices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- making ---- */

/* How many ranks one host may come to have: job.max_ranks, limited by the leaves, in whole
 * crews. */
static uint32_t slots_of(const ls_workers_options *options)
{
    const ls_run_file *run = &options->session->run;
    const uint64_t crew = ls_mesh_crew(ls_session_mesh(options->session));
    uint64_t slots =
        ls_min_u64(run->job.max_ranks, ls_run_file_rank_leaves(run, false) / run->parallel.expert * crew);
    slots = ls_min_u64(slots, LS_LOCAL_RANKS_MAX) / crew * crew;
    return slots > options->ranks ? (uint32_t)slots : options->ranks;
}

static bool take_left(ls_workers *workers)
{
    const ls_session *session = workers->options.session;
    const ls_workers_hosts *hosts = workers->options.hosts;
    const ls_workers_left_options options = {.run_dir = workers->options.run_dir,
                                             .identity = session->identity,
                                             .heard = workers->options.heard,
                                             .ranks = hosts ? workers->options.ranks : 0,
                                             .local_ranks = hosts ? hosts->local_ranks : 0};
    if (!ls_workers_find_left(&options, &workers->segment, &workers->left)) {
        return false;
    }
    if (!ls_segment_fits(&workers->segment, &session->layout)) {
        ls_segment_release(&workers->segment);
        return false;
    }
    workers->control = workers->segment.control;
    workers->gathered_step = UINT64_MAX;
    workers->adopted = workers->granted = true;
    atomic_store(&workers->wanted, workers->options.ranks);
    return true;
}

uint64_t ls_workers_granted(const ls_workers *workers)
{
    return atomic_load(&workers->control->until);
}

bool ls_workers_is_fresh(const ls_workers *workers)
{
    return workers->fresh;
}

bool ls_workers_is_adopted(const ls_workers *workers, uint64_t *finished_out)
{
    *finished_out = ls_workers_most_finished(workers->control);
    return workers->adopted;
}

/* late: the epoch of a run that continues without this host, whose ranks will join it; 0: the
 * run begins. */
static ls_status make_segment(ls_workers *workers, const ls_text *text, uint64_t late)
{
    const ls_workers_options *options = &workers->options;
    const ls_session *session = options->session;
    const uint32_t slots = options->hosts ? options->ranks : slots_of(options);
    const uint32_t local_ranks = options->hosts ? options->hosts->local_ranks : slots;
    const ls_segment_plan plan = {
        .float_count = (uint64_t)session->layout.float_count,
        .frozen_floats = (uint64_t)(session->layout.parameter_floats - session->layout.float_count),
        .exchange_bytes = ls_session_exchange_bytes(session, local_ranks),
        .leaves = (uint32_t)ls_max_u64(ls_run_file_rank_leaves(&session->run, false),
                                       ls_run_file_rank_leaves(&session->run, options->hosts != NULL)),
        .workers = session->run.train.local.steps > 0 ? (uint32_t)session->run.train.local.workers : 0,
        .group = ls_run_file_group(&session->run),
        .crew = ls_mesh_crew(ls_session_mesh(session)),
        .ranks = slots,
        .local_ranks = local_ranks,
        .parts = late > 0 || !options->hosts ? options->ranks : 0,
        .local_parts = options->hosts ? 0 : options->ranks,
        .epoch = late > 0 ? late : 1,
        .lease_ns = (uint64_t)(session->run.job.lease_s * 1e9),
        .text = text->data,
        .text_bytes = text->bytes,
    };
    LS_TRY(ls_segment_create(&plan, &workers->segment));
    workers->control = workers->segment.control;
    if (late > 0) {
        ls_segment_begin_at(&workers->segment, options->heard);
        ls_control_fence(workers->control, late + 1, true);
    }
    return LS_OK;
}

/* The agents of several hosts may be waiting, and know this trainer's address. */
static bool may_ask(const ls_workers *workers)
{
    const ls_workers_hosts *hosts = workers->options.hosts;
    return hosts && workers->left && workers->left->cuts.newest.parts > 0 &&
           strcmp(strrchr(hosts->listen, ':'), ":0") != 0;
}

/* Asks with an empty segment; grants in it what the others were granted. */
static bool ask_others(ls_workers *workers)
{
    const ls_workers_options *options = &workers->options;
    const ls_run_file *run = &options->session->run;
    const ls_workers_roll roll = {.listen = options->hosts->listen,
                                  .token = options->hosts->token,
                                  .run_dir = options->run_dir,
                                  .segment = &workers->segment,
                                  .log = workers->left,
                                  .heard = options->heard,
                                  .node_lease_ns = (uint64_t)(run->job.node_lease_s * 1e9),
                                  .settings = ls_workers_reform_settings(workers)};
    uint64_t until = 0;
    ls_log_info("asking the other hosts of the previous trainer whether they wait for a new one");
    const bool can = ls_workers_ask_others(&roll, &until);
    ls_control_grant(workers->control, until);
    return can;
}

/* The ranks of a stage share memory, and those of an expert group. */
static ls_status check_host(const ls_workers_options *options, const char *host, uint32_t ranks)
{
    const ls_run_parallel *parallel = &options->session->run.parallel;
    const uint32_t unit = ls_mesh_stage_ranks(ls_session_mesh(options->session));
    const uint64_t leaves = ls_run_file_rank_leaves(&options->session->run, false);
    if (options->session->run.train.local.steps > 0 && ranks > leaves) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s has %u ranks, but a worker can be divided between %" PRIu64
            " at most, its leaves (train.leaves / train.local.workers): change slots=N in the file "
            "of hosts (--local-ranks), and use --threads for more of its cores",
            host, ranks, leaves);
    }
    return ranks % unit == 0
               ? LS_OK
               : ls_fail(LS_ERR_INVALID,
                         "%s has %u rank%s, but ranks share memory in groups of %u (parallel.tensor %" PRIu64
                         " * context %" PRIu64 "%s), so a host has a multiple of %u: change slots=N in the "
                         "file of hosts (--local-ranks, --slots), or the mesh",
                         host, ranks, ranks == 1 ? "" : "s", unit, parallel->tensor, parallel->context,
                         parallel->expert > 1 ? ", with parallel.expert all that compute a leaf" : "", unit);
}

static ls_status check_hosts(const ls_workers_options *options)
{
    const ls_workers_hosts *hosts = options->hosts;
    if (!hosts) {
        return LS_OK;
    }
    const ls_run_local *local = &options->session->run.train.local;
    if (local->steps > 0 && hosts->others && hosts->other_count >= local->workers) {
        return ls_fail(
            LS_ERR_INVALID,
            "the run has %u hosts, but each needs a worker to itself (train.local.workers); use at "
            "most %" PRIu64 " hosts, or another train.local.workers in a new run",
            hosts->other_count + 1, local->workers);
    }
    LS_TRY(check_host(options, "this host", hosts->local_ranks));
    for (uint32_t i = 0; hosts->others && i < hosts->other_count; i++) {
        const char *name = hosts->others[i].name;
        LS_TRY(check_host(options, ls_arena_printf(options->session->arena, "host %s", name),
                          (uint32_t)hosts->others[i].slots));
    }
    return LS_OK;
}

ls_status ls_workers_create(const ls_workers_options *options, ls_workers **workers_out)
{
    const ls_session *session = options->session;
    LS_TRY(check_hosts(options));
    ls_workers *workers = calloc(1, sizeof *workers);
    if (!workers) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to manage %u ranks", options->ranks);
    }
    workers->options = *options;
    pthread_mutex_init(&workers->queue.lock, NULL);
    ls_text text = {0};
    ls_run_file_append(&session->run, &text);
    if (options->adopt && take_left(workers)) {
        ls_text_release(&text);
        *workers_out = workers;
        return LS_OK;
    }
    ls_status status = make_segment(workers, &text, 0);
    if (status == LS_OK && may_ask(workers) && ask_others(workers)) {
        const uint64_t until = ls_workers_granted(workers);
        ls_segment_release(&workers->segment);
        status = make_segment(workers, &text, workers->left->epoch);
        workers->adopted = workers->fresh = workers->granted = true;
        ls_control_grant(workers->control, until);
    }
    ls_text_release(&text);
    if (status != LS_OK) {
        free(workers->left);
        free(workers);
        return status;
    }
    workers->gathered_step = UINT64_MAX;
    *workers_out = workers;
    return LS_OK;
}

void ls_workers_state(ls_workers *workers, ls_queue *queue, const ls_layout *layout, ls_state *state_out)
{
    ls_segment_state(&workers->segment, LS_SEGMENT_NO_RANK, queue, layout, state_out);
    state_out->residual_count = ls_run_file_residuals(&workers->options.session->run);
}

void ls_workers_snapshot(ls_workers *workers, ls_queue *queue, const ls_layout *layout, ls_state *state_out)
{
    ls_workers_state(workers, queue, layout, state_out);
    state_out->parameters = workers->segment.snapshot[0];
    state_out->m = workers->segment.snapshot[1];
    state_out->v = workers->segment.snapshot[2];
}

bool ls_workers_keep(ls_workers *workers, uint64_t step)
{
    if (workers->options.hosts) {
        return false;
    }
    atomic_store(&workers->control->keep, step);
    return true;
}

/* ---- waiting ---- */

typedef struct step_wait {
    ls_workers *workers;
    bool (*met)(void *context); /* what is waited for */
    uint64_t step;
} step_wait;

/* All ranks are parked. If what is waited for has happened nonetheless, the state is still wanted
 * as it is, and a checkpoint is brought in the next wait. */
static bool look_for_restore(void *context)
{
    step_wait *w = context;
    ls_workers *workers = w->workers;
    const uint64_t asked = atomic_load(&workers->restore_asked);
    uint64_t step = 0;
    ls_workers_take_events(workers);
    if (asked == atomic_load(&workers->restored) || w->met(w)) {
        return true;
    }
    const ls_status status = workers->options.restore(workers->options.restore_context, &step);
    if (status != LS_OK) {
        ls_control_abort(workers->control, status, -1, ls_error_text());
        return true;
    }
    atomic_store(&workers->restored_step, step);
    atomic_store(&workers->restored, asked);
    return true;
}

static bool look_for_stop(void *context)
{
    const step_wait *w = context;
    ls_workers *workers = w->workers;
    (void)look_for_restore(context);
    if (workers->options.should_stop && atomic_load(&workers->control->stop) == 0 &&
        workers->options.should_stop(workers->options.stop_context)) {
        ls_workers_stop(workers);
    }
    return true;
}

/* Waits until the service thread has ended, which it does once all ranks have. */
static void join_service(ls_workers *workers)
{
    if (workers->launched) {
        pthread_join(workers->service, NULL);
        workers->launched = false;
        ls_workers_take_events(workers);
    }
}

static bool is_running_or_stopped(void *context)
{
    const step_wait *w = context;
    return atomic_load(&w->workers->running) || atomic_load(&w->workers->control->stop) != 0;
}

ls_status ls_workers_wait(ls_workers *workers)
{
    step_wait w = {.workers = workers, .met = is_running_or_stopped};
    const ls_wait wait = {.abort = &workers->control->abort, .look = look_for_stop, .context = &w};
    if (ls_wait_for(&workers->control->news, is_running_or_stopped, &w, &wait) != LS_WAIT_DONE) {
        join_service(workers);
        return ls_control_aborted(workers->control);
    }
    if (workers->fresh && atomic_load(&workers->running)) {
        /* This host has no state yet; it is brought here once the steps that were granted are
         * finished. */
        LS_TRY(ls_workers_gather(workers, ls_workers_granted(workers)));
    }
    return atomic_load(&workers->running) ? LS_OK : LS_STOPPED;
}

/* When the step began. A rank that took over what another left began later than the others. */
static uint64_t begin_of_step(const ls_workers *workers, const ls_rank_result *result)
{
    uint64_t begin_ns = result->begin_ns;
    for (uint32_t local = 0; local < workers->control->local_ranks; local++) {
        const ls_rank_slot *slot = ls_segment_slot(&workers->segment, local);
        const ls_rank_result *other = &slot->results[result->step % LS_RANK_RESULTS];
        if (atomic_load(&slot->finished) > result->step && other->step == result->step &&
            other->end_ns != 0 && other->begin_ns < begin_ns) {
            begin_ns = other->begin_ns;
        }
    }
    return begin_ns;
}

static ls_step_fault fault_of_ranks(const ls_workers *workers)
{
    ls_step_fault fault = {.leaf = LS_NO_LEAF, .rank = LS_NO_RANK};
    for (uint32_t local = 0; local < workers->control->local_ranks && fault.kind == LS_STEP_FAULT_NONE;
         local++) {
        const ls_step_fault *found = &ls_segment_slot(&workers->segment, local)->fault;
        fault = found->kind != LS_STEP_FAULT_NONE ? *found : fault;
    }
    return fault;
}

/* The result of any rank will do: all are equal, and some ranks may be gone. The step that ranks
 * gave up is an earlier one while they do steps again. */
static bool has_answer(void *context)
{
    const step_wait *w = context;
    bool gave_up = false;
    for (uint32_t local = 0; local < w->workers->control->local_ranks && !gave_up; local++) {
        const uint64_t step = atomic_load(&ls_segment_slot(&w->workers->segment, local)->gave_up);
        gave_up = step > 0 && step <= w->step + 1;
    }
    return gave_up || ls_control_with_result(w->workers->control, w->step) != NULL;
}

ls_status ls_workers_step(ls_workers *workers, uint64_t step, uint64_t until, ls_step_result *result_out,
                          double *seconds_out)
{
    LS_ASSERT(step < until);
    const uint64_t ahead = step + LS_RANK_RESULTS;
    workers->granted = true;
    /* ranks that enter the step, even if they give it up, drop what was gathered before it */
    workers->gathered_step = UINT64_MAX;
    ls_control_grant(workers->control, ls_min_u64(until, ahead));
    step_wait w = {.workers = workers, .met = has_answer, .step = step};
    const ls_wait wait = {.abort = &workers->control->abort, .look = look_for_stop, .context = &w};
    if (!atomic_load(&workers->running) && atomic_load(&workers->control->abort) == 0) {
        return LS_STOPPED; /* told to stop before all ranks were ready */
    }
    (void)look_for_stop(&w);
    const ls_wait_result waited = ls_wait_for(&workers->control->news, has_answer, &w, &wait);
    if (waited != LS_WAIT_DONE) {
        join_service(workers);
    }
    const ls_rank_slot *slot = ls_control_with_result(workers->control, step);
    if (!slot) {
        result_out->fault = fault_of_ranks(workers);
        return waited == LS_WAIT_DONE ? LS_STOPPED : ls_control_aborted(workers->control);
    }
    const ls_rank_result *result = &slot->results[step % LS_RANK_RESULTS];
    *result_out = result->result;
    *seconds_out = 1e-9 * (double)(result->end_ns - begin_of_step(workers, result));
    return LS_OK;
}

/* Only ranks that hold parts take part in a gather: a slot may be empty, or its process not in a
 * team yet. */
static bool has_gathered(void *context)
{
    const step_wait *w = context;
    const ls_control *control = w->workers->control;
    ls_team team;
    ls_control_read_team(control, &team);
    for (uint32_t part = 0; part < team.local_parts; part++) {
        if (atomic_load(&ls_segment_slot(&w->workers->segment, team.holder[part])->gathered) !=
            atomic_load(&control->gather)) {
            return false;
        }
    }
    return team.local_parts > 0;
}

ls_status ls_workers_gather(ls_workers *workers, uint64_t step)
{
    if (!ls_workers_is_several(workers) || !workers->granted || workers->gathered_step == step) {
        return LS_OK;
    }
    step_wait w = {.workers = workers, .met = has_gathered};
    const ls_wait wait = {.abort = &workers->control->abort, .look = look_for_restore, .context = &w};
    ls_control_gather(workers->control, atomic_load(&workers->control->gather) + 1);
    if (ls_wait_for(&workers->control->news, has_gathered, &w, &wait) != LS_WAIT_DONE) {
        join_service(workers);
        return ls_control_aborted(workers->control);
    }
    workers->gathered_step = step;
    return LS_OK;
}

/* ---- what there is to know ---- */

uint32_t ls_workers_ranks(const ls_workers *workers)
{
    return workers->options.ranks;
}

uint64_t ls_workers_epoch(const ls_workers *workers)
{
    return workers->control->epoch;
}

void ls_workers_append_team(const ls_workers *workers, json_t *object)
{
    ls_control_append_team(workers->control, object);
}

ls_workers_member ls_workers_member_at(const ls_workers *workers, uint32_t rank)
{
    const ls_preflight_member *member = ls_coordinator_member(workers->coordinator, rank);
    return (ls_workers_member){.rank = rank, .pid = member->pid, .host = member->host};
}

bool ls_workers_is_consistent(const ls_workers *workers, uint64_t *finished_out)
{
    const bool together = !ls_workers_is_several(workers) || !workers->granted;
    return ls_control_is_consistent(workers->control, finished_out) &&
           (together || *finished_out == workers->gathered_step);
}

bool ls_workers_lost(const ls_workers *workers, uint32_t *rank_out, double *silent_s_out)
{
    const int32_t rank = atomic_load(&workers->control->abort_rank);
    if (ls_workers_is_elastic(workers) || workers->launched || !workers->lost || rank < 0) {
        return false;
    }
    *rank_out = (uint32_t)rank;
    *silent_s_out = 1e-9 * (double)workers->lost_silent_ns;
    return true;
}

/* The hash of what the owner of `part` of `parts` owns, as the state is now. */
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

/* The slot of the rank that alone holds `part` and hashed its state after the update of the last
 * step. NULL: there is none. */
static const ls_rank_slot *slot_that_hashed(const ls_workers *workers, const ls_team *team, uint32_t part,
                                            uint64_t step)
{
    uint32_t held = 0;
    for (uint32_t i = 0; i < team->local_parts; i++) {
        held += team->holder[i] == team->holder[part];
    }
    const ls_rank_slot *slot = ls_segment_slot(&workers->segment, team->holder[part]);
    const ls_rank_result *result = &slot->results[(step - 1) % LS_RANK_RESULTS];
    const bool is_its = held == 1 && step > team->first_step && atomic_load(&slot->finished) == step &&
                        result->step == step - 1 && result->result.state_is_hashed;
    return is_its ? slot : NULL;
}

ls_status ls_workers_check_state(ls_workers *workers, const ls_state *state, uint64_t step,
                                 ls_step_fault *fault_out)
{
    const bool is_here = workers->control->ranks == workers->control->local_ranks;
    ls_team team; /* the service thread may publish another team meanwhile */
    ls_control_read_team(workers->control, &team);
    for (uint32_t part = 0; is_here && step > 0 && part < team.local_parts; part++) {
        const ls_rank_slot *slot = slot_that_hashed(workers, &team, part, step);
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
                           ": silent corruption: the weights or moments that rank %u (%s, process %d) holds "
                           "have changed since its last update. A stray write or failing memory changed "
                           "them; the state cannot be trusted",
                           step, rank, workers->control->host, (int)atomic_load(&slot->pid));
        }
    }
    return LS_OK;
}

void ls_workers_settle(ls_workers *workers)
{
    enum { PATIENCE_MS = 500 };
    const struct timespec ms = {.tv_nsec = 1000000};
    for (int i = 0; i < PATIENCE_MS && atomic_load(&workers->recovers); i++) {
        nanosleep(&ms, NULL);
    }
    ls_workers_take_events(workers);
}

uint32_t ls_workers_slots(const ls_workers *workers)
{
    return workers->control->ranks;
}

ls_status ls_workers_resize(ls_workers *workers, uint32_t ranks)
{
    const uint64_t min = workers->options.session->run.job.min_ranks;
    if (!ls_workers_is_elastic(workers)) {
        return ls_fail(LS_ERR_INVALID,
                       "the number of ranks of a run on several hosts cannot be changed while it runs");
    }
    if (ranks < min || ranks < 1 || ranks > ls_workers_slots(workers)) {
        return ls_fail(LS_ERR_INVALID,
                       "the run cannot have %u ranks: %" PRIu64
                       " to %u are allowed (job.min_ranks, job.max_ranks, train.leaves)",
                       ranks, min, ls_workers_slots(workers));
    }
    if (ranks % workers->control->crew != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "the run cannot have %u ranks: %u ranks compute each leaf together "
                       "(parallel.tensor * context * pipeline * expert), so it must be a multiple of %u",
                       ranks, workers->control->crew, workers->control->crew);
    }
    atomic_store(&workers->wanted, ranks);
    return LS_OK;
}

ls_status ls_workers_leave(ls_workers *workers, uint32_t rank)
{
    if (!ls_workers_is_elastic(workers) || rank >= ls_workers_slots(workers)) {
        return ls_fail(
            LS_ERR_INVALID,
            "rank %u cannot leave: it does not exist, or the run cannot change its number of ranks", rank);
    }
    atomic_store(&workers->leaver, (int32_t)rank + 1);
    return LS_OK;
}

void ls_workers_stop(ls_workers *workers)
{
    ls_control_stop(workers->control);
}

uint64_t ls_workers_memory(const ls_workers *workers)
{
    uint64_t bytes = ls_segment_touched_bytes(&workers->segment);
    for (uint32_t local = 0; local < workers->control->local_ranks; local++) {
        bytes += atomic_load(&ls_segment_slot(&workers->segment, local)->private_bytes);
    }
    return bytes;
}

bool ls_workers_rank(const ls_workers *workers, uint32_t local, uint64_t step, ls_step_result *result_out,
                     uint64_t *private_bytes_out)
{
    const ls_rank_slot *slot = ls_segment_slot(&workers->segment, local);
    const ls_rank_result *result = &slot->results[step % LS_RANK_RESULTS];
    if (atomic_load(&slot->finished) <= step || result->step != step || result->end_ns == 0) {
        return false;
    }
    *result_out = result->result;
    *private_bytes_out = atomic_load(&slot->private_bytes);
    return true;
}

void ls_workers_destroy(ls_workers *workers)
{
    if (!workers) {
        return;
    }
    workers->options.event = NULL; /* its context may be gone */
    ls_control_quit(workers->control);
    join_service(workers);
    ls_coordinator_log *log = ls_cluster_take_log(workers->cluster);
    ls_cluster_close(workers->cluster);
    ls_starter_stop(workers->starter);
    ls_agent_destroy(workers->agent);
    ls_watchdog_destroy(workers->watch);
    ls_env_real_destroy(workers->env);
    ls_coordinator_log_close(log);
    ls_coordinator_destroy(workers->coordinator);
    free(workers->left);
    ls_segment_release(&workers->segment);
    ls_arena_release(&workers->arena);
    pthread_mutex_destroy(&workers->queue.lock);
    free(workers);
}
