// SPDX-License-Identifier: Apache-2.0
/*
 * What launchers say in the environment, taken apart: behind ls_comm_options_from_environment (lockstep/comm.h) and `lockstep train`
 * started by srun, torchrun or mpirun. Reads the environment only; no name service, no files.
 */
#ifndef LS_EXECUTION_COMM_ENVIRONMENT_H
#define LS_EXECUTION_COMM_ENVIRONMENT_H

#include "lockstep/comm.h"

enum {
    LS_NODE_NAME_BYTES = 256,
    LS_NODES_MAX = 1 << 16, /* in a list */
    LS_TOKEN_DIGITS_MIN = 16,
};

typedef enum ls_launcher {
    LS_LAUNCHER_NONE,
    LS_LAUNCHER_LOCKSTEP,
    LS_LAUNCHER_TORCHRUN,
    LS_LAUNCHER_MPIRUN,
    LS_LAUNCHER_SRUN,
} ls_launcher;

/* As ls_comm_options_from_environment, and which launcher it was. node_out: number of this host among the launcher's, as it says, or 0. */
LS_MUST_CHECK ls_status ls_environment_read(ls_comm_options *options_out, ls_launcher *launcher_out,
                                            uint32_t *node_out);
const char *ls_launcher_name(ls_launcher launcher); /* "torchrun" */

/* LOCKSTEP_TOKEN, "" when there is none. Errors: LS_ERR_INVALID when it is not 16 to 127 hexadecimal digits. */
LS_MUST_CHECK ls_status ls_environment_token(char token_out[LS_COMM_TOKEN_BYTES]);
/* Checks a token from anywhere; `from` names it in the error. */
LS_MUST_CHECK ls_status ls_token_check(const char *token, const char *from);

/*
 * Slurm's lists of nodes: "gpu1,node[01-03,7]b" names gpu1, node01b, node02b, node03b, node7b. Several brackets in one name multiply,
 * the last changes fastest. Name `index` goes to name_out (NULL: nowhere), how many there are to *count_out. Errors: LS_ERR_INVALID
 * saying where; more than LS_NODES_MAX names; LS_ERR_NOT_FOUND when there is no name `index`.
 */
LS_MUST_CHECK ls_status ls_node_list_read(const char *list, uint32_t index, char name_out[LS_NODE_NAME_BYTES],
                                          uint32_t *count_out);

/* Slurm's counts per node: "2(x3),1" is 2 2 2 1. The one of node `index`. Errors: LS_ERR_INVALID, LS_ERR_NOT_FOUND. */
LS_MUST_CHECK ls_status ls_node_counts_read(const char *counts, uint32_t index, uint32_t *count_out);

/* A port that processes of one job agree on without talking: 20000 to 29999, below the ports that systems hand out. */
uint32_t ls_port_of_job(const char *id);

#endif
