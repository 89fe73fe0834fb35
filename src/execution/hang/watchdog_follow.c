// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the flight files of this host's ranks while the ranks write them.
 *
 *   ring of records   ... | ended | open | ended | incomplete | ended | not written yet
 *                                  ▲               ▲              ▲
 *                                  └── open[] ─────┘              next
 *
 * A look reads the records in open[] again and the new ones from `next` on.
 *
 * Each record is counted once when it begins (arrivals, mismatches) and once when it ends (usual
 * waits), however many looks lie in between.
 */
#include "base/log.h"
#include "execution/hang/watchdog_internal.h"

#include <inttypes.h>
#include <string.h>

static watched_site *site_of(ls_watchdog *watchdog, local_rank *local, uint32_t index)
{
    char name[LS_FLIGHT_SITE_BYTES];
    index %= LS_FLIGHT_SITES;
    if (local->sites[index] > 0) {
        return &watchdog->sites[local->sites[index] - 1];
    }
    if (ls_flight_reader_site(local->reader, index, name) != LS_OK) {
        return NULL;
    }
    uint32_t at = 0;
    while (at < watchdog->site_count && strcmp(watchdog->sites[at].name, name) != 0) {
        at++;
    }
    if (at == LS_WATCHDOG_SITES_MAX) {
        return NULL;
    }
    if (at == watchdog->site_count) {
        watchdog->site_count++;
        memcpy(watchdog->sites[at].name, name, sizeof name);
    }
    local->sites[index] = (uint16_t)(at + 1);
    return &watchdog->sites[at];
}

/* A wait long enough to be reported is counted as one just below that. One stopped rank must not
 * raise the threshold so far that the next one goes unnoticed; ranks that always wait this long are
 * still learnt within a few steps. */
static uint64_t clip_us(const ls_wait_histogram *waits, uint64_t us)
{
    const uint64_t least_us = LS_WATCHDOG_LATE_NS / 1000,
                   limit_us = LS_WATCHDOG_P99_FACTOR * ls_wait_histogram_p99_us(waits);
    const uint64_t threshold_us = limit_us > least_us ? limit_us : least_us;
    return us < threshold_us ? us : threshold_us;
}

static void note_end(ls_watchdog *watchdog, local_rank *local, const ls_flight_record *record)
{
    local->last_end_ns = record->end_ns > local->last_end_ns ? record->end_ns : local->last_end_ns;
    ls_arrivals_end(watchdog->arrivals, record->comm_id, record->seq, record->kind, record->wait_us);
    watched_site *site = site_of(watchdog, local, record->site);
    if (!site || (record->flags & LS_FLIGHT_FAILED) || record->end_ns < record->begin_ns) {
        return;
    }
    const uint64_t duration_us = (record->end_ns - record->begin_ns) / 1000;
    ls_wait_histogram_add(&site->waits, clip_us(&site->waits, record->wait_us));
    ls_wait_histogram_add(&site->durations, clip_us(&site->durations, duration_us));
}

/* The flight file stores when the rank arrived at the operation, with its fingerprint: enough to
 * compare it with what the other ranks called. */
static void note_begin(ls_watchdog *watchdog, local_rank *local, const ls_flight_record *record)
{
    const ls_flight_comm *comm = &local->comms[record->slot % LS_FLIGHT_COMMS];
    const ls_arrival arrival = {.rank = local->rank,
                                .comm_id = record->comm_id,
                                .comm_size = comm->id == record->comm_id ? comm->size : 0,
                                .kind = record->kind,
                                .seq = record->seq,
                                .fingerprint = record->fingerprint,
                                .begin_ns = record->begin_ns + (uint64_t)local->clock_offset_ns};
    ls_disagreement disagreement;
    if (ls_arrivals_add(watchdog->arrivals, &arrival, &disagreement) && !watchdog->disagrees) {
        watchdog->disagrees = true;
        watchdog->disagreement = disagreement;
    }
}

/* Remembers a record that has to be read again. record NULL: it was still being written. */
static void keep_open(local_rank *local, uint64_t number, const ls_flight_record *record)
{
    if (local->open_count < LS_WATCHDOG_OPEN_MAX) {
        local->open[local->open_count++] =
            (open_op){.number = number, .begin_ns = record ? record->begin_ns : 0, .known = record != NULL};
    }
}

static void note_entry(ls_watchdog *watchdog, local_rank *local, const ls_flight_entry *entry)
{
    note_begin(watchdog, local, &entry->record);
    if (entry->record.end_ns == 0) {
        keep_open(local, entry->number, &entry->record);
    } else {
        note_end(watchdog, local, &entry->record);
    }
}

/*
 * Reads the records again that had not ended.
 *
 * The rank writes its ring without waiting for readers, so a record has three states here: complete
 * and still open; complete and ended; incomplete, because the rank is writing it or has already
 * overwritten it. An incomplete one is kept only while its place in the ring cannot have been
 * reused.
 */
static ls_status follow_open(ls_watchdog *watchdog, local_rank *local)
{
    const uint32_t count = local->open_count;
    open_op before[LS_WATCHDOG_OPEN_MAX];
    memcpy(before, local->open, sizeof before);
    local->open_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        ls_flight_entry entry;
        uint32_t copied = 0;
        uint64_t next = 0, head = 0;
        LS_TRY(ls_flight_reader_records(local->reader, before[i].number, 1, &entry, &copied, &next));
        if (copied == 1 && entry.number == before[i].number) {
            if (!before[i].known) {
                note_entry(watchdog, local, &entry);
            } else if (entry.record.end_ns != 0) {
                note_end(watchdog, local, &entry.record);
            } else {
                keep_open(local, entry.number, &entry.record);
            }
            continue;
        }
        LS_TRY(ls_flight_reader_head(local->reader, &head));
        if (before[i].number + LS_FLIGHT_RECORDS > head) {
            local->open[local->open_count++] = before[i]; /* still being written */
        }
    }
    return LS_OK;
}

/* Reads the records written since the last look. Numbers missing from what the reader returned were
 * incomplete: they are remembered and read again at the next look. */
static ls_status follow_new(ls_watchdog *watchdog, local_rank *local)
{
    uint32_t count = 0;
    uint64_t next = local->next;
    do {
        const uint64_t from = next;
        LS_TRY(ls_flight_reader_records(local->reader, from, LS_WATCHDOG_CHUNK, watchdog->entries, &count,
                                        &next));
        uint64_t expected = from;
        for (uint32_t i = 0; i < count; i++) {
            const ls_flight_entry *entry = &watchdog->entries[i];
            for (; expected < entry->number; expected++) {
                if (expected + LS_FLIGHT_RECORDS > next) {
                    keep_open(local, expected, NULL);
                }
            }
            expected = entry->number + 1;
            note_entry(watchdog, local, entry);
        }
        for (; expected < next && next - expected <= LS_WATCHDOG_OPEN_MAX; expected++) {
            keep_open(local, expected, NULL);
        }
        if (next == from) {
            break;
        }
    } while (count == LS_WATCHDOG_CHUNK);
    local->next = next;
    return LS_OK;
}

static void open_file(ls_watchdog *watchdog, local_rank *local)
{
    char *path = ls_arena_printf(&watchdog->arena, "%s/rank-%" PRIu32, watchdog->flight_dir, local->rank);
    ls_flight_header header;
    if (ls_flight_reader_open(path, &local->reader) != LS_OK) {
        local->reader = NULL; /* the file does not exist yet, or its header is incomplete */
    } else if (ls_flight_reader_header(local->reader, &header) == LS_OK) {
        local->last_end_ns = header.start_ns;
    }
}

void ls_watchdog_follow(ls_watchdog *watchdog, local_rank *local)
{
    ls_flight_header header;
    if (!local->reader) {
        open_file(watchdog, local);
    }
    if (!local->reader) {
        return;
    }
    ls_status status = ls_flight_reader_header(local->reader, &header);
    if (status == LS_OK) {
        local->clock_offset_ns = header.clock_offset_ns;
        local->pid = header.outcome == LS_FLIGHT_RUNNING ? header.pid : 0;
        local->pid_start = header.pid_start;
        status = ls_flight_reader_comms(local->reader, local->comms);
    }
    if (status == LS_OK) {
        status = follow_open(watchdog, local);
    }
    if (status == LS_OK) {
        status = follow_new(watchdog, local);
    }
    if (status != LS_OK) {
        ls_log_warn("the file of the flight recorder of rank %" PRIu32
                    " cannot be read any more, so the watchdog ignores this rank: %s",
                    local->rank, ls_error_text());
        ls_flight_reader_close(local->reader);
        local->reader = NULL;
    }
}
