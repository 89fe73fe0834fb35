// SPDX-License-Identifier: Apache-2.0
#include "planning/paths.h"

#include "planning/failure.h"
#include "planning/site.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SERVER_USD      25e3 /* around 8 cards that come without one */
#define WORKSTATION_USD 2500.0
#define DESK            "office-230v" /* where a local machine stands */

const char *ls_path_kind_name(ls_path_kind kind)
{
    static const char *const names[] = {"local", "rented", "cloud", "owned", "api"};
    return names[kind];
}

/* Without the memory's size and the socket: "H100", "RTX-4090". */
const char *ls_path_short_name(ls_arena *arena, const ls_accelerator *accelerator)
{
    char *name = ls_arena_strdup(arena, accelerator->name);
    const size_t bytes = strlen(name);
    char *last = strrchr(name, '-');
    if (last && bytes > 2 && strcmp(name + bytes - 2, "GB") == 0) {
        *last = '\0';
        last = strrchr(name, '-');
    }
    if (last && strncmp(last, "-SXM", 4) == 0) {
        *last = '\0';
    }
    return name;
}

/* ---- prices ---- */

static ls_status find_offer(const ls_path_settings *settings, ls_path_kind kind, const ls_node *node,
                            ls_offer *offer_out)
{
    const bool purchase = kind == LS_PATH_LOCAL || kind == LS_PATH_OWNED, cloud = kind == LS_PATH_CLOUD;
    if (settings->quote &&
        ls_quote_find(settings->quote, settings->catalogue, node, purchase, cloud, offer_out)) {
        return LS_OK;
    }
    const bool found = purchase ? ls_offer_purchase(node, offer_out)
                       : cloud  ? ls_offer_cloud(node, offer_out)
                                : ls_offer_rented(node, offer_out);
    return found
               ? LS_OK
               : ls_fail(LS_ERR_NOT_FOUND,
                         "no price to %s %s is known; give one with --quote FILE (examples/plan/quote.yaml)",
                         purchase ? "buy" : "rent", node->accelerator->name);
}

/* The box around cards that are sold without one. */
static double host_usd_per_gpu(const ls_node *node, ls_path_kind kind)
{
    const bool is_whole = node->price.high > 0.0 || node->accelerator->class != LS_CLASS_GPU;
    return is_whole ? 0.0 : (kind == LS_PATH_OWNED ? SERVER_USD : WORKSTATION_USD) / (double)node->count;
}

/* ---- owning ---- */

static ls_ownership terms_of(const ls_path_settings *settings, ls_path_kind kind, const ls_site *site)
{
    ls_ownership terms = {
        .gpus = 1,
        .life_years = LS_COST_LIFE_YEARS,
        .resale_share = LS_COST_RESALE_SHARE,
        .capital_share = LS_COST_CAPITAL_SHARE,
        .pue = site->pue,
        .energy_usd_kwh = site->energy_usd_kwh,
    };
    if (kind == LS_PATH_OWNED) {
        terms.maintenance_share = LS_COST_MAINTENANCE_SHARE;
        terms.staff_usd_year = settings->staff_usd_year;
        terms.idle_share = LS_COST_IDLE_SHARE;
        terms.colo_usd_kw_month = site->colo_usd_kw_month;
    }
    return terms;
}

static void assume_terms(const ls_path *path, ls_assumptions *list)
{
    const ls_ownership *t = &path->terms;
    const ls_site *site = &path->site;
    ls_assumptions_add(
        list, "%s: PUE %.3g, %.3g USD per kWh, %.3g USD per kW and month for the place (%s%s%s)", site->name,
        site->pue, site->energy_usd_kwh, t->colo_usd_kw_month, site->date[0] ? site->date : "own figures",
        site->confidence[0] ? ", " : "", site->confidence);
    if (path->kind == LS_PATH_OWNED) {
        ls_assumptions_add(
            list,
            "owning: %.0f years, %.0f %% resale, %.0f %% interest, %.0f %% maintenance a year, %.0f %% "
            "more for the network of several nodes",
            t->life_years, 100.0 * t->resale_share, 100.0 * t->capital_share, 100.0 * t->maintenance_share,
            100.0 * LS_COST_NETWORK_SHARE);
        if (t->staff_usd_year > 0.0) {
            ls_assumptions_add(list, "owning: %.0f USD of staff a year", t->staff_usd_year);
        } else {
            ls_assumptions_add(
                list, "owning: staff of 250,000 USD a year for 8 nodes, growing with the power 0.75");
        }
    }
}

static ls_status add_ownership(ls_arena *arena, const ls_path_settings *settings, bool is_here,
                               ls_assumptions *assumptions, ls_path *path)
{
    path->site = settings->site;
    /* A machine under a desk stands under a desk, unless the site was named. */
    if (path->kind == LS_PATH_LOCAL && strcmp(settings->site.name, LS_SITE_USUAL) == 0) {
        LS_TRY(ls_site_load(arena, settings->catalogue, DESK, &path->site));
    }
    path->terms = terms_of(settings, path->kind, &path->site);
    if (is_here) {
        path->offer = (ls_offer){.name = "here",
                                 .kind = LS_OFFER_PURCHASE,
                                 .accelerator = path->node->accelerator->name,
                                 .node = "",
                                 .gpus_min = 1,
                                 .date = "",
                                 .confidence = ""};
    } else {
        LS_TRY(find_offer(settings, path->kind, path->node, &path->offer));
        ls_offer_assume(&path->offer, assumptions);
        path->terms.capex_usd = path->offer.usd + host_usd_per_gpu(path->node, path->kind);
        const double lead_s = path->kind == LS_PATH_LOCAL    ? LS_PATH_LOCAL_LEAD_TIME_S
                              : settings->lead_time_s >= 0.0 ? settings->lead_time_s
                                                             : LS_PATH_LEAD_TIME_S;
        path->offer.lead_time_s = path->offer.lead_time_s > 0.0 ? path->offer.lead_time_s : lead_s;
        if (path->kind == LS_PATH_OWNED) {
            ls_assumptions_add(assumptions, "owning: %.0f days until the machines are there",
                               path->offer.lead_time_s / 86400.0);
        }
    }
    assume_terms(path, assumptions);
    return LS_OK;
}

static void assume_storage(const ls_path_settings *settings, ls_assumptions *list)
{
    const ls_quote *quote = settings->quote;
    ls_assumptions_add(list,
                       "storage %.3g USD per GB and month, egress %.3g USD per TB (%s); %.0f full "
                       "checkpoints and the text are "
                       "kept while a run goes on, at least a month",
                       quote ? quote->storage_usd_gb_month : LS_COST_STORAGE_USD_GB_MONTH,
                       quote ? quote->egress_usd_tb : LS_COST_EGRESS_USD_TB,
                       quote ? "own offer" : "a cloud's list price, 2026", LS_COST_CHECKPOINTS_KEPT);
}

static const char *name_of(ls_arena *arena, const ls_path *path, bool is_here)
{
    const char *accelerator = path->node ? ls_path_short_name(arena, path->node->accelerator) : "";
    switch (path->kind) {
    case LS_PATH_LOCAL:
        return is_here ? "this machine" : ls_arena_printf(arena, "%s under a desk", accelerator);
    case LS_PATH_RENTED:
    case LS_PATH_CLOUD:
        return ls_arena_printf(arena, "%s, %s", accelerator, path->offer.name);
    case LS_PATH_OWNED:
        return ls_arena_printf(arena, "%s of one's own", accelerator);
    case LS_PATH_API:
        break;
    }
    return "an outside API";
}

ls_status ls_path_build(ls_arena *arena, const ls_path_settings *settings, ls_path_kind kind,
                        const ls_node *node, bool is_here, ls_assumptions *assumptions, ls_path *path_out)
{
    ls_path path = {.kind = kind, .node = node, .is_here = is_here, .catalogue = settings->catalogue};
    if (kind == LS_PATH_LOCAL || kind == LS_PATH_OWNED) {
        LS_TRY(add_ownership(arena, settings, is_here, assumptions, &path));
    } else if (kind != LS_PATH_API) {
        LS_TRY(find_offer(settings, kind, node, &path.offer));
        ls_offer_assume(&path.offer, assumptions);
        assume_storage(settings, assumptions);
    }
    path.name = name_of(arena, &path, is_here);
    *path_out = path;
    return LS_OK;
}

/* ---- sizes ---- */

static double goodput_of(const ls_path *path, int64_t gpus, double parameters)
{
    const bool is_spot = path->offer.kind == LS_OFFER_SPOT;
    const ls_failure_setting setting = {
        .gpus = gpus,
        .gpus_per_node = path->node->count,
        .parameters = parameters,
        .snapshot_bytes_ps = path->node->accelerator->pcie_bytes_ps,
        .preemptions_per_day = is_spot ? path->offer.preemptions_per_day : 0.0,
        .wait_s = is_spot ? LS_FAILURE_SPOT_WAIT_S : 0.0,
    };
    ls_failure_estimate estimate;
    ls_failure_compute(&setting, &estimate);
    return estimate.goodput;
}

void ls_path_add_point(ls_path *path, ls_arena *arena, int64_t gpus, const double *tokens_ps, size_t count,
                       double parameters)
{
    if (path->point_count == LS_PATH_POINTS_MOST || !path->node) {
        return;
    }
    double *copy = ls_arena_new(arena, double, count);
    memcpy(copy, tokens_ps, count * sizeof *copy);
    path->points[path->point_count++] =
        (ls_path_point){.gpus = gpus, .tokens_ps = copy, .goodput = goodput_of(path, gpus, parameters)};
}

ls_ownership ls_path_ownership(const ls_path *path, int64_t gpus, double buy_factor, double energy_factor,
                               double staff_factor)
{
    const int64_t nodes = (gpus + path->node->count - 1) / path->node->count;
    const double network = nodes > 1 ? 1.0 + LS_COST_NETWORK_SHARE : 1.0;
    ls_power power;
    ls_power_compute(path->catalogue, path->node, gpus, &path->site, &power);
    ls_ownership o = path->terms;
    o.gpus = nodes * path->node->count;
    o.capex_usd = path->terms.capex_usd * (double)o.gpus * network * buy_factor;
    o.it_kw = power.it_kw;
    o.colo_kw = power.it_max_kw;
    o.energy_usd_kwh *= energy_factor;
    if (path->kind == LS_PATH_OWNED) {
        o.staff_usd_year =
            staff_factor * (o.staff_usd_year > 0.0 ? o.staff_usd_year : ls_cost_staff_usd_year(nodes));
    }
    return o;
}
