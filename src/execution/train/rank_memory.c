// SPDX-License-Identifier: Apache-2.0
#include "execution/train/rank_memory.h"

#include "base/assert.h"
#include "comm/transport/tree.h"
#include "execution/train/memory.h"

#include <stdio.h>

/* The leaves of a step; more ranks than that are those of local steps on several hosts. */
static uint32_t leaves_for(const ls_session *session, uint32_t ranks)
{
    const uint64_t leaves = ls_run_file_rank_leaves(&session->run, false);
    const bool is_apart = session->run.train.local.steps > 0 && ranks > leaves;
    return (uint32_t)(is_apart ? ls_run_file_rank_leaves(&session->run, true) : leaves);
}

/* One crew of ranks, or a rank that computes alone. */
static void add_crew(ls_ranks_cost *cost, const ls_session *session, uint32_t crews, uint32_t crew)
{
    const uint32_t leaves = leaves_for(session, crews);
    const ls_leaf_range range = ls_leaves_of_rank(leaves, crews, crew);
    const uint32_t shares = session->plan.options.sequence_cut * ls_session_mesh(session).expert;
    const uint32_t buffers =
        ls_tree_range_buffers(leaves, ls_run_file_group(&session->run), range) + shares - 1;
    cost->leaves_min = crew == 0 || range.count < cost->leaves_min ? range.count : cost->leaves_min;
    cost->leaves_max = range.count > cost->leaves_max ? range.count : cost->leaves_max;
    cost->buffers_max = buffers > cost->buffers_max ? buffers : cost->buffers_max;
    cost->buffers += buffers;
}

ls_ranks_cost ls_ranks_cost_of(const ls_session *session, uint32_t ranks)
{
    const ls_memory_plan *m = &session->memory;
    const uint32_t leaves = leaves_for(session, ranks);
    const uint32_t crews = ranks / ls_mesh_crew(ls_session_mesh(session));
    LS_ASSERT(ranks >= 1 && (ranks == 1 || (crews >= 1 && crews <= leaves)));
    ls_ranks_cost cost = {.ranks = ranks, .imbalance = 1.0};
    if (ranks == 1) {
        cost.leaves_min = cost.leaves_max = leaves;
        cost.buffers_max = cost.buffers = m->tree_buffers;
    }
    for (uint32_t crew = 0; ranks > 1 && crew < crews; crew++) {
        add_crew(&cost, session, crews, crew);
    }
    cost.imbalance = ranks > 1 ? (double)cost.leaves_max * crews / leaves : 1.0;
    cost.idle = 1.0 - 1.0 / cost.imbalance;
    cost.gradient_bytes = cost.buffers * m->gradients;
    const uint64_t process = ls_session_process_bytes(session, ls_session_rank_threads(session, ranks));
    cost.rank_bytes = cost.buffers_max * m->gradients + session->work_bytes_max + process;
    const uint64_t side_work = session->evaluation_bytes + session->generation_bytes;
    cost.host_bytes = m->parameters + m->optimizer + m->residuals + cost.gradient_bytes +
                      (crews > 0 ? crews : 1) * session->work_bytes_crew + ranks * process + side_work +
                      session->snapshot_bytes + ls_session_worker_bytes(session) +
                      ls_session_outer_bytes(session);
    /* the trainer is a separate process, and the sums have a separate buffer */
    if (ranks > 1 || session->is_gang) {
        cost.host_bytes += session->process_bytes + (uint64_t)session->layout.float_count * sizeof(float);
    }
    return cost;
}

/* ---- in words ---- */

static void describe_row(const ls_ranks_cost *cost, bool chosen, ls_text *text)
{
    char leaves[32], rank_bytes[32], host_bytes[32];
    if (cost->leaves_min == cost->leaves_max) {
        snprintf(leaves, sizeof leaves, "%u", cost->leaves_max);
    } else {
        snprintf(leaves, sizeof leaves, "%u to %u", cost->leaves_min, cost->leaves_max);
    }
    ls_text_printf(text, "%s %5u  %11s  %9.3f  %6.1f %%  %7u  %12s  %12s\n", chosen ? " >" : "  ",
                   cost->ranks, leaves, cost->imbalance, 100.0 * cost->idle, cost->buffers_max,
                   ls_memory_text(cost->rank_bytes, rank_bytes),
                   ls_memory_text(cost->host_bytes, host_bytes));
}

void ls_ranks_cost_describe(const ls_session *session, ls_text *text)
{
    const uint64_t leaves = ls_run_file_rank_leaves(&session->run, false), most = session->run.job.max_ranks;
    const uint32_t crew = ls_mesh_crew(ls_session_mesh(session));
    const uint32_t last = crew * (uint32_t)(leaves < LS_LEAVES_MAX ? leaves : LS_LEAVES_MAX);
    ls_text_printf(text,
                   "ranks   what %llu leaves cost: a step takes `imbalance` times an even split\n"
                   "   ranks  leaves each  imbalance      idle  buffers   memory/rank   memory/host\n",
                   (unsigned long long)leaves);
    for (uint32_t ranks = crew; ranks <= last; ranks += crew) {
        if (ranks <= most || ranks == session->ranks) {
            const ls_ranks_cost cost = ls_ranks_cost_of(session, ranks);
            describe_row(&cost, ranks == session->ranks, text);
        }
    }
}

json_t *ls_ranks_cost_to_json(const ls_ranks_cost *cost)
{
    return json_pack("{s:i, s:i, s:i, s:f, s:f, s:i, s:i, s:I, s:I, s:I}", "ranks", (int)cost->ranks,
                     "leaves_min", (int)cost->leaves_min, "leaves_max", (int)cost->leaves_max, "imbalance",
                     cost->imbalance, "idle", cost->idle, "buffers_max", (int)cost->buffers_max, "buffers",
                     (int)cost->buffers, "gradient_bytes", (json_int_t)cost->gradient_bytes, "rank_bytes",
                     (json_int_t)cost->rank_bytes, "host_bytes", (json_int_t)cost->host_bytes);
}
