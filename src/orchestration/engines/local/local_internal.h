// SPDX-License-Identifier: Apache-2.0
/*
 * Internal to the local engine.
 *
 *   local.c      orders
 *   track.c      one epoch of a job: what has become of it, reports
 *   notice.c     when to look: words of runners by inotify, or by looking again and again where there is no watch
 *   resize.c     the run is asked as anybody asks it
 *   activity.c   how busy jobs are
 *   training.c   what a run that trains has saved, and how far it is
 *   folder.c     what is written for a start: folder, run file, ticket
 *   machine.c    what this machine has
 *   gpus.c       its GPUs, by the library of their driver
 *   watch.c      processes of jobs: how busy, and what is left of them
 *   group.c      their control group, where there can be one
 */
#ifndef LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_INTERNAL_H
#define LS_ORCHESTRATION_ENGINES_LOCAL_LOCAL_INTERNAL_H

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

/* ---- gpus.c ---- */

typedef struct ls_local_gpus ls_local_gpus;

/* NULL: no library, or no devices. Waits 10 s at most. */
ls_local_gpus *ls_local_gpus_open(void);
/* Waits for no call that hangs. NULL: nothing. */
void ls_local_gpus_close(ls_local_gpus *gpus);
/* 1 to 64. */
uint32_t ls_local_gpus_count(const ls_local_gpus *gpus);
const char *ls_local_gpus_name(const ls_local_gpus *gpus);
/* How busy each was since the last call that said goes_on: it is watched from now on, or no longer. False: not known. Returns at once. */
bool ls_local_gpus_take(ls_local_gpus *gpus, bool goes_on, uint32_t permille_out[64]);

/* slots: 0: what there is. gpus: NULL: none that could be asked. */
LS_MUST_CHECK ls_status ls_local_machine_read(uint32_t slots, const ls_local_gpus *gpus,
                                              ls_local_machine *machine_out);

/* ---- folder.c ---- */

enum { LS_LOCAL_PATH_BYTES = 4096 };

typedef struct ls_local_path {
    char text[LS_LOCAL_PATH_BYTES];
} ls_local_path;

ls_local_path ls_local_folder(const char *home, uint64_t job);
/* Bits of the devices that a job has. */
uint64_t ls_local_devices(const ls_job *job);
/* Folder, run file and ticket of an epoch. Errors: LS_ERR_DISK, LS_ERR_IO, LS_ERR_INVALID. */
LS_MUST_CHECK ls_status ls_local_folder_write(const ls_local_settings *settings,
                                              const ls_local_machine *machine, const ls_job *job);

/* ---- watch.c ---- */

/* One look at a session: all processes that a runner's job consists of. */
typedef struct ls_local_look {
    pid_t session;
    uint64_t cpu_ms; /* used so far by processes that live */
} ls_local_look;

/* Fills cpu_ms of `looks`, which are sorted by session. */
void ls_local_look_all(ls_local_look *looks, uint32_t count);

/* Kills what is left of a job: processes that have its folder in their environment. (Not those of its runner's session: that number may be
 * somebody else's by now.) Returns how many there were: 0 means none is left. */
uint32_t ls_local_kill_leftovers(const char *folder);

/* ---- group.c ---- */

/*
 * Control groups: one for each epoch of a job, with its runner in it, so that nothing of it can hide: neither a process that left its session nor one that changed its
 * environment. Needs a cgroup file system of version 2 in which this process may make groups and move processes (root, or a delegated one).
 */

/* The group under which those of `home` are; "" when there can be none, and the log says why. */
ls_local_path ls_local_groups_open(const char *home);
ls_local_path ls_local_group(const ls_local_path *groups, uint64_t job, uint32_t epoch);
/* Makes it. False: there is none. */
bool ls_local_group_make(const ls_local_path *group);
/* This process, and what it will start, into it. Where that can't be, the job goes on without one. */
void ls_local_group_enter(const char *group);
/* Is this process in it? */
bool ls_local_group_has(const ls_local_path *group, pid_t pid);
/* Kills all that is in it. Returns whether something still is. */
bool ls_local_group_kill(const ls_local_path *group);
/* Processor time of all that was ever in it. False: not known. */
bool ls_local_group_cpu_ms(const ls_local_path *group, uint64_t *cpu_ms_out);
/* Removes it when nothing is in it any more. True: it is gone. */
bool ls_local_group_remove(const ls_local_path *group);
/* Removes all that are empty and of no track. */
void ls_local_groups_sweep(const local_engine *e);
/* Behind the last track: removes what is empty. */
void ls_local_groups_close(const local_engine *e);

/* ---- track.c ---- */

/*
 * One epoch of a job. Each purpose has a timer of its own, 0 when it is not set; all end with the track, as do its question and what is heard of
 * its processes.
 */
typedef struct track {
    struct track *next;
    local_engine *engine;
    uint64_t job;
    uint32_t epoch, uid, gid, ranks;
    ls_local_path folder, group; /* group: "": none */
    char *run_dir;
    ls_env_id process; /* of the runner; 0: not known */
    pid_t pid;
    int watch;     /* inotify's; -1: none, it is looked at again and again */
    bool is_heard; /* something was heard of it: to be looked at once what is there to hear has been heard */
    bool must_look;
    bool is_child;
    bool is_grouped; /* its runner was seen in its group */
    bool told_started, told_end, is_adopted, is_stopping, is_hunted;
    bool is_runner_gone; /* its runner has ended, or what called itself so is not its user's */
    bool was_short;      /* its runner ended because something was too little, the disk above all */
    ls_env_id look_timer, hunt_timer, resize_timer, give_back_timer;
    ls_env_id step_timer; /* until the next look at its steps, while it is not known how long it takes */
    ls_env_id resizer;    /* process; 0: none */
    uint32_t resize_to, resize_tries;
    uint64_t devices; /* its bits of the machine's */
    uint64_t cpu_ms;
    double looked_s, saved_s, started_s;
    uint64_t save_question, step_question; /* about its checkpoints, its steps; 0: none is open */
    ls_local_progress progress;
    bool has_cpu;
} track;

/* A report that waits for the loop. */
typedef struct later later;

struct local_engine {
    ls_engine base;
    ls_local_settings settings;
    char *home, *program;
    ls_local_machine machine;
    ls_local_path groups; /* "": none */
    ls_local_gpus *gpus;  /* NULL: none, or they can't be asked */
    track *tracks;
    later *first, **last;
    ls_env_id deliver_timer, look_timer;
    int notify;
    ls_env_id notify_watch;
    ls_env_id round_timer; /* of tracks that are looked at again and again */
    bool told_watchless;
};

static inline ls_env *env_of(const track *t)
{
    return t->engine->settings.env;
}

/* Hands a report over from the loop, never inside an order. */
void ls_track_report(track *t, ls_engine_report value);
/* The same; ENDED or NEVER, once. */
void ls_track_report_end(track *t, ls_engine_report value);
/* Drops those that wait. */
void ls_local_reports_drop(local_engine *e);

/* The track of this epoch; new when there is none. */
track *ls_track_of(local_engine *e, const ls_job *job);
/* What is heard of its processes from now on is nobody's. */
void ls_track_remove(track *gone);
void ls_track_destroy(track *t);
/* The one with this runner or resizer; NULL: none any more. */
track *ls_track_by_process(const local_engine *e, ls_env_id process);

/* What has become of it: reports what there is to say. */
void ls_track_look(track *t);
/* Soon. */
void ls_track_look_later(track *t);
/* exited of its runner; context: the engine. */
void ls_track_runner_exited(void *context, ls_env_id process, int exit_code);
/* It gives its devices back unused, behind a pause in which nobody else is tried in its place. */
void ls_track_give_back(track *t);
/* Kills what is left of a job whose runner is gone, until nothing is, and reports its end. */
void ls_track_hunt(track *t);

/* ---- notice.c ---- */

LS_MUST_CHECK ls_status ls_notices_open(local_engine *e);
void ls_notices_close(local_engine *e);
/* From now on it is looked at when its runner has said something. */
void ls_notices_watch(track *t);
void ls_notices_unwatch(track *t);

/* ---- resize.c ---- */

void ls_track_resize(track *t, uint32_t ranks);
/* Starts this program's runner for it, with words behind folder and epoch that end with NULL. 0 or minus an errno value. */
int ls_track_spawn(track *t, const char *const *extra, ls_env_exited exited, ls_env_id *process_out);

/* ---- training.c ---- */

/* Each asks, and reports what there is to say. */
void ls_track_look_for_save(track *t);
void ls_track_look_for_steps(track *t);

/* ---- activity.c ---- */

/* Looks at all jobs that run; sets itself again. */
void ls_local_look_at_jobs(void *context);

#endif
