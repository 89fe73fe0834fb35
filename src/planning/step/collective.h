// SPDX-License-Identifier: Apache-2.0
/*
 * Collectives: how long a group of GPUs takes to exchange something.
 *
 * Alpha-beta costs: a latency for each step of the algorithm, plus bytes over the slowest link's
 * rate. A group has `members_per_node` members in each of `nodes` nodes. Within a node they
 * use the scale-up network (NVLink and the like; PCIe where there is none), and between nodes
 * each member's own NIC, so a group with j of a node's GPUs has j NICs (rails). Bandwidth and
 * latency are those of the stack that drives them (planning/hardware/stack.h).
 *
 * Sources: ring: Patarasuk and Yuan 2009; double binary tree: Sanders, Speck and Traeff 2009;
 * in-network reduction: Graham et al. 2016 (SHARP). Pure; any thread.
 */
#ifndef LS_PLANNING_STEP_COLLECTIVE_H
#define LS_PLANNING_STEP_COLLECTIVE_H

#include "planning/hardware/stack.h"

typedef struct ls_group {
    int64_t members;          /* >= 1 */
    int64_t members_per_node; /* members = members_per_node * nodes, rounded up */
    int64_t nodes;
    /* each way and per member, inside the node, as the stack reaches it */
    double link_bytes_ps;
    double nic_bytes_ps; /* each way and per member, between nodes */
    /* Of a node together, what a sharded gather reaches between nodes; 0: all of its NICs */
    double gather_bytes_ps;
    double link_alpha_s, nic_alpha_s;
    /* the switch adds (SHARP, NVLS): S instead of 2 S crosses each link */
    bool in_network_reduction;
} ls_group;

/*
 * The group of `members` GPUs that are `stride` apart in the order in which GPUs are numbered
 * (tensor parallel ranks are 1 apart, context parallel ones tp, data parallel ones tp * cp,
 * pipeline stages tp * cp * dp).
 */
ls_group ls_group_place(const ls_node *node, const ls_stack *stack, int64_t members, int64_t stride);

/* GPUs that reach each other over the scale-up network or inside one node, whichever is more: what
 * a group can span without NICs. */
int64_t ls_node_domain(const ls_node *node);

typedef enum ls_collective_algorithm {
    LS_COLLECTIVE_NONE, /* one member, or nothing to send */
    /* inside nodes and between them at the same time, in chunks */
    LS_COLLECTIVE_RING,
    LS_COLLECTIVE_TREE,
    LS_COLLECTIVE_HIERARCHICAL,
    LS_COLLECTIVE_IN_NETWORK
} ls_collective_algorithm;
const char *ls_collective_algorithm_name(ls_collective_algorithm algorithm);

typedef struct ls_collective_cost {
    double time_s;
    double latency_s;  /* the part that does not depend on the size */
    double wire_bytes; /* sent by one member */
    ls_collective_algorithm algorithm;
} ls_collective_cost;

/*
 * All of them: `bytes` is the whole payload, i.e. what each member has afterwards (all-reduce,
 * all-gather), has before (reduce-scatter), or sends in all (all-to-all).
 *
 *   ring all-reduce     2 (n-1)/n S / B + 2 (n-1) a_hop + a      a_hop = a / 4
 *   tree all-reduce     2 S / B + 2 log2(n) a
 *   reduce-scatter, all-gather     half of the ring's
 *   over k nodes of j   max(inside: 2 (j-1)/j S / B_link, between: 2 (k-1)/k S / (j B_nic)) +
 *                       latencies
 *   in the network      S / B + 2 a
 *   all-to-all          (n-1)/n S / B; the share that leaves the node over the NICs
 */
ls_collective_cost ls_all_reduce_cost(const ls_group *group, double bytes);
/* reduce-scatter costs the same */
ls_collective_cost ls_all_gather_cost(const ls_group *group, double bytes);
ls_collective_cost ls_all_to_all_cost(const ls_group *group, double bytes);
/* From one pipeline stage's GPU to the next stage's: over a NIC when that is on another node. */
double ls_send_s(const ls_node *node, const ls_stack *stack, double bytes, bool between_nodes);

#endif
