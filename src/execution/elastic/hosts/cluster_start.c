// SPDX-License-Identifier: Apache-2.0
/* Before the run: waiting for the agents of all hosts, and naming those that are missing. */
#include "execution/elastic/hosts/cluster_internal.h"

#include "base/log.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* When missing agents are logged again. */
static const uint64_t LOG_AGAIN_NS = 20 * UINT64_C(1000000000);

/* A command that ends before its agent connected will not bring it any more: the run need not
 * wait for the deadline. */
static void look_at_starters(ls_cluster *cluster)
{
    char words[512], text[900];
    for (uint32_t i = 0; cluster->options.start_failed && i < cluster->options.host_count; i++) {
        if (!cluster->agents[i].used && cluster->options.start_failed(cluster->options.context, i, words)) {
            snprintf(text, sizeof text, "cannot start an agent on host %s: %s",
                     cluster->options.hosts[i].name, words);
            ls_cluster_abort_all(cluster, LS_ERR_FAILED, -1, text);
        }
    }
}

/* With a list, every host of it has an agent; without one, the agents together have all ranks. */
static bool all_came(const ls_cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->options.host_count; i++) {
        if (!cluster->agents[i].used) {
            return false;
        }
    }
    return cluster->given == cluster->control->ranks;
}

/* Appends the hosts of the list that have no agent yet: "host1, host2". */
static void append_missing_hosts(const ls_cluster *cluster, ls_text *text)
{
    const char *between = "";
    for (uint32_t i = 0; i < cluster->options.host_count; i++) {
        if (!cluster->agents[i].used) {
            ls_text_printf(text, "%s%s", between, cluster->options.hosts[i].name);
            between = ", ";
        }
    }
}

/* Appends the command to type on the other hosts. */
static void append_agent_line(const ls_cluster *cluster, ls_text *text)
{
    const char *served = ls_cluster_address(cluster);
    char host[256] = "";
    if (strncmp(served, "0.0.0.0:", 8) == 0 && gethostname(host, sizeof host - 1) == 0) {
        ls_text_printf(text, "start 'lockstep agent --coordinator %s%s' on the other hosts", host,
                       strrchr(served, ':'));
    } else {
        ls_text_printf(text, "start 'lockstep agent --coordinator %s' on the other hosts", served);
    }
}

static void log_missing(ls_cluster *cluster, uint64_t now)
{
    ls_text text = {0};
    if (cluster->options.hosts) {
        ls_text_append(&text, "agents on ");
        append_missing_hosts(cluster, &text);
    } else {
        ls_text_printf(&text, "ranks %u..%u: ", cluster->given, cluster->control->ranks - 1);
        append_agent_line(cluster, &text);
    }
    ls_log_warn("waiting for %s (%.0f s left)", ls_text_string(&text),
                1e-9 * (double)(cluster->start_deadline_ns - now));
    ls_text_release(&text);
    cluster->log_missing_ns = now + LOG_AGAIN_NS;
}

static void name_missing(ls_cluster *cluster)
{
    ls_text text = {0};
    const double waited_s = 1e-9 * (double)cluster->options.start_timeout_ns;
    if (cluster->options.hosts) {
        ls_text_append(&text, "no agent connected from host ");
        append_missing_hosts(cluster, &text);
        ls_text_printf(&text, " within %.0f s. Check that it can reach %s and that lockstep runs there",
                       waited_s, ls_cluster_address(cluster));
    } else {
        ls_text_printf(&text, "%u of %u ranks (rank %u and above) still have no host after %.0f s: ",
                       cluster->control->ranks - cluster->given, cluster->control->ranks, cluster->given,
                       waited_s);
        append_agent_line(cluster, &text);
        ls_text_append(&text, ", with the same LOCKSTEP_TOKEN");
    }
    ls_cluster_abort_all(cluster, LS_ERR_TIMEOUT, -1, ls_text_string(&text));
    ls_text_release(&text);
}

void ls_cluster_wait_tick(ls_cluster *cluster, uint64_t now)
{
    if (all_came(cluster)) {
        return;
    }
    look_at_starters(cluster);
    if (now >= cluster->start_deadline_ns) {
        name_missing(cluster);
    } else if (now >= cluster->log_missing_ns && !cluster->aborted) {
        log_missing(cluster, now);
    }
}
