// SPDX-License-Identifier: Apache-2.0
/*
 * Pre-flight: before step 0 all ranks report what they run, so that different versions, files or
 * settings are named at once, instead of causing a mismatch or different bits later.
 *
 * Each part has its own hash, so that the error can name the difference: "rank 3 (node7, pid 99)
 * differs in binary and op plan". The code that gathers the reports (execution/elastic,
 * comm/store/store.h) sends ls_preflight as it is.
 */
#ifndef LS_EXECUTION_TRAIN_PREFLIGHT_H
#define LS_EXECUTION_TRAIN_PREFLIGHT_H

#include "execution/train/session.h"

enum { LS_PREFLIGHT_VERSION = 1, LS_PREFLIGHT_HASH_BYTES = 16 };

typedef enum ls_preflight_part {
    LS_PREFLIGHT_BINARY,   /* build id of the program, or a hash of its file */
    LS_PREFLIGHT_RUN_FILE, /* the run's identity */
    LS_PREFLIGHT_DATA,     /* by content */
    LS_PREFLIGHT_LAYOUT,   /* where tensors lie, buckets */
    LS_PREFLIGHT_OP_PLAN,  /* ops, their shapes, order and memory */
    /* ranks, leaves, micro-batches, stage, precision: which collectives run, with which counts */
    LS_PREFLIGHT_SCHEDULE,
    /* the class of the device */
    LS_PREFLIGHT_DETERMINISM,
    LS_PREFLIGHT_PART_COUNT
} ls_preflight_part;

/* On the wire. */
typedef struct ls_preflight {
    uint32_t version;
    uint32_t part_count;
    unsigned char hash[LS_PREFLIGHT_PART_COUNT][LS_PREFLIGHT_HASH_BYTES];
} ls_preflight;
_Static_assert(sizeof(ls_preflight) == 8 + 7 * 16, "on the wire");

/* Fills in what this process would run with `ranks` ranks. Errors: LS_ERR_IO (the program cannot
 * read its own file). */
LS_MUST_CHECK ls_status ls_preflight_fill(const ls_session *session, uint32_t ranks,
                                          ls_preflight *preflight_out);

/* The parts that need less than a session. */
LS_MUST_CHECK ls_status ls_preflight_hash_binary(unsigned char hash_out[LS_PREFLIGHT_HASH_BYTES]);
void ls_preflight_hash_layout(const ls_layout *layout, unsigned char hash_out[LS_PREFLIGHT_HASH_BYTES]);
void ls_preflight_hash_plan(const ls_plan *plan, unsigned char hash_out[LS_PREFLIGHT_HASH_BYTES]);

/* "binary", "op plan", ... */
const char *ls_preflight_part_name(ls_preflight_part part);

typedef struct ls_preflight_member {
    uint32_t rank;
    int32_t pid;
    char host[64];
    ls_preflight preflight;
} ls_preflight_member;

/*
 * LS_OK if all are equal. Otherwise LS_ERR_MISMATCH with the ranks and parts that differ from the
 * majority; of two equally large groups, the one with the lowest rank counts as the majority. Also
 * LS_ERR_MISMATCH for another LS_PREFLIGHT_VERSION.
 */
LS_MUST_CHECK ls_status ls_preflight_compare(const ls_preflight_member *members, uint32_t count);

#endif
