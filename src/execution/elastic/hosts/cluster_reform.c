// SPDX-License-Identifier: Apache-2.0
/* The cluster's members: losses, departures, fences, and the way to a new cut. team/reform.h
 * decides what is to be done; this file carries it out. */
#include "execution/elastic/hosts/cluster_internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/math.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t GATHER_PATIENCE_NS = 2 * UINT64_C(1000000000);
/* How long a run waits for lost hosts without which it cannot go on. */
static const uint64_t RETURN_PATIENCE_NS = 60 * UINT64_C(1000000000);

static uint32_t host_index_of(const ls_cluster *cluster, const ls_cluster_agent *agent)
{
    return (uint32_t)(agent - cluster->agents) + 1;
}

static uint32_t host_total(const ls_cluster *cluster)
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
    /* Fails only when the agent is gone. */
    (void)ls_store_server_send(cluster->server, agent->client, message, bytes);
}

/* To all agents that are members. */
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
                                    .results_from = cluster->results_wanted};
    send_to_all(cluster, &fence, sizeof fence);
    ls_host_side_fence(&cluster->side, fence.epoch, fence.hard, fence.limit);
}

/* Raises the epoch, so that statuses sent for an earlier fence no longer count. */
void ls_cluster_raise_fence(ls_cluster *cluster, uint64_t epoch, bool hard)
{
    if (cluster->fenced && !hard) {
        return; /* what it is for is seen once the fence that is up has done its work */
    }
    cluster->fenced = true;
    cluster->epoch = epoch;
    cluster->fence = (ls_reform_fence){.epoch = epoch, .hard = hard};
    cluster->fenced_ns = ls_env_now_ns(cluster->options.env);
    send_fence(cluster);
}

/* ---- losses ---- */

/* Finished steps, for events: on this host, or, while it has no part, on the host that is
 * furthest. */
static uint64_t count_finished(const ls_cluster *cluster)
{
    ls_host_status here;
    uint64_t most = 0;
    ls_host_side_status(&cluster->side, &here);
    for (uint32_t i = 0; i < host_total(cluster) && here.finished == UINT64_MAX; i++) {
        const uint64_t finished = cluster->hosts[i].is_here ? cluster->hosts[i].status.finished : 0;
        most = finished > most && finished != UINT64_MAX ? finished : most;
    }
    return here.finished == UINT64_MAX ? most : here.finished;
}

/* The first loss opens a recovery and is its cause; later ones before its end belong to it. A
 * loss after the new cut was formed needs another one. */
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
    cluster->waiting_pid[rank] = 0;
    ls_cluster_tell_event(cluster, "rank_lost",
                          json_pack("{s:i, s:s, s:f, s:I, s:I}", "rank", (int)rank, "cause", cause,
                                    "detected_ms", 1e-6 * (double)silent_ns, "step",
                                    (json_int_t)count_finished(cluster), "epoch",
                                    (json_int_t)cluster->epoch));
    if (cluster->options.forget) {
        cluster->options.forget(cluster->options.context, rank);
    }
}

/* Before all ranks were ready a lost host ends the run. After that its ranks are reported, its
 * row in the table of hosts is cleared, and a hard fence interrupts the step of the others: they
 * may be waiting for sums from the lost host. */
void ls_cluster_host_lost(ls_cluster *cluster, ls_cluster_agent *agent, const char *cause)
{
    const uint64_t silent_ns = ls_env_now_ns(cluster->options.env) - agent->heard_ns;
    agent->gone = true;
    ls_log_warn("%s", cause);
    if (!cluster->running) {
        ls_cluster_abort_all(cluster, LS_ERR_RANKS_LOST, (int32_t)agent->first_rank, cause);
        return;
    }
    ls_reform_host *host = &cluster->hosts[host_index_of(cluster, agent)];
    for (uint32_t i = 0; i < agent->count && host->is_here; i++) {
        if (cluster->takes_part[agent->first_rank + i]) {
            ls_cluster_note_lost(cluster, agent->first_rank + i, cause, silent_ns);
        }
    }
    *host = (ls_reform_host){0};
    ls_cluster_raise_fence(cluster, cluster->epoch + 1, true);
}

/* One rank of a host that is still there. The communicator of the cut includes the dead rank, so
 * all hosts must stop, not only its own. */
static void lose_rank(ls_cluster *cluster, const char *host, const ls_rank_end *end)
{
    char how[64], why[160] = "", cause[640];
    if (end->pid == cluster->killed_pid && end->exit_code > 128) {
        snprintf(why, sizeof why, ": killed, because it %s", cluster->killed_why);
    }
    snprintf(cause, sizeof cause, "rank %u (%s, pid %d) ended with %s while %s%s", end->rank, host, end->pid,
             ls_exit_text(end->exit_code, how), end->doing, why);
    ls_log_warn("%s", cause);
    if (!cluster->takes_part[end->rank] && cluster->waiting_pid[end->rank] == 0) {
        return; /* it has no part, and no status has counted it */
    }
    ls_cluster_note_lost(cluster, end->rank, cause, end->silent_ns);
    ls_cluster_raise_fence(cluster, cluster->epoch + 1, true);
}

/* A host that has not joined yet is sent away as a whole; the others have not noticed it. */
void ls_cluster_far_rank_lost(ls_cluster *cluster, ls_cluster_agent *agent, const ls_rank_end *end)
{
    if (agent->is_joining) {
        ls_cluster_drop_joiner(cluster, agent, "one of its ranks ended");
        ls_store_server_refuse(cluster->server, agent->client, "one of the ranks of this host ended");
        return;
    }
    lose_rank(cluster, agent->name, end);
}

/* During the roll call the rank is only crossed off; the end of the roll call reports it. */
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

/* As a READY from another host, for the trainer's own. */
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
        cluster->waiting_pid[rank] = pid;
    }
    return true;
}

/* ---- hosts that leave ---- */

/* The ranks that would be left without a host. */
static uint32_t ranks_without(const ls_cluster *cluster, const ls_reform_host *leaver)
{
    uint32_t ranks = 0;
    for (uint32_t i = 0; i < host_total(cluster); i++) {
        const ls_reform_host *host = &cluster->hosts[i];
        ranks += host != leaver && host->is_here && !host->is_leaving ? host->status.ranks : 0;
    }
    return ranks;
}

/* Whether the others hold all of the state, because the leaving host's share has a shadow, and can
 * compute without it. */
static bool can_do_without(ls_cluster *cluster, ls_reform_host *leaver)
{
    ls_cut held =
        *ls_reform_held(cluster->hosts, host_total(cluster), (const ls_cut *const *)cluster->cuts, 2);
    leaver->is_leaving = true;
    const ls_reform_settings *settings = &cluster->options.settings;
    const bool is_whole = ls_reform_find_holders(settings, cluster->hosts, host_total(cluster), &held) &&
                          ls_reform_part_count(settings, cluster->hosts, host_total(cluster)) > 0;
    leaver->is_leaving = false;
    return is_whole;
}

/* A leaving host gets no part in the next cut. When too few ranks would remain, the run as a
 * whole ends and uses the time that is left to save. */
static void hear_leaver(ls_cluster *cluster, ls_cluster_agent *agent, const ls_cluster_status *status)
{
    ls_reform_host *host = &cluster->hosts[host_index_of(cluster, agent)];
    if (agent->is_joining) {
        ls_cluster_drop_joiner(cluster, agent, "its machine will be taken away");
        agent->leave_handled = true;
        ls_store_server_refuse(cluster->server, agent->client,
                               "this host leaves before its ranks have joined");
        return;
    }
    if (!cluster->running || !host->is_here || agent->leave_handled) {
        return;
    }
    agent->leave_handled = true;
    const uint32_t left = ranks_without(cluster, host);
    const bool ends_run =
        left == 0 || left < cluster->options.settings.min_ranks || !can_do_without(cluster, host);
    ls_cluster_tell_event(
        cluster, "notice",
        json_pack("{s:s, s:o, s:b, s:s, s:s, s:b}", "source", status->source, "grace_s",
                  status->grace_s > 0.0 ? json_real(status->grace_s) : json_null(), "leave", true, "action",
                  ends_run ? "the remaining ranks are not enough: save and end with exit code 75"
                           : "its ranks leave; the run continues on the other hosts",
                  "host", agent->name, "ends_run", ends_run));
    if (!ends_run) {
        /* A soft fence lets ranks finish the step. While the state is still moving to the newest
         * cut, some ranks wait for it and would never finish; a hard fence interrupts that wait. */
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

/* Once the others hold all they need, hosts that leave may go. */
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
            cluster->waiting_pid[rank] = 0;
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

/* Kept as it is: what it means depends on the fence, which reform looks at. */
void ls_cluster_receive_status(ls_cluster *cluster, ls_cluster_agent *agent, const ls_cluster_status *status)
{
    ls_reform_host *host = &cluster->hosts[host_index_of(cluster, agent)];
    host->status = status->status;
    agent->verdict = status->verdict;
    if (status->leaving) {
        hear_leaver(cluster, agent, status);
    }
    /* The host heard nothing for its lease and fenced its own ranks, or it knows a later
     * coordinator: its epoch is overtaken. */
    if (cluster->running && host->is_here && status->status.fence > cluster->epoch) {
        ls_cluster_raise_fence(cluster, status->status.fence, true);
    }
}

/* ---- a new cut ---- */

/* Whether a host in the cut lacks the state it held before, or held none. */
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

/*
 * Makes the new cut and starts it. The order matters:
 *   1. find who holds the state: `held` is the newest cut if some host reported that all have what
 *      they keep in it, else the one before; `source`, if it is given, takes their place;
 *   2. write both cuts to the log, durably: a trainer that takes over must never know less than a
 *      host does;
 *   3. raise the store's epoch: it closes the links of the old communicator and forgets its keys;
 *   4. send FORM to all hosts, apply it here last, and take the fence down.
 */
static void form(ls_cluster *cluster, uint64_t step, const ls_cut *source)
{
    const ls_reform_settings *settings = &cluster->options.settings;
    const uint32_t count = host_total(cluster);
    const ls_cluster_loss *loss = &cluster->loss;
    /* where the run was, also before an earlier return to a checkpoint */
    const uint64_t was =
        ls_max_u64(count_finished(cluster), loss->is_open && loss->returned ? loss->step : 0);
    ls_cluster_form message = {.kind = LS_CLUSTER_FORM};
    message.held =
        source ? *source : *ls_reform_held(cluster->hosts, count, (const ls_cut *const *)cluster->cuts, 2);
    (void)ls_reform_find_holders(settings, cluster->hosts, count, &message.held);
    ls_reform_cut(settings, cluster->hosts, count, cluster->epoch, step, &message.cut);
    message.moves = source || settings->zero > 0 || has_newcomers(&message.cut, &message.held);
    message.gathered = ls_host_side_gathered(&cluster->side);
    if (!ls_cluster_is_durable(cluster, &message.cut, &message.held)) {
        return; /* asked again on the next tick */
    }
    *cluster->cuts[1] = message.held;
    *cluster->cuts[0] = message.cut;
    ls_store_server_set_epoch(cluster->server, cluster->epoch);
    send_to_all(cluster, &message, sizeof message);
    cluster->fenced = false;
    cluster->results_wanted = UINT64_MAX;
    ls_host_side_set_gathered(&cluster->side, message.gathered);
    ls_host_side_form(&cluster->side, &message.cut, &message.held, message.moves);
    cluster->loss.formed = true;
    cluster->loss.returned = source || was > step;
    cluster->loss.step = ls_max_u64(step, was);
    ls_cluster_tell_event(cluster, "team",
                          json_pack("{s:I, s:I, s:i, s:i}", "epoch", (json_int_t)cluster->epoch, "step",
                                    (json_int_t)step, "parts", (int)message.cut.parts, "ranks",
                                    (int)message.cut.parts));
    ls_cluster_tell_joined(cluster);
    ls_log_info("epoch %llu: %u ranks on %u hosts continue after step %llu",
                (unsigned long long)cluster->epoch, message.cut.parts, message.cut.host_count,
                (unsigned long long)step);
}

/* Some hosts agreed on the interrupted step, so their weights may be updated: the others must
 * finish it, too, with the same verdict. FINISH lets exactly that step pass (`limit`), behind a
 * fence of its own with the next epoch: the communicators of this cut are broken, so nobody may
 * get further in it. */
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

/* The state is on the trainer's host alone, after `step` steps. */
static ls_cut only_here(uint64_t step)
{
    return (ls_cut){.step = step, .parts = 1, .host_count = 1, .hosts = {{.part_count = 1}}};
}

/* False: the run ends. */
static bool return_to_checkpoint(ls_cluster *cluster)
{
    const ls_cluster_options *options = &cluster->options;
    uint64_t step = 0;
    if (options->restore && options->restore(options->context, cluster->epoch, &step)) {
        const ls_cut source = only_here(step);
        form(cluster, step, &source);
    }
    return options->restore != NULL;
}

/* The text begins with the loss, which is the cause, and then says why the run cannot go on. */
static void give_up(ls_cluster *cluster, const char *why)
{
    char text[1000];
    const int32_t rank = cluster->loss.rank_count ? (int32_t)cluster->loss.ranks[0] : -1;
    snprintf(text, sizeof text, "%s; %s", cluster->loss.cause, why);
    ls_cluster_abort_all(cluster, LS_ERR_RANKS_LOST, rank, text);
}

/* Crews: whether a lost host may still come, without which no crew is complete, or not all of
 * the state is there. */
static bool waits_for_hosts(ls_cluster *cluster, ls_reform_what what)
{
    const ls_reform_settings *settings = &cluster->options.settings;
    bool has_leavers = false; /* they stay, if that helps */
    for (uint32_t i = 0; i < host_total(cluster); i++) {
        has_leavers = has_leavers || cluster->hosts[i].is_leaving;
    }
    const bool needs_hosts = (what == LS_REFORM_CHECKPOINT && !has_leavers) ||
                             (what == LS_REFORM_END && cluster->hosts[0].status.bound > 0 &&
                              ls_reform_part_count(settings, cluster->hosts, host_total(cluster)) == 0);
    const bool waits = settings->crew > 1 && needs_hosts && ls_cluster_may_return(cluster) &&
                       ls_env_now_ns(cluster->options.env) - cluster->loss.at_ns < RETURN_PATIENCE_NS;
    if (waits && !cluster->waits_for_hosts) {
        ls_log_warn("waiting for lost hosts: without them the model cannot be divided between %u ranks",
                    settings->crew);
    }
    return waits;
}

static void end_run(ls_cluster *cluster)
{
    const ls_reform_settings *settings = &cluster->options.settings;
    char text[300];
    if (cluster->hosts[0].status.bound == 0) {
        give_up(cluster, "no rank is left on the trainer's host. Start the run again: it resumes "
                         "from its newest checkpoint");
    } else if (ls_reform_part_count(settings, cluster->hosts, host_total(cluster)) == 0) {
        snprintf(text, sizeof text,
                 "%u ranks divide the model, and fewer are left. Start the run again with a host for them, "
                 "or with a smaller parallel.pipeline: it resumes from its newest checkpoint",
                 settings->crew);
        give_up(cluster, text);
    } else if (cluster->hosts[0].status.ranks < settings->stage_ranks) {
        snprintf(
            text, sizeof text,
            "%u ranks divide the model in groups that share memory, and the trainer's host has fewer than a "
            "group left. Start the run again: it resumes from its newest checkpoint",
            settings->crew);
        give_up(cluster, text);
    } else {
        give_up(cluster, "fewer than job.min_ranks are left");
    }
}

/* Another host was lost meanwhile, and only a host that wanted to leave has its shadow: the
 * latter stays. */
static bool keep_leavers(ls_cluster *cluster)
{
    bool some = false;
    for (uint32_t i = 0; i < host_total(cluster); i++) {
        some = some || cluster->hosts[i].is_leaving;
        cluster->hosts[i].is_leaving = false;
    }
    return some;
}

/* Some ranks saw a gather first and others the fence: they would wait for each other for ever. A
 * hard fence breaks it up; all gather again after the next cut. */
static void end_gather(ls_cluster *cluster)
{
    const uint64_t now = ls_env_now_ns(cluster->options.env);
    if (!cluster->fence.hard && !cluster->fence.is_finishing && cluster->options.settings.round == 0 &&
        now - cluster->fenced_ns > GATHER_PATIENCE_NS &&
        atomic_load(&cluster->control->gather) != ls_host_side_gathered(&cluster->side)) {
        ls_cluster_raise_fence(cluster, cluster->epoch + 1, true);
    }
}

/* One pass of the change of members: ask what is to be done, do it. Nothing is remembered
 * between two passes but the table of hosts, the fence and the cuts, so a second loss in the
 * middle only changes the next answer. */
static void go_on(ls_cluster *cluster)
{
    const ls_reform_decision next =
        ls_reform_decide(&cluster->options.settings, cluster->hosts, host_total(cluster),
                         (const ls_cut *const *)cluster->cuts, 2, &cluster->fence);
    cluster->waits_for_hosts = waits_for_hosts(cluster, next.what);
    if (cluster->waits_for_hosts) {
        return;
    }
    switch (next.what) {
    case LS_REFORM_WAIT:
        end_gather(cluster);
        break;
    case LS_REFORM_LIMIT:
        cluster->fence.limit = next.step;
        send_fence(cluster);
        break;
    case LS_REFORM_FINISH:
        finish(cluster, next.step, next.from);
        break;
    case LS_REFORM_FORM:
        form(cluster, next.step, NULL);
        break;
    case LS_REFORM_CHECKPOINT:
        if (keep_leavers(cluster) || return_to_checkpoint(cluster)) {
            break;
        }
        give_up(cluster, cluster->options.settings.crew > 1
                             ? "the hosts on which the ranks that are left can divide the model do not have "
                               "all of the state. Start the run again: it resumes from its newest checkpoint"
                         : cluster->options.settings.shadow
                             ? "a host was lost together with the host that held the copy of its state (its "
                               "shadow). Start the run again: it resumes from its newest checkpoint"
                             : "a host was lost that alone had a part of the state: with train.compression, "
                               "and with parallel.shadow: false, no other host keeps a copy. Start the run "
                               "again: it resumes from its newest checkpoint");
        break;
    case LS_REFORM_END:
        end_run(cluster);
        break;
    }
}

/* Reports the recovery when the first step after the loss is finished. */
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
                                    loss->returned   ? "checkpoint"
                                    : loss->finished ? "finish"
                                                     : "restart"));
    *loss = (ls_cluster_loss){0};
}

/* ---- time ---- */

/* A host that was silent for the lease is lost. Time during which this process did not listen
 * (it was stopped, or the machine slept) does not count against the hosts. */
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
            snprintf(text, sizeof text,
                     "host %s (%u rank%s, starting at rank %u) is lost: no sign of life for %.3g s "
                     "(job.node_lease)",
                     a->name, a->count, a->count == 1 ? "" : "s", a->first_rank,
                     1e-9 * (double)(now - a->heard_ns));
            ls_cluster_host_lost(cluster, a, text);
            ls_store_server_refuse(cluster->server, a->client, "this host was declared lost");
        }
    }
}

/* Lost ranks of the trainer's host. */
static void replace_own(ls_cluster *cluster)
{
    const ls_cluster_options *options = &cluster->options;
    uint32_t local;
    if (options->start && ls_host_side_next_start(&cluster->side, ls_env_now_ns(options->env), &local) &&
        options->start(options->context, local) != LS_OK) {
        ls_log_warn("%s", ls_error_text());
        ls_host_side_lost(&cluster->side, local);
    }
}

/* Order: first learn (leases, the own host's status), then report, then let leavers go and bring
 * replacements, and only then, if a fence is up, act on it with facts of the same moment. */
void ls_cluster_reform_tick(ls_cluster *cluster)
{
    if (!cluster->running || cluster->aborted || cluster->ending ||
        atomic_load(&cluster->control->quit) != 0 || atomic_load(&cluster->control->abort) != 0) {
        return;
    }
    if (cluster->logged && cluster->logged->newest.epoch == 0) {
        /* The log was not open when the first cut was made. */
        (void)ls_cluster_is_durable(cluster, cluster->cuts[0], cluster->cuts[1]);
    }
    look_at_leases(cluster, ls_env_now_ns(cluster->options.env));
    ls_host_side_status(&cluster->side, &cluster->hosts[0].status);
    /* Its ranks had no agent for a moment and fenced themselves. */
    if (cluster->hosts[0].status.fence > cluster->epoch) {
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
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of hosts");
    }
    ls_host_side_init(&cluster->side, cluster->options.segment, 0,
                      cluster->options.start ? cluster->options.max_replacements : 0);
    cluster->epoch = cluster->control->epoch;
    return LS_OK;
}

void ls_cluster_reform_release(ls_cluster *cluster)
{
    free(cluster->hosts);
    free(cluster->cuts[0]);
    free(cluster->cuts[1]);
}

/* The first cut: every host has its ranks in order. The one "before" it is the trainer's host
 * alone, which has initialised or restored the state; until the first cut is held, the state is
 * taken from there. */
void ls_cluster_run(ls_cluster *cluster)
{
    ls_cut *cut = cluster->cuts[0], *before = cluster->cuts[1];
    const ls_control *control = cluster->control;
    *before = only_here(cluster->options.step);
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
    (void)ls_cluster_is_durable(cluster, cut, before); /* no one waits for this */
}
