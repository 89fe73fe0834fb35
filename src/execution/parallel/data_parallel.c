// SPDX-License-Identifier: Apache-2.0
#include "execution/parallel/data_parallel_internal.h"

#include "base/assert.h"
#include "execution/parallel/compressed.h"
#include "execution/parallel/crew_room.h"
#include "execution/parallel/fetch.h"

#include <stdlib.h>
#include <string.h>

_Static_assert((int)LS_TREE_ADD == (int)LS_TREE_SUM_ADD, "programs of the tree are programs of the kernel");
_Static_assert((int)LS_TREE_INPUTS_MAX == (int)LS_TREE_SUM_INPUTS_MAX, "and have room for as many inputs");

static const double default_timeout_s = 600.0;

uint32_t ls_data_parallel_buffers(uint32_t leaves, uint32_t group, uint32_t parts, uint32_t part)
{
    return ls_tree_range_buffers(leaves, group, ls_leaves_of_rank(leaves, parts, part));
}

uint64_t ls_data_parallel_exchange_bytes(const ls_layout *layout, uint32_t local_parts)
{
    return ls_exchange_bytes(layout, local_parts);
}

/* The largest value that stages exchange: the stream of a micro-batch. */
static uint64_t value_bytes(const ls_plan *plan)
{
    return (uint64_t)(plan->rows * plan->config.width) * sizeof(float);
}

uint64_t ls_data_parallel_room_bytes(const ls_plan *plan, ls_mesh mesh, uint32_t local_parts)
{
    const uint32_t crew = ls_mesh_crew(mesh); /* a host may have only some members of a crew */
    return ls_crew_room_bytes(mesh, (local_parts + 2 * crew - 2) / crew, value_bytes(plan));
}

uint32_t ls_data_parallel_rank(const ls_data_parallel *p)
{
    return p->view.first_rank + p->view.rank;
}

uint32_t ls_data_parallel_part_count(const ls_data_parallel *p)
{
    return p->parts;
}

const float *ls_data_parallel_sums(const ls_data_parallel *p)
{
    return p->target;
}

double ls_data_parallel_wait_s(const ls_data_parallel *p)
{
    const uint64_t crew_ns = p->crew_room ? ls_crew_room_get_stats(p->crew_room).wait_ns : 0;
    return 1e-9 * (double)(p->view.wait_ns + crew_ns);
}

ls_rank_traffic ls_data_parallel_traffic(const ls_data_parallel *p)
{
    const ls_crew_room_stats crew =
        p->crew_room ? ls_crew_room_get_stats(p->crew_room) : (ls_crew_room_stats){0};
    const ls_hosts_sent_so_far sent = p->hosts ? ls_hosts_get_sent(p->hosts) : (ls_hosts_sent_so_far){0};
    return (ls_rank_traffic){.bytes = {[LS_AXIS_TENSOR] = crew.group_bytes[LS_CREW_TENSOR],
                                       [LS_AXIS_CONTEXT] = crew.group_bytes[LS_CREW_CONTEXT],
                                       [LS_AXIS_PIPELINE] = crew.sent_bytes,
                                       [LS_AXIS_EXPERT] = crew.group_bytes[LS_CREW_EXPERT],
                                       [LS_AXIS_DATA] = p->read_bytes},
                             .link_bytes = sent.bytes - p->sent_before.bytes,
                             .dense_bytes = sent.dense - p->sent_before.dense,
                             .link_s = 1e-9 * (double)(sent.ns - p->sent_before.ns),
                             .stage_wait_s = 1e-9 * (double)crew.stage_wait_ns};
}

bool ls_data_parallel_fetches(const ls_data_parallel *p)
{
    return p->fetch && !ls_fetch_is_whole(p->mesh);
}

ls_status ls_data_parallel_before_step(ls_data_parallel *p, uint32_t plan_step)
{
    return p->fetch ? ls_fetch_before(p->fetch, plan_step) : LS_OK;
}

ls_status ls_data_parallel_hold(ls_data_parallel *p)
{
    return p->fetch ? ls_fetch_hold(p->fetch) : LS_OK;
}

bool ls_data_parallel_holds(const ls_data_parallel *p)
{
    return p->fetch && ls_fetch_is_whole(p->mesh);
}

/* Operations are numbered by step, not counted, so that a process that joins later uses the same
 * numbers as the others. */
ls_flight_record *ls_data_parallel_record(ls_data_parallel *p, ls_comm_kind kind, uint32_t index,
                                          uint64_t fingerprint, uint64_t count, uint32_t line)
{
    if (!ls_flight_mapped || p->parts == 1 || p->is_resumed) {
        return NULL;
    }
    const ls_flight_call call = {
        .seq = p->view.step * (p->bucket_count + 1) + index + 1,
        .fingerprint = fingerprint,
        .count = count,
        .comm_id = p->comm_id,
        .peer = UINT32_MAX,
        .site = ls_flight_site(__FILE__, line),
        .kind = (uint8_t)kind,
        .dtype = LS_F32,
        .reduction = LS_COMM_SUM,
        .slot = p->flight_slot,
    };
    return ls_flight_begin(&call);
}

ls_status ls_node_sum_init(ls_node_sum *sum, uint32_t leaves, uint32_t first, const ls_leaf_range *nodes,
                           uint32_t count)
{
    ls_leaf_range *shifted = calloc(count, sizeof *shifted);
    sum->program = calloc(2 * (size_t)count, sizeof *sum->program);
    if (!shifted || !sum->program) {
        free(shifted);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the order of %u sums of gradients", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        shifted[i] = (ls_leaf_range){nodes[i].first - first, nodes[i].count};
    }
    uint32_t depth = 0;
    const uint32_t length = ls_tree_program(leaves, shifted, count, sum->program, &depth);
    sum->sum = (ls_tree_sum){.program = sum->program, .length = length, .depth = depth, .input_count = count};
    free(shifted);
    return LS_OK;
}

/* ---- life ---- */

/* Lists the local nodes of a stage that are handed over, in the order of leaves, and the buffers
 * that hold them. Node i of a part is in its gradient buffer i (ls_tree_handover); the members of a
 * crew on this host hand over the nodes of their leader here. */
static void make_inputs(const ls_data_parallel *p, const ls_data_parallel_options *options,
                        ls_stage_sums *stage)
{
    const uint32_t in_stage = ls_mesh_stage_ranks(p->mesh), crew = ls_mesh_crew(p->mesh);
    for (uint32_t local = 0; local < options->local_parts; local += in_stage) {
        const uint32_t part = options->first_part + local;
        if (p->stage_count > 1 && part % crew / in_stage != (uint32_t)(stage - p->stages)) {
            continue; /* a crew has one stage there */
        }
        if (p->stage_count == 1 && ls_mesh_local_leader(p->mesh, options->first_part, local) != local) {
            continue; /* all of its stages are here */
        }
        const uint32_t leader = ls_mesh_local_leader(p->mesh, options->first_part, local);
        ls_leaf_range nodes[LS_TREE_NODES_MAX];
        const ls_leaf_range leaves = ls_mesh_leaves(p->mesh, options->leaves, options->parts, part);
        const uint32_t side = options->plan->options.expert_degree;
        const uint32_t count = ls_tree_handover(options->leaves, p->group, leaves, side, nodes);
        for (uint32_t i = 0; i < count; i++) {
            stage->local_nodes[stage->local_count] = nodes[i];
            stage->local_inputs[stage->local_count++] =
                p->buffers[(size_t)leader * LS_GRADIENT_BUFFERS_MAX + i];
        }
    }
}

/* Lists the gradient buffers of the local parts: in a crew, those of its leader here. */
static void list_buffers(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    const uint32_t crew = ls_mesh_crew(p->mesh);
    for (uint32_t local = 0; local < options->local_parts; local++) {
        const uint32_t leader = ls_mesh_local_leader(p->mesh, options->first_part, local);
        const uint32_t buffers = ls_data_parallel_buffers(options->leaves, p->group, options->parts / crew,
                                                          (options->first_part + local) / crew) +
                                 p->more_pieces;
        LS_ASSERT(buffers <= LS_GRADIENT_BUFFERS_MAX && buffers <= LS_TREE_NODES_MAX);
        for (uint32_t i = 0; i < buffers; i++) {
            p->buffers[(size_t)local * LS_GRADIENT_BUFFERS_MAX + i] =
                options->gradient(options->context, leader, i);
        }
    }
}

/* Lists the buckets in the order in which the backward pass finishes them, from the last to the
 * first, whatever share of the model this rank has. So the order is the same on all ranks, and
 * counters can count buckets instead of naming them. */
static void order_buckets(ls_data_parallel *p, const ls_plan *plan)
{
    for (uint32_t i = 0; i < p->bucket_count; i++) {
        const uint32_t bucket = p->bucket_count - 1 - i;
        p->order[i] =
            (ls_ready_bucket){.bucket = bucket, .last_step = ls_plan_last_gradient_step(plan, bucket)};
    }
}

static ls_status alloc_tables(ls_data_parallel *p, uint32_t local_parts)
{
    p->inputs = calloc(LS_TREE_INPUTS_MAX, sizeof *p->inputs);
    p->order = calloc(p->bucket_count, sizeof *p->order);
    p->holders = calloc(local_parts, sizeof *p->holders);
    p->buffers = calloc((size_t)local_parts * LS_GRADIENT_BUFFERS_MAX, sizeof *p->buffers);
    if (!p->inputs || !p->order || !p->holders || !p->buffers) {
        return ls_fail(LS_ERR_MEMORY,
                       "not enough memory for the tables of data parallelism (%u buckets of parameters)",
                       p->bucket_count);
    }
    return LS_OK;
}

static void set_holders(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    for (uint32_t i = 0; i < options->local_parts; i++) {
        p->holders[i] = options->holders ? options->holders[i] : (uint16_t)i;
    }
    p->view.holders = p->holders;
}

/* Waits spin only if every thread of every local rank has its own core; otherwise a spinning rank
 * would take the core of the rank it waits for. */
static ls_exchange_view view_of(const ls_data_parallel_options *options)
{
    const uint32_t waiters = options->local_parts * (options->threads > 0 ? options->threads : 1);
    return (ls_exchange_view){
        .exchange = options->exchange,
        .local_parts = options->local_parts,
        .first_part = options->first_part,
        .rank = options->rank,
        .first_rank = options->first_rank,
        .epoch = options->epoch,
        .spins = ls_wait_spins(waiters, ls_wait_cores()),
        .timeout_s = options->timeout_s > 0.0 ? options->timeout_s : default_timeout_s,
        .abort = options->abort,
        .aborted = options->aborted,
        .look = options->look,
        .context = options->context,
    };
}

/* As in step 0, in which the most is kept. */
static ls_compression first_compression(const ls_data_parallel_options *options)
{
    ls_compression first = options->compression;
    first.keep = ls_compression_keep(first.keep, options->compression_warmup, 0);
    return first;
}

/* Opens the transfers to other hosts, if there are any. */
static ls_status open_hosts(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    if (options->local_parts == options->parts) {
        return LS_OK;
    }
    LS_ASSERT(options->comm);
    uint32_t *order = calloc(p->bucket_count, sizeof *order);
    if (!order) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of %u buckets (groups of parameters)",
                       p->bucket_count);
    }
    for (uint32_t i = 0; i < p->bucket_count; i++) {
        order[i] = p->order[i].bucket;
    }
    const ls_compression first = first_compression(options);
    const ls_hosts_options hosts = {
        .layout = p->layout,
        .comm = options->comm,
        .leaves = options->leaves,
        .ranks = p->parts,
        .rank = options->first_part + ls_first_held(options),
        .first_rank = options->first_part,
        .local_ranks = options->local_parts,
        .order = order,
        .group = options->group,
        .compression = first,
        .sums = options->changes.kind ? options->changes
                : options->group > 0  ? ls_compression_of_sum(first, options->leaves / options->group)
                                      : first,
        .queue = options->queue,
        .mesh = p->mesh,
        .stages = options->stages,
        .shadows = p->shadow};
    const ls_status status = ls_hosts_create(&hosts, &p->hosts);
    free(order);
    LS_TRY(status);
    p->reduce_number = calloc(ls_hosts_groups(p->hosts), sizeof *p->reduce_number);
    return p->reduce_number ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a table of groups");
}

static bool is_given_up(void *context)
{
    const ls_data_parallel *p = context;
    return atomic_load(&p->view.exchange->given_up) == p->view.round + 1;
}

static bool look(void *context)
{
    const ls_data_parallel *p = context;
    return !p->view.look || p->view.look(p->view.context);
}

static ls_status why_aborted(void *context)
{
    const ls_data_parallel *p = context;
    return p->view.aborted ? p->view.aborted(p->view.context) : LS_OK;
}

/* Opens the room of the crew of the part that this process runs. */
static ls_status open_crew(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    const uint32_t crew = ls_mesh_crew(p->mesh), local = ls_first_held(options);
    if (crew == 1) {
        return LS_OK;
    }
    const uint32_t in_stage = ls_mesh_stage_ranks(p->mesh);
    LS_ASSERT(p->parts % crew == 0 && options->first_part % in_stage == 0 &&
              options->local_parts % in_stage == 0);
    const ls_crew_room_options room = {
        .mesh = p->mesh,
        .rank = options->first_part + local,
        .comm = p->hosts ? options->comm : NULL,
        .hosts = p->hosts ? ls_hosts_table(p->hosts) : NULL,
        .host_count = p->hosts ? ls_hosts_count(p->hosts) : 0,
        .host = {options->first_part, options->local_parts},
        .crew = (options->first_part + local) / crew - options->first_part / crew,
        .epoch = options->epoch,
        .memory = options->rooms,
        .value_bytes = value_bytes(options->plan),
        .spins = p->view.spins,
        .timeout_s = p->view.timeout_s,
        .abort = options->abort,
        .aborted = why_aborted,
        .look = look,
        .is_given_up = is_given_up,
        .context = p,
    };
    return ls_crew_room_open(&room, &p->crew_room);
}

const ls_crew *ls_data_parallel_crew(const ls_data_parallel *p)
{
    return p->crew_room ? ls_crew_room_crew(p->crew_room) : NULL;
}

ls_status ls_data_parallel_await_crew(ls_data_parallel *p)
{
    return p->crew_room ? ls_crew_room_await(p->crew_room) : LS_OK;
}

ls_status ls_data_parallel_meet_crew(ls_data_parallel *p)
{
    return p->crew_room ? ls_crew_room_meet(p->crew_room) : LS_OK;
}

/* The sums that leave this host: its canonical nodes, each over a consecutive run of local nodes.
 * The local nodes lie inside canonical nodes of the host, because a part is a sub-range of the
 * host. */
static ls_status make_node_sums(ls_stage_sums *stage, const ls_host_leaves *host)
{
    stage->node_sums = calloc(host->node_count + 1, sizeof *stage->node_sums);
    stage->node_first = calloc(host->node_count + 1, sizeof *stage->node_first);
    if (!stage->node_sums || !stage->node_first) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the order of %u sums of gradients",
                       host->node_count);
    }
    uint32_t from = 0;
    for (; stage->node_count < host->node_count; stage->node_count++) {
        const ls_leaf_range node = host->nodes[stage->node_count];
        uint32_t count = 0;
        while (from + count < stage->local_count &&
               stage->local_nodes[from + count].first < node.first + node.count) {
            count++;
        }
        stage->node_first[stage->node_count] = from;
        LS_TRY(ls_node_sum_init(&stage->node_sums[stage->node_count], node.count, node.first,
                                stage->local_nodes + from, count));
        from += count;
    }
    return LS_OK;
}

/* The sum over all leaves, as the owner of a slice makes it: from the local nodes of its own host,
 * and one partial sum per canonical node of each other host. Both are nodes of the same tree, so
 * the remaining additions are those of the tree, and every owner on every host gets the same
 * bits. */
static ls_status make_whole_sum(ls_data_parallel *p, const ls_data_parallel_options *options,
                                ls_stage_sums *stage)
{
    ls_leaf_range *nodes = calloc(LS_TREE_INPUTS_MAX, sizeof *nodes);
    if (!nodes) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the order in which gradients are summed");
    }
    uint32_t count = 0;
    const uint32_t host_count = p->hosts ? ls_hosts_count(p->hosts) : 1;
    for (uint32_t i = 0; i < host_count; i++) {
        const bool here = !p->hosts || i == ls_hosts_self(p->hosts);
        const ls_host_leaves *there =
            here ? NULL : ls_hosts_leaves(p->hosts, i, (uint32_t)(stage - p->stages));
        const uint32_t more = here ? stage->local_count : there->node_count;
        LS_ASSERT(count + more <= LS_TREE_INPUTS_MAX);
        memcpy(nodes + count, here ? stage->local_nodes : there->nodes, more * sizeof *nodes);
        count += more;
    }
    ls_status status = ls_node_sum_init(&stage->whole, p->leaf_count, 0, nodes, count);
    if (status == LS_OK && options->group > 0) {
        status = ls_compressed_create(p, options, nodes, count, &p->compressed);
    }
    free(nodes);
    return status;
}

/* On one host all stages are together, so all buckets are added up alike. */
static void find_stages(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    p->stage_count = p->hosts ? ls_mesh_crew(p->mesh) / ls_mesh_stage_ranks(p->mesh) : 1;
    for (uint32_t at = 0; at < p->bucket_count; at++) {
        p->order[at].stage = p->stage_count > 1 ? options->stages[p->order[at].bucket] : 0;
    }
}

static ls_status make_stages(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    p->stages = calloc(p->stage_count, sizeof *p->stages);
    for (uint32_t i = 0; p->stages && i < p->stage_count; i++) {
        ls_stage_sums *stage = &p->stages[i];
        stage->local_inputs = calloc(LS_TREE_INPUTS_MAX, sizeof *stage->local_inputs);
        stage->local_nodes = calloc(LS_TREE_INPUTS_MAX, sizeof *stage->local_nodes);
        if (!stage->local_inputs || !stage->local_nodes) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory for the order in which gradients are summed");
        }
        make_inputs(p, options, stage);
        if (p->hosts) {
            LS_TRY(make_node_sums(stage, ls_hosts_leaves(p->hosts, ls_hosts_self(p->hosts), i)));
        }
        LS_TRY(make_whole_sum(p, options, stage));
    }
    return p->stages ? LS_OK : ls_fail(LS_ERR_MEMORY, "no memory for a table of %u stages", p->stage_count);
}

static void release_stages(ls_data_parallel *p)
{
    for (uint32_t i = 0; p->stages && i < p->stage_count; i++) {
        ls_stage_sums *stage = &p->stages[i];
        for (uint32_t k = 0; stage->node_sums && k < stage->node_count; k++) {
            free(stage->node_sums[k].program);
        }
        free(stage->node_sums);
        free(stage->node_first);
        free(stage->whole.program);
        free(stage->local_inputs);
        free(stage->local_nodes);
    }
    free(p->stages);
}

/* Stores what recovery needs to know about the area. All processes write the same values, except
 * `workers`, which becomes the maximum. */
static void describe_exchange(const ls_data_parallel *p, uint32_t threads)
{
    ls_exchange *exchange = p->view.exchange;
    uint32_t seen = atomic_load(&exchange->workers);
    while (seen < threads && !atomic_compare_exchange_weak(&exchange->workers, &seen, threads)) {
    }
    atomic_store(&exchange->local_parts, p->view.local_parts);
    atomic_store(&exchange->block_count, p->block_count);
    atomic_store(&exchange->room, p->room);
    atomic_store(&exchange->crew, ls_mesh_crew(p->mesh));
}

/* The order matters: hosts need the order of buckets, the parts need to know whether there are
 * other hosts, and the sums need the local nodes and the table of hosts. */
static ls_status prepare(ls_data_parallel *p, const ls_data_parallel_options *options)
{
    LS_TRY(alloc_tables(p, options->local_parts));
    set_holders(p, options);
    list_buffers(p, options);
    order_buckets(p, options->plan);
    LS_TRY(open_hosts(p, options));
    LS_TRY(open_crew(p, options));
    find_stages(p, options);
    p->can_resume = p->has_sums && p->room > 0;
    LS_TRY(ls_parts_make(p));
    LS_TRY(make_stages(p, options));
    if (p->hosts && p->zero >= 3 && ls_hosts_spreads(p->hosts)) {
        LS_TRY(ls_fetch_create(p, options, &p->fetch));
    }
    return ls_agreement_init(p);
}

ls_status ls_data_parallel_create(const ls_data_parallel_options *options, ls_data_parallel **parallel_out)
{
    LS_ASSERT(options->parts >= 1 && options->parts / ls_mesh_crew(options->mesh) <= options->leaves);
    LS_ASSERT(options->local_parts >= 1 && options->first_part + options->local_parts <= options->parts);
    LS_ASSERT(options->exchange && (uintptr_t)options->exchange % 64 == 0);
    LS_ASSERT(ls_first_held(options) < options->local_parts);
    LS_ASSERT(options->room == 0 || options->room >= options->local_parts);
    ls_data_parallel *p = calloc(1, sizeof *p);
    if (!p) {
        return ls_fail(LS_ERR_MEMORY, "no memory for data parallelism");
    }
    p->layout = options->plan->layout;
    p->bucket_count = p->layout->bucket_count;
    p->parts = options->parts;
    p->comm_id = (uint32_t)LS_DATA_PARALLEL_COMM + (uint32_t)(options->epoch & 0xffffff);
    const bool is_one_host = options->local_parts == options->parts;
    p->zero = is_one_host && options->zero > 1 ? 1 : options->zero;
    p->shadow = options->shadow && options->zero > 0 && options->group == 0 && !is_one_host;
    p->leaf_count = options->leaves;
    p->group = options->group;
    p->more_pieces = options->plan->options.sequence_cut * options->plan->options.expert_degree - 1;
    p->mesh = options->mesh;
    p->team_epoch = options->team_epoch;
    p->marks_of = options->marks;
    p->fault_injection = options->fault_injection;
    p->target = options->sums;
    p->has_sums = options->sums != NULL;
    p->view = view_of(options);
    p->room = options->is_alone ? 0 : options->room > 0 ? options->room : options->local_parts;
    p->block_sums = ls_exchange_block_sums(p->view.exchange, p->room);
    p->block_count = ls_blocks_before(p->layout, p->bucket_count);
    const ls_status status = prepare(p, options);
    if (status != LS_OK) {
        ls_data_parallel_destroy(p);
        return status;
    }
    describe_exchange(p, options->threads > 0 ? options->threads : LS_UNDO_WORKERS);
    if (p->parts > 1) {
        p->flight_slot = ls_flight_join(p->comm_id, p->own->part.number, p->parts, "steps");
    }
    *parallel_out = p;
    return LS_OK;
}

void ls_data_parallel_destroy(ls_data_parallel *p)
{
    if (!p) {
        return;
    }
    ls_flight_leave(p->flight_slot);
    ls_flight_leave(p->view.flight_slot);
    ls_agreement_release(p);
    ls_crew_room_close(p->crew_room);
    ls_fetch_destroy(p->fetch);
    ls_hosts_destroy(p->hosts);
    ls_parts_release(p);
    ls_compressed_destroy(p->compressed);
    release_stages(p);
    free(p->reduce_number);
    free(p->inputs);
    free(p->order);
    free(p->holders);
    free(p->buffers);
    free(p);
}
