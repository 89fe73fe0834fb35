// SPDX-License-Identifier: Apache-2.0
/*
 * The scene: all flight files of a run, looked at once, while it runs or afterwards. What `lockstep diagnose` and `lockstep trace` work on.
 *
 * Afterwards nobody waits any more; the scene is then put back to the moment it ended: a rank whose last operation failed, or that was
 * killed inside one, counts as waiting in it, unless it is the one that the run's own account (execution/diagnose/ending.h) names.
 */
#ifndef LS_EXECUTION_DIAGNOSE_SCENE_H
#define LS_EXECUTION_DIAGNOSE_SCENE_H

#include "execution/diagnose/arrivals.h"
#include "execution/diagnose/ending.h"
#include "execution/diagnose/graph.h"

typedef enum ls_verdict {
    LS_VERDICT_HEALTHY,  /* runs; nobody waits for long */
    LS_VERDICT_FINISHED, /* all ranks ended well */
    LS_VERDICT_HANG,
    LS_VERDICT_MISMATCH,
    LS_VERDICT_DEAD, /* a rank's process ended while the others needed it; outranks a hang, which it causes */
    LS_VERDICT_FAILED, /* ranks ended badly */
    LS_VERDICT_GONE,   /* all ranks ended without a word: the trainer is gone, or the power */
} ls_verdict;

const char *ls_verdict_name(ls_verdict verdict);

typedef struct ls_scene {
    uint32_t size;  /* ranks of the run */
    uint32_t count; /* of them with a flight file */
    ls_flight_reader **readers;
    ls_sight *sights; /* as it is now */
    ls_sight *then;   /* as it was when it ended; the same as sights while it runs */
    bool is_live;     /* some rank's process is there, or may be (another host) */
    uint64_t now_ns;  /* of the coordinator's clock; afterwards the last moment that left a trace */
    ls_arrivals *arrivals;
    bool disagrees;
    ls_disagreement disagreement;
    ls_graph graph;
    ls_ending ending; /* afterwards */
    /* While it runs the process that started the ranks of this host, afterwards the one that the lock names; 0: not known. */
    int32_t trainer_pid;
    ls_process_state trainer;
    bool is_trainer; /* false: an agent, or a program of the user's own */
    char **problems; /* files that can't be read */
    uint32_t problem_count;
} ls_scene;

/*
 * Reads `run_dir`/flight. Files left by an earlier start of the run (another epoch or number of ranks than the newest file) are passed
 * over. Errors: LS_ERR_NOT_FOUND (no such folder or no file in it), LS_ERR_DATA (none can be read).
 */
LS_MUST_CHECK ls_status ls_scene_open(ls_arena *arena, const char *run_dir, ls_scene *scene_out);
void ls_scene_close(ls_scene *scene);

/* Seconds for which `culprit` has been waited for, at scene->now_ns. */
double ls_scene_waited_s(const ls_scene *scene, const ls_culprit *culprit);

/*
 * The verdict in a sentence or two that begins with its name ("dead: rank 1 ..."), appended to `text`. hang_s: a wait this long is a hang, whatever the cause (0.25 s suffice where the
 * cause is certain: stopped, dead, deadlock). culprit_out: the one that is named, or NULL.
 */
ls_verdict ls_scene_judge(const ls_scene *scene, double hang_s, const ls_describe *describe, ls_text *text,
                          const ls_culprit **culprit_out);

#endif
