// SPDX-License-Identifier: Apache-2.0
/*
 * The queue is kept by size: for each number of GPUs, a tournament tree over the jobs that ask for
 * it, in the order of the policy, with the shortest run time below each node. To look through the
 * queue in order, start the first job among the sizes that still fit; sizes that do not fit are
 * never looked at. The result is that of a walk over the whole queue, because free GPUs only become
 * fewer during a look-through.
 */
#include "orchestration/simulate/pooled.h"

#include "base/assert.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[LS_POOLED_COUNT] = {"fifo", "fifo-skip", "easy", "sjf-oracle", "small-first"};

ls_status ls_pooled_policy_parse(const char *name, ls_pooled_policy *policy_out)
{
    for (int i = 0; i < LS_POOLED_COUNT; i++) {
        if (strcmp(name, names[i]) == 0) {
            *policy_out = (ls_pooled_policy)i;
            return LS_OK;
        }
    }
    return ls_fail(
        LS_ERR_INVALID,
        "'%.40s' is not a policy of pooled mode; allowed are fifo, fifo-skip, easy, sjf-oracle, small-first",
        name);
}

/* ---- the queue of one size ---- */

enum { NONE = UINT32_MAX };

/* A job's place in the order of the policy. */
typedef struct rank_key {
    uint64_t key;
    uint32_t job; /* index in the trace, which is the order of submission */
} rank_key;

typedef struct lane {
    uint32_t gpus, count, leaves; /* jobs of this size; leaves of the tree (a power of two) */
    rank_key *order;              /* (count) sorted */
    /* (2 leaves): shortest run time of the waiting jobs below; UINT64_MAX: none waits */
    uint64_t *least_ms;
} lane;

static int compare_rank(const void *a, const void *b)
{
    const rank_key *x = a, *y = b;
    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->job > y->job) - (x->job < y->job);
}

static void lane_put(lane *of, uint32_t place, uint64_t run_ms)
{
    uint32_t node = of->leaves + place;
    of->least_ms[node] = run_ms;
    while (node > 1) {
        node /= 2;
        const uint64_t left = of->least_ms[2 * node], right = of->least_ms[2 * node + 1];
        of->least_ms[node] = left < right ? left : right;
    }
}

/* The place of the first waiting job that runs at most most_ms; NONE: there is none. */
static uint32_t lane_find(const lane *of, uint64_t most_ms)
{
    uint32_t node = 1;
    if (of->least_ms[node] > most_ms) {
        return NONE;
    }
    while (node < of->leaves) {
        node = of->least_ms[2 * node] <= most_ms ? 2 * node : 2 * node + 1;
    }
    return node - of->leaves;
}

/* ---- the world ---- */

typedef struct ending {
    uint64_t end_ms;
    uint32_t gpus, job;
} ending;

typedef struct world {
    const ls_trace *trace;
    ls_pooled_policy policy;
    ls_sim_run *run;
    lane *lanes; /* by GPUs */
    uint32_t lane_count;
    uint32_t *lane_of, *place_of; /* (jobs) */
    /* (running): running jobs, a heap with the earliest end at the root */
    ending *heap;
    ending *endings; /* (running): the same jobs sorted, the latest end first */
    uint32_t running, free;
} world;

static uint64_t key_of(const ls_trace_job *job, size_t index, ls_pooled_policy policy)
{
    switch (policy) {
    case LS_POOLED_SJF_ORACLE:
        return job->run_ms;
    case LS_POOLED_SMALL_FIRST:
        return job->run_ms * job->gpus;
    default:
        return index;
    }
}

static uint32_t lane_index(world *w, uint32_t gpus)
{
    uint32_t i = 0;
    while (i < w->lane_count && w->lanes[i].gpus != gpus) {
        i++;
    }
    return i;
}

static void count_lanes(ls_arena *arena, world *w, uint32_t devices)
{
    for (size_t i = 0; i < w->trace->job_count; i++) {
        const uint32_t gpus = w->trace->jobs[i].gpus;
        if (gpus > devices) {
            w->run->jobs[i].refused = true;
            if (!w->run->refused_why) {
                w->run->refused_why =
                    ls_arena_printf(arena, "job %s: it needs %u GPUs, and there are only %u",
                                    w->trace->jobs[i].name, gpus, devices);
            }
            continue;
        }
        const uint32_t l = lane_index(w, gpus);
        if (l == w->lane_count) {
            w->lanes[w->lane_count++].gpus = gpus;
        }
        w->lane_of[i] = l;
        w->lanes[l].count++;
    }
}

static void build_lanes(ls_arena *arena, world *w, uint32_t devices)
{
    const size_t jobs = w->trace->job_count, most = jobs < devices ? jobs : devices;
    w->lanes = ls_arena_new(arena, lane, most);
    w->endings = ls_arena_new(arena, ending, most);
    w->heap = ls_arena_new(arena, ending, most);
    w->lane_of = ls_arena_new(arena, uint32_t, w->trace->job_count);
    w->place_of = ls_arena_new(arena, uint32_t, w->trace->job_count);
    count_lanes(arena, w, devices);
    for (uint32_t l = 0; l < w->lane_count; l++) {
        lane *of = &w->lanes[l];
        of->order = ls_arena_new(arena, rank_key, of->count);
        for (of->leaves = 1; of->leaves < of->count;) {
            of->leaves *= 2;
        }
        of->least_ms = ls_arena_new(arena, uint64_t, 2 * (size_t)of->leaves);
        memset(of->least_ms, 0xff, 2 * (size_t)of->leaves * sizeof of->least_ms[0]);
        of->count = 0;
    }
    for (size_t i = 0; i < w->trace->job_count; i++) {
        if (!w->run->jobs[i].refused) {
            lane *of = &w->lanes[w->lane_of[i]];
            of->order[of->count++] = (rank_key){key_of(&w->trace->jobs[i], i, w->policy), (uint32_t)i};
        }
    }
    for (uint32_t l = 0; l < w->lane_count; l++) {
        qsort(w->lanes[l].order, w->lanes[l].count, sizeof(rank_key), compare_rank);
        for (uint32_t place = 0; place < w->lanes[l].count; place++) {
            w->place_of[w->lanes[l].order[place].job] = place;
        }
    }
}

/* ---- running jobs ---- */

static void swap_endings(ending *a, ending *b)
{
    const ending kept = *a;
    *a = *b;
    *b = kept;
}

static void heap_push(ending *heap, uint32_t count, ending added)
{
    uint32_t at = count;
    heap[at] = added;
    for (; at > 0 && heap[at].end_ms < heap[(at - 1) / 2].end_ms; at = (at - 1) / 2) {
        swap_endings(&heap[at], &heap[(at - 1) / 2]);
    }
}

/* Removes the root of a heap of `count` entries. */
static void heap_pop(ending *heap, uint32_t count)
{
    uint32_t at = 0;
    heap[0] = heap[--count];
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < count; child++) {
            least = heap[child].end_ms < heap[least].end_ms ? child : least;
        }
        if (least == at) {
            return;
        }
        swap_endings(&heap[at], &heap[least]);
        at = least;
    }
}

static void add_ending(world *w, ending added)
{
    uint32_t at = w->running;
    for (; at > 0 && w->endings[at - 1].end_ms < added.end_ms; at--) {
        w->endings[at] = w->endings[at - 1];
    }
    w->endings[at] = added;
    heap_push(w->heap, w->running++, added);
}

static void drop_earliest(world *w)
{
    heap_pop(w->heap, w->running--);
}

/* ---- what happens ---- */

static void submit(world *w, uint32_t job)
{
    const ls_trace_job *spec = &w->trace->jobs[job];
    if (!w->run->jobs[job].refused) {
        lane_put(&w->lanes[w->lane_of[job]], w->place_of[job], spec->run_ms);
        ls_sim_run_waits(w->run, spec, spec->gpus, 1);
    }
}

static void start(world *w, uint32_t job, uint64_t now_ms)
{
    const ls_trace_job *spec = &w->trace->jobs[job];
    ls_sim_job *record = &w->run->jobs[job];
    const uint64_t end_ms = now_ms + spec->run_ms;
    lane_put(&w->lanes[w->lane_of[job]], w->place_of[job], UINT64_MAX);
    w->free -= spec->gpus;
    add_ending(w, (ending){end_ms, spec->gpus, job});
    record->first_start_ms = now_ms;
    record->end_ms = end_ms;
    record->held_ms = spec->run_ms;
    record->held_device_ms = spec->run_ms * spec->gpus;
    ls_sim_run_waits(w->run, spec, spec->gpus, -1);
    ls_sim_run_runs(w->run, spec, spec->gpus, 1);
    w->run->decisions++;
}

static void end_jobs(world *w, uint64_t now_ms)
{
    while (w->running > 0 && w->endings[w->running - 1].end_ms <= now_ms) {
        const ls_trace_job *spec = &w->trace->jobs[w->endings[w->running - 1].job];
        drop_earliest(w);
        w->free += spec->gpus;
        ls_sim_run_runs(w->run, spec, spec->gpus, -1);
    }
}

/* ---- looking through the queue ---- */

typedef struct reservation {
    bool made;
    uint64_t shadow_ms; /* when enough is free for the first job that does not fit */
    uint32_t extra;     /* GPUs left over then */
} reservation;

/* The place of the first waiting job of a lane that a reservation allows to start. */
static uint32_t first_allowed(const lane *of, const reservation *r, uint64_t now_ms)
{
    if (!r->made || of->gpus <= r->extra) {
        return lane_find(of, UINT64_MAX - 1);
    }
    return r->shadow_ms > now_ms ? lane_find(of, r->shadow_ms - now_ms) : NONE;
}

/* The first job in the order of the policy that may start; NONE: there is none. fitting: only jobs
 * that fit. */
static uint32_t next_job(const world *w, const reservation *r, uint64_t now_ms, bool fitting)
{
    const rank_key *first = NULL;
    for (uint32_t l = 0; l < w->lane_count; l++) {
        const lane *of = &w->lanes[l];
        if (of->least_ms[1] == UINT64_MAX || (fitting && of->gpus > w->free)) {
            continue;
        }
        const uint32_t place = first_allowed(of, r, now_ms);
        if (place != NONE && (!first || compare_rank(&of->order[place], first) < 0)) {
            first = &of->order[place];
        }
    }
    return first ? first->job : NONE;
}

/*
 * When enough GPUs will be free for a job, and how many will be left over. Of jobs that end
 * together only as many count as are needed, in the order in which the heap has them: as good as
 * any other order, and the order of the oracle whose table this mode reproduces.
 */
static void reserve(const world *w, uint32_t job, reservation *r)
{
    const uint32_t gpus = w->trace->jobs[job].gpus;
    uint32_t free = w->free, before = w->free, i = w->running;
    uint64_t shadow_ms = 0;
    while (free < gpus) {
        for (before = free, shadow_ms = w->endings[i - 1].end_ms;
             i > 0 && w->endings[i - 1].end_ms == shadow_ms; i--) {
            free += w->endings[i - 1].gpus;
        }
    }
    for (uint32_t k = 0; before < gpus; k++) {
        before += w->heap[k].end_ms == shadow_ms ? w->heap[k].gpus : 0;
    }
    *r = (reservation){true, shadow_ms, before - gpus};
}

/* A job that does not fit stops the others, or gets a reservation. */
static void start_in_order(world *w, uint64_t now_ms, reservation *r)
{
    for (;;) {
        const uint32_t job = next_job(w, r, now_ms, false);
        if (job == NONE) {
            return;
        }
        if (w->trace->jobs[job].gpus > w->free) {
            reserve(w, job, r);
            return;
        }
        start(w, job, now_ms);
    }
}

static void look_through(world *w, uint64_t now_ms)
{
    reservation r = {0};
    if (w->policy == LS_POOLED_FIFO || w->policy == LS_POOLED_EASY) {
        start_in_order(w, now_ms, &r);
    }
    while (w->policy != LS_POOLED_FIFO && w->free > 0) {
        const uint32_t job = next_job(w, &r, now_ms, true);
        if (job == NONE) {
            return;
        }
        const ls_trace_job *spec = &w->trace->jobs[job];
        if (r.made && now_ms + spec->run_ms > r.shadow_ms) {
            r.extra -= spec->gpus;
        }
        start(w, job, now_ms);
    }
}

void ls_pooled_run(ls_arena *arena, const ls_trace *trace, uint32_t devices, ls_pooled_policy policy,
                   ls_sim_run *run_out)
{
    world w = {.trace = trace, .policy = policy, .run = run_out, .free = devices};
    ls_sim_run_init(arena, trace, devices, names[policy], run_out);
    run_out->pooled = true;
    build_lanes(arena, &w, devices);
    uint32_t next = 0;
    while (next < trace->job_count || w.running > 0) {
        uint64_t now_ms = next < trace->job_count ? trace->jobs[next].submit_ms : LS_SIM_NEVER;
        if (w.running > 0 && w.endings[w.running - 1].end_ms < now_ms) {
            now_ms = w.endings[w.running - 1].end_ms;
        }
        ls_sim_run_advance(run_out, now_ms);
        end_jobs(&w, now_ms);
        while (next < trace->job_count && trace->jobs[next].submit_ms == now_ms) {
            submit(&w, next++);
        }
        look_through(&w, now_ms);
        run_out->passes++;
    }
    LS_ASSERT(w.free == devices);
}
