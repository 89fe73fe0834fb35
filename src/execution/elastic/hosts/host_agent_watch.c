// SPDX-License-Identifier: Apache-2.0
/* What the coordinator cannot look at from another host: what the ranks there are doing, the
 * stack of a rank that is late, and ending one that hangs. */
#include "execution/elastic/hosts/host_agent_internal.h"

#include "base/hash.h"
#include "base/text.h"
#include "execution/hang/stack.h"

#include <stdio.h>

/* Snapshots are sent when they change, and at least this often. */
enum { RESEND_NS = 200 * 1000 * 1000 };

static bool is_own_rank(const ls_control *control, uint32_t rank)
{
    return rank >= control->first_rank && rank - control->first_rank < control->local_ranks;
}

static void send_snapshots(ls_host_agent *self, uint32_t group, const ls_rank_snapshot *snapshots,
                           uint32_t count)
{
    ls_text message = {0};
    const uint64_t now_ns = ls_env_now_ns(self->env);
    const ls_cluster_snapshots head = {.kind = LS_CLUSTER_SNAPSHOTS, .taken_ns = now_ns};
    ls_text_append_bytes(&message, &head, sizeof head);
    ls_rank_snapshots_encode(snapshots, count, &message);
    const uint64_t hash = ls_xxh3(message.data + sizeof head, message.bytes - sizeof head, 0);
    if (hash != self->sent[group].hash || now_ns - self->sent[group].at_ns >= RESEND_NS) {
        self->sent[group].hash = hash;
        self->sent[group].at_ns = now_ns;
        if (!self->link_lost) {
            /* A lost one does no harm: the next says the same. */
            (void)ls_store_link_send(self->link, message.data, message.bytes);
        }
    }
    ls_text_release(&message);
}

/* Whether the snapshot is of a process of this run: the flight file may be left from an earlier
 * one. */
static bool is_of_ours(const ls_host_agent *self, const ls_rank_snapshot *snapshot)
{
    const ls_control *control = self->control;
    return snapshot->header.size <= control->ranks && is_own_rank(control, snapshot->rank) &&
           snapshot->header.pid ==
               atomic_load(&ls_segment_slot(&self->segment, snapshot->rank - control->first_rank)->pid);
}

static void on_seen(void *context, ls_rank_snapshot *snapshots, uint32_t seen)
{
    ls_host_agent *self = context;
    uint32_t count = 0;
    for (uint32_t i = 0; i < seen; i++) {
        if (is_of_ours(self, &snapshots[i])) {
            if (i != count) {
                snapshots[count] = snapshots[i];
            }
            count++;
        }
    }
    for (uint32_t at = 0; at < count && !self->ended; at += LS_RANK_SNAPSHOTS_MAX) {
        const uint32_t left = count - at;
        send_snapshots(self, at / LS_RANK_SNAPSHOTS_MAX, snapshots + at,
                       left < LS_RANK_SNAPSHOTS_MAX ? left : LS_RANK_SNAPSHOTS_MAX);
    }
}

/* Takes the stack of a rank of this run only. The process number is checked, too: it may belong
 * to another process by now. */
bool ls_host_agent_answer(void *receiver, const ls_cluster_received *message)
{
    ls_host_agent *self = receiver;
    const ls_cluster_ask *ask = message->fixed;
    ls_cluster_stack stack = {.kind = LS_CLUSTER_STACK, .rank = ask->rank};
    const ls_control *control = self->control;
    if (!self->joined || !is_own_rank(control, ask->rank)) {
        ls_host_agent_give_up(self, LS_ERR_INVALID, -1,
                              "the coordinator asked this agent for the stack of a rank of another host");
        return true;
    }
    const ls_rank_slot *slot = ls_segment_slot(&self->segment, ask->rank - control->first_rank);
    ls_text text = {0};
    if (ask->pid <= 0 || atomic_load(&slot->pid) != ask->pid) {
        snprintf(stack.text, sizeof stack.text, "process %d is not rank %u", (int)ask->pid, ask->rank);
    } else {
        stack.is_stack = ls_stack_take(ask->pid, LS_STACK_FRAMES, &text) == LS_OK;
        snprintf(stack.text, sizeof stack.text, "%s",
                 stack.is_stack ? ls_text_string(&text) : ls_error_text());
    }
    ls_text_release(&text);
    ls_host_agent_send(self, &stack, sizeof stack);
    return true;
}

/* Ends a rank that hangs; its LOST follows as after any other end. A rank that has already ended
 * is left alone. */
bool ls_host_agent_kill_rank(void *receiver, const ls_cluster_received *message)
{
    ls_host_agent *self = receiver;
    const ls_cluster_ask *order = message->fixed;
    const ls_control *control = self->control;
    if (!self->agent || !is_own_rank(control, order->rank)) {
        ls_host_agent_give_up(self, LS_ERR_INVALID, -1,
                              "the coordinator told this agent to kill a rank of another host");
        return true;
    }
    const uint32_t local = order->rank - control->first_rank;
    if (order->pid > 0 && atomic_load(&ls_segment_slot(&self->segment, local)->pid) == order->pid) {
        ls_agent_kill(self->agent, local);
    }
    return true;
}

static void on_fatal(void *context, ls_status status, const char *text)
{
    ls_host_agent_give_up(context, status, -1, text);
}

/* This watchdog only collects snapshots. Which rank is late is judged by the coordinator, who
 * has those of all hosts. */
ls_status ls_host_agent_start_watch(ls_host_agent *self, const ls_cluster_join *join)
{
    uint32_t local[LS_COMM_SIZE_MAX];
    ls_text flight_dir = {0};
    for (uint32_t i = 0; i < join->local_ranks; i++) {
        local[i] = join->first_rank + i;
    }
    ls_text_printf(&flight_dir, "%s/flight", join->run_dir);
    const ls_watchdog_options options = {.env = self->env,
                                         .flight_dir = ls_text_string(&flight_dir),
                                         .ranks = join->ranks,
                                         .local = local,
                                         .local_count = join->local_ranks,
                                         .seen = on_seen,
                                         .fatal = on_fatal,
                                         .context = self};
    const ls_status status = ls_watchdog_create(&options, &self->watch);
    ls_text_release(&flight_dir);
    return status;
}
