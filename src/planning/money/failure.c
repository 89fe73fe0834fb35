// SPDX-License-Identifier: Apache-2.0
#include "planning/money/failure.h"

#include "planning/money/failure_interval.h"

#include <math.h>

#define SNAPSHOT_BYTES_PS 25e9 /* PCIe 4 x16, as measured. */

/* The setting with defaults in place of zeros. */
static ls_failure_setting with_defaults(const ls_failure_setting *setting)
{
    ls_failure_setting s = *setting;
    s.gpus = s.gpus > 0 ? s.gpus : 1;
    s.gpus_per_node = s.gpus_per_node > 0 ? s.gpus_per_node : 1;
    s.gpu_mtbf_s = s.gpu_mtbf_s > 0.0 ? s.gpu_mtbf_s : LS_FAILURE_GPU_MTBF_S;
    s.snapshot_bytes_ps = s.snapshot_bytes_ps > 0.0 ? s.snapshot_bytes_ps : SNAPSHOT_BYTES_PS;
    s.restart_s = s.restart_s > 0.0 ? s.restart_s : LS_FAILURE_RESTART_S;
    s.program = s.program > 0.0 ? s.program : 1.0;
    return s;
}

static double node_count(const ls_failure_setting *s)
{
    return (double)((s->gpus + s->gpus_per_node - 1) / s->gpus_per_node);
}

static double mtbf_s(const ls_failure_setting *s)
{
    return 1.0 / ((double)s->gpus / s->gpu_mtbf_s + node_count(s) * s->preemptions_per_day / 86400.0);
}

static double stall_s(const ls_failure_setting *s)
{
    if (s->stall_s > 0.0) {
        return s->stall_s;
    }
    const double bytes = s->parameters * LS_CHECKPOINT_BYTES_PER_PARAMETER;
    const double copied_s = s->synchronous && s->storage_bytes_ps > 0.0
                                ? bytes / s->storage_bytes_ps
                                : bytes / (double)s->gpus / s->snapshot_bytes_ps;
    return fmax(copied_s, LS_FAILURE_STALL_LEAST_S);
}

/* Young's interval where the first order is exact enough, else the exact optimum. */
static double best_interval_s(const ls_failure_estimate *e, double restart_s)
{
    const double lost = ls_interval_lost_first(e->interval_young_s, e->stall_s, e->mtbf_s, restart_s);
    return lost <= LS_INTERVAL_FIRST_ORDER_LOSS ? e->interval_young_s : e->interval_exact_s;
}

void ls_failure_compute(const ls_failure_setting *setting, ls_failure_estimate *estimate_out)
{
    const ls_failure_setting s = with_defaults(setting);
    ls_failure_estimate e = {
        .mtbf_s = mtbf_s(&s),
        .checkpoint_bytes = s.parameters * LS_CHECKPOINT_BYTES_PER_PARAMETER,
        .stall_s = stall_s(&s),
        .program = s.program,
    };
    e.interval_young_s = ls_interval_young_s(e.stall_s, e.mtbf_s);
    e.interval_daly_s = ls_interval_daly_s(e.stall_s, e.mtbf_s);
    e.interval_exact_s = ls_interval_exact_s(e.stall_s, e.mtbf_s);
    e.interval_s = s.interval_s > 0.0 ? s.interval_s : best_interval_s(&e, s.restart_s);
    e.exact =
        ls_interval_lost_first(e.interval_s, e.stall_s, e.mtbf_s, s.restart_s) > LS_INTERVAL_FIRST_ORDER_LOSS;
    e.runtime = 1.0 - ls_interval_lost(e.interval_s, e.stall_s, e.mtbf_s, s.restart_s);
    e.scheduling = e.mtbf_s / (e.mtbf_s + s.wait_s);
    e.goodput = e.scheduling * e.runtime * e.program;
    *estimate_out = e;
}

void ls_failure_assume(const ls_failure_setting *setting, ls_assumptions *list)
{
    const ls_failure_setting s = with_defaults(setting);
    ls_assumptions_add(list,
                       "a GPU with its share of host and network fails every %.0f h%s; the next step follows "
                       "%.0f s after a failure",
                       s.gpu_mtbf_s / 3600.0,
                       s.gpu_mtbf_s != LS_FAILURE_GPU_MTBF_S ? ""
                       : s.is_desk ? " (H100 in a cluster, Llama 3, 2024; no statistics exist for desks, "
                                     "where closed lids, updates and power cuts stop runs sooner)"
                                   : " (Llama 3, 16,384 H100, 2024)",
                       s.restart_s);
    if (s.preemptions_per_day > 0.0) {
        ls_assumptions_add(list, "each spot node is preempted %.2g times a day and replaced after %.0f s",
                           s.preemptions_per_day, s.wait_s);
    }
    ls_assumptions_add(list, "checkpoints of %.0f B per parameter, %s", LS_CHECKPOINT_BYTES_PER_PARAMETER,
                       s.stall_s > 0.0 ? "the measured stall"
                       : s.synchronous ? "training waits for storage"
                                       : "copied to the host and written in the background");
}

static void explain_runtime(const ls_failure_setting *s, const ls_failure_estimate *e, ls_text *text)
{
    ls_text_printf(text, "interval T   Young sqrt(2 C M) = %.0f s, Daly %.0f s, exact %.0f s; used: %.0f s\n",
                   e->interval_young_s, e->interval_daly_s, e->interval_exact_s, e->interval_s);
    if (e->exact) {
        ls_text_append(
            text, "runtime      T / (M e^(R/M) (e^((T+C)/M) - 1))   (exact: the first order loses more than "
                  "20 %)\n");
        ls_text_printf(text, "             %.0f / (%.0f e^(%.0f/%.0f) (e^(%.0f/%.0f) - 1)) = %.4f\n",
                       e->interval_s, e->mtbf_s, s->restart_s, e->mtbf_s, e->interval_s + e->stall_s,
                       e->mtbf_s, e->runtime);
    } else {
        ls_text_append(text, "runtime      1 - C/T - (T/2 + R)/M\n");
        ls_text_printf(text, "             1 - %.3g/%.0f - (%.0f + %.0f)/%.0f = %.4f\n", e->stall_s,
                       e->interval_s, e->interval_s / 2.0, s->restart_s, e->mtbf_s, e->runtime);
    }
}

void ls_failure_explain(const ls_failure_setting *setting, ls_text *text)
{
    const ls_failure_setting s = with_defaults(setting);
    ls_failure_estimate e;
    ls_failure_compute(setting, &e);
    ls_text_append(text, "goodput      scheduling * runtime * program\n");
    ls_text_append(text, "M            1 / (GPUs / M_gpu + nodes * preemptions)\n");
    ls_text_printf(text, "             1 / (%lld / %.0f h + %.0f * %.3g / 24 h) = %.3g h\n",
                   (long long)s.gpus, s.gpu_mtbf_s / 3600.0, node_count(&s), s.preemptions_per_day,
                   e.mtbf_s / 3600.0);
    ls_text_printf(text, "stall C      checkpoint of %.3g GB over %lld GPUs: %.3g s\n",
                   e.checkpoint_bytes / 1e9, (long long)s.gpus, e.stall_s);
    explain_runtime(&s, &e, text);
    ls_text_printf(text, "scheduling   M / (M + wait) = %.0f / (%.0f + %.0f) = %.4f\n", e.mtbf_s, e.mtbf_s,
                   s.wait_s, e.scheduling);
    ls_text_printf(text, "goodput      %.4f * %.4f * %.4f = %.4f\n", e.scheduling, e.runtime, e.program,
                   e.goodput);
}
