// SPDX-License-Identifier: Apache-2.0
#include "execution/diagnose/sabotage.h"

#include "execution/comm/flight.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_kind(const char *text, ls_sabotage_kind *kind_out)
{
    static const char *const names[] = {NULL, "delay", "hang", "die", "stop"};
    for (int kind = LS_SABOTAGE_DELAY; kind <= LS_SABOTAGE_STOP; kind++) {
        if (strcmp(text, names[kind]) == 0) {
            *kind_out = (ls_sabotage_kind)kind;
            return true;
        }
    }
    return false;
}

static bool read_phase(const char *text, ls_sabotage_phase *phase_out)
{
    static const char *const names[LS_PHASES] = {"begin",   "enter", "leaf",    "merge",  "ready",
                                                 "sum",     "claim", "agreed",  "update", "block",
                                                 "updated", "end",   "finished"};
    for (int phase = 0; phase < LS_PHASES; phase++) {
        if (strcmp(text, names[phase]) == 0) {
            *phase_out = (ls_sabotage_phase)phase;
            return true;
        }
    }
    return false;
}

static bool read_field(const char *key, const char *value, ls_sabotage *sabotage)
{
    char *end = NULL;
    const uint64_t number = strtoull(value, &end, 10);
    if (strcmp(key, "do") == 0) {
        return read_kind(value, &sabotage->kind);
    }
    if (strcmp(key, "at") == 0) {
        return read_phase(value, &sabotage->phase);
    }
    if (end == value || *end || number > 1000000000) {
        return false;
    }
    if (strcmp(key, "rank") == 0) {
        sabotage->rank = (uint32_t)number;
    } else if (strcmp(key, "step") == 0) {
        sabotage->step = number;
    } else if (strcmp(key, "ms") == 0) {
        sabotage->ms = number;
    } else if (strcmp(key, "nth") == 0) {
        sabotage->nth = number;
    } else {
        return false;
    }
    return true;
}

ls_status ls_sabotage_parse(const char *text, ls_sabotage *sabotage_out)
{
    ls_sabotage sabotage = {.step = 1, .ms = 20, .nth = 1};
    char copy[256];
    snprintf(copy, sizeof copy, "%s", text);
    char *rest = NULL;
    for (char *field = strtok_r(copy, ",", &rest); field; field = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(field, '=');
        if (value) {
            *value++ = '\0';
        }
        if (!value || !read_field(field, value, &sabotage)) {
            return ls_fail(LS_ERR_INVALID,
                           "LS_TEST_FAULT: '%s' in '%s' is not understood: write "
                           "do=delay|hang|die|stop[,rank=N][,step=N][,ms=N][,at=PHASE][,nth=N]",
                           field, text);
        }
    }
    *sabotage_out = sabotage;
    return LS_OK;
}

ls_status ls_sabotage_from_environment(ls_sabotage *sabotage_out)
{
    const char *text = getenv("LS_TEST_FAULT");
    *sabotage_out = (ls_sabotage){0};
    return text && strncmp(text, "do=", 3) == 0 ? ls_sabotage_parse(text, sabotage_out) : LS_OK;
}

static void act(const ls_sabotage *sabotage)
{
    switch (sabotage->kind) {
    case LS_SABOTAGE_DIE:
        kill(getpid(), SIGKILL);
        break;
    case LS_SABOTAGE_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case LS_SABOTAGE_HANG:
        for (;;) {
            usleep(100000); /* the kernel ends it with its agent */
        }
    default:
        usleep((useconds_t)(sabotage->ms * 1000));
        break;
    }
}

bool ls_sabotage_is_due(ls_sabotage *sabotage, ls_sabotage_phase phase, uint64_t step)
{
    return sabotage && sabotage->kind >= LS_SABOTAGE_HANG && sabotage->phase == phase &&
           sabotage->step == step + 1 && ++sabotage->met == sabotage->nth;
}

void ls_sabotage_at(ls_sabotage *sabotage, ls_sabotage_phase phase, uint64_t step)
{
    if (ls_sabotage_is_due(sabotage, phase, step)) {
        act(sabotage);
    }
}

void ls_sabotage_meet(const ls_sabotage *sabotage, uint32_t rank, uint64_t step)
{
    if (sabotage->kind == LS_SABOTAGE_NONE || sabotage->phase != LS_PHASE_BEGIN || sabotage->rank != rank ||
        step + 1 < sabotage->step || (sabotage->kind != LS_SABOTAGE_DELAY && step + 1 != sabotage->step)) {
        return;
    }
    ls_flight_position(step + 1, 0);
    ls_flight_activity(LS_ACTIVITY_DATA, 0);
    act(sabotage);
}
