// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/rank.h"

#include "execution/elastic/host/local_hosts.h"
#include "execution/elastic/host/shared_blocks.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "comm/flight/flight.h"
#include "comm/group/environment.h"
#include "execution/hang/rank_snapshot.h"
#include "execution/parallel/hosts.h"
#include "execution/team/fault_injection.h"
#include "execution/train/memory.h"
#include "execution/train/segment.h"
#include "execution/train/session.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* Hangs are found and named long before, by the watchdog and by the links. */
enum { COMM_TIMEOUT_S = 600 };

typedef struct rank {
    const ls_rank_options *options;
    ls_segment segment;
    ls_control *control;
    ls_rank_slot *slot;
    uint32_t local, part; /* part: the first of this host's parts that it holds */
    ls_team team;
    ls_arena arena;
    ls_flight *flight;
    ls_session session;
    ls_schedule schedule;
    ls_state state;
    uint32_t member;        /* its number in its crew, which its plans are for */
    ls_executor *executors; /* one per chunk of its stage */
    uint32_t executor_count;
    ls_comm *comm;       /* of all ranks, when they are on several hosts */
    ls_block_peer giver; /* what they know of this one */
    ls_data_parallel *parallel;
    /* With local steps on several hosts: what crosses the link. `parallel` is then of this host. */
    ls_local_hosts *local_hosts;
    bool is_ready;  /* it has said so */
    bool is_broken; /* `parallel` was told to break its transfers */
    ls_stepper *stepper;
    ls_bit_flip flip; /* for tests */
    ls_fault_injection fault;
    uint64_t step; /* finished steps */
    /* When the step it is in began, however often it was interrupted; 0: it is in none. */
    uint64_t begin_ns;
    /* It has run a step of this cut and knows where it is; otherwise the team says it. */
    bool has_run;
    uint64_t alone_ns; /* since when it has had no agent; 0: it has one */
} rank;

/* ---- life and death of the agent ---- */

/* The first local part that this rank holds; local_parts when it holds none. */
static uint32_t first_held(const rank *r)
{
    uint32_t part = 0;
    while (part < r->team.local_parts && r->team.holder[part] != r->local) {
        part++;
    }
    return part;
}

/* The agent's process number, from "/proc/PID/fd/N". */
static pid_t agent_of(const char *segment)
{
    return strncmp(segment, "/proc/", 6) == 0 ? (pid_t)strtol(segment + 6, NULL, 10) : 0;
}

/* On one of several hosts without its trainer: the other hosts' agents have raised a fence, and
 * so does this rank. Only a rank with a part that is not parked may: a trainer that takes over
 * at this moment waits for that very rank, so the fence cannot be raised after it has published
 * its team. */
static void stop_alone(rank *r)
{
    const bool is_parked = atomic_load(&r->slot->parked) > r->team.epoch;
    if (r->control->coordinator[0] && !is_parked && first_held(r) < r->team.local_parts) {
        ls_control_fence_alone(r->control);
    }
}

/* Its own agent is gone: whether another one is here, or may still come within the lease. */
static bool has_other_agent(rank *r)
{
    const uint64_t now_ns = ls_clock_monotonic_ns();
    const int32_t pid = atomic_load(&r->control->agent_pid);
    if (ls_process_look(pid, atomic_load(&r->control->agent_start)) != LS_PROCESS_DEAD) {
        r->alone_ns = 0;
        return true;
    }
    r->alone_ns = r->alone_ns ? r->alone_ns : now_ns;
    stop_alone(r);
    return now_ns - r->alone_ns < r->control->lease_ns;
}

static bool agent_lives(void *context)
{
    rank *r = context;
    atomic_store(&r->slot->alive_ns, ls_clock_monotonic_ns());
    return getppid() == agent_of(r->options->segment) || (r->control->lease_ns > 0 && has_other_agent(r));
}

/* Set by the signal handler to ask for leave. The coordinator grants it at a step boundary, if
 * the run can do without this rank. */
static _Atomic uint32_t *asks_to_leave;

static void on_sigterm(int number)
{
    (void)number;
    atomic_store(asks_to_leave, 1);
}

static ls_status follow_agent(const rank *r)
{
    asks_to_leave = &r->slot->asks_to_leave;
    const struct sigaction leave = {.sa_handler = on_sigterm, .sa_flags = SA_RESTART};
    signal(SIGINT, SIG_IGN);
    sigaction(SIGTERM, &leave, NULL);
    signal(SIGHUP, SIG_IGN);
    if (r->control->lease_ns > 0) {
        return LS_OK; /* it checks for itself, in every wait */
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* the agent died before the kernel was told */
    if (getppid() != agent_of(r->options->segment)) {
        return ls_fail(LS_ERR_RANKS_LOST, "the agent of this rank (the process that started it) is gone");
    }
    return LS_OK;
}

/* ---- opening ---- */

static ls_status attach(rank *r)
{
    LS_TRY(ls_segment_attach(r->options->segment, &r->segment));
    r->control = r->segment.control;
    const uint32_t number = r->options->rank, first = r->control->first_rank;
    if (number < first || number - first >= r->control->local_ranks) {
        return ls_fail(LS_ERR_INVALID, "rank %u is not on this host, which has ranks %u to %u", number, first,
                       first + r->control->local_ranks - 1);
    }
    r->local = number - first;
    r->slot = ls_segment_slot(&r->segment, r->local);
    r->step = atomic_load(&r->slot->finished);
    atomic_store(&r->slot->pid_start, ls_process_start(getpid()));
    atomic_store(&r->slot->pid, getpid());
    ls_control_phase(r->control, r->local, LS_RANK_STARTING);
    return LS_OK;
}

/* A rank can compute without a flight recorder. The team in force may be smaller than the number of
 * this rank: it does not know those that are about to join. */
static void open_flight(rank *r)
{
    const uint32_t number = r->options->rank, parts = r->control->team.parts;
    const uint32_t size = parts > number ? parts : number + 1;
    const char *name = ls_arena_printf(&r->arena, "flight/rank-%u", number);
    const char *path = ls_path_join(&r->arena, r->options->run_dir, name);
    ls_flight_pulse(&r->slot->alive_ns);
    if (ls_flight_create(path, number, size, r->control->epoch, &r->flight) != LS_OK) {
        ls_log_warn("the operations of this rank are not recorded (no flight recorder): %s", ls_error_text());
        return;
    }
    ls_flight_install(r->flight);
    ls_flight_clock(atomic_load(&r->control->clock_offset_ns));
}

static ls_status open_session(rank *r)
{
    ls_run_file run;
    r->member = (r->control->first_rank + r->local) % r->control->crew;
    LS_TRY(ls_run_file_parse(r->segment.text, (size_t)r->control->text_bytes, "run.yaml", NULL, 0, &r->arena,
                             &run));
    const ls_session_options options = {
        .run_dir = r->options->run_dir,
        .threads = r->options->threads,
        .is_rank = true,
        .member = r->member,
    };
    LS_TRY(ls_session_open(&r->arena, &run, &options, &r->session));
    ls_model_file_close(r->session.source); /* the trainer loads the weights */
    r->session.source = NULL;
    r->schedule = ls_session_schedule(&r->session);
    return LS_OK;
}

static ls_status open_executors(rank *r)
{
    const ls_session *session = &r->session;
    const uint32_t chunks = session->pipeline.chunks;
    r->executors = ls_arena_new(&r->arena, ls_executor, chunks);
    for (; r->executor_count < chunks; r->executor_count++) {
        const ls_plan *plan = &session->own_plans[r->executor_count];
        LS_TRY(
            ls_executor_init(&r->executors[r->executor_count], session->queue, plan, plan->options.length));
    }
    return LS_OK;
}

static void release_executors(rank *r)
{
    while (r->executor_count > 0) {
        ls_executor_release(&r->executors[--r->executor_count]);
    }
}

/* A new cut may give this process another place in its crew. */
static ls_status take_place(rank *r)
{
    const uint32_t member = (r->team.first_part + r->part) % r->control->crew;
    if (member == r->member) {
        return LS_OK;
    }
    release_executors(r);
    r->member = member;
    LS_TRY(ls_session_build_own_plans(&r->session, member));
    return open_executors(r);
}

static bool stop_asked(void *context)
{
    const rank *r = context;
    atomic_store(&r->slot->alive_ns, ls_clock_monotonic_ns());
    return atomic_load(&r->control->stop) != 0 || atomic_load(&r->control->abort) != 0;
}

static float *gradient_at(void *context, uint32_t local, uint32_t index)
{
    const rank *r = context;
    return ls_segment_gradient(&r->segment, local, index);
}

static ls_status why_aborted(void *context)
{
    const rank *r = context;
    LS_TRY(ls_control_aborted(r->control));
    return ls_fail(LS_FENCED, "the set of ranks that train together is about to change");
}

static bool is_interrupted(void *context)
{
    rank *r = context;
    (void)agent_lives(r);
    return atomic_load(&r->control->interrupt) != 0;
}

/* One of the others is gone, and this rank may know it before the coordinator does. The coordinator
 * will raise a fence or end the run, so wait for that. If neither happens, it is an error. */
static ls_status await_fence(rank *r, ls_status status)
{
    enum { WAIT_S = 20 };
    char text[1024];
    snprintf(text, sizeof text, "%s", ls_error_text());
    ls_word never = {0};
    const ls_wait wait = {.abort = &r->control->interrupt,
                          .look = agent_lives,
                          .context = r,
                          .deadline_ns = ls_clock_monotonic_ns() + WAIT_S * UINT64_C(1000000000)};
    return ls_wait_until(&never, 1, &wait) == LS_WAIT_TIMEOUT ? ls_fail(status, "%s", text) : why_aborted(r);
}

/* Of meeting the others; an error when they meet for the first time. */
static ls_status after_meeting(rank *r, ls_status status)
{
    const bool is_first = r->team.epoch == r->control->epoch;
    const bool is_final =
        status == LS_OK || r->team.local_parts == r->team.parts || (is_first && status != LS_FENCED);
    return is_final ? status : await_fence(r, status);
}

/* Of a call to other hosts with local steps. Transfers of other runs end with LS_FENCED. */
static ls_status after_crossing(rank *r, ls_status status)
{
    const bool is_lost = status != LS_OK && ls_local_hosts_is_cut_off(r->local_hosts);
    return is_lost ? await_fence(r, status) : status;
}

/* The communicator of several hosts meets at the coordinator's store: a link for each rank. */
static ls_status meet_other_hosts(rank *r)
{
    if (r->team.local_parts == r->team.parts) {
        return LS_OK;
    }
    ls_comm_options options = {
        .rank = r->team.first_part + r->part,
        .size = r->team.parts,
        .local_rank = r->part,
        .local_size = r->team.local_parts,
        .epoch = r->team.cut,
        .name = "train",
        .flags = LS_COMM_NO_SHM, /* ranks of one host share the segment */
        .timeout_s = COMM_TIMEOUT_S,
        .is_over = is_interrupted,
        .context = r,
    };
    memcpy(options.coordinator, r->control->coordinator, sizeof options.coordinator);
    LS_TRY(ls_environment_token(options.token));
    LS_TRY(ls_comm_open(&options, &r->comm));
    r->session.data_hosts = ls_comm_host_count(r->comm);
    return ls_share_blocks(&options, r->comm, &r->session, &r->giver);
}

static ls_step_marks marks_of(void *context, uint32_t part)
{
    ls_part_marks *marks = &((const rank *)context)->control->parts[part];
    return (ls_step_marks){.entered = &marks->entered, .begun = &marks->begun, .done = &marks->done};
}

static ls_fault_injection *own_fault(rank *r)
{
    return r->fault.kind != LS_FAULT_INJECTION_NONE && r->fault.rank == r->options->rank ? &r->fault : NULL;
}

/* The mark `finished` is not in the exchange: it is published with the result. */
static ls_status join_others(rank *r)
{
    LS_TRY(meet_other_hosts(r));
    const ls_step_settings settings = ls_session_step_settings(&r->session);
    const bool is_apart = settings.local.steps > 0; /* workers share nothing but the outer step */
    if (is_apart && r->control->coordinator[0]) {
        LS_TRY(ls_local_hosts_create(r->comm, &r->state, &settings.local, r->control, r->team.first_part,
                                     &r->local_hosts));
    }
    const ls_data_parallel_options options = {
        .plan = r->session.own_plans,
        .epoch = r->team.cut,
        .leaves = settings.leaves,
        .group = settings.group,
        .compression = settings.compression,
        .changes = settings.changes,
        .compression_warmup = settings.compression_warmup,
        .queue = r->session.queue,
        .beta1 = settings.beta1,
        .beta2 = settings.beta2,
        .eps = settings.group_eps,
        .residuals = r->state.residuals,
        .parts = is_apart ? r->team.local_parts : r->team.parts,
        .first_part = is_apart ? 0 : r->team.first_part,
        .local_parts = r->team.local_parts,
        .rank = r->local,
        .first_rank = r->control->first_rank,
        .holders = r->team.holder,
        .room = r->control->local_ranks,
        .threads = ls_queue_threads(r->session.queue),
        .mesh = ls_session_mesh(&r->session),
        .stages = r->session.stages,
        .rooms = (char *)r->segment.exchange + ls_session_rooms_at(&r->session, r->control->local_ranks),
        .team_epoch = r->team.epoch,
        .gradient = gradient_at,
        .sums = r->segment.sums,
        .context = r,
        .exchange = r->segment.exchange,
        .comm = is_apart ? NULL : r->comm,
        .zero = ls_run_file_zero(&r->session.run),
        .shadow = r->session.run.parallel.shadow,
        .parameters = r->state.parameters,
        .micro_batches = settings.global_batch / settings.leaves / settings.micro_batch,
        .abort = &r->control->interrupt,
        .aborted = why_aborted,
        .look = agent_lives,
        .marks = marks_of,
        .fault_injection = own_fault(r),
    };
    return ls_data_parallel_create(&options, &r->parallel);
}

/* An agent that died while it wrote the team left the writing to the next agent, which may never
 * come. */
static ls_status read_team(rank *r)
{
    while (!ls_control_try_team(r->control, &r->team)) {
        if (!agent_lives(r)) {
            return ls_fail(LS_ERR_RANKS_LOST, "the agent of this rank (the process that started it) is gone");
        }
        sched_yield();
    }
    return LS_OK;
}

/* Started behind a fence on one of several hosts, in the place of a lost rank of a crew: the team
 * in force still means that one. */
static bool must_wait(const rank *r)
{
    return !r->is_ready && r->control->crew > 1 && r->team.local_parts < r->team.parts &&
           atomic_load(&r->control->fence) > r->team.epoch;
}

static ls_status make_stepper(rank *r)
{
    ls_session *session = &r->session;
    LS_TRY(read_team(r));
    r->part = first_held(r);
    if (r->part == r->team.local_parts || must_wait(r)) {
        return LS_OK; /* it has none */
    }
    LS_TRY(take_place(r));
    ls_segment_state(&r->segment, LS_SEGMENT_NO_RANK, session->queue, &session->layout, &r->state);
    LS_TRY(ls_bit_flip_from_environment(&r->flip));
    /* a fault is injected once: a replacement is spared */
    if (atomic_load(&r->slot->starts) <= 1) {
        LS_TRY(ls_fault_injection_from_environment(&r->fault));
    }
    LS_TRY(after_meeting(r, join_others(r)));
    ls_step_settings settings = ls_session_step_settings(session);
    settings.should_stop = stop_asked;
    settings.stop_context = r;
    ls_local_hosts_enter(r->local_hosts, &settings);
    settings.parallel = r->parallel;
    settings.pipeline = session->pipeline_list ? &session->pipeline : NULL;
    settings.pipeline_list = session->pipeline_list;
    settings.flip = &r->flip;
    settings.fault_injection = own_fault(r);
    return ls_stepper_create(r->executors, &r->state, &settings, &r->stepper);
}

static ls_status say_hello(rank *r)
{
    LS_TRY(ls_preflight_fill(&r->session, r->control->ranks, &r->slot->preflight));
    r->is_ready = true;
    ls_control_phase(r->control, r->local, LS_RANK_READY);
    return LS_OK;
}

/* ---- the loop ---- */

typedef enum rank_order { ORDER_NONE, ORDER_QUIT, ORDER_STEP, ORDER_GATHER, ORDER_PARK } rank_order;

/* All ranks of all hosts take orders in the same sequence: first the steps that were granted,
 * then the gather after them. */
static rank_order next_order(const rank *r)
{
    /* Read first: a rank that sees a gather then also sees the grant that came before it. */
    const bool gather = atomic_load(&r->control->gather) != atomic_load(&r->slot->gathered);
    if (atomic_load(&r->control->quit) != 0) {
        return ORDER_QUIT;
    }
    if (ls_control_is_fenced(r->control, r->step) || atomic_load(&r->control->team_epoch) != r->team.epoch) {
        return ORDER_PARK;
    }
    if (!r->parallel) { /* a spare */
        return atomic_load(&r->slot->leave) != 0 ? ORDER_QUIT : ORDER_NONE;
    }
    if (atomic_load(&r->control->until) > r->step && atomic_load(&r->slot->gave_up) <= r->step) {
        return ORDER_STEP;
    }
    return gather ? ORDER_GATHER : ORDER_NONE;
}

static bool has_orders(void *context)
{
    return next_order(context) != ORDER_NONE;
}

static void leave_team(rank *r)
{
    ls_stepper_destroy(r->stepper);
    ls_data_parallel_destroy(r->parallel);
    ls_local_hosts_destroy(r->local_hosts);
    ls_comm_close(r->comm);
    ls_state_release(&r->state);
    r->stepper = NULL;
    r->local_hosts = NULL;
    r->parallel = NULL;
    r->comm = NULL;
    r->is_broken = false;
}

/* Behind a hard fence, transfers between hosts are broken off; once for each communicator. */
static bool should_break(const rank *r)
{
    return r->parallel && !r->is_broken && atomic_load(&r->control->hard) != 0;
}

static bool may_go_on(void *context)
{
    const rank *r = context;
    return atomic_load(&r->control->team_epoch) != r->team.epoch ||
           !ls_control_is_fenced(r->control, r->step) || should_break(r) ||
           atomic_load(&r->control->quit) != 0;
}

/* The same cut: the step continues from what the shared memory says, with the parts that this
 * rank holds now. */
static ls_status take_parts(rank *r)
{
    if (first_held(r) == r->team.local_parts) {
        leave_team(r);
        return LS_OK;
    }
    LS_TRY(ls_data_parallel_assign(r->parallel, r->team.holder, r->team.epoch));
    return ls_stepper_assign(r->stepper);
}

/* Joins the team in force. On several hosts, a team with the same cut only finishes a step that
 * was agreed on. A rank that was in no team of this cut starts with the step that the others
 * continue or begin. */
static ls_status join_team(rank *r)
{
    const uint64_t cut = r->team.cut;
    LS_TRY(read_team(r));
    if (r->team.cut == cut && r->has_run && r->parallel) {
        return take_parts(r);
    }
    leave_team(r);
    r->has_run = false;
    r->step = r->team.step;
    atomic_store(&r->slot->finished, r->step);
    return make_stepper(r);
}

/*
 * Parked behind a fence, until another team is published. The rank announces that it is parked for
 * the team's epoch and waits for a change of orders. Two things let it go: a new team (it joins,
 * and looks again: another fence may be up already), or a soft fence whose limit was raised above
 * its step (unpark, which fails when another fence was raised meanwhile). Quit ends it. Between
 * park and the new team the rank reads and writes nothing that is shared.
 */
static ls_status park(rank *r)
{
    const ls_wait wait = {.abort = &r->control->abort, .look = agent_lives, .context = r};
    while (ls_control_is_fenced(r->control, r->step) ||
           atomic_load(&r->control->team_epoch) != r->team.epoch) {
        if (atomic_load(&r->control->quit) != 0) {
            return LS_OK;
        }
        if (atomic_load(&r->control->team_epoch) != r->team.epoch) {
            const ls_status status = join_team(r);
            if (status != LS_OK && status != LS_FENCED) {
                return status;
            }
            continue;
        }
        if (should_break(r)) {
            ls_data_parallel_break(r->parallel);
            r->is_broken = true;
        }
        ls_control_park(r->control, r->local, r->team.epoch);
        if (ls_wait_for(&r->control->orders, may_go_on, r, &wait) != LS_WAIT_DONE) {
            LS_TRY(ls_control_aborted(r->control));
            return ls_fail(LS_ERR_RANKS_LOST, "the agent of this rank (the process that started it) is gone");
        }
        if (atomic_load(&r->control->team_epoch) == r->team.epoch &&
            ls_control_unpark(r->control, r->local, r->step)) {
            break;
        }
    }
    return LS_OK;
}

/* LS_OK with *order_out, or the reason why there is nothing more to do. */
static ls_status wait_for_orders(rank *r, rank_order *order_out)
{
    const ls_wait wait = {.abort = &r->control->abort, .look = agent_lives, .context = r};
    ls_flight_activity(LS_ACTIVITY_IDLE, 0);
    switch (ls_wait_for(&r->control->orders, has_orders, r, &wait)) {
    case LS_WAIT_DONE:
        *order_out = next_order(r);
        return LS_OK;
    case LS_WAIT_ABORTED:
        return ls_control_aborted(r->control);
    default:
        return ls_fail(LS_ERR_RANKS_LOST, "the agent of this rank (the process that started it) is gone");
    }
}

/* It hardly changes after the first steps, and measuring takes as long as a small operation. */
static void note_memory(rank *r)
{
    const bool is_first = atomic_load(&r->slot->private_bytes) == 0;
    if (is_first || r->step % LS_RANK_RESULTS == 0) {
        const uint64_t bytes = ls_memory_private();
        if (bytes > atomic_load(&r->slot->private_bytes)) {
            atomic_store(&r->slot->private_bytes, bytes);
        }
    }
}

/* A step that a fence interrupts is run again with the new team. It keeps its begin, so that its
 * time includes the recovery. */
static ls_status run_step(rank *r)
{
    r->begin_ns = r->begin_ns ? r->begin_ns : ls_clock_monotonic_ns();
    ls_rank_result result = {.step = r->step, .begin_ns = r->begin_ns};
    ls_flight_clock(atomic_load(&r->control->clock_offset_ns));
    ls_fault_injection_meet(&r->fault, r->options->rank, r->step);
    r->has_run = true;
    if (r->step > 0 && atomic_load(&r->control->keep) == r->step) {
        ls_stepper_keep(r->stepper, r->segment.snapshot);
    }
    const ls_local local = ls_session_local(&r->session);
    const double lr = ls_schedule_lr(&r->schedule, ls_local_turn_at(&local, r->step).step);
    ls_part_marks *marks = &r->control->parts[r->part];
    const ls_status status = r->local_hosts
                                 ? after_crossing(r, ls_local_hosts_run(r->local_hosts, r->stepper, r->step,
                                                                        lr, marks, &result.result))
                                 : ls_stepper_run(r->stepper, r->step, lr, &result.result);
    r->begin_ns = status == LS_FENCED ? r->begin_ns : 0;
    if (status != LS_OK) {
        r->slot->fault = status == LS_FENCED ? r->slot->fault : result.result.fault;
        return status;
    }
    result.end_ns = ls_clock_monotonic_ns();
    r->step++;
    note_memory(r);
    ls_control_result(r->control, r->local, &result);
    return LS_OK;
}

/* After a new cut, fetches the state from where the cut before put it. */
static ls_status collect(rank *r)
{
    const ls_cut *held = &r->control->sources;
    ls_state_source source[LS_REFORM_HOSTS_MAX];
    for (uint32_t i = 0; i < held->host_count; i++) {
        source[i] = (ls_state_source){.first_part = held->hosts[i].first_part,
                                      .part_count = held->hosts[i].part_count,
                                      .host = held->hosts[i].holder};
    }
    const ls_state_sources sources = {.parts = held->parts, .count = held->host_count, .source = source};
    return ls_data_parallel_collect(r->parallel, &r->state, &sources);
}

/* Before anything else is done in a new cut, the state goes from where it is to where it is
 * needed. */
static ls_status distribute(rank *r)
{
    if (atomic_load(&r->control->held) >= r->team.cut || !r->comm) {
        return LS_OK;
    }
    r->state.residual_step = r->step;
    if (r->local_hosts) {
        const ls_cut *held = r->control->moves ? &r->control->sources : NULL;
        LS_TRY(after_crossing(r, ls_local_hosts_distribute(r->local_hosts, held)));
    } else {
        if (r->control->moves) {
            LS_TRY(collect(r));
        }
        LS_TRY(ls_data_parallel_distribute(r->parallel, &r->state));
        LS_TRY(ls_data_parallel_settle(r->parallel));
    }
    atomic_store(&r->control->held, r->team.cut);
    return LS_OK;
}

static ls_status gather(rank *r)
{
    const uint32_t asked = atomic_load(&r->control->gather);
    r->state.residual_step = r->step;
    if (r->local_hosts) {
        LS_TRY(after_crossing(r, ls_local_hosts_gather(r->local_hosts)));
    } else if (r->comm) {
        LS_TRY(ls_data_parallel_gather(r->parallel, &r->state));
    }
    atomic_store(&r->slot->gathered, asked);
    ls_word_add(&r->control->news, 1);
    return LS_OK;
}

static ls_status loop(rank *r)
{
    for (;;) {
        rank_order order = ORDER_NONE;
        LS_TRY(wait_for_orders(r, &order));
        if (order == ORDER_QUIT) {
            return LS_OK;
        }
        if (order == ORDER_PARK) {
            LS_TRY(park(r));
            continue;
        }
        ls_status status = distribute(r);
        if (status == LS_FENCED) {
            continue;
        }
        LS_TRY(status);
        if (order == ORDER_GATHER) {
            status = gather(r);
            if (status != LS_OK && status != LS_FENCED) {
                return status;
            }
            continue;
        }
        status = run_step(r);
        if (status == LS_FENCED) {
            continue;
        }
        if (status == LS_STOPPED) {
            ls_control_gave_up(r->control, r->local, r->step);
        } else if (status != LS_OK) {
            return status;
        }
    }
}

/* ---- from begin to end ---- */

static ls_status run(rank *r)
{
    LS_TRY(follow_agent(r));
    open_flight(r);
    LS_TRY(open_session(r));
    LS_TRY(open_executors(r));
    LS_TRY(make_stepper(r));
    LS_TRY(say_hello(r));
    return loop(r);
}

/* Puts the rank in front of its error, if it is its own. A step that fails does so on all ranks
 * with one text, which names the rank at fault or none. */
static const char *name_rank(rank *r, ls_status status, const char *text)
{
    const bool is_shared = status == LS_ERR_FAILED || status == LS_ERR_MISMATCH || status == LS_ERR_TIMEOUT ||
                           status == LS_ERR_RANKS_LOST;
    uint32_t number = r->options->rank;
    int used = 0;
    if (is_shared) {
        return text;
    }
    if ((sscanf(text, "rank %u: %n", &number, &used) == 1 ||
         sscanf(text, "rank %u (%*[^)]): %n", &number, &used) == 1) &&
        used > 0) {
        text += used;
    }
    const uint32_t local = number - r->control->first_rank;
    char process[128] = "", name[LS_MESH_NAME_BYTES];
    if (local < r->control->local_ranks) {
        snprintf(process, sizeof process, "%.90s, pid %d", r->control->host,
                 (int)atomic_load(&ls_segment_slot(&r->segment, local)->pid));
    }
    /* with several hosts, a rank gets another place with each new cut */
    const bool has_place = r->session.arena && r->control->local_ranks >= r->control->ranks;
    const ls_mesh mesh = has_place ? ls_session_mesh(&r->session) : (ls_mesh){0};
    return ls_arena_printf(&r->arena, "%s: %s", ls_mesh_name(mesh, number, process, name), text);
}

/* The slot keeps this rank's own error; the abort, that of the first rank that failed. */
static void tell_failure(rank *r, ls_status status)
{
    const char *text = ls_arena_strdup(&r->arena, ls_error_text());
    snprintf(r->slot->text, LS_RANK_TEXT_BYTES, "%s", text);
    atomic_store(&r->slot->status, (uint32_t)status);
    ls_flight_last_words(text);
    if (atomic_load(&r->control->abort) == 0) {
        ls_control_abort(r->control, status, (int32_t)r->options->rank, name_rank(r, status, text));
    }
}

ls_status ls_rank_run(const ls_rank_options *options)
{
    rank r = {.options = options, .segment = {.fd = -1}};
    ls_status status = attach(&r);
    if (status == LS_OK) {
        status = run(&r);
        if (status != LS_OK) {
            tell_failure(&r, status);
        }
        ls_control_phase(r.control, r.local, LS_RANK_ENDING);
    }
    ls_stepper_destroy(r.stepper);
    ls_data_parallel_destroy(r.parallel);
    ls_local_hosts_destroy(r.local_hosts);
    ls_comm_close(r.comm);
    release_executors(&r);
    ls_state_release(&r.state);
    ls_session_close(&r.session);
    signal(SIGTERM, SIG_IGN); /* the handler writes to the segment, which goes now */
    ls_flight_pulse(NULL);    /* as it does */
    ls_flight_install(NULL);
    ls_flight_close(r.flight);
    ls_segment_release(&r.segment);
    ls_arena_release(&r.arena);
    return status;
}
