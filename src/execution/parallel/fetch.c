// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/fetch.h"

#include "base/assert.h"
#include "execution/parallel/data_parallel_internal.h"

#include <stdlib.h>

/* Plan steps up to `last_step` that read weights of `bucket`, or none. */
typedef struct use {
    uint32_t bucket, last_step;
} use;

struct ls_fetch {
    ls_data_parallel *parallel;
    ls_comm *comm;
    ls_hosts *hosts; /* its own: transfers of weights overlap those of gradients */
    float *parameters;
    use *uses; /* of a micro-batch */
    uint32_t use_count;
    uint32_t total; /* uses of a step */

    /* The step that runs. Uses are counted through all rounds. */
    uint32_t first;   /* count before the step, for the others */
    uint32_t begun;   /* uses that began */
    uint32_t posted;  /* transfers */
    uint32_t dropped; /* uses whose pages were given back, or kept for the next */
    uint64_t posted_before;
};

/* ---- uses ---- */

/* -1: none; frozen weights are here all the time. */
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

/* A plan step belongs to the use that the last step with weights began. */
static void find_uses(ls_fetch *f, const ls_plan *plan)
{
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const int64_t bucket = bucket_of(plan, &plan->ops[plan->steps[i].op]);
        const use *last = f->use_count > 0 ? &f->uses[f->use_count - 1] : NULL;
        if (bucket >= 0 && (!last || last->bucket != (uint32_t)bucket)) {
            f->uses[f->use_count++] = (use){.bucket = (uint32_t)bucket};
        }
        if (f->use_count > 0) { /* what comes before, frozen embeddings, belongs to the first */
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

/* Gives back what this rank received for use n, unless it has been fetched again. */
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

static void drop_until(ls_fetch *f, uint32_t count)
{
    while (f->dropped < count &&
           ls_exchange_has(&f->parallel->view, LS_COUNT_USED, f->first + f->dropped + 1)) {
        drop_use(f, f->dropped++);
    }
}

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
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u buckets", layout->bucket_count);
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
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u plan steps", options->plan->step_count);
    }
    f->parallel = parallel;
    f->parameters = options->parameters;
    f->uses = uses;
    find_uses(f, options->plan);
    const uint32_t most_leaves = (options->leaves + options->parts - 1) / options->parts;
    f->total = most_leaves * options->micro_batches * f->use_count;
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
