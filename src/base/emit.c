// SPDX-License-Identifier: Apache-2.0
#include "base/emit.h"

static ls_emit_sink emit_sink;

void ls_emit_install(const ls_emit_sink *sink)
{
    emit_sink = sink ? *sink : (ls_emit_sink){0};
}

void ls_emit_step(const ls_step_metrics *metrics)
{
    if (emit_sink.step) {
        emit_sink.step(emit_sink.context, metrics);
    }
}

void ls_emit_event(const char *name, json_t *fields)
{
    if (!fields) {
        fields = json_object();
    }
    if (emit_sink.event) {
        emit_sink.event(emit_sink.context, name, fields);
    } else {
        json_decref(fields);
    }
}
