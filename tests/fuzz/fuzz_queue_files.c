// SPDX-License-Identifier: Apache-2.0
/*
 * Files that people and jobs write for the queue: config.yaml, an account in it, and what the
 * folder of a job says of a start. The first byte chooses which. What is read is within its limits,
 * and what is not comes with a reason.
 */
#include "base/assert.h"
#include "base/file.h"
#include "orchestration/daemon/settings.h"
#include "orchestration/engines/local/ticket.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char folder[64];

static void remove_folder(void)
{
    if (ls_dir_remove(folder) != LS_OK) {
        ls_error_clear();
    }
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/lockstep-fuzz-XXXXXX");
    LS_ASSERT(mkdtemp(folder));
    atexit(remove_folder);
}

static const char *write_file(ls_arena *arena, const char *name, const uint8_t *data, size_t bytes)
{
    const char *path = ls_path_join(arena, folder, name);
    FILE *file = fopen(path, "wb");
    LS_ASSERT(file && fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0);
    return path;
}

static void read_settings(ls_arena *arena, const uint8_t *data, size_t bytes)
{
    ls_daemon_settings settings;
    if (ls_daemon_settings_load(write_file(arena, "config.yaml", data, bytes), arena, &settings) != LS_OK) {
        LS_ASSERT(ls_error_text()[0]);
        ls_error_clear();
        return;
    }
    LS_ASSERT(settings.slots <= 64 && settings.engine <= LS_ENGINE_SLURM);
}

static void read_account(ls_arena *arena, const uint8_t *data, size_t bytes)
{
    ls_account account;
    if (ls_daemon_account_parse(ls_arena_strndup(arena, (const char *)data, bytes), &account) != LS_OK) {
        LS_ASSERT(ls_error_text()[0]);
        ls_error_clear();
        return;
    }
    LS_ASSERT(account.name[0] && strlen(account.name) <= LS_JOB_ACCOUNT_BYTES_MAX);
}

/* claim and exit, cut at the first zero byte. */
static void read_start(ls_arena *arena, const uint8_t *data, size_t bytes)
{
    const uint8_t *cut = memchr(data, 0, bytes);
    const size_t first = cut ? (size_t)(cut - data) : bytes;
    ls_ticket_state state;
    (void)write_file(arena, "claim-1", data, first);
    if (cut) {
        (void)write_file(arena, "exit-1", cut + 1, bytes - first - 1);
    } else {
        (void)remove(ls_path_join(arena, folder, "exit-1"));
    }
    if (ls_ticket_look(folder, 1, true, &state) != LS_OK) {
        ls_error_clear();
        return;
    }
    if (state.stage == LS_TICKET_ENDED) {
        LS_ASSERT(state.end.code >= 0 && state.end.code <= 255 && state.end.cause < LS_CAUSES);
        LS_ASSERT(strnlen(state.end.text, sizeof state.end.text) < sizeof state.end.text);
        LS_ASSERT(strnlen(state.end.error, sizeof state.end.error) < sizeof state.end.error);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    ls_arena arena = {0};
    if (!folder[0]) {
        make_folder();
    }
    if (bytes > 0 && data[0] == 's') {
        read_settings(&arena, data + 1, bytes - 1);
    } else if (bytes > 0 && data[0] == 'a') {
        read_account(&arena, data + 1, bytes - 1);
    } else if (bytes > 0) {
        read_start(&arena, data + 1, bytes - 1);
    }
    ls_arena_release(&arena);
    return 0;
}
