// SPDX-License-Identifier: Apache-2.0
/* The gang's service thread: what it hears, and how everything is started. */
#include "execution/elastic/gang_internal.h"

#include "base/file.h"
#include "base/log.h"
#include "execution/diagnose/describe.h"
#include "execution/parallel/data_parallel.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- events ---- */

/* On the service thread. When nobody takes them, the oldest are kept. */
static void put_event(void *context, const char *name, json_t *fields)
{
    ls_gang *gang = context;
    ls_gang_events *queue = &gang->queue;
    pthread_mutex_lock(&queue->lock);
    if (queue->count < LS_GANG_EVENTS_MAX) {
        snprintf(queue->events[queue->count].name, sizeof queue->events[0].name, "%s", name);
        queue->events[queue->count++].fields = fields;
        fields = NULL;
    }
    pthread_mutex_unlock(&queue->lock);
    json_decref(fields);
}

/* On the trainer's thread. */
void ls_gang_take_events(ls_gang *gang)
{
    ls_gang_events *queue = &gang->queue;
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
    ls_watch_join(gang->watch, rank);
    const ls_control *control = gang->control;
    const ls_rank_slot *slot = ls_segment_slot(&gang->segment, rank - control->first_rank);
    ls_preflight_member hello = {.rank = rank, .pid = atomic_load(&slot->pid), .preflight = slot->preflight};
    memcpy(hello.host, control->host, sizeof hello.host);
    if (gang->cluster && !ls_cluster_rank_ready(gang->cluster, rank)) {
        ls_agent_kill(gang->agent, rank - control->first_rank);
        return;
    }
    ls_coordinator_hello(gang->coordinator, &hello);
}

static void on_lost(void *context, const ls_rank_end *end)
{
    ls_gang *gang = context;
    if (gang->cluster && (gang->adopted || atomic_load(&gang->running))) {
        ls_cluster_rank_lost(gang->cluster, end);
        return;
    }
    if (!gang->lost) {
        gang->lost = true;
        gang->lost_silent_ns = end->silent_ns;
    }
    ls_watch_leave(gang->watch, end->rank);
    ls_coordinator_lost(gang->coordinator, gang->control->host, end);
}

static void on_left(void *context, uint32_t rank, int32_t pid)
{
    ls_gang *gang = context;
    ls_watch_leave(gang->watch, rank);
    ls_coordinator_left(gang->coordinator, rank, pid);
}

static ls_status start_rank(void *context, uint32_t local)
{
    return ls_agent_start_rank(((ls_gang *)context)->agent, local);
}

static void wake_sleepers(void *context)
{
    ls_data_parallel_wake(((ls_gang *)context)->segment.exchange);
}

static void recover_part(void *context, uint32_t part)
{
    const ls_gang *gang = context;
    const ls_segment *segment = &gang->segment;
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

static void clear_exchange(void *context, const ls_team *team)
{
    (void)team;
    ls_data_parallel_clear(((ls_gang *)context)->segment.exchange);
}

static bool adopt_rank(void *context, uint32_t local)
{
    return ls_agent_adopt_rank(((ls_gang *)context)->agent, local);
}

static void kill_rank(void *context, uint32_t local)
{
    ls_agent_kill(((ls_gang *)context)->agent, local);
}

static bool is_stopped(void *context, uint32_t local)
{
    const ls_gang *gang = context;
    return ls_process_look(atomic_load(&gang->control->slots[local].pid), 0) == LS_PROCESS_STOPPED;
}

static uint64_t start_time(void *context, int32_t pid)
{
    (void)context;
    return ls_process_start(pid);
}

/* ---- hung ranks ---- */

static bool is_here(const ls_gang *gang, uint32_t rank, int32_t pid)
{
    const ls_control *control = gang->control;
    return rank - control->first_rank < control->local_ranks &&
           atomic_load(&ls_segment_slot(&gang->segment, rank - control->first_rank)->pid) == pid;
}

/* Whoever has the rank ends it; what follows is the loss of a rank. */
static bool kill_of_several(const ls_gang *gang, uint32_t rank, int32_t pid, const char *text)
{
    if (!gang->cluster || !gang->agent || !ls_cluster_kill(gang->cluster, rank, pid, text)) {
        return false;
    }
    if (is_here(gang, rank, pid)) {
        ls_agent_kill(gang->agent, rank - gang->control->first_rank);
    }
    return true;
}

static bool on_hung(void *context, uint32_t rank, int32_t pid, const char *text)
{
    const ls_gang *gang = context;
    if (!ls_gang_is_elastic(gang)) {
        return kill_of_several(gang, rank, pid, text);
    }
    if (!is_here(gang, rank, pid)) {
        return false;
    }
    ls_coordinator_kill(gang->coordinator, rank, text);
    return true;
}

/* It should park, or has steps to run. */
static bool is_wanted(void *context, uint32_t rank, bool is_idle)
{
    const ls_gang *gang = context;
    const ls_control *control = gang->control;
    const ls_rank_slot *slot = ls_segment_slot(&gang->segment, rank);
    if (!ls_gang_is_elastic(gang) || !ls_coordinator_holds_part(gang->coordinator, rank)) {
        return false;
    }
    const uint64_t finished = atomic_load(&slot->finished);
    return ls_control_is_fenced(control, finished) ? !ls_control_is_parked(control, rank)
                                                   : is_idle && atomic_load(&control->until) > finished &&
                                                         atomic_load(&slot->gave_up) <= finished;
}

/* The hosts of a trainer before this one are here again. */
static void on_returned(void *context)
{
    ls_gang *gang = context;
    atomic_store(&gang->running, true);
    ls_word_add(&gang->control->news, 1);
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
        ls_coordinator_finish(gang->coordinator, on_all_ended);
    }
}

/* ---- service thread: other hosts ---- */

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

/* Nobody looks before the ranks of this host take part. */
static void on_far_result(void *context, const ls_rank_result *result)
{
    ls_gang *gang = context;
    ls_segment_slot(&gang->segment, 0)->results[result->step % LS_RANK_RESULTS] = *result;
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

static void join_watch(void *context, uint32_t rank)
{
    const ls_gang *gang = context;
    ls_watch_join(gang->watch, rank);
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

static void start_host_again(void *context, uint32_t host)
{
    const ls_gang *gang = context;
    ls_starter_again(gang->starter, host);
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

/* Recorders of an earlier process of this run would be taken for those of ranks that died; those of ranks that were taken over go on. */
static ls_status prepare_flight_folder(ls_gang *gang)
{
    ls_arena arena = {0};
    gang->flight_dir = ls_arena_strdup(&gang->arena, ls_path_join(&arena, gang->options.run_dir, "flight"));
    ls_status status = ls_dir_create(gang->flight_dir);
    char **names = NULL;
    size_t count = 0;
    if (status == LS_OK && !gang->adopted) {
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
        .hung = on_hung,
        .is_wanted = is_wanted,
        .spare_traced = gang->options.session->run.job.hang_timeout_s == LS_HANG_TIMEOUT_S,
        .context = gang,
    };
    LS_TRY(ls_watch_create(&options, &gang->watch));
    for (uint32_t i = gang->options.ranks; i < control->local_ranks; i++) {
        ls_watch_leave(gang->watch, i); /* nobody yet */
    }
    return LS_OK;
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
    const ls_run_job *job = &gang->options.session->run.job;
    const ls_coordinator_options options = {
        .env = gang->env,
        .ranks = gang->options.ranks,
        .epoch = gang->control->epoch,
        .is_running = gang->adopted && gang->options.hosts,
        .start_timeout_ns = (uint64_t)(ready_timeout_s(gang) * 1e9),
        .context = gang,
        .running = on_running,
        .abort = on_abort,
        .segment = ls_gang_is_elastic(gang) ? &gang->segment : NULL,
        .min_ranks = (uint32_t)job->min_ranks,
        .max_replacements = (uint32_t)job->max_replacements,
        .hang_timeout_ns = (uint64_t)(job->hang_timeout_s * 1e9),
        .start = start_rank,
        .adopt = gang->adopted ? adopt_rank : NULL,
        .kill = kill_rank,
        .is_stopped = is_stopped,
        .log_folder = gang->options.run_dir,
        .log_is_needed = gang->control->lease_ns > 0,
        .identity = gang->options.session->identity,
        .start_time = start_time,
        .fenced = wake_sleepers,
        .recover = recover_part,
        .recut = clear_exchange,
        .event = put_event,
    };
    return ls_coordinator_create(&options, &gang->coordinator);
}

/* What the trainer asked for meanwhile. */
static void look_for_orders(void *context)
{
    enum { LOOK_NS = 10 * 1000 * 1000 };
    ls_gang *gang = context;
    if (!atomic_load(&gang->running)) {
        ls_env_timer_set(gang->env, LOOK_NS, look_for_orders, gang);
        return;
    }
    const uint32_t wanted = atomic_exchange(&gang->wanted, 0);
    const int32_t leaver = atomic_exchange(&gang->leaver, 0);
    if ((wanted > 0 && ls_coordinator_resize(gang->coordinator, wanted) != LS_OK) ||
        (leaver > 0 && ls_coordinator_leave(gang->coordinator, (uint32_t)leaver - 1) != LS_OK)) {
        ls_log_warn("%s", ls_error_text());
    }
    ls_env_timer_set(gang->env, LOOK_NS, look_for_orders, gang);
}

/* Several hosts: the ranks of this one that live; the others are lost. */
static void adopt_ranks(ls_gang *gang)
{
    const ls_control *control = gang->control;
    ls_control_mend_team(gang->control);
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        const ls_rank_end end = {.rank = control->first_rank + local};
        if (!ls_agent_adopt_rank(gang->agent, local)) {
            ls_cluster_rank_lost(gang->cluster, &end);
        } else if (atomic_load(&control->slots[local].phase) == LS_RANK_READY) {
            ls_cluster_rank_ready(gang->cluster, end.rank);
        }
    }
}

/* The kernel ends a rank with the thread that started it, so the service thread does. */
static void start_agent(void *context)
{
    ls_gang *gang = context;
    const char *argv[] = {gang->program,         "rank",      "--segment",   gang->segment_path, "--run-dir",
                          gang->options.run_dir, "--threads", gang->threads, "--rank",           NULL};
    const char **kept = ls_arena_alloc(&gang->arena, sizeof argv);
    memcpy(kept, argv, sizeof argv);
    const ls_agent_options options = {
        .env = gang->env,
        .segment = &gang->segment,
        .argv = kept,
        .flight_dir = gang->flight_dir,
        .context = gang,
        .ready = on_ready,
        .lost = on_lost,
        .left = on_left,
        .ended = on_ended,
        .start_time = start_time,
    };
    const bool elastic = ls_gang_is_elastic(gang);
    const ls_status status = elastic || (gang->adopted && !gang->fresh)
                                 ? ls_agent_create(&options, &gang->agent)
                                 : ls_agent_start(&options, &gang->agent);
    if (status != LS_OK) {
        ls_control_abort(gang->control, status, -1, ls_error_text());
        if (!gang->agent) {
            on_ended(gang);
        }
        return;
    }
    if (elastic || gang->control->lease_ns > 0) {
        atomic_store(&gang->control->agent_start, ls_process_start(getpid()));
        atomic_store(&gang->control->agent_pid, getpid()); /* ranks without one know it by that */
    }
    if (!elastic && gang->adopted && !gang->fresh) {
        adopt_ranks(gang);
    } else if (elastic) {
        ls_coordinator_begin(gang->coordinator);
        look_for_orders(gang);
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
    ls_cluster_host *others = ls_arena_new(&gang->arena, ls_cluster_host, hosts->other_count + 1);
    char there[LS_COMM_ADDRESS_BYTES], here[LS_COMM_ADDRESS_BYTES];
    /* Agents of a trainer before this one come back to its address, with its secret. */
    const bool is_known = gang->adopted && !gang->fresh;
    const char *token = is_known ? gang->control->token : hosts->token;
    const bool is_any_port = strcmp(strrchr(hosts->listen, ':'), ":0") == 0;
    for (uint32_t i = 0; i < hosts->other_count; i++) {
        others[i] = (ls_cluster_host){.name = hosts->others[i].name, .slots = hosts->others[i].slots};
    }
    const ls_cluster_options options = {
        .env = gang->env,
        .listen = is_known && is_any_port ? gang->control->coordinator : hosts->listen,
        .token = token,
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
        .settings = ls_gang_reform_settings(gang),
        .event = put_event,
        .forget = forget_rank,
        .joined = join_watch,
        .start = start_rank,
        .max_replacements = (uint32_t)run->job.max_replacements,
        .start_failed = has_start_failed,
        .wait_ns = gang->control->lease_ns,
        .log_folder = gang->control->lease_ns > 0 ? gang->options.run_dir : NULL,
        .identity = gang->options.session->identity,
        .left = gang->adopted ? gang->left : NULL,
        .is_fresh = gang->fresh,
        .heard = gang->options.heard,
        .returned = on_returned,
        .result = gang->fresh ? on_far_result : NULL,
        .start_again = hosts->others ? start_host_again : NULL,
        .ended = on_all_ended,
    };
    LS_TRY(ls_cluster_open(&options, &gang->cluster));
    LS_TRY(find_addresses(gang, here, there));
    setenv("LOCKSTEP_TOKEN", token,
           1); /* how ranks get it; no other thread of ours reads the environment now */
    if (ls_gang_is_several(gang)) {
        memcpy(gang->control->coordinator, here, sizeof here);
    }
    if (gang->control->lease_ns > 0 && !is_known) {
        snprintf(gang->control->token, sizeof gang->control->token, "%s", token);
    }
    return hosts->others ? ls_starter_start(hosts, there, gang->adopted, &gang->starter) : LS_OK;
}

ls_status ls_gang_launch(ls_gang *gang, uint64_t step)
{
    ls_program_path(gang->program);
    snprintf(gang->segment_path, sizeof gang->segment_path, "/proc/%d/fd/%d", (int)getpid(),
             gang->segment.fd);
    snprintf(gang->threads, sizeof gang->threads, "%u", gang->options.threads);
    if (!gang->adopted) {
        ls_segment_begin_at(&gang->segment, step);
    }
    LS_TRY(prepare_flight_folder(gang));
    LS_TRY(ls_env_real_create(&gang->env));
    LS_TRY(start_coordinator(gang));
    LS_TRY(start_watch(gang));
    if (gang->options.hosts) {
        LS_TRY(start_cluster(gang, step));
    }
    ls_env_timer_set(gang->env, 0, start_agent, gang);
    return start_service(gang);
}
