// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/shared_blocks.h"

#include "base/log.h"
#include "comm/store/store_address.h"

#include <stdlib.h>

static void begin_sharing(const ls_comm_options *options, ls_token_reader *reader, ls_block_peer *giver)
{
    giver->port = options->local_rank == 0;
    ls_status status = ls_store_address_own(options->coordinator, giver->host, sizeof giver->host);
    if (status == LS_OK && options->token[0]) {
        status = ls_token_reader_share(reader, giver, options->token);
    }
    if (status != LS_OK || !options->token[0]) {
        giver->port = 0;
        ls_log_warn("data: this host shares no blocks of tokens: %s",
                    status == LS_OK ? "the run has no token" : ls_error_text());
        ls_error_clear();
    }
}

ls_status ls_share_blocks(const ls_comm_options *options, ls_comm *comm, const ls_session *session,
                          ls_block_peer *giver)
{
    ls_token_reader *reader = ls_dataset_reader(session->dataset);
    if (!reader || !session->run.data.share_blocks) {
        return LS_OK;
    }
    if (!giver->host[0]) {
        begin_sharing(options, reader, giver);
    }
    ls_block_peer *all = calloc(options->size, sizeof *all);
    ls_status status = all ? ls_comm_all_gather(comm, giver, all, sizeof *all, LS_U8, NULL)
                           : ls_fail(LS_ERR_MEMORY, "not enough memory for the hosts of this run");
    if (status == LS_OK) {
        ls_token_reader_meet(reader, all, options->size);
    }
    free(all);
    return status;
}
