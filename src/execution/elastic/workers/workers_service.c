// SPDX-License-Identifier: Apache-2.0
/* The service thread of ls_workers: what it hears, and how everything is started. */
#include "execution/elastic/workers/workers_internal.h"

#include "base/file.h"
#include "base/log.h"
#include "execution/hang/describe.h"
#include "execution/parallel/data_parallel.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- events ---- */

/* On the service thread. When the trainer does not take them, the oldest are kept. */
static void put_event(void *context, const char *name, json_t *fields)
{
    ls_workers *workers = context;
    ls_workers_events *queue = &workers->queue;
    const bool is_recovered = strcmp(name, "recovered") == 0;
    pthread_mutex_lock(&queue->lock);
    if (is_recovered || strcmp(name, "rank_lost") == 0) {
        atomic_store(&workers->recovers, !is_recovered);
    }
    if (queue->count < LS_WORKERS_EVENTS_MAX) {
        snprintf(queue->events[queue->count].name, sizeof queue->events[0].name, "%s", name);
        queue->events[queue->count++].fields = fields;
        fields = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    json_decref(fields);
}

/* The first event; false: there is none. */
static bool take_event(ls_workers_events *queue, ls_workers_event *event_out)
{
    pthread_mutex_lock(&queue->lock);
    const bool is_one = queue->count > 0;
    if (is_one) {
        *event_out = queue->events[0];
        memmove(queue->events, queue->events + 1, --queue->count * sizeof queue->events[0]);
    }
    pthread_mutex_unlock(&queue->lock);
    return is_one;
}

/* On the trainer's thread. The lock is free while an event is written to disk: the service thread
 * must not wait for that. */
void ls_workers_take_events(ls_workers *workers)
{
    ls_workers_event event;
    while (take_event(&workers->queue, &event)) {
        if (workers->options.event) {
            workers->options.event(workers->options.event_context, event.name, event.fields);
        } else {
            json_decref(event.fields);
        }
    }
}

/* ---- service thread: coordinator and agent of this host ---- */

static void on_ready(void *context, uint32_t rank)
{
    ls_workers *workers = context;
    ls_watchdog_join(workers->watch, rank);
    const ls_control *control = workers->control;
    const ls_rank_slot *slot = ls_segment_slot(&workers->segment, rank - control->first_rank);
    ls_preflight_member hello = {.rank = rank, .pid = atomic_load(&slot->pid), .preflight = slot->preflight};
    memcpy(hello.host, control->host, sizeof hello.host);
    if (workers->cluster && !ls_cluster_rank_ready(workers->cluster, rank)) {
        ls_agent_kill(workers->agent, rank - control->first_rank);
        return;
    }
    ls_coordinator_hello(workers->coordinator, &hello);
}

/* Once the run is under way on several hosts, the cluster replaces ranks and moves their parts.
 * Before that, and on one host, the coordinator decides. */
static void on_lost(void *context, const ls_rank_end *end)
{
    ls_workers *workers = context;
    if (workers->cluster && (workers->adopted || atomic_load(&workers->running))) {
        ls_cluster_rank_lost(workers->cluster, end);
        return;
    }
    if (!workers->lost) {
        workers->lost = true;
        workers->lost_silent_ns = end->silent_ns;
    }
    ls_watchdog_leave(workers->watch, end->rank);
    ls_coordinator_lost(workers->coordinator, workers->control->host, end);
}

static void on_left(void *context, uint32_t rank, int32_t pid)
{
    ls_workers *workers = context;
    ls_watchdog_leave(workers->watch, rank);
    ls_coordinator_left(workers->coordinator, rank, pid);
}

static ls_status start_rank(void *context, uint32_t local)
{
    return ls_agent_start_rank(((ls_workers *)context)->agent, local);
}

static void wake_sleepers(void *context)
{
    ls_data_parallel_wake(((ls_workers *)context)->segment.exchange);
}

static void recover_part(void *context, uint32_t part)
{
    const ls_workers *workers = context;
    const ls_segment *segment = &workers->segment;
    const ls_recovery recovery = {
        .exchange = segment->exchange,
        .flats = {segment->parameters, segment->m, segment->v},
        .snapshot = {segment->snapshot[0], segment->snapshot[1], segment->snapshot[2]},
    };
    const ls_recovered found = ls_data_parallel_recover_part(&recovery, part);
    ls_log_debug("part %u recovered: entered %llu, %u blocks put back, %s", part,
                 (unsigned long long)found.entered, found.blocks,
                 found.finished  ? "finished"
                 : found.claimed ? "claimed"
                                 : "computing");
}

static void rewind_crews(void *context)
{
    ls_data_parallel_rewind_crews(((ls_workers *)context)->segment.exchange);
}

static void clear_exchange(void *context, const ls_team *team)
{
    (void)team;
    ls_data_parallel_clear(((ls_workers *)context)->segment.exchange);
}

static bool adopt_rank(void *context, uint32_t local)
{
    return ls_agent_adopt_rank(((ls_workers *)context)->agent, local);
}

static void kill_rank(void *context, uint32_t local)
{
    ls_agent_kill(((ls_workers *)context)->agent, local);
}

static bool is_stopped(void *context, uint32_t local)
{
    const ls_workers *workers = context;
    return ls_process_look(atomic_load(&workers->control->slots[local].pid), 0) == LS_PROCESS_STOPPED;
}

static uint64_t start_time(void *context, int32_t pid)
{
    (void)context;
    return ls_process_start(pid);
}

/* ---- hung ranks ---- */

static bool is_here(const ls_workers *workers, uint32_t rank, int32_t pid)
{
    const ls_control *control = workers->control;
    return rank - control->first_rank < control->local_ranks &&
           atomic_load(&ls_segment_slot(&workers->segment, rank - control->first_rank)->pid) == pid;
}

/* The agent that has the rank kills it; what follows is an ordinary loss. */
static bool kill_of_several(const ls_workers *workers, uint32_t rank, int32_t pid, const char *text)
{
    if (!workers->cluster || !workers->agent || !ls_cluster_kill(workers->cluster, rank, pid, text)) {
        return false;
    }
    if (is_here(workers, rank, pid)) {
        ls_agent_kill(workers->agent, rank - workers->control->first_rank);
    }
    return true;
}

static bool on_hung(void *context, uint32_t rank, int32_t pid, const char *text)
{
    const ls_workers *workers = context;
    if (!ls_workers_is_elastic(workers)) {
        return kill_of_several(workers, rank, pid, text);
    }
    if (!is_here(workers, rank, pid)) {
        return false;
    }
    ls_coordinator_kill(workers->coordinator, rank, text);
    return true;
}

/* The rank should be doing something: it has to park, or has steps to run. */
static bool is_wanted(void *context, uint32_t rank, bool is_idle)
{
    const ls_workers *workers = context;
    const ls_control *control = workers->control;
    const ls_rank_slot *slot = ls_segment_slot(&workers->segment, rank);
    if (!ls_workers_is_elastic(workers) || !ls_coordinator_holds_part(workers->coordinator, rank)) {
        return false;
    }
    const uint64_t finished = atomic_load(&slot->finished);
    return ls_control_is_fenced(control, finished) ? !ls_control_is_parked(control, rank)
                                                   : is_idle && atomic_load(&control->until) > finished &&
                                                         atomic_load(&slot->gave_up) <= finished;
}

/* The hosts of an earlier trainer have returned. */
static void on_returned(void *context)
{
    ls_workers *workers = context;
    atomic_store(&workers->running, true);
    ls_word_add(&workers->control->news, 1);
}

static void on_running(void *context)
{
    ls_workers *workers = context;
    if (workers->cluster) {
        ls_cluster_run(workers->cluster);
    }
    atomic_store(&workers->running, true);
    ls_word_add(&workers->control->news, 1);
}

static void on_abort(void *context, ls_status status, int32_t rank, const char *text)
{
    ls_workers *workers = context;
    ls_control_abort(workers->control, status, rank, text);
}

static void on_fatal(void *context, ls_status status, const char *text)
{
    on_abort(context, status, -1, text);
}

static void on_all_ended(void *context)
{
    ls_workers *workers = context;
    ls_env_stop(workers->env, 0);
}

/* The ranks of this host have ended; those of other hosts are waited for. */
static void on_ended(void *context)
{
    ls_workers *workers = context;
    if (workers->cluster) {
        ls_cluster_end(workers->cluster);
    } else {
        ls_coordinator_finish(workers->coordinator, on_all_ended);
    }
}

/* ---- service thread: other hosts ---- */

static void on_far_ready(void *context, const ls_preflight_member *hello)
{
    ls_workers *workers = context;
    ls_coordinator_hello(workers->coordinator, hello);
}

/* The first loss is remembered for ls_workers_lost: it is the cause, later ones may be
 * consequences. */
static void on_far_lost(void *context, const char *host, const ls_rank_end *end)
{
    ls_workers *workers = context;
    if (!workers->lost) {
        workers->lost = true;
        workers->lost_silent_ns = end->silent_ns;
    }
    ls_coordinator_lost(workers->coordinator, host, end);
}

/* No one reads this slot before the ranks of this host take part. */
static void on_far_result(void *context, const ls_rank_result *result)
{
    ls_workers *workers = context;
    ls_segment_slot(&workers->segment, 0)->results[result->step % LS_RANK_RESULTS] = *result;
}

static void on_far_seen(void *context, const ls_rank_snapshot *sights, uint32_t count)
{
    const ls_workers *workers = context;
    ls_watchdog_see(workers->watch, sights, count);
}

static void on_far_stack(void *context, uint32_t rank, bool is_stack, const char *text)
{
    const ls_workers *workers = context;
    ls_watchdog_answer(workers->watch, rank, is_stack, text);
}

static void forget_rank(void *context, uint32_t rank)
{
    const ls_workers *workers = context;
    ls_watchdog_leave(workers->watch, rank);
}

static void join_watch(void *context, uint32_t rank)
{
    const ls_workers *workers = context;
    ls_watchdog_join(workers->watch, rank);
}

static bool ask_stack(void *context, uint32_t rank, int32_t pid)
{
    const ls_workers *workers = context;
    return workers->cluster && ls_cluster_ask_stack(workers->cluster, rank, pid);
}

static bool has_start_failed(void *context, uint32_t host, char text_out[512])
{
    const ls_workers *workers = context;
    return workers->starter && ls_starter_has_ended(workers->starter, host, text_out);
}

static void start_host_again(void *context, uint32_t host)
{
    const ls_workers *workers = context;
    ls_starter_again(workers->starter, host);
}

/* The trainer's thread does it, when it next waits for the ranks. */
static bool restore(void *context, uint64_t epoch, uint64_t *step_out)
{
    ls_workers *workers = context;
    const bool is_here = atomic_load(&workers->restored) == epoch;
    *step_out = atomic_load(&workers->restored_step);
    if (!is_here && atomic_exchange(&workers->restore_asked, epoch) != epoch) {
        ls_word_add(&workers->control->news, 1);
    }
    return is_here;
}

static uint64_t exchange_bytes(void *context, uint32_t local_ranks)
{
    const ls_workers *workers = context;
    return ls_session_exchange_bytes(workers->options.session, local_ranks);
}

static void *serve(void *context)
{
    ls_workers *workers = context;
    ls_env_run(workers->env);
    return NULL;
}

/* Signals are for the trainer's thread: they end its waits. */
static ls_status start_service(ls_workers *workers)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&workers->service, NULL, serve, workers);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        return ls_fail_errno(error, "cannot start the thread that watches the ranks");
    }
    workers->launched = true;
    return LS_OK;
}

/* Flight recorders of an earlier process of this run would be taken for those of ranks that
 * died. Those of ranks that were taken over stay in use. */
static ls_status prepare_flight_folder(ls_workers *workers)
{
    ls_arena arena = {0};
    workers->flight_dir =
        ls_arena_strdup(&workers->arena, ls_path_join(&arena, workers->options.run_dir, "flight"));
    ls_status status = ls_dir_create(workers->flight_dir);
    char **names = NULL;
    size_t count = 0;
    if (status == LS_OK && !workers->adopted) {
        status = ls_dir_list(&arena, workers->flight_dir, &names, &count);
    }
    for (size_t i = 0; i < count; i++) {
        if (strncmp(names[i], "rank-", 5) == 0) {
            unlink(ls_path_join(&arena, workers->flight_dir, names[i]));
        }
    }
    ls_arena_release(&arena);
    return status;
}

static ls_status start_watch(ls_workers *workers)
{
    /* Processes of other hosts cannot be looked at from here; their agents do that and report
     * what they see. */
    const ls_control *control = workers->control;
    const ls_session *session = workers->options.session;
    uint32_t *local = ls_arena_new(&workers->arena, uint32_t, control->local_ranks);
    for (uint32_t i = 0; i < control->local_ranks; i++) {
        local[i] = control->first_rank + i;
    }
    const ls_watchdog_options options = {
        .env = workers->env,
        .flight_dir = workers->flight_dir,
        .ranks = control->ranks,
        .local = local,
        .local_count = control->local_ranks,
        .hang_timeout_s = session->run.job.hang_timeout_s,
        .describe =
            ls_describe_plan(session->pipeline_list ? NULL : session->own_plans,
                             ls_workers_is_several(workers) ? (ls_mesh){0} : ls_session_mesh(session)),
        .event = put_event,
        .fatal = on_fatal,
        .ask_stack = ask_stack,
        .hung = on_hung,
        .is_wanted = is_wanted,
        .spare_traced = workers->options.session->run.job.hang_timeout_s == LS_HANG_TIMEOUT_S,
        .context = workers,
    };
    LS_TRY(ls_watchdog_create(&options, &workers->watch));
    for (uint32_t i = workers->options.ranks; i < control->local_ranks; i++) {
        ls_watchdog_leave(workers->watch, i); /* empty so far */
    }
    return LS_OK;
}

static double start_timeout_s(const ls_workers *workers)
{
    return workers->options.start_timeout_s > 0 ? workers->options.start_timeout_s : 60;
}

/* Other hosts have the whole time to connect, and their ranks a quarter more to be ready, so
 * that a rank without a host is named as such first. */
static double ready_timeout_s(const ls_workers *workers)
{
    return (workers->options.hosts ? 1.25 : 1.0) * start_timeout_s(workers);
}

static ls_status start_coordinator(ls_workers *workers)
{
    const ls_run_job *job = &workers->options.session->run.job;
    const ls_coordinator_options options = {
        .env = workers->env,
        .ranks = workers->options.ranks,
        .epoch = workers->control->epoch,
        .is_running = workers->adopted && workers->options.hosts,
        .start_timeout_ns = (uint64_t)(ready_timeout_s(workers) * 1e9),
        .context = workers,
        .running = on_running,
        .abort = on_abort,
        .segment = ls_workers_is_elastic(workers) ? &workers->segment : NULL,
        .min_ranks = (uint32_t)job->min_ranks,
        .mesh = ls_session_mesh(workers->options.session),
        .max_replacements = (uint32_t)job->max_replacements,
        .hang_timeout_ns = (uint64_t)(job->hang_timeout_s * 1e9),
        .start = start_rank,
        .adopt = workers->adopted ? adopt_rank : NULL,
        .kill = kill_rank,
        .is_stopped = is_stopped,
        .log_folder = workers->options.run_dir,
        .log_is_needed = workers->control->lease_ns > 0,
        .identity = workers->options.session->identity,
        .start_time = start_time,
        .fenced = wake_sleepers,
        .recover = recover_part,
        .rewind = rewind_crews,
        .recut = clear_exchange,
        .event = put_event,
    };
    return ls_coordinator_create(&options, &workers->coordinator);
}

/* Carries out what the trainer asked for meanwhile. */
static void look_for_orders(void *context)
{
    enum { LOOK_NS = 10 * 1000 * 1000 };
    ls_workers *workers = context;
    if (!atomic_load(&workers->running)) {
        ls_env_timer_set(workers->env, LOOK_NS, look_for_orders, workers);
        return;
    }
    const uint32_t wanted = atomic_exchange(&workers->wanted, 0);
    const int32_t leaver = atomic_exchange(&workers->leaver, 0);
    if ((wanted > 0 && ls_coordinator_resize(workers->coordinator, wanted) != LS_OK) ||
        (leaver > 0 && ls_coordinator_leave(workers->coordinator, (uint32_t)leaver - 1) != LS_OK)) {
        ls_log_warn("%s", ls_error_text());
    }
    ls_env_timer_set(workers->env, LOOK_NS, look_for_orders, workers);
}

/* Several hosts: adopts the ranks of this one that live; the others are lost. */
static void adopt_ranks(ls_workers *workers)
{
    const ls_control *control = workers->control;
    ls_control_mend_team(workers->control);
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        const ls_rank_end end = {.rank = control->first_rank + local};
        if (!ls_agent_adopt_rank(workers->agent, local)) {
            ls_cluster_rank_lost(workers->cluster, &end);
        } else if (atomic_load(&control->slots[local].phase) == LS_RANK_READY) {
            ls_cluster_rank_ready(workers->cluster, end.rank);
        }
    }
}

/* The kernel ends a rank with the thread that started it, so the service thread starts them. */
static void start_agent(void *context)
{
    ls_workers *workers = context;
    const char *argv[] = {workers->program, "rank",
                          "--segment",      workers->segment_path,
                          "--run-dir",      workers->options.run_dir,
                          "--threads",      workers->threads,
                          "--rank",         NULL};
    const char **kept = ls_arena_alloc(&workers->arena, sizeof argv);
    memcpy(kept, argv, sizeof argv);
    const ls_agent_options options = {
        .env = workers->env,
        .segment = &workers->segment,
        .argv = kept,
        .flight_dir = workers->flight_dir,
        .context = workers,
        .ready = on_ready,
        .lost = on_lost,
        .left = on_left,
        .ended = on_ended,
        .start_time = start_time,
    };
    const bool elastic = ls_workers_is_elastic(workers);
    const ls_status status = elastic || (workers->adopted && !workers->fresh)
                                 ? ls_agent_create(&options, &workers->agent)
                                 : ls_agent_start(&options, &workers->agent);
    if (status != LS_OK) {
        ls_control_abort(workers->control, status, -1, ls_error_text());
        if (!workers->agent) {
            on_ended(workers);
        }
        return;
    }
    if (elastic || workers->control->lease_ns > 0) {
        atomic_store(&workers->control->agent_start, ls_process_start(getpid()));
        /* by this, ranks whose agent is gone recognise the next one */
        atomic_store(&workers->control->agent_pid, getpid());
    }
    if (!elastic && workers->adopted && !workers->fresh) {
        adopt_ranks(workers);
    } else if (elastic) {
        ls_coordinator_begin(workers->coordinator);
        look_for_orders(workers);
    }
}

/* The coordinator's address, as ranks of this host and as agents of other hosts use it. */
static ls_status find_addresses(const ls_workers *workers, char here[LS_COMM_ADDRESS_BYTES],
                                char there[LS_COMM_ADDRESS_BYTES])
{
    const char *served = ls_cluster_address(workers->cluster), *host = workers->options.hosts->reachable;
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

/* A trainer that takes over must be found where the earlier one was: the same address and token,
 * from the control page if it had chosen them itself. ls_cluster_open listens, so agents may
 * connect from then on; the commands that start them come last. */
static ls_status start_cluster(ls_workers *workers, uint64_t step)
{
    const ls_workers_hosts *hosts = workers->options.hosts;
    const ls_run_file *run = &workers->options.session->run;
    ls_cluster_host *others = ls_arena_new(&workers->arena, ls_cluster_host, hosts->other_count + 1);
    char there[LS_COMM_ADDRESS_BYTES], here[LS_COMM_ADDRESS_BYTES];
    /* Agents of an earlier trainer return to its address, with its token. */
    const bool is_known = workers->adopted && !workers->fresh;
    const char *token = is_known ? workers->control->token : hosts->token;
    const bool is_any_port = strcmp(strrchr(hosts->listen, ':'), ":0") == 0;
    for (uint32_t i = 0; i < hosts->other_count; i++) {
        others[i] = (ls_cluster_host){.name = hosts->others[i].name, .slots = hosts->others[i].slots};
    }
    const ls_cluster_options options = {
        .env = workers->env,
        .listen = is_known && is_any_port ? workers->control->coordinator : hosts->listen,
        .token = token,
        .segment = &workers->segment,
        .step = step,
        .threads = workers->options.threads,
        .run_dir = workers->options.run_dir,
        .hosts = hosts->others ? others : NULL,
        .host_count = hosts->other_count,
        .slots_max = run->train.local.steps > 0 ? (uint32_t)ls_run_file_rank_leaves(run, false) : 0,
        .start_timeout_ns = (uint64_t)(start_timeout_s(workers) * 1e9),
        .context = workers,
        .exchange_bytes = exchange_bytes,
        .ready = on_far_ready,
        .lost = on_far_lost,
        .abort = on_abort,
        .seen = on_far_seen,
        .stack = on_far_stack,
        .lease_ns = (uint64_t)(run->job.node_lease_s * 1e9),
        .settings = ls_workers_reform_settings(workers),
        .event = put_event,
        .forget = forget_rank,
        .joined = join_watch,
        .start = start_rank,
        .max_replacements = (uint32_t)run->job.max_replacements,
        .start_failed = has_start_failed,
        .restore = workers->options.restore && workers->control->lease_ns == 0 ? restore : NULL,
        .wait_ns = workers->control->lease_ns,
        .log_folder = workers->control->lease_ns > 0 ? workers->options.run_dir : NULL,
        .identity = workers->options.session->identity,
        .left = workers->adopted ? workers->left : NULL,
        .is_fresh = workers->fresh,
        .heard = workers->options.heard,
        .returned = on_returned,
        .result = workers->fresh ? on_far_result : NULL,
        .start_again = hosts->others ? start_host_again : NULL,
        .ended = on_all_ended,
    };
    LS_TRY(ls_cluster_open(&options, &workers->cluster));
    LS_TRY(find_addresses(workers, here, there));
    /* Ranks get the token from the environment; no other thread of this process reads it now. */
    setenv("LOCKSTEP_TOKEN", token, 1);
    if (ls_workers_is_several(workers)) {
        memcpy(workers->control->coordinator, here, sizeof here);
    }
    if (workers->control->lease_ns > 0 && !is_known) {
        snprintf(workers->control->token, sizeof workers->control->token, "%s", token);
    }
    return hosts->others ? ls_starter_start(hosts, there, workers->adopted, &workers->starter) : LS_OK;
}

/* The thread starts last: until then everything is set up by the trainer's thread alone, and no
 * callback can come. */
ls_status ls_workers_launch(ls_workers *workers, uint64_t step)
{
    ls_program_path(workers->program);
    snprintf(workers->segment_path, sizeof workers->segment_path, "/proc/%d/fd/%d", (int)getpid(),
             workers->segment.fd);
    snprintf(workers->threads, sizeof workers->threads, "%u", workers->options.threads);
    if (!workers->adopted) {
        ls_segment_begin_at(&workers->segment, step);
    }
    LS_TRY(prepare_flight_folder(workers));
    LS_TRY(ls_env_real_create(&workers->env));
    LS_TRY(start_coordinator(workers));
    LS_TRY(start_watch(workers));
    if (workers->options.hosts) {
        LS_TRY(start_cluster(workers, step));
    }
    ls_env_timer_set(workers->env, 0, start_agent, workers);
    return start_service(workers);
}
