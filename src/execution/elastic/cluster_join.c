// SPDX-License-Identifier: Apache-2.0
/* The places of agents; hosts and ranks that come while the run goes on: into a place that is free, and from there into the next cut. */
#include "execution/elastic/cluster_internal.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>

static const uint64_t COMEBACK_PAUSE_NS = UINT64_C(1000000000);
static const uint64_t COMEBACK_PAUSE_MAX_NS = 60 * UINT64_C(1000000000);
/* For the command to bring an agent. */
static const uint64_t COMEBACK_PATIENCE_NS = 60 * UINT64_C(1000000000);

/* ---- places ---- */

static ls_reform_host *host_of(ls_cluster *cluster, const ls_cluster_agent *agent)
{
    return &cluster->hosts[agent - cluster->agents + 1];
}

/* Whether an agent may take the place of one that is gone. */
static bool is_free(const ls_cluster *cluster, const ls_cluster_agent *agent)
{
    return cluster->running && agent->used && agent->gone && !agent->is_spare;
}

/* The largest such place for at most `slots` ranks (0: any number), so that smaller hosts find theirs; NULL: there is none. */
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

static ls_cluster_agent *place_by_name(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
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
        snprintf(text, sizeof text, "host %.200s has an agent already", hello->name);
        ls_store_server_refuse(cluster->server, client, text);
        return NULL;
    }
    snprintf(text, sizeof text, "host '%.200s' is not one of the run's file of hosts", hello->name);
    ls_store_server_refuse(cluster->server, client, text);
    return NULL;
}

/* While the run goes on. */
static ls_cluster_agent *place_that_is_free(ls_cluster *cluster, uint64_t client,
                                            const ls_cluster_hello *hello)
{
    char text[200];
    ls_cluster_agent *place = find_free(cluster, hello->slots);
    const ls_cluster_agent *any = find_free(cluster, 0);
    if (any && !place) {
        snprintf(text, sizeof text, "the place that is free is one of %u ranks, and this agent takes %u",
                 any->count, hello->slots);
    } else {
        snprintf(text, sizeof text, "all %u ranks have a host already", cluster->control->ranks);
    }
    if (!place) {
        ls_store_server_refuse(cluster->server, client, text);
    }
    return place;
}

static ls_cluster_agent *place_next(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    char text[200];
    const uint32_t left = cluster->control->ranks - cluster->given;
    if (cluster->running && !hello->is_spare) {
        return place_that_is_free(cluster, client, hello);
    }
    if (!hello->is_spare && left == 0) {
        snprintf(text, sizeof text, "all %u ranks have a host already", cluster->control->ranks);
        ls_store_server_refuse(cluster->server, client, text);
        return NULL;
    }
    if (cluster->agent_count == LS_CLUSTER_AGENTS_MAX) {
        ls_store_server_refuse(cluster->server, client, "the run has as many agents as it takes");
        return NULL;
    }
    ls_cluster_agent *a = &cluster->agents[cluster->agent_count++];
    *a = (ls_cluster_agent){.is_spare = hello->is_spare, .first_rank = cluster->given};
    if (!hello->is_spare) {
        const uint32_t most = left < LS_LOCAL_RANKS_MAX ? left : LS_LOCAL_RANKS_MAX;
        a->count = hello->slots && hello->slots < most ? hello->slots : most;
        cluster->given += a->count;
    }
    return a;
}

ls_cluster_agent *ls_cluster_place(ls_cluster *cluster, uint64_t client, const ls_cluster_hello *hello)
{
    return cluster->options.hosts && !hello->is_spare ? place_by_name(cluster, client, hello)
                                                      : place_next(cluster, client, hello);
}

/* Its place may still be in a cut that counts: it is no member before all have what they keep without it. */
void ls_cluster_seat(ls_cluster *cluster, ls_cluster_agent *agent)
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
    ls_log_warn("host %s, which was about to join, does not: %s", agent->name, why);
    agent->is_joining = false;
    agent->gone = true;
    *host_of(cluster, agent) = (ls_reform_host){0};
    for (uint32_t i = 0; i < agent->count; i++) {
        cluster->came[agent->first_rank + i] = 0;
    }
}

/* ---- hosts that are brought back ---- */

/* The more tries were in vain, the longer. */
static uint64_t pause_before(const ls_cluster_comeback *back)
{
    const uint64_t pause_ns = COMEBACK_PAUSE_NS << (back->failures < 6 ? back->failures : 6);
    return pause_ns < COMEBACK_PAUSE_MAX_NS ? pause_ns : COMEBACK_PAUSE_MAX_NS;
}

/* The place of host `index` is free. */
static void bring_back(ls_cluster *cluster, uint32_t index)
{
    const ls_cluster_options *options = &cluster->options;
    ls_cluster_comeback *back = &cluster->comebacks[index];
    const uint64_t now = ls_env_now_ns(options->env);
    char words[512] = "its agent did not come";
    if (back->is_starting) {
        if (options->start_failed(options->context, index, words) || now >= back->at_ns) {
            ls_log_warn("host %s does not come back: %s", options->hosts[index].name, words);
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
        } else if (!a->told_leaving) {
            bring_back(cluster, i);
        }
    }
}

/* ---- ranks that are ready ---- */

void ls_cluster_rank_came(ls_cluster *cluster, ls_cluster_agent *agent, const ls_preflight_member *hello)
{
    const ls_control *control = cluster->control;
    ls_preflight_member members[2] = {{.rank = control->first_rank, .preflight = cluster->side.preflight},
                                      *hello};
    snprintf(members[0].host, sizeof members[0].host, "%s", control->host);
    if (ls_preflight_compare(members, 2) == LS_OK) {
        cluster->came[hello->rank] = hello->pid;
    } else if (agent->is_joining) {
        ls_cluster_drop_joiner(cluster, agent, ls_error_text());
        ls_store_server_refuse(cluster->server, agent->client, ls_error_text());
    } else {
        ls_cluster_abort_all(cluster, LS_ERR_MISMATCH, (int32_t)hello->rank, ls_error_text());
    }
}

/* A host has more ranks than parts, and there are leaves for them. */
static bool has_grown(const ls_cluster *cluster)
{
    const ls_cut *cut = cluster->cuts[0];
    for (uint32_t place = 0; place <= cluster->agent_count; place++) {
        const ls_reform_host *host = &cluster->hosts[place];
        if (host->is_here && !host->is_leaving && host->status.cut == cut->epoch &&
            host->status.ranks > ls_reform_parts(cut, place) &&
            cut->parts < cluster->options.settings.leaves) {
            return true;
        }
    }
    return false;
}

/* Its ranks have all said that they are ready. */
static bool is_ready(ls_cluster *cluster, const ls_cluster_agent *agent)
{
    bool ready = agent->used && agent->is_joining && host_of(cluster, agent)->status.ranks == agent->count;
    for (uint32_t i = 0; i < agent->count && ready; i++) {
        ready = cluster->came[agent->first_rank + i] != 0;
    }
    return ready;
}

void ls_cluster_admit(ls_cluster *cluster)
{
    if (cluster->fenced || !ls_cluster_is_cut_held(cluster)) {
        return;
    }
    bool some = has_grown(cluster);
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        ls_cluster_agent *a = &cluster->agents[i];
        if (is_ready(cluster, a)) {
            a->is_joining = false;
            host_of(cluster, a)->is_here = true;
            some = true;
        }
    }
    if (some) {
        /* The one before it counts no more: who comes back has nothing of what it kept there. */
        *cluster->cuts[1] = *cluster->cuts[0];
        ls_cluster_raise_fence(cluster, cluster->epoch + 1, false);
    }
}

/* ---- what is said of it ---- */

static void tell_joined(ls_cluster *cluster, uint32_t rank, const char *host)
{
    const ls_cut *cut = cluster->cuts[0];
    ls_cluster_tell_event(cluster, "rank_joined",
                          json_pack("{s:i, s:i, s:s, s:I, s:I}", "rank", (int)rank, "pid",
                                    (int)cluster->came[rank], "host", host, "epoch", (json_int_t)cut->epoch,
                                    "step", (json_int_t)cut->step));
    cluster->came[rank] = 0;
    cluster->takes_part[rank] = true;
    if (cluster->options.joined) {
        cluster->options.joined(cluster->options.context, rank);
    }
}

static void tell_of_host(ls_cluster *cluster, uint32_t first, uint32_t count, uint32_t parts,
                         const char *host)
{
    uint32_t with = 0;
    for (uint32_t rank = first; rank < first + count; rank++) {
        with += cluster->takes_part[rank] || cluster->came[rank] != 0;
    }
    /* More than parts: one became ready too late for this cut. It is told with the next. */
    for (uint32_t rank = first; rank < first + count && with == parts; rank++) {
        if (!cluster->takes_part[rank] && cluster->came[rank] != 0) {
            tell_joined(cluster, rank, host);
        }
    }
}

void ls_cluster_tell_joined(ls_cluster *cluster)
{
    const ls_cut *cut = cluster->cuts[0];
    const ls_control *control = cluster->control;
    for (uint32_t i = 0; i < cut->host_count; i++) {
        const uint32_t place = cut->hosts[i].host, parts = cut->hosts[i].part_count;
        if (place == 0) {
            tell_of_host(cluster, control->first_rank, control->local_ranks, parts, control->host);
        } else {
            const ls_cluster_agent *a = &cluster->agents[place - 1];
            tell_of_host(cluster, a->first_rank, a->count, parts, a->name);
        }
    }
}
