// SPDX-License-Identifier: Apache-2.0
#include "planning/money/quote.h"

#include "base/options.h"
#include "base/yaml.h"
#include "planning/money/failure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { OFFERS_MOST = 256 };

static const char *const kind_names[] = {"on-demand", "reserved", "capacity-block", "spot", "purchase", NULL};
static const char *const unit_names[] = {"gpu", "node", NULL};

#define ROW(key_, type_, field_, default_)                                                                   \
    .key = key_, .type = type_, .offset = offsetof(ls_offer, field_), .default_text = default_
#define TEXT(key_, field_) ROW(key_, LS_OPTION_STRING, field_, "\"\"")
#define F64(key_, field_, default_, min_, max_)                                                              \
    ROW(key_, LS_OPTION_F64, field_, default_), .min = min_, .max = max_

/* clang-format off */
static const ls_option offer_options[] = {
    {TEXT("name", name), .help = "name of the offer in the planner's answers"},
    {ROW("kind", LS_OPTION_CHOICE, kind, "on-demand"), .choices = kind_names, .help = "how the machines of this offer are paid for"},
    {TEXT("accelerator", accelerator), .help = "name of the accelerator offered, as in the catalogue"},
    {TEXT("node", node), .help = "name of the type of node offered, as in the catalogue"},
    {F64("usd", usd, "auto", 1e-4, 1e8), .allow_auto = true, .help = "price of the offer in USD: per hour if the machines are rented, in total if they are bought"},
    {ROW("per", LS_OPTION_CHOICE, unit, "gpu"), .choices = unit_names, .help = "whether the price in key `usd` is for one GPU or for one node"},
    {ROW("gpus_min", LS_OPTION_U64, gpus_min, "1"), .min = 1, .max = 1e7, .help = "smallest number of GPUs that this offer is for"},
    {ROW("gpus_max", LS_OPTION_U64, gpus_max, "0"), .min = 0, .max = 1e7, .help = "largest number of GPUs that this offer is for; 0: no limit"},
    {F64("months", months, "0", 0, 120), .help = "number of months that must be paid, whether the machines are used or not"},
    {ROW("lead_time", LS_OPTION_DURATION, lead_time_s, "0"), .min = 0, .max = 1e9, .help = "time from order to delivery of the machines"},
    {F64("preemptions_per_day", preemptions_per_day, "auto", 0, 1000), .allow_auto = true, .help = "how many times per day a spot node is taken away (preempted)"},
    {ROW("cloud", LS_OPTION_BOOL, cloud, "false"), .help = "whether the planner treats the offer as one of a cloud provider"},
    {TEXT("date", date), .help = "date on which the offer was made"},
};
static const ls_option quote_options[] = {
    {.key = "storage_usd_gb_month", .type = LS_OPTION_F64, .offset = offsetof(ls_quote, storage_usd_gb_month), .default_text = "0.023", .min = 0, .max = 100, .help = "price of storage in USD per GB and month"},
    {.key = "egress_usd_tb", .type = LS_OPTION_F64, .offset = offsetof(ls_quote, egress_usd_tb), .default_text = "90", .min = 0, .max = 1e5, .help = "price in USD per TB of data that leaves the provider"},
};
/* clang-format on */
static const ls_option_table offer_table = {.options = offer_options,
                                            .count = sizeof offer_options / sizeof *offer_options};
static const ls_option_table quote_table = {.options = quote_options,
                                            .count = sizeof quote_options / sizeof *quote_options};

const char *ls_offer_kind_name(ls_offer_kind kind)
{
    return kind_names[kind];
}

/* ---- the file ---- */

/* Checks what the table of keys cannot: values that depend on each other. */
static ls_status check_offer(const ls_offer *offer, const char *place)
{
    if (offer->usd == LS_AUTO_F64) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: the offer has no key usd (the price of one GPU or node: per hour if rented, in "
                       "total if bought)",
                       place);
    }
    if (!offer->accelerator[0] == !offer->node[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: an offer needs either the key accelerator or the key node, not both", place);
    }
    if (offer->gpus_max > 0 && offer->gpus_max < offer->gpus_min) {
        return ls_fail(LS_ERR_INVALID, "%s: gpus_max is %llu, less than gpus_min %llu", place,
                       (unsigned long long)offer->gpus_max, (unsigned long long)offer->gpus_min);
    }
    if ((offer->kind == LS_OFFER_RESERVED) != (offer->months > 0.0)) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s: an offer of kind reserved needs the key months; offers of other kinds must not have it",
            place);
    }
    if (offer->preemptions_per_day > 0.0 && offer->kind != LS_OFFER_SPOT) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: the key preemptions_per_day is allowed for kind spot only; this offer is %s",
                       place, kind_names[offer->kind]);
    }
    return LS_OK;
}

static ls_status read_offer(ls_arena *arena, const ls_document *doc, size_t index, ls_offer *offer)
{
    const char *place = ls_arena_printf(arena, "%s:%d", doc->name,
                                        ls_document_line(doc, ls_arena_printf(arena, "offers.%zu", index)));
    ls_options_defaults(&offer_table, offer, arena);
    LS_TRY(ls_options_apply_item(&offer_table, offer, doc, "offers", index, arena));
    if (offer->kind == LS_OFFER_SPOT && offer->preemptions_per_day == LS_AUTO_F64) {
        offer->preemptions_per_day = LS_FAILURE_SPOT_PER_DAY;
    }
    LS_TRY(check_offer(offer, place));
    offer->preemptions_per_day = fmax(offer->preemptions_per_day, 0.0);
    if (!offer->name[0]) {
        offer->name = ls_arena_printf(arena, "offer %zu", index + 1);
    }
    offer->usd_low = offer->usd_high = offer->usd;
    offer->confidence = "own offer";
    offer->is_own = true;
    return LS_OK;
}

static ls_status read_document(ls_arena *arena, ls_document *doc, ls_quote *quote_out)
{
    json_t *list = json_object_get(doc->root, "offers");
    const size_t count = json_array_size(list);
    if (!json_is_array(list) || count == 0 || count > OFFERS_MOST) {
        return ls_fail(LS_ERR_INVALID,
                       "%s: the key offers must be a list of 1 to %d items (examples/plan/quote.yaml)",
                       doc->name, OFFERS_MOST);
    }
    ls_offer *offers = ls_arena_new(arena, ls_offer, count);
    for (size_t i = 0; i < count; i++) {
        LS_TRY(read_offer(arena, doc, i, &offers[i]));
    }
    ls_quote quote = {.offers = offers, .count = count};
    ls_options_defaults(&quote_table, &quote, arena);
    json_object_del(doc->root, "offers"); /* Already read; the other keys follow. */
    LS_TRY(ls_options_apply_document(&quote_table, &quote, doc, arena));
    quote.has_storage = json_object_get(doc->root, "storage_usd_gb_month") != NULL;
    quote.has_egress = json_object_get(doc->root, "egress_usd_tb") != NULL;
    *quote_out = quote;
    return LS_OK;
}

ls_status ls_quote_parse(ls_arena *arena, const char *text, size_t bytes, const char *name,
                         ls_quote *quote_out)
{
    ls_document doc;
    LS_TRY(text ? ls_yaml_parse(text, bytes, name, &doc) : ls_yaml_load(name, &doc));
    const ls_status status = read_document(arena, &doc, quote_out);
    ls_document_release(&doc);
    return status;
}

ls_status ls_quote_load(ls_arena *arena, const char *path, ls_quote *quote_out)
{
    return ls_quote_parse(arena, NULL, 0, path, quote_out);
}

ls_status ls_quote_check(const ls_quote *quote, const ls_catalogue *catalogue)
{
    for (size_t i = 0; i < quote->count; i++) {
        const ls_offer *offer = &quote->offers[i];
        const ls_accelerator *accelerator;
        const ls_node *node;
        const ls_status status =
            offer->node[0] ? ls_catalogue_find_node(catalogue, offer->node, &node)
                           : ls_catalogue_find_accelerator(catalogue, offer->accelerator, &accelerator);
        if (status != LS_OK) {
            return ls_fail_within(LS_ERR_INVALID, "offer \"%s\"", offer->name);
        }
        if (!offer->node[0] && offer->unit == LS_OFFER_PER_NODE) {
            return ls_fail(
                LS_ERR_INVALID,
                "offer \"%s\" has a price per node and must name the node, for example node: DGX-H100",
                offer->name);
        }
    }
    return LS_OK;
}

/* ---- offers for a node ---- */

/* An offer that names a node counts for all nodes of its accelerator, because prices are compared
 * per GPU. */
static bool is_for(const ls_offer *offer, const ls_catalogue *catalogue, const ls_node *wanted,
                   int64_t *count_out)
{
    const ls_accelerator *accelerator = NULL;
    const ls_node *node = NULL;
    *count_out = 1;
    if (offer->node[0]) {
        if (ls_catalogue_find_node(catalogue, offer->node, &node) != LS_OK) {
            ls_error_clear();
            return false;
        }
        *count_out = node->count;
        accelerator = node->accelerator;
    } else if (ls_catalogue_find_accelerator(catalogue, offer->accelerator, &accelerator) != LS_OK) {
        ls_error_clear();
        return false;
    }
    return accelerator == wanted->accelerator;
}

bool ls_offer_is_for(const ls_offer *offer, const ls_catalogue *catalogue, const ls_node *node)
{
    int64_t count;
    return is_for(offer, catalogue, node, &count);
}

/* Whether two offers differ only in price. */
static bool is_alike(const ls_offer *a, const ls_offer *b)
{
    return a->kind == b->kind && a->gpus_min == b->gpus_min && a->gpus_max == b->gpus_max &&
           a->months == b->months && a->lead_time_s == b->lead_time_s &&
           a->preemptions_per_day == b->preemptions_per_day;
}

static void insert(ls_offer *offers, size_t at, size_t count, const ls_offer *offer)
{
    memmove(&offers[at + 1], &offers[at], (count - at) * sizeof *offers);
    offers[at] = *offer;
}

/* Inserts an offer after those that cost no more, among the first `count`. */
static size_t place_of(const ls_offer *offers, size_t count, const ls_offer *offer)
{
    size_t at = count;
    while (at > 0 && offers[at - 1].usd > offer->usd) {
        at--;
    }
    return at;
}

/* Moves offers that cost more than a similar one to the end, in the same order. `offers` is sorted
 * by price. */
static void move_dearer_back(ls_offer *offers, size_t count)
{
    size_t best = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_dearer = false;
        for (size_t k = 0; k < best; k++) {
            is_dearer = is_dearer || is_alike(&offers[k], &offers[i]);
        }
        if (!is_dearer) {
            const ls_offer offer = offers[i];
            memmove(&offers[best + 1], &offers[best], (i - best) * sizeof *offers);
            offers[best++] = offer;
        }
    }
}

size_t ls_quote_find(const ls_quote *quote, const ls_catalogue *catalogue, const ls_node *node, bool purchase,
                     bool cloud, ls_offer *offers_out)
{
    size_t found = 0;
    for (size_t i = 0; i < quote->count; i++) {
        ls_offer offer = quote->offers[i];
        int64_t count;
        if ((offer.kind == LS_OFFER_PURCHASE) != purchase || (!purchase && offer.cloud != cloud) ||
            !is_for(&offer, catalogue, node, &count)) {
            continue;
        }
        offer.usd /= offer.unit == LS_OFFER_PER_NODE ? (double)count : 1.0;
        offer.usd_low = offer.usd_high = offer.usd;
        insert(offers_out, place_of(offers_out, found, &offer), found, &offer);
        found++;
    }
    move_dearer_back(offers_out, found);
    return found;
}

/* One price for a range: a third of the way up, in ratio. */
static double price_of(const ls_price *price)
{
    return price->low * cbrt(price->high / price->low);
}

static bool is_known(const ls_price *price)
{
    return price->low > 0.0 && price->high >= price->low;
}

static ls_offer offer_of(const char *name, ls_offer_kind kind, const ls_node *node, const ls_price *price,
                         double usd)
{
    return (ls_offer){
        .name = name,
        .kind = kind,
        .accelerator = node->accelerator->name,
        .node = "",
        .usd = usd,
        .usd_low = price->low,
        .usd_high = price->high,
        .gpus_min = 1,
        .date = price->date ? price->date : "",
        .confidence = price->confidence ? price->confidence : "",
    };
}

/* The accelerator's range covers all providers; a node's covers one. */
static const ls_price *rent_of(const ls_node *node)
{
    return is_known(&node->accelerator->rent_hour) ? &node->accelerator->rent_hour : &node->rent_hour;
}

bool ls_offer_rented(const ls_node *node, ls_offer *offer_out)
{
    const ls_price *price = rent_of(node);
    if (is_known(price)) {
        *offer_out = offer_of("rented", LS_OFFER_ON_DEMAND, node, price, price_of(price));
    }
    return is_known(price);
}

bool ls_offer_cloud(const ls_node *node, ls_offer *offer_out)
{
    const ls_price *price = rent_of(node);
    if (is_known(price)) {
        *offer_out = offer_of("cloud, on demand", LS_OFFER_ON_DEMAND, node, price, price->high);
        offer_out->cloud = true;
    }
    return is_known(price);
}

bool ls_offer_purchase(const ls_node *node, ls_offer *offer_out)
{
    if (is_known(&node->price)) {
        const double count = (double)node->count;
        const ls_price each = {.low = node->price.low / count,
                               .high = node->price.high / count,
                               .date = node->price.date,
                               .confidence = node->price.confidence};
        *offer_out = offer_of("bought", LS_OFFER_PURCHASE, node, &each, price_of(&each));
        return true;
    }
    const ls_price *price = &node->accelerator->price;
    if (is_known(price)) {
        *offer_out = offer_of("bought", LS_OFFER_PURCHASE, node, price, price_of(price));
    }
    return is_known(price);
}

static void append_source(const ls_offer *offer, char *text, size_t bytes)
{
    const bool is_range = offer->usd_high > offer->usd_low;
    char range[64] = "";
    if (is_range) {
        snprintf(range, sizeof range, "range %.6g to %.6g, ", offer->usd_low, offer->usd_high);
    }
    snprintf(text, bytes, "%s%s%s%s", range, offer->date[0] ? offer->date : "no date",
             offer->confidence[0] ? ", " : "", offer->confidence);
}

const char *ls_offer_assume(const ls_offer *offer, ls_assumptions *list)
{
    const char *what = offer->accelerator[0] ? offer->accelerator : offer->node;
    char source[160];
    append_source(offer, source, sizeof source);
    if (offer->kind == LS_OFFER_PURCHASE) {
        return ls_assumptions_add(list, "%s, %s: %.0f USD per GPU (%s)", what, offer->name, offer->usd,
                                  source);
    }
    return ls_assumptions_add(list, "%s, %s: %.2f USD per GPU and hour (%s)", what, offer->name, offer->usd,
                              source);
}
