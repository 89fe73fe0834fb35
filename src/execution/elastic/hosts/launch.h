// SPDX-License-Identifier: Apache-2.0
/*
 * How a run gets to several hosts, and what this process is in it.
 *
 *   train --hosts FILE                   this host trains; agents are started over ssh on the other
 *                                        hosts of the file
 *   train --coordinator HOST:PORT        this host trains with --local-ranks ranks and listens
 *                                        there; people start the agents
 *   train under srun, torchrun, mpirun   the process with rank 0 trains and listens; one process of
 *                                        each other host becomes its agent; all others are spares,
 *                                        which wait and end with the run
 *   lockstep agent                       the agent of one host
 *
 * A file of hosts has lines "host [slots=N] [address]": slots is the number of ranks (default 1),
 * address is where ssh finds the host if not under its name, and # begins a comment. The trainer's
 * host must be in the file.
 *
 * The token comes from LOCKSTEP_TOKEN or a file. With --hosts one is made when there is none;
 * agents get it through ssh's stdin.
 */
#ifndef LS_EXECUTION_ELASTIC_HOSTS_LAUNCH_H
#define LS_EXECUTION_ELASTIC_HOSTS_LAUNCH_H

#include "base/arena.h"
#include "execution/elastic/hosts/host_agent.h"
#include "lockstep/comm.h"

typedef struct ls_host_entry {
    const char *name, *address; /* address: the name when none is given */
    uint32_t slots;
    bool is_here; /* this host */
} ls_host_entry;

/* Errors: LS_ERR_NOT_FOUND, LS_ERR_INVALID with line, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_hosts_file_read(ls_arena *arena, const char *path, ls_host_entry **hosts_out,
                                           uint32_t *count_out);

/* The hosts of a run, as the workers of the run need them (elastic/workers/workers.h). */
typedef struct ls_workers_hosts {
    const char *listen; /* "HOST:PORT", HOST numeric */
    /* Host under which others reach the coordinator; NULL: that of `listen`. */
    const char *reachable;
    const char *token;
    uint32_t local_ranks; /* on this host; they have the first numbers */
    /* slots: ranks of that host. NULL: people start the agents. */
    const ls_host_entry *others;
    uint32_t other_count;
} ls_workers_hosts;

typedef enum ls_launch_role { LS_LAUNCH_TRAINER, LS_LAUNCH_AGENT } ls_launch_role;

/* What was asked for on the command line; NULL, "" and 0: nothing. */
typedef struct ls_launch_options {
    const char *hosts_file, *coordinator, *token_file;
    uint64_t ranks, local_ranks;
} ls_launch_options;

typedef struct ls_launch {
    ls_launch_role role;
    uint64_t ranks;                /* of the run; 0: as the run file says */
    const ls_workers_hosts *hosts; /* NULL: this host only */
    ls_host_agent_options agent;   /* of an agent or a spare */
} ls_launch;

/* Reads the options and the environment. All results live in the arena. Errors: LS_ERR_INVALID,
 * LS_ERR_NOT_FOUND. */
LS_MUST_CHECK ls_status ls_launch_read(ls_arena *arena, const ls_launch_options *options,
                                       ls_launch *launch_out);

/* The token from a file ("-": the first line of stdin), or from the environment when file is ""
 * or NULL; "" when there is none. */
LS_MUST_CHECK ls_status ls_token_read(const char *file, char token_out[LS_COMM_TOKEN_BYTES]);

/* ---- starting agents over ssh ---- */

typedef struct ls_starter ls_starter;

/*
 * Starts an agent on each host, with ssh in batch mode or the command in LOCKSTEP_SSH ("ssh -p
 * 2222", or any command that takes a host and a shell line). What an agent prints comes out on this
 * process's stderr, each line after its host's name. The commands die with the calling thread;
 * those that are started again, with the starter. are_there: the agents run already; only
 * ls_starter_again starts one. Errors: LS_ERR_INVALID, LS_ERR_IO, LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_starter_start(const ls_workers_hosts *hosts, const char *coordinator,
                                         bool are_there, ls_starter **starter_out);
/* Whether the command for host `host` has ended, and what it printed last. Any thread. */
bool ls_starter_has_ended(ls_starter *starter, uint32_t host, char text_out[512]);
/* Starts the command for host `host` once more, soon; a command for it that still runs is killed
 * first. From now on ls_starter_has_ended is about the new one. Any thread. */
void ls_starter_again(ls_starter *starter, uint32_t host);
/* Waits a moment for the commands to end, then kills them. NULL allowed. */
void ls_starter_stop(ls_starter *starter);

#endif
