// SPDX-License-Identifier: Apache-2.0
/* Host numbers: which host of the run an agent is. Then hosts and ranks that join a run under
 * way: an agent takes a host number that is free, its ranks start, and when they are ready the
 * next cut includes them. */
#include "execution/elastic/hosts/cluster_internal.h"

#include "base/log.h"
#include "base/math.h"

#include <stdio.h>
#include <string.h>

static const uint64_t COMEBACK_PAUSE_NS = UINT64_C(1000000000);
static const uint64_t COMEBACK_PAUSE_MAX_NS = 60 * UINT64_C(1000000000);
/* How long the command may take to bring an agent. */
static const uint64_t COMEBACK_PATIENCE_NS = 60 * UINT64_C(1000000000);

/* ---- host numbers ---- */

static ls_reform_host *host_of(ls_cluster *cluster, const ls_cluster_agent *agent)
{
    return &cluster->hosts[agent - cluster->agents + 1];
}

/* Whether an agent may take the number of one that is gone. */
static bool is_free(const ls_cluster *cluster, const ls_cluster_agent *agent)
{
    return cluster->running && agent->used && agent->gone && !agent->is_spare;
}

/* The free host number with the most ranks, but at most `slots` (0: any number). The largest
 * that fits leaves the smaller ones to smaller hosts. NULL: there is none. */
static ls_cluster_agent *find_free(ls_cluster *cluster, uint32_t slots)
{
    ls_cluster_agent *found = NULL;
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        ls_cluster_agent *a = &cluster->agents[i];
        if (is_free(cluster, a) && (slots == 0 || a->count <= slots) && (!found || a->count > found->count)) {
            found = a;
        }
    }
    return found;
}

static ls_cluster_agent *host_by_name(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    char text[400];
    for (uint32_t i = 0; i < cluster->options.host_count; i++) {
        ls_cluster_agent *a = &cluster->agents[i];
        if (strcmp(cluster->options.hosts[i].name, hello->name) != 0) {
            continue;
        }
        if (!a->used || is_free(cluster, a)) {
            return a;
        }
        snprintf(text, sizeof text, "host %.200s already has an agent", hello->name);
        ls_store_server_refuse(cluster->server, client, text);
        return NULL;
    }
    snprintf(text, sizeof text, "host '%.200s' is not in the run's file of hosts", hello->name);
    ls_store_server_refuse(cluster->server, client, text);
    return NULL;
}

/* A run under way has no new host numbers, only those that are free. */
static ls_cluster_agent *free_host(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    char text[200];
    ls_cluster_agent *found = find_free(cluster, hello->slots);
    const ls_cluster_agent *any = find_free(cluster, 0);
    if (any && !found) {
        snprintf(text, sizeof text,
                 "the run needs a host with %u ranks, but this agent offers only %u (--slots)", any->count,
                 hello->slots);
    } else {
        snprintf(text, sizeof text, "all %u ranks already have a host", cluster->control->ranks);
    }
    if (!found) {
        ls_store_server_refuse(cluster->server, client, text);
    }
    return found;
}

/* Without a list of hosts: the agent gets the next ranks in order, as many as it can run. Spares
 * get none. */
static ls_cluster_agent *next_host(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    char text[200];
    const uint32_t left = cluster->control->ranks - cluster->given;
    if (cluster->running && !hello->is_spare) {
        return free_host(cluster, client, hello);
    }
    if (!hello->is_spare && left == 0) {
        snprintf(text, sizeof text, "all %u ranks already have a host", cluster->control->ranks);
        ls_store_server_refuse(cluster->server, client, text);
        return NULL;
    }
    const uint32_t unit = cluster->options.settings.stage_ranks ? cluster->options.settings.stage_ranks : 1;
    if (!hello->is_spare && hello->slots > 0 && hello->slots < unit) {
        snprintf(text, sizeof text,
                 "ranks share memory in groups: this host needs a multiple of %u ranks, but its agent "
                 "offers %u (--slots)",
                 unit, hello->slots);
        ls_store_server_refuse(cluster->server, client, text);
        return NULL;
    }
    if (cluster->agent_count == LS_CLUSTER_AGENTS_MAX) {
        ls_store_server_refuse(cluster->server, client, "the run already has the maximum number of agents");
        return NULL;
    }
    ls_cluster_agent *a = &cluster->agents[cluster->agent_count++];
    *a = (ls_cluster_agent){.is_spare = hello->is_spare, .first_rank = cluster->given};
    if (!hello->is_spare) {
        const uint32_t slots_max = cluster->options.slots_max;
        const uint32_t room = slots_max && slots_max < LS_LOCAL_RANKS_MAX ? slots_max : LS_LOCAL_RANKS_MAX;
        const uint32_t most = left < room ? left : room;
        a->count = (hello->slots && hello->slots < most ? hello->slots : most) / unit * unit;
        cluster->given += a->count;
    }
    return a;
}

ls_cluster_agent *ls_cluster_assign_host(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    return cluster->options.hosts && !hello->is_spare ? host_by_name(cluster, client, hello)
                                                      : next_host(cluster, client, hello);
}

/* Begins anew with this host number: whatever the table said of it was about the agent before.
 * If that agent's host is in a cut that still counts, the newcomer has nothing of its state; so
 * it is no member (is_here) before all other hosts hold what they keep without it, see
 * ls_cluster_admit. */
void ls_cluster_take_host(ls_cluster *cluster, ls_cluster_agent *agent)
{
    *agent = (ls_cluster_agent){.used = true,
                                .is_spare = agent->is_spare,
                                .is_joining = is_free(cluster, agent),
                                .first_rank = agent->first_rank,
                                .count = agent->count};
    *host_of(cluster, agent) = (ls_reform_host){0};
}

void ls_cluster_drop_joiner(ls_cluster *cluster, ls_cluster_agent *agent, const char *why)
{
    ls_log_warn("host %s cannot join: %s", agent->name, why);
    agent->is_joining = false;
    agent->gone = true;
    *host_of(cluster, agent) = (ls_reform_host){0};
    for (uint32_t i = 0; i < agent->count; i++) {
        cluster->waiting_pid[agent->first_rank + i] = 0;
    }
}

/* ---- bringing hosts back ---- */

/* Doubles with each failure. */
static uint64_t pause_before(const ls_cluster_comeback *back)
{
    const uint64_t pause_ns = COMEBACK_PAUSE_NS << (back->failures < 6 ? back->failures : 6);
    return ls_min_u64(pause_ns, COMEBACK_PAUSE_MAX_NS);
}

/* Host number `index` + 1 is free. */
static void bring_back(ls_cluster *cluster, uint32_t index)
{
    const ls_cluster_options *options = &cluster->options;
    ls_cluster_comeback *back = &cluster->comebacks[index];
    const uint64_t now = ls_env_now_ns(options->env);
    char words[512] = "its agent did not connect";
    if (back->is_starting) {
        if (options->start_failed(options->context, index, words) || now >= back->at_ns) {
            ls_log_warn("host %s could not be brought back: %s%s", options->hosts[index].name, words,
                        back->tries < options->max_replacements
                            ? ""
                            : "; it is not tried again (job.max_replacements)");
            back->is_starting = false;
            back->failures++;
            back->at_ns = now + pause_before(back);
        }
        return;
    }
    back->at_ns = back->at_ns ? back->at_ns : now + pause_before(back);
    if (now >= back->at_ns && back->tries < options->max_replacements) {
        back->tries++;
        back->is_starting = true;
        back->at_ns = now + COMEBACK_PATIENCE_NS;
        ls_log_info("starting the agent of host %s again, try %u of %u", options->hosts[index].name,
                    back->tries, options->max_replacements);
        options->start_again(options->context, index);
    }
}

void ls_cluster_bring_back(ls_cluster *cluster)
{
    for (uint32_t i = 0; cluster->options.start_again && i < cluster->options.host_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        if (!is_free(cluster, a)) {
            cluster->comebacks[i].is_starting = false;
            cluster->comebacks[i].at_ns = 0;
            cluster->comebacks[i].failures = a->is_joining ? cluster->comebacks[i].failures : 0;
        } else if (!a->leave_handled) {
            bring_back(cluster, i);
        }
    }
}

bool ls_cluster_may_return(const ls_cluster *cluster)
{
    for (uint32_t i = 0; cluster->options.start_again && i < cluster->options.host_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        const ls_cluster_comeback *back = &cluster->comebacks[i];
        const bool will_start = back->is_starting || back->tries < cluster->options.max_replacements;
        if (a->is_joining || (is_free(cluster, a) && !a->leave_handled && will_start)) {
            return true;
        }
    }
    return false;
}

/* ---- ranks that become ready ---- */

/* What the rank was started from must match. A host that is about to join is sent away when it
 * differs; a rank that replaces a lost one belongs to a member, whose program has changed under
 * it, and ends the run. */
void ls_cluster_rank_came(ls_cluster *cluster, ls_cluster_agent *agent, const ls_preflight_member *hello)
{
    const ls_control *control = cluster->control;
    ls_preflight_member members[2] = {{.rank = control->first_rank, .preflight = cluster->side.preflight},
                                      *hello};
    snprintf(members[0].host, sizeof members[0].host, "%s", control->host);
    if (ls_preflight_compare(members, 2) == LS_OK) {
        cluster->waiting_pid[hello->rank] = hello->pid;
    } else if (agent->is_joining) {
        ls_cluster_drop_joiner(cluster, agent, ls_error_text());
        ls_store_server_refuse(cluster->server, agent->client, ls_error_text());
    } else {
        ls_cluster_abort_all(cluster, LS_ERR_MISMATCH, (int32_t)hello->rank, ls_error_text());
    }
}

/* A host has more ranks than parts, and a cut made now would have more parts. */
static bool has_grown(const ls_cluster *cluster)
{
    const ls_cut *cut = cluster->cuts[0];
    const uint32_t part_count =
        ls_reform_part_count(&cluster->options.settings, cluster->hosts, cluster->agent_count + 1);
    for (uint32_t host_index = 0; host_index <= cluster->agent_count; host_index++) {
        const ls_reform_host *host = &cluster->hosts[host_index];
        if (host->is_here && !host->is_leaving && host->status.cut == cut->epoch &&
            host->status.ranks > ls_reform_parts(cut, host_index) && cut->parts < part_count) {
            return true;
        }
    }
    return false;
}

/* All its ranks have said that they are ready, and its status counts as many. */
static bool is_ready(ls_cluster *cluster, const ls_cluster_agent *agent)
{
    bool ready = agent->used && agent->is_joining && host_of(cluster, agent)->status.ranks == agent->count;
    for (uint32_t i = 0; i < agent->count && ready; i++) {
        ready = cluster->waiting_pid[agent->first_rank + i] != 0;
    }
    return ready;
}

/* The host that had this number in the cuts that may count has lost its memory; another one
 * takes the number. */
static void forget_memory(ls_cluster *cluster, uint32_t host_index)
{
    for (uint32_t c = 0; c < 2; c++) {
        for (uint32_t i = 0; i < cluster->cuts[c]->host_count; i++) {
            ls_cut_host *host = &cluster->cuts[c]->hosts[i];
            host->host = host->host == host_index ? LS_CLUSTER_NO_HOST : host->host;
        }
    }
}

/*
 *   ranks start (is_joining) ──▶ READY from each (is_ready) ──▶ the newest cut is held by all
 *                                           ──▶ soft fence (is_here) ──▶ a cut that includes them
 *
 * Two conditions make a soft fence safe here. No other fence may be up: a second change waits for
 * the first. And the newest cut must be held: only then is all of the state with its members, so
 * that it can move to the newcomers from there.
 *
 * With crews the others may be unable to make a cut at all without the host. It then comes into the
 * fence that is up.
 */
void ls_cluster_admit(ls_cluster *cluster)
{
    const bool waits = cluster->fenced && cluster->waits_for_hosts;
    if (!waits && (cluster->fenced || !ls_cluster_is_cut_held(cluster))) {
        return;
    }
    bool some = !waits && has_grown(cluster);
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        ls_cluster_agent *a = &cluster->agents[i];
        if (is_ready(cluster, a)) {
            a->is_joining = false;
            host_of(cluster, a)->is_here = true;
            some = true;
            if (waits) {
                forget_memory(cluster, i + 1);
            }
        }
    }
    if (some && waits) {
        ls_cluster_raise_fence(cluster, cluster->epoch + 1, true);
    } else if (some) {
        /* The cut before no longer counts: a host that joins with an old number has nothing of
         * what that number kept there. */
        *cluster->cuts[1] = *cluster->cuts[0];
        ls_cluster_raise_fence(cluster, cluster->epoch + 1, false);
    }
}

/* ---- events ---- */

static void tell_joined(ls_cluster *cluster, uint32_t rank, const char *host)
{
    const ls_cut *cut = cluster->cuts[0];
    ls_cluster_tell_event(cluster, "rank_joined",
                          json_pack("{s:i, s:i, s:s, s:I, s:I}", "rank", (int)rank, "pid",
                                    (int)cluster->waiting_pid[rank], "host", host, "epoch",
                                    (json_int_t)cut->epoch, "step", (json_int_t)cut->step));
    cluster->waiting_pid[rank] = 0;
    cluster->takes_part[rank] = true;
    if (cluster->options.joined) {
        cluster->options.joined(cluster->options.context, rank);
    }
}

/* Reports the ranks of one host that are new in the newest cut. */
static void tell_of_host(ls_cluster *cluster, uint32_t first, uint32_t count, uint32_t parts,
                         const char *host)
{
    uint32_t with = 0;
    for (uint32_t rank = first; rank < first + count; rank++) {
        with += cluster->takes_part[rank] || cluster->waiting_pid[rank] != 0;
    }
    /* With more ranks than parts, one became ready too late for this cut; the host's ranks are
     * reported with the next. */
    for (uint32_t rank = first; rank < first + count && with == parts; rank++) {
        if (!cluster->takes_part[rank] && cluster->waiting_pid[rank] != 0) {
            tell_joined(cluster, rank, host);
        }
    }
}

void ls_cluster_tell_joined(ls_cluster *cluster)
{
    const ls_cut *cut = cluster->cuts[0];
    const ls_control *control = cluster->control;
    for (uint32_t i = 0; i < cut->host_count; i++) {
        const uint32_t host_index = cut->hosts[i].host, parts = cut->hosts[i].part_count;
        if (host_index == 0) {
            tell_of_host(cluster, control->first_rank, control->local_ranks, parts, control->host);
        } else {
            const ls_cluster_agent *a = &cluster->agents[host_index - 1];
            tell_of_host(cluster, a->first_rank, a->count, parts, a->name);
        }
    }
}
