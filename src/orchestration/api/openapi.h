// SPDX-License-Identifier: Apache-2.0
/* OpenAPI: the table of api/route.h as an OpenAPI 3.1 document. Pure; thread-safe. */
#ifndef LS_ORCHESTRATION_API_OPENAPI_H
#define LS_ORCHESTRATION_API_OPENAPI_H

#include "base/json.h"

/* The document; the caller drops it. */
json_t *ls_api_openapi(void);

#endif
