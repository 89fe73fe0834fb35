// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"
#include "execution/diagnose/watch_internal.h"

#include <inttypes.h>
#include <string.h>

static watched_site *site_of(ls_watch *watch, watched *w, uint32_t index)
{
    char name[LS_FLIGHT_SITE_BYTES];
    index %= LS_FLIGHT_SITES;
    if (w->sites[index] > 0) {
        return &watch->sites[w->sites[index] - 1];
    }
    if (ls_flight_reader_site(w->reader, index, name) != LS_OK) {
        return NULL;
    }
    uint32_t at = 0;
    while (at < watch->site_count && strcmp(watch->sites[at].name, name) != 0) {
        at++;
    }
    if (at == LS_WATCH_SITES_MAX) {
        return NULL;
    }
    if (at == watch->site_count) {
        watch->site_count++;
        memcpy(watch->sites[at].name, name, sizeof name);
    }
    w->sites[index] = (uint16_t)(at + 1);
    return &watch->sites[at];
}

/* A wait that was long enough to be reported counts as one that was just not: one stopped rank must not make the watch deaf, and ranks that
 * always wait this long are learnt in a few steps. */
static uint64_t clip_us(const ls_site_waits *waits, uint64_t us)
{
    const uint64_t least_us = LS_WATCH_LATE_NS / 1000,
                   limit_us = LS_WATCH_P99_FACTOR * ls_site_waits_p99_us(waits);
    const uint64_t threshold_us = limit_us > least_us ? limit_us : least_us;
    return us < threshold_us ? us : threshold_us;
}

static void note_end(ls_watch *watch, watched *w, const ls_flight_record *record)
{
    w->last_end_ns = record->end_ns > w->last_end_ns ? record->end_ns : w->last_end_ns;
    ls_arrivals_end(watch->arrivals, record->comm_id, record->seq, record->kind, record->wait_us);
    watched_site *site = site_of(watch, w, record->site);
    if (!site || (record->flags & LS_FLIGHT_FAILED) || record->end_ns < record->begin_ns) {
        return;
    }
    const uint64_t duration_us = (record->end_ns - record->begin_ns) / 1000;
    ls_site_waits_add(&site->waits, clip_us(&site->waits, record->wait_us));
    ls_site_waits_add(&site->durations, clip_us(&site->durations, duration_us));
}

static void note_begin(ls_watch *watch, watched *w, const ls_flight_record *record)
{
    const ls_flight_comm *comm = &w->comms[record->slot % LS_FLIGHT_COMMS];
    const ls_arrival arrival = {.rank = w->rank,
                                .comm_id = record->comm_id,
                                .comm_size = comm->id == record->comm_id ? comm->size : 0,
                                .kind = record->kind,
                                .seq = record->seq,
                                .fingerprint = record->fingerprint,
                                .begin_ns = record->begin_ns + (uint64_t)w->clock_offset_ns};
    ls_disagreement disagreement;
    if (ls_arrivals_add(watch->arrivals, &arrival, &disagreement) && !watch->disagrees) {
        watch->disagrees = true;
        watch->disagreement = disagreement;
    }
}

static void keep_open(watched *w, uint64_t number, const ls_flight_record *record)
{
    if (w->open_count < LS_WATCH_OPEN_MAX) {
        w->open[w->open_count++] =
            (open_op){.number = number, .begin_ns = record ? record->begin_ns : 0, .known = record != NULL};
    }
}

static void note_entry(ls_watch *watch, watched *w, const ls_flight_entry *entry)
{
    note_begin(watch, w, &entry->record);
    if (entry->record.end_ns == 0) {
        keep_open(w, entry->number, &entry->record);
    } else {
        note_end(watch, w, &entry->record);
    }
}

/* Looks again at what had not ended. */
static ls_status follow_open(ls_watch *watch, watched *w)
{
    const uint32_t count = w->open_count;
    open_op before[LS_WATCH_OPEN_MAX];
    memcpy(before, w->open, sizeof before);
    w->open_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        ls_flight_entry entry;
        uint32_t copied = 0;
        uint64_t next = 0, head = 0;
        LS_TRY(ls_flight_reader_records(w->reader, before[i].number, 1, &entry, &copied, &next));
        if (copied == 1 && entry.number == before[i].number) {
            if (!before[i].known) {
                note_entry(watch, w, &entry);
            } else if (entry.record.end_ns != 0) {
                note_end(watch, w, &entry.record);
            } else {
                keep_open(w, entry.number, &entry.record);
            }
            continue;
        }
        LS_TRY(ls_flight_reader_head(w->reader, &head));
        if (before[i].number + LS_FLIGHT_RECORDS > head) {
            w->open[w->open_count++] = before[i]; /* still being written */
        }
    }
    return LS_OK;
}

static ls_status follow_new(ls_watch *watch, watched *w)
{
    uint32_t count = 0;
    uint64_t next = w->next;
    do {
        const uint64_t from = next;
        LS_TRY(ls_flight_reader_records(w->reader, from, LS_WATCH_CHUNK, watch->entries, &count, &next));
        uint64_t expected = from;
        for (uint32_t i = 0; i < count; i++) {
            const ls_flight_entry *entry = &watch->entries[i];
            for (; expected < entry->number; expected++) {
                if (expected + LS_FLIGHT_RECORDS > next) {
                    keep_open(w, expected, NULL);
                }
            }
            expected = entry->number + 1;
            note_entry(watch, w, entry);
        }
        for (; expected < next && next - expected <= LS_WATCH_OPEN_MAX; expected++) {
            keep_open(w, expected, NULL);
        }
        if (next == from) {
            break;
        }
    } while (count == LS_WATCH_CHUNK);
    w->next = next;
    return LS_OK;
}

static void open_file(ls_watch *watch, watched *w)
{
    char *path = ls_arena_printf(&watch->arena, "%s/rank-%" PRIu32, watch->flight_dir, w->rank);
    ls_flight_header header;
    if (ls_flight_reader_open(path, &w->reader) != LS_OK) {
        w->reader = NULL; /* not there yet, or not yet filled in */
    } else if (ls_flight_reader_header(w->reader, &header) == LS_OK) {
        w->last_end_ns = header.start_ns;
    }
}

void ls_watch_follow(ls_watch *watch, watched *w)
{
    ls_flight_header header;
    if (!w->reader) {
        open_file(watch, w);
    }
    if (!w->reader) {
        return;
    }
    ls_status status = ls_flight_reader_header(w->reader, &header);
    if (status == LS_OK) {
        w->clock_offset_ns = header.clock_offset_ns;
        w->pid = header.outcome == LS_FLIGHT_RUNNING ? header.pid : 0;
        w->pid_start = header.pid_start;
        status = ls_flight_reader_comms(w->reader, w->comms);
    }
    if (status == LS_OK) {
        status = follow_open(watch, w);
    }
    if (status == LS_OK) {
        status = follow_new(watch, w);
    }
    if (status != LS_OK) {
        ls_log_warn("rank %" PRIu32 " can't be watched any more: %s", w->rank, ls_error_text());
        ls_flight_reader_close(w->reader);
        w->reader = NULL;
    }
}
