// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/ending.h"

#include "base/file.h"
#include "telemetry/metrics_reader.h"

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
    } else if (begins_with(text, "the agent of this rank is gone")) {
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

static void note_event(ls_run_account *account, const json_t *event)
{
    const char *name = member_text(event, "event");
    if (strcmp(name, "rank_lost") == 0) {
        ls_ending_from_text(member_text(event, "cause"), &account->ending);
    } else if (strcmp(name, "recovered") == 0) {
        account->ending = (ls_ending){.rank = UINT32_MAX}; /* it went on */
    } else if (strcmp(name, "hang") == 0) {
        ls_ending_from_text(member_text(event, "text"), &account->ending);
    } else if (strcmp(name, "ended") == 0) {
        account->has_ended = true;
        snprintf(account->status, sizeof account->status, "%s", member_text(event, "status"));
        (void)ls_event_step(event, &account->step);
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

/* The words of the rank whose words say most. */
static void from_words(ls_flight_reader *const *readers, const ls_sight *sights, uint32_t count,
                       ls_ending *ending)
{
    for (uint32_t i = 0; i < count; i++) {
        char words[LS_FLIGHT_TEXT_BYTES];
        ls_ending found;
        if (sights[i].header.outcome != LS_FLIGHT_ENDED_BADLY ||
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

/* Ended without a word of its own, and whoever started it saw it. */
static bool was_seen_to_die(const ls_sight *sight)
{
    const ls_flight_header *h = &sight->header;
    return h->outcome == LS_FLIGHT_RUNNING && h->has_exit_status && h->exit_status != 0;
}

/* Of several that died, the one that did something last longest ago. */
static void from_exit_statuses(const ls_sight *sights, uint32_t count, ls_ending *ending)
{
    uint64_t first_ns = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t ns = sights[i].now.since_ns + (uint64_t)sights[i].header.clock_offset_ns;
        if (was_seen_to_die(&sights[i]) && ns < first_ns) {
            first_ns = ns;
            *ending = (ls_ending){.kind = LS_ENDING_DEAD, .rank = sights[i].rank};
        }
    }
}

/* Its number is free, or another process has it that began after the ranks. */
static bool is_gone(int32_t pid, const ls_sight *sights, uint32_t count)
{
    bool is_later = false;
    for (uint32_t i = 0; i < count; i++) {
        is_later = is_later || ls_process_start(pid) > sights[i].header.pid_start;
    }
    return is_later || ls_process_look(pid, 0) == LS_PROCESS_DEAD;
}

/* Nobody saw any rank end, and who should have is not there. Only where the trainer is looked for on its own host. */
static bool trainer_is_gone(const ls_run_account *account, const ls_sight *sights, uint32_t count)
{
    uint32_t silent = 0;
    bool is_here = false;
    for (uint32_t i = 0; i < count; i++) {
        if (sights[i].header.has_exit_status) {
            return false;
        }
        silent += sights[i].header.outcome != LS_FLIGHT_FINISHED;
        is_here = is_here || (sights[i].rank == 0 && ls_sight_is_local(&sights[i].header));
    }
    return silent > 0 && is_here && account->trainer_pid > 0 && !account->has_ended &&
           is_gone(account->trainer_pid, sights, count);
}

void ls_ending_find(const ls_run_account *account, ls_flight_reader *const *readers, const ls_sight *sights,
                    uint32_t count, ls_ending *ending_out)
{
    ls_ending ending = {.rank = UINT32_MAX};
    /* Ranks that it lost on the way it went on without. */
    const bool ended_well = account->has_ended && strcmp(account->status, "failed") != 0;
    if (ended_well) {
        *ending_out = ending;
        return;
    }
    from_words(readers, sights, count, &ending);
    if (ending.kind == LS_ENDING_UNKNOWN) {
        ending = account->ending;
    }
    if (ending.kind == LS_ENDING_UNKNOWN) {
        from_exit_statuses(sights, count, &ending);
    }
    if (ending.kind == LS_ENDING_UNKNOWN && trainer_is_gone(account, sights, count)) {
        ending.kind = LS_ENDING_TRAINER_GONE;
    }
    *ending_out = ending;
}
