// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/openapi.h"

#include "base/text.h"
#include "orchestration/api/route.h"

#include <stdio.h>
#include <string.h>

static const char *type_name(ls_api_type type)
{
    static const char *const names[] = {
        [LS_API_INTEGER] = "integer", [LS_API_NUMBER] = "number", [LS_API_STRING] = "string",
        [LS_API_BOOL] = "boolean",    [LS_API_STRINGS] = "array", [LS_API_INTEGERS] = "array",
        [LS_API_OBJECT] = "object",   [LS_API_OBJECTS] = "array",
    };
    return names[type];
}

static const char *item_name(ls_api_type type)
{
    return type == LS_API_STRINGS ? "string" : type == LS_API_INTEGERS ? "integer" : "object";
}

static void put_limits(json_t *schema, const ls_api_field *field)
{
    const bool is_text = field->type == LS_API_STRING,
               is_number = field->type == LS_API_INTEGER || field->type == LS_API_NUMBER;
    if (field->max <= field->min) {
        return;
    }
    const bool is_object = field->type == LS_API_OBJECT;
    const char *low = is_text     ? "minLength"
                      : is_number ? "minimum"
                      : is_object ? "minProperties"
                                  : "minItems",
               *high = is_text     ? "maxLength"
                       : is_number ? "maximum"
                       : is_object ? "maxProperties"
                                   : "maxItems";
    json_object_set_new(schema, low, json_integer((json_int_t)field->min));
    json_object_set_new(schema, high, json_integer((json_int_t)field->max));
}

static json_t *object_of(const ls_api_field *fields, size_t count, bool is_answer);

static json_t *items_of(const ls_api_field *field)
{
    return field->members ? object_of(field->members, field->member_count, true)
                          : json_pack("{s:s}", "type", item_name(field->type));
}

static json_t *schema_of(const ls_api_field *field)
{
    if (field->type == LS_API_ANY) {
        return json_object();
    }
    const bool has_members = field->type == LS_API_OBJECT && field->members;
    json_t *schema = has_members ? object_of(field->members, field->member_count, true) : json_object();
    const char *name = type_name(field->type);
    json_object_set_new(schema, "type",
                        field->may_be_null ? json_pack("[s, s]", name, "null") : json_string(name));
    if (strcmp(name, "array") == 0) {
        json_object_set_new(schema, "items", items_of(field));
    }
    put_limits(schema, field);
    if (field->pattern) {
        json_object_set_new(schema, "pattern", json_string(field->pattern));
    }
    if (field->choices) {
        json_t *choices = json_array();
        for (const char *const *choice = field->choices; *choice; choice++) {
            json_array_append_new(choices, json_string(*choice));
        }
        json_object_set_new(schema, "enum", choices);
    }
    return schema;
}

/* An object with the fields of the body, or with all members of an answer. */
static json_t *object_of(const ls_api_field *fields, size_t count, bool is_answer)
{
    json_t *properties = json_object(), *required = json_array();
    for (size_t i = 0; i < count; i++) {
        if (!is_answer && fields[i].place != LS_API_BODY) {
            continue;
        }
        json_t *schema = schema_of(&fields[i]);
        json_object_set_new(schema, "description", json_string(fields[i].help));
        json_object_set_new(properties, fields[i].name, schema);
        if (is_answer ? !fields[i].may_lack : fields[i].is_required) {
            json_array_append_new(required, json_string(fields[i].name));
        }
    }
    return json_pack("{s:s, s:o, s:o, s:b}", "type", "object", "properties", properties, "required", required,
                     "additionalProperties", is_answer);
}

static json_t *parameters_of(const ls_api_route *route)
{
    json_t *list = json_array();
    for (size_t i = 0; i < route->argument_count; i++) {
        const ls_api_field *field = &route->arguments[i];
        if (field->place != LS_API_BODY) {
            json_array_append_new(list, json_pack("{s:s, s:s, s:b, s:s, s:o}", "name", field->name, "in",
                                                  field->place == LS_API_PATH ? "path" : "query", "required",
                                                  field->is_required, "description", field->help, "schema",
                                                  schema_of(field)));
        }
    }
    return list;
}

static const char *media_type(const ls_api_route *route)
{
    return route->answer || route->kind == LS_API_VERB || route->kind == LS_API_OPENAPI ? "application/json"
           : route->kind == LS_API_STREAM                                               ? "text/event-stream"
           : route->kind == LS_API_PAGE                                                 ? "text/html"
                                                                                        : "text/plain";
}

static json_t *responses_of(const ls_api_route *route)
{
    json_t *schema = route->answer ? object_of(route->answer, route->answer_count, true)
                     : strcmp(media_type(route), "application/json") == 0
                         ? json_pack("{s:s}", "type", "object")
                         : json_pack("{s:s}", "type", "string");
    json_t *content = json_object();
    json_object_set_new(content, media_type(route), json_pack("{s:o}", "schema", schema));
    char code[8];
    snprintf(code, sizeof code, "%d", route->code ? route->code : 200);
    return json_pack("{s:{s:s, s:o}, s:{s:s}}", code, "description", "done", "content", content, "default",
                     "$ref", "#/components/responses/error");
}

static const char *who_name(ls_api_who who)
{
    static const char *const names[] = {
        [LS_API_OPEN] = "everyone who can reach the server, without a token",
        [LS_API_ANYBODY] =
            ("every user who can reach the server; jobs of other users show only number, state, "
             "account and ranks"),
        [LS_API_OF_JOB] = "the job's owner, root, the daemon's owner, and users named in job.share",
        [LS_API_ADMIN] = "root and the daemon's owner",
    };
    return names[who];
}

static json_t *operation_of(const ls_api_route *route)
{
    json_t *operation = json_pack("{s:s, s:s, s:s+, s:o, s:o}", "operationId", route->verb, "summary",
                                  route->help, "description", "For: ", who_name(route->who), "parameters",
                                  parameters_of(route), "responses", responses_of(route));
    if (route->who == LS_API_OPEN) {
        json_object_set_new(operation, "security", json_array());
    }
    /* Also a request without arguments: its Content-Type tells it from a form of another site. */
    if (strcmp(route->method, "POST") == 0) {
        json_object_set_new(operation, "requestBody",
                            json_pack("{s:b, s:{s:{s:o}}}", "required", true, "content", "application/json",
                                      "schema", object_of(route->arguments, route->argument_count, false)));
    }
    return operation;
}

static json_t *paths(void)
{
    size_t count = 0;
    const ls_api_route *routes = ls_api_routes(&count);
    json_t *all = json_object();
    for (size_t i = 0; i < count; i++) {
        json_t *path = json_object_get(all, routes[i].path);
        if (!path) {
            path = json_object();
            json_object_set_new(all, routes[i].path, path);
        }
        json_object_set_new(path, strcmp(routes[i].method, "GET") == 0 ? "get" : "post",
                            operation_of(&routes[i]));
    }
    return all;
}

json_t *ls_api_openapi(void)
{
    json_t *error = json_pack(
        "{s:s, s:{s:{s:{s:s, s:{s:{s:s, s:s}, s:{s:s, s:s}}, s:[s, s]}}}}", "description",
        "refused or failed", "content", "application/json", "schema", "type", "object", "properties", "error",
        "type", "string", "description", "what failed, the value seen, and what is allowed", "status", "type",
        "string", "description",
        "the HTTP code as a word: invalid (400), unauthorized, forbidden, not found, method, timeout, "
        "conflict, too large, media type, limit (429), unsupported (501), unavailable, disk (507)",
        "required", "error", "status");
    json_t *document = json_pack("{s:s, s:{s:s, s:s, s:s}, s:[{s:[]}, {s:[]}, {}], s:o}", "openapi", "3.1.0",
                                 "info", "title", "Lockstep", "version", LS_VERSION, "description",
                                 "The queue of a daemon. On its Unix socket the kernel identifies the "
                                 "caller. Over TCP a token does ('lockstep token'); on loopback, the setting "
                                 "access.loopback says which processes need none.",
                                 "security", "bearer", "cookie", "paths", paths());
    json_object_set_new(document, "components",
                        json_pack("{s:{s:o}, s:{s:{s:s, s:s}, s:{s:s, s:s, s:s}}}", "responses", "error",
                                  error, "securitySchemes", "bearer", "type", "http", "scheme", "bearer",
                                  "cookie", "type", "apiKey", "in", "cookie", "name", "lockstep_token"));
    return document;
}
