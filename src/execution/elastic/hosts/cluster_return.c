// SPDX-License-Identifier: Apache-2.0
/* Taking over from a trainer that is gone: the log that makes it possible, and the roll call of
 * the hosts that return. It ends in a fence, after which all is a change of members like any
 * other. */
#include "execution/elastic/hosts/cluster_internal.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/math.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long the roll call waits for agents, which try to connect several times a second. */
static const uint64_t RETURN_NS = 8 * UINT64_C(1000000000);

/* ---- the log ---- */

static void opened(void *context, const ls_log_state *before)
{
    ls_cluster *cluster = context;
    if (before->wrong) {
        ls_log_warn("coordinator.log has %s after %llu valid bytes; the file was cut off there",
                    before->wrong, (unsigned long long)before->good_bytes);
    }
    cluster->log_is_open = true;
}

/* The person asked for a run that another trainer can take over (job.lease); without a log none
 * can. */
static void failed(void *context, int error)
{
    ls_cluster *cluster = context;
    char text[600];
    snprintf(text, sizeof text, "cannot write coordinator.log in %s: %s", cluster->options.log_folder,
             strerror(-error));
    cluster->log_is_open = false;
    if (cluster->end_logged) {
        cluster->end_logged(cluster->options.context);
    } else {
        ls_cluster_abort_all(cluster, LS_ERR_DISK, -1, text);
    }
}

static ls_status open_log(ls_cluster *cluster)
{
    ls_coordinator_log_options options = {
        .env = cluster->options.env,
        .folder = cluster->options.log_folder,
        .run = {.pid = getpid(), .start_time = ls_process_start(getpid())},
        .context = cluster,
        .opened = opened,
        .failed = failed,
    };
    snprintf(options.run.identity, sizeof options.run.identity, "%s", cluster->options.identity);
    return ls_coordinator_log_open(&options, &cluster->log);
}

static void is_durable(void *context)
{
    ((ls_cluster *)context)->log_pending--;
}

/* The ranks of this host. The trainer that takes over finds the host's memory through their
 * processes. */
static uint32_t list_members(const ls_cluster *cluster, ls_log_member members[LS_LOG_MEMBERS_MAX])
{
    const ls_control *control = cluster->control;
    uint32_t count = 0;
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        const ls_rank_slot *slot = &control->slots[local];
        if (cluster->side.lives[local]) {
            members[count++] = (ls_log_member){.rank = control->first_rank + local,
                                               .pid = atomic_load(&slot->pid),
                                               .start_time = atomic_load(&slot->pid_start)};
        }
    }
    return count;
}

static void list_hosts(const ls_cluster *cluster, ls_log_cuts *cuts)
{
    const ls_control *control = cluster->control;
    cuts->hosts[0] = (ls_log_host){(uint16_t)control->first_rank, (uint16_t)control->local_ranks};
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        cuts->hosts[i + 1] = (ls_log_host){(uint16_t)a->first_rank, a->is_spare ? 0 : (uint16_t)a->count};
    }
}

/* Called on every tick until it returns true; the log is written to only when the cuts differ
 * from those written last. Without a log there is nothing to wait for; with one that is still
 * being opened there is. */
bool ls_cluster_is_durable(ls_cluster *cluster, const ls_cut *cut, const ls_cut *held)
{
    ls_log_cuts *logged = cluster->logged;
    if (!cluster->log || !cluster->log_is_open) {
        return !cluster->log;
    }
    if (memcmp(&logged->newest, cut, sizeof *cut) != 0 || memcmp(&logged->held, held, sizeof *held) != 0) {
        ls_log_member members[LS_LOG_MEMBERS_MAX];
        logged->newest = *cut;
        logged->held = *held;
        list_hosts(cluster, logged);
        cluster->log_pending++;
        ls_coordinator_log_cuts(cluster->log, logged);
        const ls_log_epoch epoch = {.epoch = cut->epoch,
                                    .step = cut->step,
                                    .members = members,
                                    .count = list_members(cluster, members)};
        ls_coordinator_log_epoch(cluster->log, &epoch, is_durable, cluster);
    }
    return cluster->log_pending == 0;
}

/* A successor that finds the end in the log does not take over. `done` is called in any case. */
void ls_cluster_end_log(ls_cluster *cluster, void (*done)(void *context))
{
    cluster->end_logged = done;
    if (cluster->log_is_open) {
        ls_coordinator_log_end(cluster->log, cluster->hosts[0].status.finished, done,
                               cluster->options.context);
    } else {
        done(cluster->options.context);
    }
}

/* ---- life ---- */

/* Two runs with the same file in different directories must not adopt each other's ranks. */
static uint64_t hash_run(const ls_cluster *cluster)
{
    const uint64_t folder = ls_xxh3(cluster->run_dir, strlen(cluster->run_dir), 0);
    return ls_xxh3(cluster->options.segment->text, (size_t)cluster->control->text_bytes, folder);
}

/* Nothing of what host 0 kept in this cut is left. */
static void forget_own(ls_cut *cut)
{
    for (uint32_t i = 0; i < cut->host_count; i++) {
        if (cut->hosts[i].host == 0) {
            cut->hosts[i].host = LS_CLUSTER_NO_HOST;
        }
    }
}

/* Host numbers are as they were; a host that has not returned is not a member. */
static void restore_hosts(ls_cluster *cluster, const ls_log_state *left)
{
    const ls_log_cuts *cuts = &left->cuts;
    const uint32_t hosts = cluster->options.host_count;
    *cluster->cuts[0] = cuts->newest;
    *cluster->cuts[1] = cuts->held;
    if (cluster->options.is_fresh) {
        forget_own(cluster->cuts[0]);
        forget_own(cluster->cuts[1]);
    }
    cluster->epoch = left->epoch;
    cluster->given = cluster->control->ranks;
    for (uint32_t host_index = 1; host_index <= LS_CLUSTER_AGENTS_MAX; host_index++) {
        ls_cluster_agent *a = &cluster->agents[host_index - 1];
        if (cuts->hosts[host_index].count > 0) {
            a->first_rank = cuts->hosts[host_index].first_rank;
            a->count = cuts->hosts[host_index].count;
            cluster->agent_count = cluster->agent_count > host_index ? cluster->agent_count : host_index;
            snprintf(a->name, sizeof a->name, "%s",
                     host_index <= hosts ? cluster->options.hosts[host_index - 1].name : "?");
        }
    }
    cluster->is_returning = true;
    cluster->return_ns = ls_env_now_ns(cluster->options.env) + RETURN_NS;
}

/* With a log of an earlier trainer the cluster begins in the roll call; without one it begins as
 * usual. */
ls_status ls_cluster_return_init(ls_cluster *cluster)
{
    cluster->run = hash_run(cluster);
    if (cluster->options.left) {
        restore_hosts(cluster, cluster->options.left);
        cluster->options.left = NULL;
    }
    if (!cluster->options.log_folder) {
        return LS_OK;
    }
    cluster->logged = calloc(1, sizeof *cluster->logged);
    return cluster->logged ? open_log(cluster)
                           : ls_fail(LS_ERR_MEMORY, "not enough memory for a table of hosts");
}

/* The log outlives the cluster: disk calls of it may be under way until the env is gone. */
ls_coordinator_log *ls_cluster_take_log(ls_cluster *cluster)
{
    ls_coordinator_log *log = cluster ? cluster->log : NULL;
    if (log) {
        cluster->log = NULL;
    }
    return log;
}

/* ---- the roll call ---- */

/* A returning agent proves that it belongs here: same run, its number not taken, and the same
 * ranks as the log says. One that comes after the roll call was declared lost; its share of the
 * state has a new owner by then, so it must not continue. */
void ls_cluster_take_back(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    ls_cluster_agent *a =
        hello->host_index <= cluster->agent_count ? &cluster->agents[hello->host_index - 1] : NULL;
    if (hello->run != cluster->run) {
        ls_store_server_refuse(cluster->server, client, "the ranks of this host belong to another run");
    } else if (!cluster->is_returning) {
        ls_store_server_refuse(cluster->server, client,
                               "this host was declared lost, and the run continues without it");
    } else if (!a || a->used || a->first_rank != hello->first_rank || a->count != hello->local_ranks) {
        ls_store_server_refuse(
            cluster->server, client,
            "the number of this host in the run is out of range, or another agent already has it");
    } else {
        a->used = true;
        a->client = client;
        a->heard_ns = ls_env_now_ns(cluster->options.env);
        snprintf(a->name, sizeof a->name, "%s", hello->name[0] ? hello->name : hello->host);
    }
}

void ls_cluster_rank_lives(ls_cluster *cluster, uint32_t rank, int32_t pid, bool has_part)
{
    cluster->takes_part[rank] = has_part;
    cluster->waiting_pid[rank] = pid;
}

void ls_cluster_rank_is_gone(ls_cluster *cluster, uint32_t rank)
{
    cluster->takes_part[rank] = false;
    cluster->waiting_pid[rank] = 0;
}

/* The agent may connect once more while the roll call lasts. */
void ls_cluster_forget_return(ls_cluster *cluster, ls_cluster_agent *agent)
{
    agent->used = agent->has_returned = false;
    cluster->hosts[agent - cluster->agents + 1] = (ls_reform_host){0};
    for (uint32_t i = 0; i < agent->count; i++) {
        ls_cluster_rank_is_gone(cluster, agent->first_rank + i);
    }
}

/* ---- the end of the roll call ---- */

/* All hosts with a part in the newest cut have returned. */
static bool all_returned(const ls_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        if (ls_reform_parts(cluster->cuts[0], i + 1) > 0 && !a->has_returned) {
            return false;
        }
    }
    return true;
}

/* The ranks of a host 0 without memory were started anew; they take part in the next cut. */
static bool own_are_ready(const ls_cluster *cluster)
{
    bool ready = true;
    for (uint32_t local = 0; local < cluster->control->local_ranks; local++) {
        ready = ready && cluster->side.lives[local];
    }
    return ready;
}

/* Ranks of a host with parts in the newest cut: those that live continue; those that died
 * meanwhile are reported as lost. */
static void sort_ranks(ls_cluster *cluster, const char *host, uint32_t first, uint32_t count, uint32_t parts)
{
    char cause[400];
    uint32_t living = 0;
    for (uint32_t rank = first; rank < first + count; rank++) {
        living += cluster->takes_part[rank];
        cluster->waiting_pid[rank] = cluster->takes_part[rank] ? 0 : cluster->waiting_pid[rank];
    }
    for (uint32_t rank = first; rank < first + count && living < parts; rank++) {
        if (!cluster->takes_part[rank] && cluster->waiting_pid[rank] == 0) {
            snprintf(cause, sizeof cause, "rank %u (%s) ended after the previous trainer did", rank, host);
            ls_cluster_note_lost(cluster, rank, cause, 0);
            living++;
        }
    }
}

/* The host is not here, or not with what it should have. What it kept is somewhere else, or
 * lost. */
static void note_missing(ls_cluster *cluster, ls_cluster_agent *agent)
{
    char cause[400];
    snprintf(
        cause, sizeof cause,
        "host %s (%u rank%s, starting at rank %u) is lost: it did not return to this trainer within %.3g s",
        agent->name, agent->count, agent->count == 1 ? "" : "s", agent->first_rank, 1e-9 * RETURN_NS);
    ls_log_warn("%s", cause);
    for (uint32_t i = 0; i < agent->count; i++) {
        ls_cluster_note_lost(cluster, agent->first_rank + i, cause, 0);
    }
}

/* A host that had no part yet, or none any more, joins like any other. */
static void make_joiner(ls_cluster *cluster, ls_cluster_agent *agent)
{
    agent->is_joining = true;
    for (uint32_t i = 0; i < agent->count; i++) {
        cluster->takes_part[agent->first_rank + i] = false;
    }
}

/*
 * What becomes of a host when the roll call is over:
 *   returned, in the newest cut and knows of it      a member again
 *   returned, not in the cut or never heard of it    joins like a newcomer
 *   did not return                                   lost, if it had parts
 */
static void settle_host(ls_cluster *cluster, uint32_t host_index)
{
    ls_cluster_agent *a = &cluster->agents[host_index - 1];
    ls_reform_host *host = &cluster->hosts[host_index];
    const uint32_t parts = ls_reform_parts(cluster->cuts[0], host_index);
    /* A host that joined but never heard of the cut has nothing of it. */
    const bool is_member = parts > 0 && (host->status.cut == cluster->cuts[0]->epoch ||
                                         ls_reform_parts(cluster->cuts[1], host_index) > 0);
    if (a->has_returned && is_member) {
        host->is_here = true;
        sort_ranks(cluster, a->name, a->first_rank, a->count, parts);
    } else if (a->has_returned) {
        make_joiner(cluster, a);
    } else if (a->count > 0) {
        a->used = a->gone = true;
        *host = (ls_reform_host){0};
        if (parts > 0) {
            note_missing(cluster, a);
        }
    }
}

/* The earlier ranks of host 0 are gone; new processes have their numbers by now. */
static void note_own(ls_cluster *cluster)
{
    const ls_control *control = cluster->control;
    for (uint32_t rank = control->first_rank; rank < control->first_rank + control->local_ranks; rank++) {
        const int32_t pid = cluster->waiting_pid[rank];
        ls_cluster_note_lost(cluster, rank,
                             "the ranks of the trainer's host are gone with the previous trainer", 0);
        cluster->waiting_pid[rank] = pid;
    }
}

/* The roll call is over. The own host is looked at first, then every other; the fence is above
 * every epoch that anyone has named (the log's, a fence that an agent raised by itself, a cut
 * that the log may have missed), so no earlier order can be mistaken for a later one. */
static void go_on(ls_cluster *cluster)
{
    const ls_control *control = cluster->control;
    const uint64_t now = ls_env_now_ns(cluster->options.env);
    uint64_t epoch = cluster->epoch;
    ls_host_side_status(&cluster->side, &cluster->hosts[0].status);
    cluster->hosts[0].is_here = true;
    sort_ranks(cluster, control->host, control->first_rank, control->local_ranks,
               ls_reform_parts(cluster->cuts[0], 0));
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        settle_host(cluster, i + 1);
        cluster->agents[i].heard_ns = now;
    }
    if (cluster->options.is_fresh) {
        note_own(cluster);
    }
    for (uint32_t host_index = 0; host_index <= cluster->agent_count; host_index++) {
        const ls_host_status *s = &cluster->hosts[host_index].status;
        epoch = ls_max_u64(epoch, s->fence);
        epoch = ls_max_u64(epoch, s->cut);
    }
    cluster->is_returning = false;
    cluster->running = true;
    cluster->tick_ns = now;
    ls_cluster_raise_fence(cluster, epoch + 1, true);
    cluster->options.returned(cluster->options.context);
}

/* The roll call ends when all hosts of the newest cut have returned, or the time is up. A host 0
 * without memory also waits for its new ranks: it needs them for a part in the next cut. */
void ls_cluster_return_tick(ls_cluster *cluster)
{
    const uint64_t now = ls_env_now_ns(cluster->options.env);
    if (!cluster->is_returning || cluster->aborted || cluster->ending ||
        (now < cluster->return_ns && !all_returned(cluster))) {
        return;
    }
    if (cluster->options.only_asks) {
        cluster->options.returned(cluster->options.context);
    } else if (!cluster->options.is_fresh || own_are_ready(cluster)) {
        go_on(cluster);
    } else if (now >= cluster->start_deadline_ns) {
        ls_cluster_abort_all(cluster, LS_ERR_TIMEOUT, -1,
                             "the ranks of the trainer's host were not ready in time");
    }
}

/* For a trainer whose own host has nothing left. The others can go on without its memory when
 * three things hold: steps were granted at all; the results of all steps that this trainer has
 * not written down are still in some host's ring (from <= heard, until <= heard + ring); and
 * every share of the state has a living holder. */
bool ls_cluster_ask_roll(const ls_cluster *cluster, uint64_t *until_out)
{
    const uint64_t heard = cluster->options.heard;
    ls_cut held = *cluster->cuts[1];
    uint64_t until = 0, from = UINT64_MAX;
    for (uint32_t host_index = 1; host_index <= cluster->agent_count; host_index++) {
        const ls_cluster_agent *a = &cluster->agents[host_index - 1];
        ls_reform_host *host = &cluster->hosts[host_index];
        host->is_here = a->has_returned && ls_reform_parts(cluster->cuts[0], host_index) > 0;
        if (host->is_here) {
            until = ls_max_u64(until, a->until);
            from = ls_min_u64(from, a->results_from);
            held = host->status.held >= cluster->cuts[0]->epoch ? *cluster->cuts[0] : held;
        }
    }
    *until_out = until;
    return until > 0 && from <= heard && heard <= until && until <= heard + LS_RANK_RESULTS &&
           ls_reform_find_holders(&cluster->options.settings, cluster->hosts, cluster->agent_count + 1,
                                  &held);
}
