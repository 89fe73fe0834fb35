// SPDX-License-Identifier: Apache-2.0
/* A trainer in the place of one that is gone: its log, and the hosts that return to it. What follows is a change of members like any other. */
#include "execution/elastic/cluster_internal.h"

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* For agents to come back; they try several times in a second. */
static const uint64_t RETURN_NS = 8 * UINT64_C(1000000000);

/* ---- the log ---- */

static void opened(void *context, const ls_log_state *before)
{
    ls_cluster *cluster = context;
    if (before->wrong) {
        ls_log_warn("coordinator.log: %s behind %llu good bytes was cut off", before->wrong,
                    (unsigned long long)before->good_bytes);
    }
    cluster->log_is_open = true;
}

/* Nobody could go on in the place of this trainer, as it was asked for. */
static void failed(void *context, int error)
{
    ls_cluster *cluster = context;
    char text[600];
    snprintf(text, sizeof text, "coordinator.log in %s can't be written: %s", cluster->options.log_folder,
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

/* The ranks of this host: by them, whoever comes next finds its memory. */
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

static void list_seats(const ls_cluster *cluster, ls_log_cuts *cuts)
{
    const ls_control *control = cluster->control;
    cuts->seats[0] = (ls_log_seat){(uint16_t)control->first_rank, (uint16_t)control->local_ranks};
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        cuts->seats[i + 1] = (ls_log_seat){(uint16_t)a->first_rank, a->is_spare ? 0 : (uint16_t)a->count};
    }
}

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
        list_seats(cluster, logged);
        cluster->log_pending++;
        ls_coordinator_log_cuts(cluster->log, logged);
        ls_coordinator_log_epoch(cluster->log, cut->epoch, cut->step, members, list_members(cluster, members),
                                 is_durable, cluster);
    }
    return cluster->log_pending == 0;
}

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

static uint64_t hash_run(const ls_cluster *cluster)
{
    const uint64_t folder = ls_xxh3(cluster->run_dir, strlen(cluster->run_dir), 0);
    return ls_xxh3(cluster->options.segment->text, (size_t)cluster->control->text_bytes, folder);
}

/* This host has nothing of what it kept in the cut. */
static void forget_own(ls_cut *cut)
{
    for (uint32_t i = 0; i < cut->host_count; i++) {
        if (cut->hosts[i].host == 0) {
            cut->hosts[i].host = LS_CLUSTER_NO_PLACE;
        }
    }
}

/* Places are as they were; who has not come back is not there. */
static void take_seats(ls_cluster *cluster, const ls_log_state *left)
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
    for (uint32_t place = 1; place <= LS_CLUSTER_AGENTS_MAX; place++) {
        ls_cluster_agent *a = &cluster->agents[place - 1];
        if (cuts->seats[place].count > 0) {
            a->first_rank = cuts->seats[place].first_rank;
            a->count = cuts->seats[place].count;
            cluster->agent_count = cluster->agent_count > place ? cluster->agent_count : place;
            snprintf(a->name, sizeof a->name, "%s",
                     place <= hosts ? cluster->options.hosts[place - 1].name : "?");
        }
    }
    cluster->is_returning = true;
    cluster->return_ns = ls_env_now_ns(cluster->options.env) + RETURN_NS;
}

ls_status ls_cluster_return_init(ls_cluster *cluster)
{
    cluster->run = hash_run(cluster);
    if (cluster->options.left) {
        take_seats(cluster, cluster->options.left);
        cluster->options.left = NULL;
    }
    if (!cluster->options.log_folder) {
        return LS_OK;
    }
    cluster->logged = calloc(1, sizeof *cluster->logged);
    return cluster->logged ? open_log(cluster) : ls_fail(LS_ERR_MEMORY, "no memory for a table of hosts");
}

ls_coordinator_log *ls_cluster_take_log(ls_cluster *cluster)
{
    ls_coordinator_log *log = cluster ? cluster->log : NULL;
    if (log) {
        cluster->log = NULL;
    }
    return log;
}

/* ---- who comes back ---- */

void ls_cluster_take_back(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    ls_cluster_agent *a = hello->place <= cluster->agent_count ? &cluster->agents[hello->place - 1] : NULL;
    if (hello->run != cluster->run) {
        ls_store_server_refuse(cluster->server, client, "this host's ranks are those of another run");
    } else if (!cluster->is_returning) {
        ls_store_server_refuse(cluster->server, client,
                               "the run goes on without this host, which it takes for lost");
    } else if (!a || a->used || a->first_rank != hello->first_rank || a->count != hello->local_ranks) {
        ls_store_server_refuse(cluster->server, client, "this host's place is none of this run, or taken");
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
    cluster->came[rank] = pid;
}

void ls_cluster_rank_is_gone(ls_cluster *cluster, uint32_t rank)
{
    cluster->takes_part[rank] = false;
    cluster->came[rank] = 0;
}

void ls_cluster_unseat(ls_cluster *cluster, ls_cluster_agent *agent)
{
    agent->used = agent->has_returned = false;
    cluster->hosts[agent - cluster->agents + 1] = (ls_reform_host){0};
    for (uint32_t i = 0; i < agent->count; i++) {
        ls_cluster_rank_is_gone(cluster, agent->first_rank + i);
    }
}

/* ---- going on ---- */

/* All that count in the newest cut have come. */
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

/* Those of this host, when none was left: they take part in the next cut. */
static bool own_are_ready(const ls_cluster *cluster)
{
    bool ready = true;
    for (uint32_t local = 0; local < cluster->control->local_ranks; local++) {
        ready = ready && cluster->side.lives[local];
    }
    return ready;
}

/* The ranks of a host with parts in the newest cut: who lives goes on, who has died meanwhile is told of. */
static void sort_ranks(ls_cluster *cluster, const char *host, uint32_t first, uint32_t count, uint32_t parts)
{
    char cause[400];
    uint32_t living = 0;
    for (uint32_t rank = first; rank < first + count; rank++) {
        living += cluster->takes_part[rank];
        cluster->came[rank] = cluster->takes_part[rank] ? 0 : cluster->came[rank];
    }
    for (uint32_t rank = first; rank < first + count && living < parts; rank++) {
        if (!cluster->takes_part[rank] && cluster->came[rank] == 0) {
            snprintf(cause, sizeof cause, "rank %u (%s) is gone, as the trainer before this one is", rank,
                     host);
            ls_cluster_note_lost(cluster, rank, cause, 0);
            living++;
        }
    }
}

/* It is not there, or has nothing of what it should have: what it kept is somewhere else, or nowhere. */
static void note_missing(ls_cluster *cluster, ls_cluster_agent *agent)
{
    char cause[400];
    snprintf(
        cause, sizeof cause,
        "host %s (%u rank%s, from rank %u on) is lost: it did not come back to this trainer within %.3g s",
        agent->name, agent->count, agent->count == 1 ? "" : "s", agent->first_rank, 1e-9 * RETURN_NS);
    ls_log_warn("%s", cause);
    for (uint32_t i = 0; i < agent->count; i++) {
        ls_cluster_note_lost(cluster, agent->first_rank + i, cause, 0);
    }
}

/* A host that had no part yet, or none any more: it joins like any other. */
static void make_joiner(ls_cluster *cluster, ls_cluster_agent *agent)
{
    agent->is_joining = true;
    for (uint32_t i = 0; i < agent->count; i++) {
        cluster->takes_part[agent->first_rank + i] = false;
    }
}

static void seat(ls_cluster *cluster, uint32_t place)
{
    ls_cluster_agent *a = &cluster->agents[place - 1];
    ls_reform_host *host = &cluster->hosts[place];
    const uint32_t parts = ls_reform_parts(cluster->cuts[0], place);
    /* A newcomer that was not told of the cut has nothing of it. */
    const bool is_member = parts > 0 && (host->status.cut == cluster->cuts[0]->epoch ||
                                         ls_reform_parts(cluster->cuts[1], place) > 0);
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

/* Those that were here before: others have their places by now. */
static void note_own(ls_cluster *cluster)
{
    const ls_control *control = cluster->control;
    for (uint32_t rank = control->first_rank; rank < control->first_rank + control->local_ranks; rank++) {
        const int32_t pid = cluster->came[rank];
        ls_cluster_note_lost(cluster, rank, "the ranks of the trainer's host are gone, as their trainer is",
                             0);
        cluster->came[rank] = pid;
    }
}

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
        seat(cluster, i + 1);
        cluster->agents[i].heard_ns = now;
    }
    if (cluster->options.is_fresh) {
        note_own(cluster);
    }
    for (uint32_t place = 0; place <= cluster->agent_count; place++) {
        const ls_host_status *s = &cluster->hosts[place].status;
        epoch = s->fence > epoch ? s->fence : epoch;
        epoch = s->cut > epoch ? s->cut : epoch;
    }
    cluster->is_returning = false;
    cluster->running = true;
    cluster->tick_ns = now;
    ls_cluster_raise_fence(cluster, epoch + 1, true);
    cluster->options.returned(cluster->options.context);
}

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
        ls_cluster_abort_all(cluster, LS_ERR_TIMEOUT, -1, "not ready in time: ranks of the trainer's host");
    }
}

bool ls_cluster_ask_roll(const ls_cluster *cluster, uint64_t *until_out)
{
    const uint64_t heard = cluster->options.heard;
    ls_cut held = *cluster->cuts[1];
    uint64_t until = 0, from = UINT64_MAX;
    for (uint32_t place = 1; place <= cluster->agent_count; place++) {
        const ls_cluster_agent *a = &cluster->agents[place - 1];
        ls_reform_host *host = &cluster->hosts[place];
        host->is_here = a->has_returned && ls_reform_parts(cluster->cuts[0], place) > 0;
        if (host->is_here) {
            until = a->until > until ? a->until : until;
            from = a->results_from < from ? a->results_from : from;
            held = host->status.held >= cluster->cuts[0]->epoch ? *cluster->cuts[0] : held;
        }
    }
    *until_out = until;
    return until > 0 && from <= heard && heard <= until && until <= heard + LS_RANK_RESULTS &&
           ls_reform_find_holders(&cluster->options.settings, cluster->hosts, &held);
}
