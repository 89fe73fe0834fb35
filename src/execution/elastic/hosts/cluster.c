// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/hosts/cluster_internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "execution/hang/rank_snapshot_wire.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICK_NS = 2 * 1000 * 1000 };
/* The most that the clocks of two hosts are assumed to drift apart; any clock kept by NTP does
 * better. */
static const double clock_drift = 500e-6;
static const uint64_t END_WAIT_NS = 6 * UINT64_C(1000000000);

/* By the store's number for its connection. An agent that was declared gone is still found: what
 * it sends afterwards must be recognised as late. */
static ls_cluster_agent *find_agent(ls_cluster *cluster, uint64_t client)
{
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        if (cluster->agents[i].used && cluster->agents[i].client == client) {
            return &cluster->agents[i];
        }
    }
    return NULL;
}

/* Once only, and not while the run ends: the first reason is the cause, what follows are
 * consequences. The trainer's side writes the reason into the control page, from where the
 * orders take it to every agent. */
void ls_cluster_abort_all(ls_cluster *cluster, ls_status status, int32_t rank, const char *text)
{
    if (!cluster->aborted && !cluster->ending) {
        cluster->aborted = true;
        cluster->options.abort(cluster->options.context, status, rank, text);
    }
}

/* ---- orders ---- */

/* Takes the orders from the control page, which the trainer's thread writes. Any change makes a
 * new version; send_orders then sends it to every agent that has not seen it. */
static void read_orders(ls_cluster *cluster)
{
    const ls_control *control = cluster->control;
    /* Read `gather` first. It is requested after the grant it follows, so an order that carries
     * a gather then always carries the grant, too; an agent that saw the gather without it would
     * bring together the state of too early a step. */
    ls_cluster_orders now = {.kind = LS_CLUSTER_ORDERS,
                             .gather = atomic_load(&control->gather),
                             .sent_ns = cluster->orders.sent_ns};
    now.epoch = cluster->epoch;
    now.until = atomic_load(&control->until);
    now.stop = atomic_load(&control->stop);
    now.quit = atomic_load(&control->quit);
    now.abort = atomic_load(&control->abort);
    if (now.abort) {
        now.abort_rank = atomic_load(&control->abort_rank);
        memcpy(now.abort_text, control->abort_text, sizeof now.abort_text);
    }
    if (memcmp(&now, &cluster->orders, sizeof now) != 0) {
        cluster->orders = now;
        cluster->orders_version++;
    }
}

/* An agent that fails to take the message keeps its old version, and gets the orders with the
 * next tick. Nothing is queued for it: only the newest orders matter. */
static void send_orders(ls_cluster *cluster)
{
    read_orders(cluster);
    /* Orders are repeated as a sign of life, changed or not. */
    const uint64_t now = ls_env_now_ns(cluster->options.env);
    const bool beats = now - cluster->beat_ns >= LS_CLUSTER_BEAT_NS;
    cluster->beat_ns = beats ? now : cluster->beat_ns;
    cluster->orders.sent_ns = now;
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        ls_cluster_agent *a = &cluster->agents[i];
        if (a->used && !a->gone && (beats || a->orders_sent != cluster->orders_version) &&
            ls_store_server_send(cluster->server, a->client, &cluster->orders, sizeof cluster->orders) == 0) {
            a->orders_sent = cluster->orders_version;
        }
    }
}

/* ---- hello ---- */

/* The wire format is the memory layout of one binary, so nothing else is read from a HELLO whose
 * program differs. Before the run is under way this ends it: the person at the terminal should
 * know at once. Later it only concerns an agent that wants to join. */
static bool is_same_program(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    char text[500];
    if (hello->version == LS_CLUSTER_VERSION && hello->program == cluster->program) {
        return true;
    }
    snprintf(text, sizeof text,
             "host %s runs a different lockstep: version %s, program %016llx; the coordinator has version "
             "%s, program %016llx. Put the same binary on all hosts",
             hello->name[0] ? hello->name : hello->host, hello->lockstep, (unsigned long long)hello->program,
             LS_VERSION, (unsigned long long)cluster->program);
    ls_store_server_refuse(cluster->server, client, text);
    if (!cluster->running) {
        ls_cluster_abort_all(cluster, LS_ERR_MISMATCH, -1, text);
    }
    return false;
}

/* JOIN holds everything from which the agent makes its segment, so that a host needs no
 * configuration of its own. An agent that joins a run under way starts at the step that host 0
 * has finished; its state comes with the cut that includes it. */
static void send_join(ls_cluster *cluster, const ls_cluster_agent *a)
{
    const ls_cluster_options *options = &cluster->options;
    const ls_control *control = cluster->control;
    const size_t bytes = sizeof(ls_cluster_join) + control->text_bytes;
    ls_cluster_join *join = calloc(1, bytes);
    LS_ASSERT(join && "not enough memory for a message");
    *join = (ls_cluster_join){
        .kind = LS_CLUSTER_JOIN,
        .leaves = control->leaves,
        .crew = control->crew,
        .group = control->group,
        .workers = control->workers,
        .ranks = control->ranks,
        .first_rank = a->first_rank,
        .local_ranks = a->count,
        .threads = options->threads,
        .epoch = cluster->epoch,
        .step = a->is_joining ? cluster->hosts[0].status.finished : options->step,
        .float_count = control->float_count,
        .frozen_floats = control->frozen_floats,
        .exchange_bytes = a->count ? options->exchange_bytes(options->context, a->count) : 0,
        .text_bytes = (uint32_t)control->text_bytes,
        .host_index = (uint32_t)(a - cluster->agents) + 1,
        .lease_ns = options->lease_ns,
        .is_late = a->is_joining,
        .replacements = options->max_replacements,
        .wait_ns = options->wait_ns,
        .run = cluster->run,
    };
    snprintf(join->run_dir, sizeof join->run_dir, "%s", cluster->run_dir);
    snprintf(join->folder, sizeof join->folder, "%s", cluster->folder);
    memcpy((char *)join + sizeof *join, options->segment->text, control->text_bytes);
    /* Fails only when the agent is gone, which on_left handles. */
    (void)ls_store_server_send(cluster->server, a->client, join, bytes);
    free(join);
}

/* Four kinds of agents say HELLO: one that had a host number under an earlier trainer (host_index >
 * 0); a new one while a roll call is under way, which must wait; a spare, which only waits for
 * the end; and a new one, which gets a host number and JOIN. */
static void receive_hello(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *said)
{
    ls_cluster_hello hello = *said;
    LS_CLUSTER_CLOSE(hello.lockstep);
    LS_CLUSTER_CLOSE(hello.host);
    LS_CLUSTER_CLOSE(hello.name);
    if (find_agent(cluster, client)) {
        ls_store_server_refuse(cluster->server, client, "an agent sent the message HELLO twice");
        return;
    }
    if (cluster->ending || !is_same_program(cluster, client, &hello)) {
        return;
    }
    if (hello.host_index > 0) {
        ls_cluster_take_back(cluster, client, &hello);
        return;
    }
    if (cluster->is_returning) {
        ls_store_server_refuse(
            cluster->server, client,
            "a new trainer is taking over the run: start this agent again in a few seconds");
        return;
    }
    ls_cluster_agent *a = ls_cluster_assign_host(cluster, client, &hello);
    if (!a) {
        return;
    }
    ls_cluster_take_host(cluster, a);
    a->client = client;
    a->heard_ns = ls_env_now_ns(cluster->options.env);
    snprintf(a->name, sizeof a->name, "%s", hello.name[0] ? hello.name : hello.host);
    if (!a->is_spare) {
        send_join(cluster, a);
    }
    send_orders(cluster);
}

/* ---- what agents say ---- */

static bool is_rank_of(const ls_cluster_agent *a, uint32_t rank)
{
    return rank >= a->first_rank && rank - a->first_rank < a->count;
}

/*
 * The offset between the agent's clock and this one, from a message that left at sent_ns on the
 * agent's clock and arrived now. The true offset is at most the difference, because the message
 * took some time; so the smallest difference seen is the best estimate, and its error is the
 * shortest time a message took. An old estimate grows by the assumed drift, so that it is replaced
 * when the clocks have moved.
 */
static int64_t find_clock(const ls_cluster *cluster, ls_cluster_agent *a, uint64_t sent_ns)
{
    const uint64_t now_ns = ls_env_now_ns(cluster->options.env);
    const int64_t offset_ns = (int64_t)(now_ns - sent_ns);
    const uint64_t drift_ns = (uint64_t)(clock_drift * (double)(now_ns - a->clock_ns));
    const int64_t grown_ns = (int64_t)((uint64_t)a->clock_offset_ns + drift_ns);
    a->clock_offset_ns = a->clock_ns == 0 || offset_ns < grown_ns ? offset_ns : grown_ns;
    a->clock_ns = now_ns;
    return a->clock_offset_ns;
}

/* An agent may only report on ranks of its own. The times are moved to this host's clock before
 * the watchdog compares them with those of other hosts: a clock that is a day ahead must not
 * look like a rank that has waited for a day. */
static bool receive_snapshots(void *receiver, const ls_cluster_received *message)
{
    ls_cluster *cluster = receiver;
    ls_cluster_agent *a = message->sender;
    const ls_cluster_snapshots *head = message->fixed;
    uint32_t count = 0;
    if (ls_rank_snapshots_decode(message->tail, message->tail_bytes, cluster->control->ranks, head->taken_ns,
                                 cluster->snapshots, &count) != LS_OK) {
        return false;
    }
    const int64_t offset_ns = find_clock(cluster, a, head->taken_ns);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_rank_of(a, cluster->snapshots[i].rank)) {
            return false;
        }
        ls_rank_snapshot_shift(&cluster->snapshots[i], offset_ns);
    }
    if (cluster->options.seen) {
        cluster->options.seen(cluster->options.context, cluster->snapshots, count);
    }
    return true;
}

/* The text comes from another machine and will be printed: control characters are removed. */
static bool receive_stack(void *receiver, const ls_cluster_received *message)
{
    ls_cluster *cluster = receiver;
    ls_cluster_stack *stack = message->fixed;
    if (!is_rank_of(message->sender, stack->rank)) {
        return false;
    }
    ls_rank_snapshot_clean(stack->text, sizeof stack->text, true);
    if (cluster->options.stack) {
        cluster->options.stack(cluster->options.context, stack->rank, stack->is_stack != 0, stack->text);
    }
    return true;
}

/* During the roll call a status is what completes an agent's return: it comes after HELLO and
 * all READYs. */
static bool receive_status(void *receiver, const ls_cluster_received *message)
{
    ls_cluster *cluster = receiver;
    ls_cluster_agent *a = message->sender;
    ls_cluster_status *status = message->fixed;
    LS_CLUSTER_CLOSE(status->source);
    ls_cluster_receive_status(cluster, a, status);
    a->has_returned = a->has_returned || cluster->is_returning;
    a->until = status->until;
    a->results_from = status->results_from;
    return true;
}

/* Only a trainer that took over and lost its own host's memory asks for results. Every host
 * sends those it has, so the same step may come several times; the caller stores by step. */
static bool receive_result(void *receiver, const ls_cluster_received *message)
{
    ls_cluster *cluster = receiver;
    const ls_cluster_result *result = message->fixed;
    if (cluster->options.result && result->result.step >= cluster->options.heard) {
        cluster->options.result(cluster->options.context, &result->result);
    }
    return true;
}

/* A rank becomes ready in one of three phases: during the roll call it is one that lives on; in
 * a run under way it waits for a cut (`waiting_pid`); before that, the coordinator counts it until
 * all are ready. */
static bool receive_ready(void *receiver, const ls_cluster_received *message)
{
    ls_cluster *cluster = receiver;
    ls_cluster_ready *ready = message->fixed;
    LS_CLUSTER_CLOSE(ready->hello.host);
    if (!is_rank_of(message->sender, ready->hello.rank)) {
        return false;
    }
    if (cluster->is_returning) {
        ls_cluster_rank_lives(cluster, ready->hello.rank, ready->hello.pid, ready->has_part != 0);
    }
    if (cluster->running) {
        ls_cluster_rank_came(cluster, message->sender, &ready->hello);
    } else {
        cluster->options.ready(cluster->options.context, &ready->hello);
    }
    return true;
}

/* Who acts on a lost rank depends on the phase: before all ranks are ready it is the
 * coordinator, which ends the run; while a trainer takes over, the roll call; once the run is
 * under way, a fence and a new cut follow. */
static bool receive_lost(void *receiver, const ls_cluster_received *message)
{
    ls_cluster *cluster = receiver;
    ls_cluster_agent *a = message->sender;
    ls_cluster_lost *lost = message->fixed;
    LS_CLUSTER_CLOSE(lost->end.doing);
    if (!is_rank_of(a, lost->end.rank)) {
        return false;
    }
    if (cluster->is_returning) {
        ls_cluster_rank_is_gone(cluster, lost->end.rank);
    } else if (cluster->running) {
        ls_cluster_far_rank_lost(cluster, a, &lost->end);
    } else {
        cluster->options.lost(cluster->options.context, a->name, &lost->end);
    }
    return true;
}

/* A joiner's failure concerns only itself. A member's reason ends the run; the status must be
 * one that exists, because it becomes the exit code. */
static bool receive_abort(void *receiver, const ls_cluster_received *message)
{
    ls_cluster *cluster = receiver;
    ls_cluster_agent *a = message->sender;
    ls_cluster_abort *reason = message->fixed;
    LS_CLUSTER_CLOSE(reason->text);
    if (a->is_joining) {
        ls_cluster_drop_joiner(cluster, a, reason->text);
        return true;
    }
    if (reason->status == LS_OK || reason->status > LS_INTERRUPTED) {
        return false;
    }
    ls_cluster_abort_all(cluster, (ls_status)reason->status, reason->rank, reason->text);
    return true;
}

static bool receive_ended(void *receiver, const ls_cluster_received *message)
{
    ls_cluster_agent *a = message->sender;
    (void)receiver;
    a->ended = true;
    return true;
}

/* What agents send after their HELLO. */
static const ls_cluster_handler from_agents[] = {
    {LS_CLUSTER_STATUS, sizeof(ls_cluster_status), false, receive_status},
    {LS_CLUSTER_SNAPSHOTS, sizeof(ls_cluster_snapshots), true, receive_snapshots},
    {LS_CLUSTER_READY, sizeof(ls_cluster_ready), false, receive_ready},
    {LS_CLUSTER_LOST, sizeof(ls_cluster_lost), false, receive_lost},
    {LS_CLUSTER_ABORT, sizeof(ls_cluster_abort), false, receive_abort},
    {LS_CLUSTER_ENDED, sizeof(ls_cluster_ended), false, receive_ended},
    {LS_CLUSTER_STACK, sizeof(ls_cluster_stack), false, receive_stack},
    {LS_CLUSTER_RESULT, sizeof(ls_cluster_result), false, receive_result},
    {0},
};

/* Spares have no ranks; an agent that is gone cannot answer. */
static bool send_to_agent_of(ls_cluster *cluster, uint32_t rank, const ls_cluster_ask *ask)
{
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        if (a->used && !a->gone && !a->is_spare && is_rank_of(a, rank)) {
            return ls_store_server_send(cluster->server, a->client, ask, sizeof *ask) == 0;
        }
    }
    return false;
}

bool ls_cluster_ask_stack(ls_cluster *cluster, uint32_t rank, int32_t pid)
{
    const ls_cluster_ask ask = {.kind = LS_CLUSTER_ASK, .rank = rank, .pid = pid};
    return send_to_agent_of(cluster, rank, &ask);
}

/* Of the trainer's own host one rank with a part must remain (bound >= 2), because the trainer
 * reads its results from that host's memory. The reason is kept until the rank's LOST arrives,
 * for the event. */
bool ls_cluster_kill(ls_cluster *cluster, uint32_t rank, int32_t pid, const char *why)
{
    const ls_cluster_ask kill = {.kind = LS_CLUSTER_KILL, .rank = rank, .pid = pid};
    if (!cluster->running || cluster->aborted || cluster->ending) {
        return false;
    }
    const bool is_far = rank - cluster->control->first_rank >= cluster->control->local_ranks;
    if (!is_far && cluster->hosts[0].status.bound < 2) {
        return false;
    }
    cluster->killed_pid = pid;
    snprintf(cluster->killed_why, sizeof cluster->killed_why, "%s", why);
    if (is_far) {
        /* When the agent is gone, too, its whole host is lost anyway. */
        (void)send_to_agent_of(cluster, rank, &kill);
    }
    return true;
}

/* A message proves that its sender lives, whatever it contains. An agent that was declared gone
 * is ignored, not refused again: its share of the state may have a new owner already, and it
 * will learn that from the link. */
static void on_message(void *context, uint64_t client, const void *data, size_t bytes)
{
    ls_cluster *cluster = context;
    if (ls_cluster_kind_of(data, bytes) == LS_CLUSTER_HELLO && bytes == sizeof(ls_cluster_hello)) {
        ls_cluster_hello hello;
        memcpy(&hello, data, sizeof hello);
        receive_hello(cluster, client, &hello);
        return;
    }
    ls_cluster_agent *a = find_agent(cluster, client);
    if (a && a->gone) {
        return; /* it was declared lost and will be told so */
    }
    if (a) {
        a->heard_ns = ls_env_now_ns(cluster->options.env);
    }
    if (!a || !ls_cluster_dispatch(from_agents, cluster, a, data, bytes)) {
        ls_store_server_refuse(cluster->server, client, "the coordinator does not accept this message");
    }
}

/* The link to an agent ended. An agent that has ended, or a spare, may go. During the roll call
 * it may return once more. A joiner is forgotten; any other host is lost, and its ranks with it. */
static void on_left(void *context, uint64_t client)
{
    ls_cluster *cluster = context;
    ls_cluster_agent *a = find_agent(cluster, client);
    char text[500];
    if (!a || a->gone) {
        return;
    }
    if (a->ended || a->is_spare || cluster->ending) {
        a->gone = true;
        return;
    }
    if (cluster->is_returning) {
        ls_cluster_forget_return(cluster, a);
        return;
    }
    if (a->is_joining) {
        ls_cluster_drop_joiner(cluster, a, "the connection to its agent was closed");
        return;
    }
    snprintf(text, sizeof text,
             "host %s (%u rank%s, starting at rank %u) is gone: the connection to its agent was closed",
             a->name, a->count, a->count == 1 ? "" : "s", a->first_rank);
    ls_cluster_host_lost(cluster, a, text);
}

/* ---- the end ---- */

/* Agents that are gone are not waited for; those that still run get END_WAIT_NS. */
static bool all_ended(const ls_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        if (a->used && !a->gone && !a->ended) {
            return false;
        }
    }
    return true;
}

/* Every 2 ms: send orders that changed, then look at the roll call, the members, missing agents,
 * and the end. */
static void tick(void *context)
{
    ls_cluster *cluster = context;
    const uint64_t now = ls_env_now_ns(cluster->options.env);
    cluster->timer = ls_env_timer_set(cluster->options.env, TICK_NS, tick, cluster);
    send_orders(cluster);
    ls_cluster_return_tick(cluster);
    ls_cluster_reform_tick(cluster);
    if (!cluster->running && !cluster->is_returning && !cluster->ending) {
        ls_cluster_wait_tick(cluster, now);
    }
    if (cluster->ending && !cluster->has_ended && (all_ended(cluster) || now >= cluster->end_deadline_ns)) {
        cluster->has_ended = true;
        ls_cluster_end_log(cluster, cluster->options.ended);
    }
}

/* No message is sent here: the control page already says quit or abort, and the orders carry
 * that to the agents. What remains is to wait for their ENDED, and for the log. */
void ls_cluster_end(ls_cluster *cluster)
{
    if (!cluster->ending) {
        cluster->ending = true;
        cluster->end_deadline_ns = ls_env_now_ns(cluster->options.env) + END_WAIT_NS;
    }
}

/* ---- life ---- */

/* The hosts of a list have their numbers and ranks from the beginning. */
static void number_hosts(ls_cluster *cluster)
{
    cluster->given = cluster->control->first_rank + cluster->control->local_ranks;
    for (uint32_t i = 0; i < cluster->options.host_count; i++) {
        ls_cluster_agent *a = &cluster->agents[cluster->agent_count++];
        a->first_rank = cluster->given;
        a->count = cluster->options.hosts[i].slots;
        cluster->given += a->count;
    }
    LS_ASSERT(cluster->given <= cluster->control->ranks);
}

/* The agents enter the same folder and use the same run directory, so both must be absolute. */
static ls_status find_folders(ls_cluster *cluster)
{
    char run_dir[PATH_MAX];
    if (!getcwd(cluster->folder, sizeof cluster->folder) || !realpath(cluster->options.run_dir, run_dir) ||
        strlen(run_dir) >= sizeof cluster->run_dir) {
        return ls_fail(LS_ERR_INVALID,
                       "for a run on several hosts, the current folder and the run directory %s must exist, "
                       "and the path of each may have at most %d characters",
                       cluster->options.run_dir, LS_CLUSTER_PATH_BYTES - 1);
    }
    memcpy(cluster->run_dir, run_dir, strlen(run_dir) + 1);
    return LS_OK;
}

/* No message is handled before the env's loop runs, so agents that connect while this function
 * works simply wait. */
ls_status ls_cluster_open(const ls_cluster_options *options, ls_cluster **cluster_out)
{
    LS_ASSERT(options->host_count < LS_CLUSTER_AGENTS_MAX);
    const ls_control *control = options->segment->control;
    if (control->text_bytes > LS_CLUSTER_TEXT_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "the run file has %llu bytes; a run on several hosts allows at most %d",
                       (unsigned long long)control->text_bytes, LS_CLUSTER_TEXT_BYTES_MAX);
    }
    ls_cluster *cluster = calloc(1, sizeof *cluster);
    ls_cluster_agent *agents = calloc(LS_CLUSTER_AGENTS_MAX, sizeof *agents);
    ls_rank_snapshot *snapshots = calloc(LS_RANK_SNAPSHOTS_MAX, sizeof *snapshots);
    ls_cluster_comeback *comebacks = calloc(options->host_count + 1, sizeof *comebacks);
    if (!cluster || !agents || !snapshots || !comebacks) {
        free(cluster);
        free(agents);
        free(snapshots);
        free(comebacks);
        return ls_fail(LS_ERR_MEMORY, "not enough memory to manage the agents (on each host, the process "
                                      "that starts and watches its ranks)");
    }
    cluster->options = *options;
    cluster->control = options->segment->control;
    cluster->agents = agents;
    cluster->snapshots = snapshots;
    cluster->results_wanted = options->is_fresh ? options->heard : UINT64_MAX;
    cluster->comebacks = comebacks;
    ls_status status = ls_program_hash(&cluster->program);
    const ls_store_server_options server = {.address = options->listen,
                                            .token = options->token,
                                            .epoch = control->epoch,
                                            .other = on_message,
                                            .left = on_left,
                                            .context = cluster};
    if (status == LS_OK) {
        status = ls_cluster_reform_init(cluster);
    }
    if (status == LS_OK) {
        status = find_folders(cluster);
    }
    if (status == LS_OK) {
        status = ls_store_server_open(options->env, &server, &cluster->server);
    }
    if (status == LS_OK) {
        number_hosts(cluster);
        status = ls_cluster_return_init(cluster);
    }
    if (status != LS_OK) {
        ls_store_server_close(cluster->server);
        free(cluster->logged);
        ls_cluster_reform_release(cluster);
        free(agents);
        free(snapshots);
        free(comebacks);
        free(cluster);
        return status;
    }
    cluster->start_deadline_ns = ls_env_now_ns(options->env) + options->start_timeout_ns;
    cluster->log_missing_ns = ls_env_now_ns(options->env) + LS_CLUSTER_LOG_MISSING_NS;
    cluster->timer = ls_env_timer_set(options->env, TICK_NS, tick, cluster);
    *cluster_out = cluster;
    return LS_OK;
}

void ls_cluster_close(ls_cluster *cluster)
{
    if (!cluster) {
        return;
    }
    ls_env_timer_cancel(cluster->options.env, cluster->timer);
    ls_store_server_close(cluster->server);
    ls_cluster_reform_release(cluster);
    free(cluster->logged);
    free(cluster->agents);
    free(cluster->snapshots);
    free(cluster->comebacks);
    free(cluster);
}

const char *ls_cluster_address(const ls_cluster *cluster)
{
    return ls_store_server_address(cluster->server);
}
