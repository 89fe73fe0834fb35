// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer_internal.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

/* ---- the table of merges ---- */

void ls_merge_table_init(ls_merge_table *table, ls_arena *arena, size_t expected)
{
    unsigned bits = 4;
    while (((size_t)1 << bits) < 2 * expected + 2) {
        bits++;
    }
    const size_t slots = (size_t)1 << bits;
    *table = (ls_merge_table){
        .slots = ls_arena_new(arena, ls_merge, slots), .shift = 64 - bits, .mask = slots - 1};
    for (size_t i = 0; i < slots; i++) {
        table->slots[i].pair = LS_MERGE_FREE;
    }
}

void ls_merge_table_put(ls_merge_table *table, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    const uint64_t pair = ls_merge_pair(left, right);
    LS_ASSERT(pair != LS_MERGE_FREE);
    size_t at = (size_t)((pair * UINT64_C(0x9e3779b97f4a7c15)) >> table->shift);
    while (table->slots[at].pair != LS_MERGE_FREE && table->slots[at].pair != pair) {
        at = (at + 1) & table->mask;
    }
    table->slots[at] = (ls_merge){.pair = pair, .rank = rank, .id = id};
}

static int by_rank(const void *a, const void *b)
{
    const ls_merge *left = a, *right = b;
    if (left->rank != right->rank) {
        return left->rank < right->rank ? -1 : 1;
    }
    return left->pair < right->pair ? -1 : left->pair > right->pair;
}

const ls_merge *ls_merge_table_sorted(const ls_merge_table *table, ls_arena *arena, size_t *count_out)
{
    const size_t slots = table->slots ? table->mask + 1 : 0;
    ls_merge *list = ls_arena_new(arena, ls_merge, slots);
    size_t count = 0;
    for (size_t i = 0; i < slots; i++) {
        if (table->slots[i].pair != LS_MERGE_FREE) {
            list[count++] = table->slots[i];
        }
    }
    qsort(list, count, sizeof *list, by_rank);
    *count_out = count;
    return list;
}

/* ---- short words: scan all pairs, join the best one, repeat ---- */

enum { SHORT_WORD = 64 };

typedef struct short_word {
    /* Of the pair (i, i + 1): its rank, and the symbol that replaces it. */
    uint32_t rank[SHORT_WORD];
    int32_t joined[SHORT_WORD];
} short_word;

static void look_up(const ls_merge_table *table, short_word *word, const int32_t *ids, size_t i)
{
    const ls_merge *merge = ls_merge_find(table, ids[i], ids[i + 1]);
    word->rank[i] = merge ? merge->rank : LS_RANK_NONE;
    word->joined[i] = merge ? merge->id : -1;
}

static size_t merge_short(const ls_merge_table *table, int32_t *ids, size_t count)
{
    short_word word;
    for (size_t i = 0; i + 1 < count; i++) {
        look_up(table, &word, ids, i);
    }
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++) {
            best = word.rank[i] < word.rank[best] ? i : best;
        }
        if (word.rank[best] == LS_RANK_NONE) {
            break;
        }
        ids[best] = word.joined[best];
        const size_t after = count - best - 2; /* symbols after the joined pair */
        memmove(ids + best + 1, ids + best + 2, after * sizeof *ids);
        if (after > 0) {
            memmove(word.rank + best + 1, word.rank + best + 2, (after - 1) * sizeof *word.rank);
            memmove(word.joined + best + 1, word.joined + best + 2, (after - 1) * sizeof *word.joined);
        }
        count--;
        if (best + 1 < count) {
            look_up(table, &word, ids, best);
        }
        if (best > 0) {
            look_up(table, &word, ids, best - 1);
        }
    }
    return count;
}

/*
 * ---- long words: a heap of candidates over a linked list of symbols ----
 *
 * Joining a pair makes candidates of its neighbours invalid. They stay in the heap and are
 * discarded when they are taken out (is_current).
 */

static bool comes_first(ls_bpe_candidate a, ls_bpe_candidate b)
{
    return a.rank < b.rank || (a.rank == b.rank && a.at < b.at);
}

static void push(ls_bpe_work *work, ls_bpe_candidate candidate)
{
    LS_DCHECK(work->heap_count < work->heap_capacity);
    size_t at = work->heap_count++;
    while (at > 0 && comes_first(candidate, work->heap[(at - 1) / 2])) {
        work->heap[at] = work->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    work->heap[at] = candidate;
}

static ls_bpe_candidate pop(ls_bpe_work *work)
{
    const ls_bpe_candidate top = work->heap[0];
    const ls_bpe_candidate last = work->heap[--work->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= work->heap_count) {
            break;
        }
        if (child + 1 < work->heap_count && comes_first(work->heap[child + 1], work->heap[child])) {
            child++;
        }
        if (!comes_first(work->heap[child], last)) {
            break;
        }
        work->heap[at] = work->heap[child];
        at = child;
    }
    work->heap[at] = last;
    return top;
}

/* Each symbol is the left side of at most one candidate at the start, and each join adds at most
 * two: 3n entries are enough. */
static ls_status make_room(ls_bpe_work *work, size_t count)
{
    if (count > UINT32_MAX / 4) {
        return ls_fail(
            LS_ERR_MEMORY,
            "the text has a word of %zu characters or bytes, but the tokenizer can encode at most %u "
            "together: divide the word",
            count, UINT32_MAX / 4);
    }
    if (work->node_capacity < count) {
        ls_bpe_node *nodes = realloc(work->nodes, count * sizeof *nodes);
        if (!nodes) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory to encode a word of %zu characters or bytes",
                           count);
        }
        work->nodes = nodes;
        work->node_capacity = count;
    }
    if (work->heap_capacity < 3 * count) {
        ls_bpe_candidate *heap = realloc(work->heap, 3 * count * sizeof *heap);
        if (!heap) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory to encode a word of %zu characters or bytes",
                           count);
        }
        work->heap = heap;
        work->heap_capacity = 3 * count;
    }
    work->heap_count = 0;
    return LS_OK;
}

static void add_candidate(const ls_merge_table *table, ls_bpe_work *work, uint32_t at)
{
    const uint32_t next = work->nodes[at].next;
    const ls_merge *merge =
        next == UINT32_MAX ? NULL : ls_merge_find(table, work->nodes[at].id, work->nodes[next].id);
    if (merge) {
        push(work, (ls_bpe_candidate){.rank = merge->rank, .at = at, .id = merge->id});
    }
}

/* Whether the candidate is still valid: both of its sides may have been joined with other symbols
 * meanwhile. */
static bool is_current(const ls_merge_table *table, const ls_bpe_work *work, ls_bpe_candidate candidate)
{
    const ls_bpe_node *node = &work->nodes[candidate.at];
    if (node->id < 0 || node->next == UINT32_MAX) {
        return false;
    }
    const ls_merge *merge = ls_merge_find(table, node->id, work->nodes[node->next].id);
    return merge && merge->id == candidate.id;
}

static ls_status merge_long(const ls_merge_table *table, ls_bpe_work *work, int32_t *ids, size_t *count)
{
    LS_TRY(make_room(work, *count));
    const uint32_t last = (uint32_t)*count - 1;
    for (uint32_t i = 0; i <= last; i++) {
        work->nodes[i] =
            (ls_bpe_node){.id = ids[i], .previous = i - 1, .next = i == last ? UINT32_MAX : i + 1};
    }
    for (uint32_t i = 0; i < last; i++) {
        add_candidate(table, work, i);
    }
    while (work->heap_count > 0) {
        const ls_bpe_candidate candidate = pop(work);
        if (!is_current(table, work, candidate)) {
            continue;
        }
        ls_bpe_node *node = &work->nodes[candidate.at];
        ls_bpe_node *right = &work->nodes[node->next];
        node->id = candidate.id;
        node->next = right->next;
        right->id = -1;
        if (node->next != UINT32_MAX) {
            work->nodes[node->next].previous = candidate.at;
        }
        add_candidate(table, work, candidate.at);
        if (node->previous != UINT32_MAX) {
            add_candidate(table, work, node->previous);
        }
    }
    size_t written = 0;
    for (uint32_t at = 0; at != UINT32_MAX; at = work->nodes[at].next) {
        ids[written++] = work->nodes[at].id;
    }
    *count = written;
    return LS_OK;
}

ls_status ls_bpe_merge(const ls_merge_table *table, ls_bpe_work *work, int32_t *ids, size_t *count)
{
    if (*count > SHORT_WORD) {
        return merge_long(table, work, ids, count);
    }
    *count = merge_short(table, ids, *count);
    return LS_OK;
}

void ls_bpe_work_release(ls_bpe_work *work)
{
    free(work->nodes);
    free(work->heap);
    *work = (ls_bpe_work){0};
}
