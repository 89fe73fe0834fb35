// SPDX-License-Identifier: Apache-2.0
/*
 * How ranks meet and leave.
 *
 * Every rank puts a record into the store. Rank 0 gathers the records, checks that all describe the
 * same group, and publishes them as a table that the others read: 2 * size messages. There are two
 * rounds:
 *
 *   1. who     version, size, epoch, pid, boot id, and the descriptor of a memfd that holds a nonce
 *   2. host    the lowest rank with the same boot id whose nonce this rank can read through
 *              /proc/PID/fd
 *
 * So two ranks share a host only if they can share memory. Two machines restored from one image do
 * not, nor do two containers with separate process namespaces, whatever their names are.
 *
 *   rank r              store                 rank 0
 *   put who/r   ───▶    who/r        ◀───     get who/1 ... who/(size - 1), check
 *   get table   ◀───    who/table    ◀───     put: all records, or the error that all ranks return
 */
#include "comm/group/comm_internal.h"
#include "comm/transport/reduce.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

enum { RECORD_MAGIC = 0x4d43534c /* "LSCM" */, TABLE_TEXT_BYTES = 1024, LINGER_US = 300 * 1000 };
static const double timeout_default_s = 60.0;

typedef struct rank_record {
    uint32_t magic, version;
    uint32_t rank, size;
    uint64_t epoch;
    uint32_t flags;
    int32_t pid, probe_fd;
    uint32_t reserved;
    uint64_t nonce[2];
    /* Hash of everything that is equal on one host. */
    uint64_t machine;
    char host_name[64];
} rank_record;
_Static_assert(sizeof(rank_record) == 128, "on the wire");

/* What rank 0 publishes after a round; the entries follow. With a status other than LS_OK all ranks
 * fail with `text`. */
typedef struct table_header {
    uint32_t magic, status;
    char text[TABLE_TEXT_BYTES];
} table_header;

typedef struct meeting {
    const ls_comm_options *options;
    ls_store *store;
    char prefix[128];
    uint64_t deadline_ns;
    double timeout_s;
} meeting;

static double seconds_left(const meeting *m)
{
    const uint64_t now_ns = ls_clock_monotonic_ns();
    return m->deadline_ns > now_ns ? 1e-9 * (double)(m->deadline_ns - now_ns) : 0.0;
}

/* ---- one round: every rank gets the entries of all, through rank 0 ---- */

static void round_key(const meeting *m, const char *name, uint32_t rank, char key[LS_STORE_KEY_BYTES_MAX + 1])
{
    if (rank == UINT32_MAX) {
        snprintf(key, LS_STORE_KEY_BYTES_MAX + 1, "%s%s/table", m->prefix, name);
    } else {
        snprintf(key, LS_STORE_KEY_BYTES_MAX + 1, "%s%s/%" PRIu32, m->prefix, name, rank);
    }
}

/* Rank 0 waits for every rank. After the first time-out it no longer waits but goes on looking, so
 * that the error names all missing ranks. */
static ls_status collect(const meeting *m, const char *name, uint64_t entry_bytes, char *entries)
{
    char key[LS_STORE_KEY_BYTES_MAX + 1], missing[256] = "";
    uint32_t missing_count = 0;
    size_t used = 0;
    for (uint32_t rank = 1; rank < m->options->size; rank++) {
        size_t bytes = 0;
        round_key(m, name, rank, key);
        const ls_status status = ls_store_get(m->store, key, missing_count ? 0.0 : seconds_left(m),
                                              entries + rank * entry_bytes, entry_bytes, &bytes);
        if (status == LS_ERR_TIMEOUT) {
            const int length = snprintf(missing + used, sizeof missing - used, "%s%" PRIu32,
                                        missing_count ? ", " : "", rank);
            used += length > 0 && (size_t)length < sizeof missing - used ? (size_t)length : 0;
            missing_count++;
        } else if (status != LS_OK) {
            return status;
        } else if (bytes != entry_bytes) {
            return ls_fail(LS_ERR_MISMATCH,
                           "rank %" PRIu32
                           " runs another version of lockstep than rank 0: use one binary everywhere",
                           rank);
        }
    }
    if (missing_count) {
        return ls_fail(LS_ERR_TIMEOUT,
                       "%" PRIu32 " of %" PRIu32 " ranks did not join group '%s' within %.1f s: %s; were "
                       "they started with the coordinator's address %s?",
                       missing_count, m->options->size, m->options->name, m->timeout_s, missing,
                       m->options->coordinator);
    }
    return LS_OK;
}

static ls_status publish(const meeting *m, const char *name, ls_status status, const char *entries,
                         uint64_t bytes, char *message)
{
    char key[LS_STORE_KEY_BYTES_MAX + 1];
    table_header *header = (table_header *)(void *)message;
    *header = (table_header){.magic = RECORD_MAGIC, .status = (uint32_t)status};
    if (status != LS_OK) {
        snprintf(header->text, sizeof header->text, "%s", ls_error_text());
    }
    const uint64_t entries_bytes = status == LS_OK ? bytes : 0;
    memcpy(message + sizeof *header, entries, entries_bytes);
    round_key(m, name, UINT32_MAX, key);
    const ls_status put = ls_store_put(m->store, key, message, sizeof *header + entries_bytes);
    return status != LS_OK ? ls_fail(status, "%s", header->text) : put;
}

static ls_status follow(const meeting *m, const char *name, char *entries, uint64_t bytes, char *message)
{
    char key[LS_STORE_KEY_BYTES_MAX + 1];
    size_t got = 0;
    const table_header *header = (const table_header *)(const void *)message;
    round_key(m, name, UINT32_MAX, key);
    /* At its deadline rank 0 publishes which ranks are missing: leave it the time to do so. */
    const ls_status status =
        ls_store_get(m->store, key, seconds_left(m) + 0.5, message, sizeof *header + bytes, &got);
    if (status == LS_ERR_TIMEOUT) {
        return ls_fail(LS_ERR_TIMEOUT,
                       "rank 0 of group '%s' did not appear at %s within %.1f s: was it started?",
                       m->options->name, m->options->coordinator, m->timeout_s);
    }
    LS_TRY(status);
    if (got < sizeof *header || header->magic != RECORD_MAGIC) {
        return ls_fail(LS_ERR_MISMATCH,
                       "rank 0 runs another version of lockstep than this rank: use one binary everywhere");
    }
    if (header->status != LS_OK) {
        return ls_fail((ls_status)header->status, "%.*s", TABLE_TEXT_BYTES - 1, header->text);
    }
    if (got != sizeof *header + bytes) {
        return ls_fail(LS_ERR_MISMATCH,
                       "this rank expects a group of %" PRIu32
                       " ranks, but rank 0 expects another number: start all ranks with the same number",
                       m->options->size);
    }
    memcpy(entries, message + sizeof *header, bytes);
    return LS_OK;
}

/* entries[rank] is the entry of this rank; the others are filled in. check: called on rank 0 with
 * all entries; NULL: no check. */
static ls_status exchange(const meeting *m, const char *name, uint64_t entry_bytes, void *entries,
                          ls_status (*check)(const meeting *m, const void *entries))
{
    const uint64_t bytes = entry_bytes * m->options->size;
    const uint32_t rank = m->options->rank;
    char key[LS_STORE_KEY_BYTES_MAX + 1];
    char *message = malloc(sizeof(table_header) + bytes);
    if (!message) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of %" PRIu32 " ranks", m->options->size);
    }
    ls_status status = LS_OK;
    if (rank == 0) {
        status = collect(m, name, entry_bytes, entries);
        status = status == LS_OK && check ? check(m, entries) : status;
        status = publish(m, name, status, entries, bytes, message);
    } else {
        round_key(m, name, rank, key);
        status = ls_store_put(m->store, key, (char *)entries + rank * entry_bytes, entry_bytes);
        status = status == LS_OK ? follow(m, name, entries, bytes, message) : status;
    }
    free(message);
    return status;
}

/* ---- round 1: who ---- */

static void read_text(const char *path, char *out, size_t room)
{
    out[0] = 0;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t bytes = fd >= 0 ? read(fd, out, room - 1) : -1;
    out[bytes > 0 ? bytes : 0] = 0;
    if (fd >= 0) {
        close(fd);
    }
}

/* Equal on ranks of one host; ranks with equal hashes may still be on different hosts.
 * LOCKSTEP_HOST separates ranks of one machine (containers, tests). */
static uint64_t machine_hash(void)
{
    char text[512], boot_id[64], processes[64] = "";
    const char *host = getenv("LOCKSTEP_HOST");
    read_text("/proc/sys/kernel/random/boot_id", boot_id, sizeof boot_id);
    const ssize_t bytes = readlink("/proc/self/ns/pid", processes, sizeof processes - 1);
    processes[bytes > 0 ? bytes : 0] = 0;
    const int length =
        snprintf(text, sizeof text, "%s %s %u %s", boot_id, processes, (unsigned)getuid(), host ? host : "");
    return ls_xxh3(text, (size_t)length < sizeof text ? (size_t)length : sizeof text - 1, 0);
}

static ls_status describe_self(const ls_comm_options *options, rank_record *record, int *probe_fd_out)
{
    *record = (rank_record){.magic = RECORD_MAGIC,
                            .version = LS_COMM_VERSION,
                            .rank = options->rank,
                            .size = options->size,
                            .epoch = options->epoch,
                            .flags = options->flags,
                            .pid = (int32_t)getpid(),
                            .machine = machine_hash()};
    if (gethostname(record->host_name, sizeof record->host_name - 1) != 0) {
        snprintf(record->host_name, sizeof record->host_name, "unknown");
    }
    if (getrandom(record->nonce, sizeof record->nonce, 0) != sizeof record->nonce) {
        return ls_fail_errno(errno, "can't get a random number from the system");
    }
    *probe_fd_out = memfd_create("lockstep-probe", MFD_CLOEXEC);
    record->probe_fd = *probe_fd_out;
    if (*probe_fd_out < 0 ||
        pwrite(*probe_fd_out, record->nonce, sizeof record->nonce, 0) != sizeof record->nonce) {
        return ls_fail_errno(errno, "can't create shared memory");
    }
    return LS_OK;
}

static ls_status check_records(const meeting *m, const void *entries)
{
    const rank_record *records = entries;
    for (uint32_t rank = 1; rank < m->options->size; rank++) {
        const rank_record *a = &records[0], *b = &records[rank];
        const char *format =
            "%s: rank 0 (%.63s, pid %d) has %" PRIu64 ", rank %" PRIu32 " (%.63s, pid %d) has %" PRIu64;
        const struct {
            const char *name;
            uint64_t ours, theirs;
        } parts[] = {
            {"version of the collectives", a->version, b->version},
            {"number of ranks", a->size, b->size},
            {"epoch", a->epoch, b->epoch},
            {"rank number", rank, b->rank},
            {"flags", a->flags, b->flags},
        };
        if (b->magic != RECORD_MAGIC) {
            return ls_fail(LS_ERR_MISMATCH,
                           "rank %" PRIu32
                           " runs another version of lockstep than rank 0: use one binary everywhere",
                           rank);
        }
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
            if (parts[i].ours != parts[i].theirs) {
                return ls_fail(LS_ERR_MISMATCH, format, parts[i].name, a->host_name, (int)a->pid,
                               parts[i].ours, rank, b->host_name, (int)b->pid, parts[i].theirs);
            }
        }
    }
    return LS_OK;
}

/* ---- round 2: which host ---- */

static bool can_read_nonce(const rank_record *record)
{
    char path[64];
    uint64_t nonce[2] = {0, 0};
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)record->pid, (int)record->probe_fd);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const bool is_read = fd >= 0 && pread(fd, nonce, sizeof nonce, 0) == sizeof nonce;
    if (fd >= 0) {
        close(fd);
    }
    return is_read && memcmp(nonce, record->nonce, sizeof nonce) == 0;
}

static uint32_t find_host_leader(const rank_record *records, uint32_t rank)
{
    for (uint32_t other = 0; other < rank; other++) {
        if (records[other].machine == records[rank].machine && can_read_nonce(&records[other])) {
            return other;
        }
    }
    return rank;
}

/* Replaces members[i].host, any numbers that are equal on one host, by 0, 1, ... in the order of
 * first appearance, and fills in the local ranks. */
static void number_hosts(ls_comm_member *members, uint32_t count, uint32_t *host_count_out)
{
    uint32_t leaders[LS_COMM_SIZE_MAX], locals[LS_COMM_SIZE_MAX], hosts = 0;
    for (uint32_t rank = 0; rank < count; rank++) {
        uint32_t host = 0;
        while (host < hosts && leaders[host] != members[rank].host) {
            host++;
        }
        if (host == hosts) {
            leaders[hosts] = members[rank].host;
            locals[hosts++] = 0;
        }
        members[rank].local_rank = locals[host]++;
        members[rank].host = host;
    }
    *host_count_out = hosts;
}

static ls_status meet_members(ls_comm *comm, const meeting *m)
{
    const uint32_t size = comm->size, rank = comm->rank;
    rank_record *records = calloc(size, sizeof *records);
    uint32_t *leaders = calloc(size, sizeof *leaders);
    int probe_fd = -1;
    ls_status status = LS_OK;
    if (!records || !leaders) {
        LS_TRY_GOTO(status, ls_fail(LS_ERR_MEMORY, "not enough memory for %" PRIu32 " ranks", size), end);
    }
    LS_TRY_GOTO(status, describe_self(m->options, &records[rank], &probe_fd), end);
    LS_TRY_GOTO(status, exchange(m, "who", sizeof *records, records, check_records), end);
    leaders[rank] = find_host_leader(records, rank);
    LS_TRY_GOTO(status, exchange(m, "host", sizeof *leaders, leaders, NULL), end);
    for (uint32_t i = 0; i < size; i++) {
        comm->members[i] = (ls_comm_member){.world_rank = i, .host = leaders[i], .pid = records[i].pid};
        memcpy(comm->members[i].host_name, records[i].host_name, sizeof comm->members[i].host_name);
        comm->members[i].host_name[sizeof comm->members[i].host_name - 1] = 0;
    }
end:
    if (probe_fd >= 0) {
        close(probe_fd); /* no longer needed: all ranks had read it when rank 0 published round 2 */
    }
    free(records);
    free(leaders);
    return status;
}

/* ---- a communicator ---- */

static void count_locals(ls_comm *comm)
{
    number_hosts(comm->members, comm->size, &comm->host_count);
    comm->local_rank = comm->members[comm->rank].local_rank;
    for (uint32_t i = 0; i < comm->size; i++) {
        comm->local_size += comm->members[i].host == comm->members[comm->rank].host;
    }
}

static ls_comm *create(uint32_t rank, uint32_t size, double timeout_s)
{
    LS_ASSERT(size > 0);
    ls_comm *comm = calloc(1, sizeof *comm);
    if (!comm) {
        return NULL;
    }
    comm->rank = rank;
    comm->size = size;
    comm->timeout_ns = (uint64_t)(1e9 * (timeout_s > 0.0 ? timeout_s : timeout_default_s));
    comm->members = calloc(size, sizeof *comm->members);
    comm->sent_count = calloc(size, sizeof *comm->sent_count);
    comm->received_count = calloc(size, sizeof *comm->received_count);
    if (!comm->members || !comm->sent_count || !comm->received_count) {
        ls_comm_close(comm);
        return NULL;
    }
    return comm;
}

void ls_comm_close(ls_comm *comm)
{
    if (!comm) {
        return;
    }
    if (comm->transport) {
        comm->transport->calls->destroy(comm->transport);
    }
    for (uint32_t i = 0; i < comm->block_count; i++) {
        free(comm->blocks[i]);
    }
    ls_flight_leave(comm->flight_slot);
    ls_flight_close(comm->flight);
    ls_store_close(comm->store);
    ls_store_thread_stop(comm->server);
    free(comm->blocks);
    free(comm->members);
    free(comm->sent_count);
    free(comm->received_count);
    free(comm);
}

static ls_status check_options(const ls_comm_options *options)
{
    if (options->size < 1 || options->size > LS_COMM_SIZE_MAX) {
        return ls_fail(LS_ERR_INVALID, "the group has %" PRIu32 " ranks; allowed are 1 to %d ranks",
                       options->size, (int)LS_COMM_SIZE_MAX);
    }
    if (options->rank >= options->size) {
        return ls_fail(LS_ERR_INVALID,
                       "rank %" PRIu32 " does not exist in a group of %" PRIu32
                       " ranks; allowed are 0..%" PRIu32,
                       options->rank, options->size, options->size - 1);
    }
    if (options->sockets_per_peer > 8) {
        return ls_fail(LS_ERR_INVALID,
                       "%" PRIu32
                       " sockets per peer were asked for; allowed are 1 to 8, or 0 to let lockstep choose",
                       options->sockets_per_peer);
    }
    if (!(options->timeout_s >= 0.0 && options->timeout_s <= 1e6)) {
        return ls_fail(LS_ERR_INVALID, "the timeout is %g s; allowed are 0 (meaning 60 s) to 1e6 s",
                       options->timeout_s);
    }
    if (options->size > 1 && !memchr(options->coordinator, 0, sizeof options->coordinator)) {
        return ls_fail(LS_ERR_INVALID, "the coordinator's address has no terminating zero");
    }
    if (options->size > 1 && !options->coordinator[0]) {
        return ls_fail(
            LS_ERR_INVALID,
            "a group of %" PRIu32
            " ranks needs the address of a coordinator: set LOCKSTEP_COORDINATOR to HOST:PORT or unix:PATH",
            options->size);
    }
    return LS_OK;
}

static ls_status connect_store(ls_comm *comm, const ls_comm_options *options, const meeting *m)
{
    char identity[160], host_name[64] = "";
    if (options->serve_store && options->rank == 0) {
        const ls_store_server_options server = {
            .address = options->coordinator, .token = options->token, .epoch = options->epoch};
        LS_TRY(ls_store_thread_start(&server, &comm->server));
    }
    if (gethostname(host_name, sizeof host_name - 1) != 0) {
        host_name[0] = 0;
    }
    snprintf(identity, sizeof identity, "rank %" PRIu32 " on %s, pid %d", options->rank, host_name,
             (int)getpid());
    const ls_store_client_options client = {.address = options->coordinator,
                                            .token = options->token,
                                            .epoch = options->epoch,
                                            .identity = identity,
                                            .timeout_s = seconds_left(m),
                                            .is_over = options->is_over,
                                            .context = options->context};
    const ls_status status = ls_store_connect(&client, &comm->store);
    if (status == LS_ERR_TIMEOUT && options->serve_store) {
        char text[600];
        snprintf(text, sizeof text, "%s", ls_error_text());
        return ls_fail(status, "%s; rank 0 should be listening there: was it started?", text);
    }
    return status;
}

/* A group of this name may be opened repeatedly: the n-th openings of all ranks belong together. */
static ls_status begin_meeting(const ls_comm *comm, const ls_comm_options *options, meeting *m)
{
    char key[LS_STORE_KEY_BYTES_MAX + 1];
    int64_t opening = 0;
    if (strlen(options->name) > 64 || strchr(options->name, '/')) {
        return ls_fail(LS_ERR_INVALID,
                       "group name '%s' is not allowed: it may have at most 64 characters, and no '/'",
                       options->name);
    }
    snprintf(key, sizeof key, "%" PRIu64 "/%s/openings/%" PRIu32, options->epoch, options->name,
             options->rank);
    LS_TRY(ls_store_add(comm->store, key, 1, &opening));
    snprintf(m->prefix, sizeof m->prefix, "%" PRIu64 "/%s/%" PRId64 "/", options->epoch, options->name,
             opening);
    m->options = options;
    m->store = comm->store;
    return LS_OK;
}

static ls_status open_transport(ls_comm *comm, const ls_comm_options *options, const meeting *m)
{
    const ls_transport_setup setup = {.options = options,
                                      .members = comm->members,
                                      .rank = comm->rank,
                                      .size = comm->size,
                                      .group_id = comm->id,
                                      .store = comm->store,
                                      .key_prefix = m->prefix};
    const bool without_shm = options->flags & LS_COMM_NO_SHM;
    if (!without_shm && comm->host_count == 1) {
        return ls_transport_open_shm(&setup, &comm->transport);
    }
    if (without_shm || comm->host_count == comm->size) {
        return ls_transport_open_tcp(&setup, &comm->transport);
    }
    return ls_transport_open_hier(&setup, &comm->transport);
}

static ls_status meet_once(ls_comm *comm, const ls_comm_options *options, meeting *m)
{
    LS_TRY(connect_store(comm, options, m));
    LS_TRY(begin_meeting(comm, options, m));
    return meet_members(comm, m);
}

/*
 * Where rank 0 serves the store, a rank that opens a group again may reach the previous store
 * before rank 0 closes it. It then loses the connection and has to start again.
 */
static ls_status meet(ls_comm *comm, const ls_comm_options *options, meeting *m)
{
    for (;;) {
        const ls_status status = meet_once(comm, options, m);
        const bool is_over =
            options->rank == 0 || !options->serve_store || ls_clock_monotonic_ns() >= m->deadline_ns;
        if (status != LS_ERR_RANKS_LOST || is_over) {
            return status;
        }
        ls_store_close(comm->store);
        comm->store = NULL;
    }
}

static ls_status open_many(ls_comm *comm, const ls_comm_options *options)
{
    meeting m = {.deadline_ns = ls_clock_monotonic_ns() + comm->timeout_ns,
                 .timeout_s = 1e-9 * (double)comm->timeout_ns};
    if (!ls_comm_kernels()) {
        return LS_ERR_INVALID; /* the error text names LS_ISA */
    }
    LS_TRY(meet(comm, options, &m));
    count_locals(comm);
    LS_TRY(open_transport(comm, options, &m));
    ls_store_clear_is_over(comm->store);
    return LS_OK;
}

static ls_status open_alone(ls_comm *comm)
{
    comm->members[0].pid = (int32_t)getpid();
    if (gethostname(comm->members[0].host_name, sizeof comm->members[0].host_name - 1) != 0) {
        snprintf(comm->members[0].host_name, sizeof comm->members[0].host_name, "unknown");
    }
    count_locals(comm);
    return LS_OK;
}

/* A process has one recorder: if one is installed already, it stays. */
static ls_status start_recorder(ls_comm *comm, const ls_comm_options *options)
{
    const char *path = options->flight_path ? options->flight_path : getenv("LOCKSTEP_FLIGHT");
    if (!path || !path[0] || ls_flight_installed()) {
        return LS_OK;
    }
    ls_arena arena = {0};
    const ls_status status = ls_dir_create(ls_path_dirname(&arena, path));
    ls_arena_release(&arena);
    LS_TRY(status);
    LS_TRY(ls_flight_create(path, options->rank, options->size, options->epoch, &comm->flight));
    ls_flight_install(comm->flight);
    return LS_OK;
}

ls_status ls_comm_open(const ls_comm_options *options, ls_comm **comm_out)
{
    LS_ASSERT(options && comm_out);
    LS_TRY(check_options(options));
    ls_comm_options filled = *options;
    filled.name = options->name ? options->name : "world";
    ls_comm *comm = create(options->rank, options->size, options->timeout_s);
    if (!comm) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a communicator of %" PRIu32 " ranks",
                       options->size);
    }
    comm->flags = options->flags;
    comm->id = (uint32_t)ls_xxh3(filled.name, strlen(filled.name), options->epoch);
    ls_status status = start_recorder(comm, options);
    if (status == LS_OK) {
        status = options->size == 1 ? open_alone(comm) : open_many(comm, &filled);
    }
    if (status != LS_OK) {
        if (comm->server) {
            /* The other ranks read the reason from the store that this process serves. */
            usleep(LINGER_US);
        }
        ls_comm_close(comm);
        return status;
    }
    comm->flight_slot = ls_flight_join(comm->id, comm->rank, comm->size, filled.name);
    if (comm->flight) { /* between calls the caller works, and nothing is known of that work */
        ls_flight_activity(LS_ACTIVITY_OTHER, 0);
    }
    *comm_out = comm;
    return LS_OK;
}

/* ---- groups ---- */

typedef struct wish {
    int32_t color, key;
} wish;

/* Writes the ranks of the parent that have this rank's color, ordered by key, then by rank; returns
 * their number. */
static uint32_t choose_members(const wish *wishes, uint32_t size, uint32_t rank, uint32_t *members)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < size; i++) {
        if (wishes[i].color != wishes[rank].color) {
            continue;
        }
        uint32_t at = count++;
        for (; at > 0 && wishes[members[at - 1]].key > wishes[i].key; at--) {
            members[at] = members[at - 1];
        }
        members[at] = i;
    }
    return count;
}

static ls_status gather_wishes(ls_comm *comm, wish mine, wish *wishes)
{
    wishes[comm->rank] = mine;
    return ls_comm_gather_for_split(comm, &wishes[comm->rank], wishes, sizeof mine);
}

static ls_status make_group(ls_comm *comm, const uint32_t *members, uint32_t count, int32_t color,
                            ls_comm **group_out)
{
    uint32_t self = 0;
    while (self + 1 < count && members[self] != comm->rank) {
        self++;
    }
    ls_comm *group = create(self, count, 1e-9 * (double)comm->timeout_ns);
    if (!group) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a group of %" PRIu32 " ranks", count);
    }
    const uint32_t origin[3] = {comm->id, comm->splits, (uint32_t)color};
    group->id = (uint32_t)ls_xxh3(origin, sizeof origin, 0);
    group->parent = comm;
    group->flags = comm->flags;
    for (uint32_t i = 0; i < count; i++) {
        group->members[i] = comm->members[members[i]];
    }
    count_locals(group);
    if (count > 1) {
        const uint64_t deadline_ns = ls_clock_monotonic_ns() + comm->timeout_ns;
        const ls_comm_subgroup subgroup = {
            .members = members, .count = count, .self = self, .id = group->id, .deadline_ns = deadline_ns};
        const ls_status status = comm->transport->calls->split(comm->transport, &subgroup, &group->transport);
        if (status != LS_OK) {
            ls_comm_close(group);
            return ls_comm_keep_reason(comm, status);
        }
        group->transport->members = group->members;
    }
    char name[LS_FLIGHT_COMM_NAME_BYTES];
    snprintf(name, sizeof name, "split %" PRIu32 " color %" PRId32, comm->splits, color);
    group->flight_slot = ls_flight_join(group->id, self, count, name);
    *group_out = group;
    return LS_OK;
}

ls_status ls_comm_split(ls_comm *comm, int32_t color, int32_t key, ls_comm **group_out)
{
    wish wishes[LS_COMM_SIZE_MAX];
    uint32_t members[LS_COMM_SIZE_MAX];
    LS_ASSERT(comm && group_out);
    LS_TRY(gather_wishes(comm, (wish){.color = color, .key = key}, wishes));
    comm->splits++;
    if (color < 0) {
        *group_out = NULL;
        return LS_OK;
    }
    const uint32_t count = choose_members(wishes, comm->size, comm->rank, members);
    return make_group(comm, members, count, color, group_out);
}
