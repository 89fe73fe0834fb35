// SPDX-License-Identifier: Apache-2.0
/*
 * Cluster descriptions: "64x8", or a YAML file.
 *
 *   NODESxGPUS   equal nodes, 16 under a leaf switch, 8 leaves under a spine; the GPUs of a node
 *                form one island
 *
 *   nodes:                   # groups of equal nodes, in order
 *     - names: h[000-127]    # a name, or a pattern with one range, with as many digits as are
 *                            written
 *       gpus: 8              # 1 to 64
 *       kind: h100           # of GPU; default gpu
 *       island: 8            # GPUs that share the fastest link; default all of a node
 *       cpus: 112            # cores; default 8 per GPU
 *       memory: 2TiB         # default 64 GiB per GPU
 *       leaf: a              # all nodes under this one switch; default: a new leaf every
 *                            nodes_per_leaf
 *       nodes_per_leaf: 16
 *       spine: left          # all leaves under this one; default: a new spine every
 *                            leaves_per_spine
 *       leaves_per_spine: 8
 *       spot: false          # may be taken away
 *
 * A leaf named in two groups is the same switch, under the same spine. Everything lives in the
 * arena.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_CLUSTER_H
#define LS_ORCHESTRATION_SIMULATE_CLUSTER_H

#include "base/yaml.h"
#include "orchestration/policy/topology.h"

/* Reads a description: NODESxGPUS, otherwise the name of a file. Errors: LS_ERR_INVALID (not NxG, a
 * value out of range, an invalid file, named with its line), LS_ERR_NOT_FOUND, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_cluster_parse(ls_arena *arena, const char *spec, ls_policy_cluster *cluster_out);

/* Whether the text has the form NODESxGPUS, whatever the numbers: then cores and memory are not
 * known. */
bool ls_cluster_spec_is_plain(const char *spec);

/* The same from a parsed document. */
LS_MUST_CHECK ls_status ls_cluster_read(ls_arena *arena, const ls_document *doc,
                                        ls_policy_cluster *cluster_out);

/* GPUs of all nodes. */
uint32_t ls_cluster_devices(const ls_policy_cluster *cluster);
/* The index of a kind, -1 when no node has it. */
int32_t ls_cluster_kind(const ls_policy_cluster *cluster, const char *kind);

#endif
