// SPDX-License-Identifier: Apache-2.0
/* plan --list: the known names. */
#include "cli/plan/plan.h"

#include <inttypes.h>
#include <stdio.h>

static void append_price(const ls_price *price, const char *unit, ls_text *text)
{
    if (price->high > 0.0) {
        ls_text_printf(text, "  %g to %g USD %s (%s)", price->low, price->high, unit, price->date);
    }
}

static ls_status list_models(ls_arena *arena, ls_text *text)
{
    for (const char *const *name = ls_shape_presets(); *name; name++) {
        ls_shape shape;
        LS_TRY(ls_shape_parse(arena, *name, &shape));
        ls_text_printf(text, "%-28s %7s parameters", *name, ls_quantity_of((double)shape.parameters).text);
        if (shape.active_parameters != shape.parameters) {
            ls_text_printf(text, ", %s active", ls_quantity_of((double)shape.active_parameters).text);
        }
        ls_text_printf(text, ", %" PRId64 " layers of %" PRId64 "\n", shape.config.layers,
                       shape.config.width);
    }
    return LS_OK;
}

static void list_accelerators(const ls_catalogue *catalogue, ls_text *text)
{
    for (size_t i = 0; i < catalogue->accelerator_count; i++) {
        const ls_accelerator *a = &catalogue->accelerators[i];
        ls_text_printf(text, "%-24s %5.0f GiB  %6.0f TFLOP/s", a->name, a->memory_bytes / LS_PLAN_GIB,
                       1e-12 * a->bf16_flops);
        append_price(&a->rent_hour, "per hour", text);
        ls_text_append(text, "\n");
    }
}

static void list_nodes(const ls_catalogue *catalogue, ls_text *text)
{
    for (size_t i = 0; i < catalogue->node_count; i++) {
        const ls_node *n = &catalogue->nodes[i];
        ls_text_printf(text, "%-24s %3" PRId64 " x %s", n->name, n->count, n->accelerator->name);
        append_price(&n->price, "per node", text);
        ls_text_append(text, "\n");
    }
}

static void list_sites(const ls_catalogue *catalogue, ls_text *text)
{
    for (size_t i = 0; i < catalogue->site_count; i++) {
        const ls_site *s = &catalogue->sites[i];
        ls_text_printf(text, "%-24s PUE %.2f, racks of %.0f kW, %s, %g USD per kWh\n", s->name, s->pue,
                       1e-3 * s->rack_w, s->cooling->name, s->energy_usd_kwh);
    }
}

ls_status ls_plan_print_list(ls_arena *arena, const ls_plan_settings *settings)
{
    ls_catalogue catalogue;
    ls_text text = {0};
    ls_status status = ls_catalogue_load(arena, settings->question.catalogue.items,
                                         settings->question.catalogue.count, &catalogue);
    if (status == LS_OK) {
        switch ((ls_plan_list)settings->list) {
        case LS_PLAN_LIST_NONE:
            break;
        case LS_PLAN_LIST_MODELS:
            status = list_models(arena, &text);
            break;
        case LS_PLAN_LIST_GPUS:
            list_accelerators(&catalogue, &text);
            break;
        case LS_PLAN_LIST_NODES:
            list_nodes(&catalogue, &text);
            break;
        case LS_PLAN_LIST_STACKS:
            for (const char *const *name = ls_stack_names(); *name; name++) {
                ls_text_printf(&text, "%s\n", *name);
            }
            break;
        case LS_PLAN_LIST_SITES:
            list_sites(&catalogue, &text);
            break;
        }
    }
    if (status == LS_OK) {
        fputs(ls_text_string(&text), stdout);
    }
    ls_text_release(&text);
    return status;
}
