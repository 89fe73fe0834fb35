// SPDX-License-Identifier: Apache-2.0
#include "planning/money/power.h"

#include "planning/hardware/site.h"

#include <math.h>
#include <stdio.h>

/* Nodes for a number of GPUs, the last one counted as whole. */
static int64_t node_count(const ls_node *node, int64_t gpus)
{
    return (gpus + node->count - 1) / node->count;
}

static void compute_node(const ls_node *node, ls_power *power)
{
    const double gpus_w = (double)node->count * node->accelerator->tdp_w;
    power->known = gpus_w > 0.0 || node->power_w > 0.0;
    if (node->power_w > gpus_w) {
        power->node_max_w = node->power_w;
        power->node_w = gpus_w * LS_POWER_GPU_SHARE + (node->power_w - gpus_w) * LS_POWER_HOST_MAX_SHARE;
    } else {
        power->node_max_w = gpus_w * (1.0 + LS_POWER_HOST_MAX_OF_GPUS);
        power->node_w = gpus_w * (LS_POWER_GPU_SHARE + LS_POWER_HOST_OF_GPUS);
    }
}

static void compute_racks(const ls_catalogue *catalogue, const ls_site *site, ls_power *power)
{
    const double fitting = floor(fmin(site->rack_w, site->cooling->rack_w) / power->node_max_w + 1e-9);
    power->nodes_per_rack = (int64_t)fmin(fitting, LS_POWER_NODES_PER_RACK_MOST);
    const int64_t filled = power->nodes < power->nodes_per_rack ? power->nodes : power->nodes_per_rack;
    power->rack_kw = (double)(filled > 0 ? filled : 1) * power->node_max_w / 1e3;
    power->cooling = ls_site_cooling_for(catalogue, 1e3 * power->rack_kw);
    power->racks = filled > 0 ? (power->nodes + power->nodes_per_rack - 1) / power->nodes_per_rack : 0;
}

static int digits(double kw)
{
    return kw < 99.95 ? 1 : 0;
}

/* The first limit of the site that is exceeded, in words; "" when there is none. */
static void check_site(const ls_site *site, ls_power *p)
{
    if (site->power_w > 0.0 && 1e3 * p->facility_max_kw > site->power_w) {
        snprintf(p->why_not, sizeof p->why_not,
                 "the machines draw up to %.*f kW at the electricity meter, and the site %s supplies %.*f kW",
                 digits(p->facility_max_kw), p->facility_max_kw, site->name, digits(site->power_w / 1e3),
                 site->power_w / 1e3);
    } else if (p->nodes_per_rack == 0) {
        snprintf(p->why_not, sizeof p->why_not,
                 "a node draws up to %.3g kW, and a rack of the site %s supplies %.3g kW (%s)",
                 p->node_max_w / 1e3, site->name, fmin(site->rack_w, site->cooling->rack_w) / 1e3,
                 site->cooling->name);
    } else if (site->racks > 0 && p->racks > site->racks) {
        snprintf(p->why_not, sizeof p->why_not,
                 "the machines need %lld racks of %.3g kW, and the site %s has %lld", (long long)p->racks,
                 p->rack_kw, site->name, (long long)site->racks);
    }
    p->possible = p->why_not[0] == '\0';
}

void ls_power_of_machines(const ls_node *node, int64_t gpus, ls_power *power_out)
{
    ls_power p = {.possible = true};
    compute_node(node, &p);
    if (p.known) {
        p.nodes = node_count(node, gpus);
        /* Unused GPUs of the last node are counted too, because a part of a node cannot be
         * bought. */
        const double training_kw = (double)p.nodes * p.node_w / 1e3,
                     max_kw = (double)p.nodes * p.node_max_w / 1e3;
        const double network = p.nodes > 1 ? LS_POWER_NETWORK_SHARE : 0.0;
        p.network_kw = training_kw * network;
        p.it_kw = training_kw + p.network_kw;
        p.it_max_kw = max_kw * (1.0 + network);
    }
    *power_out = p;
}

void ls_power_compute(const ls_catalogue *catalogue, const ls_node *node, int64_t gpus, const ls_site *site,
                      ls_power *power_out)
{
    ls_power p;
    ls_power_of_machines(node, gpus, &p);
    if (p.known) {
        p.facility_kw = p.it_kw * site->pue;
        p.facility_max_kw = p.it_max_kw * site->pue;
        compute_racks(catalogue, site, &p);
        check_site(site, &p);
    }
    *power_out = p;
}

void ls_power_assume(ls_assumptions *list)
{
    ls_assumptions_add(list, "power: GPUs draw %.3g %% of their TDP while they train",
                       100.0 * LS_POWER_GPU_SHARE);
}

static void explain_node(const ls_node *node, const ls_power *p, ls_text *text)
{
    const double tdp_w = node->accelerator->tdp_w;
    if (node->power_w > (double)node->count * tdp_w) {
        ls_text_printf(text, "node         GPUs * TDP * %.3f + (maximum - GPUs * TDP) * %.2f\n",
                       LS_POWER_GPU_SHARE, LS_POWER_HOST_MAX_SHARE);
        ls_text_printf(text, "             %lld * %.0f * %.3f + (%.0f - %lld * %.0f) * %.2f = %.0f W\n",
                       (long long)node->count, tdp_w, LS_POWER_GPU_SHARE, node->power_w,
                       (long long)node->count, tdp_w, LS_POWER_HOST_MAX_SHARE, p->node_w);
    } else {
        ls_text_printf(text, "node         GPUs * TDP * (%.3f + %.2f for the host)\n", LS_POWER_GPU_SHARE,
                       LS_POWER_HOST_OF_GPUS);
        ls_text_printf(text, "             %lld * %.0f * %.3f = %.0f W\n", (long long)node->count, tdp_w,
                       LS_POWER_GPU_SHARE + LS_POWER_HOST_OF_GPUS, p->node_w);
    }
}

void ls_power_explain(const ls_catalogue *catalogue, const ls_node *node, int64_t gpus, const ls_site *site,
                      ls_text *text)
{
    ls_power p;
    ls_power_compute(catalogue, node, gpus, site, &p);
    if (!p.known) {
        ls_text_printf(
            text,
            "power        unknown: the catalogue has no power for %s; give tdp_w with --catalogue FILE\n",
            node->accelerator->name);
        return;
    }
    explain_node(node, &p, text);
    ls_text_printf(text, "machines     %lld nodes + network %.1f %% = %.1f kW (at most %.1f kW)\n",
                   (long long)p.nodes, p.nodes > 1 ? 100.0 * LS_POWER_NETWORK_SHARE : 0.0, p.it_kw,
                   p.it_max_kw);
    ls_text_printf(text, "racks        %lld nodes of %.1f kW in each = %.1f kW: %s; %lld racks\n",
                   (long long)p.nodes_per_rack, p.node_max_w / 1e3, p.rack_kw, p.cooling->name,
                   (long long)p.racks);
    ls_text_printf(text, "meter        %.1f kW * PUE %.2f = %.1f kW (at most %.1f kW)\n", p.it_kw, site->pue,
                   p.facility_kw, p.facility_max_kw);
    ls_text_printf(text, "energy       %.1f kW * %.3f USD/kWh = %.2f USD per hour\n", p.facility_kw,
                   site->energy_usd_kwh, p.facility_kw * site->energy_usd_kwh);
    if (!p.possible) {
        ls_text_printf(text, "not possible: %s\n", p.why_not);
    }
}
