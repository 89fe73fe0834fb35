// SPDX-License-Identifier: Apache-2.0
#include "env/nvml.h"

#include "base/assert.h"
#include "base/log.h"
#include "env/library.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPEN_LIMIT_S = 10, CLOSE_LIMIT_S = 1, SAMPLE_S = 1, NAME_BYTES = 96 };

/* Percent over the last sampling period of the driver; as nvml.h declares it. */
typedef struct utilization {
    unsigned gpu, memory;
} utilization;

/* The functions of the library; each returns 0 for success. */
static struct {
    int (*init)(void);
    int (*shut_down)(void);
    int (*count)(unsigned *count_out);
    int (*handle)(unsigned index, void **device_out);
    int (*name)(void *device, char *name, unsigned limit);
    int (*utilization)(void *device, utilization *out);
} library;

typedef struct memory {
    unsigned long long total, free, used;
} memory;

/* Those that may be missing, or that not every GPU supports. */
static struct {
    int (*memory)(void *device, memory *out);
    int (*power)(void *device, unsigned *mw_out);
    int (*energy)(void *device, unsigned long long *mj_out);
    int (*temperature)(void *device, int sensor, unsigned *celsius_out);
    int (*throttle)(void *device, unsigned long long *reasons_out);
    int (*ecc)(void *device, int kind, int counter, unsigned long long *count_out);
} more;

enum { SENSOR_GPU = 0, ECC_DOUBLE_BIT = 1, ECC_SINCE_DRIVER = 0 };

/* Reasons for a lower clock that are no choice of the user: power cap, hardware slowdown, heat,
 * power brake. */
#define THROTTLED (0x4u | 0x8u | 0x20u | 0x40u | 0x80u)

typedef enum thread_state { OPENING, OPEN, CLOSED } thread_state;

struct ls_nvml {
    /* Guards all fields; never held while the library is called. */
    pthread_mutex_t lock;
    /* changed: the thread has set `state`. wanted: is_wanted or is_over was set. */
    pthread_cond_t changed, wanted;
    thread_state state;
    bool is_wanted, is_over;
    uint32_t count;
    char name[NAME_BYTES];
    void *devices[LS_NVML_DEVICES_MAX];
    /* Sums of `samples` samples, in percent. */
    uint64_t sums[LS_NVML_DEVICES_MAX];
    uint32_t samples;
    ls_nvml_reading readings[LS_NVML_DEVICES_MAX];
    bool has_readings;
    /* only the thread's: counters at the last sample, and when that was */
    unsigned long long last_mj[LS_NVML_DEVICES_MAX];
    double sampled_s;
};

static void load_more(void)
{
    const ls_library_symbol symbols[] = {
        {"nvmlDeviceGetMemoryInfo", &more.memory},
        {"nvmlDeviceGetPowerUsage", &more.power},
        {"nvmlDeviceGetTotalEnergyConsumption", &more.energy},
        {"nvmlDeviceGetTemperature", &more.temperature},
        {"nvmlDeviceGetCurrentClocksThrottleReasons", &more.throttle},
        {"nvmlDeviceGetTotalEccErrors", &more.ecc},
    };
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        (void)ls_library_load("libnvidia-ml.so.1", &symbols[i], 1);
    }
}

static bool load(void)
{
    const ls_library_symbol symbols[] = {
        {"nvmlInit_v2", &library.init},
        {"nvmlShutdown", &library.shut_down},
        {"nvmlDeviceGetCount_v2", &library.count},
        {"nvmlDeviceGetHandleByIndex_v2", &library.handle},
        {"nvmlDeviceGetName", &library.name},
        {"nvmlDeviceGetUtilizationRates", &library.utilization},
    };
    return ls_library_load("libnvidia-ml.so.1", symbols, sizeof symbols / sizeof symbols[0]);
}

/* ---- the thread ---- */

static uint32_t find_devices(void *devices[LS_NVML_DEVICES_MAX], char name[NAME_BYTES])
{
    unsigned count = 0;
    if (library.count(&count) != 0) {
        return 0;
    }
    count = count < LS_NVML_DEVICES_MAX ? count : LS_NVML_DEVICES_MAX;
    for (unsigned i = 0; i < count; i++) {
        if (library.handle(i, &devices[i]) != 0) {
            return 0;
        }
    }
    if (count > 0 && library.name(devices[0], name, NAME_BYTES) != 0) {
        name[0] = '\0';
    }
    name[NAME_BYTES - 1] = '\0';
    return count;
}

/* False: a device does not report its utilisation, as partitioned ones do not. */
static bool sample(const ls_nvml *g, uint32_t percent[LS_NVML_DEVICES_MAX])
{
    for (uint32_t i = 0; i < g->count; i++) {
        utilization now = {0};
        if (library.utilization(g->devices[i], &now) != 0) {
            return false;
        }
        percent[i] = now.gpu < 100 ? now.gpu : 100;
    }
    return true;
}

static double monotonic_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The energy of a device since its last sample, which was passed_s ago. */
static uint64_t energy_since(ls_nvml *g, uint32_t index, double passed_s, double power_w)
{
    unsigned long long now_mj = 0;
    if (more.energy && more.energy(g->devices[index], &now_mj) == 0) {
        const unsigned long long last_mj = g->last_mj[index];
        g->last_mj[index] = now_mj;
        return last_mj > 0 && now_mj > last_mj ? now_mj - last_mj : 0;
    }
    return power_w > 0.0 && passed_s > 0.0 ? (uint64_t)(1e3 * power_w * passed_s) : 0;
}

static ls_nvml_reading read_device(ls_nvml *g, uint32_t index, double passed_s)
{
    void *device = g->devices[index];
    memory ram = {0};
    unsigned mw = 0, celsius = 0;
    unsigned long long reasons = 0, errors = 0;
    ls_nvml_reading r = {NAN, NAN, NAN, NAN, NAN, NAN, NAN, g->readings[index].energy_mj};
    if (more.memory && more.memory(device, &ram) == 0) {
        r.memory_bytes = (double)ram.used;
        r.memory_max_bytes = (double)ram.total;
    }
    if (more.power && more.power(device, &mw) == 0) {
        r.power_w = 1e-3 * mw;
    }
    if (more.temperature && more.temperature(device, SENSOR_GPU, &celsius) == 0) {
        r.temperature_c = celsius;
    }
    if (more.throttle && more.throttle(device, &reasons) == 0) {
        r.is_throttled = (reasons & THROTTLED) != 0;
    }
    if (more.ecc && more.ecc(device, ECC_DOUBLE_BIT, ECC_SINCE_DRIVER, &errors) == 0) {
        r.ecc_errors = (double)errors;
    }
    r.energy_mj += energy_since(g, index, passed_s, r.power_w);
    return r;
}

static void read_devices(ls_nvml *g, ls_nvml_reading readings[LS_NVML_DEVICES_MAX])
{
    const double now_s = monotonic_s(), passed_s = g->sampled_s > 0.0 ? now_s - g->sampled_s : 0.0;
    for (uint32_t i = 0; i < g->count; i++) {
        readings[i] = read_device(g, i, passed_s);
    }
    g->sampled_s = now_s;
}

static void set_state(ls_nvml *g, thread_state state)
{
    g->state = state;
    pthread_cond_broadcast(&g->changed);
}

static struct timespec from_now(int seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    return until;
}

/* Called with the lock held; gives it up while the library is called. */
static void sample_until_over(ls_nvml *g)
{
    while (!g->is_over) {
        if (!g->is_wanted) {
            pthread_cond_wait(&g->wanted, &g->lock);
            continue;
        }
        uint32_t percent[LS_NVML_DEVICES_MAX];
        ls_nvml_reading readings[LS_NVML_DEVICES_MAX];
        pthread_mutex_unlock(&g->lock);
        const bool is_known = sample(g, percent);
        read_devices(g, readings);
        pthread_mutex_lock(&g->lock);
        for (uint32_t i = 0; i < g->count; i++) {
            g->sums[i] += is_known ? percent[i] : 0;
            readings[i].utilization = is_known ? 0.01 * percent[i] : NAN;
            g->readings[i] = readings[i];
        }
        g->has_readings = true;
        g->samples += is_known;
        const struct timespec until = from_now(SAMPLE_S);
        while (!g->is_over &&
               pthread_cond_clockwait(&g->wanted, &g->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT) {
        }
    }
}

static void *watch_gpus(void *context)
{
    ls_nvml *g = context;
    void *devices[LS_NVML_DEVICES_MAX];
    char name[NAME_BYTES] = "";
    const bool is_loaded = load() && library.init() == 0;
    if (is_loaded) {
        load_more();
    }
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
        library.shut_down();
    }
    pthread_mutex_lock(&g->lock);
    set_state(g, CLOSED);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

/* ---- the caller's side ---- */

/* Called with the lock held. False: the thread did not reach the state in time. */
static bool wait_for(ls_nvml *g, thread_state state, int limit_s)
{
    const struct timespec until = from_now(limit_s);
    while (g->state < state &&
           pthread_cond_clockwait(&g->changed, &g->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT) {
    }
    return g->state >= state;
}

static bool start_thread(ls_nvml *g)
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

ls_nvml *ls_nvml_open(void)
{
    ls_nvml *g = calloc(1, sizeof *g);
    LS_ASSERT(g && "not enough memory for the list of GPUs");
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
        ls_log_warn("libnvidia-ml.so.1 gave no answer within %d s; it will not be called again",
                    OPEN_LIMIT_S);
    }
    if (count == 0) {
        ls_nvml_close(g);
        return NULL;
    }
    return g;
}

uint32_t ls_nvml_count(const ls_nvml *g)
{
    return g->count; /* does not change after open */
}

const char *ls_nvml_name(const ls_nvml *g)
{
    return g->name;
}

bool ls_nvml_take_utilization(ls_nvml *g, bool keep_sampling, uint32_t *permille_out)
{
    pthread_mutex_lock(&g->lock);
    const bool is_known = g->samples > 0;
    for (uint32_t i = 0; i < g->count; i++) {
        permille_out[i] = is_known ? (uint32_t)(10 * g->sums[i] / g->samples) : 0;
        g->sums[i] = 0;
    }
    g->samples = 0;
    if (keep_sampling && !g->is_wanted) {
        pthread_cond_signal(&g->wanted);
    }
    g->is_wanted = keep_sampling;
    pthread_mutex_unlock(&g->lock);
    return is_known;
}

bool ls_nvml_read(ls_nvml *g, ls_nvml_reading *out)
{
    pthread_mutex_lock(&g->lock);
    const bool has_readings = g->has_readings;
    for (uint32_t i = 0; has_readings && i < g->count; i++) {
        out[i] = g->readings[i];
    }
    pthread_mutex_unlock(&g->lock);
    return has_readings;
}

void ls_nvml_close(ls_nvml *g)
{
    if (!g) {
        return;
    }
    pthread_mutex_lock(&g->lock);
    g->is_over = true;
    pthread_cond_signal(&g->wanted);
    const bool has_ended = wait_for(g, CLOSED, CLOSE_LIMIT_S);
    pthread_mutex_unlock(&g->lock);
    if (has_ended) { /* otherwise a call hangs and the thread still uses *g, so it is not freed */
        pthread_cond_destroy(&g->changed);
        pthread_cond_destroy(&g->wanted);
        pthread_mutex_destroy(&g->lock);
        free(g);
    }
}
