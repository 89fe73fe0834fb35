// SPDX-License-Identifier: Apache-2.0
/*
 * How a run comes to several hosts, and what this process is in it.
 *
 *   train --hosts FILE                   this host trains; agents are started over ssh on the file's other hosts
 *   train --coordinator HOST:PORT        this host trains with --local-ranks ranks and listens there; people start the agents
 *   train under srun, torchrun, mpirun   rank 0's process trains and listens, one process of each other host becomes its agent, all others
 *                                        are spares: they wait and end with the run
 *   lockstep agent                       one host's agent
 *
 * A file of hosts has lines "host [slots=N] [address]": slots are ranks (default 1), address is where ssh finds the host when that is not its
 * name; # begins a comment. The host of the trainer is one of them.
 *
 * The token comes from LOCKSTEP_TOKEN or a file. With --hosts one is made when there is none, and goes to the agents through ssh's stdin.
 */
#ifndef LS_EXECUTION_ELASTIC_LAUNCH_H
#define LS_EXECUTION_ELASTIC_LAUNCH_H

#include "base/arena.h"
#include "execution/elastic/host_agent.h"
#include "lockstep/comm.h"

typedef struct ls_host_entry {
    const char *name, *address; /* address: the name when none is given */
    uint32_t slots;
    bool is_here; /* this host */
} ls_host_entry;

/* Errors: LS_ERR_NOT_FOUND, LS_ERR_INVALID with line, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_hosts_file_read(ls_arena *arena, const char *path, ls_host_entry **hosts_out,
                                           uint32_t *count_out);

/* The hosts of a run, for the gang (elastic/gang.h). */
typedef struct ls_gang_hosts {
    const char *listen;    /* "HOST:PORT", HOST a number */
    const char *reachable; /* host under which others reach the coordinator; NULL: that of `listen` */
    const char *token;
    uint32_t local_ranks;        /* of this host, the first ones */
    const ls_host_entry *others; /* with the ranks of each as slots; NULL: agents come by themselves */
    uint32_t other_count;
} ls_gang_hosts;

typedef enum ls_launch_role { LS_LAUNCH_TRAINER, LS_LAUNCH_AGENT } ls_launch_role;

/* What a person asked for; NULL, "" and 0: nothing. */
typedef struct ls_launch_options {
    const char *hosts_file, *coordinator, *token_file;
    uint64_t ranks, local_ranks;
} ls_launch_options;

typedef struct ls_launch {
    ls_launch_role role;
    uint64_t ranks;              /* of the run; 0: as the run file says */
    const ls_gang_hosts *hosts;  /* NULL: this host alone */
    ls_host_agent_options agent; /* of an agent or a spare */
} ls_launch;

/* Reads options and environment. Everything lives in the arena. Errors: LS_ERR_INVALID, LS_ERR_NOT_FOUND. */
LS_MUST_CHECK ls_status ls_launch_read(ls_arena *arena, const ls_launch_options *options,
                                       ls_launch *launch_out);

/* The token of a file ("-": the first line of stdin), or of the environment when file is "" or NULL; "" when there is none. */
LS_MUST_CHECK ls_status ls_token_read(const char *file, char token_out[LS_COMM_TOKEN_BYTES]);

/* ---- starting agents over ssh ---- */

typedef struct ls_starter ls_starter;

/*
 * Starts an agent on each host: ssh in batch mode, or what LOCKSTEP_SSH says ("ssh -p 2222", or a command that takes a host and a shell line).
 * What an agent prints to stdout or stderr comes out on this process's stderr, each line behind its host's name. The commands die with the calling
 * thread, those that are started again with the starter. are_there: agents that somebody started before; only ls_starter_again starts one. Errors: LS_ERR_INVALID, LS_ERR_IO, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_starter_start(const ls_gang_hosts *hosts, const char *coordinator, bool are_there,
                                         ls_starter **starter_out);
/* Whether the command for host `host` has ended, and its last words. Any thread. */
bool ls_starter_has_ended(ls_starter *starter, uint32_t host, char text_out[512]);
/* Starts the command for host `host` once more, soon; what is left of the one before is ended first. From now on ls_starter_has_ended speaks of the
 * new one. Any thread. */
void ls_starter_again(ls_starter *starter, uint32_t host);
/* Waits a moment for the commands to end, then ends them. NULL allowed. */
void ls_starter_stop(ls_starter *starter);

#endif
