// SPDX-License-Identifier: Apache-2.0
#include "planning/money/paths.h"

#include "planning/hardware/site.h"
#include "planning/money/failure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SERVER_USD      25e3 /* A server for 8 cards that are sold without one. */
#define WORKSTATION_USD 2500.0
#define DESK            "office-230v" /* The site of a local machine. */

const char *ls_path_kind_name(ls_path_kind kind)
{
    static const char *const names[] = {"local", "rented", "cloud", "owned", "api"};
    return names[kind];
}

/* The name without the memory size and the socket: "H100", "RTX-4090". */
static const char *short_name_of(ls_arena *arena, const ls_accelerator *accelerator)
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

static bool is_purchase(ls_path_kind kind)
{
    return kind == LS_PATH_LOCAL || kind == LS_PATH_OWNED;
}

static bool find_market(const ls_path *path, ls_offer *offer_out)
{
    return is_purchase(path->kind)       ? ls_offer_purchase(path->node, offer_out)
           : path->kind == LS_PATH_CLOUD ? ls_offer_cloud(path->node, offer_out)
                                         : ls_offer_rented(path->node, offer_out);
}

static ls_status fail_without_price(const ls_path *path)
{
    return ls_fail(
        LS_ERR_NOT_FOUND,
        "the catalogue has no price to %s %s; give one with --quote FILE (examples/plan/quote.yaml)",
        is_purchase(path->kind) ? "buy" : "rent", path->node->accelerator->name);
}

bool ls_path_is_replaced(const ls_path *path, int64_t gpus)
{
    for (size_t i = 0; i < path->own_count; i++) {
        const ls_offer *own = &path->own[i];
        if (own->kind == path->offer.kind && (uint64_t)gpus >= own->gpus_min &&
            (own->gpus_max == 0 || (uint64_t)gpus <= own->gpus_max)) {
            return true;
        }
    }
    return false;
}

/* The price of a host for cards that are sold without one. */
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
    ls_assumptions_add(list, "%s: PUE %.3g, %.3g USD per kWh, %.3g USD per kW and month for space (%s%s%s)",
                       site->name, site->pue, site->energy_usd_kwh, t->colo_usd_kw_month,
                       site->date[0] ? site->date : "your own figures", site->confidence[0] ? ", " : "",
                       site->confidence);
    if (path->host_usd > 0.0) {
        ls_assumptions_add(list, "%s is sold without a host: %.0f USD more per GPU", path->short_name,
                           path->host_usd);
    }
    if (path->kind == LS_PATH_LOCAL && !path->is_here) {
        ls_assumptions_add(list,
                           "a machine under a desk is paid by its only run, or over %.0f years with %.0f %% "
                           "resale and %.0f %% interest",
                           t->life_years, 100.0 * t->resale_share, 100.0 * t->capital_share);
    }
    if (path->kind == LS_PATH_OWNED) {
        ls_assumptions_add(list,
                           "owning: life of %.0f years, %.0f %% resale, %.0f %% interest and %.0f %% "
                           "maintenance a year; several nodes cost %.0f %% more for their network",
                           t->life_years, 100.0 * t->resale_share, 100.0 * t->capital_share,
                           100.0 * t->maintenance_share, 100.0 * LS_COST_NETWORK_SHARE);
        if (t->staff_usd_year > 0.0) {
            ls_assumptions_add(list, "owning: staff of %.0f USD a year", t->staff_usd_year);
        } else {
            ls_assumptions_add(list, "owning: staff of 250,000 USD a year for 64 GPUs, growing with the "
                                     "number of GPUs to the power 0.75");
        }
    }
}

/* Fills in the delivery time where the offer does not state it. */
static void set_lead_time(const ls_path_settings *settings, ls_path *path)
{
    ls_offer *offer = &path->offer;
    if (!(offer->lead_time_s > 0.0)) {
        offer->lead_time_s = path->kind == LS_PATH_LOCAL    ? LS_PATH_LOCAL_LEAD_TIME_S
                             : settings->lead_time_s >= 0.0 ? settings->lead_time_s
                                                            : LS_PATH_LEAD_TIME_S;
    }
    ls_assumptions_add(settings->assumptions, "%s: delivered after %.0f days",
                       path->kind == LS_PATH_LOCAL ? "a machine under a desk" : "owned machines",
                       offer->lead_time_s / 86400.0);
}

static ls_status set_site(const ls_path_settings *settings, ls_path *path)
{
    path->site = settings->site;
    /* A machine under a desk is in an office, unless the site was named. */
    if (path->kind == LS_PATH_LOCAL && strcmp(settings->site.name, LS_SITE_USUAL) == 0) {
        LS_TRY(ls_site_load(settings->arena, settings->catalogue, DESK, &path->site));
    }
    path->terms = terms_of(settings, path->kind, &path->site);
    path->host_usd = path->is_here ? 0.0 : host_usd_per_gpu(path->node, path->kind);
    return LS_OK;
}

static void assume_storage(const ls_path_settings *settings)
{
    static const char market[] = "a cloud's list price, 2026", own[] = "your own offer";
    const ls_quote *quote = settings->quote;
    const bool has_storage = quote && quote->has_storage, has_egress = quote && quote->has_egress;
    ls_assumptions_add(settings->assumptions,
                       "storage %.3g USD per GB and month (%s), egress %.3g USD per TB (%s); %.0f full "
                       "checkpoints and the text are stored during a run, and for at least a month",
                       has_storage ? quote->storage_usd_gb_month : LS_COST_STORAGE_USD_GB_MONTH,
                       has_storage ? own : market, has_egress ? quote->egress_usd_tb : LS_COST_EGRESS_USD_TB,
                       has_egress ? own : market, LS_COST_CHECKPOINTS_KEPT);
}

static const char *name_of(ls_arena *arena, const ls_path *path)
{
    if (path->offer.is_own) {
        return ls_arena_printf(arena, "%s, %s", path->short_name, path->offer.name);
    }
    switch (path->kind) {
    case LS_PATH_LOCAL:
        return path->is_here ? "this machine" : ls_arena_printf(arena, "%s under a desk", path->short_name);
    case LS_PATH_RENTED:
        return ls_arena_printf(arena, "%s, rented", path->short_name);
    case LS_PATH_CLOUD:
        return ls_arena_printf(arena, "%s, cloud", path->short_name);
    case LS_PATH_OWNED:
        return ls_arena_printf(arena, "%s, owned", path->short_name);
    case LS_PATH_API:
        break;
    }
    return "an outside API";
}

/* A copy of the path at this price. */
static void price_path(const ls_path_settings *settings, const ls_path *path, const ls_offer *offer,
                       ls_path *path_out)
{
    *path_out = *path;
    path_out->offer = *offer;
    path_out->own_count = offer->is_own ? 0 : path->own_count;
    path_out->name = name_of(settings->arena, path_out);
    path_out->assumed_price = ls_offer_assume(offer, settings->assumptions);
    if (is_purchase(path->kind)) {
        set_lead_time(settings, path_out);
    }
}

/* A path for each own offer, as far as there is room, then one at the catalogue's price. */
static ls_status price_all(const ls_path_settings *settings, ls_path *path, size_t most, ls_path *paths_out,
                           size_t *count_out)
{
    ls_offer market;
    const bool has_market = find_market(path, &market);
    ls_offer *own = NULL;
    if (settings->quote) {
        own = ls_arena_new(settings->arena, ls_offer, settings->quote->count);
        path->own_count = ls_quote_find(settings->quote, settings->catalogue, path->node,
                                        is_purchase(path->kind), path->kind == LS_PATH_CLOUD, own);
    }
    if (!has_market && path->own_count == 0) {
        return fail_without_price(path);
    }
    const size_t room = most > has_market ? most - has_market : 0;
    const size_t shown_most = room < LS_PATH_OFFERS_MOST ? room : LS_PATH_OFFERS_MOST;
    const size_t shown = path->own_count < shown_most ? path->own_count : shown_most;
    size_t count = 0;
    path->own = own;
    for (size_t i = 0; i < shown; i++) {
        price_path(settings, path, &own[i], &paths_out[count++]);
    }
    if (shown < path->own_count) {
        ls_assumptions_add(
            settings->assumptions,
            "%zu of %zu own offers for %s are left out: only the cheapest of each kind and size "
            "are compared, at most %zu",
            path->own_count - shown, path->own_count, path->node->accelerator->name, shown);
    }
    if (has_market && count < most) {
        price_path(settings, path, &market, &paths_out[count++]);
    }
    *count_out = count;
    return LS_OK;
}

ls_status ls_path_build(const ls_path_settings *settings, const ls_path_request *request, ls_path *paths_out,
                        size_t *count_out)
{
    const ls_path_kind kind = request->kind;
    const ls_node *node = request->node;
    ls_path path = {
        .kind = kind, .node = node, .is_here = request->is_here, .catalogue = settings->catalogue};
    path.short_name = node ? short_name_of(settings->arena, node->accelerator) : "";
    path.name = name_of(settings->arena, &path);
    /* rented: the people who operate the rented machines */
    path.terms.staff_usd_year = settings->staff_usd_year;
    if (is_purchase(kind)) {
        LS_TRY(set_site(settings, &path));
    }
    if (kind == LS_PATH_API || request->is_here) {
        path.offer = (ls_offer){.name = "here",
                                .kind = LS_OFFER_PURCHASE,
                                .accelerator = node ? node->accelerator->name : "",
                                .node = "",
                                .gpus_min = 1,
                                .date = "",
                                .confidence = ""};
        paths_out[0] = path;
        *count_out = 1;
    } else {
        LS_TRY(price_all(settings, &path, request->most, paths_out, count_out));
    }
    if (is_purchase(kind)) {
        assume_terms(&path, settings->assumptions);
    } else if (kind != LS_PATH_API) {
        assume_storage(settings);
    }
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

void ls_path_add_point(ls_path *path, ls_arena *arena, const ls_path_size *size)
{
    if (path->point_count == LS_PATH_POINTS_MOST || !path->node) {
        return;
    }
    double *copy = ls_arena_new(arena, double, size->count);
    memcpy(copy, size->tokens_ps, size->count * sizeof *copy);
    path->points[path->point_count++] =
        (ls_path_point){.gpus = size->gpus,
                        .tokens_ps = copy,
                        .slow = fmax(size->slow, 1.0),
                        .goodput = goodput_of(path, size->gpus, size->parameters)};
}

int64_t ls_path_whole_gpus(const ls_path *path, int64_t gpus)
{
    return (gpus + path->node->count - 1) / path->node->count * path->node->count;
}

ls_ownership ls_path_ownership(const ls_path *path, int64_t gpus, double buy_factor, double energy_factor,
                               double staff_factor)
{
    const int64_t nodes = ls_path_whole_gpus(path, gpus) / path->node->count;
    const double network = nodes > 1 ? 1.0 + LS_COST_NETWORK_SHARE : 1.0;
    ls_power power;
    ls_power_compute(path->catalogue, path->node, gpus, &path->site, &power);
    ls_ownership o = path->terms;
    o.gpus = nodes * path->node->count;
    o.capex_usd = (path->offer.usd + path->host_usd) * (double)o.gpus * network * buy_factor;
    o.it_kw = power.it_kw;
    o.colo_kw = power.it_max_kw;
    o.energy_usd_kwh *= energy_factor;
    if (path->kind == LS_PATH_OWNED) {
        o.staff_usd_year =
            staff_factor * (o.staff_usd_year > 0.0 ? o.staff_usd_year : ls_cost_staff_usd_year(o.gpus));
    }
    return o;
}
