// SPDX-License-Identifier: Apache-2.0
/*
 * Coordinator: who is a member of the gang, and what follows when one comes late, differs, fails or is lost. One per run; a state machine
 * over base/env (DESIGN I6) that hears from agents, the one of this host and those of others, and answers with orders.
 *
 *   STARTING ── all members ready and of one mind ──▶ RUNNING ── end asked, or abort ──▶ ENDING ── all agents ended ──▶ ENDED
 *      └── deadline: who did not come is named ──▶ abort
 *
 * Level-triggered (I5): what is to be done follows from the table of members, whatever order things were heard in. The first reason of
 * an abort stays.
 */
#ifndef LS_EXECUTION_ELASTIC_COORDINATOR_H
#define LS_EXECUTION_ELASTIC_COORDINATOR_H

#include "base/env.h"
#include "execution/elastic/agent.h"

typedef enum ls_gang_phase {
    LS_GANG_STARTING,
    LS_GANG_RUNNING,
    LS_GANG_ENDING, /* aborted, or told to end */
} ls_gang_phase;

typedef struct ls_coordinator_options {
    ls_env *env;
    uint32_t ranks;
    uint64_t epoch;
    uint64_t start_timeout_ns; /* 0: 60 s */
    void *context;
    /* All are ready: steps may be granted. */
    void (*running)(void *context);
    /* Everything must end for this reason; called once. rank: whose fault, -1: nobody's. */
    void (*abort)(void *context, ls_status status, int32_t rank, const char *text);
} ls_coordinator_options;

typedef struct ls_coordinator ls_coordinator;

LS_MUST_CHECK ls_status ls_coordinator_create(const ls_coordinator_options *options,
                                              ls_coordinator **coordinator_out);
void ls_coordinator_destroy(ls_coordinator *coordinator); /* NULL allowed */

ls_gang_phase ls_coordinator_phase(const ls_coordinator *coordinator);

/* A member is ready, and made of this. Twice, out of range or after the end: without effect. */
void ls_coordinator_hello(ls_coordinator *coordinator, const ls_preflight_member *hello);
/* What it said; once all are ready, from any thread. */
const ls_preflight_member *ls_coordinator_member(const ls_coordinator *coordinator, uint32_t rank);
/* A member is gone without having been told to end. host: where it was. */
void ls_coordinator_lost(ls_coordinator *coordinator, const char *host, const ls_rank_end *end);

#endif
