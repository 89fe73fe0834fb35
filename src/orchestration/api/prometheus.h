// SPDX-License-Identifier: Apache-2.0
/* Prometheus: answers of verbs in the text format 0.0.4 that Prometheus scrapes. Thread-safe. */
#ifndef LS_ORCHESTRATION_API_PROMETHEUS_H
#define LS_ORCHESTRATION_API_PROMETHEUS_H

#include "base/json.h"
#include "base/text.h"

/* Accounts and nodes beyond the first 256 have no metrics of their own. */
enum { LS_PROMETHEUS_ITEMS_MAX = 256 };

/* Answers of LS_VERB_STATUS, NODES, ACCOUNTS and USAGE. Absent members are left out. */
typedef struct ls_prometheus_answers {
    const json_t *status, *nodes, *accounts, *usage;
} ls_prometheus_answers;

/* Memory and processor time of this process, under the names that Prometheus' libraries use. */
void ls_prometheus_append_process(ls_text *text);

void ls_prometheus_append(const ls_prometheus_answers *answers, ls_text *text);

#endif
