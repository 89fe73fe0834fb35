// SPDX-License-Identifier: Apache-2.0
/*
 * The gang's parts: gang.c (the trainer's thread) and gang_service.c (the service thread: agent, coordinator, cluster, watch).
 */
#ifndef LS_EXECUTION_ELASTIC_GANG_INTERNAL_H
#define LS_EXECUTION_ELASTIC_GANG_INTERNAL_H

#include "base/env.h"
#include "execution/diagnose/watch.h"
#include "execution/elastic/cluster.h"
#include "execution/elastic/coordinator.h"
#include "execution/elastic/gang.h"

#include <pthread.h>

enum { LS_GANG_EVENTS_MAX = 256 };

/* Events on their way from the service thread to the trainer's. */
typedef struct ls_gang_events {
    pthread_mutex_t lock;
    uint32_t count;
    struct {
        char name[32];
        json_t *fields;
    } events[LS_GANG_EVENTS_MAX];
} ls_gang_events;

struct ls_gang {
    ls_gang_options options;
    ls_arena arena;
    ls_segment segment;
    ls_control *control;
    const char *flight_dir;
    char program[LS_PROGRAM_BYTES], segment_path[64], threads[16];
    ls_env *env;
    ls_coordinator *coordinator;
    ls_agent *agent;
    ls_cluster *cluster; /* of several hosts, and what started their agents */
    ls_starter *starter;
    bool adopted;           /* its ranks were there */
    bool fresh;             /* ... on the other hosts, and not on this one */
    ls_log_state *left;     /* what the log says of them; NULL: nothing */
    bool granted;           /* a step was: from then on the moments are with their owners */
    uint64_t gathered_step; /* the state was brought together behind it */
    ls_watch *watch;
    ls_gang_events queue;
    pthread_t service;
    bool launched;           /* the service thread runs, and has to be joined */
    _Atomic bool running;    /* all ranks are ready and of one mind */
    _Atomic uint32_t wanted; /* ranks: an order for the service thread; 0: none */
    _Atomic int32_t leaver;  /* rank that is asked to leave + 1; 0: none */
    uint64_t
        lost_silent_ns; /* several hosts: of the rank whose end aborted everything; read after the service thread has ended */
    bool lost;
};

/* Several hosts: a loss ends the run. One host: its membership is kept. */
static inline bool ls_gang_is_elastic(const ls_gang *gang)
{
    return gang->options.hosts == NULL;
}

static inline bool ls_gang_is_several(const ls_gang *gang)
{
    return gang->control->local_ranks < gang->control->ranks;
}

/* Several hosts: what the run file says of cuts. */
static inline ls_reform_settings ls_gang_reform_settings(const ls_gang *gang)
{
    const ls_run_file *run = &gang->options.session->run;
    return (ls_reform_settings){.leaves = (uint32_t)run->train.leaves,
                                .min_ranks = (uint32_t)run->job.min_ranks,
                                .zero = (uint32_t)run->parallel.zero,
                                .shadow = run->parallel.shadow};
}

/* On the trainer's thread: tells what the service thread had to tell. */
void ls_gang_take_events(ls_gang *gang);

#endif
