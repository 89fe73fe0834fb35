// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/arrivals.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* Operations that cost less than this per waiting rank are noise. */
static const double counted_wait_s = 20e-6;

/* One operation. Times are relative to the first arrival that was added, so that sums cannot
 * overflow. */
typedef struct op_slot {
    uint64_t seq; /* 0: free */
    uint64_t fingerprint, base_ns;
    int64_t sum_ns, max_ns;
    uint64_t wait_us;
    uint32_t first_rank, last_rank, count, ended;
} op_slot;

typedef struct comm_table {
    uint32_t id, size;
    op_slot *slots;
} comm_table;

typedef struct rank_row {
    uint64_t last, took_part;
    double cost_s, cost_each_s; /* sum over the ranks that waited, and their average */
} rank_row;

struct ls_arrivals {
    uint32_t ranks, comm_count;
    comm_table comms[LS_ARRIVALS_COMMS];
    rank_row *rows;
    uint64_t operations;
    uint64_t first_ns, last_ns;
    uint32_t *leaves;  /* NULL: not known */
    uint32_t *members; /* which rank is in which communicator: a bit per communicator */
};

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    LS_ASSERT(memory);
    return memory;
}

ls_arrivals *ls_arrivals_create(uint32_t ranks)
{
    ls_arrivals *arrivals = allocate(1, sizeof *arrivals);
    arrivals->ranks = ranks;
    arrivals->rows = allocate(ranks, sizeof *arrivals->rows);
    arrivals->members = allocate((size_t)ranks * (LS_ARRIVALS_COMMS / 32), sizeof *arrivals->members);
    return arrivals;
}

void ls_arrivals_destroy(ls_arrivals *arrivals)
{
    if (!arrivals) {
        return;
    }
    for (uint32_t i = 0; i < arrivals->comm_count; i++) {
        free(arrivals->comms[i].slots);
    }
    free(arrivals->rows);
    free(arrivals->leaves);
    free(arrivals->members);
    free(arrivals);
}

void ls_arrivals_set_leaves(ls_arrivals *arrivals, const uint32_t *leaves)
{
    free(arrivals->leaves);
    arrivals->leaves = allocate(arrivals->ranks, sizeof *leaves);
    memcpy(arrivals->leaves, leaves, arrivals->ranks * sizeof *leaves);
}

static comm_table *find_comm(ls_arrivals *arrivals, uint32_t id, uint32_t size)
{
    for (uint32_t i = 0; i < arrivals->comm_count; i++) {
        if (arrivals->comms[i].id == id) {
            return &arrivals->comms[i];
        }
    }
    if (arrivals->comm_count == LS_ARRIVALS_COMMS) {
        return NULL;
    }
    comm_table *added = &arrivals->comms[arrivals->comm_count++];
    *added = (comm_table){.id = id, .size = size, .slots = allocate(LS_ARRIVALS_WINDOW, sizeof(op_slot))};
    return added;
}

static uint32_t *member_word(const ls_arrivals *arrivals, uint32_t rank, size_t comm_index)
{
    return &arrivals->members[rank * (LS_ARRIVALS_COMMS / 32) + comm_index / 32];
}

static bool is_overlapped(uint8_t kind)
{
    return kind == LS_COMM_TREE_REDUCE;
}

/* All members have arrived: charges the last one with what it cost the others. */
static void finish(ls_arrivals *arrivals, const comm_table *comm, const op_slot *slot, double cost_s)
{
    const double each_s = cost_s / (comm->size - 1);
    const size_t index = (size_t)(comm - arrivals->comms);
    arrivals->operations++;
    if (each_s < counted_wait_s) {
        return;
    }
    rank_row *late = &arrivals->rows[slot->last_rank];
    late->last++;
    late->cost_s += cost_s;
    late->cost_each_s += each_s;
    for (uint32_t rank = 0; rank < arrivals->ranks; rank++) {
        arrivals->rows[rank].took_part += *member_word(arrivals, rank, index) >> index % 32 & 1;
    }
}

static void arrive(op_slot *slot, const ls_arrival *arrival)
{
    const int64_t at_ns = (int64_t)(arrival->begin_ns - slot->base_ns);
    slot->count++;
    slot->sum_ns += at_ns;
    if (slot->count == 1 || at_ns > slot->max_ns) {
        slot->max_ns = at_ns;
        slot->last_rank = arrival->rank;
    }
}

bool ls_arrivals_add(ls_arrivals *arrivals, const ls_arrival *arrival, ls_disagreement *disagreement_out)
{
    if (!ls_comm_kind_is_collective((ls_comm_kind)arrival->kind) || arrival->kind == LS_COMM_ALLOC ||
        arrival->comm_size < 2 || arrival->rank >= arrivals->ranks || arrival->seq == 0) {
        return false;
    }
    comm_table *comm = find_comm(arrivals, arrival->comm_id, arrival->comm_size);
    if (!comm) {
        return false;
    }
    const size_t index = (size_t)(comm - arrivals->comms);
    *member_word(arrivals, arrival->rank, index) |= 1u << index % 32;
    arrivals->first_ns =
        arrivals->first_ns && arrivals->first_ns < arrival->begin_ns ? arrivals->first_ns : arrival->begin_ns;
    arrivals->last_ns = arrivals->last_ns > arrival->begin_ns ? arrivals->last_ns : arrival->begin_ns;

    op_slot *slot = &comm->slots[arrival->seq % LS_ARRIVALS_WINDOW];
    if (slot->seq > arrival->seq) {
        return false; /* this rank is too far behind: its place in the window has been reused */
    }
    if (slot->seq < arrival->seq) {
        memset(slot, 0, sizeof *slot);
        slot->seq = arrival->seq;
        slot->fingerprint = arrival->fingerprint;
        slot->base_ns = arrival->begin_ns;
        slot->first_rank = arrival->rank;
    }
    if (slot->fingerprint != arrival->fingerprint) {
        *disagreement_out = (ls_disagreement){
            .comm_id = comm->id, .seq = slot->seq, .rank = arrival->rank, .other_rank = slot->first_rank};
        return true;
    }
    arrive(slot, arrival);
    if (slot->count == comm->size && !is_overlapped(arrival->kind)) {
        finish(arrivals, comm, slot, 1e-9 * ((double)slot->max_ns * comm->size - (double)slot->sum_ns));
    }
    return false;
}

void ls_arrivals_end(ls_arrivals *arrivals, uint32_t comm_id, uint64_t seq, uint8_t kind, uint64_t wait_us)
{
    for (uint32_t i = 0; i < arrivals->comm_count && is_overlapped(kind); i++) {
        const comm_table *comm = &arrivals->comms[i];
        op_slot *slot = &comm->slots[seq % LS_ARRIVALS_WINDOW];
        if (comm->id != comm_id || slot->seq != seq) {
            continue;
        }
        slot->wait_us += wait_us;
        if (++slot->ended == comm->size) {
            finish(arrivals, comm, slot, 1e-6 * (double)slot->wait_us);
        }
    }
}

uint64_t ls_arrivals_operations(const ls_arrivals *arrivals)
{
    return arrivals->operations;
}

static int by_cost(const void *a, const void *b)
{
    const ls_straggler *x = a, *y = b;
    return x->cost_s != y->cost_s ? (x->cost_s < y->cost_s) - (x->cost_s > y->cost_s)
                                  : (x->rank > y->rank) - (x->rank < y->rank);
}

static void put_leaves(const ls_arrivals *arrivals, ls_straggler *row)
{
    for (uint32_t rank = 0; arrivals->leaves && rank < arrivals->ranks; rank++) {
        row->all_leaves += arrivals->leaves[rank];
        row->has_more_leaves = row->has_more_leaves || arrivals->leaves[rank] < arrivals->leaves[row->rank];
    }
    row->leaves = arrivals->leaves ? arrivals->leaves[row->rank] : 0;
}

/* The share of the time for which waiting for this rank is expected, because it has more leaves. */
static double expected_loss(const ls_arrivals *arrivals, const ls_straggler *row)
{
    if (!row->has_more_leaves) {
        return 0.0;
    }
    const double others = (double)(row->all_leaves - row->leaves) / (arrivals->ranks - 1);
    return others < row->leaves ? 1.0 - others / row->leaves + LS_STRAGGLER_MARGIN : 0.0;
}

void ls_arrivals_report(const ls_arrivals *arrivals, ls_straggler *rows_out, double *watched_s_out)
{
    const double watched_s = 1e-9 * (double)(arrivals->last_ns - arrivals->first_ns);
    double all_s = 0.0;
    for (uint32_t rank = 0; rank < arrivals->ranks; rank++) {
        all_s += arrivals->rows[rank].cost_s;
    }
    for (uint32_t rank = 0; rank < arrivals->ranks; rank++) {
        const rank_row *row = &arrivals->rows[rank];
        ls_straggler *out = &rows_out[rank];
        *out = (ls_straggler){.rank = rank, .last = row->last, .cost_s = row->cost_s};
        out->share = all_s > 0 ? row->cost_s / all_s : 0.0;
        out->lost = watched_s > 0 ? row->cost_each_s / watched_s : 0.0;
        put_leaves(arrivals, out);
        out->is_straggler = row->took_part >= LS_STRAGGLER_OPERATIONS &&
                            out->cost_s >= LS_STRAGGLER_WAITED_S &&
                            out->share > LS_STRAGGLER_SHARE / arrivals->ranks &&
                            out->lost > LS_STRAGGLER_COST && out->lost > expected_loss(arrivals, out);
    }
    qsort(rows_out, arrivals->ranks, sizeof *rows_out, by_cost);
    *watched_s_out = watched_s;
}

json_t *ls_arrivals_to_json(const ls_arrivals *arrivals)
{
    ls_straggler *rows = allocate(arrivals->ranks, sizeof *rows);
    double watched_s = 0.0;
    ls_arrivals_report(arrivals, rows, &watched_s);
    json_t *list = json_array();
    for (uint32_t i = 0; i < arrivals->ranks; i++) {
        json_t *row = json_pack("{s:I, s:I, s:f, s:f, s:f, s:b}", "rank", (json_int_t)rows[i].rank, "last",
                                (json_int_t)rows[i].last, "share", rows[i].share, "cost_s", rows[i].cost_s,
                                "lost", rows[i].lost, "straggler", rows[i].is_straggler);
        if (rows[i].all_leaves > 0) {
            json_object_set_new(row, "leaves", json_integer(rows[i].leaves));
        }
        json_array_append_new(list, row);
    }
    free(rows);
    return json_pack("{s:f, s:I, s:o}", "watched_s", watched_s, "operations",
                     (json_int_t)arrivals->operations, "ranks", list);
}
