// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the variables that launchers set. Used by ls_comm_options_from_environment
 * (lockstep/comm.h) and by `lockstep train` under srun, torchrun or mpirun. Reads the environment
 * only: no name service, no files.
 */
#ifndef LS_COMM_GROUP_ENVIRONMENT_H
#define LS_COMM_GROUP_ENVIRONMENT_H

#include "lockstep/comm.h"

enum {
    LS_NODE_NAME_BYTES = 256,
    /* Most nodes in a list. */
    LS_NODES_MAX = 1 << 16,
    LS_TOKEN_DIGITS_MIN = 16,
};

typedef enum ls_launcher {
    LS_LAUNCHER_NONE,
    LS_LAUNCHER_LOCKSTEP,
    LS_LAUNCHER_TORCHRUN,
    LS_LAUNCHER_MPIRUN,
    LS_LAUNCHER_SRUN,
} ls_launcher;

/* Like ls_comm_options_from_environment; also returns the launcher. node_out: the number that the
 * launcher gives this host, or 0. Both may be NULL. */
LS_MUST_CHECK ls_status ls_environment_read(ls_comm_options *options_out, ls_launcher *launcher_out,
                                            uint32_t *node_out);
/* For example "torchrun". */
const char *ls_launcher_name(ls_launcher launcher);

/* Reads LOCKSTEP_TOKEN; "" if it is not set. Errors: LS_ERR_INVALID if it is not 16 to 127
 * hexadecimal digits. */
LS_MUST_CHECK ls_status ls_environment_token(char token_out[LS_COMM_TOKEN_BYTES]);
/* Checks a token; `from` names its origin in the error text. */
LS_MUST_CHECK ls_status ls_token_check(const char *token, const char *from);

/*
 * Reads Slurm's list of nodes: "gpu1,node[01-03,7]b" names gpu1, node01b, node02b, node03b, node7b.
 * With several brackets in one name all combinations are meant; the last bracket changes fastest.
 * name_out: name number `index` (NULL: not wanted). count_out: the number of names.
 * Errors: LS_ERR_INVALID with the position, or if there are more than LS_NODES_MAX names;
 * LS_ERR_NOT_FOUND if there is no name number `index`.
 */
LS_MUST_CHECK ls_status ls_node_list_read(const char *list, uint32_t index, char name_out[LS_NODE_NAME_BYTES],
                                          uint32_t *count_out);

/* Reads the count of node `index` from Slurm's counts per node: "2(x3),1" means 2 2 2 1.
 * Errors: LS_ERR_INVALID, LS_ERR_NOT_FOUND. */
LS_MUST_CHECK ls_status ls_node_counts_read(const char *counts, uint32_t index, uint32_t *count_out);

/* A port on which the processes of a job agree without communicating: from 20000 to 29999, below
 * the range from which systems assign ports. */
uint32_t ls_port_of_job(const char *id);

#endif
