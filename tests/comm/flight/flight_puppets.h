// SPDX-License-Identifier: Apache-2.0
/*
 * Ranks made of nothing but their flight files, for tests of what reads them: one process writes
 * the files of all of them, with times of its own choice.
 */
#ifndef LS_TESTS_EXECUTION_FLIGHT_PUPPETS_H
#define LS_TESTS_EXECUTION_FLIGHT_PUPPETS_H

#include "base/file.h"
#include "comm/flight/flight.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { PUPPETS_MAX = 8 };

typedef struct puppets {
    char folder[64];
    uint32_t count;
    ls_flight *flights[PUPPETS_MAX]; /* NULL: it has none */
} puppets;

static inline const char *puppet_path(const puppets *p, uint32_t rank)
{
    static char path[96];
    snprintf(path, sizeof path, "%s/rank-%u", p->folder, rank);
    return path;
}

/* The puppet whose strings are pulled next. */
static inline void puppet_take(const puppets *p, uint32_t rank)
{
    ls_flight_install(p->flights[rank]);
}

static inline void puppet_create(puppets *p, uint32_t rank)
{
    assert_int_equal(ls_flight_create(puppet_path(p, rank), rank, p->count, 1, &p->flights[rank]), LS_OK);
    puppet_take(p, rank);
    ls_flight_mapped->header.start_ns = 0;
}

/* A test that fails leaves its folders behind: they go with the process that made them (not with
 * its children). */
static struct {
    pid_t owner;
    uint32_t count;
    char folders[64][sizeof((puppets *)0)->folder];
} puppet_litter;

static inline void puppets_sweep(void)
{
    char run[80];
    for (uint32_t i = 0; i < puppet_litter.count && puppet_litter.owner == getpid(); i++) {
        snprintf(run, sizeof run, "%s.run", puppet_litter.folders[i]);
        (void)!ls_dir_remove(puppet_litter.folders[i]);
        (void)!ls_dir_remove(run);
    }
}

static inline void puppets_remember(const puppets *p)
{
    if (puppet_litter.count == 0) {
        puppet_litter.owner = getpid();
        atexit(puppets_sweep);
    }
    if (puppet_litter.count < sizeof puppet_litter.folders / sizeof puppet_litter.folders[0]) {
        snprintf(puppet_litter.folders[puppet_litter.count++], sizeof p->folder, "%s", p->folder);
    }
}

static inline void puppets_init(puppets *p, uint32_t count)
{
    *p = (puppets){.count = count};
    /* In memory where there is such a place: a busy disk would hold up the writers of mapped
     * files. */
    snprintf(p->folder, sizeof p->folder, "/dev/shm/lockstep-puppets-XXXXXX");
    if (!mkdtemp(p->folder)) {
        snprintf(p->folder, sizeof p->folder, "/tmp/lockstep-puppets-XXXXXX");
        assert_non_null(mkdtemp(p->folder));
    }
    puppets_remember(p);
    for (uint32_t rank = 0; rank < count; rank++) {
        puppet_create(p, rank);
    }
}

static inline void puppets_release(puppets *p)
{
    for (uint32_t rank = 0; rank < p->count; rank++) {
        ls_flight_close(p->flights[rank]);
    }
    assert_int_equal(ls_dir_remove(p->folder), LS_OK);
}

/* Slot of the communicator, the same for all who join in the same order. */
static inline uint8_t puppet_join(const puppets *p, uint32_t rank, uint32_t comm_id, uint32_t member,
                                  uint32_t size, const char *name)
{
    puppet_take(p, rank);
    return ls_flight_join(comm_id, member, size, name);
}

static inline void puppets_join_world(const puppets *p)
{
    for (uint32_t rank = 0; rank < p->count; rank++) {
        if (p->flights[rank]) {
            assert_int_equal(puppet_join(p, rank, 1, rank, p->count, "world"), 1);
        }
    }
}

typedef struct puppet_op {
    uint32_t comm_id;
    uint8_t slot, kind;
    uint64_t seq, count, begin_ns;
    uint32_t line;
    bool is_pair; /* with peer: a send or receive */
    uint32_t peer;
} puppet_op;

static inline ls_flight_record *puppet_begin(const puppets *p, uint32_t rank, puppet_op op)
{
    puppet_take(p, rank);
    const ls_flight_call call = {.seq = op.seq,
                                 .fingerprint = op.count * 100 + op.kind,
                                 .count = op.count,
                                 .begin_ns = op.begin_ns,
                                 .comm_id = op.comm_id,
                                 .peer = op.is_pair ? op.peer : UINT32_MAX,
                                 .site = ls_flight_site("src/model.c", op.line),
                                 .kind = op.kind,
                                 .dtype = LS_F32,
                                 .slot = op.slot};
    ls_flight_now *now = &ls_flight_mapped->now;
    /* it does nothing else meanwhile */
    now->since_ns = now->since_ns < op.begin_ns ? now->since_ns : op.begin_ns;
    return ls_flight_begin(&call);
}

static inline void puppet_end(const puppets *p, uint32_t rank, ls_flight_record *record, uint64_t end_ns,
                              uint64_t wait_ns)
{
    puppet_take(p, rank);
    ls_flight_end(record, end_ns, UINT32_MAX, wait_ns, LS_OK);
}

#endif
