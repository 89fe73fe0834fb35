// SPDX-License-Identifier: Apache-2.0
/* What a slow link between machines is worth: data parallel training over it, with fewer bytes. */
#include "planning/answer/answer_internal.h"

#include <inttypes.h>

#define NETWORK_SHARE 0.2   /* of a step, from which on an alternative is offered */
#define LATENCY_S     0.001 /* of an exchange between machines */

/* The same batch on `hosts` machines, each with the whole model: compute_s and pack_s of one of
 * them. False: the model does not fit on one machine. */
static bool compute_alone(ls_plan_answer *answer, int64_t hosts, ls_link_setting *setting_out)
{
    ls_setting alone = answer->setting;
    alone.global_batch = alone.global_batch / hosts > 0 ? alone.global_batch / hosts : 1;
    if (ls_plan_is_here(answer, &answer->node)) {
        ls_plan_own own;
        ls_estimate estimate;
        const bool is_possible = ls_plan_estimate_here(answer, &alone, &own, &estimate) == LS_OK;
        setting_out->compute_s = is_possible ? estimate.time.step_s : 0.0;
        setting_out->pack_s = LS_LINK_PACK_CORE_S / (is_possible ? own.run.ranks * own.run.threads : 1);
        return is_possible && estimate.fit != LS_FIT_NO;
    }
    const ls_search_options open = {.top = 0};
    ls_search_result *result = ls_arena_new(answer->arena, ls_search_result, 1);
    alone.gpus /= hosts;
    if (ls_search_run(&alone, &open, result) != LS_OK) {
        return false;
    }
    setting_out->compute_s = result->best.time.step_s;
    setting_out->pack_s = LS_LINK_PACK_GPU_BYTES / answer->node.accelerator->memory_bytes_ps;
    return true;
}

/* What is trained and sent; NULL: training has no layout for this model. */
static const ls_layout *sent_layout(const ls_plan_answer *answer)
{
    const ls_shape *shape = &answer->shape;
    if (answer->trained) {
        return answer->trained;
    }
    if (shape->moe.experts != shape->config.experts || shape->latent.kv_rank > 0 ||
        ls_model_config_check(&shape->config) != LS_OK) {
        ls_error_clear();
        return NULL;
    }
    ls_layout *layout = ls_arena_new(answer->arena, ls_layout, 1);
    ls_layout_build(answer->arena, &shape->config, layout);
    return layout;
}

/* Those of the run file, if the model has as many layers. */
static uint32_t fragments_of(const ls_plan_answer *answer, const ls_layout *layout)
{
    const uint64_t asked = answer->run ? answer->run->train.local.fragments : 1;
    return layout && asked > layout->bucket_count ? layout->bucket_count : (uint32_t)asked;
}

static bool estimate(ls_plan_answer *answer, int64_t hosts, double link_bytes_ps, ls_plan_links *links_out)
{
    ls_link_setting alone = {0};
    if (!compute_alone(answer, hosts, &alone)) {
        ls_error_clear();
        return false;
    }
    const ls_layout *layout = sent_layout(answer);
    const int64_t values = layout ? layout->float_count : answer->shape.parameters;
    links_out->setting = (ls_link_setting){.values = (uint64_t)values,
                                           .layout = layout,
                                           .hosts = (uint64_t)hosts,
                                           .compute_s = alone.compute_s,
                                           .pack_s = alone.pack_s,
                                           .link_bytes_ps = link_bytes_ps,
                                           .latency_s = LATENCY_S,
                                           .fragments = fragments_of(answer, layout)};
    for (uint32_t i = 0; i < LS_LINK_SCHEMES; i++) {
        ls_link_estimate_compute(&links_out->setting, &ls_link_schemes[i], &links_out->rows[i]);
    }
    links_out->chosen = ls_link_choose(&links_out->setting);
    return true;
}

/* How many machines --link connects. */
static ls_status count_hosts(const ls_plan_answer *answer, int64_t *hosts_out)
{
    const bool is_here = ls_plan_is_here(answer, &answer->node);
    const int64_t gpus = answer->setting.gpus, per_node = answer->node.count > 0 ? answer->node.count : 1;
    const int64_t asked = (int64_t)answer->asked->hosts;
    const int64_t hosts = asked ? asked : is_here ? 1 : (gpus + per_node - 1) / per_node;
    if (hosts < 2) {
        return ls_fail(LS_ERR_INVALID,
                       "--link connects machines, and %" PRId64
                       " x %s is one machine: give --hosts N with it",
                       gpus, answer->node.name);
    }
    if (!is_here && gpus % hosts != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "--hosts is %" PRId64 ", but %" PRId64 " GPUs cannot be divided equally among them",
                       hosts, gpus);
    }
    *hosts_out = hosts;
    return LS_OK;
}

/* The machines of --link in place of the catalogue's nodes. */
static void cut_nodes(ls_plan_answer *answer)
{
    ls_node *node = &answer->node;
    const int64_t gpus = answer->setting.gpus / answer->hosts;
    if (gpus != node->count) {
        node->name = ls_arena_printf(answer->arena, "%" PRId64 "x %s", gpus, node->accelerator->name);
        node->count = gpus;
        node->power_w = 0.0;
        node->price = (ls_price){.date = "", .confidence = ""};
    }
    node->nic_bytes_ps = answer->link_bytes_ps / (double)gpus;
    ls_assumptions_add(&answer->assumptions,
                       "%" PRId64 " machines with %" PRId64 " x %s, %s between them (--link)", answer->hosts,
                       gpus, node->accelerator->name, answer->asked->link);
}

ls_status ls_plan_connect(ls_plan_answer *answer)
{
    if (!answer->asked->link[0]) {
        return answer->asked->hosts == 0
                   ? LS_OK
                   : ls_fail(LS_ERR_INVALID, "--hosts has an effect only with --link RATE: give both");
    }
    LS_TRY(ls_link_parse("--link", answer->asked->link, &answer->link_bytes_ps));
    if (!answer->asked->gpus[0] && !answer->asked->nodes[0]) {
        return ls_fail(LS_ERR_INVALID, "--link connects machines: say which, with --gpus KIND:COUNT, --nodes "
                                       "KIND:COUNT or --gpus here:1");
    }
    LS_TRY(count_hosts(answer, &answer->hosts));
    if (!ls_plan_is_here(answer, &answer->node)) {
        cut_nodes(answer);
    }
    return LS_OK;
}

ls_status ls_plan_add_links(ls_plan_answer *answer)
{
    const ls_time_estimate *time = &answer->estimate.time;
    const int64_t per_node = answer->node.count > 0 ? answer->node.count : 1;
    ls_plan_links *links = ls_arena_new(answer->arena, ls_plan_links, 1);
    if (answer->hosts > 0) {
        if (!estimate(answer, answer->hosts, answer->link_bytes_ps, links)) {
            return ls_fail(LS_ERR_INVALID,
                           "--link: %s does not fit on one of %" PRId64
                           " machines, and over a slow link each "
                           "machine holds the whole model; give larger machines, or fewer --hosts",
                           answer->shape.name, answer->hosts);
        }
        answer->links = links;
        return LS_OK;
    }
    links->network = (time->terms_s[LS_TERM_DATA] + time->terms_s[LS_TERM_PIPELINE]) / time->step_s;
    const int64_t hosts = answer->setting.gpus / per_node;
    const double nic = answer->node.nic_bytes_ps > 0.0 ? answer->node.nic_bytes_ps : 1.25e9;
    if (links->network > NETWORK_SHARE && hosts > 1 && answer->setting.gpus % per_node == 0 &&
        estimate(answer, hosts, nic * (double)per_node, links) && links->chosen > 0 &&
        links->rows[links->chosen].step_s < time->step_s) {
        answer->links = links;
    }
    return LS_OK;
}
