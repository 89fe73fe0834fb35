// SPDX-License-Identifier: Apache-2.0
/* The cluster's members: who is lost, who comes and goes, and the way to a new cut (elastic/reform.h decides, this carries it out). */
#include "execution/elastic/cluster_internal.h"

#include "base/assert.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAN_FINISH = true };
static const uint64_t GATHER_PATIENCE_NS = 2 * UINT64_C(1000000000);

static uint32_t place_of(const ls_cluster *cluster, const ls_cluster_agent *agent)
{
    return (uint32_t)(agent - cluster->agents) + 1;
}

static uint32_t place_count(const ls_cluster *cluster)
{
    return cluster->agent_count + 1;
}

void ls_cluster_tell_event(ls_cluster *cluster, const char *name, json_t *fields)
{
    if (cluster->options.event) {
        cluster->options.event(cluster->options.context, name, fields);
    } else {
        json_decref(fields);
    }
}

static void send_to(ls_cluster *cluster, const ls_cluster_agent *agent, const void *message, size_t bytes)
{
    (void)ls_store_server_send(cluster->server, agent->client, message,
                               bytes); /* fails only when it has gone */
}

/* To all agents that are here. */
static void send_to_all(ls_cluster *cluster, const void *message, size_t bytes)
{
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        if (cluster->hosts[i + 1].is_here) {
            send_to(cluster, &cluster->agents[i], message, bytes);
        }
    }
}

/* ---- fences ---- */

static void send_fence(ls_cluster *cluster)
{
    const ls_cluster_fence fence = {.kind = LS_CLUSTER_FENCE,
                                    .hard = cluster->fence.hard,
                                    .epoch = cluster->epoch,
                                    .limit = cluster->fence.limit,
                                    .told = cluster->told};
    send_to_all(cluster, &fence, sizeof fence);
    ls_host_side_fence(&cluster->side, fence.epoch, fence.hard, fence.limit);
}

/* What was heard behind an earlier fence counts no more. */
void ls_cluster_raise_fence(ls_cluster *cluster, uint64_t epoch, bool hard)
{
    if (cluster->fenced && !hard) {
        return; /* what it is for is seen when the one that stands has done its work */
    }
    cluster->fenced = true;
    cluster->epoch = epoch;
    cluster->fence = (ls_reform_fence){.epoch = epoch, .hard = hard};
    cluster->fenced_ns = ls_env_now_ns(cluster->options.env);
    send_fence(cluster);
}

/* ---- losses ---- */

/* For events: finished on this host, or while it has no part on the one that is the furthest. */
static uint64_t count_finished(const ls_cluster *cluster)
{
    ls_host_status here;
    uint64_t most = 0;
    ls_host_side_status(&cluster->side, &here);
    for (uint32_t i = 0; i < place_count(cluster) && here.finished == UINT64_MAX; i++) {
        const uint64_t finished = cluster->hosts[i].is_here ? cluster->hosts[i].status.finished : 0;
        most = finished > most && finished != UINT64_MAX ? finished : most;
    }
    return here.finished == UINT64_MAX ? most : here.finished;
}

void ls_cluster_note_lost(ls_cluster *cluster, uint32_t rank, const char *cause, uint64_t silent_ns)
{
    ls_cluster_loss *loss = &cluster->loss;
    if (!loss->is_open) {
        *loss = (ls_cluster_loss){.is_open = true, .at_ns = ls_env_now_ns(cluster->options.env)};
        snprintf(loss->cause, sizeof loss->cause, "%s", cause);
    }
    if (loss->rank_count < LS_COMM_SIZE_MAX) {
        loss->ranks[loss->rank_count++] = rank;
    }
    loss->formed = false;
    cluster->takes_part[rank] = false;
    cluster->came[rank] = 0;
    ls_cluster_tell_event(cluster, "rank_lost",
                          json_pack("{s:i, s:s, s:f, s:I, s:I}", "rank", (int)rank, "cause", cause,
                                    "detected_ms", 1e-6 * (double)silent_ns, "step",
                                    (json_int_t)count_finished(cluster), "epoch",
                                    (json_int_t)cluster->epoch));
    if (cluster->options.forget) {
        cluster->options.forget(cluster->options.context, rank);
    }
}

void ls_cluster_host_lost(ls_cluster *cluster, ls_cluster_agent *agent, const char *cause)
{
    const uint64_t silent_ns = ls_env_now_ns(cluster->options.env) - agent->heard_ns;
    agent->gone = true;
    ls_log_warn("%s", cause);
    if (!cluster->running) {
        ls_cluster_abort_all(cluster, LS_ERR_RANKS_LOST, (int32_t)agent->first_rank, cause);
        return;
    }
    ls_reform_host *host = &cluster->hosts[place_of(cluster, agent)];
    for (uint32_t i = 0; i < agent->count && host->is_here; i++) {
        if (cluster->takes_part[agent->first_rank + i]) {
            ls_cluster_note_lost(cluster, agent->first_rank + i, cause, silent_ns);
        }
    }
    *host = (ls_reform_host){0};
    ls_cluster_raise_fence(cluster, cluster->epoch + 1, true);
}

static void lose_rank(ls_cluster *cluster, const char *host, const ls_rank_end *end)
{
    char how[64], why[160] = "", cause[640];
    if (end->pid == cluster->killed_pid && end->exit_code > 128) {
        snprintf(why, sizeof why, ": killed, as it %s", cluster->killed_why);
    }
    snprintf(cause, sizeof cause, "rank %u (%s, pid %d) ended with %s while %s%s", end->rank, host, end->pid,
             ls_exit_text(end->exit_code, how), end->doing, why);
    ls_log_warn("%s", cause);
    if (!cluster->takes_part[end->rank] && cluster->came[end->rank] == 0) {
        return; /* it has no part, and no status has counted it */
    }
    ls_cluster_note_lost(cluster, end->rank, cause, end->silent_ns);
    ls_cluster_raise_fence(cluster, cluster->epoch + 1, true);
}

void ls_cluster_far_rank_lost(ls_cluster *cluster, ls_cluster_agent *agent, const ls_rank_end *end)
{
    if (agent->is_joining) {
        ls_cluster_drop_joiner(cluster, agent, "one of its ranks ended");
        ls_store_server_refuse(cluster->server, agent->client, "one of the ranks of this host ended");
        return;
    }
    lose_rank(cluster, agent->name, end);
}

void ls_cluster_rank_lost(ls_cluster *cluster, const ls_rank_end *end)
{
    const ls_control *control = cluster->control;
    ls_host_side_lost(&cluster->side, end->rank - control->first_rank);
    if (cluster->is_returning) {
        ls_cluster_rank_is_gone(cluster, end->rank);
        return;
    }
    lose_rank(cluster, control->host, end);
}

bool ls_cluster_rank_ready(ls_cluster *cluster, uint32_t rank)
{
    const uint32_t local = rank - cluster->control->first_rank;
    const int32_t pid = atomic_load(&ls_segment_slot(cluster->side.segment, local)->pid);
    if (!ls_host_side_ready(&cluster->side, local)) {
        return false;
    }
    if (cluster->is_returning) {
        ls_cluster_rank_lives(cluster, rank, pid, ls_host_side_has_part(&cluster->side, local));
    } else if (cluster->running && !cluster->takes_part[rank]) {
        cluster->came[rank] = pid;
    }
    return true;
}

/* ---- hosts that leave ---- */

static uint32_t ranks_without(const ls_cluster *cluster, const ls_reform_host *leaver)
{
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < place_count(cluster); i++) {
        const ls_reform_host *host = &cluster->hosts[i];
        ranks += host != leaver && host->is_here && !host->is_leaving ? host->status.ranks : 0;
    }
    return ranks;
}

/* Whether the others have all of the state: what the leaver keeps has a shadow. */
static bool can_do_without(ls_cluster *cluster, ls_reform_host *leaver)
{
    ls_cut held =
        *ls_reform_held(cluster->hosts, place_count(cluster), (const ls_cut *const *)cluster->cuts, 2);
    leaver->is_leaving = true;
    const bool is_whole = ls_reform_find_holders(&cluster->options.settings, cluster->hosts, &held);
    leaver->is_leaving = false;
    return is_whole;
}

/* It gets no part in the next cut; with too few others the run as a whole makes use of the time that is left. */
static void hear_leaver(ls_cluster *cluster, ls_cluster_agent *agent, const ls_cluster_status *status)
{
    ls_reform_host *host = &cluster->hosts[place_of(cluster, agent)];
    if (agent->is_joining) {
        ls_cluster_drop_joiner(cluster, agent, "its machine will be taken away");
        agent->told_leaving = true;
        ls_store_server_refuse(cluster->server, agent->client, "this host leaves before it has joined");
        return;
    }
    if (!cluster->running || !host->is_here || agent->told_leaving) {
        return;
    }
    agent->told_leaving = true;
    const uint32_t left = ranks_without(cluster, host);
    const bool ends_run =
        left == 0 || left < cluster->options.settings.min_ranks || !can_do_without(cluster, host);
    ls_cluster_tell_event(cluster, "notice",
                          json_pack("{s:s, s:o, s:b, s:s, s:s, s:b}", "source", status->source, "grace_s",
                                    status->grace_s > 0.0 ? json_real(status->grace_s) : json_null(), "leave",
                                    true, "action",
                                    ends_run ? "the others can't go on alone: save and end with 75"
                                             : "its ranks leave, the others go on",
                                    "host", agent->name, "ends_run", ends_run));
    if (!ends_run) {
        /* While the state is still on its way to the newest cut, some wait for it and others would park. */
        const bool hard = !cluster->fenced && !ls_cluster_is_cut_held(cluster);
        host->is_leaving = true;
        ls_cluster_raise_fence(cluster, cluster->epoch + 1, hard);
    }
}

bool ls_cluster_is_cut_held(const ls_cluster *cluster)
{
    const ls_cut *cut = cluster->cuts[0];
    for (uint32_t i = 0; i < cut->host_count; i++) {
        const ls_reform_host *host = &cluster->hosts[cut->hosts[i].host];
        if (!host->is_here || host->is_leaving || host->status.held < cut->epoch) {
            return false;
        }
    }
    return true;
}

/* The others have all they need: who leaves may go. */
static void release_leavers(ls_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->agent_count && !cluster->fenced; i++) {
        ls_cluster_agent *agent = &cluster->agents[i];
        ls_reform_host *host = &cluster->hosts[i + 1];
        if (!host->is_here || !host->is_leaving || !ls_cluster_is_cut_held(cluster)) {
            continue;
        }
        ls_cluster_orders orders = cluster->orders;
        orders.quit = 1;
        send_to(cluster, agent, &orders, sizeof orders);
        *host = (ls_reform_host){0};
        agent->gone = true;
        for (uint32_t k = 0; k < agent->count; k++) {
            const uint32_t rank = agent->first_rank + k;
            cluster->takes_part[rank] = false;
            cluster->came[rank] = 0;
            ls_cluster_tell_event(cluster, "rank_left",
                                  json_pack("{s:i, s:s, s:I, s:I}", "rank", (int)rank, "host", agent->name,
                                            "epoch", (json_int_t)cluster->cuts[0]->epoch, "step",
                                            (json_int_t)cluster->cuts[0]->step));
            if (cluster->options.forget) {
                cluster->options.forget(cluster->options.context, rank);
            }
        }
    }
}

/* ---- statuses ---- */

void ls_cluster_receive_status(ls_cluster *cluster, ls_cluster_agent *agent, const ls_cluster_status *status)
{
    ls_reform_host *host = &cluster->hosts[place_of(cluster, agent)];
    host->status = status->status;
    agent->verdict = status->verdict;
    if (status->leaving) {
        hear_leaver(cluster, agent, status);
    }
    /* It heard nothing for its lease and fenced its ranks by itself; or this is a coordinator of later. */
    if (cluster->running && host->is_here && status->status.fence > cluster->epoch) {
        ls_cluster_raise_fence(cluster, status->status.fence, true);
    }
}

/* ---- a new cut ---- */

/* Hosts that don't have what they held before, or held nothing. */
static bool has_newcomers(const ls_cut *cut, const ls_cut *held)
{
    for (uint32_t i = 0; i < cut->host_count; i++) {
        bool has_its = false;
        for (uint32_t k = 0; k < held->host_count; k++) {
            has_its = has_its || (held->hosts[k].host == cut->hosts[i].host &&
                                  held->hosts[k].holder == cut->hosts[i].host);
        }
        if (!has_its) {
            return true;
        }
    }
    return false;
}

static void form(ls_cluster *cluster, uint64_t step)
{
    const ls_reform_settings *settings = &cluster->options.settings;
    const uint32_t count = place_count(cluster);
    ls_cluster_form message = {.kind = LS_CLUSTER_FORM};
    message.held = *ls_reform_held(cluster->hosts, count, (const ls_cut *const *)cluster->cuts, 2);
    (void)ls_reform_find_holders(settings, cluster->hosts, &message.held);
    ls_reform_cut(settings, cluster->hosts, count, cluster->epoch, step, &message.cut);
    message.moves = settings->zero > 0 || has_newcomers(&message.cut, &message.held);
    message.gathered = ls_host_side_gathered(&cluster->side);
    if (!ls_cluster_is_durable(cluster, &message.cut, &message.held)) {
        return; /* asked again */
    }
    *cluster->cuts[1] = message.held;
    *cluster->cuts[0] = message.cut;
    ls_store_server_set_epoch(cluster->server, cluster->epoch);
    send_to_all(cluster, &message, sizeof message);
    cluster->fenced = false;
    cluster->told = UINT64_MAX;
    ls_host_side_set_gathered(&cluster->side, message.gathered);
    ls_host_side_form(&cluster->side, &message.cut, &message.held, message.moves);
    cluster->loss.formed = true;
    cluster->loss.step = step;
    ls_cluster_tell_event(cluster, "team",
                          json_pack("{s:I, s:I, s:i, s:i}", "epoch", (json_int_t)cluster->epoch, "step",
                                    (json_int_t)step, "parts", (int)message.cut.parts, "ranks",
                                    (int)message.cut.parts));
    ls_cluster_tell_joined(cluster);
    ls_log_info("epoch %llu: %u ranks on %u hosts go on behind step %llu", (unsigned long long)cluster->epoch,
                message.cut.parts, message.cut.host_count, (unsigned long long)step);
}

static void finish(ls_cluster *cluster, uint64_t step, uint32_t from)
{
    ls_cluster_finish message = {.kind = LS_CLUSTER_FINISH, .epoch = cluster->epoch, .step = step};
    if (from == 0) {
        ls_data_parallel_read_verdict(cluster->side.segment->exchange, &message.verdict);
    } else {
        message.verdict = cluster->agents[from - 1].verdict;
    }
    send_to_all(cluster, &message, sizeof message);
    ls_host_side_finish(&cluster->side, message.epoch, step, &message.verdict);
    cluster->epoch++;
    cluster->fence = (ls_reform_fence){.epoch = cluster->epoch, .is_finishing = true, .limit = step};
    cluster->loss.finished = true;
}

static void give_up(ls_cluster *cluster, const char *why)
{
    char text[900];
    const int32_t rank = cluster->loss.rank_count ? (int32_t)cluster->loss.ranks[0] : -1;
    snprintf(text, sizeof text, "%s; %s", cluster->loss.cause, why);
    ls_cluster_abort_all(cluster, LS_ERR_RANKS_LOST, rank, text);
}

/* Another was lost meanwhile, and only who wanted to leave has its shadow: it stays. */
static bool keep_leavers(ls_cluster *cluster)
{
    bool some = false;
    for (uint32_t i = 0; i < place_count(cluster); i++) {
        some = some || cluster->hosts[i].is_leaving;
        cluster->hosts[i].is_leaving = false;
    }
    return some;
}

/* Some ranks saw a gather first and others the fence: they would wait for each other. All do it again behind the next cut. */
static void end_gather(ls_cluster *cluster)
{
    const uint64_t now = ls_env_now_ns(cluster->options.env);
    if (!cluster->fence.hard && !cluster->fence.is_finishing &&
        now - cluster->fenced_ns > GATHER_PATIENCE_NS &&
        atomic_load(&cluster->control->gather) != ls_host_side_gathered(&cluster->side)) {
        ls_cluster_raise_fence(cluster, cluster->epoch + 1, true);
    }
}

static void go_on(ls_cluster *cluster)
{
    const ls_reform_decision next =
        ls_reform_decide(&cluster->options.settings, cluster->hosts, place_count(cluster),
                         (const ls_cut *const *)cluster->cuts, 2, &cluster->fence);
    switch (next.what) {
    case LS_REFORM_WAIT:
        end_gather(cluster);
        break;
    case LS_REFORM_LIMIT:
        cluster->fence.limit = next.step;
        send_fence(cluster);
        break;
    case LS_REFORM_FINISH:
        if (!CAN_FINISH) {
            give_up(cluster, "it happened while weights were updated");
            break;
        }
        finish(cluster, next.step, next.from);
        break;
    case LS_REFORM_FORM:
        form(cluster, next.step);
        break;
    case LS_REFORM_CHECKPOINT:
        if (keep_leavers(cluster)) {
            break;
        }
        give_up(cluster, "a host and the one that has its shadow; the run goes on from its newest checkpoint "
                         "when it is started again");
        break;
    case LS_REFORM_END:
        give_up(cluster, cluster->hosts[0].status.bound == 0
                             ? "no rank is left on the trainer's host; the run goes on from its newest "
                               "checkpoint when it is started again"
                             : "fewer than job.min_ranks are left");
        break;
    }
}

/* The first step behind a loss is finished. */
static void tell_recovered(ls_cluster *cluster)
{
    ls_cluster_loss *loss = &cluster->loss;
    if (!loss->is_open || !loss->formed || cluster->hosts[0].status.finished <= loss->step) {
        return;
    }
    json_t *lost = json_array();
    for (uint32_t i = 0; i < loss->rank_count; i++) {
        json_array_append_new(lost, json_integer(loss->ranks[i]));
    }
    const double ms = 1e-6 * (double)(ls_env_now_ns(cluster->options.env) - loss->at_ns);
    const uint32_t parts = cluster->cuts[0]->parts;
    ls_cluster_tell_event(cluster, "recovered",
                          json_pack("{s:I, s:f, s:I, s:i, s:i, s:o, s:s}", "step", (json_int_t)loss->step,
                                    "ms", ms, "epoch", (json_int_t)cluster->cuts[0]->epoch, "parts",
                                    (int)parts, "ranks", (int)parts, "lost", lost, "how",
                                    loss->finished ? "finish" : "restart"));
    *loss = (ls_cluster_loss){0};
}

/* ---- time ---- */

/* Who was silent for the lease is lost; not when it was this process that did not listen. */
static void look_at_leases(ls_cluster *cluster, uint64_t now)
{
    char text[400];
    const uint64_t lease = cluster->options.lease_ns, pause = now - cluster->tick_ns;
    cluster->tick_ns = now;
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        ls_cluster_agent *a = &cluster->agents[i];
        if (pause > lease / 4) {
            a->heard_ns = a->heard_ns + pause < now ? a->heard_ns + pause : now;
        }
        if (a->is_joining && now - a->heard_ns > lease) {
            ls_cluster_drop_joiner(cluster, a, "no sign of life for job.node_lease");
            ls_store_server_refuse(cluster->server, a->client, "this host was declared lost");
        } else if (cluster->hosts[i + 1].is_here && now - a->heard_ns > lease) {
            snprintf(
                text, sizeof text,
                "host %s (%u rank%s, from rank %u on) is lost: no sign of life for %.3g s (job.node_lease)",
                a->name, a->count, a->count == 1 ? "" : "s", a->first_rank,
                1e-9 * (double)(now - a->heard_ns));
            ls_cluster_host_lost(cluster, a, text);
            ls_store_server_refuse(cluster->server, a->client, "this host was declared lost");
        }
    }
}

/* Ranks of this host that were lost. */
static void replace_own(ls_cluster *cluster)
{
    const ls_cluster_options *options = &cluster->options;
    uint32_t local;
    if (options->start &&
        ls_host_side_next_start(&cluster->side, options->max_replacements, ls_env_now_ns(options->env),
                                &local) &&
        options->start(options->context, local) != LS_OK) {
        ls_log_warn("%s", ls_error_text());
        ls_host_side_lost(&cluster->side, local);
    }
}

void ls_cluster_reform_tick(ls_cluster *cluster)
{
    if (!cluster->running || cluster->aborted || cluster->ending ||
        atomic_load(&cluster->control->quit) != 0 || atomic_load(&cluster->control->abort) != 0) {
        return;
    }
    if (cluster->logged && cluster->logged->newest.epoch == 0) {
        (void)ls_cluster_is_durable(cluster, cluster->cuts[0], cluster->cuts[1]); /* it was not open before */
    }
    look_at_leases(cluster, ls_env_now_ns(cluster->options.env));
    ls_host_side_status(&cluster->side, &cluster->hosts[0].status);
    if (cluster->hosts[0].status.fence > cluster->epoch) { /* ranks that had no agent for a moment */
        ls_cluster_raise_fence(cluster, cluster->hosts[0].status.fence, true);
    }
    tell_recovered(cluster);
    release_leavers(cluster);
    replace_own(cluster);
    ls_cluster_bring_back(cluster);
    ls_cluster_admit(cluster);
    if (cluster->fenced) {
        go_on(cluster);
    }
}

/* ---- life ---- */

ls_status ls_cluster_reform_init(ls_cluster *cluster)
{
    cluster->hosts = calloc(LS_CLUSTER_AGENTS_MAX + 1, sizeof *cluster->hosts);
    cluster->cuts[0] = calloc(1, sizeof *cluster->cuts[0]);
    cluster->cuts[1] = calloc(1, sizeof *cluster->cuts[1]);
    if (!cluster->hosts || !cluster->cuts[0] || !cluster->cuts[1]) {
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of hosts");
    }
    ls_host_side_init(&cluster->side, cluster->options.segment, 0);
    cluster->epoch = cluster->control->epoch;
    return LS_OK;
}

void ls_cluster_reform_release(ls_cluster *cluster)
{
    free(cluster->hosts);
    free(cluster->cuts[0]);
    free(cluster->cuts[1]);
}

void ls_cluster_run(ls_cluster *cluster)
{
    ls_cut *cut = cluster->cuts[0], *before = cluster->cuts[1];
    const ls_control *control = cluster->control;
    *before =
        (ls_cut){.step = cluster->options.step, .parts = 1, .host_count = 1, .hosts = {{.part_count = 1}}};
    *cut = (ls_cut){.epoch = cluster->epoch, .step = cluster->options.step, .parts = control->ranks};
    cut->hosts[cut->host_count++] = (ls_cut_host){.part_count = (uint16_t)control->local_ranks};
    cluster->hosts[0].is_here = true;
    for (uint32_t rank = 0; rank < control->ranks; rank++) {
        cluster->takes_part[rank] = true;
    }
    for (uint32_t i = 0; i < cluster->agent_count; i++) {
        const ls_cluster_agent *a = &cluster->agents[i];
        if (a->used && !a->gone && !a->is_spare) {
            cluster->hosts[i + 1].is_here = true;
            cut->hosts[cut->host_count++] = (ls_cut_host){.host = (uint16_t)(i + 1),
                                                          .first_part = (uint16_t)a->first_rank,
                                                          .part_count = (uint16_t)a->count};
        }
    }
    cluster->tick_ns = ls_env_now_ns(cluster->options.env);
    cluster->running = true;
    (void)ls_cluster_is_durable(cluster, cut, before); /* nobody waits for it */
}
