// SPDX-License-Identifier: Apache-2.0
#include "planning/money/paths.h"

#include "planning/hardware/site.h"
#include "planning/money/failure.h"

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

static ls_status find_offers(const ls_path_settings *settings, ls_path *path)
{
    const ls_node *node = path->node;
    const bool purchase = path->kind == LS_PATH_LOCAL || path->kind == LS_PATH_OWNED;
    const bool cloud = path->kind == LS_PATH_CLOUD;
    if (settings->quote) {
        path->offer_count = ls_quote_find(settings->quote, settings->catalogue, node, purchase, cloud,
                                          path->offers, LS_PATH_OFFERS_MOST);
    }
    if (path->offer_count == 0) {
        path->offer_count = purchase ? ls_offer_purchase(node, path->offers)
                            : cloud  ? ls_offer_cloud(node, path->offers)
                                     : ls_offer_rented(node, path->offers);
    }
    return path->offer_count > 0
               ? LS_OK
               : ls_fail(LS_ERR_NOT_FOUND,
                         "no price to %s %s is known; give one with --quote FILE (examples/plan/quote.yaml)",
                         purchase ? "buy" : "rent", node->accelerator->name);
}

static void assume_offers(const ls_path *path, ls_assumptions *list)
{
    for (size_t i = 0; i < path->offer_count; i++) {
        ls_offer_assume(&path->offers[i], list);
    }
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

/* What an offer does not say. */
static void set_lead_times(const ls_path_settings *settings, ls_assumptions *list, ls_path *path)
{
    const double usual_s = path->kind == LS_PATH_LOCAL    ? LS_PATH_LOCAL_LEAD_TIME_S
                           : settings->lead_time_s >= 0.0 ? settings->lead_time_s
                                                          : LS_PATH_LEAD_TIME_S;
    for (size_t i = 0; i < path->offer_count; i++) {
        ls_offer *offer = &path->offers[i];
        offer->lead_time_s = offer->lead_time_s > 0.0 ? offer->lead_time_s : usual_s;
        if (path->kind == LS_PATH_OWNED) {
            ls_assumptions_add(list, "owning: %.0f days until the machines are there",
                               offer->lead_time_s / 86400.0);
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
        path->offers[0] = (ls_offer){.name = "here",
                                     .kind = LS_OFFER_PURCHASE,
                                     .accelerator = path->node->accelerator->name,
                                     .node = "",
                                     .gpus_min = 1,
                                     .date = "",
                                     .confidence = ""};
        path->offer_count = 1;
    } else {
        LS_TRY(find_offers(settings, path));
        assume_offers(path, assumptions);
        path->host_usd = host_usd_per_gpu(path->node, path->kind);
        set_lead_times(settings, assumptions, path);
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

static const char *name_of(ls_arena *arena, const ls_path *path)
{
    switch (path->kind) {
    case LS_PATH_LOCAL:
        return path->is_here ? "this machine" : ls_arena_printf(arena, "%s under a desk", path->short_name);
    case LS_PATH_RENTED:
        return ls_arena_printf(arena, "%s, rented", path->short_name);
    case LS_PATH_CLOUD:
        return ls_arena_printf(arena, "%s, cloud", path->short_name);
    case LS_PATH_OWNED:
        return ls_arena_printf(arena, "%s of one's own", path->short_name);
    case LS_PATH_API:
        break;
    }
    return "an outside API";
}

ls_status ls_path_build(ls_arena *arena, const ls_path_settings *settings, ls_path_kind kind,
                        const ls_node *node, bool is_here, ls_assumptions *assumptions, ls_path *path_out)
{
    ls_path path = {.kind = kind, .node = node, .is_here = is_here, .catalogue = settings->catalogue};
    path.short_name = node ? ls_path_short_name(arena, node->accelerator) : "";
    if (kind == LS_PATH_LOCAL || kind == LS_PATH_OWNED) {
        LS_TRY(add_ownership(arena, settings, is_here, assumptions, &path));
    } else if (kind != LS_PATH_API) {
        LS_TRY(find_offers(settings, &path));
        assume_offers(&path, assumptions);
        assume_storage(settings, assumptions);
    }
    path.name = name_of(arena, &path);
    *path_out = path;
    return LS_OK;
}

/* ---- sizes ---- */

static double goodput_of(const ls_path *path, const ls_offer *offer, int64_t gpus, double parameters)
{
    const bool is_spot = offer->kind == LS_OFFER_SPOT;
    const ls_failure_setting setting = {
        .gpus = gpus,
        .gpus_per_node = path->node->count,
        .parameters = parameters,
        .snapshot_bytes_ps = path->node->accelerator->pcie_bytes_ps,
        .preemptions_per_day = is_spot ? offer->preemptions_per_day : 0.0,
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
    ls_path_point *point = &path->points[path->point_count++];
    *point = (ls_path_point){.gpus = gpus, .tokens_ps = copy};
    for (size_t i = 0; i < path->offer_count; i++) {
        point->goodput[i] = goodput_of(path, &path->offers[i], gpus, parameters);
    }
}

ls_ownership ls_path_ownership(const ls_path *path, const ls_offer *offer, int64_t gpus, double buy_factor,
                               double energy_factor, double staff_factor)
{
    const int64_t nodes = (gpus + path->node->count - 1) / path->node->count;
    const double network = nodes > 1 ? 1.0 + LS_COST_NETWORK_SHARE : 1.0;
    ls_power power;
    ls_power_compute(path->catalogue, path->node, gpus, &path->site, &power);
    ls_ownership o = path->terms;
    o.gpus = nodes * path->node->count;
    o.capex_usd = (offer->usd + path->host_usd) * (double)o.gpus * network * buy_factor;
    o.it_kw = power.it_kw;
    o.colo_kw = power.it_max_kw;
    o.energy_usd_kwh *= energy_factor;
    if (path->kind == LS_PATH_OWNED) {
        o.staff_usd_year =
            staff_factor * (o.staff_usd_year > 0.0 ? o.staff_usd_year : ls_cost_staff_usd_year(nodes));
    }
    return o;
}
