// SPDX-License-Identifier: Apache-2.0
/* Claims about money: renting, owning, storing, breaking even. */
#include "claims_internal.h"
#include "planning/money/cost.h"
#include "planning/money/failure.h"

#include <math.h>

#define PARAMETERS  70e9
#define A100_HOURS  1720320.0 /* Llama 2 70B, from its model card */
#define A100_TOKENS 2e12
/* a p5 node and hour as a capacity block; the catalogue's note has it */
#define BLOCK_USD         39.33
#define STORAGE_USD       0.02 /* a GB and month, as the claims say */
#define KEPT              30.0 /* checkpoints */
#define MFU               0.40
#define HOURS_A_RUN       48.0
#define CLAIMED_YEAR_USD  470400.0
#define CLAIMED_OWN_USD   562500.0 /* 312,500 for depreciation and power, 250,000 for people */
#define BREAK_EVEN_MONTHS 18.0

/* 64 H100 as the claims describe them: 2.5 M USD, 4 years, people for 250,000 USD a year, no
 * interest, no maintenance, no place, nothing drawn while idle. */
static ls_ownership claimed_cluster(const ls_claim_desk *desk)
{
    return (ls_ownership){.gpus = 64,
                          .capex_usd = 2.5e6,
                          .life_years = 4.0,
                          .staff_usd_year = 250e3,
                          .it_kw = 8.0 * desk->h100->power_w / 1e3,
                          .pue = 1.4,
                          .energy_usd_kwh = 0.10};
}
#define CLUSTER                                                                                              \
    "64 H100 for 2.5 M USD, 4 years, people for 250,000 USD a year, 8 nodes of 10.2 kW, PUE 1.4, 0.10 USD "  \
    "per kWh; no interest, maintenance or space, which the planner's own answers include."

/* Rates of a p5 node per GPU and hour: at launch, after June 2025, as a capacity block. */
static double launch_rate(const ls_claim_desk *desk)
{
    return desk->p5->rent_hour.high;
}

static double cut_rate(const ls_claim_desk *desk)
{
    return desk->p5->rent_hour.low;
}

static const double block_rate = BLOCK_USD / 8.0;
#define RATES                                                                                                \
    "AWS p5, eight H100 and an hour: 98.32 USD at launch, 55.04 after June 2025, 39.33 as a capacity block " \
    "(prices of the catalogue, from secondary sources)."

static double checkpoint_bytes(void)
{
    ls_failure_estimate estimate;
    ls_failure_compute(&(ls_failure_setting){.gpus = 64, .gpus_per_node = 8, .parameters = PARAMETERS},
                       &estimate);
    return estimate.checkpoint_bytes;
}

static ls_status check_checkpoints(const ls_claim_desk *desk, ls_claim *claim)
{
    const double said_tb = ls_claim_put(claim, "said_TB", KEPT * (140.0 + 280.0) / 1e3);
    const double one_gb = ls_claim_put(claim, "full_GB", checkpoint_bytes() / 1e9);
    const double full_tb = ls_claim_put(claim, "full_TB", KEPT * one_gb / 1e3);
    const double export_tb = ls_claim_put(
        claim, "weights_TB", KEPT * PARAMETERS * LS_CHECKPOINT_EXPORT_BYTES_PER_PARAMETER / 1e12);
    ls_claim_say(
        desk, claim, ls_claim_compare(said_tb, full_tb),
        "The sum is right, 30 * (140 + 280) GB = %.1f TB, but a checkpoint that training can resume from has "
        "14 bytes per parameter, %.0f GB, and 30 of them are %.1f TB. Weights alone: %.1f TB.",
        said_tb, one_gb, full_tb, export_tb);
    return LS_OK;
}

static ls_status check_storage(const ls_claim_desk *desk, ls_claim *claim)
{
    const double month = ls_claim_put(claim, "said_usd", ls_cost_storage_usd(12.6e12, STORAGE_USD, 1.0));
    const double full =
        ls_claim_put(claim, "full_usd", ls_cost_storage_usd(KEPT * checkpoint_bytes(), STORAGE_USD, 1.0));
    const double runs = ls_claim_put(claim, "runs_usd", 50.0 * month);
    const double full_runs = ls_claim_put(claim, "full_runs_usd", 50.0 * full);
    ls_claim_say(desk, claim, LS_CLAIM_DEPENDS,
                 "It depends on how long they are kept: 12.6 TB cost %.0f USD a month, and 30 full "
                 "checkpoints %.0f. Fifty runs, each kept for one month: %.0f USD, or %.0f.",
                 month, full, runs, full_runs);
    return LS_OK;
}

static ls_status check_rented_year(const ls_claim_desk *desk, ls_claim *claim)
{
    const double said = ls_claim_put(claim, "said_usd", 98.0 * 100.0 * HOURS_A_RUN);
    const double launch =
        ls_claim_put(claim, "launch_usd", ls_cost_rent_usd_year(64, LS_COST_UTILIZATION, launch_rate(desk)));
    const double cut =
        ls_claim_put(claim, "cut_usd", ls_cost_rent_usd_year(64, LS_COST_UTILIZATION, cut_rate(desk)));
    const double block =
        ls_claim_put(claim, "block_usd", ls_cost_rent_usd_year(64, LS_COST_UTILIZATION, block_rate));
    ls_claim_say(desk, claim, ls_claim_compare(said, launch),
                 "98 * 4,800 hours is %s USD, but that is one node with eight GPUs, compared with a cluster "
                 "of 64. For 64 GPUs in use 60 %% of the year: %.2f M USD at launch prices, %.2f M after "
                 "June 2025, %.2f M as capacity blocks.",
                 ls_claim_grouped(desk, said), launch / 1e6, cut / 1e6, block / 1e6);
    return LS_OK;
}

static ls_status check_gpu_hour(const ls_claim_desk *desk, ls_claim *claim)
{
    const ls_price *market = &desk->h100->accelerator->rent_hour;
    const double launch = ls_claim_put(claim, "launch_usd", launch_rate(desk));
    const double cut = ls_claim_put(claim, "cut_usd", cut_rate(desk));
    const double typical = ls_claim_put(claim, "market_usd", market->typical);
    ls_claim_say(desk, claim, ls_claim_compare(10.0, launch),
                 "A GPU of that node cost %.2f USD an hour at launch and costs %.2f now; the market's median "
                 "is %.2f. Nothing supports 30.",
                 launch, cut, typical);
    return LS_OK;
}

static ls_status check_own_hour(const ls_claim_desk *desk, ls_claim *claim)
{
    const ls_ownership cluster = claimed_cluster(desk);
    ls_ownership_year year;
    ls_ownership_compute(&cluster, LS_COST_UTILIZATION, &year);
    const double usd = ls_claim_put(claim, "own_usd", year.usd_per_gpu_hour);
    ls_claim_say(desk, claim, ls_claim_compare(5.0, usd), "The cost is %.2f USD at 60 %% use.", usd);
    return LS_OK;
}

static ls_status check_depreciation(const ls_claim_desk *desk, ls_claim *claim)
{
    ls_ownership cluster = claimed_cluster(desk);
    ls_ownership_year year;
    ls_ownership_compute(&cluster, LS_COST_UTILIZATION, &year);
    const double depreciation = ls_claim_put(claim, "depreciation_usd", year.depreciation);
    const double energy = ls_claim_put(claim, "energy_usd", year.energy);
    const double years = ls_claim_put(claim, "years", cluster.capex_usd / 312500.0);
    ls_claim_say(desk, claim, ls_claim_compare(312500.0, depreciation + energy),
                 "Depreciation alone is %s USD a year over four years, and power %s. 312,500 is %.0f years "
                 "of depreciation, and no power.",
                 ls_claim_grouped(desk, depreciation), ls_claim_grouped(desk, energy), years);
    return LS_OK;
}

static double months_at(const ls_ownership *cluster, double use, double rate)
{
    ls_ownership_year year;
    ls_ownership_compute(cluster, use, &year);
    return ls_cost_break_even_months(cluster->capex_usd, ls_cost_rent_usd_year(cluster->gpus, use, rate),
                                     year.running);
}

static ls_status check_break_even(const ls_claim_desk *desk, ls_claim *claim)
{
    const ls_ownership o = claimed_cluster(desk);
    const double market = desk->h100->accelerator->rent_hour.typical;
    const double own =
        ls_claim_put(claim, "own_numbers_months",
                     ls_cost_break_even_months(o.capex_usd, CLAIMED_YEAR_USD, CLAIMED_OWN_USD));
    const double lower = ls_claim_put(
        claim, "lower_years", ls_cost_break_even_months(o.capex_usd, CLAIMED_YEAR_USD, 150e3 + 250e3) / 12.0);
    const double launch = ls_claim_put(
        claim, "launch_use", ls_cost_break_even_utilization(&o, launch_rate(desk), BREAK_EVEN_MONTHS));
    const double cut =
        ls_claim_put(claim, "cut_use", ls_cost_break_even_utilization(&o, cut_rate(desk), BREAK_EVEN_MONTHS));
    const double block =
        ls_claim_put(claim, "block_use", ls_cost_break_even_utilization(&o, block_rate, BREAK_EVEN_MONTHS));
    const double never =
        ls_claim_put(claim, "market_use", ls_cost_break_even_utilization(&o, market, BREAK_EVEN_MONTHS));
    const double at_launch =
        ls_claim_put(claim, "launch_months", months_at(&o, LS_COST_UTILIZATION, launch_rate(desk)));
    const double at_cut =
        ls_claim_put(claim, "cut_months", months_at(&o, LS_COST_UTILIZATION, cut_rate(desk)));
    const double at_block =
        ls_claim_put(claim, "block_months", months_at(&o, LS_COST_UTILIZATION, block_rate));
    ls_claim_say(
        desk, claim, ls_claim_compare(BREAK_EVEN_MONTHS, own),
        "Not with the numbers given: 470,400 USD a year for renting are less than 562,500 for owning%s, and "
        "with 150,000 for depreciation and power it takes %.1f years. With 64 GPUs on both sides, 18 months "
        "need %.0f %% use at 98.32 USD per node, %.0f %% at 55.04, %.0f %% at 39.33, and %.0f %% at %.2f per "
        "GPU, which is impossible. At 60 %% use: %.1f, %.1f and %.1f months.",
        isinf(own) ? ", so it never pays" : "", lower, 100 * launch, 100 * cut, 100 * block, 100 * never,
        market, at_launch, at_cut, at_block);
    return LS_OK;
}

static ls_status check_many_runs(const ls_claim_desk *desk, ls_claim *claim)
{
    const ls_ownership o = claimed_cluster(desk);
    const double hours = ls_claim_put(claim, "node_hours", 100.0 * 12.0 * HOURS_A_RUN);
    const double use = ls_claim_put(claim, "use", hours / (8.0 * LS_HOURS_PER_YEAR));
    const double launch = ls_claim_put(claim, "launch_months", months_at(&o, use, launch_rate(desk)));
    const double cut = ls_claim_put(claim, "cut_months", months_at(&o, use, cut_rate(desk)));
    ls_claim_say(desk, claim, cut <= 12.0 ? LS_CLAIM_HOLDS : LS_CLAIM_DOES_NOT_HOLD,
                 "A hundred runs a month of 48 node-hours are %s node-hours a year, %.0f %% of eight nodes: "
                 "owning has paid after %.1f months at 98.32 USD, %.1f at 55.04.",
                 ls_claim_grouped(desk, hours), 100 * use, launch, cut);
    return LS_OK;
}

/* H100 hours for 70B parameters and two trillion tokens at 40 % of the peak. */
static double h100_hours(const ls_claim_desk *desk)
{
    const double length = (double)desk->llama_70b.config.context;
    const double flops_per_token =
        3.0 * ls_shape_forward_flops(&desk->llama_70b, desk->llama_70b.config.context, LS_FLOPS_6N) / length;
    return flops_per_token * A100_TOKENS / (MFU * desk->h100->accelerator->bf16_flops) / 3600.0;
}

static ls_status check_70b(const ls_claim_desk *desk, ls_claim *claim)
{
    const double hours = ls_claim_put(claim, "h100_hours", h100_hours(desk));
    const double a100 = ls_claim_put(claim, "a100_usd", A100_HOURS * desk->p4d->rent_hour.high);
    const double launch = ls_claim_put(claim, "launch_usd", hours * launch_rate(desk));
    const double cut = ls_claim_put(claim, "cut_usd", hours * cut_rate(desk));
    const double block = ls_claim_put(claim, "block_usd", hours * block_rate);
    ls_claim_say(desk, claim, LS_CLAIM_DEPENDS,
                 "Llama 2 70B's 1.72 M A100-hours at 4.10 USD are %.1f M USD. The same two trillion tokens "
                 "take %.0f k H100-hours at 40 %% MFU: %.1f M USD at launch prices, %.1f M after June 2025, "
                 "%.1f M as capacity blocks.",
                 a100 / 1e6, hours / 1e3, launch / 1e6, cut / 1e6, block / 1e6);
    return LS_OK;
}

static ls_status check_256_a100(const ls_claim_desk *desk, ls_claim *claim)
{
    const double rate = ls_claim_put(claim, "usd_per_hour", 1.1e6 / A100_HOURS);
    const double days = ls_claim_put(claim, "days", A100_HOURS / 256.0 / 24.0);
    const double hours = ls_claim_put(claim, "hours_at_1.5", 1.1e6 / 1.5);
    const double tokens = ls_claim_put(claim, "tokens", A100_TOKENS * hours / A100_HOURS);
    const double bought_days = ls_claim_put(claim, "days_at_1.5", hours / 256.0 / 24.0);
    const double implied = ls_claim_put(claim, "implied_usd", 1.1e6 / 0.6);
    const double lowest = desk->a100->accelerator->rent_hour.low;
    ls_claim_say(
        desk, claim, rate >= lowest ? LS_CLAIM_HOLDS : LS_CLAIM_DOES_NOT_HOLD,
        "1.1 M USD over Llama 2's 1.72 M hours would be %.2f USD an hour, less than the cheapest offer of "
        "the catalogue (%.2f), and 256 GPUs need %.0f days for them. At 1.50 USD the sum buys %.2f M hours: "
        "%.2f trillion tokens in %.0f days, which is not a full training run. And 40 %% cheaper than AWS "
        "would put AWS at %.2f M, below the two to four million of the previous claim.",
        rate, lowest, days, hours / 1e6, tokens / 1e12, bought_days, implied / 1e6);
    return LS_OK;
}

static ls_status check_128_gpus(const ls_claim_desk *desk, ls_claim *claim)
{
    const double market = desk->h100->accelerator->rent_hour.typical;
    const double launch = ls_claim_put(claim, "launch_hours", 500e3 / 128.0 / launch_rate(desk));
    const double cut = ls_claim_put(claim, "cut_hours", 500e3 / 128.0 / cut_rate(desk));
    const double rented = ls_claim_put(claim, "market_hours", 500e3 / 128.0 / market);
    ls_claim_say(desk, claim, LS_CLAIM_DEPENDS,
                 "It depends on the hours, which the claim leaves out: 500,000 USD are %.0f hours of 128 "
                 "GPUs at %.2f USD, %.0f at %.2f, %.0f at %.2f.",
                 launch, launch_rate(desk), cut, cut_rate(desk), rented, market);
    return LS_OK;
}

static ls_status check_three_days(const ls_claim_desk *desk, ls_claim *claim)
{
    const double nodes = ls_claim_put(claim, "nodes", 80e3 / 72.0 / (8.0 * launch_rate(desk)));
    ls_claim_say(desk, claim, LS_CLAIM_DEPENDS,
                 "It depends on the size, which the claim leaves out: 80,000 USD are %.1f p5 nodes for 72 "
                 "hours at 98.32 USD.",
                 nodes);
    return LS_OK;
}

#define COST    "src/planning/money/cost.h:"
#define STORAGE "src/planning/money/failure.h:ls_failure_compute " COST "ls_cost_storage_usd"

static const ls_claim_row rows[] = {
    {"checkpoint-size", "Thirty checkpoints of a 70B model are 12.6 TB.", "30 checkpoints, none deleted.",
     "src/planning/money/failure.h:ls_failure_compute", check_checkpoints, NULL},
    {"storage-price", "Keeping them costs 250 USD a run.",
     "0.02 USD per GB and month; the planner itself takes 0.023.", STORAGE, check_storage, NULL},
    {"rented-year",
     "A hundred runs of 48 hours on AWS cost 470,400 USD a year, to be compared with 64 GPUs of one's own.",
     RATES, COST "ls_cost_rent_usd_year", check_rented_year, NULL},
    {"gpu-hour", "An H100 is 10 USD an hour here and 30 in the cloud.", RATES,
     "src/planning/hardware/catalogue.h:ls_catalogue_find_node", check_gpu_hour, NULL},
    {"own-hour", "An H100 of one's own costs 5 USD an hour.", CLUSTER, COST "ls_ownership_compute",
     check_own_hour, NULL},
    {"depreciation", "Depreciation and power of 64 H100 are 312,500 USD a year.", CLUSTER,
     COST "ls_ownership_compute", check_depreciation, NULL},
    {"break-even", "Owning 64 H100 has paid after 18 months.", CLUSTER " " RATES,
     COST "ls_cost_break_even_months " COST "ls_cost_break_even_utilization", check_break_even, NULL},
    {"many-runs", "With a hundred and more runs a month owning has paid within 12 months.", CLUSTER " " RATES,
     COST "ls_cost_break_even_months", check_many_runs, NULL},
    {"70b-price", "Training a 70B model on AWS costs 2 to 4 M USD.",
     "Two trillion tokens, 6 N FLOPs per token, 40 % MFU. " RATES,
     "src/planning/model/shape.h:ls_shape_forward_flops", check_70b, NULL},
    {"256-a100", "256 A100 train a 70B model for 1.1 M USD, 40 % cheaper than AWS.",
     "Llama 2 70B's own 1,720,320 A100-hours for two trillion tokens (its model card).",
     "src/planning/hardware/catalogue.h:ls_catalogue_find_node", check_256_a100, NULL},
    {"128-gpus", "Training on 128 GPUs costs 500,000 USD and more.", RATES,
     "src/planning/hardware/catalogue.h:ls_catalogue_find_node", check_128_gpus, NULL},
    {"three-days", "Three days of training cost 80,000 USD.", RATES,
     "src/planning/hardware/catalogue.h:ls_catalogue_find_node", check_three_days, NULL},
};
const ls_claim_area ls_claims_money = {"Money", rows, sizeof rows / sizeof rows[0]};
