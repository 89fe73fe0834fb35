// SPDX-License-Identifier: Apache-2.0
#include "orchestration/control/asha.h"

#include "base/assert.h"

#include <math.h>
#include <stdlib.h>

const char *ls_trial_state_name(ls_trial_state state)
{
    static const char *const names[LS_TRIAL_STATES] = {"active", "paused", "stopped", "finished", "failed"};
    LS_ASSERT((unsigned)state < LS_TRIAL_STATES);
    return names[state];
}

ls_asha ls_asha_make(uint64_t first, uint32_t eta, uint64_t steps, uint64_t budget_steps)
{
    LS_ASSERT(eta >= 2);
    ls_asha asha = {.eta = eta, .budget_steps = first > 0 ? budget_steps : 0};
    for (uint64_t rung = first; rung > 0 && rung < steps && asha.rung_count < LS_ASHA_RUNGS_MAX - 1;
         rung = rung <= steps / eta ? rung * eta : steps) {
        asha.rungs[asha.rung_count++] = rung;
    }
    asha.rungs[asha.rung_count++] = steps;
    return asha;
}

uint64_t ls_asha_steps(const ls_asha *asha, const ls_trial *trials, uint32_t count)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const bool tries = trials[i].state == LS_TRIAL_ACTIVE || trials[i].state == LS_TRIAL_FAILED;
        const uint32_t rungs = trials[i].reached + (tries && trials[i].reached < asha->rung_count);
        sum += rungs > 0 ? asha->rungs[rungs - 1] : 0;
    }
    return sum;
}

static bool is_better(const ls_trial *trials, uint32_t rung, uint32_t a, uint32_t b)
{
    const double x = trials[a].results[rung], y = trials[b].results[rung];
    if (isnan(x) || isnan(y)) {
        return isnan(x) == isnan(y) ? a < b : isnan(y);
    }
    return x < y || (x == y && a < b);
}

uint32_t ls_asha_place(const ls_trial *trials, uint32_t count, uint32_t rung, uint32_t trial)
{
    uint32_t place = 1;
    for (uint32_t i = 0; i < count; i++) {
        place += i != trial && trials[i].reached > rung && is_better(trials, rung, i, trial);
    }
    return place;
}

/* How many trials have reached a rung, and how many may come to it later. */
typedef struct crowd {
    uint32_t here, to_come;
} crowd;

static crowd crowd_at(const ls_trial *trials, uint32_t count, uint32_t rung)
{
    crowd found = {0};
    for (uint32_t i = 0; i < count; i++) {
        const bool lives = trials[i].state == LS_TRIAL_ACTIVE || trials[i].state == LS_TRIAL_PAUSED;
        found.here += trials[i].reached > rung;
        found.to_come += trials[i].reached <= rung && lives;
    }
    return found;
}

static uint32_t at_least_one(uint32_t count)
{
    return count > 0 ? count : 1;
}

/* Decides about one paused trial; false: not yet. */
static bool judge(const ls_asha *asha, const ls_trial *trials, uint32_t count, uint32_t trial,
                  ls_asha_decision *out)
{
    const uint32_t rung = trials[trial].reached - 1;
    const crowd met = crowd_at(trials, count, rung);
    const uint32_t most = at_least_one((met.here + met.to_come) / asha->eta);
    const uint32_t now = met.to_come == 0 ? most : met.here / asha->eta;
    *out = (ls_asha_decision){
        .trial = trial, .place = ls_asha_place(trials, count, rung, trial), .of = met.here, .go_on = most};
    out->choice = out->place <= now ? LS_ASHA_GO_ON : LS_ASHA_STOP;
    return out->place <= now || out->place > most;
}

static uint32_t rung_of(const ls_trial *trials, const ls_asha_decision *decision)
{
    return trials[decision->trial].reached;
}

/* By rung, the highest first, then by place. */
static void sort(const ls_trial *trials, ls_asha_decision *list, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++) {
        const ls_asha_decision one = list[i];
        uint32_t at = i;
        for (; at > 0 &&
               (rung_of(trials, &list[at - 1]) < rung_of(trials, &one) ||
                (rung_of(trials, &list[at - 1]) == rung_of(trials, &one) && list[at - 1].place > one.place));
             at--) {
            list[at] = list[at - 1];
        }
        list[at] = one;
    }
}

uint32_t ls_asha_decide(const ls_asha *asha, const ls_trial *trials, uint32_t count, ls_asha_decision *out)
{
    uint32_t made = 0;
    for (uint32_t i = 0; i < count; i++) {
        made += trials[i].state == LS_TRIAL_PAUSED && judge(asha, trials, count, i, &out[made]);
    }
    sort(trials, out, made);
    uint64_t steps = ls_asha_steps(asha, trials, count);
    for (uint32_t i = 0; i < made; i++) {
        const uint32_t next = rung_of(trials, &out[i]);
        const uint64_t more = asha->rungs[next] - asha->rungs[next - 1];
        if (out[i].choice == LS_ASHA_GO_ON && asha->budget_steps > 0 && steps + more > asha->budget_steps) {
            out[i].choice = LS_ASHA_BUDGET;
        } else if (out[i].choice == LS_ASHA_GO_ON) {
            steps += more;
        }
    }
    return made;
}
