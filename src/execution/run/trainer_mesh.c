// SPDX-License-Identifier: Apache-2.0
/* How several ranks of one host divided the work, as planned and as measured. */
#include "execution/run/trainer_internal.h"

#include <math.h>

static json_t *bytes_by_axis(const uint64_t bytes[LS_AXIS_COUNT])
{
    json_t *object = json_object();
    for (int axis = 0; axis < LS_AXIS_COUNT; axis++) {
        json_object_set_new(object, ls_mesh_axis_name((ls_mesh_axis)axis),
                            json_integer((json_int_t)bytes[axis]));
    }
    return object;
}

static json_t *share_or_null(const ls_session *session, double share)
{
    return session->pipeline.stages > 1 && isfinite(share) ? json_real(share) : json_null();
}

json_t *ls_trainer_predicted_mesh(const ls_trainer *trainer)
{
    const ls_session *session = &trainer->session;
    const ls_own_time *time = &trainer->prediction.time;
    const uint32_t crew = ls_mesh_crew(ls_session_mesh(session));
    const uint64_t process =
        ls_session_process_bytes(session, ls_session_rank_threads(session, session->ranks));
    json_t *memory = json_array();
    if (!trainer->backend.workers || trainer->options->hosts) {
        json_decref(memory);
        return NULL;
    }
    for (uint32_t rank = 0; rank < session->ranks; rank++) {
        json_array_append_new(memory, json_integer((json_int_t)(session->work_bytes[rank % crew] + process)));
    }
    const double bubble = trainer->prediction.has_time ? time->terms_s[LS_TERM_BUBBLE] / time->step_s : NAN;
    return json_pack("{s:o, s:o, s:o}", "bubble", share_or_null(session, bubble), "sent_bytes",
                     bytes_by_axis(session->sent_bytes), "rank_memory_bytes", memory);
}

json_t *ls_trainer_measured_mesh(const ls_trainer *trainer)
{
    const ls_session *session = &trainer->session;
    const uint64_t step = trainer->loop.step, turns = ls_local_turns(&trainer->backend.local, step);
    uint64_t bytes[LS_AXIS_COUNT] = {0}, private_bytes = 0;
    double idle_s = INFINITY;
    if (!trainer->backend.workers || trainer->options->hosts || step == trainer->loop.begun_at) {
        return NULL;
    }
    json_t *mesh = ls_session_mesh_to_json(session), *memory = json_array();
    for (uint32_t rank = 0; rank < session->ranks; rank++) {
        ls_step_result result;
        if (!ls_workers_rank(trainer->backend.workers, rank, turns - 1, &result, &private_bytes)) {
            json_array_append_new(memory, json_null());
            continue;
        }
        for (int axis = 0; axis < LS_AXIS_COUNT; axis++) {
            bytes[axis] += result.traffic.bytes[axis];
        }
        idle_s = fmin(idle_s, result.stage_wait_s);
        json_array_append_new(memory, json_integer((json_int_t)private_bytes));
    }
    json_object_set_new(mesh, "bubble", share_or_null(session, idle_s / trainer->loop.step_s));
    json_object_set_new(mesh, "sent_bytes", bytes_by_axis(bytes));
    json_object_set_new(mesh, "rank_memory_bytes", memory);
    return mesh;
}
