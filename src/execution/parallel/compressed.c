// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/compressed.h"

#include "base/assert.h"
#include "compute/kernels/compress.h"

#include <stdlib.h>
#include <string.h>

/* A group as the owners on this host see it. */
typedef struct group {
    ls_node_sum sum;
    uint32_t first; /* its first node among the inputs */
    bool is_packed; /* that is its only one, and arrives packed */
} group;

struct ls_compressed {
    ls_data_parallel *parallel;
    uint32_t count; /* groups */
    group groups[LS_COMPRESSION_GROUPS_MAX];
    ls_node_sum order;                           /* of the groups */
    ls_compression settings, now, sums, changes; /* sums: now, or the changes */
    ls_adamw adamw;                              /* of groups that are normalised */
    ls_adamw_factors normal;                     /* in this step */
    uint32_t flats;                              /* residuals */
    uint64_t warmup;
    float *residuals[2][LS_RESIDUALS_MAX];
    const float *const *old; /* of the current step: read */
    float *const *next;      /* and written */
    /* of the current step: squared sums of what is left over of gradients, per norm block */
    ls_exact_sum *left_over;
    int64_t block_count;
};

/* ---- life ---- */

/* Finds the nodes of group `number`. A host that has all leaves of a group hands over one node. */
static ls_status find_group(ls_compressed *c, uint32_t number, const ls_leaf_range *nodes, uint32_t count)
{
    const ls_data_parallel *p = c->parallel;
    const uint32_t first = number * p->group, past = first + p->group;
    group *g = &c->groups[number];
    while (nodes[g->first].first < first) {
        g->first++;
    }
    uint32_t nodes_in = 0;
    while (g->first + nodes_in < count && nodes[g->first + nodes_in].first < past) {
        nodes_in++;
    }
    const ls_leaf_range here = p->hosts ? ls_hosts_leaves(p->hosts, ls_hosts_self(p->hosts), 0)->leaves
                                        : (ls_leaf_range){0, p->leaf_count};
    const bool is_here = first >= here.first && past <= here.first + here.count;
    g->is_packed = nodes_in == 1 && nodes[g->first].count == p->group && !is_here;
    return ls_node_sum_init(&g->sum, p->group, first, nodes + g->first, nodes_in);
}

ls_status ls_compressed_create(ls_data_parallel *parallel, const ls_data_parallel_options *options,
                               const ls_leaf_range *nodes, uint32_t count, ls_compressed **compressed_out)
{
    LS_ASSERT(parallel->stage_count == 1 && options->residuals);
    ls_compressed *c = calloc(1, sizeof *c);
    const int64_t blocks = ls_blocks_before(parallel->layout, parallel->bucket_count);
    ls_exact_sum *left_over = calloc((size_t)blocks + 1, sizeof *left_over);
    if (!c || !left_over) {
        free(c);
        free(left_over);
        return ls_fail(LS_ERR_MEMORY, "no memory for the compression of gradients");
    }
    c->parallel = parallel;
    c->left_over = left_over;
    c->block_count = blocks;
    c->count = options->leaves / options->group;
    c->settings = options->compression;
    c->changes = options->changes;
    c->warmup = options->compression_warmup;
    c->adamw = (ls_adamw){.lr = -1.0f,
                          .beta1 = options->beta1,
                          .beta2 = options->beta2,
                          .eps = options->eps,
                          .gradient_scale = 1.0f};
    c->flats = ls_compression_flats(c->settings.kind, c->count);
    memcpy(c->residuals, options->residuals, sizeof c->residuals);
    ls_leaf_range groups[LS_COMPRESSION_GROUPS_MAX];
    ls_status status = LS_OK;
    for (uint32_t i = 0; i < c->count && status == LS_OK; i++) {
        groups[i] = (ls_leaf_range){i * options->group, options->group};
        status = find_group(c, i, nodes, count);
    }
    if (status == LS_OK) {
        status = ls_node_sum_init(&c->order, options->leaves, 0, groups, c->count);
    }
    if (status != LS_OK) {
        ls_compressed_destroy(c);
        return status;
    }
    *compressed_out = c;
    return LS_OK;
}

void ls_compressed_destroy(ls_compressed *c)
{
    if (c) {
        for (uint32_t i = 0; i < c->count; i++) {
            free(c->groups[i].sum.program);
        }
        free(c->order.program);
        free(c->left_over);
        free(c);
    }
}

/* ---- a step ---- */

void ls_compressed_enter(ls_compressed *c, uint64_t step)
{
    c->now = c->settings;
    c->now.keep = ls_compression_keep(c->settings.keep, c->warmup, step);
    c->adamw.step = step + 1;
    c->normal = ls_adamw_factors_of(&c->adamw);
    c->sums = c->changes.kind ? c->changes : ls_compression_of_sum(c->now, c->count);
    c->old = (const float *const *)c->residuals[step % 2];
    c->next = c->residuals[(step + 1) % 2];
    memset(c->left_over, 0, (size_t)c->block_count * sizeof *c->left_over);
    if (c->parallel->hosts) {
        ls_hosts_compress(c->parallel->hosts, c->now, c->sums);
    }
}

static ls_compressed_term term_of(const ls_compressed *c, uint32_t residual, int64_t offset)
{
    ls_compressed_term term = {.residual = c->old[residual] + offset,
                               .residual_out = c->next[residual] + offset};
    for (uint32_t i = 0; i < 2 && c->flats > c->count + 1 && residual < c->count; i++) {
        const uint32_t moments = (i + 1) * c->count + 1 + residual;
        term.moments[i] = c->old[moments] + offset;
        term.moments_out[i] = c->next[moments] + offset;
    }
    return term;
}

ls_status ls_compressed_sum_own(ls_compressed *c, ls_queue *queue, uint32_t at, const ls_slice *slice,
                                const float *const *inputs, float *out, double *square_sums)
{
    ls_hosts *hosts = c->parallel->hosts;
    const int64_t offset = slice->offset;
    ls_compressed_term terms[LS_COMPRESSION_GROUPS_MAX], whole = term_of(c, c->count, offset);
    for (uint32_t i = 0; i < c->count; i++) {
        const group *g = &c->groups[i];
        terms[i] = term_of(c, i, offset);
        terms[i].sum = &g->sum.sum;
        terms[i].inputs = inputs + g->first;
        terms[i].packed = g->is_packed ? (const unsigned char *)inputs[g->first] : NULL;
    }
    whole.packed_out = hosts ? ls_hosts_packed_sum(hosts, at) : NULL;
    const ls_compressed_sum sum = {.compression = c->now,
                                   .normal = &c->normal,
                                   .terms = terms,
                                   .order = &c->order.sum,
                                   .again = c->sums,
                                   .whole = c->changes.kind ? NULL : &whole,
                                   .left_over = c->left_over + slice->first_block};
    return ls_compressed_sum_run(queue, &sum, slice->count, out, square_sums);
}

ls_status ls_compressed_pack(ls_compressed *c, ls_queue *queue, ls_leaf_range node, ls_slice slice,
                             const float *const *inputs, float *out)
{
    static const uint16_t ONE[] = {0};
    const ls_tree_sum one = {.program = ONE, .length = 1, .depth = 1, .input_count = 1};
    const uint32_t number = node.first / c->parallel->group;
    ls_compressed_term term = term_of(c, number, slice.offset);
    term.sum = &c->groups[number].sum.sum;
    term.inputs = inputs;
    term.packed_out = (unsigned char *)out;
    const ls_compressed_sum sum = {.compression = c->now,
                                   .normal = &c->normal,
                                   .terms = &term,
                                   .order = &one,
                                   .left_over = c->left_over + slice.first_block};
    return ls_compressed_sum_run(queue, &sum, slice.count, NULL, NULL);
}

ls_exact_sum ls_compressed_left_over(const ls_compressed *c)
{
    ls_exact_sum sum = {0};
    for (int64_t i = 0; i < c->block_count; i++) {
        ls_exact_sum_add(&sum, c->left_over[i]);
    }
    return sum;
}

ls_packed_change ls_compressed_change(const ls_compressed *c, uint32_t at, int64_t offset)
{
    const ls_compressed_term whole = term_of(c, c->count, offset);
    ls_hosts *hosts = c->parallel->hosts;
    return (ls_packed_change){.form = c->changes.kind ? &c->changes : NULL,
                              .residual = whole.residual,
                              .residual_out = whole.residual_out,
                              .packed = hosts ? ls_hosts_packed_sum(hosts, at) : NULL};
}

/* ---- between steps ---- */

enum { NO_HOST = 0xffffffff };

static bool has_group(ls_leaf_range leaves, uint32_t number, uint32_t size)
{
    return leaves.first <= number * size && leaves.first + leaves.count >= (number + 1) * size;
}

/* The group of a residual; `count`: the whole. */
static uint32_t group_of(const ls_compressed *c, uint32_t residual)
{
    return residual > c->count ? (residual - 1) % c->count : residual;
}

/* The host that keeps a residual of a group; NO_HOST: the owners of slices do. */
static uint32_t home_of(const ls_compressed *c, uint32_t residual)
{
    const ls_hosts *hosts = c->parallel->hosts;
    const uint32_t number = group_of(c, residual);
    for (uint32_t h = 0; h < ls_hosts_count(hosts) && number < c->count; h++) {
        if (has_group(ls_hosts_leaves(hosts, h, 0)->leaves, number, c->parallel->group)) {
            return h;
        }
    }
    return NO_HOST;
}

static ls_status await_all(const ls_compressed *c)
{
    ls_hosts *hosts = c->parallel->hosts;
    return ls_data_parallel_await(c->parallel, hosts, ls_hosts_posted(hosts), "residuals of compression");
}

static ls_status move_flat(const ls_compressed *c, float *flat, uint32_t from, uint32_t to)
{
    if (from == to || c->parallel->view.local != 0) {
        return LS_OK;
    }
    ls_hosts_post_flat(c->parallel->hosts, flat, (uint64_t)c->parallel->layout->float_count, from, to);
    return await_all(c);
}

static ls_status move_slices(const ls_compressed *c, float *flat, ls_transfer transfer)
{
    for (uint32_t g = 0; g < ls_hosts_groups(c->parallel->hosts); g++) {
        ls_hosts_post(c->parallel->hosts, transfer, g, flat);
    }
    return await_all(c);
}

ls_status ls_compressed_gather(ls_compressed *c, uint64_t step)
{
    for (uint32_t i = 0; i < c->flats; i++) {
        const uint32_t home = home_of(c, i);
        float *flat = c->residuals[step % 2][i];
        LS_TRY(home == NO_HOST ? move_slices(c, flat, LS_TRANSFER_GATHER) : move_flat(c, flat, home, 0));
    }
    return LS_OK;
}

ls_status ls_compressed_scatter(ls_compressed *c, uint64_t step)
{
    for (uint32_t i = 0; i < c->flats; i++) {
        const uint32_t home = home_of(c, i);
        float *flat = c->residuals[step % 2][i];
        LS_TRY(home == NO_HOST ? move_slices(c, flat, LS_TRANSFER_SCATTER) : move_flat(c, flat, 0, home));
    }
    return LS_OK;
}

/* Where a residual of a group was in an earlier cut. */
static uint32_t source_of(const ls_compressed *c, uint32_t residual, const ls_state_sources *sources)
{
    const uint32_t leaves = c->parallel->leaf_count, number = group_of(c, residual);
    for (uint32_t s = 0; s < sources->count && number < c->count; s++) {
        const ls_state_source *source = &sources->source[s];
        const uint32_t past = source->first_part + source->part_count;
        const ls_leaf_range first = ls_leaves_of_rank(leaves, sources->parts, source->first_part);
        const ls_leaf_range last = ls_leaves_of_rank(leaves, sources->parts, past - 1);
        const ls_leaf_range all = {first.first, last.first + last.count - first.first};
        if (has_group(all, number, c->parallel->group)) {
            return source->host;
        }
    }
    return NO_HOST;
}

ls_status ls_compressed_collect(ls_compressed *c, uint64_t step, const ls_state_sources *sources)
{
    for (uint32_t i = 0; i < c->flats && c->parallel->view.local == 0; i++) {
        const uint32_t home = source_of(c, i, sources);
        float *const flats[3] = {c->residuals[step % 2][i], NULL, NULL};
        if (home == NO_HOST) {
            ls_hosts_post_collect(c->parallel->hosts, sources, flats);
            LS_TRY(await_all(c));
        } else {
            LS_TRY(move_flat(c, flats[0], home, 0));
        }
    }
    return LS_OK;
}
