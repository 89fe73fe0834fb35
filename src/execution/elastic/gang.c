// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/gang.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/file.h"
#include "execution/diagnose/describe.h"
#include "execution/diagnose/guard.h"
#include "execution/diagnose/watch.h"
#include "execution/elastic/cluster.h"
#include "execution/elastic/coordinator.h"
#include "execution/parallel/slices.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EVENTS_MAX = 256 };

/* Events on their way from the service thread to the trainer's. */
typedef struct event_queue {
    pthread_mutex_t lock;
    uint32_t count;
    struct {
        char name[32];
        json_t *fields;
    } events[EVENTS_MAX];
} event_queue;

struct ls_gang {
    ls_gang_options options;
    ls_arena arena;
    ls_segment segment;
    ls_control *control;
    const char *flight_dir;
    char program[LS_PROGRAM_BYTES], segment_path[64], threads[16];
    ls_env *env;
    ls_coordinator *coordinator;
    ls_agent *agent;
    ls_cluster *cluster; /* of several hosts, and what started their agents */
    ls_starter *starter;
    bool granted;           /* a step was: from then on the moments are with their owners */
    uint64_t gathered_step; /* the state was brought together behind it */
    ls_watch *watch;
    event_queue queue;
    pthread_t service;
    bool launched;        /* the service thread runs, and has to be joined */
    _Atomic bool running; /* all ranks are ready and of one mind */
    uint64_t
        lost_silent_ns; /* of the rank whose end aborted everything; read after the service thread has ended */
    bool lost;
};

/* ---- events ---- */

/* On the service thread. When nobody takes them, the oldest are kept. */
static void put_event(void *context, const char *name, json_t *fields)
{
    ls_gang *gang = context;
    event_queue *queue = &gang->queue;
    pthread_mutex_lock(&queue->lock);
    if (queue->count < EVENTS_MAX) {
        snprintf(queue->events[queue->count].name, sizeof queue->events[0].name, "%s", name);
        queue->events[queue->count++].fields = fields;
        fields = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    json_decref(fields);
}

/* On the trainer's thread. */
static void take_events(ls_gang *gang)
{
    event_queue *queue = &gang->queue;
    pthread_mutex_lock(&queue->lock);
    for (uint32_t i = 0; i < queue->count; i++) {
        if (gang->options.event) {
            gang->options.event(gang->options.event_context, queue->events[i].name, queue->events[i].fields);
        } else {
            json_decref(queue->events[i].fields);
        }
    }
    queue->count = 0;
    pthread_mutex_unlock(&queue->lock);
}

/* ---- service thread: coordinator and agent of this host ---- */

static void on_ready(void *context, uint32_t rank)
{
    ls_gang *gang = context;
    const ls_control *control = gang->control;
    const ls_rank_slot *slot = ls_segment_slot(&gang->segment, rank - control->first_rank);
    ls_preflight_member hello = {.rank = rank, .pid = atomic_load(&slot->pid), .preflight = slot->preflight};
    memcpy(hello.host, control->host, sizeof hello.host);
    if (gang->cluster) {
        ls_cluster_rank_ready(gang->cluster, rank);
    }
    ls_coordinator_hello(gang->coordinator, &hello);
}

static void on_lost(void *context, const ls_rank_end *end)
{
    ls_gang *gang = context;
    if (gang->cluster && atomic_load(&gang->running)) {
        ls_cluster_rank_lost(gang->cluster, end);
        return;
    }
    if (!gang->lost) {
        gang->lost = true;
        gang->lost_silent_ns = end->silent_ns;
    }
    ls_coordinator_lost(gang->coordinator, gang->control->host, end);
}

static void on_running(void *context)
{
    ls_gang *gang = context;
    if (gang->cluster) {
        ls_cluster_run(gang->cluster);
    }
    atomic_store(&gang->running, true);
    ls_word_add(&gang->control->news, 1);
}

static void on_abort(void *context, ls_status status, int32_t rank, const char *text)
{
    ls_gang *gang = context;
    ls_control_abort(gang->control, status, rank, text);
}

static void on_fatal(void *context, ls_status status, const char *text)
{
    on_abort(context, status, -1, text);
}

static void on_all_ended(void *context)
{
    ls_gang *gang = context;
    ls_env_stop(gang->env, 0);
}

/* The ranks of this host have; those of others are waited for. */
static void on_ended(void *context)
{
    ls_gang *gang = context;
    if (gang->cluster) {
        ls_cluster_end(gang->cluster);
    } else {
        on_all_ended(gang);
    }
}

/* ---- service thread: other hosts ---- */

static bool is_several(const ls_gang *gang)
{
    return gang->control->local_ranks < gang->control->ranks;
}

static void on_far_ready(void *context, const ls_preflight_member *hello)
{
    ls_gang *gang = context;
    ls_coordinator_hello(gang->coordinator, hello);
}

static void on_far_lost(void *context, const char *host, const ls_rank_end *end)
{
    ls_gang *gang = context;
    if (!gang->lost) {
        gang->lost = true;
        gang->lost_silent_ns = end->silent_ns;
    }
    ls_coordinator_lost(gang->coordinator, host, end);
}

static void on_far_seen(void *context, const ls_sight *sights, uint32_t count)
{
    const ls_gang *gang = context;
    ls_watch_see(gang->watch, sights, count);
}

static void on_far_stack(void *context, uint32_t rank, bool is_stack, const char *text)
{
    const ls_gang *gang = context;
    ls_watch_answer(gang->watch, rank, is_stack, text);
}

static void forget_rank(void *context, uint32_t rank)
{
    const ls_gang *gang = context;
    ls_watch_leave(gang->watch, rank);
}

static bool ask_stack(void *context, uint32_t rank, int32_t pid)
{
    const ls_gang *gang = context;
    return gang->cluster && ls_cluster_ask_stack(gang->cluster, rank, pid);
}

static bool has_start_failed(void *context, uint32_t host, char text_out[512])
{
    const ls_gang *gang = context;
    return gang->starter && ls_starter_has_ended(gang->starter, host, text_out);
}

static uint64_t exchange_bytes(void *context, uint32_t local_ranks)
{
    const ls_gang *gang = context;
    return ls_data_parallel_exchange_bytes(&gang->options.session->layout, local_ranks);
}

static void *serve(void *context)
{
    ls_gang *gang = context;
    ls_env_run(gang->env);
    return NULL;
}

/* Signals are the trainer's: its waits end with them. */
static ls_status start_service(ls_gang *gang)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&gang->service, NULL, serve, gang);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        return ls_fail_errno(error, "can't start the thread that watches the ranks");
    }
    gang->launched = true;
    return LS_OK;
}

/* ---- starting ---- */

ls_status ls_gang_create(const ls_gang_options *options, ls_gang **gang_out)
{
    const ls_session *session = options->session;
    ls_gang *gang = calloc(1, sizeof *gang);
    if (!gang) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a gang of %u ranks", options->ranks);
    }
    const uint32_t local_ranks = options->hosts ? options->hosts->local_ranks : options->ranks;
    gang->options = *options;
    pthread_mutex_init(&gang->queue.lock, NULL);
    ls_text text = {0};
    ls_run_file_append(&session->run, &text);
    const ls_segment_plan plan = {
        .float_count = (uint64_t)session->layout.float_count,
        .exchange_bytes = ls_data_parallel_exchange_bytes(&session->layout, local_ranks),
        .leaves = (uint32_t)session->run.train.leaves,
        .ranks = options->ranks,
        .local_ranks = local_ranks,
        .epoch = 1,
        .text = text.data,
        .text_bytes = text.bytes,
    };
    const ls_status status = ls_segment_create(&plan, &gang->segment);
    ls_text_release(&text);
    if (status != LS_OK) {
        free(gang);
        return status;
    }
    gang->control = gang->segment.control;
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

/* Recorders of an earlier process of this run would be taken for those of ranks that died. */
static ls_status empty_flight_folder(ls_gang *gang)
{
    ls_arena arena = {0};
    gang->flight_dir = ls_arena_strdup(&gang->arena, ls_path_join(&arena, gang->options.run_dir, "flight"));
    ls_status status = ls_dir_create(gang->flight_dir);
    char **names = NULL;
    size_t count = 0;
    if (status == LS_OK) {
        status = ls_dir_list(&arena, gang->flight_dir, &names, &count);
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], "rank-", 5) == 0) {
            unlink(ls_path_join(&arena, gang->flight_dir, names[i]));
        }
    }
    ls_arena_release(&arena);
    return status;
}

static ls_status start_watch(ls_gang *gang)
{
    /* Processes of other hosts can't be looked at from here: their agents do that and say what they see. */
    const ls_control *control = gang->control;
    uint32_t *local = ls_arena_new(&gang->arena, uint32_t, control->local_ranks);
    for (uint32_t i = 0; i < control->local_ranks; i++) {
        local[i] = control->first_rank + i;
    }
    const ls_watch_options options = {
        .env = gang->env,
        .flight_dir = gang->flight_dir,
        .ranks = control->ranks,
        .local = local,
        .local_count = control->local_ranks,
        .hang_timeout_s = gang->options.session->run.job.hang_timeout_s,
        .describe = ls_describe_plan(&gang->options.session->plan),
        .event = put_event,
        .fatal = on_fatal,
        .ask_stack = ask_stack,
        .context = gang,
    };
    return ls_watch_create(&options, &gang->watch);
}

static double start_timeout_s(const ls_gang *gang)
{
    return gang->options.start_timeout_s > 0 ? gang->options.start_timeout_s : 60;
}

/* Other hosts have the whole time to come, and their ranks a quarter more to be ready: who has no host is named first. */
static double ready_timeout_s(const ls_gang *gang)
{
    return (gang->options.hosts ? 1.25 : 1.0) * start_timeout_s(gang);
}

static ls_status start_coordinator(ls_gang *gang)
{
    const ls_coordinator_options options = {
        .env = gang->env,
        .ranks = gang->options.ranks,
        .epoch = gang->control->epoch,
        .start_timeout_ns = (uint64_t)(ready_timeout_s(gang) * 1e9),
        .context = gang,
        .running = on_running,
        .abort = on_abort,
    };
    return ls_coordinator_create(&options, &gang->coordinator);
}

/* The kernel ends a rank with the thread that started it, so the service thread does. */
static void start_agent(void *context)
{
    ls_gang *gang = context;
    const char *argv[] = {gang->program,         "rank",      "--segment",   gang->segment_path, "--run-dir",
                          gang->options.run_dir, "--threads", gang->threads, "--rank",           NULL};
    const ls_agent_options options = {
        .env = gang->env,
        .segment = &gang->segment,
        .argv = argv,
        .flight_dir = gang->flight_dir,
        .context = gang,
        .ready = on_ready,
        .lost = on_lost,
        .ended = on_ended,
    };
    const ls_status status = ls_agent_start(&options, &gang->agent);
    if (status != LS_OK) {
        ls_control_abort(gang->control, status, -1, ls_error_text());
        if (!gang->agent) {
            on_ended(gang);
        }
    }
}

/* The coordinator's address as ranks of this host and agents of others use it. */
static ls_status find_addresses(const ls_gang *gang, char here[LS_COMM_ADDRESS_BYTES],
                                char there[LS_COMM_ADDRESS_BYTES])
{
    const char *served = ls_cluster_address(gang->cluster), *host = gang->options.hosts->reachable;
    const char *port = strrchr(served, ':') + 1;
    const bool everywhere = strncmp(served, "0.0.0.0:", 8) == 0;
    if (strlen(served) >= LS_COMM_ADDRESS_BYTES || (host && strlen(host) + 10 >= LS_COMM_ADDRESS_BYTES)) {
        return ls_fail(LS_ERR_INVALID, "the coordinator's address %s is longer than %d characters", served,
                       LS_COMM_ADDRESS_BYTES - 1);
    }
    snprintf(here, LS_COMM_ADDRESS_BYTES, "%.200s%.20s", everywhere ? "127.0.0.1:" : served,
             everywhere ? port : "");
    snprintf(there, LS_COMM_ADDRESS_BYTES, "%.200s", host ? "" : served);
    if (host) {
        snprintf(there, LS_COMM_ADDRESS_BYTES, strchr(host, ':') ? "[%.200s]:%.20s" : "%.200s:%.20s", host,
                 port);
    }
    return LS_OK;
}

static ls_status start_cluster(ls_gang *gang, uint64_t step)
{
    const ls_gang_hosts *hosts = gang->options.hosts;
    const ls_run_file *run = &gang->options.session->run;
    ls_cluster_host others[LS_COMM_SIZE_MAX];
    char there[LS_COMM_ADDRESS_BYTES], here[LS_COMM_ADDRESS_BYTES];
    for (uint32_t i = 0; i < hosts->other_count; i++) {
        others[i] = (ls_cluster_host){.name = hosts->others[i].name, .slots = hosts->others[i].slots};
    }
    const ls_cluster_options options = {
        .env = gang->env,
        .listen = hosts->listen,
        .token = hosts->token,
        .segment = &gang->segment,
        .step = step,
        .threads = gang->options.threads,
        .run_dir = gang->options.run_dir,
        .hosts = hosts->others ? others : NULL,
        .host_count = hosts->other_count,
        .start_timeout_ns = (uint64_t)(start_timeout_s(gang) * 1e9),
        .context = gang,
        .exchange_bytes = exchange_bytes,
        .ready = on_far_ready,
        .lost = on_far_lost,
        .abort = on_abort,
        .seen = on_far_seen,
        .stack = on_far_stack,
        .lease_ns = (uint64_t)(run->job.node_lease_s * 1e9),
        .settings = {.leaves = (uint32_t)run->train.leaves,
                     .min_ranks = (uint32_t)run->job.min_ranks,
                     .zero = (uint32_t)run->parallel.zero,
                     .shadow = run->parallel.shadow},
        .event = put_event,
        .forget = forget_rank,
        .start_failed = has_start_failed,
        .ended = on_all_ended,
    };
    LS_TRY(ls_cluster_open(&options, &gang->cluster));
    LS_TRY(find_addresses(gang, here, there));
    setenv("LOCKSTEP_TOKEN", hosts->token,
           1); /* how ranks get it; no other thread of ours reads the environment now */
    if (is_several(gang)) {
        memcpy(gang->control->coordinator, here, sizeof here);
    }
    return hosts->others ? ls_starter_start(hosts, there, &gang->starter) : LS_OK;
}

ls_status ls_gang_launch(ls_gang *gang, uint64_t step)
{
    ls_program_path(gang->program);
    snprintf(gang->segment_path, sizeof gang->segment_path, "/proc/%d/fd/%d", (int)getpid(),
             gang->segment.fd);
    snprintf(gang->threads, sizeof gang->threads, "%u", gang->options.threads);
    ls_segment_begin_at(&gang->segment, step);
    LS_TRY(empty_flight_folder(gang));
    LS_TRY(ls_env_real_create(&gang->env));
    LS_TRY(start_coordinator(gang));
    LS_TRY(start_watch(gang));
    if (gang->options.hosts) {
        LS_TRY(start_cluster(gang, step));
    }
    ls_env_timer_set(gang->env, 0, start_agent, gang);
    return start_service(gang);
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
    take_events(gang);
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
        take_events(gang);
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
    return atomic_load(&gang->running) ? LS_OK : LS_STOPPED;
}

/* A slot that has the result of `step`; rank 0's when it has. */
static const ls_rank_slot *slot_with_result(const ls_gang *gang, uint64_t step)
{
    for (uint32_t local = 0; local < gang->control->local_ranks; local++) {
        const ls_rank_slot *slot = ls_segment_slot(&gang->segment, local);
        if (atomic_load(&slot->finished) > step) {
            return slot;
        }
    }
    return NULL;
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

static bool has_answer(void *context)
{
    const step_wait *w = context;
    const ls_rank_slot *slot = ls_segment_slot(&w->gang->segment, 0);
    return atomic_load(&slot->finished) > w->step || atomic_load(&slot->gave_up) == w->step + 1;
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
    const ls_rank_slot *slot = slot_with_result(gang, step);
    if (!slot) {
        result_out->fault = fault_of_ranks(gang);
        return waited == LS_WAIT_DONE ? LS_STOPPED : ls_control_aborted(gang->control);
    }
    const ls_rank_result *result = &slot->results[step % LS_RANK_RESULTS];
    LS_ASSERT(result->step == step);
    *result_out = result->result;
    *seconds_out = 1e-9 * (double)(result->end_ns - result->begin_ns);
    return LS_OK;
}

static bool has_gathered(void *context)
{
    const step_wait *w = context;
    const ls_control *control = w->gang->control;
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        if (atomic_load(&ls_segment_slot(&w->gang->segment, local)->gathered) !=
            atomic_load(&control->gather)) {
            return false;
        }
    }
    return true;
}

ls_status ls_gang_gather(ls_gang *gang, uint64_t step)
{
    if (!is_several(gang) || !gang->granted || gang->gathered_step == step) {
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
    const bool together = !is_several(gang) || !gang->granted;
    return ls_control_is_consistent(gang->control, finished_out) &&
           (together || *finished_out == gang->gathered_step);
}

bool ls_gang_lost(const ls_gang *gang, uint32_t *rank_out, double *silent_s_out)
{
    const int32_t rank = atomic_load(&gang->control->abort_rank);
    if (gang->launched || !gang->lost || rank < 0) {
        return false;
    }
    *rank_out = (uint32_t)rank;
    *silent_s_out = 1e-9 * (double)gang->lost_silent_ns;
    return true;
}

/* The sum over what `rank` owns, as the state is now. */
static ls_status sum_of_rank(const ls_gang *gang, const ls_state *state, uint32_t rank, ls_hash128 *sum_out)
{
    const ls_layout *layout = state->layout;
    ls_arena arena = {0};
    ls_flat_piece *pieces = ls_arena_new(&arena, ls_flat_piece, layout->bucket_count);
    uint32_t *buckets = ls_arena_new(&arena, uint32_t, layout->bucket_count);
    uint32_t count = 0;
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        const ls_slice slice = ls_slice_of(layout, b, gang->control->ranks, rank);
        if (slice.count > 0) {
            buckets[count] = b;
            pieces[count++] = (ls_flat_piece){slice.offset, slice.count};
        }
    }
    ls_guard guard;
    const ls_status status = ls_guard_init(&guard, state, pieces, buckets, count);
    if (status == LS_OK) {
        ls_guard_take(&guard, 0);
        *sum_out = ls_guard_sum(&guard);
        ls_guard_release(&guard);
    }
    ls_arena_release(&arena);
    return status;
}

ls_status ls_gang_check_state(ls_gang *gang, const ls_state *state, uint64_t step, ls_step_fault *fault_out)
{
    const bool is_here = gang->control->ranks == gang->control->local_ranks;
    for (uint32_t rank = 0; is_here && step > 0 && rank < gang->control->local_ranks; rank++) {
        const ls_rank_slot *slot = ls_segment_slot(&gang->segment, rank);
        const ls_rank_result *result = &slot->results[(step - 1) % LS_RANK_RESULTS];
        if (atomic_load(&slot->finished) != step || result->step != step - 1 ||
            !result->result.state_is_hashed) {
            continue;
        }
        ls_hash128 now;
        LS_TRY(sum_of_rank(gang, state, rank, &now));
        if (!ls_hash128_equal(now, result->result.state_sum)) {
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
    ls_control_quit(gang->control);
    join_service(gang);
    ls_cluster_close(gang->cluster);
    ls_starter_stop(gang->starter);
    ls_agent_destroy(gang->agent);
    ls_watch_destroy(gang->watch);
    ls_coordinator_destroy(gang->coordinator);
    ls_env_real_destroy(gang->env);
    ls_segment_release(&gang->segment);
    ls_arena_release(&gang->arena);
    pthread_mutex_destroy(&gang->queue.lock);
    free(gang);
}
