// SPDX-License-Identifier: Apache-2.0
#include "execution/elastic/host/coordinator_log.h"

#include "base/assert.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, READ_BYTES = 64 << 10, WAITERS_MAX = 64, STEP_RECORDS_MAX = 4096 };

typedef struct waiter {
    void (*durable)(void *context);
    void *context;
    uint64_t at; /* durable when this many bytes of the image are */
} waiter;

/*
 * All records that count are in memory (`image`): all epochs, which are few, and the newest steps.
 * A new file is made from it.
 *
 *   READING ──▶ REWRITING ──▶ IDLE ──▶ WRITING ──▶ SYNCING ──▶ IDLE
 *                   ▲                     └─ error ───┘
 *                   └── the first time ──────┴── the second time ──▶ LOST
 */
struct ls_coordinator_log {
    ls_coordinator_log_options options;
    enum { READING, REWRITING, IDLE, WRITING, SYNCING, LOST } state;
    char folder[PATH_BYTES], path[PATH_BYTES + 32], fresh_path[PATH_BYTES + 32];
    ls_text image;
    uint64_t written; /* bytes of the file that are durable */
    uint64_t target;  /* end of the write and sync under way */
    uint64_t offset;  /* how far the write has got */
    ls_text old;      /* while it is being read */
    char *buffer;
    int64_t file;
    bool retried, announced;
    ls_log_state before;
    waiter waiters[WAITERS_MAX];
    uint32_t waiter_count;
    uint64_t steps, steps_ns; /* the newest; when a record of steps was last written by itself */
    uint64_t epoch;
    uint32_t step_records; /* in the image; most of them are superseded */
    ls_env_id timer;
};

static void go_on(ls_coordinator_log *log);

/* ---- the image ---- */

/* The checksum covers the head as well, with its own field as 0: a record is good as a whole or
 * not at all. */
static void put_record(ls_coordinator_log *log, ls_log_kind kind, uint64_t epoch, uint64_t step,
                       const void *payload, size_t bytes)
{
    ls_log_head head = {.magic = LS_LOG_MAGIC,
                        .kind = kind,
                        .bytes = (uint32_t)bytes,
                        .epoch = epoch,
                        .step = step,
                        .wall_ms = (uint64_t)(1e3 * ls_env_wall_s(log->options.env))};
    head.crc = ls_crc32c(ls_crc32c(0, &head, sizeof head), payload, bytes);
    ls_text_append_bytes(&log->image, (const char *)&head, sizeof head);
    if (bytes > 0) {
        ls_text_append_bytes(&log->image, payload, bytes);
    }
}

/* Appends the records of `data`, except steps that the next record includes. */
static void take_records(ls_coordinator_log *log, const char *data, size_t good_bytes)
{
    size_t at = 0;
    while (at < good_bytes) {
        ls_log_head head, next = {0};
        memcpy(&head, data + at, sizeof head);
        const size_t bytes = sizeof head + head.bytes;
        if (at + bytes < good_bytes) {
            memcpy(&next, data + at + bytes, sizeof next);
        }
        if (head.kind != LS_LOG_STEPS || next.kind != LS_LOG_STEPS) {
            ls_text_append_bytes(&log->image, data + at, bytes);
        }
        at += bytes;
    }
}

/* ---- going wrong ---- */

static void rewrite(ls_coordinator_log *log);

static void lose(ls_coordinator_log *log, int64_t error)
{
    log->state = LOST;
    log->waiter_count = 0;
    log->options.failed(log->options.context, (int)error);
}

/* After a failed write or sync the contents of the file are unknown. A failed sync must not be
 * repeated on the same file: the kernel may have dropped the data and report success the next
 * time. So all records are written anew to another file, once; a second failure gives the log
 * up. */
static void fail(ls_coordinator_log *log, int64_t error)
{
    if (log->retried) {
        lose(log, error);
        return;
    }
    log->retried = true;
    rewrite(log);
}

/* ---- a new file ---- */

static void ignore(void *context, int64_t result)
{
    (void)context;
    (void)result;
}

static void announce(ls_coordinator_log *log)
{
    if (!log->announced) {
        log->announced = true;
        log->options.opened(log->options.context, &log->before);
    }
}

/* The callbacks may add records and waiters, so those that are due are taken out of the list
 * first. */
static void tell_durable(ls_coordinator_log *log)
{
    uint32_t kept = 0;
    waiter due[WAITERS_MAX];
    uint32_t due_count = 0;
    for (uint32_t i = 0; i < log->waiter_count; i++) {
        if (log->waiters[i].at <= log->written) {
            due[due_count++] = log->waiters[i];
        } else {
            log->waiters[kept++] = log->waiters[i];
        }
    }
    log->waiter_count = kept;
    for (uint32_t i = 0; i < due_count; i++) {
        due[i].durable(due[i].context);
    }
}

/* Everything up to `target` is durable now, and one more failure may be repaired again. */
static void is_safe(ls_coordinator_log *log)
{
    log->written = log->target;
    log->retried = false;
    log->state = IDLE;
    announce(log);
    tell_durable(log);
    go_on(log);
}

static void name_synced(void *context, int64_t result)
{
    ls_coordinator_log *log = context;
    if (result < 0) {
        fail(log, result);
    } else {
        is_safe(log);
    }
}

/* The rename is durable only with the folder. */
static void renamed(void *context, int64_t result)
{
    ls_coordinator_log *log = context;
    if (result < 0) {
        fail(log, result);
    } else {
        ls_env_disk_sync_dir(log->options.env, log->folder, name_synced, log);
    }
}

static void synced(void *context, int64_t result)
{
    ls_coordinator_log *log = context;
    if (result < 0) {
        fail(log, result);
    } else if (log->state == REWRITING) {
        ls_env_disk_rename(log->options.env, log->fresh_path, log->path, renamed, log);
    } else {
        is_safe(log);
    }
}

static void write_more(ls_coordinator_log *log);

static void wrote(void *context, int64_t result)
{
    ls_coordinator_log *log = context;
    if (result <= 0) {
        fail(log, result < 0 ? result : -EIO);
        return;
    }
    log->offset += (uint64_t)result;
    write_more(log);
}

/* The image may move while records are added, so a copy is written. */
static void write_more(ls_coordinator_log *log)
{
    const uint64_t left = log->target - log->offset;
    if (left == 0) {
        log->state = log->state == REWRITING ? REWRITING : SYNCING;
        ls_env_disk_sync(log->options.env, log->file, synced, log);
        return;
    }
    const size_t bytes = left < READ_BYTES ? (size_t)left : READ_BYTES;
    memcpy(log->buffer, log->image.data + log->offset, bytes);
    ls_env_disk_write(log->options.env, log->file, log->buffer, bytes, log->offset, wrote, log);
}

static void fresh_opened(void *context, int64_t result)
{
    ls_coordinator_log *log = context;
    if (result < 0) {
        log->file = -1;
        fail(log, result);
        return;
    }
    log->file = result;
    log->target = log->image.bytes;
    log->offset = 0;
    write_more(log);
}

static void rewrite(ls_coordinator_log *log)
{
    if (log->file >= 0) {
        ls_env_disk_close(log->options.env, log->file, ignore, NULL);
        log->file = -1;
    }
    log->state = REWRITING;
    log->written = 0;
    ls_env_disk_open(log->options.env, log->fresh_path, LS_ENV_CREATE, fresh_opened, log);
}

/* ---- what is there ---- */

/* The old records are kept in front of this process's own: a successor needs the epochs of all
 * that came before. */
static void begin(ls_coordinator_log *log)
{
    ls_log_read(log->old.data, log->old.bytes, &log->before);
    take_records(log, log->old.data, log->before.good_bytes);
    ls_text_release(&log->old);
    log->epoch = log->before.epoch;
    put_record(log, LS_LOG_RUN, log->before.epoch, log->before.step, &log->options.run,
               sizeof log->options.run);
    rewrite(log);
}

static void read_some(void *context, int64_t result)
{
    ls_coordinator_log *log = context;
    if (result > 0) {
        ls_text_append_bytes(&log->old, log->buffer, (size_t)result);
    }
    if (result == READ_BYTES) {
        ls_env_disk_read(log->options.env, log->file, log->buffer, READ_BYTES, log->old.bytes, read_some,
                         log);
    } else if (result < 0) {
        lose(log, result); /* its contents must not be lost by a rewrite */
    } else {
        begin(log);
    }
}

static void old_opened(void *context, int64_t result)
{
    ls_coordinator_log *log = context;
    if (result == -ENOENT) {
        begin(log);
    } else if (result < 0) {
        lose(log, result);
    } else {
        log->file = result;
        ls_env_disk_read(log->options.env, log->file, log->buffer, READ_BYTES, 0, read_some, log);
    }
}

/* ---- appending ---- */

static void steps_are_due(void *context)
{
    ls_coordinator_log *log = context;
    log->timer = 0;
    go_on(log);
}

/* Adds the newest number of steps, if it is time for a sync of its own or another record goes
 * out anyway. */
static void put_steps(ls_coordinator_log *log)
{
    const uint64_t now_ns = ls_env_now_ns(log->options.env);
    const bool something = log->image.bytes > log->written;
    if (log->steps == 0 || log->timer) {
        return;
    }
    if (!something && log->steps_ns && now_ns - log->steps_ns < LS_LOG_STEPS_NS) {
        log->timer = ls_env_timer_set(log->options.env, LS_LOG_STEPS_NS - (now_ns - log->steps_ns),
                                      steps_are_due, log);
        return;
    }
    log->steps_ns = now_ns;
    put_record(log, LS_LOG_STEPS, log->epoch, log->steps, NULL, 0);
    log->steps = 0;
    log->step_records++;
}

/* When all of the image is durable: writes a new file without superseded steps. */
static void thin_out(ls_coordinator_log *log)
{
    ls_text image = log->image;
    log->image = (ls_text){0};
    take_records(log, image.data, image.bytes);
    ls_text_release(&image);
    log->step_records = 0;
    rewrite(log);
}

static void go_on(ls_coordinator_log *log)
{
    if (log->state != IDLE) {
        return;
    }
    if (log->step_records >= STEP_RECORDS_MAX && log->image.bytes == log->written) {
        thin_out(log);
        return;
    }
    put_steps(log);
    if (log->image.bytes > log->written) {
        log->state = WRITING;
        log->target = log->image.bytes;
        log->offset = log->written;
        write_more(log);
    }
}

/* The waiter is due when the image as it is now is durable. */
static void wait_for_it(ls_coordinator_log *log, void (*durable)(void *context), void *context)
{
    if (durable && log->state != LOST) {
        LS_ASSERT(log->waiter_count < WAITERS_MAX);
        log->waiters[log->waiter_count++] = (waiter){durable, context, log->image.bytes};
    }
}

void ls_coordinator_log_epoch(ls_coordinator_log *log, const ls_log_epoch *epoch,
                              void (*durable)(void *context), void *context)
{
    LS_ASSERT(epoch->count <= LS_LOG_MEMBERS_MAX);
    log->epoch = epoch->epoch;
    put_record(log, LS_LOG_EPOCH, epoch->epoch, epoch->step, epoch->members,
               epoch->count * sizeof *epoch->members);
    wait_for_it(log, durable, context);
    go_on(log);
}

void ls_coordinator_log_cuts(ls_coordinator_log *log, const ls_log_cuts *cuts)
{
    put_record(log, LS_LOG_CUTS, cuts->newest.epoch, cuts->newest.step, cuts, sizeof *cuts);
}

void ls_coordinator_log_steps(ls_coordinator_log *log, uint64_t step)
{
    log->steps = step;
    go_on(log);
}

void ls_coordinator_log_end(ls_coordinator_log *log, uint64_t step, void (*durable)(void *context),
                            void *context)
{
    put_record(log, LS_LOG_END, log->epoch, step, NULL, 0);
    wait_for_it(log, durable, context);
    go_on(log);
}

/* ---- life ---- */

ls_status ls_coordinator_log_open(const ls_coordinator_log_options *options, ls_coordinator_log **log_out)
{
    ls_coordinator_log *log = calloc(1, sizeof *log);
    char *buffer = malloc(READ_BYTES);
    if (!log || !buffer) {
        free(log);
        free(buffer);
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the coordinator's log");
    }
    log->options = *options;
    log->buffer = buffer;
    log->file = -1;
    snprintf(log->folder, sizeof log->folder, "%s", options->folder);
    snprintf(log->path, sizeof log->path, "%s/coordinator.log", log->folder);
    snprintf(log->fresh_path, sizeof log->fresh_path, "%s/coordinator.log.new", log->folder);
    log->options.folder = log->folder;
    ls_env_disk_open(options->env, log->path, LS_ENV_READ, old_opened, log);
    *log_out = log;
    return LS_OK;
}

void ls_coordinator_log_close(ls_coordinator_log *log)
{
    if (!log) {
        return;
    }
    ls_text_release(&log->image);
    ls_text_release(&log->old);
    free(log->buffer);
    free(log);
}
