// SPDX-License-Identifier: Apache-2.0
/*
 * lockstep-sim: the control plane, unmodified, in seeded worlds where everything fails that may
 * (invariant I6).
 *
 * A world is a function that builds hosts, processes and faults from one seed, runs them, and
 * checks on the way what must always hold (safety), and at the end, when faults have ceased, that
 * everything got where it should (liveness). A failure prints the seed, everything that was drawn
 * from it, the last events and the commit, and is replayed with `lockstep-sim --world W --seed S
 * --events`.
 *
 *   main.c        options, seeds one after the other, mutations
 *   run.c         one seed: draws, events, checks, failure
 *   world_*.c     the worlds;  toy_*.c  what stands in for training in them
 *
 * Faults are limited to what a run must survive (docs/design/003-nothing-is-lost.md, "What is not
 * survived").
 */
#ifndef LS_TESTS_SIM_SIM_H
#define LS_TESTS_SIM_SIM_H

#include "sim/env/sim_env.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>

#define SIM_US 1000ull
#define SIM_MS 1000000ull
#define SIM_S  (1000 * SIM_MS)

enum { SIM_EVENT_BYTES = 160, SIM_EVENTS_KEPT = 80, SIM_DRAWN_BYTES = 4096 };

/* Classes of faults, for --faults. */
typedef enum sim_fault {
    SIM_FAULT_POWER = 1 << 0,   /* hosts lose power */
    SIM_FAULT_KILL = 1 << 1,    /* processes die */
    SIM_FAULT_DISK = 1 << 2,    /* disk calls fail, disks are full */
    SIM_FAULT_NET = 1 << 3,     /* messages are lost, duplicated, late, out of order */
    SIM_FAULT_CUT = 1 << 4,     /* connections between hosts are cut */
    SIM_FAULT_MISTAKE = 1 << 5, /* two processes do what only one should */
    SIM_FAULT_HANG = 1 << 6,    /* processes stop for a while, or for ever */
    SIM_FAULT_ALL = (1 << 7) - 1,
} sim_fault;

typedef struct sim_run {
    uint64_t seed;
    const char *world;
    const char *mutation; /* NULL: the program as it is */
    unsigned faults;      /* allowed classes */
    bool print_events;
    /* set by the world when it has one, for the times of events; the runner destroys it */
    ls_sim *sim;
    char drawn[SIM_DRAWN_BYTES];
    size_t drawn_bytes;
    char events[SIM_EVENTS_KEPT][SIM_EVENT_BYTES];
    uint64_t event_count;
    uint64_t draw_count;
    uint64_t steps; /* events of the simulator */
    char failure[1024];
    jmp_buf failed;
} sim_run;

typedef struct sim_mutation {
    const char *name;
    const char *text; /* what is broken */
} sim_mutation;

typedef struct sim_world {
    const char *name;
    const char *text;
    void (*run)(sim_run *run);
    unsigned weight; /* share of seeds when no world is named */
    const sim_mutation *mutations;
    size_t mutation_count;
} sim_world;

/* ---- for worlds ---- */

/* A number in [min, max] from the seed, recorded under its name. It does not depend on the order
 * of events. */
uint64_t sim_draw(sim_run *run, const char *name, uint64_t min, uint64_t max);
/* True in `percent` of seeds, and only when the class is allowed. */
bool sim_draw_fault(sim_run *run, const char *name, sim_fault fault, unsigned percent);

bool sim_is_mutated(const sim_run *run, const char *name);

/* One line for a person who investigates. */
void sim_event(sim_run *run, const char *format, ...) LS_PRINTF(2, 3);

_Noreturn void sim_fail(sim_run *run, const char *format, ...) LS_PRINTF(2, 3);

#define SIM_CHECK(run, condition)                                                                            \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            sim_fail((run), "%s:%d: not true: %s", __FILE__, __LINE__, #condition);                          \
        }                                                                                                    \
    } while (0)

/* Creates run->sim. */
void sim_create(sim_run *run, const ls_sim_settings *settings);
/* Runs to `until_ns`, calling `check` (NULL: none) after every event. More than events_max
 * events are a failure: something goes round in circles. */
void sim_until(sim_run *run, uint64_t until_ns, uint64_t events_max, void (*check)(void *context),
               void *context);

/* ---- for main ---- */

/* False: run->failure says why. */
bool sim_run_seed(sim_run *run, const sim_world *world);
/* Prints everything needed to investigate a failure to stderr. */
void sim_report(const sim_run *run);

extern const sim_world *const sim_worlds[];
extern const size_t sim_world_count;

#endif
