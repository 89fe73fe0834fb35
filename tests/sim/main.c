// SPDX-License-Identifier: Apache-2.0
#include "sim.h"

#include "base/clock.h"
#include "base/log.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct sim_options {
    const char *world, *mutation; /* NULL: all; none */
    uint64_t first, last;
    unsigned faults;
    bool events, verbose, all_mutations;
    double time_s; /* stop after; 0: never */
} sim_options;

static const char *const FAULT_NAMES[] = {"power", "kill", "disk", "net", "cut", "mistake", "hang"};

static sim_run the_run; /* of a failed assertion too */

static const char USAGE[] =
    "Usage: lockstep-sim [options]: the control plane in simulated worlds\n\n"
    "  --seed S         one seed\n"
    "  --seeds A..B     these, one after the other (default 1..100)\n"
    "  --world NAME     only this world (see --list); else all share the seeds\n"
    "  --faults LIST    only these classes, with commas, or none: power,kill,disk,net,cut,mistake,hang\n"
    "  --mutation NAME  break the program this way\n"
    "  --mutations      check that every mutation is found, within the seeds given\n"
    "  --time SECONDS   stop after this time and say how far it came\n"
    "  --events         print events as they happen\n"
    "  --verbose        a line per seed\n"
    "  --list           worlds and mutations\n";

static _Noreturn void usage_error(const char *what, const char *value)
{
    fprintf(stderr, "lockstep-sim: %s: %s\n%s", what, value, USAGE);
    exit(2);
}

static uint64_t parse_number(const char *text, const char **end_out)
{
    char *end = NULL;
    const uint64_t value = strtoull(text, &end, 10);
    if (end == text || (!end_out && *end != '\0')) {
        usage_error("not a number", text);
    }
    if (end_out) {
        *end_out = end;
    }
    return value;
}

static void parse_seeds(const char *text, sim_options *options)
{
    const char *end = NULL;
    options->first = parse_number(text, &end);
    if (strncmp(end, "..", 2) != 0) {
        usage_error("not A..B", text);
    }
    options->last = parse_number(end + 2, NULL);
}

static unsigned parse_faults(const char *text)
{
    unsigned faults = 0;
    for (const char *at = text; *at;) {
        const size_t bytes = strcspn(at, ",");
        bool found = bytes == 4 && strncmp(at, "none", 4) == 0;
        for (size_t i = 0; i < sizeof FAULT_NAMES / sizeof FAULT_NAMES[0]; i++) {
            if (strlen(FAULT_NAMES[i]) == bytes && strncmp(at, FAULT_NAMES[i], bytes) == 0) {
                faults |= 1u << i;
                found = true;
            }
        }
        if (!found) {
            usage_error("not a class of faults", at);
        }
        at += bytes + (at[bytes] == ',');
    }
    return faults;
}

static _Noreturn void list(void)
{
    for (size_t i = 0; i < sim_world_count; i++) {
        const sim_world *world = sim_worlds[i];
        printf("%-12s %s\n", world->name, world->text);
        for (size_t k = 0; k < world->mutation_count; k++) {
            printf("  %-24s %s\n", world->mutations[k].name, world->mutations[k].text);
        }
    }
    exit(0);
}

static bool parse_flag(const char *name, sim_options *options)
{
    if (strcmp(name, "--events") == 0) {
        options->events = true;
    } else if (strcmp(name, "--verbose") == 0) {
        options->verbose = true;
    } else if (strcmp(name, "--mutations") == 0) {
        options->all_mutations = true;
    } else if (strcmp(name, "--list") == 0) {
        list();
    } else if (strcmp(name, "--help") == 0) {
        fputs(USAGE, stdout);
        exit(0);
    } else {
        return false;
    }
    return true;
}

static void parse_value(const char *name, const char *value, sim_options *options)
{
    if (strcmp(name, "--seed") == 0) {
        options->first = options->last = parse_number(value, NULL);
    } else if (strcmp(name, "--seeds") == 0) {
        parse_seeds(value, options);
    } else if (strcmp(name, "--world") == 0) {
        options->world = value;
    } else if (strcmp(name, "--faults") == 0) {
        options->faults = parse_faults(value);
    } else if (strcmp(name, "--mutation") == 0) {
        options->mutation = value;
    } else if (strcmp(name, "--time") == 0) {
        options->time_s = (double)parse_number(value, NULL);
    } else {
        usage_error("unknown option", name);
    }
}

static void parse(int argc, char **argv, sim_options *options)
{
    for (int i = 1; i < argc; i++) {
        if (parse_flag(argv[i], options)) {
            continue;
        }
        if (i + 1 == argc) {
            usage_error("unknown option, or a value is missing", argv[i]);
        }
        parse_value(argv[i], argv[i + 1], options);
        i++;
    }
}

static const sim_world *find_world(const char *name)
{
    for (size_t i = 0; i < sim_world_count; i++) {
        if (strcmp(sim_worlds[i]->name, name) == 0) {
            return sim_worlds[i];
        }
    }
    usage_error("no such world (see --list)", name);
}

/* The world of a seed when none is named: shares by weight. */
static const sim_world *world_of(const sim_options *options, uint64_t seed)
{
    if (options->world) {
        return find_world(options->world);
    }
    unsigned total = 0;
    for (size_t i = 0; i < sim_world_count; i++) {
        total += sim_worlds[i]->weight;
    }
    unsigned at = (unsigned)(seed % total);
    for (size_t i = 0; i < sim_world_count; i++) {
        if (at < sim_worlds[i]->weight) {
            return sim_worlds[i];
        }
        at -= sim_worlds[i]->weight;
    }
    return sim_worlds[0];
}

/* A failed assertion of the product. */
static void aborted(int signal_number)
{
    (void)signal_number;
    if (the_run.failure[0] == '\0') {
        snprintf(the_run.failure, sizeof the_run.failure, "an assertion failed, see above");
    }
    sim_report(&the_run);
    _exit(1);
}

static bool run_seed(const sim_options *options, const sim_world *world, const char *mutation, uint64_t seed)
{
    the_run.seed = seed;
    the_run.faults = options->faults;
    the_run.mutation = mutation;
    the_run.print_events = options->events;
    return sim_run_seed(&the_run, world);
}

/* Runs in a process of its own, because a failure leaves everything allocated. Returns the seed
 * that found it; 0: none did. */
static uint64_t find_mutation(const sim_options *options, const sim_world *world, const char *name)
{
    int pipe_fds[2];
    if (pipe(pipe_fds) != 0) {
        return 0;
    }
    const pid_t child = fork();
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr)) {
            _exit(2);
        }
        signal(SIGABRT, SIG_DFL);
        for (uint64_t seed = options->first; seed <= options->last; seed++) {
            if (write(pipe_fds[1], &seed, sizeof seed) != sizeof seed) {
                _exit(2);
            }
            if (!run_seed(options, world, name, seed)) {
                _exit(1);
            }
        }
        _exit(0);
    }
    close(pipe_fds[1]);
    uint64_t seed = 0;
    while (child > 0 && read(pipe_fds[0], &seed, sizeof seed) == sizeof seed) {
    }
    close(pipe_fds[0]);
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        return 0;
    }
    const bool found = WIFSIGNALED(status) || WEXITSTATUS(status) == 1;
    return found ? seed : 0;
}

static int find_all_mutations(const sim_options *options)
{
    int missed = 0;
    for (size_t i = 0; i < sim_world_count; i++) {
        const sim_world *world = sim_worlds[i];
        if (options->world && strcmp(options->world, world->name) != 0) {
            continue;
        }
        for (size_t k = 0; k < world->mutation_count; k++) {
            const uint64_t seed = find_mutation(options, world, world->mutations[k].name);
            missed += seed == 0;
            if (seed) {
                printf("%-12s %-24s found with seed %" PRIu64 "\n", world->name, world->mutations[k].name,
                       seed);
            } else {
                printf("%-12s %-24s NOT FOUND\n", world->name, world->mutations[k].name);
            }
            fflush(stdout);
        }
    }
    return missed ? 1 : 0;
}

static int run_all(const sim_options *options)
{
    const double start_s = ls_clock_monotonic_s();
    uint64_t count = 0, steps = 0;
    for (uint64_t seed = options->first; seed <= options->last; seed++) {
        const sim_world *world = world_of(options, seed);
        if (!run_seed(options, world, options->mutation, seed)) {
            sim_report(&the_run);
            fflush(stderr);
            _exit(1);
        }
        if (options->verbose) {
            printf("seed %" PRIu64 " %s: %" PRIu64 " events, %s\n", seed, world->name, the_run.steps,
                   the_run.drawn);
        }
        count++;
        steps += the_run.steps;
        if (options->time_s > 0 && ls_clock_monotonic_s() - start_s > options->time_s) {
            break;
        }
    }
    printf("%" PRIu64 " seeds, %" PRIu64 " events, %.1f s\n", count, steps, ls_clock_monotonic_s() - start_s);
    return 0;
}

int main(int argc, char **argv)
{
    sim_options options = {.first = 1, .last = 100, .faults = SIM_FAULT_ALL};
    parse(argc, argv, &options);
    ls_log_init(&(ls_log_settings){.level = LS_LOG_ERROR, .rank = -1});
    signal(SIGABRT, aborted);
    return options.all_mutations ? find_all_mutations(&options) : run_all(&options);
}
