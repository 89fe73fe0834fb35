// SPDX-License-Identifier: Apache-2.0
/* plan: slow links, as a table, a line of the first screen, and JSON. */
#include "cli/plan/plan.h"
#include "cli/table.h"

#include <inttypes.h>

/* The keys of a run file that turn a scheme on. */
static const char *keys_of(ls_arena *arena, const ls_link_setting *setting, const ls_link_estimate *row)
{
    const ls_link_scheme *scheme = &row->scheme;
    static const char *const kinds[LS_COMPRESSION_KINDS] = {[LS_COMPRESSION_NONE] = "none",
                                                            [LS_COMPRESSION_BF16] = "bf16",
                                                            [LS_COMPRESSION_INT8] = "int8",
                                                            [LS_COMPRESSION_TOPK] = "topk",
                                                            [LS_COMPRESSION_INT4] = "int4"};
    const char *kind = kinds[scheme->form.kind];
    if (scheme->steps > 1) {
        const char *bits = scheme->form.kind == LS_COMPRESSION_INT8   ? ", bits: 8"
                           : scheme->form.kind == LS_COMPRESSION_INT4 ? ", bits: 4"
                                                                      : "";
        const char *fragments =
            row->fragments > 1 ? ls_arena_printf(arena, ", fragments: %u", row->fragments) : "";
        return ls_arena_printf(arena, "train.local: {steps: %" PRIu64 ", workers: %" PRIu64 "%s%s}",
                               scheme->steps, setting->hosts, bits, fragments);
    }
    if (scheme->form.kind == LS_COMPRESSION_TOPK) {
        return ls_arena_printf(arena, "train.compression: {kind: topk, ratio: %.2g, groups: %" PRIu64 "}",
                               0.01, setting->hosts);
    }
    return scheme->form.kind == LS_COMPRESSION_NONE
               ? "nothing to set: dense sums suffice"
               : ls_arena_printf(arena, "train.compression: {kind: %s, groups: %" PRIu64 "}", kind,
                                 setting->hosts);
}

/* Bytes for people, with three digits. */
static const char *bytes_text(ls_arena *arena, double bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    size_t unit = 0;
    while (bytes >= 999.5 && unit + 1 < sizeof units / sizeof units[0]) {
        bytes /= 1000.0;
        unit++;
    }
    return ls_arena_printf(arena, "%.3g %s", bytes, units[unit]);
}

static void append_table(const ls_plan_answer *answer, ls_text *text)
{
    static const char *const titles[] = {"scheme", "sent/step", "at once", "fewer",
                                         "step",   "computing", "memory",  "checkpoint"};
    static const bool right[] = {false, true, true, true, true, true, true, true};
    const ls_plan_links *links = answer->links;
    ls_table table = {.titles = titles, .right = right, .columns = 8, .arena = answer->arena};
    for (size_t i = 0; i < LS_LINK_SCHEMES; i++) {
        const ls_link_estimate *row = &links->rows[i];
        ls_table_add(&table, row->scheme.name);
        ls_table_add(&table, bytes_text(answer->arena, row->bytes));
        ls_table_add(&table, bytes_text(answer->arena, row->peak_bytes));
        ls_table_printf(&table, "%.*f x", row->times < 9.95 ? 1 : 0, row->times);
        ls_table_add(&table, ls_time_of(row->step_s).text);
        ls_table_printf(&table, "%.0f %%", 100.0 * row->computing);
        ls_table_add(&table, row->memory_bytes > 0.0 ? bytes_text(answer->arena, row->memory_bytes) : "");
        ls_table_add(&table,
                     row->checkpoint_bytes > 0.0 ? bytes_text(answer->arena, row->checkpoint_bytes) : "");
    }
    ls_table_append(&table, 0, text);
}

void ls_plan_append_links(const ls_plan_answer *answer, ls_text *text)
{
    const ls_plan_links *links = answer->links;
    const ls_link_setting *s = &links->setting;
    const ls_link_estimate *chosen = &links->rows[links->chosen];
    ls_text_printf(text,
                   "\nlink: %" PRIu64
                   " machines, %s/s each way, %s parameters, %s of computing in a step on each: all wait for "
                   "the slowest.\nMemory and checkpoint are what a scheme needs more than dense.\n\n",
                   s->hosts, bytes_text(answer->arena, s->link_bytes_ps),
                   ls_quantity_of((double)s->values).text, ls_time_of(s->compute_s).text);
    append_table(answer, text);
    ls_text_printf(text, "\npays: %s, %.0f %% of the time computing\n  %s\n", chosen->scheme.name,
                   100.0 * chosen->computing, keys_of(answer->arena, s, chosen));
    if (links->chosen > 0 && !ls_plan_is_here(answer, &answer->node)) {
        ls_text_append(text,
                       "Not with GPUs in this version: compression and local steps compute on CPUs, and "
                       "train refuses them on a GPU.\n");
    }
    ls_text_append(text,
                   "All but dense compute other bits, with their own loss curve: the setting belongs to "
                   "the identity of a run.\n");
}

const char *ls_plan_link_line(const ls_plan_answer *answer)
{
    const ls_plan_links *links = answer->links;
    const ls_link_estimate *chosen = &links->rows[links->chosen];
    return ls_arena_printf(
        answer->arena,
        "%.0f %% of the step is network; %s over the same links: %s per step, with other bits "
        "and %s more memory, once train has it on GPUs (--link %s)",
        100.0 * links->network, chosen->scheme.name, ls_time_of(chosen->step_s).text,
        bytes_text(answer->arena, chosen->memory_bytes),
        ls_arena_printf(answer->arena, "%.3gGB/s", 1e-9 * links->setting.link_bytes_ps));
}

json_t *ls_plan_links_to_json(const ls_plan_links *links)
{
    json_t *schemes = json_array();
    for (size_t i = 0; i < LS_LINK_SCHEMES; i++) {
        const ls_link_estimate *row = &links->rows[i];
        json_array_append_new(
            schemes, json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "scheme",
                               row->scheme.name, "steps", (json_int_t)row->scheme.steps, "sent_bytes",
                               row->bytes, "peak_bytes", row->peak_bytes, "fewer", row->times, "packing_s",
                               row->packing_s, "step_time_s", row->step_s, "computing", row->computing,
                               "memory_bytes", row->memory_bytes, "checkpoint_bytes", row->checkpoint_bytes));
    }
    return json_pack("{s:I, s:f, s:f, s:I, s:f, s:s, s:o}", "hosts", (json_int_t)links->setting.hosts,
                     "link_bytes_ps", links->setting.link_bytes_ps, "compute_s", links->setting.compute_s,
                     "values", (json_int_t)links->setting.values, "network_share", links->network, "pays",
                     links->rows[links->chosen].scheme.name, "schemes", schemes);
}
