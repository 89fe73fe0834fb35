// SPDX-License-Identifier: Apache-2.0
/* The team: into how many parts a step is cut, and which rank of this host computes which part.
 * Plain data, kept in the control page. */
#ifndef LS_EXECUTION_TEAM_TEAM_H
#define LS_EXECUTION_TEAM_TEAM_H

#include <stdint.h>

/* Slots for ranks on one host. */
enum { LS_LOCAL_RANKS_MAX = 256 };

/* Which rank computes what in one epoch of the membership, as far as it concerns this host.
 * Written only by the host's agent, while every living rank is parked or before any rank runs. */
typedef struct ls_team {
    uint64_t epoch;
    /* The epoch in which the step was cut into these parts; it changes only between steps. */
    uint64_t cut;
    uint64_t first_step; /* finished steps when it was cut */
    /* Finished steps when the team was published: its parts continue or begin this step. */
    uint64_t step;
    uint32_t parts;                      /* on all hosts, 1..leaves */
    uint32_t first_part, local_parts;    /* of this host */
    uint16_t holder[LS_LOCAL_RANKS_MAX]; /* the local rank that computes local part i */
} ls_team;

#endif
