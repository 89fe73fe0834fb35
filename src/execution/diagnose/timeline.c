// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/timeline.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    CHUNK = 512,
    FLUSH_BYTES = 1 << 20,
    TRACK_ACTIVITY = 1,
    TRACK_OPERATIONS = 2, /* and following, one per communicator slot */
    ARROW_NS_MIN = 20000, /* shorter waits have none */
};

/* An operation of a rank, for the arrows. */
typedef struct arrow_end {
    uint64_t begin_ns, end_ns, seq; /* shared clock */
    uint32_t comm_id, rank, track, comm_size;
} arrow_end;

typedef struct writer {
    const ls_scene *scene;
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

static void put_span(writer *w, const ls_sight *sight, const ls_flight_span *span)
{
    char detail[128] = "";
    const uint64_t shift = (uint64_t)sight->header.clock_offset_ns;
    const char *kind = ls_activity_name((ls_activity)span->activity);
    if (w->describe) {
        w->describe->activity(w->describe->context, span->activity, span->number, detail, sizeof detail);
    }
    begin_event(w, "X", sight->rank, TRACK_ACTIVITY);
    put_times(w, span->begin_ns + shift, span->end_ns + shift);
    ls_text_printf(&w->text, ",\"cat\":\"%s\",\"name\":", kind);
    ls_text_append_quoted(&w->text, detail[0] ? detail : kind);
    ls_text_printf(&w->text, ",\"args\":{\"step\":%" PRIu32 ",\"leaf\":%" PRIu32 ",\"number\":%" PRIu32 "}}",
                   span->step, span->leaf, span->number);
    w->counts.slices++;
}

static void put_operation(writer *w, const ls_sight *sight, const ls_sight_op *op, uint32_t wait_us,
                          uint32_t last_rank, const arrow_end *end)
{
    char words[LS_SIGHT_OP_WORDS_BYTES];
    ls_sight_op_words(op, words);
    begin_event(w, "X", sight->rank, end->track);
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

static const ls_flight_comm *find_comm(const ls_sight *sight, uint32_t comm_id)
{
    for (uint32_t i = 0; i < sight->comm_count; i++) {
        if (sight->comms[i].id == comm_id) {
            return &sight->comms[i];
        }
    }
    return NULL;
}

static ls_status keep_end(writer *w, const arrow_end *end)
{
    if (w->end_count == w->end_room) {
        const size_t room = w->end_room ? 2 * w->end_room : 4096;
        arrow_end *ends = realloc(w->ends, room * sizeof *ends);
        if (!ends) {
            return ls_fail(LS_ERR_MEMORY, "no memory for a trace of %zu operations", room);
        }
        w->ends = ends;
        w->end_room = room;
    }
    w->ends[w->end_count++] = *end;
    return LS_OK;
}

static ls_status write_record(writer *w, uint32_t index, const ls_flight_record *record)
{
    const ls_sight *sight = &w->scene->sights[index];
    const ls_flight_comm *comm = find_comm(sight, record->comm_id);
    const uint64_t shift = (uint64_t)sight->header.clock_offset_ns;
    ls_sight_op op;
    LS_TRY(ls_sight_op_fill(w->scene->readers[index], record, &op));
    const arrow_end end = {.begin_ns = record->begin_ns + shift,
                           .end_ns = record->end_ns ? record->end_ns + shift : w->scene->now_ns,
                           .seq = record->seq,
                           .comm_id = record->comm_id,
                           .rank = sight->rank,
                           .track = TRACK_OPERATIONS + record->slot,
                           .comm_size = comm ? comm->size : 0};
    put_operation(w, sight, &op, record->wait_us, record->last_rank, &end);
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
        LS_TRY(ls_flight_reader_records(w->scene->readers[index], next, CHUNK, entries, &count, &next));
        for (uint32_t i = 0; i < count; i++) {
            LS_TRY(write_record(w, index, &entries[i].record));
        }
    } while (count == CHUNK);
    return LS_OK;
}

static ls_status write_spans(writer *w, uint32_t index, ls_flight_span *spans)
{
    const ls_sight *sight = &w->scene->sights[index];
    uint32_t count = 0;
    LS_TRY(ls_flight_reader_spans(w->scene->readers[index], spans, &count));
    for (uint32_t i = 0; i < count; i++) {
        put_span(w, sight, &spans[i]);
        LS_TRY(flush(w, FLUSH_BYTES));
    }
    /* What went on when the sight was taken, unless it is among the spans by now. */
    const bool is_over = count > 0 && spans[count - 1].end_ns > sight->now.since_ns;
    if (sight->header.outcome == LS_FLIGHT_RUNNING && !is_over) {
        const uint64_t shift = (uint64_t)sight->header.clock_offset_ns;
        const ls_flight_span open = {.begin_ns = sight->now.since_ns,
                                     .end_ns = w->scene->now_ns - shift,
                                     .step = (uint32_t)sight->now.step,
                                     .leaf = sight->now.leaf,
                                     .activity = sight->now.activity,
                                     .number = sight->now.number};
        put_span(w, sight, &open);
    }
    return LS_OK;
}

static ls_status write_rank(writer *w, uint32_t index, ls_flight_span *spans)
{
    const ls_sight *sight = &w->scene->sights[index];
    ls_text name = {0};
    ls_text_printf(&name, "rank %" PRIu32 " (%s, pid %" PRId32 ")", sight->rank, sight->header.host,
                   sight->header.pid);
    put_name(w, "process_name", sight->rank, 0, ls_text_string(&name));
    put_name(w, "thread_name", sight->rank, TRACK_ACTIVITY, "activity");
    ls_flight_comm comms[LS_FLIGHT_COMMS];
    ls_status status = ls_flight_reader_comms(w->scene->readers[index], comms);
    for (uint32_t slot = 1; slot < LS_FLIGHT_COMMS && status == LS_OK; slot++) {
        if (comms[slot].state != LS_FLIGHT_COMM_FREE) {
            ls_text_clear(&name);
            ls_text_printf(&name, "operations of %s", comms[slot].name);
            put_name(w, "thread_name", sight->rank, TRACK_OPERATIONS + slot, ls_text_string(&name));
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
    ls_text_printf(&w->text, ",\"id\":%" PRIu64 ",\"ts\":%.3f,\"cat\":\"last\",\"name\":\"last to come\"}",
                   id, us(w, from->begin_ns));
    begin_event(w, "f", to->rank, to->track);
    ls_text_printf(&w->text,
                   ",\"id\":%" PRIu64 ",\"ts\":%.3f,\"bp\":\"e\",\"cat\":\"last\",\"name\":\"last to come\"}",
                   id, us(w, to->end_ns));
}

/* ends[0..count): one operation of all its members. */
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

static uint64_t first_ns(const ls_scene *scene)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < scene->count; i++) {
        const ls_flight_header *h = &scene->sights[i].header;
        const uint64_t ns = h->start_ns + (uint64_t)h->clock_offset_ns;
        first = ns < first ? ns : first;
    }
    return first;
}

static ls_status write_all(writer *w, ls_flight_span *spans)
{
    ls_text_append(&w->text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (uint32_t i = 0; i < w->scene->count; i++) {
        LS_TRY(write_rank(w, i, spans));
    }
    LS_TRY(write_arrows(w));
    ls_text_append(&w->text, "\n]}\n");
    return flush(w, 0);
}

ls_status ls_timeline_write(const ls_scene *scene, const ls_describe *describe, const char *path,
                            ls_timeline_counts *counts_out)
{
    ls_text part = {0};
    ls_text_printf(&part, "%s.part", path);
    const char *part_path = ls_text_string(&part);
    writer w = {.scene = scene, .describe = describe, .path = part_path, .base_ns = first_ns(scene)};
    ls_flight_span *spans = malloc(sizeof *spans * LS_FLIGHT_SPANS);
    w.fd = open(part_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    ls_status status = LS_OK;
    if (w.fd < 0) {
        status = ls_fail_errno(errno, "can't write %s", part_path);
    } else if (!spans) {
        status = ls_fail(LS_ERR_MEMORY, "no memory for a trace");
    } else {
        status = write_all(&w, spans);
    }
    if (w.fd >= 0 && close(w.fd) != 0 && status == LS_OK) {
        status = ls_fail_errno(errno, "can't write %s", part_path);
    }
    if (status == LS_OK && rename(part_path, path) != 0) {
        status = ls_fail_errno(errno, "can't rename %s to %s", part_path, path);
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
