// SPDX-License-Identifier: Apache-2.0
/* Shared by the files of the session; not for inclusion elsewhere. */
#ifndef LS_EXECUTION_TRAIN_SESSION_INTERNAL_H
#define LS_EXECUTION_TRAIN_SESSION_INTERNAL_H

#include "execution/train/session.h"

/* Makes the layout of a run with an adapter, from the run file or from adapter.from. */
LS_MUST_CHECK ls_status ls_session_adapt(ls_session *session);

/* ls_session_begin_weights of such a run. */
LS_MUST_CHECK ls_status ls_session_begin_adapter(ls_session *session, ls_state *state);

#endif
