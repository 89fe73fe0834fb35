// SPDX-License-Identifier: Apache-2.0
/*
 * Simulator: the policy core (policy/policy.h) on a trace, with nodes, switches and the cost of
 * restarts.
 *
 * Event driven: the next event is the earliest of the next submission, the next end and the time
 * that the policy asks for. At each event time, jobs that end are reported first, then submissions,
 * then passes are made until one decides nothing. Decisions take effect at once: a preempted job
 * has saved and waits again; a job that starts again, or continues on other devices, holds its
 * devices for the restart cost before it makes progress. No work is repeated, because jobs save
 * when they are told to stop.
 *
 * The policy knows run times only where the trace has expected times (own format), and with the
 * orders sjf-oracle and easy, which are references.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_SIMULATOR_H
#define LS_ORCHESTRATION_SIMULATE_SIMULATOR_H

#include "orchestration/policy/policy.h"
#include "orchestration/simulate/run.h"

typedef struct ls_simulator_options {
    ls_policy_settings settings; /* capacities are set to what the trace needs */
    /* time for which devices are held at a first start before progress is made */
    uint64_t start_cost_ms;
    uint64_t restart_cost_ms; /* the same after a preemption or a resize */
    /* cores and memory of nodes are known: jobs are held to their requests */
    bool hosts_known;
    /* called from time to time; NULL: never */
    void (*progress)(void *context, const ls_sim_run *run, size_t ended);
    void *context;
} ls_simulator_options;

/*
 * Runs the whole trace. Jobs that can never run on the cluster are refused; jobs that still wait
 * when nothing more can happen stay unfinished. Errors: LS_ERR_INVALID (settings, cluster),
 * LS_ERR_MEMORY, LS_ERR_FAILED (the policy made an impossible decision: a defect).
 */
LS_MUST_CHECK ls_status ls_simulator_run(ls_arena *arena, const ls_trace *trace,
                                         const ls_policy_cluster *cluster,
                                         const ls_simulator_options *options, ls_sim_run *run_out);

#endif
