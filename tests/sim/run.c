// SPDX-License-Identifier: Apache-2.0
#include "sim.h"

#include "base/random.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint64_t sim_draw(sim_run *run, const char *name, uint64_t min, uint64_t max)
{
    const ls_random_key key = ls_random_stream(run->seed, LS_RANDOM_SIMULATION);
    const uint64_t value = min + ls_random_u64(key, run->draw_count++, 1) % (max - min + 1);
    const size_t room = sizeof run->drawn - run->drawn_bytes;
    const int bytes = snprintf(run->drawn + run->drawn_bytes, room, "%s=%" PRIu64 " ", name, value);
    run->drawn_bytes += bytes > 0 && (size_t)bytes < room ? (size_t)bytes : 0;
    return value;
}

bool sim_draw_fault(sim_run *run, const char *name, sim_fault fault, unsigned percent)
{
    /* also when not allowed: other draws stay what they are */
    const uint64_t drawn = sim_draw(run, name, 0, 99);
    return (run->faults & fault) && drawn < percent;
}

bool sim_is_mutated(const sim_run *run, const char *name)
{
    return run->mutation && strcmp(run->mutation, name) == 0;
}

void sim_event(sim_run *run, const char *format, ...)
{
    char *line = run->events[run->event_count++ % SIM_EVENTS_KEPT];
    const double now_s = run->sim ? 1e-9 * (double)ls_sim_now_ns(run->sim) : 0.0;
    const int bytes = snprintf(line, SIM_EVENT_BYTES, "%10.6f  ", now_s);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + bytes, (size_t)(SIM_EVENT_BYTES - bytes), format, arguments);
    va_end(arguments);
    if (run->print_events) {
        printf("%s\n", line);
    }
}

void sim_fail(sim_run *run, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(run->failure, sizeof run->failure, format, arguments);
    va_end(arguments);
    longjmp(run->failed, 1);
}

void sim_create(sim_run *run, const ls_sim_settings *settings)
{
    ls_sim_settings seeded = *settings;
    seeded.seed = run->seed;
    run->sim = ls_sim_create(&seeded);
}

void sim_until(sim_run *run, uint64_t until_ns, uint64_t events_max, void (*check)(void *context),
               void *context)
{
    for (uint64_t events = 0; ls_sim_run(run->sim, until_ns, 1) == 1; events++) {
        run->steps++;
        if (events >= events_max) {
            sim_fail(run, "more than %" PRIu64 " events: something goes round in circles", events_max);
        }
        if (check) {
            check(context);
        }
    }
}

bool sim_run_seed(sim_run *run, const sim_world *world)
{
    run->world = world->name;
    run->sim = NULL;
    run->drawn_bytes = 0;
    run->event_count = run->draw_count = run->steps = 0;
    run->drawn[0] = run->failure[0] = '\0';
    if (setjmp(run->failed) == 0) {
        world->run(run);
        ls_sim_destroy(run->sim);
        run->sim = NULL;
        return true;
    }
    return false; /* what the world had is left as it is: the program is about to end */
}

static void print_commit(void)
{
    char line[64] = "unknown\n";
    FILE *git = popen("git -C '" LS_SOURCE_DIR "' describe --always --dirty --abbrev=12 2>/dev/null", "r");
    if (git) {
        if (!fgets(line, sizeof line, git)) {
            snprintf(line, sizeof line, "unknown\n");
        }
        pclose(git);
    }
    fprintf(stderr, "commit   %s", line);
}

void sim_report(const sim_run *run)
{
    fprintf(stderr, "FAILED   world %s, seed %" PRIu64 "%s%s\n", run->world, run->seed,
            run->mutation ? ", mutation " : "", run->mutation ? run->mutation : "");
    fprintf(stderr, "why      %s\n", run->failure);
    fprintf(stderr, "drawn    %s\n", run->drawn);
    print_commit();
    const uint64_t first = run->event_count > SIM_EVENTS_KEPT ? run->event_count - SIM_EVENTS_KEPT : 0;
    fprintf(stderr, "events   the last %" PRIu64 " of %" PRIu64 "\n", run->event_count - first,
            run->event_count);
    for (uint64_t i = first; i < run->event_count; i++) {
        fprintf(stderr, "  %s\n", run->events[i % SIM_EVENTS_KEPT]);
    }
    fprintf(stderr, "replay   lockstep-sim --world %s --seed %" PRIu64 " --events%s%s\n", run->world,
            run->seed, run->mutation ? " --mutation " : "", run->mutation ? run->mutation : "");
}
