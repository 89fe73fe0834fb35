// SPDX-License-Identifier: Apache-2.0
/* Until the hier transport is in the tree. Delete this file when it is. */
#include "execution/comm/transport.h"

ls_status ls_transport_open_hier(const ls_transport_setup *setup, ls_transport **transport_out)
{
    (void)setup;
    (void)transport_out;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "the hier transport is not in this build: all ranks have to be on one host");
}
