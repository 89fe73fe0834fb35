// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/scene.h"

#include "base/file.h"
#include "execution/diagnose/mismatch.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 512 };

/* So long a wait is enough where the cause leaves no doubt. */
static const double CERTAIN_S = 0.25;

const char *ls_verdict_name(ls_verdict verdict)
{
    static const char *const names[] = {
        [LS_VERDICT_HEALTHY] = "healthy", [LS_VERDICT_FINISHED] = "finished",
        [LS_VERDICT_HANG] = "hang",       [LS_VERDICT_MISMATCH] = "mismatch",
        [LS_VERDICT_DEAD] = "dead",       [LS_VERDICT_FAILED] = "failed",
        [LS_VERDICT_GONE] = "gone",
    };
    return names[verdict];
}

/* ---- opening ---- */

static void add_problem(ls_arena *arena, ls_scene *scene, const char *text)
{
    scene->problems[scene->problem_count++] = ls_arena_strdup(arena, text);
}

static bool is_newer(const ls_flight_header *a, const ls_flight_header *b)
{
    return a->epoch != b->epoch ? a->epoch > b->epoch : a->start_wall_s > b->start_wall_s;
}

/* Readers of all files; *newest_out is the header of the one begun last. */
static ls_status open_files(ls_arena *arena, const char *folder, ls_scene *scene,
                            ls_flight_header *newest_out)
{
    char **names = NULL;
    size_t count = 0;
    LS_TRY(ls_dir_list(arena, folder, &names, &count));
    scene->readers = ls_arena_new(arena, ls_flight_reader *, count);
    scene->problems = ls_arena_new(arena, char *, count);
    for (size_t i = 0; i < count; i++) {
        ls_flight_reader *reader = NULL;
        ls_flight_header header;
        if (strncmp(names[i], "rank-", 5) != 0 || strchr(names[i], '.')) {
            continue; /* rank-1.lost-2: of a process whose place another one has */
        }
        if (ls_flight_reader_open(ls_path_join(arena, folder, names[i]), &reader) != LS_OK ||
            ls_flight_reader_header(reader, &header) != LS_OK) {
            add_problem(arena, scene, ls_error_text());
            ls_flight_reader_close(reader);
            continue;
        }
        if (scene->count == 0 || is_newer(&header, newest_out)) {
            *newest_out = header;
        }
        scene->readers[scene->count++] = reader;
    }
    if (scene->count == 0) {
        return scene->problem_count > 0
                   ? ls_fail(LS_ERR_DATA, "no flight file can be read: %s", scene->problems[0])
                   : ls_fail(LS_ERR_NOT_FOUND, "%s holds no flight files (rank-0, rank-1, ...)", folder);
    }
    return LS_OK;
}

static uint64_t shared_ns(const ls_sight *sight, uint64_t ns)
{
    return ns + (uint64_t)sight->header.clock_offset_ns;
}

/* The last moment of which this rank tells. */
static uint64_t last_trace_ns(const ls_sight *sight)
{
    uint64_t ns = sight->now.since_ns;
    if (sight->has_last) {
        ns = sight->last.begin_ns > ns ? sight->last.begin_ns : ns;
        ns = sight->last.end_ns > ns ? sight->last.end_ns : ns;
    }
    return shared_ns(sight, ns);
}

/* Keeps files of this start of the run and takes a sight of each. */
static void take_sights(ls_arena *arena, ls_scene *scene, const ls_flight_header *newest)
{
    const uint64_t now_ns = ls_clock_monotonic_ns();
    const uint32_t opened = scene->count;
    scene->sights = ls_arena_new(arena, ls_sight, opened);
    scene->count = 0;
    for (uint32_t i = 0; i < opened; i++) {
        ls_flight_reader *reader = scene->readers[i];
        ls_sight *sight = &scene->sights[scene->count];
        const ls_status status = ls_sight_take(reader, now_ns, sight);
        if (status != LS_OK) {
            add_problem(arena, scene, ls_error_text());
        }
        if (status != LS_OK || sight->header.epoch != newest->epoch) {
            ls_flight_reader_close(reader);
            continue;
        }
        /* How many there were when it began: others may have come since, or gone. */
        const uint32_t size = sight->header.size > sight->rank ? sight->header.size : sight->rank + 1;
        scene->size = size > scene->size ? size : scene->size;
        scene->readers[scene->count++] = reader;
    }
    for (uint32_t i = 0; i < scene->count; i++) {
        const ls_sight *sight = &scene->sights[i];
        const bool ended = sight->process == LS_PROCESS_DEAD || sight->header.outcome != LS_FLIGHT_RUNNING;
        scene->is_live = scene->is_live || !ended;
        if (sight->process != LS_PROCESS_DEAD && sight->process != LS_PROCESS_UNKNOWN) {
            scene->now_ns = shared_ns(sight, now_ns);
        }
    }
    for (uint32_t i = 0; i < scene->count && (!scene->is_live || scene->now_ns == 0); i++) {
        const uint64_t ns = last_trace_ns(&scene->sights[i]);
        scene->now_ns = ns > scene->now_ns ? ns : scene->now_ns;
    }
}

static int by_rank(const void *a, const void *b)
{
    const ls_sight *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* rank-10 comes before rank-2 in the folder. */
static ls_status sort_by_rank(ls_arena *arena, ls_scene *scene)
{
    ls_flight_reader **sorted = ls_arena_new(arena, ls_flight_reader *, scene->count);
    qsort(scene->sights, scene->count, sizeof *scene->sights, by_rank);
    for (uint32_t i = 0; i < scene->count; i++) {
        ls_flight_header header;
        LS_TRY(ls_flight_reader_header(scene->readers[i], &header));
        for (uint32_t k = 0; k < scene->count; k++) {
            if (scene->sights[k].rank == header.rank && !sorted[k]) {
                sorted[k] = scene->readers[i];
                break;
            }
        }
    }
    memcpy(scene->readers, sorted, scene->count * sizeof *sorted);
    return LS_OK;
}

/* ---- back to the moment it ended ---- */

/* Puts the rank back that the run's own account names. */
static void rewind_named(ls_sight *sight, const ls_ending *ending)
{
    if (ending->kind == LS_ENDING_DEAD) {
        sight->process = LS_PROCESS_DEAD;
    } else if (ending->kind == LS_ENDING_HANG) {
        /* It was killed, or failed, because the run ended. */
        sight->process = ending->process;
        sight->header.outcome = LS_FLIGHT_RUNNING;
    }
}

static void rewind_sight(ls_sight *sight, const ls_ending *ending)
{
    const bool failed = sight->has_last && (sight->last.flags & LS_FLIGHT_FAILED);
    if (sight->rank == ending->rank) {
        rewind_named(sight, ending);
        return;
    }
    if (sight->header.outcome == LS_FLIGHT_ENDED_BADLY && failed && sight->open_count == 0) {
        sight->open[sight->open_count++] = sight->last;
    }
    /* Who was inside an operation waited, as far as one can tell now; how it ended then says nothing of whose fault it was. */
    if (sight->open_count > 0 && sight->header.outcome != LS_FLIGHT_FINISHED) {
        sight->process = LS_PROCESS_UNKNOWN;
        sight->header.outcome = LS_FLIGHT_RUNNING;
    }
}

/* ---- records ---- */

static void note_record(ls_scene *scene, const ls_sight *sight, const ls_flight_record *record)
{
    uint32_t size = 0;
    for (uint32_t i = 0; i < sight->comm_count; i++) {
        size = sight->comms[i].id == record->comm_id ? sight->comms[i].size : size;
    }
    const ls_arrival arrival = {.rank = sight->rank,
                                .comm_id = record->comm_id,
                                .comm_size = size,
                                .kind = record->kind,
                                .seq = record->seq,
                                .fingerprint = record->fingerprint,
                                .begin_ns = shared_ns(sight, record->begin_ns)};
    ls_disagreement disagreement;
    if (ls_arrivals_add(scene->arrivals, &arrival, &disagreement)) {
        /* The first operation about which ranks disagreed is the cause of what came later. */
        if (!scene->disagrees || disagreement.seq < scene->disagreement.seq) {
            scene->disagreement = disagreement;
        }
        scene->disagrees = true;
    }
    if (record->end_ns != 0) {
        ls_arrivals_end(scene->arrivals, record->comm_id, record->seq, record->kind, record->wait_us);
    }
}

/* All ranks in step, in pieces, so that none runs out of the window of another. */
static ls_status read_records(ls_arena *arena, ls_scene *scene)
{
    ls_flight_entry *entries = ls_arena_new(arena, ls_flight_entry, CHUNK);
    uint64_t *next = ls_arena_new(arena, uint64_t, scene->count);
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < scene->count; i++) {
            uint32_t count = 0;
            LS_TRY(ls_flight_reader_records(scene->readers[i], next[i], CHUNK, entries, &count, &next[i]));
            for (uint32_t k = 0; k < count; k++) {
                note_record(scene, &scene->sights[i], &entries[k].record);
            }
            more = more || count == CHUNK;
        }
    }
    return LS_OK;
}

/* The process that started the ranks, while they run; when they outlived it (job.lease), the one that the lock names. */
static void find_parent(ls_scene *scene, int32_t lock_pid)
{
    bool is_any_here = false;
    for (uint32_t i = 0; i < scene->count && scene->trainer_pid == 0; i++) {
        const ls_sight *sight = &scene->sights[i];
        const bool is_here = sight->process != LS_PROCESS_DEAD && sight->process != LS_PROCESS_UNKNOWN;
        is_any_here = is_any_here || is_here;
        const int32_t parent = is_here ? ls_process_parent(sight->header.pid) : 0;
        if (parent > 1) {
            scene->trainer_pid = parent;
            scene->is_trainer = parent == lock_pid;
            scene->trainer = ls_process_look(parent, 0);
        }
    }
    if (scene->trainer_pid == 0 && is_any_here && lock_pid > 0 &&
        ls_process_look(lock_pid, 0) == LS_PROCESS_DEAD) {
        scene->trainer_pid = lock_pid;
        scene->is_trainer = true;
        scene->trainer = LS_PROCESS_DEAD;
    }
}

/* Of whom the account says that the run ended by them, nobody else is a culprit. */
static void keep_named_culprits(ls_scene *scene)
{
    const ls_ending *ending = &scene->ending;
    const bool names_one =
        ending->rank != UINT32_MAX && (ending->kind == LS_ENDING_DEAD || ending->kind == LS_ENDING_HANG);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < scene->graph.culprit_count; i++) {
        if (names_one && scene->graph.culprits[i].rank == ending->rank) {
            scene->graph.culprits[kept++] = scene->graph.culprits[i];
        }
    }
    if (names_one || ending->kind == LS_ENDING_TRAINER_GONE) {
        scene->graph.culprit_count = kept;
    }
    if (ending->kind == LS_ENDING_TRAINER_GONE) {
        scene->graph.edge_count = 0; /* who waited in that moment had nothing to do with it */
    }
}

/* Puts the scene back to the moment it ended. */
static void look_back(ls_arena *arena, ls_scene *scene, const ls_run_account *account)
{
    ls_ending_find(account, scene->readers, scene->sights, scene->count, &scene->ending);
    scene->trainer_pid = account->trainer_pid;
    scene->is_trainer = account->trainer_pid > 0;
    scene->then = ls_arena_new(arena, ls_sight, scene->count);
    memcpy(scene->then, scene->sights, scene->count * sizeof *scene->then);
    for (uint32_t i = 0; i < scene->count; i++) {
        rewind_sight(&scene->then[i], &scene->ending);
    }
}

/* When the first of the ranks began, of this start of the run. */
static double begin_wall_s(const ls_scene *scene)
{
    double begin_s = INFINITY;
    for (uint32_t i = 0; i < scene->count; i++) {
        begin_s = fmin(begin_s, scene->sights[i].header.start_wall_s);
    }
    return begin_s;
}

static ls_status fill(ls_arena *arena, const char *run_dir, ls_scene *scene, const ls_flight_header *newest)
{
    ls_run_account account;
    take_sights(arena, scene, newest);
    LS_TRY(sort_by_rank(arena, scene));
    ls_run_account_read(arena, run_dir, begin_wall_s(scene), &account);
    scene->then = scene->sights;
    scene->ending.rank = UINT32_MAX;
    if (scene->is_live) {
        find_parent(scene, account.trainer_pid);
    } else {
        look_back(arena, scene, &account);
    }
    scene->arrivals = ls_arrivals_create(scene->size);
    LS_TRY(read_records(arena, scene));
    ls_graph_build(arena, scene->then, scene->count, scene->size, false, &scene->graph);
    keep_named_culprits(scene);
    return LS_OK;
}

ls_status ls_scene_open(ls_arena *arena, const char *run_dir, ls_scene *scene_out)
{
    ls_scene scene = {0};
    ls_flight_header newest = {0};
    const char *folder = ls_path_join(arena, run_dir, "flight");
    if (!ls_path_is_dir(run_dir)) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is no run directory: there is no such folder", run_dir);
    }
    if (!ls_path_is_dir(folder) && !ls_path_exists(ls_path_join(arena, run_dir, "run.yaml"))) {
        return ls_fail(LS_ERR_NOT_FOUND, "%s is no run directory: no run.yaml", run_dir);
    }
    if (!ls_path_is_dir(folder)) {
        return ls_fail(LS_ERR_NOT_FOUND,
                       "%s has no folder flight: the run was trained by one process, or has not begun",
                       run_dir);
    }
    ls_status status = open_files(arena, folder, &scene, &newest);
    if (status == LS_OK) {
        status = fill(arena, run_dir, &scene, &newest);
    }
    if (status != LS_OK) {
        ls_scene_close(&scene);
        return status;
    }
    *scene_out = scene;
    return LS_OK;
}

void ls_scene_close(ls_scene *scene)
{
    for (uint32_t i = 0; i < scene->count; i++) {
        ls_flight_reader_close(scene->readers[i]);
    }
    ls_arrivals_destroy(scene->arrivals);
    *scene = (ls_scene){0};
}

/* ---- verdict ---- */

double ls_scene_waited_s(const ls_scene *scene, const ls_culprit *culprit)
{
    for (uint32_t i = 0; i < scene->count; i++) {
        const ls_sight *sight = &scene->then[i];
        if (sight->rank == culprit->op_rank) {
            const uint64_t since_ns = shared_ns(sight, culprit->since_ns);
            return scene->now_ns > since_ns ? 1e-9 * (double)(scene->now_ns - since_ns) : 0.0;
        }
    }
    return 0.0;
}

static bool is_certain(ls_cause cause)
{
    return cause == LS_CAUSE_DEAD || cause == LS_CAUSE_FINISHED || cause == LS_CAUSE_FAILED ||
           cause == LS_CAUSE_LEFT || cause == LS_CAUSE_STOPPED || cause == LS_CAUSE_TRACED ||
           cause == LS_CAUSE_DEADLOCK;
}

/* Whether some rank left words or an exit status: then what can be seen is how it ended, not any moment of a power cut. */
static bool left_evidence(const ls_scene *scene)
{
    bool found = false;
    for (uint32_t i = 0; i < scene->count; i++) {
        const ls_flight_header *header = &scene->sights[i].header;
        found = found || header->outcome == LS_FLIGHT_ENDED_BADLY || header->has_exit_status;
    }
    return found;
}

static double least_wait_s(const ls_scene *scene, const ls_culprit *culprit, double hang_s)
{
    const bool certain = is_certain(culprit->cause);
    if (scene->is_live) {
        return certain ? CERTAIN_S : hang_s;
    }
    return left_evidence(scene) && culprit->cause != LS_CAUSE_INSIDE ? 0.0 : CERTAIN_S;
}

/* Of the culprits for whom others have waited too long the dead before all others, then the one waited for longest. */
static const ls_culprit *find_hang(const ls_scene *scene, double hang_s, double *waited_out)
{
    const ls_culprit *worst = NULL;
    for (uint32_t i = 0; i < scene->graph.culprit_count; i++) {
        const ls_culprit *culprit = &scene->graph.culprits[i];
        const double waited_s = ls_scene_waited_s(scene, culprit);
        if (!culprit->op || culprit->cause == LS_CAUSE_IDLE ||
            waited_s < least_wait_s(scene, culprit, hang_s)) {
            continue;
        }
        const bool is_dead = culprit->cause == LS_CAUSE_DEAD;
        const bool worst_is_dead = worst && worst->cause == LS_CAUSE_DEAD;
        if (!worst || (is_dead && !worst_is_dead) || (is_dead == worst_is_dead && waited_s > *waited_out)) {
            worst = culprit;
            *waited_out = waited_s;
        }
    }
    return worst;
}

static const ls_sight *find_failed(const ls_scene *scene)
{
    const ls_sight *failed = NULL;
    for (uint32_t i = 0; i < scene->count; i++) {
        const ls_sight *sight = &scene->sights[i];
        const bool ended_badly = sight->header.outcome == LS_FLIGHT_ENDED_BADLY;
        if (ended_badly && (!failed || last_trace_ns(sight) < last_trace_ns(failed))) {
            failed = sight;
        }
    }
    return failed;
}

static ls_verdict judge_end(const ls_scene *scene, ls_text *text)
{
    uint32_t finished = 0;
    uint64_t step = 0;
    for (uint32_t i = 0; i < scene->count; i++) {
        finished += scene->sights[i].header.outcome == LS_FLIGHT_FINISHED;
        step = scene->sights[i].now.step > step ? scene->sights[i].now.step : step;
    }
    if (finished == scene->count && finished == scene->size) {
        ls_text_printf(text, "finished: all %" PRIu32 " ranks ended well, the last step was %" PRIu64,
                       finished, step);
        return LS_VERDICT_FINISHED;
    }
    const ls_sight *failed = find_failed(scene);
    if (failed) {
        ls_text_printf(text,
                       "failed: rank %" PRIu32 " (%s, pid %" PRId32 ") failed in step %" PRIu64 ": %.*s",
                       failed->rank, failed->header.host, failed->header.pid, failed->now.step,
                       (int)strcspn(failed->words, "\n"), failed->words);
        return LS_VERDICT_FAILED;
    }
    ls_text_printf(text,
                   "gone: %" PRIu32 " of %" PRIu32 " ranks ended without a word in step %" PRIu64
                   " and nobody waited for anybody: the run was killed as a whole, or its machine was",
                   scene->size - finished, scene->size, step);
    return LS_VERDICT_GONE;
}

static ls_verdict judge_live(const ls_scene *scene, ls_text *text)
{
    uint64_t low = UINT64_MAX, high = 0;
    double longest_s = 0.0;
    for (uint32_t i = 0; i < scene->count; i++) {
        const uint64_t step = scene->sights[i].now.step;
        low = step < low ? step : low;
        high = step > high ? step : high;
    }
    for (uint32_t i = 0; i < scene->graph.culprit_count; i++) {
        const double waited_s = ls_scene_waited_s(scene, &scene->graph.culprits[i]);
        longest_s = waited_s > longest_s ? waited_s : longest_s;
    }
    ls_text_printf(text, "healthy: %" PRIu32 " of %" PRIu32 " ranks run, in step %" PRIu64, scene->count,
                   scene->size, low);
    if (high > low) {
        ls_text_printf(text, " to %" PRIu64, high);
    }
    ls_text_printf(text, "; nobody waits for longer than %.2f s", longest_s);
    if (scene->trainer == LS_PROCESS_DEAD && scene->is_trainer) {
        ls_text_printf(text,
                       ". But their trainer (pid %" PRId32
                       ") is gone: they wait for the same command to be run again, until job.lease is over",
                       scene->trainer_pid);
    }
    return LS_VERDICT_HEALTHY;
}

/* All ranks wait for orders, and who gives them is stopped. */
static bool trainer_holds_all(const ls_scene *scene, double *waited_out)
{
    uint64_t last_ns = 0;
    if (scene->trainer != LS_PROCESS_STOPPED && scene->trainer != LS_PROCESS_TRACED) {
        return false;
    }
    for (uint32_t i = 0; i < scene->count; i++) {
        const ls_sight *sight = &scene->sights[i];
        const uint64_t since_ns = shared_ns(sight, sight->now.since_ns);
        if (sight->now.activity != LS_ACTIVITY_IDLE || sight->open_count > 0) {
            return false;
        }
        last_ns = since_ns > last_ns ? since_ns : last_ns;
    }
    *waited_out = scene->now_ns > last_ns ? 1e-9 * (double)(scene->now_ns - last_ns) : 0.0;
    return *waited_out >= CERTAIN_S;
}

static void append_trainer(const ls_scene *scene, double waited_s, ls_text *text)
{
    ls_text_printf(text, "hang: all ranks wait for the %s (pid %" PRId32 "), which is %s, for %.2f s",
                   scene->is_trainer ? "trainer" : "process that started them", scene->trainer_pid,
                   scene->trainer == LS_PROCESS_TRACED
                       ? "held by a debugger"
                       : "stopped (by a signal such as SIGSTOP; SIGCONT lets it go on)",
                   waited_s);
}

static const ls_sight *sight_of(const ls_scene *scene, uint32_t rank)
{
    for (uint32_t i = 0; i < scene->count; i++) {
        if (scene->then[i].rank == rank) {
            return &scene->then[i];
        }
    }
    return NULL;
}

static ls_verdict judge_dead(const ls_scene *scene, const ls_describe *describe, ls_text *text,
                             const ls_culprit **culprit_out)
{
    const ls_ending *ending = &scene->ending;
    const ls_culprit alone = {
        .rank = ending->rank, .cause = LS_CAUSE_DEAD, .sight = sight_of(scene, ending->rank)};
    ls_text_append(text, "dead: ");
    if (scene->graph.culprit_count > 0 && scene->graph.culprits[0].cause == LS_CAUSE_DEAD) {
        *culprit_out = &scene->graph.culprits[0];
        ls_graph_append_culprit(&scene->graph, *culprit_out, describe, text);
    } else if (alone.sight) {
        ls_graph_append_cause(&alone, describe, text);
    } else {
        ls_text_append(text, ending->text);
    }
    return LS_VERDICT_DEAD;
}

static ls_verdict judge_trainer_gone(const ls_scene *scene, ls_text *text)
{
    uint64_t step = 0;
    for (uint32_t i = 0; i < scene->count; i++) {
        step = scene->sights[i].now.step > step ? scene->sights[i].now.step : step;
    }
    ls_text_printf(text, "gone: all %" PRIu32 " ranks ended together in step %" PRIu64 " because the trainer",
                   scene->size, step);
    if (scene->trainer_pid > 0) {
        ls_text_printf(text, " (pid %" PRId32 ")", scene->trainer_pid);
    }
    ls_text_append(text,
                   " is gone: it was killed, and no rank is at fault. The same command goes on from the "
                   "newest checkpoint");
    return LS_VERDICT_GONE;
}

/* By the run's own account. */
static ls_verdict judge_ending(const ls_scene *scene, const ls_describe *describe, ls_text *text,
                               const ls_culprit **culprit_out)
{
    switch (scene->ending.kind) {
    case LS_ENDING_DEAD:
        return judge_dead(scene, describe, text, culprit_out);
    case LS_ENDING_HANG:
        *culprit_out =
            scene->ending.rank != UINT32_MAX && scene->graph.culprit_count > 0 ? scene->graph.culprits : NULL;
        ls_text_append(text, scene->ending.text); /* "hang: ..." */
        return LS_VERDICT_HANG;
    case LS_ENDING_MISMATCH:
        ls_text_printf(text, "mismatch: %s", scene->ending.text);
        return LS_VERDICT_MISMATCH;
    default:
        return judge_trainer_gone(scene, text);
    }
}

static ls_verdict judge_culprit(const ls_scene *scene, const ls_culprit *culprit, double waited_s,
                                const ls_describe *describe, ls_text *text)
{
    const ls_verdict verdict = culprit->cause == LS_CAUSE_DEAD     ? LS_VERDICT_DEAD
                               : culprit->cause == LS_CAUSE_FAILED ? LS_VERDICT_FAILED
                                                                   : LS_VERDICT_HANG;
    ls_text_printf(text, "%s: ", ls_verdict_name(verdict));
    ls_graph_append_culprit(&scene->graph, culprit, describe, text);
    if (scene->is_live || waited_s >= CERTAIN_S) {
        ls_text_printf(text, ", for %.2f s", waited_s);
    }
    return verdict;
}

static bool judge_mismatch(const ls_scene *scene, ls_text *text)
{
    json_t *fields = NULL;
    ls_text found = {0};
    const bool is_one =
        scene->disagrees &&
        ls_mismatch_describe(scene->readers, scene->count, &scene->disagreement, &found, &fields) == LS_OK;
    if (is_one) {
        json_decref(fields);
        ls_text_printf(text, "mismatch: %s", ls_text_string(&found));
    }
    ls_text_release(&found);
    return is_one;
}

ls_verdict ls_scene_judge(const ls_scene *scene, double hang_s, const ls_describe *describe, ls_text *text,
                          const ls_culprit **culprit_out)
{
    double waited_s = 0.0;
    *culprit_out = NULL;
    if (judge_mismatch(scene, text)) {
        return LS_VERDICT_MISMATCH;
    }
    if (scene->ending.kind != LS_ENDING_UNKNOWN) {
        return judge_ending(scene, describe, text, culprit_out);
    }
    const ls_culprit *culprit = find_hang(scene, hang_s, &waited_s);
    if (culprit) {
        *culprit_out = culprit;
        return judge_culprit(scene, culprit, waited_s, describe, text);
    }
    if (scene->is_live && trainer_holds_all(scene, &waited_s)) {
        append_trainer(scene, waited_s, text);
        return LS_VERDICT_HANG;
    }
    return scene->is_live ? judge_live(scene, text) : judge_end(scene, text);
}
