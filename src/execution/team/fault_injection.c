// SPDX-License-Identifier: Apache-2.0
#include "execution/team/fault_injection.h"

#include "comm/flight/flight.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_kind(const char *text, ls_fault_injection_kind *kind_out)
{
    static const char *const names[] = {NULL, "delay", "hang", "die", "stop"};
    for (int kind = LS_FAULT_INJECTION_DELAY; kind <= LS_FAULT_INJECTION_STOP; kind++) {
        if (strcmp(text, names[kind]) == 0) {
            *kind_out = (ls_fault_injection_kind)kind;
            return true;
        }
    }
    return false;
}

static bool read_phase(const char *text, ls_fault_injection_phase *phase_out)
{
    static const char *const names[LS_PHASES] = {"begin", "enter",   "plan",  "leaf",    "merge",
                                                 "ready", "sum",     "claim", "agreed",  "update",
                                                 "block", "updated", "end",   "finished"};
    for (int phase = 0; phase < LS_PHASES; phase++) {
        if (strcmp(text, names[phase]) == 0) {
            *phase_out = (ls_fault_injection_phase)phase;
            return true;
        }
    }
    return false;
}

static bool read_field(const char *key, const char *value, void *fault_injection)
{
    ls_fault_injection *fault = fault_injection;
    char *end = NULL;
    const uint64_t number = strtoull(value, &end, 10);
    if (strcmp(key, "do") == 0) {
        return read_kind(value, &fault->kind);
    }
    if (strcmp(key, "at") == 0) {
        return read_phase(value, &fault->phase);
    }
    if (end == value || *end || number > 1000000000) {
        return false;
    }
    if (strcmp(key, "rank") == 0) {
        fault->rank = (uint32_t)number;
    } else if (strcmp(key, "step") == 0) {
        fault->step = number;
    } else if (strcmp(key, "ms") == 0) {
        fault->ms = number;
    } else if (strcmp(key, "nth") == 0) {
        fault->nth = number;
    } else {
        return false;
    }
    return true;
}

ls_status ls_test_fault_parse(const char *text, const char *usage, ls_test_fault_read *read, void *fault)
{
    char copy[256];
    if (strlen(text) >= sizeof copy) {
        return ls_fail(LS_ERR_INVALID, "LS_TEST_FAULT has %zu characters; at most %zu are allowed",
                       strlen(text), sizeof copy - 1);
    }
    memcpy(copy, text, strlen(text) + 1);
    char *rest = NULL;
    for (char *field = strtok_r(copy, ",", &rest); field; field = strtok_r(NULL, ",", &rest)) {
        char *value = strchr(field, '=');
        if (value) {
            *value++ = '\0';
        }
        if (!value || !read(field, value, fault)) {
            return ls_fail(LS_ERR_INVALID, "LS_TEST_FAULT has an unknown field '%s' in '%s': write %s", field,
                           text, usage);
        }
    }
    return LS_OK;
}

static ls_status parse(const char *text, ls_fault_injection *fault_out)
{
    ls_fault_injection fault = {.step = 1, .ms = 20, .nth = 1};
    LS_TRY(ls_test_fault_parse(text, "do=delay|hang|die|stop[,rank=N][,step=N][,ms=N][,at=PHASE][,nth=N]",
                               read_field, &fault));
    *fault_out = fault;
    return LS_OK;
}

ls_status ls_fault_injection_from_environment(ls_fault_injection *fault_out)
{
    const char *text = getenv("LS_TEST_FAULT");
    *fault_out = (ls_fault_injection){0};
    return text && strncmp(text, "do=", 3) == 0 ? parse(text, fault_out) : LS_OK;
}

static void act(const ls_fault_injection *fault)
{
    switch (fault->kind) {
    case LS_FAULT_INJECTION_DIE:
        kill(getpid(), SIGKILL);
        break;
    case LS_FAULT_INJECTION_STOP:
        kill(getpid(), SIGSTOP);
        break;
    case LS_FAULT_INJECTION_HANG:
        for (;;) {
            usleep(100000); /* the kernel ends this process with its agent */
        }
    default:
        usleep((useconds_t)(fault->ms * 1000));
        break;
    }
}

bool ls_fault_injection_is_due(ls_fault_injection *fault, ls_fault_injection_phase phase, uint64_t step)
{
    return fault && fault->kind >= LS_FAULT_INJECTION_HANG && fault->phase == phase &&
           fault->step == step + 1 && ++fault->met == fault->nth;
}

void ls_fault_injection_at(ls_fault_injection *fault, ls_fault_injection_phase phase, uint64_t step)
{
    if (ls_fault_injection_is_due(fault, phase, step)) {
        act(fault);
    }
}

void ls_fault_injection_meet(const ls_fault_injection *fault, uint32_t rank, uint64_t step)
{
    if (fault->kind == LS_FAULT_INJECTION_NONE || fault->phase != LS_PHASE_BEGIN || fault->rank != rank ||
        step + 1 < fault->step || (fault->kind != LS_FAULT_INJECTION_DELAY && step + 1 != fault->step)) {
        return;
    }
    ls_flight_position(step + 1, 0);
    ls_flight_activity(LS_ACTIVITY_DATA, 0);
    act(fault);
}
