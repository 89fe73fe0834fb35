// SPDX-License-Identifier: Apache-2.0
/*
 * Simulator: the policy core (orchestration/policy/policy.h) on a trace, with nodes, switches and the time that restarts lose.
 *
 * Event driven: the next event is the earlier of the next submission, the earliest end and the time the policy names itself. At each event time jobs that end
 * are reported first, then those submitted, then passes are made until one decides nothing. What a pass decides happens at once: a job that is preempted has
 * saved and waits again; one that starts again, or goes on with other devices, holds its devices for the restart cost before it gets on. Nothing that was done
 * is done again: jobs save when they are told to stop.
 *
 * The policy knows how long jobs take only where the trace says what was expected (own format), and with the orders sjf-oracle and easy, which are yardsticks.
 */
#ifndef LS_ORCHESTRATION_SIMULATE_SIMULATOR_H
#define LS_ORCHESTRATION_SIMULATE_SIMULATOR_H

#include "orchestration/policy/policy.h"
#include "orchestration/simulate/run.h"

typedef struct ls_simulator_options {
    ls_policy_settings settings; /* capacities are set to what the trace needs */
    uint64_t start_cost_ms;      /* devices held before a first start gets on */
    uint64_t restart_cost_ms;    /* before a job goes on after a preemption or a resize */
    bool hosts_known;            /* cores and memory of nodes mean something: jobs are held to theirs */
    void (*progress)(void *context, const ls_sim_run *run,
                     size_t ended); /* now and then; NULL: nobody asks */
    void *context;
} ls_simulator_options;

/*
 * Runs the whole trace. Jobs that can never run there are refused; what still waits when nothing happens any more stays unfinished.
 * Errors: LS_ERR_INVALID (settings, cluster), LS_ERR_MEMORY, LS_ERR_FAILED (the policy decided what can't be: a defect).
 */
LS_MUST_CHECK ls_status ls_simulator_run(ls_arena *arena, const ls_trace *trace, const ls_cluster *cluster,
                                         const ls_simulator_options *options, ls_sim_run *run_out);

#endif
