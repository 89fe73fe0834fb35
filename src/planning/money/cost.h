// SPDX-License-Identifier: Apache-2.0
/*
 * Cost: renting by the hour, owning by the year, storing by the month, and the month in which owning has paid. Pure arithmetic in USD.
 *
 *   rent a year        GPUs * 8760 * utilization * rate
 *   own a year         (capex - resale) / life  +  interest on half of capex and resale  +  staff  +  maintenance  +  place  +  energy
 *   energy a year      IT kW * 8760 * (u + idle (1 - u)) * PUE * price
 *   break-even months  12 capex / (rent a year - running cost a year); never when renting is not dearer than running
 *
 * Depreciation spreads capex and is no payment of its own: break-even leaves it out. Interest is paid, and is in.
 */
#ifndef LS_PLANNING_MONEY_COST_H
#define LS_PLANNING_MONEY_COST_H

#include "base/text.h"

#include <stdint.h>

#define LS_HOURS_PER_YEAR            8760.0
#define LS_HOURS_PER_MONTH           730.0

#define LS_COST_LIFE_YEARS           4.0
#define LS_COST_UTILIZATION          0.6 /* of the hours of a machine that is one's own, where nothing is known */
#define LS_COST_UTILIZATION_MOST     0.9  /* maintenance, gaps between jobs */
#define LS_COST_MAINTENANCE_SHARE    0.03 /* of capex, a year */
#define LS_COST_CAPITAL_SHARE        0.06 /* interest a year */
#define LS_COST_IDLE_SHARE           0.25 /* of the power, while nothing runs */
#define LS_COST_RESALE_SHARE         0.1  /* of capex, at the end of life */
#define LS_COST_NETWORK_SHARE        0.1  /* switches, cables, installation, on top of more than one node */
#define LS_COST_STORAGE_USD_GB_MONTH 0.023
#define LS_COST_CHECKPOINTS_KEPT     10.0
#define LS_COST_BYTES_PER_TOKEN      4.0 /* of text, stored while a run goes on */
#define LS_COST_EGRESS_USD_TB                                                                                \
    90.0 /* list, out to the internet; 20 between regions, 10 each way between zones */

/* A machine of one's own. */
typedef struct ls_ownership {
    int64_t gpus;
    double capex_usd; /* nodes, network, installation */
    double life_years;
    double resale_share;      /* of capex */
    double capital_share;     /* interest a year */
    double maintenance_share; /* of capex, a year */
    double staff_usd_year;
    double it_kw; /* at full use */
    double idle_share;
    double pue, energy_usd_kwh;
    double colo_usd_kw_month, colo_kw; /* what is reserved */
} ls_ownership;

typedef struct ls_ownership_year {
    double depreciation, capital, staff, maintenance, colo, energy;
    double running; /* all but depreciation */
    double total;
    double usd_per_gpu_hour; /* total over the hours used; INFINITY when none are */
} ls_ownership_year;

void ls_ownership_compute(const ls_ownership *ownership, double utilization, ls_ownership_year *year_out);

double ls_cost_rent_usd_year(int64_t gpus, double utilization, double usd_per_gpu_hour);

/* INFINITY: never. */
double ls_cost_break_even_months(double capex_usd, double rent_usd_year, double running_usd_year);
/* The use at which owning has paid after `months`: above 1 it can't. INFINITY: running costs more than renting at any use. */
double ls_cost_break_even_utilization(const ls_ownership *ownership, double usd_per_gpu_hour, double months);
/* The rent per GPU and hour from which owning has paid after `months`. */
double ls_cost_break_even_rate(const ls_ownership *ownership, double utilization, double months);

double ls_cost_storage_usd(double bytes, double usd_per_gb_month, double months);
double ls_cost_egress_usd(double bytes, double usd_per_tb);
double ls_cost_energy_usd(double facility_kw, double hours, double usd_per_kwh);

/* People who keep machines running: 250,000 USD a year for 64 GPUs, which are 8 usual nodes, growing with the power 0.75, at least 50,000. By GPUs, for a node may have
 * one or 72 of them. */
double ls_cost_staff_usd_year(int64_t gpus);

/* --explain break-even. */
void ls_cost_explain_break_even(const ls_ownership *ownership, double utilization, double usd_per_gpu_hour,
                                ls_text *text);

/* "$1.09M", "$940", "$12.3k": three digits. */
void ls_cost_format(double usd, char *text, size_t bytes);
/* The same for use in one expression: ls_usd_of(cost).text. */
ls_quantity ls_usd_of(double usd);
/* "9.1 years", "23 days", "4.9 hours", "1 hour", "7.4 min", "12 s": what something takes. */
ls_quantity ls_span_of(double days);

#endif
