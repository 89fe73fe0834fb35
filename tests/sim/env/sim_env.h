// SPDX-License-Identifier: Apache-2.0
/*
 * The simulated env: a small world of hosts, disks and a network behind the calls of env/env.h
 * (invariant I6).
 *
 * Everything runs in one thread on a virtual clock, and everything that is left to chance comes
 * from one seed: the same seed and the same calls give the same world, event by event
 * (ls_sim_trace_hash). A state machine that survives thousands of seeds here, with crashes at every
 * disk call, has met more failures than a cluster sees in years; one that fails is replayed from
 * the seed, which every failed assertion prints.
 *
 *   host      a name, a disk, processes. A crash ends its processes and takes from the disk what was
 *             not made durable.
 *   process   an env, started by a program (a C function that sets up state machines and returns).
 *             Ends by ls_env_stop, a signal it does not watch, or the host's crash. Its parent gets
 *             the exit event.
 *   disk      At a crash, each write since the file's last sync is kept, lost, or torn at a multiple
 *             of 512 bytes, independently; the names in each folder return to one of the states they
 *             had since the folder's last sync.
 *   network   Links as over TCP; a message that meets a cut breaks its link. The hostile mode also
 *             loses, duplicates and reorders messages.
 *
 * Not thread-safe: a world belongs to one thread.
 */
#ifndef LS_BASE_ENV_SIM_H
#define LS_BASE_ENV_SIM_H

#include "base/arena.h"
#include "env/env.h"

typedef struct ls_sim ls_sim;
typedef unsigned ls_sim_host;

typedef struct ls_sim_settings {
    uint64_t seed;
    uint64_t net_delay_min_ns, net_delay_max_ns;   /* both 0: 50 us to 2 ms */
    uint64_t disk_delay_min_ns, disk_delay_max_ns; /* both 0: 20 us to 5 ms */
    double net_drop;      /* hostile mode: probability that a message is silently lost */
    double net_duplicate; /* hostile mode: probability that it arrives twice */
    bool net_reorder;     /* hostile mode: messages of a link may overtake each other */
} ls_sim_settings;

enum {
    LS_SIM_HOSTS_MAX = 64,
    LS_SIM_SECTOR_BYTES = 512,
    /* Values in place of an errno value: */
    LS_SIM_SHORT_WRITE = 1000, /* a write writes half of its bytes; other calls succeed */
    LS_SIM_POWER_CUT,          /* the host crashes instead of doing the call */
};

/* Sets up the state machines of a process. argv ends with NULL and is valid during the call. */
typedef void (*ls_sim_program)(ls_env *env, const char *const *argv, void *context);

ls_sim *ls_sim_create(const ls_sim_settings *settings);
void ls_sim_destroy(ls_sim *sim);

ls_sim_host ls_sim_host_add(ls_sim *sim, const char *name);

/* Makes `name` startable by ls_env_process_start on every host. name and context are borrowed. */
void ls_sim_program_add(ls_sim *sim, const char *name, ls_sim_program program, void *context);

/* Starts a process without a parent; the program runs at once. */
ls_env *ls_sim_start(ls_sim *sim, ls_sim_host host, ls_sim_program program, void *context);

/* Zeroed memory, freed when the process ends, for its state machines. */
void *ls_sim_alloc(ls_env *env, size_t bytes);
/* The same memory, for state machines that take an arena. */
ls_arena *ls_sim_arena(ls_env *env);

/* Its process number, for ls_env_process_watch. */
int32_t ls_sim_pid(const ls_env *env);
bool ls_sim_is_running(const ls_env *env);
/* Of an ended process; 128 + 9 after a host's crash. */
int ls_sim_exit_code(const ls_env *env);

/* Runs the next event; false when there is none. */
bool ls_sim_step(ls_sim *sim);
/* Runs events up to `until_ns`, at most `events_max` of them; returns how many ran. The clock is
 * then at until_ns, unless events_max was reached: then something goes round in circles or is
 * slow. */
uint64_t ls_sim_run(ls_sim *sim, uint64_t until_ns, uint64_t events_max);
uint64_t ls_sim_now_ns(const ls_sim *sim);

/* A number from the world's seed, for tests that choose at random. */
uint64_t ls_sim_random_u64(ls_sim *sim);
/* A hash over the time and owner of every event so far: equal for equal histories. */
uint64_t ls_sim_trace_hash(const ls_sim *sim);

/* ---- what may go wrong ---- */

/* Power loss: processes vanish without an exit event, and the disk keeps what it promised. Start
 * programs again afterwards. */
void ls_sim_host_crash(ls_sim *sim, ls_sim_host host);
/* Sends a signal from outside: its watcher gets it; without one (and for SIGKILL always) the
 * process ends. */
void ls_sim_signal(ls_env *env, int signal_number);
/* Cuts (or restores) the connection between two hosts, in both directions. */
void ls_sim_cut(ls_sim *sim, ls_sim_host a, ls_sim_host b, bool cut);
/* Disk calls completed on this host so far. */
uint64_t ls_sim_disk_calls(const ls_sim *sim, ls_sim_host host);
/* The call-th disk call from now on (1: the next) fails with minus `error` (an errno value or
 * one of the above) and does nothing. Exceptions: a failed close has closed, and after a failed
 * sync some of what was pending never becomes durable, though programs still see it. 0 for
 * `call` cancels the plan. */
void ls_sim_disk_fail(ls_sim *sim, ls_sim_host host, uint64_t call, int error);
/* The same for that call and every later one on that disk: it is gone. */
void ls_sim_disk_fail_on(ls_sim *sim, ls_sim_host host, uint64_t call, int error);
/* Every call fails with this probability: EIO, ENOSPC where it needs space, or a short write. A
 * change of names that failed in this way may or may not have happened. 0 ends it. */
void ls_sim_disk_trouble(ls_sim *sim, ls_sim_host host, double probability);
/* Bytes of file content the disk holds; writes beyond are -ENOSPC. UINT64_MAX at first. */
void ls_sim_disk_capacity(ls_sim *sim, ls_sim_host host, uint64_t bytes);
/* Bytes of file content it holds now. */
uint64_t ls_sim_disk_used(const ls_sim *sim, ls_sim_host host);
/* Flips a bit of a file at rest, durably. False when `path` does not exist or nothing of it is
 * durable. */
bool ls_sim_disk_rot(ls_sim *sim, ls_sim_host host, const char *path);
/* Copies a file or a folder of the simulated disk, as programs see it, to `to` on the real disk,
 * for readers that do not use an env. Errors: LS_ERR_NOT_FOUND, LS_ERR_IO. */
LS_MUST_CHECK ls_status ls_sim_disk_export(const ls_sim *sim, ls_sim_host host, const char *path,
                                           const char *to);

#endif
