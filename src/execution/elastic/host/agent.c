// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/agent.h"

#include "base/assert.h"
#include "base/log.h"
#include "comm/flight/flight_reader.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TICK_NS = 10 * 1000 * 1000, GRACE_NS = 2000 * 1000 * 1000, ARGUMENTS_MAX = 32 };
#define DEATH_NS UINT64_C(30000000000) /* from SIGKILL to being gone, at the end of a run */

typedef struct member {
    ls_agent *agent;
    uint32_t local;
    ls_env_id process; /* 0: none */
    bool ready, killed;
} member;

struct ls_agent {
    ls_agent_options options;
    uint32_t count;   /* members */
    uint32_t running; /* of them */
    bool ending, has_ended;
    uint64_t kill_at_ns;
    uint64_t tick_ns; /* of the last tick: which ranks had ended by then is known */
    ls_env_id timer;
    member members[];
};

static ls_control *control_of(const ls_agent *agent)
{
    return agent->options.segment->control;
}

/* ---- in words ---- */

const char *ls_exit_text(int exit_code, char text_out[64])
{
    if (exit_code < 0) { /* the process that started it is gone, too */
        snprintf(text_out, 64, "an unknown exit code");
        return text_out;
    }
    if (exit_code <= 128) {
        snprintf(text_out, 64, "exit code %d", exit_code);
        return text_out;
    }
    const char *name = sigdescr_np(exit_code - 128);
    snprintf(text_out, 64, "signal %d%s%s%s", exit_code - 128, name ? " (" : "", name ? name : "",
             name ? ")" : "");
    return text_out;
}

/* The rank's part that has made the least progress; NULL: it has none. */
static const ls_part_marks *part_of(const ls_control *control, uint32_t local)
{
    const ls_part_marks *least = NULL;
    for (uint32_t i = 0; i < control->team.local_parts; i++) {
        const ls_part_marks *part = &control->parts[i];
        if (control->team.holder[i] == local &&
            (!least || atomic_load(&part->done) < atomic_load(&least->done))) {
            least = part;
        }
    }
    return least;
}

void ls_rank_doing(const ls_control *control, uint32_t local, char text_out[96])
{
    enum { BYTES = 96 };
    static const ls_part_marks none;
    const ls_rank_slot *slot = &control->slots[local];
    const ls_part_marks *held = part_of(control, local), *part = held ? held : &none;
    const uint64_t entered = atomic_load(&part->entered), begun = atomic_load(&part->begun);
    const uint64_t done = atomic_load(&part->done), finished = atomic_load(&slot->finished);
    const unsigned long long step = (unsigned long long)entered;
    switch ((ls_rank_phase)atomic_load(&slot->phase)) {
    case LS_RANK_EMPTY:
        snprintf(text_out, BYTES, "starting");
        return;
    case LS_RANK_STARTING:
        snprintf(text_out, BYTES, "opening its model and data");
        return;
    case LS_RANK_ENDING:
        snprintf(text_out, BYTES, "ending");
        return;
    case LS_RANK_READY:
        break;
    }
    if (entered <= finished || atomic_load(&slot->gave_up) == entered) {
        snprintf(text_out, BYTES, "waiting for orders after step %llu", (unsigned long long)finished);
    } else if (begun > done) {
        snprintf(text_out, BYTES, "updating weights in step %llu", step);
    } else if (done == entered) {
        snprintf(text_out, BYTES, "waiting for others at the end of step %llu", step);
    } else {
        snprintf(text_out, BYTES, "computing step %llu", step);
    }
}

/* ---- ends ---- */

/* Appends what the flight recorder knows beyond the slot: " (backward of leaf 3)". Nothing when
 * there is no recorder or nothing to add. */
static void append_activity(const char *path, ls_rank_end *end)
{
    ls_flight_reader *reader = NULL;
    ls_flight_now now = {0};
    if (ls_flight_reader_open(path, &reader) != LS_OK) {
        return;
    }
    const size_t used = strlen(end->doing), room = sizeof end->doing - used;
    if (ls_flight_reader_now(reader, &now, NULL) == LS_OK) {
        const char *name = ls_activity_name((ls_activity)now.activity);
        switch ((ls_activity)now.activity) {
        case LS_ACTIVITY_DATA:
        case LS_ACTIVITY_FORWARD:
        case LS_ACTIVITY_BACKWARD:
            snprintf(end->doing + used, room, " (%s of leaf %u)", name, now.leaf);
            end->leaf = now.leaf;
            break;
        case LS_ACTIVITY_REDUCE:
        case LS_ACTIVITY_UPDATE:
            snprintf(end->doing + used, room, " (%s of bucket %u)", name, now.number);
            break;
        case LS_ACTIVITY_COMM:
            snprintf(end->doing + used, room, " (waiting for others)");
            break;
        default:
            break;
        }
    }
    ls_flight_reader_close(reader);
}

/* The status that waitpid would return. */
static int wait_status_of(int exit_code)
{
    return exit_code > 128 ? exit_code - 128 : exit_code << 8;
}

static bool recorder_path(const ls_agent *agent, uint32_t local, char path_out[4096])
{
    const uint32_t rank = control_of(agent)->first_rank + local;
    snprintf(path_out, 4096, "%s/rank-%u", agent->options.flight_dir ? agent->options.flight_dir : "", rank);
    return agent->options.flight_dir != NULL;
}

/* How a rank ended, and what it was doing; read before the slot is cleared for a replacement.
 * The flight recorder knows more than the control page (which leaf, which bucket), and its file
 * gets the exit noted, for `lockstep diagnose`. */
static ls_rank_end end_of(const ls_agent *agent, const member *m, int exit_code)
{
    const ls_control *control = control_of(agent);
    const ls_rank_slot *slot = &control->slots[m->local];
    const ls_part_marks *part = part_of(control, m->local);
    const uint64_t now_ns = ls_env_now_ns(agent->options.env), alive_ns = atomic_load(&slot->alive_ns);
    const uint64_t entered = part ? atomic_load(&part->entered) : 0, finished = atomic_load(&slot->finished);
    ls_rank_end end = {.rank = control->first_rank + m->local,
                       .pid = atomic_load(&slot->pid),
                       .exit_code = exit_code,
                       .silent_ns = alive_ns && now_ns > alive_ns ? now_ns - alive_ns : 0,
                       .seen_ns = now_ns - agent->tick_ns,
                       .step = entered > finished ? entered - 1 : finished,
                       .leaf = LS_NO_LEAF};
    char path[4096], doing[96];
    ls_rank_doing(control, m->local, doing);
    snprintf(end.doing, sizeof end.doing, "%s", doing);
    if (recorder_path(agent, m->local, path)) {
        append_activity(path, &end);
        if (exit_code >= 0) {
            ls_flight_note_exit(path, wait_status_of(exit_code));
        }
    }
    return end;
}

/* `ended` is the last call, and only after every process was seen to exit or given up: then nothing
 * writes to the segment. */
static void tell_if_ended(ls_agent *agent)
{
    if (agent->running == 0 && agent->ending && !agent->has_ended) {
        agent->has_ended = true;
        ls_env_timer_cancel(agent->options.env, agent->timer);
        agent->timer = 0;
        agent->options.ended(agent->options.context);
    }
}

/* Three kinds of ends: the rank was told to leave and did; the run ends anyway, so it is not
 * reported; anything else is a loss. A rank killed here (`killed`) is never one that left,
 * whatever its exit code. */
static void exited(void *context, ls_env_id process, int exit_code)
{
    member *m = context;
    ls_agent *agent = m->agent;
    if (process != m->process) { /* an earlier process in this slot */
        return;
    }
    ls_rank_slot *slot = ls_segment_slot(agent->options.segment, m->local);
    const ls_rank_end end = end_of(agent, m, exit_code);
    const bool in_order = exit_code == 0 || exit_code == LS_ENV_EXIT_UNKNOWN;
    const bool left = atomic_load(&slot->leave) != 0 && in_order && !m->killed;
    const bool asked = agent->ending || atomic_load(&control_of(agent)->abort) != 0 ||
                       (atomic_load(&control_of(agent)->quit) != 0 && in_order);
    m->process = 0;
    agent->running--;
    ls_control_drop_claim(control_of(agent), end.pid);
    if (!asked && left) {
        agent->options.left(agent->options.context, end.rank, end.pid);
    } else if (!asked) {
        agent->options.lost(agent->options.context, &end);
    }
    tell_if_ended(agent);
}

static void kill_member(ls_agent *agent, member *m)
{
    if (m->process && !m->killed) {
        m->killed = true;
        (void)ls_env_process_kill(agent->options.env, m->process, SIGKILL);
    }
}

void ls_agent_kill(ls_agent *agent, uint32_t local)
{
    LS_ASSERT(local < agent->count);
    kill_member(agent, &agent->members[local]);
}

/* The ranks see `quit` in the control page; kill_at_ns is for those that do not. */
void ls_agent_end(ls_agent *agent)
{
    if (agent->ending) {
        return;
    }
    agent->ending = true;
    agent->kill_at_ns = ls_env_now_ns(agent->options.env) + agent->options.grace_ns;
    ls_control_quit(control_of(agent));
}

/* ---- watching ---- */

static void look_for_ready(ls_agent *agent)
{
    for (uint32_t i = 0; i < agent->count; i++) {
        member *m = &agent->members[i];
        const ls_rank_slot *slot = ls_segment_slot(agent->options.segment, i);
        if (!m->ready && m->process && atomic_load(&slot->phase) == LS_RANK_READY) {
            m->ready = true;
            agent->options.ready(agent->options.context, control_of(agent)->first_rank + i);
        }
    }
}

/* A process that outlives SIGKILL for so long is blocked in the kernel (a file system that does not
 * answer) and will not run a line of this program again: the run ends without it. */
static void give_up(ls_agent *agent)
{
    for (uint32_t i = 0; i < agent->count; i++) {
        member *m = &agent->members[i];
        if (m->process) {
            ls_log_warn(
                "rank %u (process %d) is still there %.0f s after it was killed: it is blocked in the "
                "kernel, and the run ends without waiting for it",
                control_of(agent)->first_rank + i,
                (int)atomic_load(&ls_segment_slot(agent->options.segment, i)->pid), 1e-9 * (double)DEATH_NS);
            m->process = 0;
        }
    }
    agent->running = 0;
}

/* Every 10 ms; the end of a process comes by itself, but becoming ready, abort and quit are
 * words in shared memory that must be looked at. */
static void tick(void *context)
{
    ls_agent *agent = context;
    agent->timer = 0;
    agent->tick_ns = ls_env_now_ns(agent->options.env);
    look_for_ready(agent);
    if (atomic_load(&control_of(agent)->abort) != 0 || atomic_load(&control_of(agent)->quit) != 0) {
        ls_agent_end(agent);
    }
    if (agent->ending && ls_env_now_ns(agent->options.env) >= agent->kill_at_ns) {
        for (uint32_t i = 0; i < agent->count; i++) {
            kill_member(agent, &agent->members[i]);
        }
        if (ls_env_now_ns(agent->options.env) - agent->kill_at_ns >= DEATH_NS) {
            give_up(agent);
        }
    }
    agent->timer = ls_env_timer_set(agent->options.env, TICK_NS, tick, agent);
    tell_if_ended(agent);
}

/* ---- life ---- */

/* A replacement would overwrite the recorder of the rank that was lost. */
static void keep_recorder(const ls_agent *agent, uint32_t local)
{
    char path[4096], kept[4096 + 32];
    if (recorder_path(agent, local, path)) {
        snprintf(kept, sizeof kept, "%s.lost-%llu", path,
                 (unsigned long long)atomic_load(&control_of(agent)->team_epoch));
        (void)rename(path, kept); /* before the first rank there is none */
    }
}

static int spawn(ls_agent *agent, member *m)
{
    const char *argv[ARGUMENTS_MAX + 2];
    char number[16];
    size_t count = 0;
    for (; agent->options.argv[count]; count++) {
        LS_ASSERT(count < ARGUMENTS_MAX);
        argv[count] = agent->options.argv[count];
    }
    snprintf(number, sizeof number, "%u", control_of(agent)->first_rank + m->local);
    argv[count] = number;
    argv[count + 1] = NULL;
    return ls_env_process_start(agent->options.env, argv, exited, m, &m->process);
}

/* The slot is cleared before the process exists, so that nothing of its predecessor is taken for
 * its own. */
ls_status ls_agent_start_rank(ls_agent *agent, uint32_t local)
{
    LS_ASSERT(local < agent->count && !agent->members[local].process);
    member *m = &agent->members[local];
    keep_recorder(agent, local);
    ls_control_clear_slot(control_of(agent), local);
    m->ready = m->killed = false;
    const int error = spawn(agent, m);
    if (error) {
        m->process = 0;
        return ls_fail_errno(-error, "cannot start rank %u with the program %s",
                             control_of(agent)->first_rank + local, agent->options.argv[0]);
    }
    agent->running++;
    return LS_OK;
}

bool ls_agent_adopt_rank(ls_agent *agent, uint32_t local)
{
    LS_ASSERT(local < agent->count && !agent->members[local].process);
    member *m = &agent->members[local];
    const ls_rank_slot *slot = ls_segment_slot(agent->options.segment, local);
    const int32_t pid = atomic_load(&slot->pid);
    ls_env_id process = 0;
    m->ready = m->killed = false;
    if (pid <= 0 || ls_env_process_watch(agent->options.env, pid, exited, m, &process) != 0) {
        return false;
    }
    /* It is watched by now, so its number cannot be reused: its start time tells whether it is
     * the right one. */
    if (agent->options.start_time &&
        agent->options.start_time(agent->options.context, pid) != atomic_load(&slot->pid_start)) {
        return false;
    }
    m->process = process;
    agent->running++;
    return true;
}

ls_status ls_agent_create(const ls_agent_options *options, ls_agent **agent_out)
{
    const uint32_t count = options->segment->control->local_ranks;
    ls_agent *agent = calloc(1, sizeof *agent + count * sizeof agent->members[0]);
    if (!agent) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory to watch %u ranks", count);
    }
    agent->options = *options;
    agent->options.grace_ns = options->grace_ns ? options->grace_ns : GRACE_NS;
    agent->count = count;
    agent->tick_ns = ls_env_now_ns(options->env);
    agent->timer = ls_env_timer_set(options->env, TICK_NS, tick, agent);
    for (uint32_t i = 0; i < count; i++) {
        agent->members[i] = (member){.agent = agent, .local = i};
    }
    *agent_out = agent;
    return LS_OK;
}

ls_status ls_agent_start(const ls_agent_options *options, ls_agent **agent_out)
{
    LS_TRY(ls_agent_create(options, agent_out));
    for (uint32_t i = 0; i < (*agent_out)->count; i++) {
        const ls_status status = ls_agent_start_rank(*agent_out, i);
        if (status != LS_OK) {
            ls_agent_end(*agent_out);
            return status;
        }
    }
    return LS_OK;
}

void ls_agent_destroy(ls_agent *agent)
{
    if (!agent) {
        return;
    }
    ls_env_timer_cancel(agent->options.env, agent->timer);
    free(agent);
}

/* ---- the program ---- */

void ls_program_path(char path_out[LS_PROGRAM_BYTES])
{
    static const char running[] = "/proc/self/exe";
    struct stat by_name, by_kernel;
    const ssize_t bytes = readlink(running, path_out, LS_PROGRAM_BYTES - 1);
    path_out[bytes > 0 ? bytes : 0] = '\0';
    if (bytes <= 0 || stat(path_out, &by_name) != 0 || stat(running, &by_kernel) != 0 ||
        by_name.st_dev != by_kernel.st_dev || by_name.st_ino != by_kernel.st_ino) {
        snprintf(path_out, LS_PROGRAM_BYTES, "%s", running);
    }
}
