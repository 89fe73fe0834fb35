// SPDX-License-Identifier: Apache-2.0
/*
 * Routes: every request the HTTP API knows, in one table.
 *
 * The router (api/request.h) finds the row of a request and checks each argument with it; the
 * OpenAPI document (api/openapi.h) and the table of docs/orchestration.md are printed from it. So
 * what is documented is what is accepted: there is no second list.
 *
 *   method  path                     verb      arguments            answer
 *   POST    /v1/jobs/{job}/resize -> "resize", {"job":7,"ranks":4}  ->
 *           {"job":7,"state":"RESIZING",...}
 *
 * Constant data; thread-safe.
 */
#ifndef LS_ORCHESTRATION_API_ROUTE_H
#define LS_ORCHESTRATION_API_ROUTE_H

#include "orchestration/control/controller.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum ls_api_type {
    LS_API_INTEGER,
    LS_API_NUMBER,
    LS_API_STRING,
    LS_API_BOOL,
    LS_API_STRINGS,  /* a list of texts */
    LS_API_INTEGERS, /* a list of whole numbers */
    LS_API_OBJECT,
    LS_API_OBJECTS, /* a list of objects */
    LS_API_ANY,     /* in answers only */
} ls_api_type;

typedef enum ls_api_place { LS_API_PATH, LS_API_QUERY, LS_API_BODY } ls_api_place;

/*
 * An argument, or a member of an answer. In an answer, `place` and `is_required` mean nothing:
 * every member is there unless `may_lack`, and is null only if `may_be_null`.
 */
typedef struct ls_api_field {
    const char *name;
    ls_api_type type;
    ls_api_place place;
    bool is_required, may_be_null, may_lack;
    /* Of a number; of the bytes of a text; of the items of a list, whose texts have at most
     * LS_API_TEXT_BYTES. */
    double min, max;
    const char *const *choices; /* of a text; NULL: any text */
    /* Regular expression of a text, for the OpenAPI document; the verb checks it. NULL: any. */
    const char *pattern;
    const char *help;
    /* of the object, or of each object in the list; NULL: any */
    const struct ls_api_field *members;
    size_t member_count;
} ls_api_field;

typedef enum ls_api_kind {
    LS_API_VERB,   /* the arguments go to the controller, its JSON is the answer */
    LS_API_FILE,   /* the server reads a file that a job wrote (api/file_answers.c) */
    LS_API_STREAM, /* server-sent events */
    LS_API_PAGE,   /* HTML made of several answers */
    LS_API_METRICS,
    LS_API_OPENAPI,
    LS_API_TOKEN,  /* the server's own tokens (api/token_answers.c) */
    LS_API_HEALTH, /* that the daemon answers at all */
} ls_api_kind;

typedef enum ls_api_who {
    LS_API_OPEN,    /* all who can reach the server, without a token */
    LS_API_ANYBODY, /* every caller; of other users' jobs they see number, state, account, ranks */
    LS_API_OF_JOB,  /* the job's owner, root, the daemon's owner, users named in `share` */
    LS_API_ADMIN,   /* root and the daemon's owner */
} ls_api_who;

typedef struct ls_api_route {
    const char *method; /* "GET", "POST" */
    const char *path;   /* "/v1/jobs/{job}" */
    const char *verb;   /* unique: also the operationId */
    ls_api_kind kind;
    ls_verb call; /* LS_API_VERB only */
    ls_api_who who;
    const char *help; /* one sentence that reads alone */
    const ls_api_field *arguments;
    size_t argument_count;
    const ls_api_field *answer; /* members of the JSON object; NULL: not JSON */
    size_t answer_count;
    int code; /* HTTP code of success; 0: 200 */
} ls_api_route;

enum { LS_API_TEXT_BYTES = 4096, LS_API_BODY_BYTES_MAX = 2 * 1024 * 1024, LS_API_TARGET_BYTES_MAX = 4096 };

/* All rows. */
const ls_api_route *ls_api_routes(size_t *count_out);

#endif
