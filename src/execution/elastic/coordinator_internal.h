// SPDX-License-Identifier: Apache-2.0
/*
 * The coordinator's parts: coordinator.c (who comes, what is done), coordinator_facts.c (what is the case), coordinator_tell.c (what people
 * and the trainer get to know).
 */
#ifndef LS_EXECUTION_ELASTIC_COORDINATOR_INTERNAL_H
#define LS_EXECUTION_ELASTIC_COORDINATOR_INTERNAL_H

#include "execution/elastic/coordinator.h"
#include "execution/elastic/coordinator_log.h"
#include "execution/elastic/membership.h"

/* What the coordinator knows of a place beside what its slot says. */
typedef struct ls_coordinator_place {
    bool wanted, process, ready, killed, leaving;
    bool had_one;     /* a process was started in it before: the next is a replacement */
    bool barred;      /* its process was made of something else: no other is tried */
    uint64_t born_at; /* the fence that stood, or the team's epoch, when its process was started */
    uint64_t started_ns, killed_ns, leave_ns, not_before_ns;
    uint64_t asked_ns;     /* when it was seen that it asks to leave; 0: it does not */
    uint32_t early_deaths; /* in a row, before it was ready */
    char why[160];         /* of the kill */
    ls_preflight_member member;
} ls_coordinator_place;

/* A recovery under way: from the first loss that is noticed to the end of the step that it interrupted. */
typedef struct ls_loss_record {
    bool active, taken;
    uint64_t detected_ns, taken_ns;
    uint64_t step; /* finished steps of the one that was interrupted */
    uint32_t lost_count;
    uint16_t lost[LS_LOCAL_RANKS_MAX];
    bool all_lost; /* nobody was left: replacements go on */
} ls_loss_record;

struct ls_coordinator {
    ls_coordinator_options options;
    const ls_control *control; /* NULL: several hosts */
    ls_gang_phase phase;
    uint32_t places, ready; /* ready: several hosts */
    ls_env_id deadline, timer;

    uint64_t fence_ns; /* when it was raised */
    bool orphan[LS_LOCAL_RANKS_MAX];
    uint32_t replacements;
    uint32_t finishers; /* started when none was left, beyond max_replacements */
    struct {
        uint64_t step;
        uint32_t leaf, deaths, crashes; /* in a row, of whoever computed that leaf in that step */
    } deadly;
    ls_loss_record recovery;
    ls_coordinator_log *log;
    bool log_is_open, log_is_lost; /* lost: none is kept, or none can be */
    struct {
        uint64_t epoch; /* that was written last */
        bool durable;
        bool member[LS_LOCAL_RANKS_MAX];
    } logged;
    uint32_t log_pending; /* epochs on their way to the disk, in order */
    uint64_t logged_steps;
    void (*finished)(void *context);
    char last_loss[1024];
    int32_t last_lost;

    ls_coordinator_place place[];
};

/* coordinator_facts.c */
void ls_coordinator_gather(const ls_coordinator *c, ls_membership_facts *facts_out);
/* One more death: whether it is that of a leaf that kills whoever computes it. */
void ls_coordinator_note_death(ls_coordinator *c, const ls_rank_end *end);
bool ls_coordinator_is_deadly(const ls_coordinator *c);

/* coordinator_durable.c: what is in the log before it is done. */
LS_MUST_CHECK ls_status ls_coordinator_open_log(ls_coordinator *c);
/* Writes down that `epoch` is to come, with all that are ready. */
void ls_coordinator_foresee(ls_coordinator *c, uint64_t epoch);
/* Whether the log has `epoch` with all holders of `team`, durably; else it will, and the coordinator looks again. */
bool ls_coordinator_is_durable(ls_coordinator *c, uint64_t epoch, const ls_team *team);
void ls_coordinator_log_progress(ls_coordinator *c);

/* coordinator.c */
void ls_coordinator_look_soon(ls_coordinator *c);
void ls_coordinator_end_all(ls_coordinator *c, ls_status status, int32_t rank, const char *text);
uint64_t ls_coordinator_told(
    const ls_coordinator *c); /* most finished steps that a rank told the results of */

/* coordinator_tell.c */
void ls_coordinator_tell_lost(ls_coordinator *c, const char *host, const ls_rank_end *end);
void ls_coordinator_tell_left(ls_coordinator *c, uint32_t rank, int32_t pid);
/* A team was published; `before` was in force. */
void ls_coordinator_tell_team(ls_coordinator *c, const ls_team *before, const ls_team *team);
/* Ends a recovery whose step is over. */
void ls_coordinator_tell_progress(ls_coordinator *c);

#endif
