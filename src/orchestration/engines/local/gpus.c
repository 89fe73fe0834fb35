// SPDX-License-Identifier: Apache-2.0
/*
 * GPUs by NVIDIA's management library, which comes with the driver: how many, what kind, how busy.
 *
 * Its calls can take long, or hang with a device that is lost: a thread makes them, once a second while somebody wants to know, and who asks gets the mean of what was
 * seen since he asked last. Numbers are in the order of the bus, as CUDA has them with CUDA_DEVICE_ORDER=PCI_BUS_ID.
 */
#include "orchestration/engines/local/local_internal.h"

#include "base/assert.h"
#include "base/library.h"
#include "base/log.h"
#include "orchestration/policy/topology.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPEN_LIMIT_S = 10, CLOSE_LIMIT_S = 1, SAMPLE_S = 1, NAME_BYTES = 96 };

/* As in nvml.h; 0 is success. */
typedef struct utilization {
    unsigned gpu, memory; /* percent of the last part of a second */
} utilization;

_Static_assert(LS_NODE_DEVICES_MAX == 64, "ls_local_gpus_take and the bits of a share have as many");

static struct {
    int (*init)(void);
    int (*shut_down)(void);
    int (*count)(unsigned *count_out);
    int (*handle)(unsigned index, void **device_out);
    int (*name)(void *device, char *name, unsigned limit);
    int (*utilization)(void *device, utilization *out);
} nvml;

typedef enum gpus_state { OPENING, OPEN, CLOSED } gpus_state;

struct ls_local_gpus {
    pthread_mutex_t lock;
    pthread_cond_t changed, wanted; /* its state; that something is wanted of it */
    gpus_state state;
    bool is_wanted, is_over;
    uint32_t count;
    char name[NAME_BYTES];
    void *devices[LS_NODE_DEVICES_MAX];
    uint64_t sums[LS_NODE_DEVICES_MAX]; /* percent */
    uint32_t samples;
};

static bool load(void)
{
    const ls_library_symbol symbols[] = {
        {"nvmlInit_v2", &nvml.init},
        {"nvmlShutdown", &nvml.shut_down},
        {"nvmlDeviceGetCount_v2", &nvml.count},
        {"nvmlDeviceGetHandleByIndex_v2", &nvml.handle},
        {"nvmlDeviceGetName", &nvml.name},
        {"nvmlDeviceGetUtilizationRates", &nvml.utilization},
    };
    return ls_library_load("libnvidia-ml.so.1", symbols, sizeof symbols / sizeof symbols[0]);
}

/* ---- the thread ---- */

static uint32_t find_devices(void *devices[LS_NODE_DEVICES_MAX], char name[NAME_BYTES])
{
    unsigned count = 0;
    if (nvml.count(&count) != 0) {
        return 0;
    }
    count = count < LS_NODE_DEVICES_MAX ? count : LS_NODE_DEVICES_MAX;
    for (unsigned i = 0; i < count; i++) {
        if (nvml.handle(i, &devices[i]) != 0) {
            return 0;
        }
    }
    if (count > 0 && nvml.name(devices[0], name, NAME_BYTES) != 0) {
        name[0] = '\0';
    }
    name[NAME_BYTES - 1] = '\0';
    return count;
}

/* False: not all can tell, as those that are cut into parts can't. */
static bool sample(const ls_local_gpus *g, uint32_t percent[LS_NODE_DEVICES_MAX])
{
    for (uint32_t i = 0; i < g->count; i++) {
        utilization now = {0};
        if (nvml.utilization(g->devices[i], &now) != 0) {
            return false;
        }
        percent[i] = now.gpu < 100 ? now.gpu : 100;
    }
    return true;
}

static void set_state(ls_local_gpus *g, gpus_state state)
{
    g->state = state;
    pthread_cond_broadcast(&g->changed);
}

static struct timespec from_now(int seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    return until;
}

/* With the lock; without it while the library is called. */
static void sample_until_over(ls_local_gpus *g)
{
    while (!g->is_over) {
        if (!g->is_wanted) {
            pthread_cond_wait(&g->wanted, &g->lock);
            continue;
        }
        uint32_t percent[LS_NODE_DEVICES_MAX];
        pthread_mutex_unlock(&g->lock);
        const bool is_known = sample(g, percent);
        pthread_mutex_lock(&g->lock);
        for (uint32_t i = 0; is_known && i < g->count; i++) {
            g->sums[i] += percent[i];
        }
        g->samples += is_known;
        const struct timespec until = from_now(SAMPLE_S);
        while (!g->is_over && pthread_cond_timedwait(&g->wanted, &g->lock, &until) != ETIMEDOUT) {
        }
    }
}

static void *watch_gpus(void *context)
{
    ls_local_gpus *g = context;
    void *devices[LS_NODE_DEVICES_MAX];
    char name[NAME_BYTES] = "";
    const bool is_loaded = load() && nvml.init() == 0;
    const uint32_t count = is_loaded ? find_devices(devices, name) : 0;
    pthread_mutex_lock(&g->lock);
    g->count = count;
    memcpy(g->devices, devices, count * sizeof devices[0]);
    memcpy(g->name, name, sizeof name);
    set_state(g, OPEN);
    if (count > 0) {
        sample_until_over(g);
    }
    pthread_mutex_unlock(&g->lock);
    if (is_loaded) {
        nvml.shut_down();
    }
    pthread_mutex_lock(&g->lock);
    set_state(g, CLOSED);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* ---- the loop's side ---- */

/* With the lock. False: not within the time. */
static bool wait_for(ls_local_gpus *g, gpus_state state, int limit_s)
{
    const struct timespec until = from_now(limit_s);
    while (g->state < state && pthread_cond_timedwait(&g->changed, &g->lock, &until) != ETIMEDOUT) {
    }
    return g->state >= state;
}

static bool start_thread(ls_local_gpus *g)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool is_started = pthread_create(&thread, NULL, watch_gpus, g) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (is_started) {
        pthread_detach(thread);
    }
    return is_started;
}

ls_local_gpus *ls_local_gpus_open(void)
{
    ls_local_gpus *g = calloc(1, sizeof *g);
    LS_ASSERT(g && "out of memory for devices");
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    pthread_cond_init(&g->wanted, NULL);
    if (!start_thread(g)) {
        free(g);
        return NULL;
    }
    pthread_mutex_lock(&g->lock);
    const bool is_open = wait_for(g, OPEN, OPEN_LIMIT_S);
    const uint32_t count = is_open ? g->count : 0;
    pthread_mutex_unlock(&g->lock);
    if (!is_open) {
        ls_log_warn("libnvidia-ml.so.1 has not answered for %d s: it is not asked any more", OPEN_LIMIT_S);
    }
    if (count == 0) {
        ls_local_gpus_close(g);
        return NULL;
    }
    return g;
}

uint32_t ls_local_gpus_count(const ls_local_gpus *g)
{
    return g->count; /* does not change once it is open */
}

const char *ls_local_gpus_name(const ls_local_gpus *g)
{
    return g->name;
}

bool ls_local_gpus_take(ls_local_gpus *g, bool goes_on, uint32_t permille_out[64])
{
    pthread_mutex_lock(&g->lock);
    const bool is_known = g->samples > 0;
    for (uint32_t i = 0; i < g->count; i++) {
        permille_out[i] = is_known ? (uint32_t)(10 * g->sums[i] / g->samples) : 0;
        g->sums[i] = 0;
    }
    g->samples = 0;
    if (goes_on && !g->is_wanted) {
        pthread_cond_signal(&g->wanted);
    }
    g->is_wanted = goes_on;
    pthread_mutex_unlock(&g->lock);
    return is_known;
}

void ls_local_gpus_close(ls_local_gpus *g)
{
    if (!g) {
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->is_over = true;
    pthread_cond_signal(&g->wanted);
    const bool has_ended = wait_for(g, CLOSED, CLOSE_LIMIT_S);
    pthread_mutex_unlock(&g->lock);
    if (has_ended) { /* else a call hangs, and what it will touch must stay */
        pthread_cond_destroy(&g->changed);
        pthread_cond_destroy(&g->wanted);
        pthread_mutex_destroy(&g->lock);
        free(g);
    }
}
