// SPDX-License-Identifier: Apache-2.0
/* Moves the state to a new cut, between steps: it is collected on host 0, and from there
 * distributed to the hosts that keep it in the new cut. */
#include "execution/parallel/compressed.h"

#include "base/assert.h"

#include <stdlib.h>

ls_status ls_data_parallel_collect(ls_data_parallel *p, const ls_state *state,
                                   const ls_state_sources *sources)
{
    float *const flats[3] = {state->parameters, state->m, state->v};
    if (!p->hosts) {
        return LS_OK;
    }
    if (p->view.local == 0) {
        ls_hosts_post_collect(p->hosts, sources, flats);
        LS_TRY(ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts), "the state of an earlier cut"));
    }
    if (p->compressed) {
        LS_TRY(ls_compressed_collect(p->compressed, state->residual_step, sources));
    }
    return ls_exchange_meet(&p->view, "the state of an earlier cut", NULL);
}

ls_status ls_data_parallel_settle(ls_data_parallel *p)
{
    if (!p->hosts) {
        return LS_OK;
    }
    if (p->view.local == 0) {
        const unsigned char here = 1;
        unsigned char *all = calloc(ls_hosts_count(p->hosts), 1);
        if (!all) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of hosts");
        }
        ls_hosts_post_exchange(p->hosts, &here, all, sizeof here);
        const ls_status status = ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts),
                                                        "the other hosts to have the state");
        if (status != LS_OK) {
            ls_hosts_break(p->hosts); /* the transfer may still write to `all` */
        }
        free(all);
        LS_TRY(status);
    }
    return ls_exchange_meet(&p->view, "the other hosts to have the state", NULL);
}
