// SPDX-License-Identifier: Apache-2.0
/* Reads sacct: how jobs ended that squeue has forgotten and whose script recorded no end, as after
 * a scancel while no daemon was running. Only where Slurm keeps accounting. */
#include "orchestration/engines/slurm/slurm_internal.h"

#include "base/log.h"
#include "base/text.h"
#include "env/real/program.h"
#include "orchestration/engines/slurm/squeue.h"

#include <string.h>

enum { ASKED_MAX = 200 }; /* at once */

static bool is_missing(const ls_slurm_entry *one)
{
    return one->missed > 0 && one->ref[0] && (one->phase == PHASE_WAITS || one->phase == PHASE_RUNS);
}

static void take_past(ls_slurm_engine *self, const ls_slurm_row *rows, size_t count)
{
    for (ls_slurm_entry *at = self->entries, *next; at; at = next) {
        next = at->next;
        for (size_t i = 0; is_missing(at) && i < count; i++) {
            const bool is_it = strcmp(rows[i].ref, at->ref) == 0 && rows[i].uid == at->job->uid;
            if (is_it && rows[i].state != LS_SLURM_WAITS && rows[i].state != LS_SLURM_RUNS &&
                rows[i].state != LS_SLURM_ENDS) {
                ls_slurm_take_end(self, at, &rows[i]);
            }
        }
    }
}

static void sacct_done(void *context, const ls_program_result *result)
{
    ls_slurm_engine *self = context;
    ls_arena arena = {0};
    ls_slurm_row *rows = NULL;
    size_t count = 0;
    self->is_asking = false;
    if (result->timed_out || result->exit_code != 0) {
        /* "Slurm accounting storage is disabled": asking again would not help */
        self->no_history = self->no_history || strstr(result->error, "disabled");
        ls_log_debug("sacct: %.200s", result->error);
    } else {
        ls_slurm_history_read(&arena, result->output, &rows, &count);
        take_past(self, rows, count);
    }
    ls_arena_release(&arena);
}

bool ls_slurm_ask_history(ls_slurm_engine *self)
{
    if (self->no_history || self->is_asking) {
        return !self->no_history;
    }
    ls_text refs = {0};
    uint32_t count = 0;
    for (const ls_slurm_entry *at = self->entries; at && count < ASKED_MAX; at = at->next) {
        if (is_missing(at)) {
            ls_text_printf(&refs, "%s%s", count++ ? "," : "", at->ref);
        }
    }
    const char *const argv[] = {"env",
                                "SLURM_TIME_FORMAT=%s",
                                "sacct",
                                "--noheader",
                                "--parsable2",
                                "--allocations",
                                "--format=" LS_SLURM_SACCT_FORMAT,
                                "--jobs",
                                ls_text_string(&refs),
                                NULL};
    self->is_asking =
        count > 0 && ls_program_start(self->env, &(ls_program){.argv = argv, .timeout_s = LS_SLURM_ANSWER_S},
                                      sacct_done, self) == LS_OK;
    ls_text_release(&refs);
    return self->is_asking;
}
