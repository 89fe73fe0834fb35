// SPDX-License-Identifier: Apache-2.0
#include "execution/hang/rank_snapshot.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOOK_BACK = 256 /* newest records searched for operations that have not ended */ };

const char *ls_process_state_name(ls_process_state state)
{
    static const char *const names[] = {
        [LS_PROCESS_UNKNOWN] = "unknown", [LS_PROCESS_ALIVE] = "alive",     [LS_PROCESS_STOPPED] = "stopped",
        [LS_PROCESS_TRACED] = "traced",   [LS_PROCESS_BLOCKED] = "blocked", [LS_PROCESS_DEAD] = "dead",
    };
    return names[state];
}

/* /proc/PID/stat from the state on: " S 1 ...". The name before it is in parentheses and may itself
 * hold spaces and parentheses, so the last ')' counts. "" if there is no such process. */
static const char *read_stat(int32_t pid, char text[1024])
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    const size_t bytes = file ? fread(text, 1, 1023, file) : 0;
    if (file) {
        fclose(file);
    }
    text[bytes] = 0;
    const char *at = strrchr(text, ')');
    return at && strlen(at) >= 3 ? at + 1 : "";
}

/* The field with that number in proc(5), where the state is 3; 0 if it is missing. */
static uint64_t stat_field(const char *stat, int number)
{
    const char *at = stat[0] ? stat : NULL;
    for (int field = 3; at && field < number; field++) {
        at = strchr(at + 1, ' ');
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

int32_t ls_process_parent(int32_t pid)
{
    char text[1024];
    return (int32_t)stat_field(read_stat(pid, text), 4);
}

uint64_t ls_process_start(int32_t pid)
{
    char text[1024];
    return stat_field(read_stat(pid, text), 22);
}

ls_process_state ls_process_look(int32_t pid, uint64_t start)
{
    char text[1024];
    const char *stat = read_stat(pid, text);
    const uint64_t its_start = stat_field(stat, 22);
    if (!stat[0] || (start != 0 && its_start != 0 && its_start != start)) {
        return LS_PROCESS_DEAD;
    }
    const char state = stat[1];
    switch (state) {
    case 'T':
        return LS_PROCESS_STOPPED;
    case 't':
        return LS_PROCESS_TRACED;
    case 'D':
        return LS_PROCESS_BLOCKED;
    case 'Z':
    case 'X':
        return LS_PROCESS_DEAD;
    default:
        return LS_PROCESS_ALIVE;
    }
}

bool ls_rank_snapshot_is_local(const ls_flight_header *header)
{
    char boot_id[sizeof header->boot_id] = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    const bool read = file && fscanf(file, "%39s", boot_id) == 1;
    if (file) {
        fclose(file);
    }
    return read && strcmp(boot_id, header->boot_id) == 0;
}

ls_status ls_rank_snapshot_op_fill(ls_flight_reader *reader, const ls_flight_record *record,
                                   ls_rank_snapshot_op *op_out)
{
    *op_out = (ls_rank_snapshot_op){
        .seq = record->seq,
        .fingerprint = record->fingerprint,
        .count = record->count,
        .begin_ns = record->begin_ns,
        .end_ns = record->end_ns,
        .comm_id = record->comm_id,
        .peer = record->peer,
        .kind = record->kind,
        .dtype = record->dtype,
        .reduction = record->reduction,
        .flags = record->flags,
    };
    return ls_flight_reader_site(reader, record->site, op_out->site);
}

static ls_status take_operations(ls_flight_reader *reader, ls_rank_snapshot *snapshot)
{
    ls_flight_entry entries[LOOK_BACK];
    uint32_t count = 0;
    uint64_t head = 0, next = 0;
    LS_TRY(ls_flight_reader_head(reader, &head));
    LS_TRY(ls_flight_reader_records(reader, head > LOOK_BACK ? head - LOOK_BACK : 0, LOOK_BACK, entries,
                                    &count, &next));
    for (uint32_t i = 0; i < count; i++) {
        const ls_flight_record *record = &entries[i].record;
        if (record->end_ns == 0 && snapshot->open_count < LS_RANK_SNAPSHOT_OPEN_MAX) {
            LS_TRY(ls_rank_snapshot_op_fill(reader, record, &snapshot->open[snapshot->open_count++]));
        }
    }
    snapshot->has_last = count > 0;
    return count > 0 ? ls_rank_snapshot_op_fill(reader, &entries[count - 1].record, &snapshot->last) : LS_OK;
}

static ls_status take_comms(ls_flight_reader *reader, ls_rank_snapshot *snapshot)
{
    ls_flight_comm comms[LS_FLIGHT_COMMS];
    LS_TRY(ls_flight_reader_comms(reader, comms));
    for (uint32_t slot = 1; slot < LS_FLIGHT_COMMS; slot++) {
        if (comms[slot].state == LS_FLIGHT_COMM_OPEN || comms[slot].state == LS_FLIGHT_COMM_CLOSED) {
            snapshot->comms[snapshot->comm_count++] = comms[slot];
        }
    }
    return LS_OK;
}

ls_status ls_rank_snapshot_take(ls_flight_reader *reader, uint64_t now_ns, ls_rank_snapshot *snapshot_out)
{
    char words[LS_FLIGHT_TEXT_BYTES];
    ls_rank_snapshot *snapshot = snapshot_out;
    memset(snapshot, 0, sizeof *snapshot);
    snapshot->taken_ns = now_ns;
    LS_TRY(ls_flight_reader_header(reader, &snapshot->header));
    snapshot->rank = snapshot->header.rank;
    snapshot->has_file = true;
    /* The process is looked at first. What its file says afterwards is at least as new, so a
     * rank that dies in between can only seem alive for one look too long, never dead while it
     * still works. */
    snapshot->process = ls_rank_snapshot_is_local(&snapshot->header)
                            ? ls_process_look(snapshot->header.pid, snapshot->header.pid_start)
                            : LS_PROCESS_UNKNOWN;
    LS_TRY(take_comms(reader, snapshot));
    LS_TRY(take_operations(reader, snapshot));
    LS_TRY(ls_flight_reader_now(reader, &snapshot->now, NULL));
    LS_TRY(ls_flight_reader_last_words(reader, words));
    snprintf(snapshot->words, sizeof snapshot->words, "%.*s", LS_RANK_SNAPSHOT_WORDS_BYTES - 1, words);
    return LS_OK;
}

void ls_rank_snapshot_op_words(const ls_rank_snapshot_op *op, char words_out[LS_RANK_SNAPSHOT_OP_WORDS_BYTES])
{
    static const char *const dtypes[LS_DTYPE_COUNT] = {"f32", "bf16", "f16", "i32", "i64", "u8"};
    static const char *const reductions[] = {"sum", "max", "min"};
    const bool reduces = op->kind == LS_COMM_ALL_REDUCE || op->kind == LS_COMM_REDUCE_SCATTER ||
                         op->kind == LS_COMM_TREE_REDUCE;
    const char *kind = ls_comm_kind_name((ls_comm_kind)op->kind);
    if (op->kind == LS_COMM_BARRIER || op->kind == LS_COMM_SPLIT || op->count == 0) {
        snprintf(words_out, LS_RANK_SNAPSHOT_OP_WORDS_BYTES, "%s", kind);
        return;
    }
    const int bytes =
        snprintf(words_out, LS_RANK_SNAPSHOT_OP_WORDS_BYTES, "%s%s%s of %" PRIu64 " %s", kind,
                 reduces ? " " : "", reduces && op->reduction < 3 ? reductions[op->reduction] : "", op->count,
                 op->dtype < LS_DTYPE_COUNT ? dtypes[op->dtype] : "?");
    if (op->peer != UINT32_MAX && bytes > 0 && bytes < LS_RANK_SNAPSHOT_OP_WORDS_BYTES) {
        const char *relation = op->kind == LS_COMM_SEND      ? "to"
                               : op->kind == LS_COMM_RECEIVE ? "from"
                                                             : "root";
        snprintf(words_out + bytes, (size_t)(LS_RANK_SNAPSHOT_OP_WORDS_BYTES - bytes), " %s %" PRIu32,
                 relation, op->peer);
    }
}
