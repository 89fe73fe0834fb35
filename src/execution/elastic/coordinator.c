// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/coordinator.h"

#include "base/assert.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START_TIMEOUT_NS UINT64_C(60000000000)

struct ls_coordinator {
    ls_coordinator_options options;
    ls_gang_phase phase;
    uint32_t ready; /* members */
    ls_env_id deadline;
    bool *is_ready;
    ls_preflight_member members[];
};

static void abort_all(ls_coordinator *c, ls_status status, int32_t rank, const char *text)
{
    if (c->phase == LS_GANG_ENDING) {
        return;
    }
    c->phase = LS_GANG_ENDING;
    ls_env_timer_cancel(c->options.env, c->deadline);
    c->options.abort(c->options.context, status, rank, text);
}

/* ---- coming ---- */

/* "0, 3 and 5 more": which members have not come. */
static void append_missing(const ls_coordinator *c, ls_text *text)
{
    enum { NAMED = 8 };
    uint32_t missing = 0;
    for (uint32_t rank = 0; rank < c->options.ranks; rank++) {
        if (c->is_ready[rank]) {
            continue;
        }
        if (missing < NAMED) {
            ls_text_printf(text, "%s%u", missing ? ", " : "", rank);
        }
        missing++;
    }
    if (missing > NAMED) {
        ls_text_printf(text, " and %u more", missing - NAMED);
    }
}

static void too_late(void *context)
{
    ls_coordinator *c = context;
    ls_text text = {0};
    ls_text_append(&text, "not ready in time: rank ");
    append_missing(c, &text);
    ls_text_printf(&text, " of %u did not come within %.0f s", c->options.ranks,
                   1e-9 * (double)c->options.start_timeout_ns);
    abort_all(c, LS_ERR_TIMEOUT, -1, ls_text_string(&text));
    ls_text_release(&text);
}

void ls_coordinator_hello(ls_coordinator *c, const ls_preflight_member *hello)
{
    if (c->phase != LS_GANG_STARTING || hello->rank >= c->options.ranks || c->is_ready[hello->rank]) {
        return;
    }
    c->members[hello->rank] = *hello;
    c->is_ready[hello->rank] = true;
    if (++c->ready < c->options.ranks) {
        return;
    }
    const ls_status status = ls_preflight_compare(c->members, c->options.ranks);
    if (status != LS_OK) {
        abort_all(c, status, -1, ls_error_text());
        return;
    }
    c->phase = LS_GANG_RUNNING;
    ls_env_timer_cancel(c->options.env, c->deadline);
    c->options.running(c->options.context);
}

/* ---- going ---- */

void ls_coordinator_lost(ls_coordinator *c, const char *host, const ls_rank_end *end)
{
    char how[64], text[1024];
    snprintf(text, sizeof text, "rank %u (%s, pid %d) ended with %s while %s%s", end->rank, host, end->pid,
             ls_exit_text(end->exit_code, how), end->doing,
             end->exit_code == 128 + 9 ? "; unless a person killed it, the kernel did for want of memory"
                                       : "");
    abort_all(c, LS_ERR_RANKS_LOST, (int32_t)end->rank, text);
}

/* ---- life ---- */

ls_status ls_coordinator_create(const ls_coordinator_options *options, ls_coordinator **coordinator_out)
{
    LS_ASSERT(options->ranks >= 1);
    ls_coordinator *c = calloc(1, sizeof *c + options->ranks * sizeof c->members[0]);
    bool *is_ready = calloc(options->ranks, sizeof *is_ready);
    if (!c || !is_ready) {
        free(c);
        free(is_ready);
        return ls_fail(LS_ERR_MEMORY, "no memory for a table of %u ranks", options->ranks);
    }
    c->options = *options;
    c->is_ready = is_ready;
    if (c->options.start_timeout_ns == 0) {
        c->options.start_timeout_ns = START_TIMEOUT_NS;
    }
    c->deadline = ls_env_timer_set(options->env, c->options.start_timeout_ns, too_late, c);
    *coordinator_out = c;
    return LS_OK;
}

void ls_coordinator_destroy(ls_coordinator *c)
{
    if (!c) {
        return;
    }
    ls_env_timer_cancel(c->options.env, c->deadline);
    free(c->is_ready);
    free(c);
}

ls_gang_phase ls_coordinator_phase(const ls_coordinator *c)
{
    return c->phase;
}

const ls_preflight_member *ls_coordinator_member(const ls_coordinator *c, uint32_t rank)
{
    LS_ASSERT(rank < c->options.ranks);
    return &c->members[rank];
}
