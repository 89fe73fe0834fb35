// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/prometheus.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void begin(ls_text *text, const char *name, const char *type, const char *help)
{
    ls_text_printf(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* The format wants backslash, quote and line feed escaped. */
static void append_label(ls_text *text, const char *name, const char *value, bool is_first)
{
    ls_text_printf(text, "%s%s=\"", is_first ? "" : ",", name);
    for (const char *at = value; *at; at++) {
        if (*at == '\n') {
            ls_text_append(text, "\\n");
        } else {
            if (*at == '\\' || *at == '"') {
                ls_text_append(text, "\\");
            }
            ls_text_append_bytes(text, at, 1);
        }
    }
    ls_text_append(text, "\"");
}

static void append_value(ls_text *text, double value)
{
    ls_text_append(text, " ");
    ls_text_append_f64(text, value);
    ls_text_append(text, "\n");
}

/* A sample with at most one label. */
static void append_sample(ls_text *text, const char *name, const char *label, const char *value_of_label,
                          double value)
{
    ls_text_append(text, name);
    if (label) {
        ls_text_append(text, "{");
        append_label(text, label, value_of_label, true);
        ls_text_append(text, "}");
    }
    append_value(text, value);
}

static const char *string_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

/* The member of each item as a gauge with the item's name as label; null is left out. */
static void append_each(ls_text *text, const json_t *items, const char *label, const char *key,
                        const char *name, const char *help)
{
    begin(text, name, "gauge", help);
    for (size_t i = 0; i < json_array_size(items) && i < LS_PROMETHEUS_ITEMS_MAX; i++) {
        const json_t *item = json_array_get(items, i), *value = json_object_get(item, key);
        if (json_is_number(value)) {
            append_sample(text, name, label, string_of(item, label), json_number_value(value));
        }
    }
}

static void append_status(ls_text *text, const json_t *status)
{
    begin(text, "lockstep_info", "gauge", "Version and engine of the daemon.");
    ls_text_append(text, "lockstep_info{");
    append_label(text, "version", string_of(status, "version"), true);
    append_label(text, "engine", string_of(status, "engine"), false);
    ls_text_append(text, "} 1\n");
    begin(text, "lockstep_jobs", "gauge", "Jobs in each state, of those the daemon has in memory.");
    const char *state = NULL;
    json_t *count = NULL;
    json_object_foreach(json_object_get(status, "states"), state, count)
    {
        append_sample(text, "lockstep_jobs", "state", state, json_number_value(count));
    }
    begin(text, "lockstep_queue_jobs", "gauge", "Waiting jobs of each priority.");
    const char *priority = NULL;
    json_object_foreach(json_object_get(status, "waiting"), priority, count)
    {
        append_sample(text, "lockstep_queue_jobs", "priority", priority, json_number_value(count));
    }
    static const struct {
        const char *key, *name, *help;
    } gauges[] = {
        {"devices_wanted", "lockstep_queue_devices", "Devices that waiting jobs ask for."},
        {"waits_s", "lockstep_queue_oldest_seconds", "Time that the longest-waiting job has waited."},
        {"devices", "lockstep_devices", "Devices of all nodes."},
        {"devices_used", "lockstep_devices_used", "Devices that jobs have."},
        {"devices_idle", "lockstep_devices_idle",
         "Devices that jobs have and do not use (setting idle.after)."},
    };
    for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++) {
        const json_t *value = json_object_get(status, gauges[i].key);
        if (json_is_number(value)) {
            begin(text, gauges[i].name, "gauge", gauges[i].help);
            append_sample(text, gauges[i].name, NULL, NULL, json_number_value(value));
        }
    }
    begin(text, "lockstep_paused", "gauge", "1 if changes are refused because the disk is full.");
    append_sample(text, "lockstep_paused", NULL, NULL, json_is_string(json_object_get(status, "paused")));
}

static void append_nodes(ls_text *text, const json_t *nodes)
{
    append_each(text, nodes, "node", "devices", "lockstep_node_devices", "Devices of a node.");
    append_each(text, nodes, "node", "used", "lockstep_node_devices_used",
                "Devices of a node that jobs have.");
    begin(text, "lockstep_node_up", "gauge", "1 if the node is up.");
    for (size_t i = 0; i < json_array_size(nodes) && i < LS_PROMETHEUS_ITEMS_MAX; i++) {
        const json_t *node = json_array_get(nodes, i);
        append_sample(text, "lockstep_node_up", "node", string_of(node, "node"),
                      strcmp(string_of(node, "state"), "up") == 0);
    }
}

static void append_accounts(ls_text *text, const json_t *accounts)
{
    append_each(text, accounts, "account", "devices", "lockstep_account_devices",
                "Devices that jobs of an account have.");
    append_each(text, accounts, "account", "quota", "lockstep_account_quota_devices",
                "Devices that are an account's own.");
    append_each(text, accounts, "account", "running", "lockstep_account_jobs_running",
                "Jobs of an account that have devices.");
    append_each(text, accounts, "account", "waiting", "lockstep_account_jobs_waiting",
                "Waiting jobs of an account.");
}

static void append_usage(ls_text *text, const json_t *accounts)
{
    static const struct {
        const char *key, *name;
    } kinds[] = {
        {"allocated_h", "allocated"}, {"idle_h", "idle"}, {"waiting_h", "waiting"}, {"lost_h", "lost"}};
    static const char name[] = "lockstep_account_device_seconds_total";
    begin(text, name, "counter",
          "Device-seconds of an account: allocated, the idle and the lost part of these, and waited for.");
    for (size_t i = 0; i < json_array_size(accounts) && i < LS_PROMETHEUS_ITEMS_MAX; i++) {
        const json_t *account = json_array_get(accounts, i);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            const json_t *hours = json_object_get(account, kinds[k].key);
            if (json_is_number(hours)) {
                ls_text_printf(text, "%s{", name);
                append_label(text, "account", string_of(account, "account"), true);
                append_label(text, "kind", kinds[k].name, false);
                ls_text_append(text, "}");
                append_value(text, 3600.0 * json_number_value(hours));
            }
        }
    }
}

/* GPUs under the names of NVIDIA's DCGM exporter, with one label; who has them is in one other
 * metric. DCGM counts memory in MiB. */
static void append_gpus(ls_text *text, const json_t *node)
{
    static const struct {
        const char *key, *name, *help;
        double scale;
    } kinds[] = {
        {"utilization", "DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", 100.0},
        {"memory_bytes", "DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", 1.0 / (1 << 20)},
        {"power_w", "DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", 1.0},
        {"temperature_c", "DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", 1.0},
        {"throttled", "lockstep_gpu_throttled", "1 if heat, power or hardware hold the clock down.", 1.0},
        {"ecc_errors", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Double-bit volatile ECC errors.", 1.0},
    };
    const json_t *readings = json_object_get(node, "readings");
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0] && json_array_size(readings) > 0; k++) {
        begin(text, kinds[k].name, "gauge", kinds[k].help);
        for (size_t i = 0; i < json_array_size(readings); i++) {
            const json_t *value = json_object_get(json_array_get(readings, i), kinds[k].key);
            char gpu[24];
            snprintf(gpu, sizeof gpu, "%zu", i);
            if (json_is_number(value)) {
                append_sample(text, kinds[k].name, "gpu", gpu, kinds[k].scale * json_number_value(value));
            }
        }
    }
}

/* Joins GPUs, by their number, to the jobs that have them. */
static void append_holders(ls_text *text, const json_t *node)
{
    const json_t *readings = json_object_get(node, "readings");
    if (json_array_size(readings) == 0) {
        return;
    }
    begin(text, "lockstep_job_info", "gauge", "1 for each GPU that a job has.");
    for (size_t i = 0; i < json_array_size(readings); i++) {
        const json_t *reading = json_array_get(readings, i), *job = json_object_get(reading, "job");
        char number[24];
        if (json_is_integer(job)) {
            snprintf(number, sizeof number, "%zu", i);
            ls_text_append(text, "lockstep_job_info{");
            append_label(text, "gpu", number, true);
            snprintf(number, sizeof number, "%" PRId64, (int64_t)json_integer_value(job));
            append_label(text, "job", number, false);
            append_label(text, "account", string_of(reading, "account"), false);
            ls_text_append(text, "} 1\n");
        }
    }
}

static void append_energy(ls_text *text, const json_t *usage)
{
    static const char name[] = "lockstep_account_energy_joules_total";
    const json_t *accounts = json_object_get(usage, "accounts"), *machine = json_object_get(usage, "machine");
    if (!json_is_object(machine)) {
        return;
    }
    begin(text, name, "counter", "Joules used by the jobs of an account.");
    for (size_t i = 0; i < json_array_size(accounts) && i < LS_PROMETHEUS_ITEMS_MAX; i++) {
        const json_t *account = json_array_get(accounts, i), *energy = json_object_get(account, "energy_j");
        if (json_is_number(energy)) {
            append_sample(text, name, "account", string_of(account, "account"), json_number_value(energy));
        }
    }
    begin(text, "lockstep_free_energy_joules_total", "counter", "Joules used while no job had the devices.");
    append_sample(text, "lockstep_free_energy_joules_total", NULL, NULL,
                  json_number_value(json_object_get(machine, "free_energy_j")));
}

void ls_prometheus_append(const ls_prometheus_answers *answers, ls_text *text)
{
    append_status(text, answers->status);
    append_nodes(text, json_object_get(answers->nodes, "nodes"));
    append_accounts(text, json_object_get(answers->accounts, "accounts"));
    append_usage(text, json_object_get(answers->usage, "accounts"));
    append_gpus(text, json_array_get(json_object_get(answers->nodes, "nodes"), 0));
    append_holders(text, json_array_get(json_object_get(answers->nodes, "nodes"), 0));
    append_energy(text, answers->usage);
}

/* ---- this process ---- */

static double seconds_of(struct timeval time)
{
    return (double)time.tv_sec + 1e-6 * (double)time.tv_usec;
}

static double resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file) {
        if (fscanf(file, "%*u %llu", &pages) != 1) {
            pages = 0;
        }
        fclose(file);
    }
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

void ls_prometheus_append_process(ls_text *text)
{
    struct rusage used;
    begin(text, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.");
    append_sample(text, "process_resident_memory_bytes", NULL, NULL, resident_bytes());
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        begin(text, "process_cpu_seconds_total", "counter",
              "Total user and system CPU time spent in seconds.");
        append_sample(text, "process_cpu_seconds_total", NULL, NULL,
                      seconds_of(used.ru_utime) + seconds_of(used.ru_stime));
    }
}
