// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/fetch.h"

#include "base/assert.h"
#include "execution/parallel/data_parallel_internal.h"

#include <stdlib.h>

/* A range of plan steps that read weights of `bucket` or no weights at all; it ends with
 * `last_step`. */
typedef struct use {
    uint32_t bucket, last_step;
} use;

struct ls_fetch {
    ls_data_parallel *parallel;
    ls_comm *comm;
    /* Separate from those of the gradients: transfers on one ls_hosts run in order, and weights
     * must overlap gradients. */
    ls_hosts *hosts;
    float *parameters;
    use *uses; /* of a micro-batch */
    uint32_t use_count;
    uint32_t total; /* uses of a step */

    /* The current step. Its uses are numbered [0, total) in this process; the counters that other
     * ranks see continue from step to step, so `first` is added to them. dropped <= begun <=
     * posted. */
    uint32_t first;
    /* uses that have begun */
    uint32_t begun;
    /* uses whose transfers are posted */
    uint32_t posted;
    /* uses whose pages were released, or kept for a later use */
    uint32_t dropped;
    /* transfers on `hosts` before the first of this step */
    uint64_t posted_before;
};

/* ---- uses ---- */

/* The bucket whose weights the op reads; -1: none. Frozen weights are on every host all the
 * time. */
static int64_t bucket_of(const ls_plan *plan, const ls_op *op)
{
    const int32_t parameters[] = {op->weight, op->bias};
    for (int i = 0; i < 2; i++) {
        if (parameters[i] != LS_NONE && !plan->layout->parameters[parameters[i]].frozen) {
            return (int64_t)plan->layout->parameters[parameters[i]].bucket;
        }
    }
    return -1;
}

/* Cuts the plan into uses: a use begins with the first plan step that reads another bucket, and
 * steps without weights belong to the use before them. */
static void find_uses(ls_fetch *f, const ls_plan *plan)
{
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const int64_t bucket = bucket_of(plan, &plan->ops[plan->steps[i].op]);
        const use *last = f->use_count > 0 ? &f->uses[f->use_count - 1] : NULL;
        if (bucket >= 0 && (!last || last->bucket != (uint32_t)bucket)) {
            f->uses[f->use_count++] = (use){.bucket = (uint32_t)bucket};
        }
        /* steps before the first use (frozen embeddings) belong to that use */
        if (f->use_count > 0) {
            f->uses[f->use_count - 1].last_step = i;
        }
    }
    LS_ASSERT(f->use_count > 0 && "something is trained");
}

static uint32_t bucket_at(const ls_fetch *f, uint32_t n)
{
    return f->uses[n % f->use_count].bucket;
}

/* ---- one use ---- */

static void post_until(ls_fetch *f, uint32_t count)
{
    for (; f->posted < count && f->posted < f->total; f->posted++) {
        ls_hosts_post(f->hosts, LS_TRANSFER_SPREAD, bucket_at(f, f->posted), f->parameters);
    }
}

/* Releases what this rank received for use n. If a later posted use has the same bucket, its
 * transfer writes to the same memory: the pages must stay, and that use releases them. */
static void drop_use(const ls_fetch *f, uint32_t n)
{
    const uint32_t bucket = bucket_at(f, n);
    for (uint32_t later = n + 1; later < f->posted; later++) {
        if (bucket_at(f, later) == bucket) {
            return;
        }
    }
    ls_drop_handled(f->parallel, bucket, f->parameters);
}

/* Releases the uses below `count` that all local ranks have finished: they share these pages. Never
 * waits; what is not finished yet is released by a later call. */
static void drop_until(ls_fetch *f, uint32_t count)
{
    while (f->dropped < count &&
           ls_exchange_has(&f->parallel->view, LS_COUNT_USED, f->first + f->dropped + 1)) {
        drop_use(f, f->dropped++);
    }
}

/*
 * Moves on to the next use, n. The order matters:
 *   1. announce that use n - 1 is over, so that the other ranks can release it;
 *   2. release old uses before posting new transfers: this bounds the memory to about three
 *      buckets;
 *   3. post use n + 1, so that it travels while use n computes (use n was posted a call ago);
 *   4. wait for the own share of use n, announce it, and wait for the shares of the other ranks:
 *      a bucket's weights on this host are received by several ranks, each its handled slices.
 */
static ls_status begin_use(ls_fetch *f)
{
    const uint32_t n = f->begun;
    ls_exchange_count(&f->parallel->view, LS_COUNT_USED, f->first + n);
    drop_until(f, n);
    post_until(f, n + 2);
    f->begun = n + 1;
    LS_TRY(ls_data_parallel_await(f->parallel, f->hosts, f->posted_before + n + 1,
                                  "weights of the other hosts"));
    ls_exchange_count(&f->parallel->view, LS_COUNT_FETCHED, f->first + n + 1);
    return ls_exchange_await(&f->parallel->view, LS_COUNT_FETCHED, f->first + n + 1, "weights");
}

/* Plan step 0 always begins a use, even if the last use of the micro-batch before had the same
 * bucket: all ranks then count the same uses, whatever their number of micro-batches. */
ls_status ls_fetch_before(ls_fetch *f, uint32_t plan_step)
{
    if (plan_step == 0) {
        LS_DCHECK(f->begun % f->use_count == 0 && f->begun < f->total);
        return begin_use(f);
    }
    const uint32_t now = (f->begun - 1) % f->use_count;
    return plan_step > f->uses[now].last_step ? begin_use(f) : LS_OK;
}

/* ---- the end of a step ---- */

ls_status ls_fetch_rest(ls_fetch *f)
{
    while (f && f->begun < f->total) {
        LS_TRY(begin_use(f));
    }
    if (f) {
        ls_exchange_count(&f->parallel->view, LS_COUNT_USED, f->first + f->total);
    }
    return LS_OK;
}

/* All weights at once, for looking at the whole state. Before the first use these transfers come on
 * top of posted_before; later no use of this step follows. */
ls_status ls_fetch_hold(ls_fetch *f)
{
    const uint32_t groups = ls_hosts_groups(f->hosts);
    for (uint32_t g = 0; g < groups; g++) {
        ls_hosts_post(f->hosts, LS_TRANSFER_SPREAD, g, f->parameters);
    }
    LS_TRY(ls_data_parallel_await(f->parallel, f->hosts, ls_hosts_posted(f->hosts),
                                  "weights of the other hosts"));
    if (f->begun == 0) {
        f->posted_before = ls_hosts_posted(f->hosts);
    }
    return ls_exchange_meet(&f->parallel->view, "weights", NULL);
}

void ls_fetch_leave(ls_fetch *f)
{
    if (!f) {
        return;
    }
    for (uint32_t b = 0; b < f->parallel->bucket_count; b++) {
        ls_drop_handled(f->parallel, b, f->parameters);
    }
    f->first += f->total;
    f->begun = f->posted = f->dropped = 0;
    f->posted_before = ls_hosts_posted(f->hosts);
}

void ls_fetch_break(ls_fetch *f)
{
    if (f) {
        ls_hosts_break(f->hosts);
    }
}

/* ---- life ---- */

static ls_status open_lanes(ls_fetch *f, const ls_data_parallel_options *options)
{
    const ls_layout *layout = options->plan->layout;
    uint32_t *order = calloc(layout->bucket_count, sizeof *order);
    if (!order) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of %u buckets (groups of parameters)",
                       layout->bucket_count);
    }
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        order[b] = b;
    }
    const uint32_t rank = options->first_part + ls_first_held(options);
    const ls_hosts_options hosts = {.layout = layout,
                                    .comm = f->comm,
                                    .leaves = options->leaves,
                                    .ranks = options->parts,
                                    .rank = rank,
                                    .first_rank = options->first_part,
                                    .local_ranks = options->local_parts,
                                    .order = order,
                                    .mesh = options->mesh,
                                    .fetches = true,
                                    .shadows = options->shadow};
    const ls_status status = ls_hosts_create(&hosts, &f->hosts);
    free(order);
    return status;
}

ls_status ls_fetch_create(ls_data_parallel *parallel, const ls_data_parallel_options *options,
                          ls_fetch **fetch_out)
{
    LS_ASSERT(options->micro_batches >= 1 && options->parameters);
    ls_fetch *f = calloc(1, sizeof *f);
    use *uses = calloc(options->plan->step_count, sizeof *uses);
    if (!f || !uses) {
        free(f);
        free(uses);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of the %u operations of a training step",
                       options->plan->step_count);
    }
    f->parallel = parallel;
    f->parameters = options->parameters;
    f->uses = uses;
    find_uses(f, options->plan);
    const uint32_t crews = options->parts / ls_mesh_crew(options->mesh);
    const uint32_t most_leaves = (options->leaves + crews - 1) / crews;
    f->total = ls_fetch_is_whole(options->mesh) ? 0 : most_leaves * options->micro_batches * f->use_count;
    ls_status status =
        ls_comm_split(options->comm, 0, (int32_t)(options->first_part + ls_first_held(options)), &f->comm);
    if (status == LS_OK) {
        status = open_lanes(f, options);
    }
    if (status != LS_OK) {
        ls_fetch_destroy(f);
        return status;
    }
    *fetch_out = f;
    return LS_OK;
}

void ls_fetch_destroy(ls_fetch *f)
{
    if (!f) {
        return;
    }
    ls_hosts_destroy(f->hosts);
    ls_comm_close(f->comm);
    free(f->uses);
    free(f);
}
