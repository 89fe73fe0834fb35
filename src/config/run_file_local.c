// SPDX-License-Identifier: Apache-2.0
/* Checks of train.local. */
#include "config/run_file.h"

/* The largest divisor that is at most `most`. */
static uint64_t divisor_below(uint64_t count, uint64_t most)
{
    uint64_t divisor = most < count ? most : count;
    while (count % divisor != 0) {
        divisor--;
    }
    return divisor;
}

uint64_t ls_run_file_rank_leaves(const ls_run_file *run, bool several_hosts)
{
    const ls_run_train *train = &run->train;
    return several_hosts || train->local.steps == 0 ? train->leaves : train->leaves / train->local.workers;
}

/* What a run with local steps cannot have in this version; NULL: nothing. */
static const char *local_obstacle(const ls_run_file *run)
{
    const ls_run_parallel *p = &run->parallel;
    const bool has_mesh = p->tensor != 1 || p->context != 1 || p->pipeline != 1 || p->expert != 1;
    return has_mesh                               ? "ranks that divide the model (parallel.tensor, context, "
                                                    "pipeline, expert)"
           : run->adapter.kind != LS_ADAPTER_NONE ? "an adapter (adapter.kind)"
           : run->train.freeze.count > 0          ? "frozen tensors (train.freeze)"
           : run->train.precision != LS_PRECISION_FP32 ? "train.precision other than fp32"
           : run->train.device == LS_RUN_DEVICE_CUDA   ? "train.device: cuda"
           : run->job.lease_s > 0                      ? "job.lease"
                                                       : NULL;
}

ls_status ls_run_file_check_local(const ls_run_file *run)
{
    const ls_run_train *train = &run->train;
    const ls_run_local *local = &train->local;
    if (local->steps == 0) {
        const bool has_workers = local->workers > 1;
        return !has_workers && local->fragments == 1
                   ? LS_OK
                   : ls_fail(LS_ERR_INVALID,
                             "train.local.%s is %llu, but has an effect only with train.local.steps: set "
                             "that to the number of steps between two meetings of the workers, such as 50",
                             has_workers ? "workers" : "fragments",
                             (unsigned long long)(has_workers ? local->workers : local->fragments));
    }
    if (train->leaves % local->workers != 0) {
        return ls_fail(
            LS_ERR_INVALID,
            "train.local.workers is %llu, which does not divide train.leaves %llu, so the workers "
            "would have unequal shares of the batch; use train.local.workers %llu, or other leaves",
            (unsigned long long)local->workers, (unsigned long long)train->leaves,
            (unsigned long long)divisor_below(train->leaves, local->workers));
    }
    if (train->steps != LS_AUTO_U64 && train->steps % local->steps != 0) {
        const uint64_t lower = train->steps / local->steps * local->steps;
        return ls_fail(
            LS_ERR_INVALID,
            "train.local.steps is %llu, which does not divide train.steps %llu: the last round would "
            "not be finished, and its steps lost; use train.steps %llu%s%llu",
            (unsigned long long)(local->steps), (unsigned long long)(train->steps),
            (unsigned long long)(lower > 0 ? lower : local->steps), lower > 0 ? " or " : ", or ",
            (unsigned long long)((lower > 0 ? lower : local->steps) + local->steps));
    }
    if (local->outer_lr <= 0.0) {
        return ls_fail(LS_ERR_INVALID,
                       "train.local.outer_lr is %g, but must be above 0: the shared parameters would never "
                       "change. Usual values are 0.5 to 1",
                       local->outer_lr);
    }
    if (local->steps % local->fragments != 0) {
        return ls_fail(LS_ERR_INVALID,
                       "train.local.fragments is %llu, which does not divide train.local.steps %llu; use "
                       "train.local.fragments %llu, or train.local.steps %llu",
                       (unsigned long long)local->fragments, (unsigned long long)local->steps,
                       (unsigned long long)divisor_below(local->steps, local->fragments),
                       (unsigned long long)((local->steps / local->fragments + 1) * local->fragments));
    }
    if (local->delay >= local->steps / local->fragments) {
        return ls_fail(LS_ERR_INVALID, "train.local.delay is %llu, allowed is 0 to %llu, below %s",
                       (unsigned long long)local->delay,
                       (unsigned long long)(local->steps / local->fragments - 1),
                       local->fragments > 1 ? "train.local.steps / train.local.fragments: one fragment is "
                                              "exchanged at a time; or use fewer fragments"
                                            : "train.local.steps");
    }
    if (local->bits != 32 && local->bits != 8 && local->bits != 4) {
        return ls_fail(LS_ERR_INVALID, "train.local.bits is %llu, allowed is 32, 8 or 4",
                       (unsigned long long)local->bits);
    }
    const char *obstacle = local_obstacle(run);
    return obstacle ? ls_fail(LS_ERR_UNSUPPORTED,
                              "train.local.steps is %llu, but a run with local steps cannot have %s in this "
                              "version: remove one of the two",
                              (unsigned long long)(local->steps), obstacle)
                    : LS_OK;
}
