// SPDX-License-Identifier: Apache-2.0
/*
 * Data parallel training over slow links: how many bytes hosts send, and how long a step takes.
 *
 * Every host trains the whole model on its share of the batch. What the hosts exchange is either
 * the sums of gradients of every step, or, with local steps (train.local), by how much the workers'
 * weights have changed after H steps. One exchange of P values between n hosts: each group's values
 * are cut into n shares, and each share is sent, packed, to the host that owns it. The owner adds
 * the groups up, packs the sum and sends it to the other hosts.
 *
 * base/compression.h says how many bytes values take in each form, and how sums are packed. What
 * the runtime sends is the sum of these over its messages; tests compare the two.
 *
 * Packing: a host packs its groups and, of its share, the sum; it unpacks as much of the others,
 * and the sum. top-k takes twice as long as int8, unpacking a seventh (docs/slow-links.md).
 *
 * Sources: Douillard and others, "DiLoCo", 2023 (arXiv 2311.08105);
 * Jaghouar and others, "INTELLECT-1", 2024 (arXiv 2412.01152). Pure; any thread.
 */
#ifndef LS_PLANNING_STEP_LINK_H
#define LS_PLANNING_STEP_LINK_H

#include "base/compression.h"
#include "base/status.h"
#include "model/layout.h"

#include <stdint.h>

typedef struct ls_link_scheme {
    const char *name;    /* "int8", "local 100, int4" */
    ls_compression form; /* of what is sent, both ways */
    uint64_t steps;      /* H, steps from one exchange to the next: 1 without local steps */
} ls_link_scheme;

/* Bytes that all hosts together send in one exchange of `values` values, which are those of
 * `layout`, with padding, or, NULL, in one piece. The sums of each step are packed bucket by
 * bucket, the differences of local steps in one piece. Each host has `groups` / `hosts` groups, or
 * workers; `hosts` divides `groups`. One host sends nothing. */
uint64_t ls_link_bytes_exchange(const ls_link_scheme *scheme, uint64_t values, const ls_layout *layout,
                                uint64_t hosts, uint64_t groups);

/* The question: the same work on each host, and the links between them. */
typedef struct ls_link_setting {
    uint64_t values;         /* trained parameters, >= 1 */
    uint64_t hosts;          /* >= 2; one group, or worker, on each */
    double compute_s;        /* of a step on each host, without the link, > 0 */
    double link_bytes_ps;    /* of each host, each way, > 0 */
    double latency_s;        /* of a message, >= 0 */
    const ls_layout *layout; /* of the values; NULL: not known. Borrowed */
    double pack_s;           /* of packing a value as int8 on each host, >= 0 */
    /* of local steps: train.local.fragments, at most the buckets of the layout; 0: 1 */
    uint32_t fragments;
} ls_link_setting;

typedef struct ls_link_estimate {
    ls_link_scheme scheme;
    double bytes;       /* that a host sends, per step */
    uint32_t fragments; /* those of the setting, if they divide the scheme's steps; else 1 */
    /* that a host sends in one exchange, of a step or the largest fragment */
    double peak_bytes;
    double times;            /* how many times fewer than dense */
    double packing_s;        /* of a step, packing and unpacking */
    double step_s;           /* computing, packing, bytes / link, latencies; nothing overlaps */
    double computing;        /* compute_s / step_s */
    double memory_bytes;     /* more than dense needs, on each host */
    double checkpoint_bytes; /* more than dense writes, in each checkpoint */
} ls_link_estimate;

/* What is compared: dense first, then from the gentlest to the harshest. */
extern const ls_link_scheme ls_link_schemes[];
enum { LS_LINK_SCHEMES = 15 };

/* pack_s of a core with AVX2, and the bytes that a GPU would read and write for a value. */
#define LS_LINK_PACK_CORE_S    1.5e-9
#define LS_LINK_PACK_GPU_BYTES 24.0

/*
 * Memory and checkpoints, for P values:
 *
 *   int8, topk   what compression keeps (ls_compression_flats), as it is before and after a step: 8 P
 *                (n + 1) on each host, topk 8 P (3 n + 1); in checkpoints half of that
 *   local        shared weights and outer momentum beside the worker's own: 8 P; in checkpoints
 *                all workers' weights and moments: 12 P (n - 1) + 8 P
 */
void ls_link_estimate_compute(const ls_link_setting *setting, const ls_link_scheme *scheme,
                              ls_link_estimate *estimate_out);

/* Of these schemes the gentlest with which at least 75 % of the time is spent
 * computing, else the one that computes most; index into ls_link_schemes. */
uint32_t ls_link_choose(const ls_link_setting *setting);

/* Bytes per second from "100Mbit", "1Gbit", "12.5MB/s", "1GB/s", with "bit/s" and "bps" for "bit".
 * Errors: LS_ERR_INVALID naming what is allowed; 1 kbit/s to 10 Tbit/s. */
LS_MUST_CHECK ls_status ls_link_parse(const char *option, const char *text, double *bytes_ps_out);

#endif
