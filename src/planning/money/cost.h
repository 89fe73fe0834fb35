// SPDX-License-Identifier: Apache-2.0
/*
 * Cost: renting by the hour, owning by the year, storing by the month, and the month in which
 * owning has paid for itself. Pure arithmetic in USD.
 *
 *   rent a year        GPUs * 8760 * utilization * rate
 *   own a year         (capex - resale) / life  +  interest on half of capex and resale  +  staff
 *                      +  maintenance  +  space  +  energy
 *   energy a year      IT kW * 8760 * (u + idle (1 - u)) * PUE * price
 *   break-even months  12 capex / (rent a year - running cost a year); never when renting costs no
 *                      more than running
 *
 * Depreciation spreads capex over the years and is not a payment, so break-even leaves it out.
 * Interest is a payment and is included.
 */
#ifndef LS_PLANNING_MONEY_COST_H
#define LS_PLANNING_MONEY_COST_H

#include "base/text.h"

#include <stdint.h>

#define LS_HOURS_PER_YEAR  8760.0
#define LS_HOURS_PER_MONTH 730.0

#define LS_COST_LIFE_YEARS 4.0
/* Share of the hours that an own machine is in use, where nothing is known. */
#define LS_COST_UTILIZATION 0.6
/* The highest possible share: maintenance and gaps between jobs take the rest. */
#define LS_COST_UTILIZATION_MOST  0.9
#define LS_COST_MAINTENANCE_SHARE 0.03 /* Of capex, per year. */
#define LS_COST_CAPITAL_SHARE     0.06 /* Interest per year. */
#define LS_COST_IDLE_SHARE        0.25 /* Of the power in use, while idle. */
#define LS_COST_RESALE_SHARE      0.1  /* Of capex, at the end of life. */
/* Switches, cables and installation, added where there is more than one node. */
#define LS_COST_NETWORK_SHARE        0.1
#define LS_COST_STORAGE_USD_GB_MONTH 0.023
#define LS_COST_CHECKPOINTS_KEPT     10.0
#define LS_COST_BYTES_PER_TOKEN      4.0 /* Bytes of text per token, stored during a run. */
/* List price, out to the internet; 20 between regions, 10 each way between zones. */
#define LS_COST_EGRESS_USD_TB 90.0

/* Machines that are owned. */
typedef struct ls_ownership {
    int64_t gpus;
    double capex_usd; /* Nodes, network and installation. */
    double life_years;
    double resale_share;      /* of capex */
    double capital_share;     /* interest a year */
    double maintenance_share; /* of capex, a year */
    double staff_usd_year;
    double it_kw; /* At full use. */
    double idle_share;
    double pue, energy_usd_kwh;
    double colo_usd_kw_month, colo_kw; /* The power that is reserved at the site. */
} ls_ownership;

typedef struct ls_ownership_year {
    double depreciation, capital, staff, maintenance, colo, energy;
    double running; /* Everything except depreciation. */
    double total;
    double usd_per_gpu_hour; /* The total over the hours in use; INFINITY when there are none. */
} ls_ownership_year;

void ls_ownership_compute(const ls_ownership *ownership, double utilization, ls_ownership_year *year_out);

double ls_cost_rent_usd_year(int64_t gpus, double utilization, double usd_per_gpu_hour);

/* The months after which owning has paid for itself. INFINITY: never. */
double ls_cost_break_even_months(double capex_usd, double rent_usd_year, double running_usd_year);
/* The utilization at which owning pays back after `months`; above 1 it is impossible. INFINITY:
 * running costs exceed the rent at any utilization. */
double ls_cost_break_even_utilization(const ls_ownership *ownership, double usd_per_gpu_hour, double months);
/* The rent per GPU and hour above which owning pays back within `months`. */
double ls_cost_break_even_rate(const ls_ownership *ownership, double utilization, double months);

double ls_cost_storage_usd(double bytes, double usd_per_gb_month, double months);
double ls_cost_egress_usd(double bytes, double usd_per_tb);

/* Cost per year of the staff who operate the machines: 250,000 USD for 64 GPUs (8 usual nodes),
 * growing with the number of GPUs to the power 0.75, at least 50,000. It counts GPUs, because a
 * node may have one or 72 of them. */
double ls_cost_staff_usd_year(int64_t gpus);

/* --explain break-even. */
void ls_cost_explain_break_even(const ls_ownership *ownership, double utilization, double usd_per_gpu_hour,
                                ls_text *text);

/* "$1.09M", "$940", "$12.3k": three digits. */
void ls_cost_format(double usd, char *text, size_t bytes);
/* The same as a value, for use inside an expression: ls_usd_of(cost).text. */
ls_quantity ls_usd_of(double usd);
/* A time span: "9.1 years", "23 days", "4.9 hours", "1 hour", "7.4 min", "12 s". */
ls_quantity ls_span_of(double days);

#endif
