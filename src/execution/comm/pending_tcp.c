// SPDX-License-Identifier: Apache-2.0
/* Until the tcp transport is in the tree. Delete this file when it is. */
#include "execution/comm/transport.h"

ls_status ls_transport_open_tcp(const ls_transport_setup *setup, ls_transport **transport_out)
{
    (void)setup;
    (void)transport_out;
    return ls_fail(LS_ERR_UNSUPPORTED,
                   "the tcp transport is not in this build: all ranks have to be on one host");
}
