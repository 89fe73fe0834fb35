// SPDX-License-Identifier: Apache-2.0
/*
 * What the parts of the watchdog share.
 *
 *   watchdog_follow.c    reads the records of a rank and learns what is usual
 *   watchdog_progress.c  how long each rank has made no progress
 *   watchdog_report.c    reports who is late, what differs, what hangs
 *   watchdog.c           decides; the loop
 */
#ifndef LS_EXECUTION_HANG_WATCHDOG_INTERNAL_H
#define LS_EXECUTION_HANG_WATCHDOG_INTERNAL_H

#include "execution/hang/arrivals.h"
#include "execution/hang/wait_histogram.h"
#include "execution/hang/watchdog.h"

enum {
    LS_WATCHDOG_CHUNK = 512,     /* records read at once */
    LS_WATCHDOG_OPEN_MAX = 512,  /* unfinished operations of a rank */
    LS_WATCHDOG_SITES_MAX = 256, /* call sites of all ranks together */
    LS_WATCHDOG_INCIDENTS_MAX = 64,
};

/* An operation of a rank that has to be looked at again. */
typedef struct open_op {
    uint64_t number, begin_ns;
    bool known; /* its record was complete */
} open_op;

/* A rank of this host. */
typedef struct local_rank {
    uint32_t rank;
    bool absent;              /* after ls_watchdog_leave */
    ls_flight_reader *reader; /* NULL: no file yet */
    uint64_t next;            /* the first record not read yet */
    open_op open[LS_WATCHDOG_OPEN_MAX];
    uint32_t open_count;
    uint64_t last_end_ns; /* end of the newest finished operation; before the first: the start */
    int64_t clock_offset_ns;
    int32_t pid;
    uint64_t pid_start;
    uint64_t stopped_ns; /* since when it has been seen stopped; 0: it runs */
    bool stopped_reported;
    uint16_t sites[LS_FLIGHT_SITES]; /* index in watchdog->sites + 1; 0: not known yet */
    ls_flight_comm comms[LS_FLIGHT_COMMS];
} local_rank;

typedef struct watched_site {
    char name[LS_FLIGHT_SITE_BYTES];
    ls_wait_histogram waits, durations;
} watched_site;

/* One rank that one operation waits for: reported once, then followed until it is over. */
typedef struct late_incident {
    bool used, seen, reported;
    uint32_t rank, comm_id;
    uint64_t seq;
    bool inside;
    /* For a rank of another host. */
    uint64_t asked_ns; /* when its stack was asked for; 0: not yet */
    bool is_stack;
    char *answer; /* the stack, or why there is none; NULL: no answer yet */
} late_incident;

/* A rank of another host. */
typedef struct remote_rank {
    bool absent;
    uint64_t seen_ns; /* 0: never */
    ls_rank_snapshot snapshot;
} remote_rank;

/* How long a rank has been at the same piece of work. Time between two looks counts only up to a
 * limit: if this process was stopped together with the ranks, it must not blame them. */
typedef struct rank_progress {
    /* Changes whenever the rank reports another activity. Compared instead of times, because times
     * of other hosts are shifted by a slightly different offset with each message. */
    uint64_t version;
    uint32_t activity;
    uint64_t looked_ns;    /* the last look */
    uint64_t unchanged_ns; /* at the same activity */
    uint64_t overdue_ns;   /* of that: it could not run, or something was wanted of it */
    ls_process_state process;
    bool handed_over;        /* hung() has been called for it */
    uint64_t reported_stack; /* hash of the stack printed last; 0: none was */
} rank_progress;

struct ls_watchdog {
    ls_watchdog_options options;
    char *flight_dir;
    ls_env_id timer;
    local_rank *ranks;
    uint32_t rank_count;
    remote_rank *remote;         /* by rank of the run; NULL: all ranks are here */
    rank_progress *progress;     /* by rank of the run */
    ls_rank_snapshot *snapshots; /* room for one of each rank that can be seen */
    uint64_t looks;
    uint64_t left_ns; /* when a rank left last */
    ls_flight_entry *entries;
    ls_arrivals *arrivals;
    watched_site *sites;
    uint32_t site_count;
    late_incident incidents[LS_WATCHDOG_INCIDENTS_MAX];
    bool disagrees, gathered, over;
    ls_disagreement disagreement;
    ls_arena arena; /* emptied after each look */
};

/* Reads the new records of a rank; opens its file once it exists. */
void ls_watchdog_follow(ls_watchdog *watchdog, local_rank *local);

/* Notes which ranks have made progress; remote ranks as of their newest snapshot. */
void ls_watchdog_note_progress(ls_watchdog *watchdog);
/* Ends ranks, or has them ended, that hang although no operation shows who waits for them. */
void ls_watchdog_end_overdue(ls_watchdog *watchdog);
/* Whether the newest snapshot of a remote rank is still valid. */
bool ls_watchdog_is_fresh(const ls_watchdog *watchdog, uint32_t rank);
uint64_t ls_watchdog_hang_ns(const ls_watchdog *watchdog); /* UINT64_MAX: never */

/* Whether the cause lies in a process that can be ended and whose work others can take over. */
bool ls_watchdog_is_of_a_process(ls_cause cause);
/* A rank of this host; NULL: it is on another one. */
local_rank *ls_watchdog_local(const ls_watchdog *watchdog, uint32_t rank);
/* Whether a rank is only seen through the agent of its host. */
bool ls_watchdog_is_remote(const ls_watchdog *watchdog, uint32_t rank);
/* Whether the culprit's host has sent its stack, or the reason why there is none, or has run out of
 * time. The first call asks the host. */
bool ls_watchdog_has_answered(ls_watchdog *watchdog, late_incident *incident, const ls_culprit *culprit,
                              uint64_t now_ns);

void ls_watchdog_send_event(ls_watchdog *watchdog, const char *name, json_t *fields);
void ls_watchdog_report_mismatch(ls_watchdog *watchdog);
/* incident: NULL for a rank of this host. */
void ls_watchdog_report_late(ls_watchdog *watchdog, const late_incident *incident, const ls_graph *graph,
                             const ls_culprit *culprit, double waited_s);
/* Waiting cannot help: ends the culprit if it can be handed over, otherwise the whole run. */
void ls_watchdog_report_hang(ls_watchdog *watchdog, const late_incident *incident, const ls_graph *graph,
                             const ls_culprit *culprit, double waited_s);

#endif
