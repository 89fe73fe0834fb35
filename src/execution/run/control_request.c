// SPDX-License-Identifier: Apache-2.0
/* The requests that a run accepts, and the answers. */
#include "execution/run/control_socket.h"

#include <string.h>

static const struct {
    const char *name;
    const char *number; /* the key of its number; NULL: it has no number */
    uint32_t least;     /* the smallest number allowed */
} verbs[LS_CONTROL_VERBS] = {
    [LS_CONTROL_STATUS] = {"status", NULL, 0}, [LS_CONTROL_RESIZE] = {"resize", "ranks", 1},
    [LS_CONTROL_LEAVE] = {"leave", "rank", 0}, [LS_CONTROL_CHECKPOINT] = {"checkpoint", NULL, 0},
    [LS_CONTROL_STOP] = {"stop", NULL, 0},
};
enum { NUMBER_MAX = 1 << 20 };

static ls_status read_number(const json_t *object, ls_control_verb verb, uint32_t *number_out)
{
    const char *key = verbs[verb].number;
    const json_t *member = key ? json_object_get(object, key) : NULL;
    if (!key) {
        return LS_OK;
    }
    const json_int_t number = json_is_integer(member) ? json_integer_value(member) : -1;
    if (number < verbs[verb].least || number > NUMBER_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "request \"%s\" needs a field \"%s\" that is a whole number from %u to %d",
                       verbs[verb].name, key, verbs[verb].least, NUMBER_MAX);
    }
    *number_out = (uint32_t)number;
    return LS_OK;
}

static ls_status read_request(const json_t *object, ls_control_request *request_out)
{
    const char *name = json_string_value(json_object_get(object, "request"));
    if (!name) {
        return ls_fail(LS_ERR_INVALID, "a request must be a JSON object whose field \"request\" is status, "
                                       "resize, leave, checkpoint or stop");
    }
    ls_control_request request = {.verb = LS_CONTROL_STATUS};
    while (request.verb < LS_CONTROL_VERBS && strcmp(verbs[request.verb].name, name) != 0) {
        request.verb++;
    }
    if (request.verb == LS_CONTROL_VERBS) {
        return ls_fail(LS_ERR_INVALID,
                       "unknown request '%.40s': use one of status, resize, leave, checkpoint, stop", name);
    }
    LS_TRY(read_number(object, request.verb, &request.number));
    *request_out = request;
    return LS_OK;
}

ls_status ls_control_request_read(const void *data, size_t bytes, ls_control_request *request_out)
{
    if (bytes > LS_CONTROL_REQUEST_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID, "the request to the run has %zu bytes; at most %d are allowed", bytes,
                       LS_CONTROL_REQUEST_BYTES_MAX);
    }
    json_t *object = json_loadb(data, bytes, JSON_REJECT_DUPLICATES, NULL);
    const ls_status status = json_is_object(object)
                                 ? read_request(object, request_out)
                                 : ls_fail(LS_ERR_INVALID, "a request to the run must be one JSON object");
    json_decref(object);
    return status;
}

static ls_status act(const ls_control_actions *actions, const ls_control_request *request)
{
    switch (request->verb) {
    case LS_CONTROL_RESIZE:
        return actions->resize(actions->context, request->number);
    case LS_CONTROL_LEAVE:
        return actions->leave(actions->context, request->number);
    case LS_CONTROL_CHECKPOINT:
        return actions->checkpoint(actions->context);
    case LS_CONTROL_STOP:
        return actions->stop(actions->context);
    default:
        return LS_OK;
    }
}

json_t *ls_control_request_answer(const ls_control_actions *actions, const void *data, size_t bytes)
{
    ls_control_request request = {0};
    ls_status status = ls_control_request_read(data, bytes, &request);
    if (status == LS_OK) {
        status = act(actions, &request);
    }
    json_t *answer = status == LS_OK && request.verb == LS_CONTROL_STATUS ? actions->status(actions->context)
                                                                          : json_object();
    json_object_set_new(answer, "ok", json_boolean(status == LS_OK));
    if (status != LS_OK) {
        json_t *text = json_string(ls_error_text()); /* NULL if it holds a name that is not UTF-8 */
        json_object_set_new(answer, "error", text ? text : json_string("refused"));
        json_object_set_new(answer, "status", json_string(ls_status_name(status)));
        ls_error_clear();
    }
    return answer;
}
