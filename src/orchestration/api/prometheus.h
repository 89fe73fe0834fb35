// SPDX-License-Identifier: Apache-2.0
/* Prometheus: answers of verbs in the text format 0.0.4 that Prometheus scrapes. Pure; thread-safe. */
#ifndef LS_ORCHESTRATION_API_PROMETHEUS_H
#define LS_ORCHESTRATION_API_PROMETHEUS_H

#include "base/json.h"
#include "base/text.h"

/* Answers of LS_VERB_STATUS, NODES, ACCOUNTS, USAGE. What one of them lacks is left out. */
typedef struct ls_prometheus_answers {
    const json_t *status, *nodes, *accounts, *usage;
} ls_prometheus_answers;

void ls_prometheus_append(const ls_prometheus_answers *answers, ls_text *text);

#endif
