// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/timeline.h"

#include "base/file.h"
#include "base/list.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    CHUNK = 512,
    FLUSH_BYTES = 1 << 20,
    TRACK_ACTIVITY = 1,
    TRACK_OPERATIONS = 2, /* and following: one per communicator slot */
    ARROW_NS_MIN = 20000, /* shorter waits get no arrow */
};

/* An operation of a rank, kept for the arrows. */
typedef struct arrow_end {
    uint64_t begin_ns, end_ns, seq; /* shared clock */
    uint32_t comm_id, rank, track, comm_size;
} arrow_end;

typedef struct writer {
    const ls_run_snapshot *run;
    const ls_describe *describe;
    int fd;
    const char *path;
    ls_text text;
    bool has_events;
    uint64_t base_ns;
    arrow_end *ends;
    size_t end_count, end_room;
    uint64_t last_ns;
    ls_timeline_counts counts;
} writer;

static ls_status flush(writer *w, size_t more_than)
{
    if (w->text.bytes <= more_than) {
        return LS_OK;
    }
    const ls_status status = ls_file_write_all(w->fd, w->path, w->text.data, w->text.bytes);
    ls_text_clear(&w->text);
    return status;
}

/* ---- events ---- */

static double us(const writer *w, uint64_t ns)
{
    return ns > w->base_ns ? 1e-3 * (double)(ns - w->base_ns) : 0.0;
}

static void begin_event(writer *w, const char *phase, uint32_t rank, uint32_t track)
{
    ls_text_append(&w->text, w->has_events ? ",\n" : "\n");
    ls_text_printf(&w->text, "{\"ph\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32, phase, rank, track);
    w->has_events = true;
}

static void put_name(writer *w, const char *what, uint32_t rank, uint32_t track, const char *name)
{
    begin_event(w, "M", rank, track);
    ls_text_printf(&w->text, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    ls_text_append_quoted(&w->text, name);
    ls_text_append(&w->text, "}}");
}

static void put_times(writer *w, uint64_t begin_ns, uint64_t end_ns)
{
    const double from = us(w, begin_ns), to = us(w, end_ns);
    ls_text_printf(&w->text, ",\"ts\":%.3f,\"dur\":%.3f", from, to > from ? to - from : 0.0);
    w->last_ns = end_ns > w->last_ns ? end_ns : w->last_ns;
}

static void put_span(writer *w, const ls_rank_snapshot *snapshot, const ls_flight_span *span)
{
    char detail[128] = "";
    const uint64_t shift = (uint64_t)snapshot->header.clock_offset_ns;
    const char *kind = ls_activity_name((ls_activity)span->activity);
    if (w->describe) {
        w->describe->activity(w->describe->context, span->activity, span->number, detail, sizeof detail);
    }
    begin_event(w, "X", snapshot->rank, TRACK_ACTIVITY);
    put_times(w, span->begin_ns + shift, span->end_ns + shift);
    ls_text_printf(&w->text, ",\"cat\":\"%s\",\"name\":", kind);
    ls_text_append_quoted(&w->text, detail[0] ? detail : kind);
    ls_text_printf(&w->text, ",\"args\":{\"step\":%" PRIu32 ",\"leaf\":%" PRIu32 ",\"number\":%" PRIu32 "}}",
                   span->step, span->leaf, span->number);
    w->counts.slices++;
}

static void put_operation(writer *w, const ls_rank_snapshot *snapshot, const ls_rank_snapshot_op *op,
                          uint32_t wait_us, uint32_t last_rank, const arrow_end *end)
{
    char words[LS_RANK_SNAPSHOT_OP_WORDS_BYTES];
    ls_rank_snapshot_op_words(op, words);
    begin_event(w, "X", snapshot->rank, end->track);
    put_times(w, end->begin_ns, end->end_ns);
    ls_text_printf(&w->text, ",\"cat\":\"%s\",\"name\":", ls_comm_kind_name((ls_comm_kind)op->kind));
    ls_text_append_quoted(&w->text, words);
    ls_text_printf(&w->text, ",\"args\":{\"seq\":%" PRIu64 ",\"count\":%" PRIu64 ",\"wait_us\":%" PRIu32,
                   op->seq, op->count, wait_us);
    if (last_rank != UINT32_MAX) {
        ls_text_printf(&w->text, ",\"last\":%" PRIu32, last_rank);
    }
    if (op->end_ns == 0) {
        ls_text_append(&w->text, ",\"open\":true");
    }
    ls_text_append(&w->text, ",\"site\":");
    ls_text_append_quoted(&w->text, op->site);
    ls_text_append(&w->text, "}}");
    w->counts.operations++;
}

/* ---- a rank ---- */

static const ls_flight_comm *find_comm(const ls_rank_snapshot *snapshot, uint32_t comm_id)
{
    for (uint32_t i = 0; i < snapshot->comm_count; i++) {
        if (snapshot->comms[i].id == comm_id) {
            return &snapshot->comms[i];
        }
    }
    return NULL;
}

static ls_status keep_end(writer *w, const arrow_end *end)
{
    LS_TRY(ls_list_grow(&w->ends, w->end_count, &w->end_room, sizeof *w->ends));
    w->ends[w->end_count++] = *end;
    return LS_OK;
}

static ls_status write_record(writer *w, uint32_t index, const ls_flight_record *record)
{
    const ls_rank_snapshot *snapshot = &w->run->snapshots[index];
    const ls_flight_comm *comm = find_comm(snapshot, record->comm_id);
    const uint64_t shift = (uint64_t)snapshot->header.clock_offset_ns;
    ls_rank_snapshot_op op;
    LS_TRY(ls_rank_snapshot_op_fill(w->run->readers[index], record, &op));
    const arrow_end end = {.begin_ns = record->begin_ns + shift,
                           .end_ns = record->end_ns ? record->end_ns + shift : w->run->now_ns,
                           .seq = record->seq,
                           .comm_id = record->comm_id,
                           .rank = snapshot->rank,
                           .track = TRACK_OPERATIONS + record->slot,
                           .comm_size = comm ? comm->size : 0};
    put_operation(w, snapshot, &op, record->wait_us, record->last_rank, &end);
    if (ls_comm_kind_is_collective((ls_comm_kind)record->kind) && record->kind != LS_COMM_ALLOC) {
        LS_TRY(keep_end(w, &end));
    }
    return flush(w, FLUSH_BYTES);
}

static ls_status write_operations(writer *w, uint32_t index)
{
    ls_flight_entry entries[CHUNK];
    uint64_t next = 0;
    uint32_t count = 0;
    do {
        LS_TRY(ls_flight_reader_records(w->run->readers[index], next, CHUNK, entries, &count, &next));
        for (uint32_t i = 0; i < count; i++) {
            LS_TRY(write_record(w, index, &entries[i].record));
        }
    } while (count == CHUNK);
    return LS_OK;
}

static ls_status write_spans(writer *w, uint32_t index, ls_flight_span *spans)
{
    const ls_rank_snapshot *snapshot = &w->run->snapshots[index];
    uint32_t count = 0;
    LS_TRY(ls_flight_reader_spans(w->run->readers[index], spans, &count));
    for (uint32_t i = 0; i < count; i++) {
        put_span(w, snapshot, &spans[i]);
        LS_TRY(flush(w, FLUSH_BYTES));
    }
    /* The activity under way when the snapshot was taken, unless the spans already hold it. */
    const bool is_over = count > 0 && spans[count - 1].end_ns > snapshot->now.since_ns;
    if (snapshot->header.outcome == LS_FLIGHT_RUNNING && !is_over) {
        const uint64_t shift = (uint64_t)snapshot->header.clock_offset_ns;
        const ls_flight_span open = {.begin_ns = snapshot->now.since_ns,
                                     .end_ns = w->run->now_ns - shift,
                                     .step = (uint32_t)snapshot->now.step,
                                     .leaf = snapshot->now.leaf,
                                     .activity = snapshot->now.activity,
                                     .number = snapshot->now.number};
        put_span(w, snapshot, &open);
    }
    return LS_OK;
}

static ls_status write_rank(writer *w, uint32_t index, ls_flight_span *spans)
{
    const ls_rank_snapshot *snapshot = &w->run->snapshots[index];
    ls_text name = {0};
    ls_text_printf(&name, "rank %" PRIu32 " (%s, pid %" PRId32 ")", snapshot->rank, snapshot->header.host,
                   snapshot->header.pid);
    put_name(w, "process_name", snapshot->rank, 0, ls_text_string(&name));
    put_name(w, "thread_name", snapshot->rank, TRACK_ACTIVITY, "activity");
    ls_flight_comm comms[LS_FLIGHT_COMMS];
    ls_status status = ls_flight_reader_comms(w->run->readers[index], comms);
    for (uint32_t slot = 1; slot < LS_FLIGHT_COMMS && status == LS_OK; slot++) {
        if (comms[slot].state != LS_FLIGHT_COMM_FREE) {
            ls_text_clear(&name);
            ls_text_printf(&name, "operations of %s", comms[slot].name);
            put_name(w, "thread_name", snapshot->rank, TRACK_OPERATIONS + slot, ls_text_string(&name));
        }
    }
    ls_text_release(&name);
    LS_TRY(status);
    LS_TRY(write_spans(w, index, spans));
    return write_operations(w, index);
}

/* ---- arrows ---- */

static int by_operation(const void *a, const void *b)
{
    const arrow_end *x = a, *y = b;
    if (x->comm_id != y->comm_id) {
        return x->comm_id < y->comm_id ? -1 : 1;
    }
    return x->seq != y->seq ? (x->seq < y->seq ? -1 : 1) : (x->rank > y->rank) - (x->rank < y->rank);
}

static void put_arrow(writer *w, const arrow_end *from, const arrow_end *to)
{
    const uint64_t id = ++w->counts.arrows;
    begin_event(w, "s", from->rank, from->track);
    ls_text_printf(&w->text, ",\"id\":%" PRIu64 ",\"ts\":%.3f,\"cat\":\"last\",\"name\":\"last to arrive\"}",
                   id, us(w, from->begin_ns));
    begin_event(w, "f", to->rank, to->track);
    ls_text_printf(&w->text,
                   ",\"id\":%" PRIu64
                   ",\"ts\":%.3f,\"bp\":\"e\",\"cat\":\"last\",\"name\":\"last to arrive\"}",
                   id, us(w, to->end_ns));
}

/* ends[0..count): one operation, as all its members saw it. */
static void write_arrows_of(writer *w, const arrow_end *ends, size_t count)
{
    const arrow_end *last = &ends[0];
    for (size_t i = 1; i < count; i++) {
        last = ends[i].begin_ns > last->begin_ns ? &ends[i] : last;
    }
    for (size_t i = 0; i < count; i++) {
        if (last->begin_ns - ends[i].begin_ns >= ARROW_NS_MIN && ends[i].end_ns >= last->begin_ns) {
            put_arrow(w, last, &ends[i]);
        }
    }
}

static ls_status write_arrows(writer *w)
{
    if (w->end_count > 0) {
        qsort(w->ends, w->end_count, sizeof *w->ends, by_operation);
    }
    for (size_t i = 0; i < w->end_count;) {
        size_t next = i + 1;
        while (next < w->end_count && w->ends[next].comm_id == w->ends[i].comm_id &&
               w->ends[next].seq == w->ends[i].seq) {
            next++;
        }
        if (next - i >= 2 && next - i == w->ends[i].comm_size) {
            write_arrows_of(w, &w->ends[i], next - i);
            LS_TRY(flush(w, FLUSH_BYTES));
        }
        i = next;
    }
    return LS_OK;
}

/* ---- the file ---- */

static uint64_t first_ns(const ls_run_snapshot *run)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < run->count; i++) {
        const ls_flight_header *h = &run->snapshots[i].header;
        const uint64_t ns = h->start_ns + (uint64_t)h->clock_offset_ns;
        first = ns < first ? ns : first;
    }
    return first;
}

static ls_status write_all(writer *w, ls_flight_span *spans)
{
    ls_text_append(&w->text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (uint32_t i = 0; i < w->run->count; i++) {
        LS_TRY(write_rank(w, i, spans));
    }
    LS_TRY(write_arrows(w));
    ls_text_append(&w->text, "\n]}\n");
    return flush(w, 0);
}

ls_status ls_timeline_write(const ls_run_snapshot *run, const ls_describe *describe, const char *path,
                            ls_timeline_counts *counts_out)
{
    ls_text part = {0};
    ls_text_printf(&part, "%s.part", path);
    const char *part_path = ls_text_string(&part);
    writer w = {.run = run, .describe = describe, .path = part_path, .base_ns = first_ns(run)};
    ls_flight_span *spans = malloc(sizeof *spans * LS_FLIGHT_SPANS);
    w.fd = open(part_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ls_status status = LS_OK;
    if (w.fd < 0) {
        status = ls_fail_errno(errno, "cannot write %s", part_path);
    } else if (!spans) {
        status = ls_fail(LS_ERR_MEMORY, "not enough memory for a trace");
    } else {
        status = write_all(&w, spans);
    }
    if (w.fd >= 0 && close(w.fd) != 0 && status == LS_OK) {
        status = ls_fail_errno(errno, "cannot write %s", part_path);
    }
    if (status == LS_OK && rename(part_path, path) != 0) {
        status = ls_fail_errno(errno, "cannot rename %s to %s", part_path, path);
    }
    if (status == LS_OK) {
        w.counts.seconds = w.last_ns > w.base_ns ? 1e-9 * (double)(w.last_ns - w.base_ns) : 0.0;
        *counts_out = w.counts;
    } else if (w.fd >= 0) {
        unlink(part_path);
    }
    free(spans);
    free(w.ends);
    ls_text_release(&w.text);
    ls_text_release(&part);
    return status;
}
