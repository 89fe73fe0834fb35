// SPDX-License-Identifier: Apache-2.0
/*
 * What the files of the coordinator share:
 *   coordinator.c          who is a member, and what is done
 *   coordinator_facts.c    gathers the facts that membership decides by
 *   coordinator_durable.c  what is in the log before it is done
 *   coordinator_tell.c     the events that people and the trainer get to see
 */
#ifndef LS_EXECUTION_ELASTIC_HOST_COORDINATOR_INTERNAL_H
#define LS_EXECUTION_ELASTIC_HOST_COORDINATOR_INTERNAL_H

#include "execution/elastic/host/coordinator.h"
#include "execution/elastic/host/coordinator_log.h"
#include "execution/team/membership.h"

/* What the coordinator knows about a slot, beyond what the control page says. */
typedef struct ls_coordinator_slot {
    bool wanted, process, ready, killed, leaving;
    bool had_one; /* a process was started in it before: the next one is a replacement */
    bool barred;  /* its process was started from something else: no other is tried */
    /* The fence that was up, else the team's epoch, when its process was started. */
    uint64_t born_at;
    uint64_t started_ns, killed_ns, leave_ns, not_before_ns;
    uint64_t asked_ns;     /* when it was first seen asking to leave; 0: it does not ask */
    uint32_t early_deaths; /* how many died in a row before they were ready */
    char why[160];         /* why it was killed */
    ls_preflight_member member;
} ls_coordinator_slot;

/* A recovery under way: from the first loss to the end of the step it interrupted. */
typedef struct ls_loss_record {
    bool active, taken;
    uint64_t detected_ns, taken_ns;
    uint64_t step; /* finished steps before the interrupted one */
    uint32_t lost_count;
    uint16_t lost[LS_LOCAL_RANKS_MAX];
    bool all_lost; /* no rank was left: replacements finish the step */
} ls_loss_record;

struct ls_coordinator {
    ls_coordinator_options options;
    const ls_control *control; /* NULL: several hosts */
    ls_workers_phase phase;
    uint32_t slots, ready; /* ready: for several hosts */
    ls_env_id deadline, timer;

    uint64_t fence_ns; /* when the fence was raised */
    bool orphan[LS_LOCAL_RANKS_MAX];
    uint32_t replacements;
    uint32_t finishers; /* replacements beyond max_replacements, when no rank was left */
    struct {
        uint64_t step;
        /* in a row, of ranks that computed this leaf of this step */
        uint32_t leaf, deaths, crashes;
    } deadly;
    ls_loss_record recovery;
    ls_coordinator_log *log;
    bool log_is_open, log_is_lost; /* lost: no log is kept, or none can be */
    struct {
        uint64_t epoch; /* the last epoch that was written */
        bool durable;
        bool member[LS_LOCAL_RANKS_MAX];
    } logged;
    uint32_t log_pending; /* epochs being written, in order */
    uint64_t logged_steps;
    void (*finished)(void *context);
    char last_loss[1024];
    int32_t last_lost;

    ls_coordinator_slot slot[];
};

/* coordinator_facts.c */
void ls_coordinator_gather(const ls_coordinator *c, ls_membership_facts *facts_out);
/* Notes one more death, for the case of a leaf that kills every rank that computes it. */
void ls_coordinator_note_death(ls_coordinator *c, const ls_rank_end *end);

/* coordinator_durable.c: what is in the log before it is done. */
LS_MUST_CHECK ls_status ls_coordinator_open_log(ls_coordinator *c);
/* Writes that `epoch` is to come, with all ranks that are ready. */
void ls_coordinator_foresee(ls_coordinator *c, uint64_t epoch);
/* Whether the log durably has `epoch` with all holders of `team`. If not, they are being
 * written, and the coordinator looks again when they are. */
bool ls_coordinator_is_durable(ls_coordinator *c, uint64_t epoch, const ls_team *team);
void ls_coordinator_log_progress(ls_coordinator *c);

/* coordinator.c */
void ls_coordinator_look_soon(ls_coordinator *c);
void ls_coordinator_end_all(ls_coordinator *c, ls_status status, int32_t rank, const char *text);
/* the most finished steps of which a rank has reported the results */
uint64_t ls_coordinator_reported(const ls_coordinator *c);

/* coordinator_tell.c */
void ls_coordinator_tell_lost(ls_coordinator *c, const char *host, const ls_rank_end *end);
void ls_coordinator_tell_left(ls_coordinator *c, uint32_t rank, int32_t pid);
/* A team was published; `before` was in force until then. */
void ls_coordinator_tell_team(ls_coordinator *c, const ls_team *before, const ls_team *team);
/* Ends a recovery whose step is finished. */
void ls_coordinator_tell_progress(ls_coordinator *c);

#endif
