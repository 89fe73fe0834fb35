// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the simulated env.
 *
 *   sim_env.c    the world: clock, events, processes, signals
 *   sim_disk.c   files, folders, and what a crash leaves of them; sim_disk_calls.c the calls on them
 *   sim_net.c    listeners and links
 */
#ifndef LS_BASE_ENV_SIM_INTERNAL_H
#define LS_BASE_ENV_SIM_INTERNAL_H

#include "base/arena.h"
#include "base/random.h"
#include "env/real/event_queue.h"
#include "sim/env/sim_env.h"

enum { LS_SIM_PROGRAMS_MAX = 32, LS_SIM_SIGNALS = 65, LS_SIM_FILES_MAX = 256 };

typedef struct ls_sim_inode ls_sim_inode;
typedef struct ls_sim_link ls_sim_link;
typedef struct ls_sim_listener ls_sim_listener;

typedef struct ls_sim_disk {
    ls_sim_inode *root;
    ls_sim_inode *inodes; /* every one that ever existed, to be freed */
    uint64_t calls;
    uint64_t fail_at; /* value of `calls` that fails; 0: none */
    bool fail_on;     /* and all later calls */
    int fail_error;
    double trouble; /* probability that any call fails */
    bool is_dead;   /* the power failed within the current callback */
    uint64_t capacity_bytes;
} ls_sim_disk;

typedef struct ls_sim_host_state {
    char name[64];
    ls_sim_disk disk;
    unsigned next_port;
    bool cut[LS_SIM_HOSTS_MAX];
} ls_sim_host_state;

typedef struct ls_sim_process {
    ls_env base;
    ls_sim *sim;
    struct ls_sim_process *next;
    uint64_t number; /* from 1; owner of its events */
    ls_sim_host host;
    bool running;
    bool stopping; /* ls_env_stop was called in the current callback */
    int exit_code;
    uint64_t parent; /* 0: none */
    ls_env_id id;    /* as the parent knows it */
    ls_env_exited exited;
    void *exited_context;
    ls_arena arena;
    ls_sim_inode *files[LS_SIM_FILES_MAX];
    uint64_t disk_free_ns; /* its disk calls run one after the other */
    struct {
        ls_env_fire fire;
        void *context;
    } signals[LS_SIM_SIGNALS];
} ls_sim_process;

struct ls_sim {
    ls_sim_settings settings;
    ls_random_key key;
    uint64_t random_count;
    uint64_t now_ns;
    uint64_t trace;
    ls_env_id next_id;
    ls_env_queue queue;
    ls_sim_process *processes; /* newest first, ended ones too */
    uint64_t process_count;
    ls_sim_host_state *hosts[LS_SIM_HOSTS_MAX];
    unsigned host_count;
    struct {
        const char *name;
        ls_sim_program program;
        void *context;
    } programs[LS_SIM_PROGRAMS_MAX];
    unsigned program_count;
    ls_sim_link *links;
    ls_sim_listener *listeners;
    char note[96]; /* printed by a failed assertion */
};

static inline ls_sim_process *ls_sim_process_of(const ls_env *env)
{
    return (ls_sim_process *)(uintptr_t)env;
}

/* Queues an event for a process (0: the world itself). drop: frees context when the event never
 * fires; may be NULL. */
void ls_sim_add(ls_sim *sim, uint64_t due_ns, uint64_t owner, ls_env_id id, ls_env_fire fire, void *context,
                ls_env_fire drop);
/* NULL when it has ended. */
ls_sim_process *ls_sim_find_process(ls_sim *sim, uint64_t number);
uint64_t ls_sim_delay(ls_sim *sim, uint64_t min_ns, uint64_t max_ns);
bool ls_sim_chance(ls_sim *sim, double probability);

void ls_sim_disk_init(ls_sim_disk *disk);
void ls_sim_disk_release(ls_sim_disk *disk);
void ls_sim_disk_crash(ls_sim *sim, ls_sim_disk *disk);
/* Links and listeners of a process that ended. silent: peers learn nothing (the host lost
 * power). */
void ls_sim_net_process_ended(ls_sim *sim, ls_sim_process *process, bool silent);
void ls_sim_net_release(ls_sim *sim);

/* Fill their part of the table. */
void ls_sim_disk_fill(ls_env_calls *calls);
void ls_sim_net_fill(ls_env_calls *calls);

#endif
