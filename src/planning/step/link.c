// SPDX-License-Identifier: Apache-2.0
#include "planning/step/link.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ENOUGH_COMPUTING 0.75

#define FORM(form)                                                                                           \
    {                                                                                                        \
        .kind = LS_COMPRESSION_##form                                                                        \
    }
enum { ONE_PERCENT = (LS_COMPRESSION_BLOCK + 99) / 100 };

const ls_link_scheme ls_link_schemes[LS_LINK_SCHEMES] = {
    {"dense", FORM(NONE), 1},
    {"int8", FORM(INT8), 1},
    {"topk 1 %", {.kind = LS_COMPRESSION_TOPK, .keep = ONE_PERCENT}, 1},
    {"local 10", FORM(NONE), 10},
    {"local 10, int8", FORM(INT8), 10},
    {"local 10, int4", FORM(INT4), 10},
    {"local 50", FORM(NONE), 50},
    {"local 50, int8", FORM(INT8), 50},
    {"local 50, int4", FORM(INT4), 50},
    {"local 100", FORM(NONE), 100},
    {"local 100, int8", FORM(INT8), 100},
    {"local 100, int4", FORM(INT4), 100},
    {"local 500", FORM(NONE), 500},
    {"local 500, int8", FORM(INT8), 500},
    {"local 500, int4", FORM(INT4), 500},
};

/* Seconds to pack a value, and to unpack one, beside those that int8 takes to pack it. */
static const double pack_times[LS_COMPRESSION_KINDS] = {[LS_COMPRESSION_BF16] = 0.5,
                                                        [LS_COMPRESSION_INT8] = 1.0,
                                                        [LS_COMPRESSION_INT4] = 1.0,
                                                        [LS_COMPRESSION_TOPK] = 2.0};
#define UNPACK_TIMES (1.0 / 7.0)

/* ---- bytes ---- */

/* Slices begin at whole blocks of a bucket, so it does not matter who owns what. */
static uint64_t packed_bytes(const ls_compression *form, uint64_t values, const ls_layout *layout)
{
    uint64_t bytes = layout ? 0 : ls_compressed_bytes(form, values);
    for (uint32_t i = 0; layout && i < layout->bucket_count; i++) {
        bytes += ls_compressed_bytes(form, (uint64_t)layout->buckets[i].count);
    }
    return bytes;
}

uint64_t ls_link_bytes_exchange(const ls_link_scheme *scheme, uint64_t values, const ls_layout *layout,
                                uint64_t hosts, uint64_t groups)
{
    LS_ASSERT(hosts > 0 && groups % hosts == 0);
    /* by the owner of a share */
    const uint64_t received = groups - groups / hosts, sent = hosts - 1;
    const ls_compression back = ls_compression_of_sum(scheme->form, (uint32_t)groups);
    const ls_layout *buckets = scheme->steps > 1 ? NULL : layout;
    return received * packed_bytes(&scheme->form, values, buckets) +
           sent * packed_bytes(&back, values, buckets);
}

static void add_peak(const ls_link_setting *setting, ls_link_estimate *estimate)
{
    const ls_link_scheme *scheme = &estimate->scheme;
    const uint32_t asked = setting->fragments > 0 ? setting->fragments : 1;
    const uint32_t fragments = estimate->fragments = scheme->steps % asked == 0 ? asked : 1;
    const uint64_t hosts = setting->hosts,
                   largest = setting->layout ? (uint64_t)ls_layout_largest_run(setting->layout, fragments)
                                             : (setting->values + fragments - 1) / fragments;
    const uint64_t all = ls_link_bytes_exchange(scheme, largest, NULL, hosts, hosts);
    estimate->peak_bytes = scheme->steps > 1 ? (double)all / (double)hosts : estimate->bytes;
}

/* ---- time ---- */

static double packing_s(const ls_link_setting *setting, const ls_link_scheme *scheme)
{
    const double share = 1.0 / (double)setting->hosts, others = 1.0 - share;
    const ls_compression back = ls_compression_of_sum(scheme->form, (uint32_t)setting->hosts);
    const double unpacked = scheme->form.kind == LS_COMPRESSION_NONE ? 0.0 : 2.0 * others * UNPACK_TIMES;
    return setting->pack_s * (double)setting->values / (double)scheme->steps *
           (pack_times[scheme->form.kind] + share * pack_times[back.kind] + unpacked);
}

static void add_state(const ls_link_setting *setting, ls_link_estimate *estimate)
{
    const double state = sizeof(float) * (double)setting->values, hosts = (double)setting->hosts;
    if (estimate->scheme.steps > 1) {
        estimate->memory_bytes = 2.0 * state;
        estimate->checkpoint_bytes = 3.0 * state * (hosts - 1.0) + 2.0 * state;
    } else {
        const uint32_t flats = ls_compression_flats(estimate->scheme.form.kind, (uint32_t)setting->hosts);
        estimate->memory_bytes = 2.0 * state * flats;
        estimate->checkpoint_bytes = state * flats;
    }
}

void ls_link_estimate_compute(const ls_link_setting *setting, const ls_link_scheme *scheme,
                              ls_link_estimate *estimate_out)
{
    LS_ASSERT(setting->hosts >= 2 && setting->compute_s > 0.0 && setting->link_bytes_ps > 0.0);
    const uint64_t hosts = setting->hosts;
    const double senders = (double)hosts * (double)scheme->steps;
    ls_link_estimate estimate = {.scheme = *scheme};
    estimate.bytes =
        (double)ls_link_bytes_exchange(scheme, setting->values, setting->layout, hosts, hosts) / senders;
    add_peak(setting, &estimate);
    const double dense =
        (double)ls_link_bytes_exchange(&ls_link_schemes[0], setting->values, NULL, hosts, hosts) /
        (double)hosts;
    estimate.times = dense / estimate.bytes;
    estimate.packing_s = packing_s(setting, scheme);
    estimate.step_s = setting->compute_s + estimate.packing_s + estimate.bytes / setting->link_bytes_ps +
                      2.0 * setting->latency_s / (double)scheme->steps;
    estimate.computing = setting->compute_s / estimate.step_s;
    add_state(setting, &estimate);
    *estimate_out = estimate;
}

uint32_t ls_link_choose(const ls_link_setting *setting)
{
    uint32_t best = 0;
    double most = 0.0;
    for (uint32_t i = 0; i < LS_LINK_SCHEMES && most < ENOUGH_COMPUTING; i++) {
        ls_link_estimate estimate;
        ls_link_estimate_compute(setting, &ls_link_schemes[i], &estimate);
        if (estimate.computing > most) {
            most = estimate.computing;
            best = i;
        }
    }
    return best;
}

/* ---- rates ---- */

/* Bytes per second of one "bit" or "B" unit with its prefix; 0: unknown. */
static double unit_bytes_ps(const char *unit)
{
    static const char prefixes[] = "kMGT";
    const char *prefix = *unit ? strchr(prefixes, *unit == 'K' ? 'k' : *unit) : NULL;
    const double scale = prefix ? pow(1000.0, (double)(prefix - prefixes + 1)) : 1.0;
    const char *rest = prefix ? unit + 1 : unit;
    if (strcasecmp(rest, "bit") == 0 || strcasecmp(rest, "bit/s") == 0 || strcmp(rest, "bps") == 0) {
        return scale / 8.0;
    }
    return strcmp(rest, "B/s") == 0 ? scale : 0.0;
}

ls_status ls_link_parse(const char *option, const char *text, double *bytes_ps_out)
{
    char *end = NULL;
    const double number = strtod(text, &end);
    const double unit = end != text ? unit_bytes_ps(end + strspn(end, " ")) : 0.0;
    const double rate = number * unit;
    if (!(unit > 0.0) || !(rate >= 125.0 && rate <= 1.25e12)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s is '%s', allowed is a rate of 1kbit to 10Tbit per second with its unit, such as "
                       "100Mbit, 1Gbit or 12.5MB/s",
                       option, text);
    }
    *bytes_ps_out = rate;
    return LS_OK;
}
