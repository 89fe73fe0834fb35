// SPDX-License-Identifier: Apache-2.0
#include "comm/group/environment.h"

#include "base/hash.h"
#include "comm/store/store_address.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The value of a variable that is set and not empty; otherwise NULL. */
static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && value[0] ? value : NULL;
}

/* Reads a decimal number in [min, max]. *out is unchanged if the variable is not set. */
static ls_status read_number(const char *name, uint64_t min, uint64_t max, uint64_t *out)
{
    const char *value = variable(name);
    if (!value) {
        return LS_OK;
    }
    errno = 0;
    const uint64_t number = strtoull(value, NULL, 10);
    if (strspn(value, "0123456789") != strlen(value) || errno != 0 || number < min || number > max) {
        return ls_fail(LS_ERR_INVALID, "%s is '%.100s': it must be a number from %llu to %llu", name, value,
                       (unsigned long long)min, (unsigned long long)max);
    }
    *out = number;
    return LS_OK;
}

/* Names of the variables with rank and size, which are set, and with the rank and size on this
 * host, which may be missing. */
typedef struct rank_variables {
    const char *rank, *size, *local_rank, *local_size;
} rank_variables;

static ls_status read_ranks(const rank_variables *names, ls_comm_options *out)
{
    uint64_t rank = 0, size = 1, local_rank = 0, local_size = 0;
    LS_TRY(read_number(names->size, 1, LS_COMM_SIZE_MAX, &size));
    LS_TRY(read_number(names->rank, 0, size - 1, &rank));
    LS_TRY(read_number(names->local_size, 1, size, &local_size));
    const uint64_t last_local = (local_size ? local_size : size) - 1;
    LS_TRY(read_number(names->local_rank, 0, last_local < rank ? last_local : rank, &local_rank));
    out->rank = (uint32_t)rank;
    out->size = (uint32_t)size;
    out->local_rank = (uint32_t)local_rank;
    out->local_size = (uint32_t)(local_size ? local_size : local_rank + 1);
    return LS_OK;
}

static ls_status set_coordinator(ls_comm_options *out, const char *host, uint32_t port)
{
    const char *format = strchr(host, ':') && host[0] != '[' ? "[%s]:%u" : "%s:%u";
    const int bytes = snprintf(out->coordinator, sizeof out->coordinator, format, host, port);
    if (bytes < 0 || (size_t)bytes >= sizeof out->coordinator) {
        return ls_fail(LS_ERR_INVALID, "the coordinator's host name '%.60s...' has more than %d characters",
                       host, LS_COMM_ADDRESS_BYTES - 8);
    }
    return LS_OK;
}

uint32_t ls_port_of_job(const char *id)
{
    const uint32_t first = 20000, count = 10000;
    return first + (uint32_t)(ls_xxh3(id, strlen(id), 0) % count);
}

ls_status ls_token_check(const char *token, const char *from)
{
    const size_t digits = strspn(token, "0123456789abcdefABCDEF");
    if (token[digits] != '\0' || digits < LS_TOKEN_DIGITS_MIN || digits >= LS_COMM_TOKEN_BYTES) {
        return ls_fail(
            LS_ERR_INVALID,
            "%s has %zu characters: a token consists of %d to %d hexadecimal digits (make one with "
            "openssl rand -hex 16)",
            from, strlen(token), LS_TOKEN_DIGITS_MIN, LS_COMM_TOKEN_BYTES - 1);
    }
    return LS_OK;
}

ls_status ls_environment_token(char token_out[LS_COMM_TOKEN_BYTES])
{
    const char *token = variable("LOCKSTEP_TOKEN");
    if (token) {
        LS_TRY(ls_token_check(token, "LOCKSTEP_TOKEN"));
    }
    snprintf(token_out, LS_COMM_TOKEN_BYTES, "%s", token ? token : "");
    return LS_OK;
}

/* ---- launchers ---- */

static ls_status read_lockstep(ls_comm_options *out)
{
    const char *names[] = {"LOCKSTEP_RANK", "LOCKSTEP_SIZE", "LOCKSTEP_COORDINATOR"};
    for (int i = 0; i < 3; i++) {
        if (!variable(names[i])) {
            return ls_fail(LS_ERR_INVALID,
                           "%s is not set, but one of LOCKSTEP_RANK, LOCKSTEP_SIZE and "
                           "LOCKSTEP_COORDINATOR is: set all three or none",
                           names[i]);
        }
    }
    LS_TRY(read_ranks(
        &(rank_variables){"LOCKSTEP_RANK", "LOCKSTEP_SIZE", "LOCKSTEP_LOCAL_RANK", "LOCKSTEP_LOCAL_SIZE"},
        out));
    LS_TRY(read_number("LOCKSTEP_EPOCH", 0, UINT64_MAX, &out->epoch));
    const char *coordinator = variable("LOCKSTEP_COORDINATOR");
    const ls_status status =
        strlen(coordinator) < sizeof out->coordinator
            ? ls_store_address_check(coordinator)
            : ls_fail(LS_ERR_INVALID, "the coordinator's address may have at most %d characters",
                      LS_COMM_ADDRESS_BYTES - 1);
    if (status != LS_OK) {
        return ls_fail_within(status, "LOCKSTEP_COORDINATOR");
    }
    snprintf(out->coordinator, sizeof out->coordinator, "%s", coordinator);
    return LS_OK;
}

/* MASTER_ADDR and MASTER_PORT. If torchrun's own store listens there, ours uses the next port. */
static ls_status read_master(ls_comm_options *out)
{
    uint64_t port = 0;
    const char *own_store = variable("TORCHELASTIC_USE_AGENT_STORE");
    const bool taken = own_store && strcmp(own_store, "True") == 0;
    LS_TRY(read_number("MASTER_PORT", 1, taken ? 65534 : 65535, &port));
    const char *host = out->local_size == out->size ? "127.0.0.1" : variable("MASTER_ADDR");
    return set_coordinator(out, host, (uint32_t)port + taken);
}

static ls_status read_torchrun(ls_comm_options *out, uint32_t *node_out)
{
    uint64_t node = 0;
    LS_TRY(read_ranks(&(rank_variables){"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, out));
    LS_TRY(read_number("GROUP_RANK", 0, LS_NODES_MAX, &node));
    *node_out = (uint32_t)node;
    out->serve_store = true;
    return read_master(out);
}

/* Open MPI sets a name for the job; with MPICH all processes of a host have the same parent. */
static uint32_t port_of_mpirun(void)
{
    const char *names[] = {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"};
    char parent[32];
    for (int i = 0; i < 2; i++) {
        if (variable(names[i])) {
            return ls_port_of_job(variable(names[i]));
        }
    }
    snprintf(parent, sizeof parent, "%d", (int)getppid());
    return ls_port_of_job(parent);
}

static ls_status read_mpirun(ls_comm_options *out)
{
    const bool is_open_mpi = variable("OMPI_COMM_WORLD_RANK");
    const rank_variables open_mpi = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
    const rank_variables mpich = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};
    LS_TRY(read_ranks(is_open_mpi ? &open_mpi : &mpich, out));
    out->serve_store = true;
    if (variable("MASTER_ADDR") && variable("MASTER_PORT")) {
        return read_master(out);
    }
    if (out->local_size != out->size) {
        return ls_fail(
            LS_ERR_INVALID,
            "mpirun started %u ranks, %u of them on this host: set MASTER_ADDR (the host of rank 0) and "
            "MASTER_PORT (a free port there) on all of them",
            out->size, out->local_size);
    }
    return set_coordinator(out, "127.0.0.1", port_of_mpirun());
}

static ls_status read_srun(ls_comm_options *out, uint32_t *node_out)
{
    char first[LS_NODE_NAME_BYTES], id[64];
    uint32_t nodes = 0;
    uint64_t node = 0;
    LS_TRY(read_ranks(
        &(rank_variables){"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "LOCKSTEP_LOCAL_SIZE"}, out));
    const ls_status status = ls_node_list_read(variable("SLURM_STEP_NODELIST"), 0, first, &nodes);
    if (status != LS_OK) {
        return ls_fail_within(status, "SLURM_STEP_NODELIST");
    }
    LS_TRY(read_number("SLURM_NODEID", 0, nodes - 1, &node));
    *node_out = (uint32_t)node;
    if (variable("SLURM_STEP_TASKS_PER_NODE")) {
        uint32_t tasks = 0;
        LS_TRY(ls_node_counts_read(variable("SLURM_STEP_TASKS_PER_NODE"), *node_out, &tasks));
        if (tasks <= out->local_rank || tasks > out->size) {
            return ls_fail(
                LS_ERR_INVALID,
                "SLURM_STEP_TASKS_PER_NODE is '%s', which means %u tasks on this node; with SLURM_LOCALID "
                "%u and SLURM_NTASKS %u it must be %u to %u",
                variable("SLURM_STEP_TASKS_PER_NODE"), tasks, out->local_rank, out->size, out->local_rank + 1,
                out->size);
        }
        out->local_size = tasks;
    } else if (nodes == 1) {
        out->local_size = out->size;
    }
    out->serve_store = true;
    const char *step = variable("SLURM_STEP_ID");
    snprintf(id, sizeof id, "%.30s.%.30s", variable("SLURM_JOB_ID"), step ? step : "0");
    return set_coordinator(out, nodes == 1 ? "127.0.0.1" : first, ls_port_of_job(id));
}

static ls_launcher find_launcher(void)
{
    if (variable("LOCKSTEP_RANK") || variable("LOCKSTEP_SIZE") || variable("LOCKSTEP_COORDINATOR")) {
        return LS_LAUNCHER_LOCKSTEP;
    }
    if (variable("RANK") && variable("WORLD_SIZE") && variable("MASTER_ADDR") && variable("MASTER_PORT")) {
        return LS_LAUNCHER_TORCHRUN;
    }
    if ((variable("OMPI_COMM_WORLD_RANK") && variable("OMPI_COMM_WORLD_SIZE")) ||
        (variable("PMI_RANK") && variable("PMI_SIZE") && !variable("SLURM_PROCID"))) {
        return LS_LAUNCHER_MPIRUN;
    }
    if (variable("SLURM_PROCID") && variable("SLURM_NTASKS") && variable("SLURM_STEP_NODELIST") &&
        variable("SLURM_JOB_ID")) {
        return LS_LAUNCHER_SRUN;
    }
    return LS_LAUNCHER_NONE;
}

const char *ls_launcher_name(ls_launcher launcher)
{
    static const char *const names[] = {"none", "lockstep", "torchrun", "mpirun", "srun"};
    return names[launcher];
}

ls_status ls_environment_read(ls_comm_options *options_out, ls_launcher *launcher_out, uint32_t *node_out)
{
    ls_comm_options options = {.size = 1, .local_size = 1};
    uint32_t node = 0;
    const ls_launcher launcher = find_launcher();
    LS_TRY(ls_environment_token(options.token));
    switch (launcher) {
    case LS_LAUNCHER_LOCKSTEP:
        LS_TRY(read_lockstep(&options));
        break;
    case LS_LAUNCHER_TORCHRUN:
        LS_TRY(read_torchrun(&options, &node));
        break;
    case LS_LAUNCHER_MPIRUN:
        LS_TRY(read_mpirun(&options));
        break;
    case LS_LAUNCHER_SRUN:
        LS_TRY(read_srun(&options, &node));
        break;
    case LS_LAUNCHER_NONE:
        break;
    }
    *options_out = options;
    if (launcher_out) {
        *launcher_out = launcher;
    }
    if (node_out) {
        *node_out = node;
    }
    return LS_OK;
}

ls_status ls_comm_options_from_environment(ls_comm_options *options_out)
{
    return ls_environment_read(options_out, NULL, NULL);
}
