// SPDX-License-Identifier: Apache-2.0
#include "sim/env/sim_env.h"

#include "base/assert.h"
#include "base/hash.h"
#include "sim/env/sim_env_internal.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- chance and events ---- */

uint64_t ls_sim_random_u64(ls_sim *sim)
{
    return ls_random_u64(sim->key, sim->random_count++, 0);
}

uint64_t ls_sim_delay(ls_sim *sim, uint64_t min_ns, uint64_t max_ns)
{
    return min_ns + ls_sim_random_u64(sim) % (max_ns - min_ns + 1);
}

bool ls_sim_chance(ls_sim *sim, double probability)
{
    return probability > 0.0 && (double)(ls_sim_random_u64(sim) >> 11) * 0x1p-53 < probability;
}

void ls_sim_add(ls_sim *sim, uint64_t due_ns, uint64_t owner, ls_env_id id, ls_env_fire fire, void *context,
                ls_env_fire drop)
{
    ls_env_queue_add(&sim->queue, (ls_env_item){.due_ns = due_ns < sim->now_ns ? sim->now_ns : due_ns,
                                                .id = id ? id : sim->next_id++,
                                                .owner = owner,
                                                .fire = fire,
                                                .context = context,
                                                .drop = drop});
}

ls_sim_process *ls_sim_find_process(ls_sim *sim, uint64_t number)
{
    for (ls_sim_process *at = sim->processes; at; at = at->next) {
        if (at->number == number) {
            return at->running ? at : NULL;
        }
    }
    return NULL;
}

/* ---- processes ---- */

typedef struct exit_event {
    ls_env_exited exited;
    void *context;
    ls_env_id id;
    int exit_code;
} exit_event;

static void tell_exit(void *context)
{
    exit_event *event = context;
    event->exited(event->context, event->id, event->exit_code);
    free(event);
}

static void process_end(ls_sim_process *process, int exit_code, bool silent)
{
    ls_sim *sim = process->sim;
    process->running = false;
    process->exit_code = exit_code;
    ls_env_queue_drop_owner(&sim->queue, process->number);
    ls_sim_net_process_ended(sim, process, silent);
    ls_arena_release(&process->arena);
    if (silent || !ls_sim_find_process(sim, process->parent)) {
        return;
    }
    exit_event *event = malloc(sizeof *event);
    LS_ASSERT(event && "out of memory for an event");
    *event = (exit_event){process->exited, process->exited_context, process->id, exit_code};
    ls_sim_add(sim, sim->now_ns + ls_sim_delay(sim, 10000, 1000000), process->parent, 0, tell_exit, event,
               free);
}

static const ls_env_calls *sim_calls(void);

static ls_sim_process *process_create(ls_sim *sim, ls_sim_host host)
{
    ls_sim_process *process = calloc(1, sizeof *process);
    LS_ASSERT(process && host < sim->host_count);
    *process = (ls_sim_process){.base.calls = sim_calls(),
                                .sim = sim,
                                .next = sim->processes,
                                .number = ++sim->process_count,
                                .host = host,
                                .running = true};
    sim->processes = process;
    return process;
}

static void end_if_stopping(ls_sim_process *process)
{
    if (process && process->running && process->stopping) {
        process_end(process, process->exit_code, false);
    }
}

static int sim_process_start(ls_env *env, const char *const *argv, ls_env_exited exited, void *context,
                             ls_env_id *process_out)
{
    ls_sim_process *parent = ls_sim_process_of(env);
    ls_sim *sim = parent->sim;
    for (unsigned i = 0; i < sim->program_count; i++) {
        if (strcmp(sim->programs[i].name, argv[0]) != 0) {
            continue;
        }
        ls_sim_process *child = process_create(sim, parent->host);
        child->parent = parent->number;
        child->id = sim->next_id++;
        child->exited = exited;
        child->exited_context = context;
        *process_out = child->id;
        sim->programs[i].program(&child->base, argv, sim->programs[i].context);
        end_if_stopping(child);
        return 0;
    }
    return -ENOENT;
}

/* The exit of a process is told to one other: here to the one that takes the place of its
 * parent. */
static int sim_process_watch(ls_env *env, int32_t pid, ls_env_exited exited, void *context,
                             ls_env_id *process_out)
{
    ls_sim_process *self = ls_sim_process_of(env);
    ls_sim_process *process = pid > 0 ? ls_sim_find_process(self->sim, (uint64_t)pid) : NULL;
    if (!process || process->host != self->host) {
        return -ESRCH;
    }
    process->parent = self->number;
    process->id = self->sim->next_id++;
    process->exited = exited;
    process->exited_context = context;
    *process_out = process->id;
    return 0;
}

static int sim_process_kill(ls_env *env, ls_env_id id, int signal_number)
{
    ls_sim_process *parent = ls_sim_process_of(env);
    for (ls_sim_process *at = parent->sim->processes; at; at = at->next) {
        if (at->running && at->parent == parent->number && at->id == id) {
            ls_sim_signal(&at->base, signal_number);
            return 0;
        }
    }
    return -ESRCH;
}

static int sim_signal_watch(ls_env *env, int signal_number, ls_env_fire fire, void *context)
{
    if (signal_number < 1 || signal_number >= LS_SIM_SIGNALS || signal_number == SIGKILL ||
        signal_number == SIGSTOP) {
        return -EINVAL;
    }
    ls_sim_process_of(env)->signals[signal_number].fire = fire;
    ls_sim_process_of(env)->signals[signal_number].context = context;
    return 0;
}

void ls_sim_signal(ls_env *env, int signal_number)
{
    ls_sim_process *process = ls_sim_process_of(env);
    LS_ASSERT(signal_number >= 1 && signal_number < LS_SIM_SIGNALS);
    if (!process->running) {
        return;
    }
    if (process->signals[signal_number].fire) {
        ls_sim_add(process->sim, process->sim->now_ns, process->number, 0,
                   process->signals[signal_number].fire, process->signals[signal_number].context, NULL);
    } else {
        process_end(process, 128 + signal_number, false);
    }
}

static void sim_stop(ls_env *env, int exit_code)
{
    ls_sim_process *process = ls_sim_process_of(env);
    process->stopping = true;
    process->exit_code = exit_code;
}

int32_t ls_sim_pid(const ls_env *env)
{
    return (int32_t)ls_sim_process_of(env)->number;
}

bool ls_sim_is_running(const ls_env *env)
{
    return ls_sim_process_of(env)->running;
}

int ls_sim_exit_code(const ls_env *env)
{
    return ls_sim_process_of(env)->exit_code;
}

void *ls_sim_alloc(ls_env *env, size_t bytes)
{
    return ls_arena_alloc(&ls_sim_process_of(env)->arena, bytes);
}

ls_arena *ls_sim_arena(ls_env *env)
{
    return &ls_sim_process_of(env)->arena;
}

ls_env *ls_sim_start(ls_sim *sim, ls_sim_host host, ls_sim_program program, void *context)
{
    static const char *const no_arguments[] = {"program", NULL};
    ls_sim_process *process = process_create(sim, host);
    program(&process->base, no_arguments, context);
    end_if_stopping(process);
    return &process->base;
}

/* ---- clock, random, timers ---- */

static uint64_t sim_now_ns(ls_env *env)
{
    return ls_sim_process_of(env)->sim->now_ns;
}

static double sim_wall_s(ls_env *env)
{
    return 1.7e9 + 1e-9 * (double)ls_sim_process_of(env)->sim->now_ns;
}

static uint64_t sim_random_u64(ls_env *env)
{
    return ls_sim_random_u64(ls_sim_process_of(env)->sim);
}

static ls_env_id sim_timer_set(ls_env *env, uint64_t delay_ns, ls_env_fire fire, void *context)
{
    ls_sim_process *process = ls_sim_process_of(env);
    const ls_env_id id = process->sim->next_id++;
    ls_sim_add(process->sim, process->sim->now_ns + delay_ns, process->number, id, fire, context, NULL);
    return id;
}

static void sim_timer_cancel(ls_env *env, ls_env_id timer)
{
    ls_env_queue_cancel(&ls_sim_process_of(env)->sim->queue, timer, ls_sim_process_of(env)->number);
}

static const ls_env_calls *sim_calls(void)
{
    static ls_env_calls calls = {
        .now_ns = sim_now_ns,
        .boot_ns = sim_now_ns,
        .wall_s = sim_wall_s,
        .random_u64 = sim_random_u64,
        .timer_set = sim_timer_set,
        .timer_cancel = sim_timer_cancel,
        .process_start = sim_process_start,
        .process_watch = sim_process_watch,
        .process_kill = sim_process_kill,
        .signal_watch = sim_signal_watch,
        .stop = sim_stop,
    };
    ls_sim_disk_fill(&calls);
    ls_sim_net_fill(&calls);
    return &calls;
}

/* ---- the world ---- */

ls_sim *ls_sim_create(const ls_sim_settings *settings)
{
    ls_sim *sim = calloc(1, sizeof *sim);
    LS_ASSERT(sim && "out of memory for a simulation");
    sim->settings = *settings;
    if (!settings->net_delay_max_ns) {
        sim->settings.net_delay_min_ns = 50 * 1000;
        sim->settings.net_delay_max_ns = 2 * 1000 * 1000;
    }
    if (!settings->disk_delay_max_ns) {
        sim->settings.disk_delay_min_ns = 20 * 1000;
        sim->settings.disk_delay_max_ns = 5 * 1000 * 1000;
    }
    sim->key = ls_random_stream(settings->seed, LS_RANDOM_SIMULATION);
    sim->next_id = 1;
    snprintf(sim->note, sizeof sim->note, "in the simulation with seed %llu",
             (unsigned long long)settings->seed);
    ls_assert_set_note(sim->note);
    return sim;
}

void ls_sim_destroy(ls_sim *sim)
{
    if (!sim) {
        return;
    }
    ls_env_queue_release(&sim->queue);
    ls_sim_net_release(sim);
    for (ls_sim_process *at = sim->processes; at;) {
        ls_sim_process *next = at->next;
        ls_arena_release(&at->arena);
        free(at);
        at = next;
    }
    for (unsigned i = 0; i < sim->host_count; i++) {
        ls_sim_disk_release(&sim->hosts[i]->disk);
        free(sim->hosts[i]);
    }
    ls_assert_set_note(NULL);
    free(sim);
}

ls_sim_host ls_sim_host_add(ls_sim *sim, const char *name)
{
    LS_ASSERT(sim->host_count < LS_SIM_HOSTS_MAX);
    ls_sim_host_state *host = calloc(1, sizeof *host);
    LS_ASSERT(host && "out of memory for a host");
    snprintf(host->name, sizeof host->name, "%s", name);
    host->next_port = 40000;
    ls_sim_disk_init(&host->disk);
    sim->hosts[sim->host_count] = host;
    return sim->host_count++;
}

void ls_sim_program_add(ls_sim *sim, const char *name, ls_sim_program program, void *context)
{
    LS_ASSERT(sim->program_count < LS_SIM_PROGRAMS_MAX);
    sim->programs[sim->program_count].name = name;
    sim->programs[sim->program_count].program = program;
    sim->programs[sim->program_count].context = context;
    sim->program_count++;
}

bool ls_sim_step(ls_sim *sim)
{
    if (!ls_env_queue_first(&sim->queue)) {
        return false;
    }
    const ls_env_item item = ls_env_queue_pop(&sim->queue);
    sim->now_ns = item.due_ns;
    const uint64_t mark[] = {sim->trace, item.due_ns, item.owner, item.id};
    sim->trace = ls_xxh3(mark, sizeof mark, 0);
    item.fire(item.context);
    for (ls_sim_process *at = sim->processes; at; at = at->next) {
        end_if_stopping(at);
    }
    return true;
}

uint64_t ls_sim_run(ls_sim *sim, uint64_t until_ns, uint64_t events_max)
{
    uint64_t events = 0;
    for (const ls_env_item *first = ls_env_queue_first(&sim->queue); first && first->due_ns <= until_ns;
         first = ls_env_queue_first(&sim->queue)) {
        if (events == events_max) {
            return events;
        }
        ls_sim_step(sim);
        events++;
    }
    sim->now_ns = until_ns > sim->now_ns ? until_ns : sim->now_ns;
    return events;
}

uint64_t ls_sim_now_ns(const ls_sim *sim)
{
    return sim->now_ns;
}

uint64_t ls_sim_trace_hash(const ls_sim *sim)
{
    return sim->trace;
}

void ls_sim_host_crash(ls_sim *sim, ls_sim_host host)
{
    LS_ASSERT(host < sim->host_count);
    for (ls_sim_process *at = sim->processes; at; at = at->next) {
        if (at->running && at->host == host) {
            process_end(at, 128 + SIGKILL, true);
        }
    }
    ls_sim_disk_crash(sim, &sim->hosts[host]->disk);
    sim->hosts[host]->disk.is_dead = false;
}

void ls_sim_cut(ls_sim *sim, ls_sim_host a, ls_sim_host b, bool cut)
{
    LS_ASSERT(a < sim->host_count && b < sim->host_count);
    sim->hosts[a]->cut[b] = cut;
    sim->hosts[b]->cut[a] = cut;
}

uint64_t ls_sim_disk_calls(const ls_sim *sim, ls_sim_host host)
{
    return sim->hosts[host]->disk.calls;
}

void ls_sim_disk_fail(ls_sim *sim, ls_sim_host host, uint64_t call, int error)
{
    ls_sim_disk *disk = &sim->hosts[host]->disk;
    disk->fail_at = call ? disk->calls + call : 0;
    disk->fail_on = false;
    disk->fail_error = error;
}

void ls_sim_disk_fail_on(ls_sim *sim, ls_sim_host host, uint64_t call, int error)
{
    ls_sim_disk_fail(sim, host, call, error);
    sim->hosts[host]->disk.fail_on = true;
}

void ls_sim_disk_trouble(ls_sim *sim, ls_sim_host host, double probability)
{
    sim->hosts[host]->disk.trouble = probability;
}

void ls_sim_disk_capacity(ls_sim *sim, ls_sim_host host, uint64_t bytes)
{
    sim->hosts[host]->disk.capacity_bytes = bytes;
}
