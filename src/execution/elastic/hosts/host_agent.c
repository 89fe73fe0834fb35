// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/hosts/host_agent_internal.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/math.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    TICK_NS = 5 * 1000 * 1000,
    LINGER_NS = 300 * 1000 * 1000, /* for the last messages to leave, before the process ends */
    /* between two statuses when nothing changes: the sign of life */
    BEAT_NS = 100 * 1000 * 1000,
    PAUSE_NS_MAX = 800 * 1000 * 1000, /* between two attempts to reach another trainer */
};
/* Clocks drift: an older estimate of the offset between two gives way to any new one. */
static const uint64_t CLOCK_AGE_NS = UINT64_C(60000000000);

static void stop_loop(void *context)
{
    const ls_host_agent *self = context;
    ls_env_stop(self->env, 0);
}

/* The first reason is the one that is kept. */
static void note_reason(ls_host_agent *self, ls_status status, const char *text)
{
    if (self->status == LS_OK) {
        self->status = status;
        snprintf(self->text, sizeof self->text, "%s", text);
    }
}

void ls_host_agent_send(ls_host_agent *self, const void *message, size_t bytes)
{
    const int error = self->link_lost ? 0 : ls_store_link_send(self->link, message, bytes);
    if (error && error != -ENOTCONN) { /* no coordinator to tell yet */
        ls_log_warn("could not send a message to the coordinator: %s", strerror(-error));
    }
}

/* Ends the host's ranks, and through ABORT the whole run. An agent without ranks ends once its
 * message has had time to leave. */
void ls_host_agent_give_up(ls_host_agent *self, ls_status status, int32_t rank, const char *text)
{
    ls_cluster_abort reason = {.kind = LS_CLUSTER_ABORT, .status = (uint32_t)status, .rank = rank};
    snprintf(reason.text, sizeof reason.text, "%s", text);
    note_reason(self, status, reason.text);
    if (!self->abort_told) {
        self->abort_told = true;
        ls_host_agent_send(self, &reason, sizeof reason);
    }
    if (self->agent) {
        ls_control_abort(self->control, status, rank, reason.text);
    } else {
        ls_env_timer_set(self->env, LINGER_NS, stop_loop, self);
    }
}

/* ---- ranks ---- */

/* has_part matters only during a roll call: it tells a new trainer which ranks worked in the
 * newest cut and which were about to join. */
static void send_ready(ls_host_agent *self, uint32_t rank)
{
    const ls_rank_slot *slot = ls_segment_slot(&self->segment, rank - self->control->first_rank);
    ls_cluster_ready ready = {
        .kind = LS_CLUSTER_READY,
        .hello = {.rank = rank, .pid = atomic_load(&slot->pid), .preflight = slot->preflight}};
    memcpy(ready.hello.host, self->control->host, sizeof ready.hello.host);
    ready.has_part = ls_host_side_has_part(&self->side, rank - self->control->first_rank);
    ls_host_agent_send(self, &ready, sizeof ready);
}

/* A rank that was started from something else than the first one here is not counted, and is
 * killed; its end is reported like any other. */
static void on_ready(void *context, uint32_t rank)
{
    ls_host_agent *self = context;
    if (!ls_host_side_ready(&self->side, rank - self->control->first_rank)) {
        ls_agent_kill(self->agent, rank - self->control->first_rank);
        return;
    }
    if (self->watch) {
        ls_watchdog_join(self->watch, rank);
    }
    send_ready(self, rank);
}

/* The loss is noted first, so that the next status no longer counts the rank; then it is
 * reported. */
static void on_lost(void *context, const ls_rank_end *end)
{
    ls_host_agent *self = context;
    ls_cluster_lost lost = {.kind = LS_CLUSTER_LOST, .end = *end};
    ls_host_side_lost(&self->side, end->rank - self->control->first_rank);
    if (self->watch) {
        ls_watchdog_leave(self->watch, end->rank);
    }
    ls_host_agent_send(self, &lost, sizeof lost); /* what follows is the coordinator's decision */
}

/* The last message. It gets LINGER_NS to leave; if the link is gone there is nothing to wait
 * for. */
static void on_ended(void *context)
{
    ls_host_agent *self = context;
    const ls_cluster_ended ended = {.kind = LS_CLUSTER_ENDED};
    self->ended = true;
    ls_host_agent_send(self, &ended, sizeof ended);
    ls_env_timer_set(self->env, self->link_lost ? 0 : LINGER_NS, stop_loop, self);
}

/* ---- where this host is ---- */

/* The coordinator may be gone, or may have declared this host lost and given its share of the
 * state to others. Either way no rank of this host may touch the state before the coordinator
 * says what follows. */
static void look_at_lease(ls_host_agent *self, uint64_t now)
{
    const ls_control *control = self->control;
    if (self->has_run && !self->link_lost && now - self->heard_ns > self->lease_ns &&
        atomic_load(&control->fence) <= atomic_load(&control->team_epoch)) {
        ls_log_warn(
            "no message from the coordinator for %.3g s (job.node_lease): the ranks of this host wait",
            1e-9 * (double)(now - self->heard_ns));
        ls_host_side_fence(&self->side, atomic_load(&control->team_epoch) + 1, true, 0);
    }
}

/* Sends each result once, before the status that counts its step as finished. A result that is no
 * longer in the ring is skipped: the trainer asked only for steps that the rings still had when
 * the roll call ended. */
static void send_results(ls_host_agent *self, uint64_t finished)
{
    for (; self->results_wanted < finished; self->results_wanted++) {
        const ls_rank_slot *slot = ls_control_with_result(self->control, self->results_wanted);
        if (slot) {
            const ls_cluster_result message = {
                .kind = LS_CLUSTER_RESULT, .result = slot->results[self->results_wanted % LS_RANK_RESULTS]};
            ls_host_agent_send(self, &message, sizeof message);
        }
    }
}

/* Sent when it changed while a fence is up (the coordinator waits for exactly that), and
 * otherwise every BEAT_NS. With no fence, progress alone is not worth a message: ranks finish
 * steps far more often than the coordinator needs to know. */
static void send_status(ls_host_agent *self)
{
    const uint64_t now = ls_env_now_ns(self->env);
    ls_cluster_status status = {.kind = LS_CLUSTER_STATUS};
    look_at_lease(self, now);
    ls_host_side_status(&self->side, &status.status);
    const bool ends = atomic_load(&self->control->stop) != 0 || atomic_load(&self->control->quit) != 0;
    const bool changed =
        ls_host_leave_look(&self->leave, now, ends) || status.status.fence != self->last_status.fence ||
        (status.status.fence != 0 && memcmp(&status.status, &self->last_status, sizeof status.status) != 0);
    if (self->link_lost || (!changed && now - self->sent_ns < BEAT_NS)) {
        return;
    }
    if (self->results_wanted != UINT64_MAX && self->control->team.local_parts > 0) {
        send_results(self, status.status.finished);
    }
    status.until = atomic_load(&self->control->until);
    status.results_from = self->is_returning ? ls_control_results_from(self->control) : 0;
    ls_data_parallel_read_verdict(self->segment.exchange, &status.verdict);
    ls_host_leave_fill(&self->leave, &status);
    self->last_status = status.status;
    self->sent_ns = now;
    ls_host_agent_send(self, &status, sizeof status);
}

/* A start that fails counts as a loss, so that it is tried again after a pause, up to the limit. */
static void replace_ranks(ls_host_agent *self)
{
    uint32_t local;
    if (self->agent && !self->ended &&
        ls_host_side_next_start(&self->side, ls_env_now_ns(self->env), &local) &&
        ls_agent_start_rank(self->agent, local) != LS_OK) {
        ls_log_warn("%s", ls_error_text());
        ls_host_side_lost(&self->side, local);
    }
}

/* Every 5 ms: status, replacements, and an abort that a rank of this host wrote into the control
 * page. */
static void tick(void *context)
{
    ls_host_agent *self = context;
    send_status(self);
    replace_ranks(self);
    const uint32_t status = atomic_load(&self->control->abort);
    if (status != 0 && !self->abort_told) {
        ls_host_agent_give_up(self, (ls_status)status, atomic_load(&self->control->abort_rank),
                              self->control->abort_text);
    }
    if (!self->ended) {
        ls_env_timer_set(self->env, TICK_NS, tick, self);
    }
}

/* ---- joining ---- */

/* The message is from the same program, but not necessarily sane: everything that sizes memory
 * is checked before the segment is made. */
static ls_status check_join(const ls_cluster_join *join, size_t run_file_bytes)
{
    if (run_file_bytes != join->text_bytes || join->local_ranks < 1 ||
        join->local_ranks > LS_LOCAL_RANKS_MAX || join->crew < 1 || join->ranks / join->crew > join->leaves ||
        join->leaves > LS_LEAVES_MAX || join->group > join->leaves ||
        join->workers > LS_SEGMENT_WORKERS_MAX || join->first_rank >= join->ranks ||
        join->local_ranks > join->ranks - join->first_rank) {
        return ls_fail(LS_ERR_INVALID,
                       "the coordinator told this host to take an impossible range of ranks, from %u up to "
                       "but not including %u, in a run of %u ranks: the hosts probably run different "
                       "versions of lockstep; install the same version on all of them",
                       join->first_rank, join->first_rank + join->local_ranks, join->ranks);
    }
    return LS_OK;
}

/* Relative paths in the run file mean the same here as at the trainer. The run directory must be
 * visible, because ranks write their flight recorders there. */
static ls_status enter_folders(const ls_cluster_join *join)
{
    if (chdir(join->folder) != 0) {
        return ls_fail_errno(
            errno,
            "cannot enter the trainer's folder %s: run file, data and run directory must have the same paths "
            "on all hosts",
            join->folder);
    }
    if (access(join->run_dir, F_OK) != 0) {
        return ls_fail_errno(errno,
                             "cannot reach the run directory %s from this host; it must be on a file system "
                             "that all hosts share",
                             join->run_dir);
    }
    return LS_OK;
}

/* An agent that joins a run under way raises a fence of its own before its ranks exist: they
 * start parked, and the coordinator's cut that includes them lets them go. */
static ls_status make_segment(ls_host_agent *self, const ls_cluster_join *join, const char *text)
{
    const ls_segment_plan plan = {
        .float_count = join->float_count,
        .frozen_floats = join->frozen_floats,
        .exchange_bytes = join->exchange_bytes,
        .leaves = join->leaves,
        .group = join->group,
        .crew = join->crew,
        .workers = join->workers,
        .ranks = join->ranks,
        .first_rank = join->first_rank,
        .local_ranks = join->local_ranks,
        .parts = join->is_late ? join->ranks : 0,
        .epoch = join->epoch,
        .text = text,
        .text_bytes = join->text_bytes,
    };
    LS_TRY(ls_segment_create(&plan, &self->segment));
    self->control = self->segment.control;
    self->lease_ns = join->lease_ns;
    ls_host_side_init(&self->side, &self->segment, join->host_index, join->replacements);
    snprintf(self->control->coordinator, sizeof self->control->coordinator, "%s", self->address);
    self->wait_ns = join->wait_ns;
    self->run = join->run;
    ls_segment_begin_at(&self->segment, join->step);
    if (join->is_late) {
        ls_control_fence(self->control, join->epoch + 1, true);
    }
    return LS_OK;
}

/* The paths and numbers of the command line live in `self`: the agent uses argv again for every
 * replacement. */
static ls_status start_ranks(ls_host_agent *self, const ls_cluster_join *join)
{
    if (self->options.program) {
        snprintf(self->program, sizeof self->program, "%s", self->options.program);
    } else {
        ls_program_path(self->program);
    }
    snprintf(self->segment_path, sizeof self->segment_path, "/proc/%d/fd/%d", (int)getpid(),
             self->segment.fd);
    snprintf(self->threads, sizeof self->threads, "%u", join->threads);
    snprintf(self->run_dir, sizeof self->run_dir, "%s", join->run_dir);
    /* Ranks get the token from the environment; arguments are visible to all users. */
    setenv("LOCKSTEP_TOKEN", self->options.token, 1);
    const char *argv[] = {self->program, "rank",      "--segment",   self->segment_path, "--run-dir",
                          self->run_dir, "--threads", self->threads, "--rank",           NULL};
    memcpy(self->argv, argv, sizeof argv);
    const ls_agent_options options = {
        .env = self->env,
        .segment = &self->segment,
        .argv = self->argv,
        .context = self,
        .ready = on_ready,
        .lost = on_lost,
        .ended = on_ended,
    };
    return ls_agent_start(&options, &self->agent);
}

/* In this order, because each step needs the one before: checks, folders, segment, ranks,
 * watchdog. The tick starts before the ranks, so that a rank that fails at once is reported. */
static ls_status join_run(ls_host_agent *self, const ls_cluster_join *join, const char *run_file,
                          size_t run_file_bytes)
{
    LS_TRY(check_join(join, run_file_bytes));
    LS_TRY(enter_folders(join));
    LS_TRY(make_segment(self, join, run_file));
    self->joined = true;
    ls_env_timer_set(self->env, TICK_NS, tick, self);
    LS_TRY(start_ranks(self, join));
    if (self->options.no_watch) {
        return LS_OK;
    }
    if (self->wait_ns > 0) {
        prctl(PR_SET_PDEATHSIG, 0); /* the process that started it may end with the trainer */
    }
    LS_TRY(ls_host_leave_open(&self->leave, run_file, join->text_bytes));
    return ls_host_agent_start_watch(self, join);
}

/* Ranks write the offset between the clocks of this host and the coordinator's into what they
 * record. An order takes some time, so the largest difference is the best estimate. */
static void look_at_clock(ls_host_agent *self, uint64_t sent_ns)
{
    const uint64_t now_ns = ls_env_now_ns(self->env);
    const int64_t offset_ns = (int64_t)(sent_ns - now_ns);
    if (self->clock_ns == 0 || offset_ns > atomic_load(&self->control->clock_offset_ns) ||
        now_ns - self->clock_ns > CLOCK_AGE_NS) {
        atomic_store(&self->control->clock_offset_ns, offset_ns);
        self->clock_ns = now_ns;
    }
}

/* Orders come to agents that have not joined, too: they may say that the run is over. They are
 * complete, so all of them are applied each time; applying one twice changes nothing. The grant
 * comes before the gather: see read_orders in cluster.c. */
static bool receive_orders(void *receiver, const ls_cluster_received *message)
{
    ls_host_agent *self = receiver;
    ls_cluster_orders *orders = message->fixed;
    LS_CLUSTER_CLOSE(orders->abort_text);
    if (orders->abort) {
        note_reason(self, (ls_status)orders->abort, orders->abort_text);
        self->abort_told = true; /* it came from the coordinator */
    }
    if (!self->joined) {
        if (orders->abort || orders->quit) {
            on_ended(self);
        }
        return true;
    }
    if (orders->abort) {
        ls_control_abort(self->control, (ls_status)orders->abort, orders->abort_rank, orders->abort_text);
    }
    look_at_clock(self, orders->sent_ns);
    self->has_run = self->has_run || orders->until > atomic_load(&self->control->until);
    ls_control_grant(self->control, orders->until);
    if (orders->gather != atomic_load(&self->control->gather)) {
        ls_control_gather(self->control, orders->gather);
    }
    if (orders->stop) {
        ls_control_stop(self->control);
    }
    if (orders->quit) {
        ls_control_quit(self->control);
    }
    return true;
}

/* ---- the link ---- */

/* The first message on a new link. An agent that returns to a new trainer then repeats what that
 * one must know: its ranks that live, and its status. */
static void on_link_ready(void *context)
{
    ls_host_agent *self = context;
    ls_cluster_hello hello = {.kind = LS_CLUSTER_HELLO,
                              .version = LS_CLUSTER_VERSION,
                              .lockstep = LS_VERSION,
                              .slots = self->options.slots,
                              .is_spare = self->options.is_spare,
                              .pid = getpid()};
    gethostname(hello.host, sizeof hello.host - 1);
    snprintf(hello.name, sizeof hello.name, "%s", self->options.name ? self->options.name : "");
    if (ls_program_hash(&hello.program) != LS_OK) {
        ls_host_agent_give_up(self, LS_ERR_IO, -1, ls_error_text());
        return;
    }
    if (!self->is_returning) {
        ls_host_agent_send(self, &hello, sizeof hello);
        return;
    }
    hello.host_index = self->side.host_index;
    hello.run = self->run;
    hello.first_rank = self->control->first_rank;
    hello.local_ranks = self->control->local_ranks;
    self->link_lost = false;
    self->heard_ns = ls_env_now_ns(self->env);
    ls_host_agent_send(self, &hello, sizeof hello);
    for (uint32_t local = 0; local < self->control->local_ranks; local++) {
        if (self->side.lives[local]) {
            send_ready(self, self->control->first_rank + local);
        }
    }
    /* The status comes after the READYs: with it, the host has reported everything. */
    self->sent_ns = 0;
    send_status(self);
}

/* ---- what the coordinator says ---- */

/* An agent takes part in one run. What fails here is this host's fault, so the reason names the
 * host. */
static bool receive_join(void *receiver, const ls_cluster_received *message)
{
    ls_host_agent *self = receiver;
    ls_cluster_join *join = message->fixed;
    char host[LS_HOST_NAME_BYTES] = "", text[LS_RANK_TEXT_BYTES];
    if (self->joined) {
        return false;
    }
    LS_CLUSTER_CLOSE(join->run_dir);
    LS_CLUSTER_CLOSE(join->folder);
    const ls_status status = join_run(self, join, message->tail, message->tail_bytes);
    if (status != LS_OK) {
        gethostname(host, sizeof host - 1);
        snprintf(text, sizeof text, "host %s: %s", self->options.name[0] ? self->options.name : host,
                 ls_error_text());
        ls_host_agent_give_up(self, status, -1, text);
    }
    return true;
}

/* FENCE, FINISH and FORM, the steps of a change of members, carry epochs that only rise. An
 * older one belongs to a change that a later one has replaced: it is ignored, not refused. The
 * first one that counts also ends the return to a new trainer, which has taken this host in by
 * then. */
static bool is_newest(ls_host_agent *self, uint64_t epoch)
{
    if (epoch < self->epoch) {
        return false;
    }
    self->epoch = epoch;
    self->is_returning = false;
    return true;
}

/* The status that follows at once is what the coordinator waits for. `results_from` concerns
 * only the fence of a trainer that took over. */
static bool receive_fence(void *receiver, const ls_cluster_received *message)
{
    ls_host_agent *self = receiver;
    const ls_cluster_fence *fence = message->fixed;
    if (self->joined && is_newest(self, fence->epoch)) {
        self->results_wanted = fence->results_from != UINT64_MAX ? fence->results_from : self->results_wanted;
        ls_host_side_fence(&self->side, fence->epoch, fence->hard != 0, fence->limit);
        send_status(self);
    }
    return self->joined;
}

/* The verdict is that of hosts that agreed on the step; with it the ranks here finish to the
 * same bits. */
static bool receive_finish(void *receiver, const ls_cluster_received *message)
{
    ls_host_agent *self = receiver;
    const ls_cluster_finish *finish = message->fixed;
    if (self->joined && is_newest(self, finish->epoch)) {
        ls_host_side_finish(&self->side, finish->epoch, finish->step, &finish->verdict);
        send_status(self);
    }
    return self->joined;
}

/* Gathers count from the same number on all hosts after a change of members: a rank that took
 * part in one that was interrupted must do it again with the others. */
static bool receive_form(void *receiver, const ls_cluster_received *message)
{
    ls_host_agent *self = receiver;
    const ls_cluster_form *form = message->fixed;
    if (self->joined && is_newest(self, form->cut.epoch)) {
        self->results_wanted = UINT64_MAX;
        ls_host_side_set_gathered(&self->side, form->gathered);
        ls_host_side_form(&self->side, &form->cut, &form->held, form->moves != 0);
        send_status(self);
    }
    return self->joined;
}

static const ls_cluster_handler from_coordinator[] = {
    {LS_CLUSTER_JOIN, sizeof(ls_cluster_join), true, receive_join},
    {LS_CLUSTER_ORDERS, sizeof(ls_cluster_orders), false, receive_orders},
    {LS_CLUSTER_ASK, sizeof(ls_cluster_ask), false, ls_host_agent_answer},
    {LS_CLUSTER_KILL, sizeof(ls_cluster_ask), false, ls_host_agent_kill_rank},
    {LS_CLUSTER_FENCE, sizeof(ls_cluster_fence), false, receive_fence},
    {LS_CLUSTER_FINISH, sizeof(ls_cluster_finish), false, receive_finish},
    {LS_CLUSTER_FORM, sizeof(ls_cluster_form), false, receive_form},
    {0},
};

static void on_received(void *context, const void *data, size_t bytes)
{
    ls_host_agent *self = context;
    self->heard_ns = ls_env_now_ns(self->env);
    if (!ls_cluster_dispatch(from_coordinator, self, NULL, data, bytes)) {
        ls_host_agent_give_up(self, LS_ERR_INVALID, -1,
                              "the coordinator sent a message that this agent does not understand");
    }
}

/* ---- the link is lost ---- */

static ls_status open_link(ls_host_agent *self, uint64_t timeout_ns);

/* Called by a timer, so that the link is not closed within one of its own callbacks. */
static void connect_again(void *context)
{
    ls_host_agent *self = context;
    ls_store_link_close(self->link);
    self->link = NULL;
    if (open_link(self, self->wait_ns) != LS_OK) {
        ls_host_agent_give_up(self, LS_ERR_MEMORY, -1, ls_error_text());
    }
}

/* The trainer is gone, and the ranks' communicator will be soon: no rank touches the state until
 * another trainer says what follows. The fence is at least one above the team in force; one that
 * is up already stays. */
static void wait_for_trainer(ls_host_agent *self, const char *text)
{
    const uint64_t fence = atomic_load(&self->control->fence);
    const uint64_t next = atomic_load(&self->control->team_epoch) + 1;
    self->is_returning = true;
    self->clock_ns = 0;
    snprintf(self->lost_text, sizeof self->lost_text, "%s", text);
    ls_log_warn("%s: the ranks of this host wait %.3g s for another trainer (job.lease)", text,
                1e-9 * (double)self->wait_ns);
    ls_host_side_fence(&self->side, ls_max_u64(fence, next), true, 0);
    ls_env_timer_set(self->env, 0, connect_again, self);
}

/* Without job.lease, or before the first step, the run is over for this host. With it, a link
 * that was lost while ranks work means that the trainer may be replaced. A timeout while waiting
 * for that is the end, with the reason that began it. */
static void on_link_lost(void *context, ls_status status, const char *text)
{
    ls_host_agent *self = context;
    char waited[600];
    self->link_lost = true;
    if (self->ended) {
        ls_env_stop(self->env, 0);
        return;
    }
    if (status == LS_ERR_RANKS_LOST && self->has_run && self->wait_ns > 0 &&
        atomic_load(&self->control->abort) == 0 && atomic_load(&self->control->quit) == 0) {
        wait_for_trainer(self, text);
        return;
    }
    if (status == LS_ERR_TIMEOUT && self->is_returning) {
        status = LS_ERR_RANKS_LOST;
        snprintf(waited, sizeof waited, "%s, and no other trainer connected within %.3g s (job.lease)",
                 self->lost_text, 1e-9 * (double)self->wait_ns);
        text = waited;
    }
    note_reason(self, status, text);
    if (self->agent) {
        ls_control_abort(self->control, status, -1, text);
    } else {
        ls_env_stop(self->env, 0);
    }
}

void ls_host_agent_interrupt(ls_host_agent *self)
{
    char host[LS_HOST_NAME_BYTES] = "", text[200];
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "the agent of host %s was ended by a signal", host);
    ls_host_agent_give_up(self, LS_ERR_RANKS_LOST, -1, text);
}

/* This host is to leave while the run continues. Before the first step it has nothing to hand
 * over, and everything ends. */
void ls_host_agent_leave(ls_host_agent *self)
{
    if (self->has_run) {
        ls_host_leave_signal(&self->leave, ls_env_now_ns(self->env));
    } else {
        ls_host_agent_interrupt(self);
    }
}

/* ---- life ---- */

static ls_status open_link(ls_host_agent *self, uint64_t timeout_ns)
{
    char host[LS_HOST_NAME_BYTES] = "", identity[200];
    gethostname(host, sizeof host - 1);
    snprintf(identity, sizeof identity, "agent of %s, pid %d", host, (int)getpid());
    const ls_store_link_options options = {
        .env = self->env,
        .address = self->address,
        .token = self->options.token,
        .epoch = LS_STORE_EVERY_EPOCH,
        .identity = identity,
        .timeout_ns = timeout_ns,
        .pause_ns_max = self->is_returning ? PAUSE_NS_MAX : 0,
        .context = self,
        .ready = on_link_ready,
        .received = on_received,
        .lost = on_link_lost,
    };
    return ls_store_link_open(&options, &self->link);
}

ls_status ls_host_agent_open(ls_env *env, const ls_host_agent_options *options, ls_host_agent **agent_out)
{
    ls_host_agent *self = calloc(1, sizeof *self);
    if (!self) {
        return ls_fail(
            LS_ERR_MEMORY,
            "not enough memory for the agent (the process that starts and watches this host's ranks)");
    }
    self->options = *options;
    self->env = env;
    self->segment.fd = -1;
    self->results_wanted = UINT64_MAX;
    snprintf(self->address, sizeof self->address, "%s", options->coordinator);
    const ls_status status = open_link(self, (uint64_t)(options->timeout_s * 1e9));
    if (status != LS_OK) {
        ls_host_agent_close(self);
        return status;
    }
    *agent_out = self;
    return LS_OK;
}

void ls_host_agent_close(ls_host_agent *self)
{
    if (!self) {
        return;
    }
    ls_store_link_close(self->link);
    ls_agent_destroy(self->agent);
    ls_watchdog_destroy(self->watch);
    ls_host_leave_close(&self->leave);
    ls_segment_release(&self->segment);
    free(self);
}

ls_status ls_host_agent_result(const ls_host_agent *self)
{
    return self->status == LS_OK ? LS_OK : ls_fail(self->status, "%s", self->text);
}
