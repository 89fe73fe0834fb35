// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host_agent.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "execution/comm/store_address.h"
#include "execution/comm/store_link.h"
#include "execution/diagnose/sight_wire.h"
#include "execution/diagnose/stack.h"
#include "execution/diagnose/watch.h"
#include "execution/elastic/cluster_wire.h"
#include "execution/elastic/host_leave.h"
#include "execution/elastic/host_side.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    TICK_NS = 5 * 1000 * 1000,
    LINGER_NS = 300 * 1000 * 1000,
    BEAT_NS = 100 * 1000 * 1000,      /* a sign of life */
    PAUSE_NS_MAX = 800 * 1000 * 1000, /* between two attempts to reach another trainer */
    SAID_NS = 200 * 1000 * 1000,      /* what ranks do is said this often though nothing changed */
    GROUPS_MAX = LS_LOCAL_RANKS_MAX / LS_SIGHTS_MAX,
};

struct ls_host_agent {
    ls_host_agent_options options;
    ls_env *env;
    ls_store_link *link; /* closed at the end only */
    char address[LS_COMM_ADDRESS_BYTES], program[4096], segment_path[64], threads[16],
        run_dir[LS_CLUSTER_PATH_BYTES];
    const char *argv[10]; /* of a rank */
    bool link_lost, joined, abort_told, ended;
    ls_segment segment;
    ls_control *control;
    ls_agent *agent;
    ls_watch *watch;
    struct {
        uint64_t hash, at_ns;
    } said[GROUPS_MAX]; /* of LS_SIGHTS_MAX ranks each: the last message */
    ls_host_side side;
    uint64_t lease_ns, heard_ns,
        said_ns;    /* of the coordinator; heard: its last message; said: the last status */
    uint64_t epoch; /* the highest it has said */
    uint32_t replacements;
    bool has_run; /* a step was granted */
    /* job.lease: its trainer may be gone, and another one come, so long. */
    uint64_t wait_ns, run;
    uint64_t told;     /* what the trainer wants results from; UINT64_MAX: none */
    bool is_returning; /* has lost its link, and has heard nothing of another trainer yet that it could do */
    char lost_text[400];
    ls_host_leave leave;
    ls_host_status last_status;
    ls_status status;
    char text[LS_RANK_TEXT_BYTES];
};

static void stop_loop(void *context)
{
    const ls_host_agent *self = context;
    ls_env_stop(self->env, 0);
}

/* The first reason stays. */
static void note_reason(ls_host_agent *self, ls_status status, const char *text)
{
    if (self->status == LS_OK) {
        self->status = status;
        snprintf(self->text, sizeof self->text, "%s", text);
    }
}

static void send_to_coordinator(ls_host_agent *self, const void *message, size_t bytes)
{
    const int error = self->link_lost ? 0 : ls_store_link_send(self->link, message, bytes);
    if (error && error != -ENOTCONN) { /* nobody to tell yet */
        ls_log_warn("a message to the coordinator was lost: %s", strerror(-error));
    }
}

/* Ends everything for a reason of this host: coordinator and ranks get to know. */
static void give_up(ls_host_agent *self, ls_status status, int32_t rank, const char *text)
{
    ls_cluster_abort reason = {.kind = LS_CLUSTER_ABORT, .status = (uint32_t)status, .rank = rank};
    snprintf(reason.text, sizeof reason.text, "%s", text);
    note_reason(self, status, reason.text);
    if (!self->abort_told) {
        self->abort_told = true;
        send_to_coordinator(self, &reason, sizeof reason);
    }
    if (self->agent) {
        ls_control_abort(self->control, status, rank, reason.text);
    } else {
        ls_env_timer_set(self->env, LINGER_NS, stop_loop, self);
    }
}

/* ---- ranks ---- */

static void say_ready(ls_host_agent *self, uint32_t rank)
{
    const ls_rank_slot *slot = ls_segment_slot(&self->segment, rank - self->control->first_rank);
    ls_cluster_ready ready = {
        .kind = LS_CLUSTER_READY,
        .hello = {.rank = rank, .pid = atomic_load(&slot->pid), .preflight = slot->preflight}};
    memcpy(ready.hello.host, self->control->host, sizeof ready.hello.host);
    ready.has_part = ls_host_side_has_part(&self->side, rank - self->control->first_rank);
    send_to_coordinator(self, &ready, sizeof ready);
}

static void on_ready(void *context, uint32_t rank)
{
    ls_host_agent *self = context;
    if (!ls_host_side_ready(&self->side, rank - self->control->first_rank)) {
        ls_agent_kill(self->agent, rank - self->control->first_rank);
        return;
    }
    if (self->watch) {
        ls_watch_join(self->watch, rank);
    }
    say_ready(self, rank);
}

static void on_lost(void *context, const ls_rank_end *end)
{
    ls_host_agent *self = context;
    ls_cluster_lost lost = {.kind = LS_CLUSTER_LOST, .end = *end};
    ls_host_side_lost(&self->side, end->rank - self->control->first_rank);
    if (self->watch) {
        ls_watch_leave(self->watch, end->rank);
    }
    send_to_coordinator(self, &lost, sizeof lost); /* it says what follows */
}

static void on_ended(void *context)
{
    ls_host_agent *self = context;
    const ls_cluster_ended ended = {.kind = LS_CLUSTER_ENDED};
    self->ended = true;
    send_to_coordinator(self, &ended, sizeof ended);
    ls_env_timer_set(self->env, self->link_lost ? 0 : LINGER_NS, stop_loop, self);
}

/* ---- where this host is ---- */

/* The coordinator may be gone, or may have declared this host lost: nobody here touches the state any more until it says what follows. */
static void look_at_lease(ls_host_agent *self, uint64_t now)
{
    const ls_control *control = self->control;
    if (self->has_run && !self->link_lost && now - self->heard_ns > self->lease_ns &&
        atomic_load(&control->fence) <= atomic_load(&control->team_epoch)) {
        ls_log_warn(
            "nothing heard of the coordinator for %.3g s (job.node_lease): the ranks of this host wait",
            1e-9 * (double)(now - self->heard_ns));
        ls_host_side_fence(&self->side, atomic_load(&control->team_epoch) + 1, true, 0);
    }
}

/* The coordinator has them before it learns that these steps are finished. */
static void say_results(ls_host_agent *self, uint64_t finished)
{
    for (; self->told < finished; self->told++) {
        const ls_rank_slot *slot = ls_control_with_result(self->control, self->told);
        if (slot) {
            const ls_cluster_result message = {.kind = LS_CLUSTER_RESULT,
                                               .result = slot->results[self->told % LS_RANK_RESULTS]};
            send_to_coordinator(self, &message, sizeof message);
        }
    }
}

static void say_status(ls_host_agent *self)
{
    const uint64_t now = ls_env_now_ns(self->env);
    ls_cluster_status status = {.kind = LS_CLUSTER_STATUS};
    look_at_lease(self, now);
    ls_host_side_status(&self->side, &status.status);
    const bool ends = atomic_load(&self->control->stop) != 0 || atomic_load(&self->control->quit) != 0;
    const bool changed =
        ls_host_leave_look(&self->leave, now, ends) || status.status.fence != self->last_status.fence ||
        (status.status.fence != 0 && memcmp(&status.status, &self->last_status, sizeof status.status) != 0);
    if (self->link_lost || (!changed && now - self->said_ns < BEAT_NS)) {
        return;
    }
    if (self->told != UINT64_MAX && self->control->team.local_parts > 0) {
        say_results(self, status.status.finished);
    }
    status.until = atomic_load(&self->control->until);
    status.results_from = self->is_returning ? ls_control_results_from(self->control) : 0;
    ls_data_parallel_read_verdict(self->segment.exchange, &status.verdict);
    ls_host_leave_say(&self->leave, &status);
    self->last_status = status.status;
    self->said_ns = now;
    send_to_coordinator(self, &status, sizeof status);
}

static void replace_ranks(ls_host_agent *self)
{
    uint32_t local;
    if (self->agent && !self->ended &&
        ls_host_side_next_start(&self->side, self->replacements, ls_env_now_ns(self->env), &local) &&
        ls_agent_start_rank(self->agent, local) != LS_OK) {
        ls_log_warn("%s", ls_error_text());
        ls_host_side_lost(&self->side, local);
    }
}

/* What a rank of this host aborted for goes to the coordinator. */
static void tick(void *context)
{
    ls_host_agent *self = context;
    say_status(self);
    replace_ranks(self);
    const uint32_t status = atomic_load(&self->control->abort);
    if (status != 0 && !self->abort_told) {
        give_up(self, (ls_status)status, atomic_load(&self->control->abort_rank), self->control->abort_text);
    }
    if (!self->ended) {
        ls_env_timer_set(self->env, TICK_NS, tick, self);
    }
}

/* ---- joining ---- */

static ls_status check_join(const ls_cluster_join *join, size_t bytes)
{
    if (bytes != sizeof *join + join->text_bytes || join->local_ranks < 1 ||
        join->local_ranks > LS_LOCAL_RANKS_MAX || join->ranks > join->leaves ||
        join->leaves > LS_LEAVES_MAX || join->first_rank >= join->ranks ||
        join->local_ranks > join->ranks - join->first_rank) {
        return ls_fail(LS_ERR_INVALID, "the coordinator's orders make no sense: ranks %u to %u of %u",
                       join->first_rank, join->first_rank + join->local_ranks, join->ranks);
    }
    return LS_OK;
}

static ls_status enter_folders(const ls_cluster_join *join)
{
    if (chdir(join->folder) != 0) {
        return ls_fail_errno(
            errno,
            "the trainer's folder %s: run file, data and run directory must be under the same paths "
            "on all hosts",
            join->folder);
    }
    if (access(join->run_dir, F_OK) != 0) {
        return ls_fail_errno(errno, "the run directory %s must be on a file system that all hosts share",
                             join->run_dir);
    }
    return LS_OK;
}

static ls_status make_segment(ls_host_agent *self, const ls_cluster_join *join, const char *text)
{
    const ls_segment_plan plan = {
        .float_count = join->float_count,
        .frozen_floats = join->frozen_floats,
        .exchange_bytes = join->exchange_bytes,
        .leaves = join->leaves,
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
    ls_host_side_init(&self->side, &self->segment, join->place);
    snprintf(self->control->coordinator, sizeof self->control->coordinator, "%s", self->address);
    self->replacements = join->replacements;
    self->wait_ns = join->wait_ns;
    self->run = join->run;
    ls_segment_begin_at(&self->segment, join->step);
    if (join->is_late) {
        ls_control_fence(self->control, join->epoch + 1, true);
    }
    return LS_OK;
}

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
    setenv("LOCKSTEP_TOKEN", self->options.token,
           1); /* how ranks get it: not through arguments, which all users see */
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

static void on_fatal(void *context, ls_status status, const char *text)
{
    give_up(context, status, -1, text);
}

/* ---- what the coordinator's watch can't see itself ---- */

static void say_sights(ls_host_agent *self, uint32_t group, const ls_sight *sights, uint32_t count)
{
    ls_text message = {0};
    const uint64_t now_ns = ls_env_now_ns(self->env);
    const ls_cluster_sights head = {.kind = LS_CLUSTER_SIGHTS, .taken_ns = now_ns};
    ls_text_append_bytes(&message, &head, sizeof head);
    ls_sights_encode(sights, count, &message);
    const uint64_t hash = ls_xxh3(message.data + sizeof head, message.bytes - sizeof head, 0);
    if (hash != self->said[group].hash || now_ns - self->said[group].at_ns >= SAID_NS) {
        self->said[group].hash = hash;
        self->said[group].at_ns = now_ns;
        if (!self->link_lost) {
            (void)ls_store_link_send(self->link, message.data, message.bytes); /* the next one says it anew */
        }
    }
    ls_text_release(&message);
}

/* A file that an earlier run left in its place is not this rank's. */
static bool is_of_ours(const ls_host_agent *self, const ls_sight *sight)
{
    const ls_control *control = self->control;
    return sight->header.size <= control->ranks && sight->rank >= control->first_rank &&
           sight->rank - control->first_rank < control->local_ranks &&
           sight->header.pid ==
               atomic_load(&ls_segment_slot(&self->segment, sight->rank - control->first_rank)->pid);
}

static void on_seen(void *context, ls_sight *sights, uint32_t seen)
{
    ls_host_agent *self = context;
    uint32_t count = 0;
    for (uint32_t i = 0; i < seen; i++) {
        if (is_of_ours(self, &sights[i])) {
            if (i != count) {
                sights[count] = sights[i];
            }
            count++;
        }
    }
    for (uint32_t at = 0; at < count && !self->ended; at += LS_SIGHTS_MAX) {
        const uint32_t left = count - at;
        say_sights(self, at / LS_SIGHTS_MAX, sights + at, left < LS_SIGHTS_MAX ? left : LS_SIGHTS_MAX);
    }
}

/* Only of ranks of this run: a number from elsewhere is none of ours to look into. */
static void answer(ls_host_agent *self, const ls_cluster_ask *ask)
{
    ls_cluster_stack stack = {.kind = LS_CLUSTER_STACK, .rank = ask->rank};
    const ls_control *control = self->control;
    if (!self->joined || ask->rank < control->first_rank ||
        ask->rank - control->first_rank >= control->local_ranks) {
        give_up(self, LS_ERR_INVALID, -1, "the coordinator asked an agent for the stack of another's rank");
        return;
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
    send_to_coordinator(self, &stack, sizeof stack);
}

/* A rank that hangs; that it has ended is told like any other end. One that has ended already is no more. */
static void kill_rank(ls_host_agent *self, const ls_cluster_ask *order)
{
    const ls_control *control = self->control;
    if (!self->agent || order->rank < control->first_rank ||
        order->rank - control->first_rank >= control->local_ranks) {
        give_up(self, LS_ERR_INVALID, -1, "the coordinator told an agent to end another's rank");
        return;
    }
    const uint32_t local = order->rank - control->first_rank;
    if (order->pid > 0 && atomic_load(&ls_segment_slot(&self->segment, local)->pid) == order->pid) {
        ls_agent_kill(self->agent, local);
    }
}

/* Who is late is judged where the sights of all hosts come together. */
static ls_status start_watch(ls_host_agent *self, const ls_cluster_join *join)
{
    uint32_t local[LS_COMM_SIZE_MAX];
    ls_text flight_dir = {0};
    for (uint32_t i = 0; i < join->local_ranks; i++) {
        local[i] = join->first_rank + i;
    }
    ls_text_printf(&flight_dir, "%s/flight", join->run_dir);
    const ls_watch_options options = {.env = self->env,
                                      .flight_dir = ls_text_string(&flight_dir),
                                      .ranks = join->ranks,
                                      .local = local,
                                      .local_count = join->local_ranks,
                                      .seen = on_seen,
                                      .fatal = on_fatal,
                                      .context = self};
    const ls_status status = ls_watch_create(&options, &self->watch);
    ls_text_release(&flight_dir);
    return status;
}

static ls_status join_run(ls_host_agent *self, const void *data, size_t bytes)
{
    ls_cluster_join join;
    memcpy(&join, data, sizeof join);
    LS_CLUSTER_CLOSE(join.run_dir);
    LS_CLUSTER_CLOSE(join.folder);
    LS_TRY(check_join(&join, bytes));
    LS_TRY(enter_folders(&join));
    LS_TRY(make_segment(self, &join, (const char *)data + sizeof join));
    self->joined = true;
    ls_env_timer_set(self->env, TICK_NS, tick, self);
    LS_TRY(start_ranks(self, &join));
    if (self->options.no_watch) {
        return LS_OK;
    }
    if (self->wait_ns > 0) {
        prctl(PR_SET_PDEATHSIG, 0); /* whoever started it may end with the trainer */
    }
    LS_TRY(ls_host_leave_open(&self->leave, (const char *)data + sizeof join, join.text_bytes));
    return start_watch(self, &join);
}

static void obey(ls_host_agent *self, const ls_cluster_orders *orders)
{
    if (orders->abort) {
        note_reason(self, (ls_status)orders->abort, orders->abort_text);
        self->abort_told = true; /* it is the coordinator's own */
    }
    if (!self->joined) {
        if (orders->abort || orders->quit) {
            on_ended(self);
        }
        return;
    }
    if (orders->abort) {
        ls_control_abort(self->control, (ls_status)orders->abort, orders->abort_rank, orders->abort_text);
    }
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
}

/* ---- the link ---- */

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
        give_up(self, LS_ERR_IO, -1, ls_error_text());
        return;
    }
    if (!self->is_returning) {
        send_to_coordinator(self, &hello, sizeof hello);
        return;
    }
    hello.place = self->side.place;
    hello.run = self->run;
    hello.first_rank = self->control->first_rank;
    hello.local_ranks = self->control->local_ranks;
    self->link_lost = false;
    self->heard_ns = ls_env_now_ns(self->env);
    send_to_coordinator(self, &hello, sizeof hello);
    for (uint32_t local = 0; local < self->control->local_ranks; local++) {
        if (self->side.lives[local]) {
            say_ready(self, self->control->first_rank + local);
        }
    }
    self->said_ns = 0; /* its status comes behind them: all has been said then */
    say_status(self);
}

/* A change of members; what is older than was heard before is out of date. False: it is none. */
static bool receive_change(ls_host_agent *self, uint32_t kind, const void *data, size_t bytes)
{
    union {
        ls_cluster_fence fence;
        ls_cluster_finish finish;
        ls_cluster_form form;
    } message;
    const size_t expected = kind == LS_CLUSTER_FENCE    ? sizeof message.fence
                            : kind == LS_CLUSTER_FINISH ? sizeof message.finish
                            : kind == LS_CLUSTER_FORM   ? sizeof message.form
                                                        : 0;
    if (expected == 0 || bytes != expected || !self->joined) {
        return false;
    }
    memcpy(&message, data, bytes);
    const uint64_t epoch = kind == LS_CLUSTER_FENCE    ? message.fence.epoch
                           : kind == LS_CLUSTER_FINISH ? message.finish.epoch
                                                       : message.form.cut.epoch;
    if (epoch < self->epoch) {
        return true;
    }
    self->epoch = epoch;
    self->is_returning = false;
    if (kind == LS_CLUSTER_FENCE) {
        self->told = message.fence.told != UINT64_MAX ? message.fence.told : self->told;
        ls_host_side_fence(&self->side, epoch, message.fence.hard != 0, message.fence.limit);
    } else if (kind == LS_CLUSTER_FINISH) {
        ls_host_side_finish(&self->side, epoch, message.finish.step, &message.finish.verdict);
    } else {
        self->told = UINT64_MAX;
        ls_host_side_set_gathered(&self->side, message.form.gathered);
        ls_host_side_form(&self->side, &message.form.cut, &message.form.held, message.form.moves != 0);
    }
    say_status(self);
    return true;
}

static void on_received(void *context, const void *data, size_t bytes)
{
    ls_host_agent *self = context;
    uint32_t kind = 0;
    self->heard_ns = ls_env_now_ns(self->env);
    if (bytes >= sizeof kind) {
        memcpy(&kind, data, sizeof kind);
    }
    if (kind == LS_CLUSTER_JOIN && bytes >= sizeof(ls_cluster_join) && !self->joined) {
        const ls_status status = join_run(self, data, bytes);
        if (status != LS_OK) {
            char host[LS_HOST_NAME_BYTES] = "", text[LS_RANK_TEXT_BYTES];
            gethostname(host, sizeof host - 1);
            snprintf(text, sizeof text, "host %s: %s", self->options.name[0] ? self->options.name : host,
                     ls_error_text());
            give_up(self, status, -1, text);
        }
    } else if (kind == LS_CLUSTER_ORDERS && bytes == sizeof(ls_cluster_orders)) {
        ls_cluster_orders orders;
        memcpy(&orders, data, sizeof orders);
        LS_CLUSTER_CLOSE(orders.abort_text);
        obey(self, &orders);
    } else if ((kind == LS_CLUSTER_ASK || kind == LS_CLUSTER_KILL) && bytes == sizeof(ls_cluster_ask)) {
        ls_cluster_ask ask;
        memcpy(&ask, data, sizeof ask);
        if (kind == LS_CLUSTER_ASK) {
            answer(self, &ask);
        } else {
            kill_rank(self, &ask);
        }
    } else if (!receive_change(self, kind, data, bytes)) {
        give_up(self, LS_ERR_INVALID, -1, "the coordinator said something that agents don't understand");
    }
}

static ls_status open_link(ls_host_agent *self, uint64_t timeout_ns);

static void connect_again(void *context)
{
    ls_host_agent *self = context;
    ls_store_link_close(self->link);
    self->link = NULL;
    if (open_link(self, self->wait_ns) != LS_OK) {
        give_up(self, LS_ERR_MEMORY, -1, ls_error_text());
    }
}

/* The trainer is gone, as its ranks' communicator soon is: nobody touches the state until another one says what follows. */
static void wait_for_trainer(ls_host_agent *self, const char *text)
{
    const uint64_t fence = atomic_load(&self->control->fence);
    const uint64_t next = atomic_load(&self->control->team_epoch) + 1;
    self->is_returning = true;
    snprintf(self->lost_text, sizeof self->lost_text, "%s", text);
    ls_log_warn("%s: the ranks of this host wait %.3g s for another trainer (job.lease)", text,
                1e-9 * (double)self->wait_ns);
    ls_host_side_fence(&self->side, fence > next ? fence : next, true, 0);
    ls_env_timer_set(self->env, 0, connect_again, self);
}

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
        snprintf(waited, sizeof waited, "%s, and no other trainer came within %.3g s (job.lease)",
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

static void on_signal(void *context)
{
    ls_host_agent *self = context;
    char host[LS_HOST_NAME_BYTES] = "", text[200];
    gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "the agent of host %s was told to end by a signal", host);
    give_up(self, LS_ERR_RANKS_LOST, -1, text);
}

/* This host is to go, the run is not. Before it trains there is nothing to hand over. */
void ls_host_agent_leave(ls_host_agent *self)
{
    if (self->has_run) {
        ls_host_leave_tell(&self->leave, ls_env_now_ns(self->env));
    } else {
        on_signal(self);
    }
}

/* ---- from begin to end ---- */

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
        return ls_fail(LS_ERR_MEMORY, "no memory for an agent");
    }
    self->options = *options;
    self->env = env;
    self->segment.fd = -1;
    self->told = UINT64_MAX;
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
    ls_watch_destroy(self->watch);
    ls_host_leave_close(&self->leave);
    ls_segment_release(&self->segment);
    free(self);
}

ls_status ls_host_agent_status(const ls_host_agent *self)
{
    return self->status == LS_OK ? LS_OK : ls_fail(self->status, "%s", self->text);
}

/* ---- a process of its own ---- */

static void on_process_signal(void *context)
{
    ls_host_agent **self = context;
    if (*self) {
        on_signal(*self);
    }
}

static void on_process_sigterm(void *context)
{
    ls_host_agent **self = context;
    if (*self) {
        ls_host_agent_leave(*self);
    }
}

static ls_status serve(ls_env *env, const ls_host_agent_options *options)
{
    const struct {
        int number;
        ls_env_fire fire;
    } signals[] = {{SIGINT, on_process_signal}, {SIGTERM, on_process_sigterm}, {SIGHUP, on_process_signal}};
    ls_host_agent *self = NULL;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        const int error = ls_env_signal_watch(env, signals[i].number, signals[i].fire, &self);
        if (error) {
            return ls_fail_errno(-error, "watching signal %d", signals[i].number);
        }
    }
    LS_TRY(ls_host_agent_open(env, options, &self));
    ls_env_run(env);
    const ls_status status = ls_host_agent_status(self);
    ls_host_agent_close(self);
    return status;
}

ls_status ls_host_agent_run(const ls_host_agent_options *options)
{
    char address[LS_COMM_ADDRESS_BYTES];
    ls_host_agent_options numeric = *options;
    ls_env *env = NULL;
    LS_TRY(ls_store_address_numeric(options->coordinator, address, sizeof address));
    numeric.coordinator = address;
    LS_TRY(ls_env_real_create(&env));
    const ls_status status = serve(env, &numeric);
    ls_env_real_destroy(env);
    return status;
}
