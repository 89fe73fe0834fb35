// SPDX-License-Identifier: Apache-2.0
/* The two threads of ls_workers: workers.c (the trainer's thread) and workers_service.c (the
 * service thread: agent, coordinator, cluster, watchdog). */
#ifndef LS_EXECUTION_ELASTIC_WORKERS_WORKERS_INTERNAL_H
#define LS_EXECUTION_ELASTIC_WORKERS_WORKERS_INTERNAL_H

#include "env/env.h"
#include "execution/elastic/host/coordinator.h"
#include "execution/elastic/hosts/cluster.h"
#include "execution/elastic/workers/workers.h"
#include "execution/hang/watchdog.h"

#include <pthread.h>

enum { LS_WORKERS_EVENTS_MAX = 256 };

typedef struct ls_workers_event {
    char name[32];
    json_t *fields;
} ls_workers_event;

/* Events on their way from the service thread to the trainer's thread. */
typedef struct ls_workers_events {
    pthread_mutex_t lock;
    uint32_t count;
    ls_workers_event events[LS_WORKERS_EVENTS_MAX];
} ls_workers_events;

struct ls_workers {
    ls_workers_options options;
    ls_arena arena;
    ls_segment segment;
    ls_control *control;
    const char *flight_dir;
    char program[LS_PROGRAM_BYTES], segment_path[64], threads[16];
    ls_env *env;
    ls_coordinator *coordinator;
    ls_agent *agent;
    /* several hosts: the coordinator's side, and the commands that start the agents */
    ls_cluster *cluster;
    ls_starter *starter;
    bool adopted;           /* its ranks ran already */
    bool fresh;             /* ... on the other hosts, but not on this one */
    ls_log_state *left;     /* what the log says about them; NULL: nothing */
    bool granted;           /* a step was granted: from then on the moments are with their owners */
    uint64_t gathered_step; /* the state after this step was brought together here */
    ls_watchdog *watch;
    ls_workers_events queue;
    pthread_t service;
    bool launched;        /* the service thread runs and must be joined */
    _Atomic bool running; /* all ranks are ready and agree */
    /* a loss was told, and not yet that the step it interrupted is finished */
    _Atomic bool recovers;
    /* Epochs of the fences for which a checkpoint was asked for and is here; finished steps of the
     * latter. */
    _Atomic uint64_t restore_asked, restored, restored_step;
    /* number of ranks asked for, for the service thread; 0: nothing was asked */
    _Atomic uint32_t wanted;
    _Atomic int32_t leaver; /* rank that is to leave, + 1; 0: none */
    /* Several hosts: of the rank whose loss ended the run; read after the service thread has
     * ended. */
    uint64_t lost_silent_ns;
    bool lost;
};

/* One host: the coordinator keeps the membership. Several: the cluster does, or a loss ends the
 * run. */
static inline bool ls_workers_is_elastic(const ls_workers *workers)
{
    return workers->options.hosts == NULL;
}

static inline bool ls_workers_is_several(const ls_workers *workers)
{
    return workers->control->local_ranks < workers->control->ranks;
}

/* Several hosts: what the run file says about cuts. */
static inline ls_reform_settings ls_workers_reform_settings(const ls_workers *workers)
{
    const ls_run_file *run = &workers->options.session->run;
    const ls_mesh mesh = ls_session_mesh(workers->options.session);
    const bool is_compressed = ls_run_file_group(run) > 0, is_apart = run->train.local.steps > 0;
    const ls_local local = ls_session_local(workers->options.session);
    return (ls_reform_settings){.parts_max =
                                    (uint32_t)ls_run_file_rank_leaves(run, true) * ls_mesh_crew(mesh),
                                .crew = ls_mesh_crew(mesh),
                                .stage_ranks = ls_mesh_stage_ranks(mesh),
                                .min_ranks = (uint32_t)run->job.min_ranks,
                                .round = is_apart ? ls_local_turns(&local, local.steps) : 0,
                                /* residuals and workers are on one host only, as shards are */
                                .zero = is_compressed || is_apart ? 1 : (uint32_t)run->parallel.zero,
                                .shadow = run->parallel.shadow && !is_compressed && !is_apart};
}

/* On the trainer's thread: passes on the events of the service thread. */
void ls_workers_take_events(ls_workers *workers);

#endif
