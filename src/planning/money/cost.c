// SPDX-License-Identifier: Apache-2.0
#include "planning/money/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double energy_usd(double facility_kw, double hours, double usd_per_kwh)
{
    return facility_kw * hours * usd_per_kwh;
}

void ls_ownership_compute(const ls_ownership *o, double utilization, ls_ownership_year *year_out)
{
    const double resale_usd = o->capex_usd * o->resale_share;
    const double busy = utilization + o->idle_share * (1.0 - utilization);
    ls_ownership_year y = {
        .depreciation = (o->capex_usd - resale_usd) / o->life_years,
        .capital = o->capital_share * (o->capex_usd + resale_usd) / 2.0,
        .staff = o->staff_usd_year,
        .maintenance = o->capex_usd * o->maintenance_share,
        .colo = o->colo_usd_kw_month * o->colo_kw * 12.0,
        .energy = energy_usd(o->it_kw * o->pue, LS_HOURS_PER_YEAR * busy, o->energy_usd_kwh),
    };
    y.running = y.capital + y.staff + y.maintenance + y.colo + y.energy;
    y.total = y.running + y.depreciation;
    y.usd_per_gpu_hour = y.total / ((double)o->gpus * LS_HOURS_PER_YEAR * utilization);
    *year_out = y;
}

double ls_cost_rent_usd_year(int64_t gpus, double utilization, double usd_per_gpu_hour)
{
    return (double)gpus * LS_HOURS_PER_YEAR * utilization * usd_per_gpu_hour;
}

double ls_cost_break_even_months(double capex_usd, double rent_usd_year, double running_usd_year)
{
    const double saved = rent_usd_year - running_usd_year;
    return saved > 0.0 ? 12.0 * capex_usd / saved : INFINITY;
}

/* Running costs are a + b u, where a does not depend on the utilization u. */
static void split_running(const ls_ownership *o, double *fixed_out, double *by_use_out)
{
    ls_ownership_year idle, busy;
    ls_ownership_compute(o, 0.0, &idle);
    ls_ownership_compute(o, 1.0, &busy);
    *fixed_out = idle.running;
    *by_use_out = busy.running - idle.running;
}

double ls_cost_break_even_utilization(const ls_ownership *ownership, double usd_per_gpu_hour, double months)
{
    double fixed, by_use;
    split_running(ownership, &fixed, &by_use);
    const double gained = ls_cost_rent_usd_year(ownership->gpus, 1.0, usd_per_gpu_hour) - by_use;
    return gained > 0.0 ? (12.0 * ownership->capex_usd / months + fixed) / gained : INFINITY;
}

double ls_cost_break_even_rate(const ls_ownership *ownership, double utilization, double months)
{
    ls_ownership_year year;
    ls_ownership_compute(ownership, utilization, &year);
    return (12.0 * ownership->capex_usd / months + year.running) /
           ((double)ownership->gpus * LS_HOURS_PER_YEAR * utilization);
}

double ls_cost_storage_usd(double bytes, double usd_per_gb_month, double months)
{
    return bytes / 1e9 * usd_per_gb_month * months;
}

double ls_cost_egress_usd(double bytes, double usd_per_tb)
{
    return bytes / 1e12 * usd_per_tb;
}

double ls_cost_staff_usd_year(int64_t gpus)
{
    return fmax(250e3 * pow((double)gpus / 64.0, 0.75), 50e3);
}

void ls_cost_format(double usd, char *text, size_t bytes)
{
    static const struct {
        double from, unit;
        const char *name;
    } scales[] = {{999.5e6, 1e9, "B"}, {999.5e3, 1e6, "M"}, {9999.5, 1e3, "k"}, {0.0, 1.0, ""}};
    const char *sign = usd < 0.0 ? "-" : "";
    const double size = fabs(usd);
    int i = 0;
    while (size < scales[i].from) {
        i++;
    }
    const double value = size / scales[i].unit;
    const int digits = scales[i].unit == 1.0 ? (value < 9.995 && value > 0.0 ? 2 : 0)
                       : value < 9.995       ? 2
                       : value < 99.95       ? 1
                                             : 0;
    snprintf(text, bytes, "%s$%.*f%s", sign, digits, value, scales[i].name);
}

void ls_cost_explain_break_even(const ls_ownership *o, double utilization, double usd_per_gpu_hour,
                                ls_text *text)
{
    ls_ownership_year y;
    ls_ownership_compute(o, utilization, &y);
    const double rent = ls_cost_rent_usd_year(o->gpus, utilization, usd_per_gpu_hour);
    ls_text_append(text, "break-even   12 * capex / (rent a year - running costs a year)\n");
    ls_text_printf(text, "rent         %lld GPUs * 8760 h * %.2f use * %.2f USD = %.0f USD a year\n",
                   (long long)o->gpus, utilization, usd_per_gpu_hour, rent);
    ls_text_printf(
        text,
        "energy       %.1f kW * 8760 h * (%.2f + %.2f * %.2f idle) * PUE %.2f * %.3f USD = %.0f USD a year\n",
        o->it_kw, utilization, o->idle_share, 1.0 - utilization, o->pue, o->energy_usd_kwh, y.energy);
    ls_text_printf(text,
                   "running      staff %.0f + maintenance %.0f + place %.0f + interest %.0f + energy %.0f = "
                   "%.0f USD a year\n",
                   y.staff, y.maintenance, y.colo, y.capital, y.energy, y.running);
    const double months = ls_cost_break_even_months(o->capex_usd, rent, y.running);
    if (isinf(months)) {
        ls_text_printf(text, "             %.0f <= %.0f: never\n", rent, y.running);
    } else {
        ls_text_printf(text, "             12 * %.0f / (%.0f - %.0f) = %.1f months\n", o->capex_usd, rent,
                       y.running, months);
    }
    ls_text_printf(
        text, "to pay back within half of %.1f years: %.0f %% use, or a rent of %.2f USD per GPU and hour\n",
        o->life_years, 100.0 * ls_cost_break_even_utilization(o, usd_per_gpu_hour, 6.0 * o->life_years),
        ls_cost_break_even_rate(o, utilization, 6.0 * o->life_years));
}

ls_quantity ls_usd_of(double usd)
{
    ls_quantity text;
    ls_cost_format(usd, text.text, sizeof text.text);
    return text;
}

ls_quantity ls_span_of(double days)
{
    static const struct {
        double from_days, unit_days;
        const char *name;
    } units[] = {{730.0, 365.0, "year"},
                 {2.0, 1.0, "day"},
                 {1.0 / 24.0, 1.0 / 24.0, "hour"},
                 {1.0 / 1440.0, 1.0 / 1440.0, "min"},
                 {0.0, 1.0 / 86400.0, "s"}};
    ls_quantity number, text;
    size_t i = 0;
    while (days < units[i].from_days * (1.0 - 1e-9) && units[i].from_days > 0.0) {
        i++;
    }
    const double count = days / units[i].unit_days;
    snprintf(number.text, sizeof number.text, count < 9.95 ? "%.1f" : "%.0f", fmin(count, 1e12));
    char *tail = strstr(number.text, ".0");
    if (tail) {
        *tail = '\0';
    }
    snprintf(text.text, sizeof text.text, "%.14s %s%s", number.text, units[i].name,
             strcmp(number.text, "1") == 0 || units[i].from_days < 1.0 / 24.0 ? "" : "s");
    return text;
}
