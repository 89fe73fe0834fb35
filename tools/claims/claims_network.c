// SPDX-License-Identifier: Apache-2.0
/* Claims about networks and the accelerators on them. */
#include "claims_internal.h"
#include "planning/step/collective.h"
#include "planning/step/search.h"

#include <math.h>

#define HUGE_BYTES 1e15 /* so large that latency is negligible */

/* `members` in as many nodes, each with its own link; no latency, everything reached. */
static ls_group ideal_group(int64_t members, int64_t per_node, double link_bytes_ps, double nic_bytes_ps)
{
    return (ls_group){.members = members,
                      .members_per_node = per_node,
                      .nodes = members / per_node,
                      .link_bytes_ps = link_bytes_ps,
                      .nic_bytes_ps = nic_bytes_ps};
}

static double volume_factor(int64_t members)
{
    const ls_group group = ideal_group(members, members, 1.0, 1.0);
    return 2.0 * ls_all_gather_cost(&group, 1.0).wire_bytes; /* both halves of a ring are alike */
}

static ls_status check_ring(const ls_claim_desk *desk, ls_claim *claim)
{
    const double two = ls_claim_put(claim, "2", volume_factor(2));
    const double eight = ls_claim_put(claim, "8", volume_factor(8));
    const double sixty_four = ls_claim_put(claim, "64", volume_factor(64));
    const double many = ls_claim_put(claim, "16384", volume_factor(16384));
    ls_claim_say(desk, claim, many <= 2.0 ? LS_CLAIM_HOLDS : LS_CLAIM_DOES_NOT_HOLD,
                 "With 2 GPUs it sends %.2f times the buffer, with 8 %.2f, with 64 %.5f, with 16,384 %.5f.",
                 two, eight, sixty_four, many);
    return LS_OK;
}

static ls_status check_latency(const ls_claim_desk *desk, ls_claim *claim)
{
    ls_group ring = ideal_group(16384, 16384, 1.0, 1.0), tree = ideal_group(16384, 1, 1.0, 1.0);
    ring.link_alpha_s = tree.nic_alpha_s = 20e-6;
    const double small_ring = 2e3 * (63.0 * ring.link_alpha_s / 4 + ring.link_alpha_s);
    const double ring_ms =
        ls_claim_put(claim, "ring_ms", 2e3 * ls_all_gather_cost(&ring, HUGE_BYTES).latency_s);
    const double tree_ms =
        ls_claim_put(claim, "tree_ms", 1e3 * ls_all_reduce_cost(&tree, HUGE_BYTES).latency_s);
    ls_claim_say(desk, claim, ring_ms > 10.0 * small_ring ? LS_CLAIM_DOES_NOT_HOLD : LS_CLAIM_HOLDS,
                 "The bytes stay below twice the buffer; the hops do not. A ring makes 2 (N - 1) of them one "
                 "after the other: with 16,384 GPUs %.0f ms for an all-reduce, however small. That is why "
                 "trees and hierarchies are used (%.1f ms).",
                 ring_ms, tree_ms);
    return LS_OK;
}

static double rate_GBs(const ls_group *group)
{
    return HUGE_BYTES / ls_all_reduce_cost(group, HUGE_BYTES).time_s / 1e9;
}

static ls_status check_64_gpus(const ls_claim_desk *desk, ls_claim *claim)
{
    const double nic = desk->h100->nic_bytes_ps;
    const ls_group flat = ideal_group(64, 1, 1.0, 8.0 * nic), one = ideal_group(64, 1, 1.0, nic);
    const ls_group nodes = ideal_group(64, 8, desk->h100->accelerator->scaleup_bytes_ps, nic);
    const double flat_rate = ls_claim_put(claim, "flat_GBs", rate_GBs(&flat));
    const double node_rate = ls_claim_put(claim, "hierarchical_GBs", rate_GBs(&nodes));
    const double one_rate = ls_claim_put(claim, "one_nic_GBs", rate_GBs(&one));
    ls_claim_say(
        desk, claim, ls_claim_compare(200.0, flat_rate),
        "3.2 Tb/s are 400 GB/s for a node of eight; 400 / (2 * 63/64) is %.1f GB/s of buffer for a ring over "
        "all 64 that uses the whole rate. Rings inside and between eight nodes reach %.1f; a single GPU with "
        "its own NIC reaches %.1f. The claim has to say which of the three it means.",
        flat_rate, node_rate, one_rate);
    return LS_OK;
}

static ls_status check_nvlink(const ls_claim_desk *desk, ls_claim *claim)
{
    const ls_accelerator *b200 = NULL;
    LS_TRY(ls_catalogue_find_accelerator(&desk->catalogue, "b200", &b200));
    const double h100 = ls_claim_put(claim, "h100_GBs", desk->h100->accelerator->scaleup_bytes_ps / 1e9);
    const double next = ls_claim_put(claim, "b200_GBs", b200->scaleup_bytes_ps / 1e9);
    ls_claim_say(desk, claim, ls_claim_compare(900.0, h100),
                 "These are a GPU's links in both directions together. Each way it is %.0f and %.0f GB/s per "
                 "GPU, through the switch and to all others at once, not between a pair.",
                 h100, next);
    return LS_OK;
}

static ls_status check_infiniband(const ls_claim_desk *desk, ls_claim *claim)
{
    const double nic = desk->h100->nic_bytes_ps / 1e9;
    const double node = ls_claim_put(claim, "node_GBs", nic * (double)desk->h100->count);
    ls_claim_put(claim, "gpu_GBs", nic);
    ls_claim_say(desk, claim, ls_claim_compare(400.0, node),
                 "Eight links of 400 Gb/s are %.0f GB/s per node, each way; %.0f per GPU.", node, nic);
    return LS_OK;
}

static ls_status check_pcie(const ls_claim_desk *desk, ls_claim *claim)
{
    const double five = ls_claim_put(claim, "gen5_GBs", desk->h100->accelerator->pcie_bytes_ps / 1e9);
    const double four = ls_claim_put(claim, "gen4_GBs", desk->a100->accelerator->pcie_bytes_ps / 1e9);
    ls_claim_say(
        desk, claim, ls_claim_compare(64.0, five),
        "Sixteen lanes of the fifth generation, one way: %.0f GB/s. Of the fourth, as beside an A100: %.0f.",
        five, four);
    return LS_OK;
}

static ls_status check_h200(const ls_claim_desk *desk, ls_claim *claim)
{
    const ls_accelerator *h200 = NULL, *v100 = NULL;
    LS_TRY(ls_catalogue_find_accelerator(&desk->catalogue, "h200", &h200));
    LS_TRY(ls_catalogue_find_accelerator(&desk->catalogue, "v100", &v100));
    const double rate = ls_claim_put(claim, "TBs", h200->memory_bytes_ps / 1e12);
    const double ratio = ls_claim_put(claim, "times_v100", h200->memory_bytes_ps / v100->memory_bytes_ps);
    const double h100 = ls_claim_put(claim, "h100_TBs", desk->h100->accelerator->memory_bytes_ps / 1e12);
    ls_claim_put(claim, "year", h200->year);
    ls_claim_say(
        desk, claim, ls_claim_compare(3.4, rate),
        "Announced in November 2023, shipped in %d; %.1f TB/s, %.1f times a V100. %.2f TB/s are the H100's.",
        h200->year, rate, ratio, h100);
    return LS_OK;
}

/* Share of a data parallel step that waits for gradients. */
static ls_status data_share(const ls_claim_desk *desk, const ls_node *node, double *share_out)
{
    const ls_setting setting = {.shape = &desk->llama_7b,
                                .node = node,
                                .stack = &desk->stack,
                                .gpus = 64,
                                .length = 4096,
                                .global_batch = 512};
    ls_search_options options = {0};
    ls_search_result *result = ls_arena_new(desk->arena, ls_search_result, 1);
    LS_TRY(ls_strategy_parse("tp=1,pp=1,cp=1,ep=1,zero=1", &options.request));
    LS_TRY(ls_search_run(&setting, &options, result));
    const ls_time_estimate *time = &result->best.time;
    *share_out = time->terms_s[LS_TERM_DATA] / time->step_s;
    return LS_OK;
}

static ls_status check_waiting(const ls_claim_desk *desk, ls_claim *claim)
{
    ls_accelerator plain = *desk->h100->accelerator;
    plain.scaleup_bytes_ps = 0.0;
    plain.scaleup_domain = 1;
    ls_node office = *desk->h100, pcie = *desk->h100;
    office.accelerator = pcie.accelerator = &plain;
    office.nic_bytes_ps = 1.25e9 / 8.0;
    double with = 0.0, without = 0.0, worst = 0.0;
    LS_TRY(data_share(desk, desk->h100, &with));
    LS_TRY(data_share(desk, &pcie, &without));
    LS_TRY(data_share(desk, &office, &worst));
    ls_claim_put(claim, "nvlink", with);
    ls_claim_put(claim, "pcie", without);
    ls_claim_put(claim, "ethernet", worst);
    ls_claim_say(desk, claim, LS_CLAIM_DEPENDS,
                 "7B parameters, data parallel over 64 H100, 2 million tokens a step: %.1f %% of a step "
                 "waits for gradients with NVLink and eight NICs a node, %.1f %% with PCIe and the same "
                 "NICs, %.0f %% with PCIe and one 10 Gb/s link a node.",
                 100 * with, 100 * without, 100 * worst);
    return LS_OK;
}

#define COLLECTIVE "src/planning/step/collective.h:"
#define CATALOGUE  "src/planning/hardware/catalogue.h:ls_catalogue_find_"

static const ls_claim_row rows[] = {
    {"ring-volume",
     "In a ring all-reduce a GPU never sends more than twice the buffer, however many there are.", "",
     COLLECTIVE "ls_all_gather_cost", check_ring, NULL},
    {"ring-scale", "So the network cannot become a bottleneck, whatever the number of GPUs.",
     "20 us per message between nodes, a quarter of it per hop of a ring.",
     COLLECTIVE "ls_all_gather_cost " COLLECTIVE "ls_all_reduce_cost", check_latency, NULL},
    {"64-gpus", "64 GPUs on a 3.2 Tb/s network sum gradients at 200 GB/s.",
     "The links reach their full rate, without latency.", COLLECTIVE "ls_all_reduce_cost", check_64_gpus,
     NULL},
    {"nvlink", "NVLink carries 900 GB/s between two GPUs, and 1.8 TB/s in the next generation.", "",
     CATALOGUE "accelerator", check_nvlink, NULL},
    {"infiniband", "InfiniBand carries 400 GB/s between nodes.", "DGX H100.", CATALOGUE "node",
     check_infiniband, NULL},
    {"pcie", "PCIe carries 64 GB/s.", "", CATALOGUE "accelerator", check_pcie, NULL},
    {"h200", "The H200 came early in 2025, with 3.4 TB/s, ten times a V100.", "", CATALOGUE "accelerator",
     check_h200, NULL},
    {"waiting", "Without NVLink and NCCL 40 % of the time is spent waiting.",
     "Llama 2 7B, sequences of 4,096, ZeRO-1, megatron-core.", "src/planning/step/search.h:ls_search_run",
     check_waiting, NULL},
};
const ls_claim_area ls_claims_networks = {"Networks and accelerators", rows, sizeof rows / sizeof rows[0]};
