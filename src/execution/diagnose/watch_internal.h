// SPDX-License-Identifier: Apache-2.0
/*
 * What the parts of the watch share.
 *
 *   watch_follow.c   reads the records of a rank, and learns what is usual
 *   watch_still.c    who has not moved for how long
 *   watch_report.c   says who is late, what differs, what hangs
 *   watch.c          decides; the loop
 */
#ifndef LS_EXECUTION_DIAGNOSE_WATCH_INTERNAL_H
#define LS_EXECUTION_DIAGNOSE_WATCH_INTERNAL_H

#include "execution/diagnose/arrivals.h"
#include "execution/diagnose/site_waits.h"
#include "execution/diagnose/watch.h"

enum {
    LS_WATCH_CHUNK = 512,     /* records read at once */
    LS_WATCH_OPEN_MAX = 512,  /* operations of a rank that have not ended */
    LS_WATCH_SITES_MAX = 256, /* of all ranks together */
    LS_WATCH_INCIDENTS_MAX = 64,
};

/* An operation of a rank that is still to be looked at again. */
typedef struct open_op {
    uint64_t number, begin_ns;
    bool known; /* its record was whole */
} open_op;

typedef struct watched {
    uint32_t rank;
    bool absent;              /* ls_watch_leave */
    ls_flight_reader *reader; /* NULL: no file yet */
    uint64_t next;            /* record to read from */
    open_op open[LS_WATCH_OPEN_MAX];
    uint32_t open_count;
    uint64_t last_end_ns; /* of the operation that ended last; before the first: of the start */
    int64_t clock_offset_ns;
    int32_t pid;
    uint64_t pid_start;
    uint64_t stopped_ns; /* since when it has been seen stopped; 0: it is not */
    bool stopped_told;
    uint16_t sites[LS_FLIGHT_SITES]; /* number in watch->sites + 1; 0: not known yet */
    ls_flight_comm comms[LS_FLIGHT_COMMS];
} watched;

typedef struct watched_site {
    char name[LS_FLIGHT_SITE_BYTES];
    ls_site_waits waits, durations;
} watched_site;

typedef struct late_incident {
    bool used, seen, reported;
    uint32_t rank, comm_id;
    uint64_t seq;
    bool inside;
    /* Of a rank of another host. */
    uint64_t asked_ns; /* for its stack; 0: not yet */
    bool is_stack;
    char *answer; /* the stack or why there is none; NULL: nothing came */
} late_incident;

/* A rank of another host. */
typedef struct far_rank {
    bool absent;
    uint64_t seen_ns; /* 0: never */
    ls_sight sight;
} far_rank;

/* How long a rank has been seen at the same piece of work. Time in which nobody looked does not count: whoever was stopped together with the
 * ranks must not blame them. */
typedef struct stillness {
    uint64_t
        version; /* of what its recorder says it does; times of other hosts are shifted, a little differently each time */
    uint32_t activity;
    uint64_t looked_ns; /* the last look */
    uint64_t still_ns;  /* at the same activity */
    uint64_t held_ns;   /* of that: and it could not move, or something was wanted of it */
    ls_process_state process;
    bool handed_over; /* hung() has it */
    uint64_t told;    /* hash of the stack that was printed last; 0: none was */
} stillness;

struct ls_watch {
    ls_watch_options options;
    char *flight_dir;
    ls_env_id timer;
    watched *ranks;
    uint32_t rank_count;
    far_rank *far;    /* by rank in the run; NULL: all are here */
    stillness *still; /* by rank in the run */
    ls_sight *sights; /* room for one of each rank that can be seen */
    uint64_t looks;
    uint64_t left_ns; /* when the last rank did */
    ls_flight_entry *entries;
    ls_arrivals *arrivals;
    watched_site *sites;
    uint32_t site_count;
    late_incident incidents[LS_WATCH_INCIDENTS_MAX];
    bool disagrees, gathered, over;
    ls_disagreement disagreement;
    ls_arena arena; /* of one look */
};

/* Reads what is new in the records of a rank, opening its file when it is there. */
void ls_watch_follow(ls_watch *watch, watched *w);

/* Looks who moves; ranks of other hosts as they were last seen. */
void ls_watch_note_stillness(ls_watch *watch);
/* Ends, or has ended, those that hang though no operation shows who waits for them. */
void ls_watch_look_for_still(ls_watch *watch);
/* Whether what was seen of a rank of another host is to be believed. */
bool ls_watch_is_fresh(const ls_watch *watch, uint32_t rank);
uint64_t ls_watch_hang_ns(const ls_watch *watch); /* UINT64_MAX: never */

/* Of a process that can be ended, and its work taken over. */
bool ls_watch_is_of_a_process(ls_cause cause);
/* Whether a rank is seen through its host's agent. */
bool ls_watch_is_far(const ls_watch *watch, uint32_t rank);
/* Whether the host of the culprit has said what it can of its stack, or has had its time; asks it the first time. */
bool ls_watch_has_answered(ls_watch *watch, late_incident *incident, const ls_culprit *culprit,
                           uint64_t now_ns);

void ls_watch_send_event(ls_watch *watch, const char *name, json_t *fields);
void ls_watch_report_mismatch(ls_watch *watch);
/* incident: NULL for a rank of this host. */
void ls_watch_report_late(ls_watch *watch, const late_incident *incident, const ls_graph *graph,
                          const ls_culprit *culprit, double waited_s);
/* Nothing but an end helps: of the culprit, where it can be handed over, else of everything. */
void ls_watch_report_hang(ls_watch *watch, const late_incident *incident, const ls_graph *graph,
                          const ls_culprit *culprit, double waited_s);

#endif
