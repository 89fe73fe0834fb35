// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the local engine.
 *
 *   local.c          orders from the controller
 *   track.c          one epoch of a job: what has become of it, and the reports about it
 *   folder_watch.c   when to look: inotify on what runners write, or polling where there is no
 *                    watch
 *   resize.c         asks a run to change its size, as `lockstep resize` does
 *   activity.c       how busy jobs are
 *   energy.c         what jobs use of the machine's energy
 *   training.c       how far a training run is, and what it has saved
 *   folder.c         what is written before a start: folder, run file, ticket
 *   machine.c        what this machine offers
 *   job_processes.c  processes of jobs: their processor time, and those left behind
 *   group.c          the control group of a job, where groups can be made
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_INTERNAL_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_INTERNAL_H

#include "env/nvml.h"
#include "env/rapl.h"
#include "orchestration/engines/local/local.h"
#include "orchestration/engines/local/progress.h"
#include "orchestration/engines/local/ticket.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

typedef struct local_engine local_engine;

/* ---- machine.c ---- */

enum { LS_LOCAL_SLOTS_MAX = 4096 };

typedef struct ls_local_machine {
    ls_engine_node node;
    bool has_gpus;
    char name[64], kind[64];
} ls_local_machine;

/*
 * What this machine offers. slots: how many slots to offer; 0: one per GPU, or one per core on a
 * machine without GPUs. gpus: NULL when NVML cannot be asked; GPUs are then counted in /dev.
 */
LS_MUST_CHECK ls_status ls_local_machine_read(uint32_t slots, const ls_nvml *gpus,
                                              ls_local_machine *machine_out);

/* ---- folder.c ---- */

enum { LS_LOCAL_PATH_BYTES = 4096 };

typedef struct ls_local_path {
    char text[LS_LOCAL_PATH_BYTES];
} ls_local_path;

ls_local_path ls_local_folder(const char *home, uint64_t job);
/* The devices of a job, as bits. */
uint64_t ls_local_devices(const ls_job *job);
/* Writes the folder, run file and ticket of an epoch. Errors: LS_ERR_DISK, LS_ERR_IO,
 * LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_local_folder_write(const ls_local_settings *settings,
                                              const ls_local_machine *machine, const ls_job *job);

/* ---- job_processes.c ---- */

/* What is known of a session, which has all processes of a runner's job. */
typedef struct ls_local_look {
    pid_t session;
    uint64_t cpu_ms; /* processor time used so far by processes that still run */
} ls_local_look;

/* Fills cpu_ms of `looks`, which are sorted by session. */
void ls_local_look_all(ls_local_look *looks, uint32_t count);

/* Whether a process was started by this user. */
bool ls_local_is_of_user(pid_t pid, uint32_t uid);
/*
 * Kills the processes that were started by `parent` or by one of its descendants, as far as they
 * are this user's. Returns how many there were; 0: none is left. A parent that adopts orphans, as
 * a runner does, must not go before the last of them: they would be adopted by another process.
 */
uint32_t ls_local_kill_descendants(pid_t parent, uint32_t uid);

/*
 * Kills what is left of a job: processes that have its folder in their environment. (Not those of
 * its runner's session: that number may belong to another process by now.) Returns how many there
 * were; 0: none is left.
 */
uint32_t ls_local_kill_leftovers(const char *folder);

/* ---- group.c ---- */

/*
 * Control groups: one for each epoch of a job, with its runner in it, so that no process of the job
 * can hide by leaving its session or changing its environment. Needs a cgroup file system of
 * version 2 in which this process may create groups and move processes (root, or a delegated
 * group).
 */

/* What a job may use, of all that is limited. */
typedef struct ls_local_limits {
    uint64_t memory_bytes; /* 0: no limit */
    uint32_t ranks, cpus;
} ls_local_limits;

enum { LS_LOCAL_NOTE_BYTES = 400 };

/* The group that holds the groups of this home; "" when groups cannot be used, which the log
 * explains. note: that limits are not enforced, and why; "": they are. */
ls_local_path ls_local_groups_open(const char *home, char note[LS_LOCAL_NOTE_BYTES]);
ls_local_path ls_local_group(const ls_local_path *groups, uint64_t job, uint32_t epoch);
/* Creates the group. false: that was not possible. */
bool ls_local_group_make(const ls_local_path *group);
/* Sets memory.max, pids.max and cpu.weight, where there are such files. */
void ls_local_group_limit(const ls_local_path *group, const ls_local_limits *limits);
/* Moves this process, and so all that it starts, into the group. Where that is not possible the job
 * runs without one. */
void ls_local_group_enter(const char *group);
/* Whether a process is in the group. */
bool ls_local_group_has(const ls_local_path *group, pid_t pid);
/* Kills everything in the group. Returns whether something is still there. */
bool ls_local_group_kill(const ls_local_path *group);
/* Processor time of all processes that ever were in the group. false: not known. */
bool ls_local_group_cpu_ms(const ls_local_path *group, uint64_t *cpu_ms_out);
/* Removes the group when it is empty. true: it is gone. */
bool ls_local_group_remove(const ls_local_path *group);
/* Removes all groups that are empty and belong to no track. */
void ls_local_groups_sweep(const local_engine *e);
/* After the last track: removes what is empty. */
void ls_local_groups_close(const local_engine *e);

/* ---- track.c ---- */

/* A report that waits: for the event loop, or until nothing is left of the job. */
typedef struct later later;

/* A job tells of alerts in this file of its folder, an object {"kind", "text"} a line, and replaces
 * it by rename when there are more. */
#define LS_LOCAL_ALERTS "alerts.jsonl"
/* Written whenever a person types into the terminal of an interactive job (client/terminal.h). */
#define LS_LOCAL_TYPED "typed"

/* One epoch of a job. Each purpose has a timer of its own, 0 when it is not set. All timers end
 * with the track, and so do its questions and its interest in its processes. */
typedef struct track {
    struct track *next;
    local_engine *engine;
    uint64_t job;
    uint32_t epoch, uid, gid, ranks;
    ls_local_path folder, group; /* group: "" when there is none */
    char *run_dir, *user;
    ls_env_id process; /* the runner; 0: not known */
    pid_t pid;
    int watch; /* of inotify; -1: none, so it is polled */
    /* an event came for it: to be looked at when all events have been read */
    bool is_heard;
    bool must_look;
    bool is_child;
    bool is_grouped; /* its runner was seen in its group */
    bool told_started, told_end, is_adopted, is_stopping, is_hunted;
    /* its runner has ended, or the process that claimed to be it is not its user's */
    bool is_runner_gone;
    bool is_overdue;   /* it was told to end and did not end in time */
    bool told_trouble; /* that its files cannot be read */
    later *end;        /* how it ended; NULL: not known, or reported */
    uint32_t hunts;    /* rounds of killing what is left of it */
    uint32_t alerts;   /* how many of its alerts were reported */
    int64_t alerts_ns; /* when its file of alerts was last written */
    int runner_code;   /* exit code of its runner */
    ls_env_id look_timer, hunt_timer, resize_timer, give_back_timer, deadline_timer;
    /* until the next look at its steps, while the time of a step is not known */
    ls_env_id step_timer;
    uint64_t deadline_ns; /* when deadline_timer is due */
    ls_env_id resizer;    /* process; 0: none */
    uint32_t resize_to, resize_tries;
    uint32_t rank_cpus, rank_memory_mib; /* of each rank; 0 MiB: no limit */
    uint64_t devices;                    /* its devices, as bits */
    double energy_mj;                    /* used and not reported yet */
    uint64_t cpu_ms;
    double looked_s, saved_s, started_s;
    /* open questions about its checkpoints and its steps; 0: none */
    uint64_t save_question, step_question;
    ls_local_progress progress;
    bool has_cpu;
} track;

struct local_engine {
    ls_engine base;
    ls_local_settings settings;
    char *home, *program;
    ls_local_machine machine;
    ls_local_path groups; /* "": none */
    char note[LS_LOCAL_NOTE_BYTES];
    ls_nvml *gpus;                        /* NULL: there are none, or they can't be asked */
    ls_rapl *rapl;                        /* NULL: the machine does not count its energy */
    uint64_t gpu_mj[LS_NVML_DEVICES_MAX]; /* of each GPU's counter, when it was last divided */
    double free_energy_mj;                /* used by no job, and not reported yet */
    ls_engine_device readings[LS_NVML_DEVICES_MAX];
    track *tracks;
    later *first, **last;
    ls_env_id deliver_timer, look_timer;
    int notify;
    ls_env_id notify_watch;
    ls_env_id round_timer; /* timer for tracks that are polled */
    bool told_watchless;
};

static inline ls_env *env_of(const track *t)
{
    return t->engine->settings.env;
}

/* Deliver a report from the event loop, never during an order: about the machine, about a job. */
void ls_local_report(local_engine *e, ls_engine_report value);
void ls_track_report(track *t, ls_engine_report value);
/* The same for ENDED or NEVER, once per track, and not before everything of the job has been
 * killed: its devices are free after that. */
void ls_track_report_end(track *t, ls_engine_report value);
/* Drops reports that still wait. */
void ls_local_reports_drop(local_engine *e);

/* Limits the job to what it may use with so many ranks. */
void ls_track_limit(const track *t, uint32_t ranks);
/* The track of this epoch; a new one when there is none. */
track *ls_track_of(local_engine *e, const ls_job *job);
/* Events of its processes are ignored from now on. */
void ls_track_remove(track *gone);
void ls_track_destroy(track *t);
/* The track with this runner or resizer; NULL: there is none any more. */
track *ls_track_by_process(const local_engine *e, ls_env_id process);

/* Reports what the job tells of itself (activity.c). */
void ls_track_look_for_alerts(track *t);
/* Finds out what has become of the epoch, and reports it. */
void ls_track_look(track *t);
/* The same, soon. */
void ls_track_look_later(track *t);
/* To be called when its runner has exited; context: the engine. */
void ls_track_runner_exited(void *context, ls_env_id process, int exit_code);
/* Gives its devices back unused, after a pause during which no other job tries them. */
void ls_track_give_back(track *t);
/* Kills the runner and everything else of the job until nothing is left, then reports its end. */
void ls_track_hunt(track *t);
/* Hunts it when it has not ended by then. An earlier deadline stays. */
void ls_track_set_deadline(track *t, double time_s);

/* ---- folder_watch.c ---- */

LS_MUST_CHECK ls_status ls_folder_watch_open(local_engine *e);
void ls_folder_watch_close(local_engine *e);
/* From now on the track is looked at when its runner has written something. */
void ls_folder_watch_watch(track *t);
void ls_folder_watch_unwatch(track *t);

/* ---- resize.c ---- */

void ls_track_resize(track *t, uint32_t ranks);
/*
 * Starts a runner for it, as the job's user. group: control group that it enters; NULL: none.
 * extra: more words for its command line, ended by NULL; NULL: none. Returns 0 or minus an errno
 * value; -ENOSYS, with an error text: the job is another user's, and lockstep-as-user is missing.
 */
int ls_track_spawn(track *t, const char *group, const char *const *extra, ls_env_exited exited,
                   ls_env_id *process_out);

/* ---- energy.c ---- */

/* Divides the energy of the machine since the last call among the jobs that have run since. To be
 * called before a job begins or ends, and from time to time. */
void ls_local_divide_energy(local_engine *e);
/* Takes what the job has used and was not reported, in millijoules. */
uint64_t ls_track_take_energy(track *t);
const ls_engine_device *ls_local_read_devices(local_engine *e, uint32_t *count_out);

/* ---- training.c ---- */

/* Each asks a question and reports what the answer says. */
void ls_track_look_for_save(track *t);
void ls_track_look_for_steps(track *t);

/* ---- activity.c ---- */

/* Looks at all running jobs, and sets its own timer again. */
void ls_local_look_at_jobs(void *context);

#endif
