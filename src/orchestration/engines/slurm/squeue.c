// SPDX-License-Identifier: Apache-2.0
#include "orchestration/engines/slurm/squeue.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lines of fields ---- */

/* Takes the next line of *at, without its end; NULL when there is none. Skips empty lines. */
static char *next_line(char **at)
{
    while (**at == '\n') {
        ++*at;
    }
    if (!**at) {
        return NULL;
    }
    char *line = *at;
    *at += strcspn(line, "\n");
    if (**at) {
        *(*at)++ = 0;
    }
    return line;
}

/* Splits a line into `count` fields without blanks around them. The last separator may be missing;
 * the last field may contain separators. */
static bool split(char *line, char *fields[], size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char *end = strchr(line, '|');
        if (!end && i + 1 < count) {
            return false;
        }
        char *next = end ? end + 1 : line + strlen(line);
        end = end ? end : next;
        while (*line == ' ') {
            line++;
        }
        while (end > line && end[-1] == ' ') {
            end--;
        }
        *end = 0;
        fields[i] = line;
        line = next;
    }
    return true;
}

static bool read_u32(const char *text, uint32_t *out)
{
    char *end = NULL;
    const unsigned long value = strtoul(text, &end, 10);
    if (end == text || *end || text[0] == '-' || value > UINT32_MAX) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

/* ---- jobs ---- */

static ls_slurm_state read_state(const char *name)
{
    static const struct {
        const char *name;
        ls_slurm_state state;
    } states[] = {
        {"RUNNING", LS_SLURM_RUNS},
        {"COMPLETING", LS_SLURM_ENDS},
        {"SUSPENDED", LS_SLURM_RUNS},
        {"RESIZING", LS_SLURM_RUNS},
        {"SIGNALING", LS_SLURM_RUNS},
        {"STOPPED", LS_SLURM_RUNS},
        {"STAGE_OUT", LS_SLURM_RUNS},
        {"COMPLETED", LS_SLURM_DONE},
        {"FAILED", LS_SLURM_DONE},
        {"CANCELLED", LS_SLURM_CANCELLED},
        {"REVOKED", LS_SLURM_CANCELLED},
        {"TIMEOUT", LS_SLURM_LIMIT},
        {"DEADLINE", LS_SLURM_LIMIT},
        {"OUT_OF_MEMORY", LS_SLURM_MEMORY},
        {"PREEMPTED", LS_SLURM_PREEMPTED},
        {"NODE_FAIL", LS_SLURM_NODE_LOST},
        {"BOOT_FAIL", LS_SLURM_NODE_LOST},
        {"LAUNCH_FAILED", LS_SLURM_NODE_LOST},
        {"RECONFIG_FAIL", LS_SLURM_NODE_LOST},
    };
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        if (strcmp(name, states[i].name) == 0) {
            return states[i].state;
        }
    }
    return LS_SLURM_WAITS;
}

/* Slurm stores the status of wait(2). */
static int exit_code_of(uint32_t waited)
{
    return waited & 0x7f ? 128 + (int)(waited & 0x7f) : (int)(waited >> 8 & 0xff);
}

/* A number of seconds; 0 for "N/A" and the like. */
static double read_time(const char *text)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    return end != text && !*end && value > 0 && value < 1e12 ? value : 0;
}

/* The first of "n[01-03,7]", "a,b" or "n3", in place. */
static const char *first_node(char *list)
{
    char *end = list + strcspn(list, "[,");
    if (*end == '[') {
        const size_t digits = strcspn(end + 1, "-,]");
        memmove(end, end + 1, digits);
        end += digits;
    }
    *end = 0;
    return list;
}

static bool read_row(char *line, ls_slurm_row *row)
{
    enum { REF, USER, STATE, REASON, START, RESTARTS, CODE, NODES, NODE, COMMENT, FIELDS };
    char *fields[FIELDS];
    uint32_t code = 0;
    if (!split(line, fields, FIELDS) || !read_u32(fields[RESTARTS], &row->restarts) ||
        !read_u32(fields[USER], &row->uid) || !read_u32(fields[CODE], &code) || !fields[REF][0]) {
        return false;
    }
    row->ref = fields[REF];
    row->state = read_state(fields[STATE]);
    row->reason = fields[REASON];
    row->start_s = read_time(fields[START]);
    row->exit_code = exit_code_of(code);
    if (!read_u32(fields[NODES], &row->nodes)) { /* a range while it waits: "2-4" */
        row->nodes = 0;
    }
    row->node = first_node(fields[NODE]);
    /* the last separator belongs to the format */
    row->comment = fields[COMMENT];
    return true;
}

static size_t count_lines(const char *text)
{
    size_t count = 1;
    for (const char *at = text; *at; at++) {
        count += *at == '\n';
    }
    return count;
}

ls_status ls_slurm_rows_read(ls_arena *arena, const char *text, ls_slurm_row **rows_out, size_t *count_out)
{
    ls_slurm_row *rows = ls_arena_new(arena, ls_slurm_row, count_lines(text));
    char *copy = ls_arena_strdup(arena, text), *line;
    const char *bad = NULL;
    size_t count = 0;
    while ((line = next_line(&copy))) {
        const char *whole = ls_arena_strdup(arena, line);
        if (read_row(line, &rows[count])) {
            count++;
        } else if (!bad) {
            bad = whole;
        }
    }
    if (bad && count == 0) {
        return ls_fail(LS_ERR_DATA,
                       "Slurm's command squeue printed the line '%.120s', which does not have the 10 columns "
                       "that were asked for",
                       bad);
    }
    *rows_out = rows;
    *count_out = count;
    return LS_OK;
}

/* "0:9": the exit code, and the signal. */
static bool read_exit(const char *text, int *code_out)
{
    unsigned code = 0, signal = 0;
    if (sscanf(text, "%3u:%3u", &code, &signal) != 2 || code > 255 || signal > 127) {
        return false;
    }
    *code_out = signal > 0 ? 128 + (int)signal : (int)code;
    return true;
}

static bool read_past(char *line, ls_slurm_row *row)
{
    enum { REF, USER, STATE, EXIT, START, END, NODE, FIELDS };
    char *fields[FIELDS];
    *row = (ls_slurm_row){.reason = "", .comment = ""};
    if (!split(line, fields, FIELDS) || !fields[REF][0] || !read_u32(fields[USER], &row->uid) ||
        !read_exit(fields[EXIT], &row->exit_code)) {
        return false;
    }
    fields[STATE][strcspn(fields[STATE], " ")] = 0; /* "CANCELLED by 1000" */
    row->ref = fields[REF];
    row->state = read_state(fields[STATE]);
    row->start_s = read_time(fields[START]);
    row->end_s = read_time(fields[END]);
    row->node = first_node(fields[NODE]);
    return true;
}

void ls_slurm_history_read(ls_arena *arena, const char *text, ls_slurm_row **rows_out, size_t *count_out)
{
    ls_slurm_row *rows = ls_arena_new(arena, ls_slurm_row, count_lines(text));
    char *copy = ls_arena_strdup(arena, text), *line;
    size_t count = 0;
    while ((line = next_line(&copy))) {
        count += read_past(line, &rows[count]);
    }
    *rows_out = rows;
    *count_out = count;
}

const char *ls_slurm_comment(ls_arena *arena, uint64_t home, uint64_t job, uint32_t epoch)
{
    return ls_arena_printf(arena, "lockstep:%016" PRIx64 ":%" PRIu64 ":%" PRIu32, home, job, epoch);
}

bool ls_slurm_comment_read(const char *comment, uint64_t home, uint64_t *job_out, uint32_t *epoch_out)
{
    uint64_t of_home = 0, job = 0;
    uint32_t epoch = 0;
    int used = 0;
    if (sscanf(comment, "lockstep:%16" SCNx64 ":%20" SCNu64 ":%10" SCNu32 "%n", &of_home, &job, &epoch,
               &used) != 3 ||
        comment[used] || of_home != home) {
        return false;
    }
    *job_out = job;
    *epoch_out = epoch;
    return true;
}

/* ---- reasons ---- */

typedef struct reason {
    const char *begins; /* how Slurm's reason begins */
    const char *stage, *text;
} reason;

/* The first one that matches counts; longer words come before those they begin with. */
static const reason reasons[] = {
    {"None", "starting", "Slurm has not looked at it yet"},
    {"Resources", "gang", "it is next, but not enough devices are free"},
    {"Priority", "priority", "jobs of higher priority wait before it"},
    {"DependencyNeverSatisfied", "impossible", "a job it depends on did not end as it must"},
    {"Dependency", "dependency", "a job it depends on has not ended"},
    {"BeginTime", "begin", "its begin time has not come, or the pause after a requeue is not over"},
    {"JobHeld", "hold", "it is held"},
    {"JobHoldMaxRequeue", "hold", "it was requeued too often and is held"},
    {"job requeued in held state", "hold", "it was requeued in the held state"},
    {"JobArrayTaskLimit", "group", "as many tasks of its array run as may run at once"},
    {"JobArrayTask", "group", "as many tasks of its array run as may run at once"},
    {"PartitionTimeLimit", "impossible", "its time limit is longer than the partition allows"},
    {"PartitionNodeLimit", "impossible", "it needs more nodes than the partition has"},
    {"PartitionConfig", "impossible", "the partition does not allow what it asks for"},
    {"PartitionDown", "gang", "its partition is down"},
    {"PartitionInactive", "gang", "its partition does not start jobs for now"},
    {"BadConstraints", "impossible", "no node has what it asks for"},
    {"AccountNotAllowed", "impossible", "its account may not use the partition"},
    {"InvalidAccount", "impossible", "Slurm does not know its account"},
    {"InvalidQOS", "impossible", "Slurm does not know its quality of service"},
    {"QOSNotAllowed", "impossible", "its quality of service is not allowed here"},
    {"ReqNodeNotAvail", "placement", "a node it needs is down, drained or reserved"},
    {"Reserv", "reservation", "the nodes are reserved for another time or other users"},
    {"NodeDown", "placement", "a node it needs is down"},
    {"Licenses", "gang", "not enough licences are free"},
    {"QOS", "quota", "a limit of its quality of service is reached"},
    {"Assoc", "quota", "a limit of its account is reached"},
    {"Max", "quota", "a limit of its account is reached"},
    {"launch failed", "hold", "it could not be started and is held"},
};

static const reason *find_reason(const char *word)
{
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        if (strncmp(word, reasons[i].begins, strlen(reasons[i].begins)) == 0) {
            return &reasons[i];
        }
    }
    return NULL;
}

const char *ls_slurm_reason_stage(const char *word)
{
    const reason *found = find_reason(word);
    return found ? found->stage : "gang";
}

const char *ls_slurm_reason_text(ls_arena *arena, const char *word)
{
    const reason *found = find_reason(word);
    return ls_arena_printf(arena, "%s: %s", word, found ? found->text : "a reason that only Slurm explains");
}

/* ---- nodes ---- */

/* The first kind of GPU in "gpu:h100:8(S:0-1)", "gpu:8", "(null)", or a list with commas. */
static void read_gpus(ls_arena *arena, const char *text, ls_slurm_node *node)
{
    const char *at = strncmp(text, "gpu", 3) == 0 ? text : strstr(text, ",gpu");
    node->gpu_kind = "";
    if (!at) {
        return;
    }
    at += strcspn(at, ":");
    if (*at != ':') {
        return;
    }
    at++;
    const size_t bytes = strcspn(at, ":,(");
    if (at[bytes] == ':') {
        node->gpu_kind = ls_arena_strndup(arena, at, bytes);
        at += bytes + 1;
    }
    const unsigned long count = strtoul(at, NULL, 10);
    node->gpus = count <= 1024 ? (uint32_t)count : 0;
    if (node->gpus > 0 && !node->gpu_kind[0]) {
        node->gpu_kind = "gpu";
    }
}

/* Up is "idle", "mixed", "allocated" or "completing", with marks after it; "down*", "drained",
 * "unknown" and others are not. */
static bool is_up(const char *state)
{
    static const char *const up[] = {"idle", "mixed", "allocated", "completing", "reserved", "planned"};
    for (size_t i = 0; i < sizeof up / sizeof up[0]; i++) {
        if (strncmp(state, up[i], strlen(up[i])) == 0) {
            return !strchr(state, '*'); /* it does not respond */
        }
    }
    return false;
}

static bool add_line(ls_arena *arena, char *line, ls_slurm_cluster *cluster)
{
    enum { NAME, CPUS, MEMORY, GRES, STATE, PARTITION, FIELDS };
    char *fields[FIELDS];
    if (!split(line, fields, FIELDS) || !fields[NAME][0]) {
        return false;
    }
    ls_slurm_node node = {.name = fields[NAME], .is_up = is_up(fields[STATE])};
    char *memory_end = NULL;
    const unsigned long memory = strtoul(fields[MEMORY], &memory_end, 10); /* "2000", "2000+" */
    if (!read_u32(fields[CPUS], &node.cpus) || memory_end == fields[MEMORY]) {
        return false;
    }
    node.memory_mib = memory < UINT32_MAX ? (uint32_t)memory : UINT32_MAX;
    read_gpus(arena, fields[GRES], &node);
    /* sinfo --Node sorts by name: the lines of one node are adjacent */
    if (cluster->node_count == 0 || strcmp(cluster->nodes[cluster->node_count - 1].name, node.name) != 0) {
        cluster->nodes[cluster->node_count++] = node;
    }
    size_t i = 0;
    for (; i < cluster->partition_count && strcmp(cluster->partitions[i], fields[PARTITION]) != 0;) {
        i++;
    }
    if (i == cluster->partition_count) {
        cluster->partitions[cluster->partition_count++] = fields[PARTITION];
    }
    return true;
}

ls_status ls_slurm_cluster_read(ls_arena *arena, const char *text, ls_slurm_cluster *cluster_out)
{
    const size_t lines = count_lines(text);
    ls_slurm_cluster cluster = {.nodes = ls_arena_new(arena, ls_slurm_node, lines),
                                .partitions = ls_arena_new(arena, const char *, lines)};
    char *copy = ls_arena_strdup(arena, text), *line;
    while ((line = next_line(&copy))) {
        const char *whole = ls_arena_strdup(arena, line);
        if (!add_line(arena, line, &cluster)) {
            return ls_fail(LS_ERR_DATA,
                           "Slurm's command sinfo printed the line '%.120s', which does not have the 6 "
                           "columns that were asked for",
                           whole);
        }
    }
    if (cluster.node_count == 0) {
        return ls_fail(LS_ERR_DATA, "Slurm's command sinfo lists no nodes; does SLURM_CONF name the "
                                    "configuration of the right cluster?");
    }
    *cluster_out = cluster;
    return LS_OK;
}
