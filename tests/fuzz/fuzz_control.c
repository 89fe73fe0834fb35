// SPDX-License-Identifier: Apache-2.0
/* Requests to a run, as anyone of the same user may send them: whatever they are, there is an
 * answer, and only what was asked is done. */
#include "execution/run/control_socket.h"

#include <stdlib.h>
#include <string.h>

typedef struct seen {
    unsigned calls;
} seen;

static json_t *give_status(void *context)
{
    ((seen *)context)->calls++;
    return json_object();
}
static ls_status take_number(void *context, uint32_t number)
{
    ((seen *)context)->calls++;
    return number > 7 ? ls_fail(LS_ERR_INVALID, "%u is more than 7", number) : LS_OK;
}
static ls_status take(void *context)
{
    ((seen *)context)->calls++;
    return LS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    seen s = {0};
    const ls_control_actions actions = {.context = &s,
                                        .status = give_status,
                                        .resize = take_number,
                                        .leave = take_number,
                                        .checkpoint = take,
                                        .stop = take};
    ls_control_request request = {.verb = LS_CONTROL_VERBS};
    const ls_status status = ls_control_request_read(data, bytes, &request);
    ls_error_clear();
    if ((status == LS_OK) != (request.verb < LS_CONTROL_VERBS)) {
        abort();
    }
    json_t *answer = ls_control_request_answer(&actions, data, bytes);
    if (!json_is_boolean(json_object_get(answer, "ok")) || s.calls != (status == LS_OK) ||
        (!json_is_true(json_object_get(answer, "ok")) && !json_is_string(json_object_get(answer, "error")))) {
        abort();
    }
    json_decref(answer);
    return 0;
}
