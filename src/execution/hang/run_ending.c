// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/run_ending.h"

#include "base/file.h"
#include "telemetry/record/metrics_reader.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one text ---- */

static bool begins_with(const char *text, const char *beginning)
{
    return strncmp(text, beginning, strlen(beginning)) == 0;
}

static bool names_dead_rank(const char *text, uint32_t *rank_out)
{
    int bytes = 0;
    uint32_t rank = 0;
    if (sscanf(text, "rank %u (%*[^)]) ended with %n", &rank, &bytes) != 1 || bytes == 0) {
        return false;
    }
    *rank_out = rank;
    return true;
}

void ls_ending_from_text(const char *text, ls_ending *ending_out)
{
    ls_ending ending = {.rank = UINT32_MAX, .process = LS_PROCESS_UNKNOWN};
    if (begins_with(text, "hang: ")) {
        ending.kind = LS_ENDING_HANG;
        if (sscanf(text, "hang: rank %u (", &ending.rank) != 1) {
            ending.rank = UINT32_MAX;
        }
        const char *line_end = text + strcspn(text, "\n");
        const char *stopped = strstr(text, ") is stopped"), *traced = strstr(text, ") is held by a debugger");
        ending.process = stopped && stopped < line_end ? LS_PROCESS_STOPPED
                         : traced && traced < line_end ? LS_PROCESS_TRACED
                                                       : LS_PROCESS_UNKNOWN;
    } else if (begins_with(text, "ranks called different operations") ||
               begins_with(text, "ranks disagree about")) {
        ending.kind = LS_ENDING_MISMATCH;
    } else if (names_dead_rank(text, &ending.rank)) {
        ending.kind = LS_ENDING_DEAD;
    } else if (begins_with(text, "the agent of this rank ")) {
        ending.kind = LS_ENDING_TRAINER_GONE;
    }
    if (ending.kind != LS_ENDING_UNKNOWN) {
        snprintf(ending.text, sizeof ending.text, "%.*s", (int)strcspn(text, "\n"), text);
    }
    *ending_out = ending;
}

/* ---- the run directory ---- */

static int32_t read_lock(ls_arena *arena, const char *run_dir)
{
    FILE *file = fopen(ls_path_join(arena, run_dir, "lock"), "re");
    char text[32] = "";
    const bool read = file && fgets(text, sizeof text, file);
    if (file) {
        fclose(file);
    }
    const long pid = read ? strtol(text, NULL, 10) : 0;
    return pid > 0 && pid <= INT_MAX ? (int32_t)pid : 0;
}

static const char *member_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static void note_rank_lost(ls_run_account *account, const json_t *event)
{
    ls_ending_from_text(member_text(event, "cause"), &account->ending);
}

/* The run survived the loss before it. */
static void note_recovered(ls_run_account *account, const json_t *event)
{
    (void)event;
    account->ending = (ls_ending){.rank = UINT32_MAX};
}

static void note_hang(ls_run_account *account, const json_t *event)
{
    ls_ending_from_text(member_text(event, "text"), &account->ending);
}

static void note_ended(ls_run_account *account, const json_t *event)
{
    account->has_ended = true;
    snprintf(account->status, sizeof account->status, "%s", member_text(event, "status"));
    (void)ls_event_step(event, &account->step);
}

static const struct {
    const char *event;
    void (*note)(ls_run_account *account, const json_t *event);
} noted_events[] = {
    {"rank_lost", note_rank_lost},
    {"recovered", note_recovered},
    {"hang", note_hang},
    {"ended", note_ended},
};

static void note_event(ls_run_account *account, const json_t *event)
{
    const char *name = member_text(event, "event");
    for (size_t i = 0; i < sizeof noted_events / sizeof noted_events[0]; i++) {
        if (strcmp(name, noted_events[i].event) == 0) {
            noted_events[i].note(account, event);
        }
    }
}

void ls_run_account_read(ls_arena *arena, const char *run_dir, double since_s, ls_run_account *account_out)
{
    const char *path = ls_path_join(arena, run_dir, "events.jsonl");
    ls_run_account account = {.trainer_pid = read_lock(arena, run_dir), .ending.rank = UINT32_MAX};
    ls_file_map map = {0};
    if (ls_path_exists(path) && ls_file_map_open(path, &map) == LS_OK) {
        ls_line_reader reader = {.text = (const char *)map.data, .bytes = map.bytes};
        json_t *event = NULL;
        for (ls_line_kind kind; (kind = ls_event_reader_next(&reader, &event)) != LS_LINE_END;) {
            if (kind != LS_LINE_GOOD) {
                continue;
            }
            if (ls_json_number(event, "time") >= since_s) {
                note_event(&account, event);
            }
            json_decref(event);
        }
        ls_file_map_close(&map);
    }
    *account_out = account;
}

/* ---- all together ---- */

/* Takes the last words that say most. Words about a vanished trainer give way to any others: ranks
 * also lose their agent when the run ends for another reason. */
static void from_words(ls_flight_reader *const *readers, const ls_rank_snapshot *snapshots, uint32_t count,
                       ls_ending *ending)
{
    for (uint32_t i = 0; i < count; i++) {
        char words[LS_FLIGHT_TEXT_BYTES];
        ls_ending found;
        if (snapshots[i].header.outcome != LS_FLIGHT_ENDED_BADLY ||
            ls_flight_reader_last_words(readers[i], words) != LS_OK) {
            continue;
        }
        ls_ending_from_text(words, &found);
        const bool says_more = ending->kind == LS_ENDING_UNKNOWN || ending->kind == LS_ENDING_TRAINER_GONE;
        if (found.kind != LS_ENDING_UNKNOWN && says_more) {
            *ending = found;
        }
    }
}

/* Ended without last words of its own, but the process that started it noted the exit status. */
static bool was_seen_to_die(const ls_rank_snapshot *snapshot)
{
    const ls_flight_header *h = &snapshot->header;
    return h->outcome == LS_FLIGHT_RUNNING && h->has_exit_status && h->exit_status != 0;
}

/* If several ranks died, takes the one whose last sign of life is the oldest. */
static void from_exit_statuses(const ls_rank_snapshot *snapshots, uint32_t count, ls_ending *ending)
{
    uint64_t first_ns = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t ns = snapshots[i].now.since_ns + (uint64_t)snapshots[i].header.clock_offset_ns;
        if (was_seen_to_die(&snapshots[i]) && ns < first_ns) {
            first_ns = ns;
            *ending = (ls_ending){.kind = LS_ENDING_DEAD, .rank = snapshots[i].rank};
        }
    }
}

/* Whether the trainer is gone: its pid is free, or belongs to a process that started after the
 * ranks. */
static bool is_gone(int32_t pid, const ls_rank_snapshot *snapshots, uint32_t count)
{
    bool is_later = false;
    for (uint32_t i = 0; i < count; i++) {
        is_later = is_later || ls_process_start(pid) > snapshots[i].header.pid_start;
    }
    return is_later || ls_process_look(pid, 0) == LS_PROCESS_DEAD;
}

/* Whether the trainer was killed: no exit status was noted for any rank, and the trainer, which
 * would have noted it, is gone. Can only be decided on the trainer's own host, which is that of
 * rank 0. */
static bool trainer_is_gone(const ls_run_account *account, const ls_rank_snapshot *snapshots, uint32_t count)
{
    uint32_t silent = 0;
    bool is_here = false;
    for (uint32_t i = 0; i < count; i++) {
        if (snapshots[i].header.has_exit_status) {
            return false;
        }
        silent += snapshots[i].header.outcome != LS_FLIGHT_FINISHED;
        is_here = is_here || (snapshots[i].rank == 0 && ls_rank_snapshot_is_local(&snapshots[i].header));
    }
    return silent > 0 && is_here && account->trainer_pid > 0 && !account->has_ended &&
           is_gone(account->trainer_pid, snapshots, count);
}

void ls_ending_find(const ls_run_account *account, ls_flight_reader *const *readers,
                    const ls_rank_snapshot *snapshots, uint32_t count, ls_ending *ending_out)
{
    ls_ending ending = {.rank = UINT32_MAX};
    /* A run that ended well has survived whatever losses it recorded. */
    const bool ended_well = account->has_ended && strcmp(account->status, "failed") != 0;
    if (ended_well) {
        *ending_out = ending;
        return;
    }
    from_words(readers, snapshots, count, &ending);
    if (ending.kind == LS_ENDING_UNKNOWN) {
        ending = account->ending;
    }
    if (ending.kind == LS_ENDING_UNKNOWN) {
        from_exit_statuses(snapshots, count, &ending);
    }
    if (ending.kind == LS_ENDING_UNKNOWN && trainer_is_gone(account, snapshots, count)) {
        ending.kind = LS_ENDING_TRAINER_GONE;
    }
    *ending_out = ending;
}
