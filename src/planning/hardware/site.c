// SPDX-License-Identifier: Apache-2.0
#include "planning/hardware/site.h"

#include "base/options.h"
#include "base/yaml.h"

#include <math.h>
#include <string.h>

/* As in the file. */
typedef struct site_file {
    const char *like, *name, *cooling;
    double power_kw, rack_kw, pue, energy_usd_kwh, colo_usd_kw_month, circuit_volts, circuit_amps;
    uint64_t racks;
} site_file;

#define NOT_GIVEN LS_AUTO_F64
#define ROW(key_, type_, field_, default_)                                                                   \
    .key = key_, .type = type_, .offset = offsetof(site_file, field_), .default_text = default_
#define TEXT(key_) ROW(#key_, LS_OPTION_STRING, key_, "\"\"")
#define F64_AUTO(key_, field_, min_, max_)                                                                   \
    ROW(key_, LS_OPTION_F64, field_, "auto"), .allow_auto = true, .min = min_, .max = max_

/* clang-format off */
static const ls_option options[] = {
    {TEXT(like), .help = "name of the catalogue site from which values not given in this file are taken"},
    {TEXT(name), .help = "name of the site in the planner's answers"},
    {F64_AUTO("power_kw", power_kw, 0.1, 1e7), .help = "power supply of the whole site at the meter, in kW; default: as at the catalogue site named by key `like`"},
    {ROW("racks", LS_OPTION_U64, racks, "auto"), .allow_auto = true, .min = 1, .max = 1e6, .help = "number of racks; default: as at the catalogue site named by key `like`"},
    {F64_AUTO("rack_kw", rack_kw, 0.1, 1000), .help = "power limit of one rack, in kW"},
    {TEXT(cooling), .help = "strongest kind of cooling that the site has"},
    {F64_AUTO("pue", pue, 1, 3), .help = "power usage effectiveness (PUE): power at the meter divided by the power of the machines"},
    {F64_AUTO("energy_usd_kwh", energy_usd_kwh, 0, 10), .help = "price of electric energy in USD per kWh"},
    {F64_AUTO("colo_usd_kw_month", colo_usd_kw_month, 0, 10000), .help = "rent of the space in USD per reserved kW and month"},
    {F64_AUTO("circuit.volts", circuit_volts, 50, 1000), .help = "voltage of the electric circuit that supplies the site, in volts"},
    {F64_AUTO("circuit.amps", circuit_amps, 1, 1000), .help = "rated current of the breaker of the electric circuit that supplies the site, in amperes"},
};
/* clang-format on */
static const ls_option_table table = {.options = options, .count = sizeof options / sizeof *options};

static double given_or(double value, double unit, double otherwise)
{
    return value == NOT_GIVEN ? otherwise : value * unit;
}

/* The power of one rack, at most what its cooling supports. */
static ls_status set_rack(const site_file *file, const char *name, ls_site *site)
{
    if (file->rack_kw == NOT_GIVEN) {
        site->rack_w = file->cooling[0] ? site->cooling->rack_w : site->rack_w;
        return LS_OK;
    }
    site->rack_w = 1e3 * file->rack_kw;
    if (site->rack_w > site->cooling->rack_w) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s: rack_kw is %g, but %s supports up to %g kW; lower rack_kw, or set cooling to the actual one",
            name, file->rack_kw, site->cooling->name, site->cooling->rack_w / 1e3);
    }
    return LS_OK;
}

static ls_status set_circuit(const site_file *file, const char *name, ls_site *site)
{
    const bool has_volts = file->circuit_volts != NOT_GIVEN, has_amps = file->circuit_amps != NOT_GIVEN;
    if (has_volts != has_amps) {
        return ls_fail(LS_ERR_INVALID, "%s: the key `circuit` needs both `volts` and `amps`", name);
    }
    if (has_volts) {
        const double circuit_w = file->circuit_volts * file->circuit_amps * LS_SITE_CIRCUIT_SHARE;
        site->power_w = site->power_w > 0.0 ? fmin(site->power_w, circuit_w) : circuit_w;
    }
    return LS_OK;
}

static ls_status merge(ls_arena *arena, const ls_catalogue *catalogue, const ls_document *doc,
                       const site_file *file, ls_site *site_out)
{
    const ls_site *like;
    if (ls_catalogue_find_site(catalogue, file->like[0] ? file->like : LS_SITE_USUAL, &like) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "%s:%d: key `like`", doc->name, ls_document_line(doc, "like"));
    }
    ls_site site = *like;
    if (file->cooling[0] && ls_catalogue_find_cooling(catalogue, file->cooling, &site.cooling) != LS_OK) {
        return ls_fail_within(LS_ERR_INVALID, "%s:%d: key `cooling`", doc->name,
                              ls_document_line(doc, "cooling"));
    }
    site.name = ls_arena_strdup(arena, file->name[0] ? file->name : doc->name);
    site.aliases = "";
    site.racks = file->racks == LS_AUTO_U64 ? site.racks : (int64_t)file->racks;
    site.power_w = given_or(file->power_kw, 1e3, site.power_w);
    site.pue = given_or(file->pue, 1.0, site.pue);
    site.energy_usd_kwh = given_or(file->energy_usd_kwh, 1.0, site.energy_usd_kwh);
    site.colo_usd_kw_month = given_or(file->colo_usd_kw_month, 1.0, site.colo_usd_kw_month);
    LS_TRY(set_rack(file, doc->name, &site));
    LS_TRY(set_circuit(file, doc->name, &site));
    *site_out = site;
    return LS_OK;
}

static ls_status read_document(ls_arena *arena, const ls_catalogue *catalogue, const ls_document *doc,
                               ls_site *site_out)
{
    site_file file;
    ls_options_defaults(&table, &file, arena);
    LS_TRY(ls_options_apply_document(&table, &file, doc, arena));
    return merge(arena, catalogue, doc, &file, site_out);
}

ls_status ls_site_parse(ls_arena *arena, const ls_catalogue *catalogue, const char *text, size_t bytes,
                        const char *name, ls_site *site_out)
{
    ls_document doc;
    LS_TRY(text ? ls_yaml_parse(text, bytes, name, &doc) : ls_yaml_load(name, &doc));
    const ls_status status = read_document(arena, catalogue, &doc, site_out);
    ls_document_release(&doc);
    return status;
}

ls_status ls_site_load(ls_arena *arena, const ls_catalogue *catalogue, const char *name_or_path,
                       ls_site *site_out)
{
    if (!strpbrk(name_or_path, "./")) {
        const ls_site *site;
        LS_TRY(ls_catalogue_find_site(catalogue, name_or_path[0] ? name_or_path : LS_SITE_USUAL, &site));
        *site_out = *site;
        return LS_OK;
    }
    return ls_site_parse(arena, catalogue, NULL, 0, name_or_path, site_out);
}

const ls_cooling *ls_site_cooling_for(const ls_catalogue *catalogue, double rack_w)
{
    const ls_cooling *best = &catalogue->coolings[0];
    for (size_t i = 0; i < catalogue->cooling_count; i++) {
        const ls_cooling *one = &catalogue->coolings[i];
        const bool is_enough = one->rack_w >= rack_w, was_enough = best->rack_w >= rack_w;
        if (was_enough ? is_enough && one->rack_w < best->rack_w : one->rack_w > best->rack_w) {
            best = one;
        }
    }
    return best;
}
