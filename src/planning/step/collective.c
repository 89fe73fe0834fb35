// SPDX-License-Identifier: Apache-2.0
#include "planning/step/collective.h"

#include <math.h>

/* Assumed where nothing is published: 10 Gb/s Ethernet. */
static const double unknown_nic_bytes_ps = 1.25e9;

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

const char *ls_collective_algorithm_name(ls_collective_algorithm algorithm)
{
    static const char *const names[] = {"none", "ring", "tree", "hierarchical", "in the network"};
    return names[algorithm];
}

int64_t ls_node_domain(const ls_node *node)
{
    return max_i64(1, max_i64(node->count, node->accelerator->scaleup_domain));
}

/* The rate between two GPUs of a node: scale-up where the group stays within its domain, PCIe
 * else. */
static double link_bytes_ps(const ls_node *node, int64_t span)
{
    const ls_accelerator *gpu = node->accelerator;
    if (gpu->scaleup_bytes_ps > 0 && span <= gpu->scaleup_domain) {
        return gpu->scaleup_bytes_ps;
    }
    return gpu->pcie_bytes_ps > 0 ? gpu->pcie_bytes_ps : unknown_nic_bytes_ps;
}

static double nic_bytes_ps(const ls_node *node)
{
    if (node->nic_bytes_ps > 0) {
        return node->nic_bytes_ps;
    }
    return node->accelerator->nic_bytes_ps > 0 ? node->accelerator->nic_bytes_ps : unknown_nic_bytes_ps;
}

ls_group ls_group_place(const ls_node *node, const ls_stack *stack, int64_t members, int64_t stride)
{
    const int64_t domain = ls_node_domain(node);
    const int64_t per_node = stride >= domain ? 1 : min_i64(members, max_i64(1, domain / stride));
    const double nic = nic_bytes_ps(node) * stack->nic_efficiency;
    return (ls_group){.members = members,
                      .members_per_node = per_node,
                      .nodes = (members + per_node - 1) / per_node,
                      .link_bytes_ps = link_bytes_ps(node, per_node * stride) * stack->scaleup_efficiency,
                      .nic_bytes_ps = nic,
                      .gather_bytes_ps = stack->nics_per_gather * nic,
                      .link_alpha_s = stack->scaleup_alpha_s,
                      .nic_alpha_s = stack->nic_alpha_s,
                      .in_network_reduction = stack->in_network_reduction};
}

/* `passes` over the payload: 2 for an all-reduce, 1 for its halves. */
static ls_collective_cost within_node(const ls_group *group, double bytes, double passes)
{
    const double n = (double)group->members, alpha = group->link_alpha_s;
    const double wire = passes * (n - 1) / n * bytes;
    const double latency = passes * (n - 1) * alpha / 4 + alpha;
    if (passes > 1 && group->in_network_reduction) {
        return (ls_collective_cost){bytes / group->link_bytes_ps + 2 * alpha, 2 * alpha, bytes,
                                    LS_COLLECTIVE_IN_NETWORK};
    }
    const double tree_latency = passes * log2(n) * alpha;
    const double tree = passes * bytes / group->link_bytes_ps + tree_latency;
    const double ring = wire / group->link_bytes_ps + latency;
    return passes > 1 && tree < ring
               ? (ls_collective_cost){tree, tree_latency, passes * bytes, LS_COLLECTIVE_TREE}
               : (ls_collective_cost){ring, latency, wire, LS_COLLECTIVE_RING};
}

static ls_collective_cost between_nodes(const ls_group *group, double bytes, double passes)
{
    const double k = (double)group->nodes, j = (double)group->members_per_node;
    const bool in_network = passes > 1 && group->in_network_reduction;
    double node_bytes_ps = j * group->nic_bytes_ps;
    if (passes == 1 && group->gather_bytes_ps > 0 && group->gather_bytes_ps < node_bytes_ps) {
        node_bytes_ps = group->gather_bytes_ps;
    }
    const double between = (in_network ? bytes : passes * (k - 1) / k * bytes) / node_bytes_ps;
    const double inside = passes * (j - 1) / j * bytes / group->link_bytes_ps;
    const double ring_latency = passes * ((double)group->members - 1) * group->nic_alpha_s / 4;
    const double tree_latency = passes * (log2(k) * group->nic_alpha_s + (j - 1) * group->link_alpha_s / 4);
    const double latency = fmin(ring_latency, tree_latency) + group->nic_alpha_s;
    const double n = (double)group->members;
    return (ls_collective_cost){fmax(between, inside) + latency, latency, passes * (n - 1) / n * bytes,
                                in_network                    ? LS_COLLECTIVE_IN_NETWORK
                                : j > 1                       ? LS_COLLECTIVE_HIERARCHICAL
                                : ring_latency < tree_latency ? LS_COLLECTIVE_RING
                                                              : LS_COLLECTIVE_TREE};
}

static ls_collective_cost cost(const ls_group *group, double bytes, double passes)
{
    if (group->members <= 1 || bytes <= 0) {
        return (ls_collective_cost){.algorithm = LS_COLLECTIVE_NONE};
    }
    return group->nodes == 1 ? within_node(group, bytes, passes) : between_nodes(group, bytes, passes);
}

ls_collective_cost ls_all_reduce_cost(const ls_group *group, double bytes)
{
    return cost(group, bytes, 2);
}

ls_collective_cost ls_all_gather_cost(const ls_group *group, double bytes)
{
    return cost(group, bytes, 1);
}

ls_collective_cost ls_all_to_all_cost(const ls_group *group, double bytes)
{
    if (group->members <= 1 || bytes <= 0) {
        return (ls_collective_cost){.algorithm = LS_COLLECTIVE_NONE};
    }
    const double n = (double)group->members, j = (double)group->members_per_node;
    const double inside = (j - 1) / n * bytes / group->link_bytes_ps;
    const double outside = (n - j) / n * bytes / group->nic_bytes_ps;
    const double latency = group->nodes > 1 ? group->nic_alpha_s : group->link_alpha_s;
    return (ls_collective_cost){fmax(inside, outside) + latency, latency, (n - 1) / n * bytes,
                                group->nodes > 1 ? LS_COLLECTIVE_HIERARCHICAL : LS_COLLECTIVE_RING};
}

double ls_send_s(const ls_node *node, const ls_stack *stack, double bytes, bool between_nodes)
{
    if (between_nodes) {
        return bytes / (nic_bytes_ps(node) * stack->nic_efficiency) + stack->nic_alpha_s;
    }
    return bytes / (link_bytes_ps(node, 2) * stack->scaleup_efficiency) + stack->scaleup_alpha_s;
}
