// SPDX-License-Identifier: Apache-2.0
/*
 * Folders: run directories as a queue that nobody submits to, so that 'lockstep view' answers with
 * the API of the daemon (orchestration/api/server.h) and has no second one.
 *
 * Each run directory found below the given folders is a job that was started or has ended: it
 * answers LS_VERB_LIST and LS_VERB_SHOW, and every verb that would change something is refused. Its
 * id is the name of its folder, with -2, -3, ... if several have the same name; characters other
 * than letters, digits and ._- become _.
 *
 * A folder is a run if it holds metrics.jsonl, or event files of TensorBoard. With a pattern for
 * logs, each file whose name matches is a run, too: lines of JSON or of name=value. Folders are
 * looked through again every few seconds, LS_FOLDERS_DEPTH deep, so new runs appear by themselves;
 * they keep their ids as long as this lives.
 *
 * One owner. Reads the disk in its calls: for a program of its own, not for a daemon that serves
 * others.
 */
#ifndef LS_ORCHESTRATION_FOLDERS_FOLDERS_H
#define LS_ORCHESTRATION_FOLDERS_FOLDERS_H

#include "base/text.h"
#include "orchestration/control/controller.h"

enum {
    LS_FOLDERS_DEPTH = 4,
    LS_FOLDERS_RUNS_MAX = 100000,
};

typedef struct ls_folders ls_folders;

/* paths, logs ("*.log"; "": none): borrowed. Errors: LS_ERR_NOT_FOUND, LS_ERR_INVALID: one of the
 * paths is not a folder. */
LS_MUST_CHECK ls_status ls_folders_create(const char *const *paths, size_t count, const char *logs,
                                          ls_folders **folders_out);
void ls_folders_destroy(ls_folders *folders);

/*
 * The folder where metrics that a program sends for a run are kept, as logged.jsonl: that of
 * the run, or a new one in the first path (which the caller makes). Errors: LS_ERR_INVALID: no name
 * for a run.
 */
ls_status ls_folders_log_folder(void *folders, const char *run, ls_text *folder_out);

size_t ls_folders_count(const ls_folders *folders);

/*
 * Answers a verb at once, as ls_controller_call does later. LS_VERB_SHOW takes {"run": id} or
 * {"job": number}. Rows have, besides what the queue's rows have of a run: id, loss, val_loss,
 * tokens_per_s and cost_usd (numbers or null).
 */
void ls_folders_call(void *folders, const ls_caller *caller, ls_verb verb, const json_t *arguments,
                     ls_controller_reply reply, void *reply_context);

#endif
