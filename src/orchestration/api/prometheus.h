// SPDX-License-Identifier: Apache-2.0
/* Prometheus: answers of verbs in the text format 0.0.4 that Prometheus scrapes. Thread-safe. */
#ifndef LS_ORCHESTRATION_API_PROMETHEUS_H
#define LS_ORCHESTRATION_API_PROMETHEUS_H

#include "base/json.h"
#include "base/text.h"

enum { LS_PROMETHEUS_ITEMS_MAX = 256 }; /* accounts and nodes with numbers of their own: the first so many */

/* Answers of LS_VERB_STATUS, NODES, ACCOUNTS, USAGE. What one of them lacks is left out. */
typedef struct ls_prometheus_answers {
    const json_t *status, *nodes, *accounts, *usage;
} ls_prometheus_answers;

/* This process, as Prometheus' own libraries name it: memory, time, files. */
void ls_prometheus_append_process(ls_text *text);

void ls_prometheus_append(const ls_prometheus_answers *answers, ls_text *text);

#endif
