// SPDX-License-Identifier: Apache-2.0
/* A watchdog on a simulated clock over flight files of puppets; processes that are stopped or
 * killed are real. */
#ifndef LS_TESTS_EXECUTION_WATCH_WORLD_H
#define LS_TESTS_EXECUTION_WATCH_WORLD_H

#include "comm/flight/flight_puppets.h"

#include "execution/hang/watchdog.h"
#include "sim/env/sim_env.h"

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MS = 1000000, EVENTS_MAX = 16 };
static const uint64_t second = 1000000000u;

typedef struct world {
    puppets puppets;
    ls_sim *sim;
    ls_watchdog *watch;
    double hang_timeout_s;
    bool stacks;
    uint32_t ranks; /* ranks of the run; 0: as many as puppets */
    uint32_t here;  /* puppets of this host, the first ones; 0: all */
    bool only_sees, can_ask;
    bool hands_over, refuses; /* whether there is a hung(), and what it returns */
    uint32_t wanted;          /* rank + 1 of which something is wanted outside operations */
    bool spare_traced;
    uint32_t hung_count, hung_rank[EVENTS_MAX];
    int32_t hung_pid[EVENTS_MAX];
    uint64_t hung_ns[EVENTS_MAX];
    char hung[4096];
    uint32_t looks, seen, asked; /* looks, ranks in the last look, stacks asked for */
    uint32_t event_count, fatal_count;
    char names[EVENTS_MAX][32];
    uint64_t times_ns[EVENTS_MAX];
    json_t *events[EVENTS_MAX];
    char fatal[4096];
    uint64_t fatal_ns;
} world;

static inline void on_event(void *context, const char *name, json_t *fields)
{
    world *w = context;
    assert_true(w->event_count < EVENTS_MAX);
    snprintf(w->names[w->event_count], sizeof w->names[0], "%s", name);
    w->times_ns[w->event_count] = ls_sim_now_ns(w->sim);
    w->events[w->event_count++] = fields;
}

static inline void on_fatal(void *context, ls_status status, const char *text)
{
    world *w = context;
    assert_int_equal(status, LS_ERR_MISMATCH);
    snprintf(w->fatal, sizeof w->fatal, "%s", text);
    w->fatal_ns = ls_sim_now_ns(w->sim);
    w->fatal_count++;
}

static inline void on_seen(void *context, ls_rank_snapshot *snapshots, uint32_t count)
{
    world *w = context;
    assert_true(count == 0 || snapshots[0].has_file);
    w->looks++;
    w->seen = count;
}

static inline bool on_ask(void *context, uint32_t rank, int32_t pid)
{
    world *w = context;
    assert_int_equal(rank, 1);
    assert_int_equal(pid, getpid());
    w->asked++;
    return w->can_ask;
}

static inline bool on_hung(void *context, uint32_t rank, int32_t pid, const char *text)
{
    world *w = context;
    assert_true(w->hung_count < EVENTS_MAX);
    snprintf(w->hung, sizeof w->hung, "%s", text);
    w->hung_rank[w->hung_count] = rank;
    w->hung_pid[w->hung_count] = pid;
    w->hung_ns[w->hung_count++] = ls_sim_now_ns(w->sim);
    return !w->refuses;
}

static inline bool on_wanted(void *context, uint32_t rank, bool is_idle)
{
    const world *w = context;
    return is_idle && w->wanted == rank + 1;
}

static inline void program(ls_env *env, const char *const *argv, void *context)
{
    (void)argv;
    world *w = context;
    static const uint32_t local[PUPPETS_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    const ls_watchdog_options options = {.env = env,
                                         .flight_dir = w->puppets.folder,
                                         .ranks = w->ranks ? w->ranks : w->puppets.count,
                                         .local = local,
                                         .local_count = w->here ? w->here : w->puppets.count,
                                         .seen = w->only_sees ? on_seen : NULL,
                                         .ask_stack = on_ask,
                                         .hang_timeout_s = w->hang_timeout_s,
                                         .no_stacks = !w->stacks,
                                         .hung = w->hands_over ? on_hung : NULL,
                                         .is_wanted = on_wanted,
                                         .spare_traced = w->spare_traced,
                                         .event = on_event,
                                         .fatal = on_fatal,
                                         .context = w};
    assert_int_equal(ls_watchdog_create(&options, &w->watch), LS_OK);
}

static inline void world_init(world *w, uint32_t ranks)
{
    *w = (world){.hang_timeout_s = 60};
    puppets_init(&w->puppets, ranks);
    puppets_join_world(&w->puppets);
    w->sim = ls_sim_create(&(ls_sim_settings){.seed = 1});
}

static inline void world_start(world *w)
{
    ls_sim_start(w->sim, ls_sim_host_add(w->sim, "node"), program, w);
}

static inline void world_release(world *w)
{
    ls_watchdog_destroy(w->watch);
    ls_sim_destroy(w->sim);
    for (uint32_t i = 0; i < w->event_count; i++) {
        json_decref(w->events[i]);
    }
    puppets_release(&w->puppets);
}

static inline void run_until(world *w, uint64_t ns)
{
    ls_sim_run(w->sim, ns, 1000000);
}

static const char *text_of(const world *w, uint32_t event, const char *key)
{
    const char *text = json_string_value(json_object_get(w->events[event], key));
    return text ? text : "";
}

static inline void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part)) {
        fail_msg("'%s' is not in '%s'", part, text);
    }
}

static const puppet_op all_reduce = {
    .comm_id = 1, .slot = 1, .kind = LS_COMM_ALL_REDUCE, .count = 1000, .line = 120};

static inline puppet_op at(puppet_op op, uint64_t seq, uint64_t begin_ns)
{
    op.seq = seq;
    op.begin_ns = begin_ns;
    return op;
}

/* One operation that all ranks enter at `ns` and leave 1 ms later after waiting `wait_ns`. */
static inline void all_do(world *w, uint64_t seq, uint64_t ns, uint64_t wait_ns)
{
    for (uint32_t rank = 0; rank < w->puppets.count; rank++) {
        ls_flight_record *record = puppet_begin(&w->puppets, rank, at(all_reduce, seq, ns));
        puppet_end(&w->puppets, rank, record, ns + MS, wait_ns);
    }
}

/* The puppet of `rank` gets a process of its own. */
static inline pid_t give_process(world *w, uint32_t rank, int seconds)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when an assertion fails above */
        for (int i = 0; i < seconds * 100; i++) {
            usleep(10000);
        }
        _exit(0);
    }
    puppet_take(&w->puppets, rank);
    ls_flight_mapped->header.pid = child;
    ls_flight_mapped->header.pid_start = 0;
    return child;
}

/* An agent sends snapshots of the puppet `rank` every 100 ms until `ns`. */
static inline void far_until(world *w, uint32_t rank, ls_process_state process, uint64_t ns)
{
    while (ls_sim_now_ns(w->sim) < ns) {
        ls_flight_reader *reader = NULL;
        static ls_rank_snapshot snapshot;
        assert_int_equal(ls_flight_reader_open(puppet_path(&w->puppets, rank), &reader), LS_OK);
        assert_int_equal(ls_rank_snapshot_take(reader, ls_sim_now_ns(w->sim), &snapshot), LS_OK);
        ls_flight_reader_close(reader);
        snapshot.process = process;
        ls_watchdog_see(w->watch, &snapshot, 1);
        const uint64_t next_ns = ls_sim_now_ns(w->sim) + 100 * MS;
        run_until(w, next_ns < ns ? next_ns : ns);
    }
}

#endif
