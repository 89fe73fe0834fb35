// SPDX-License-Identifier: Apache-2.0
/* Opening, splitting and closing of the shared-memory transport. See comm/shm/shm.h. */
#include "comm/shm/shm.h"

#include "base/assert.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

static const uint64_t shm_magic = 0x316d68732d736c; /* "ls-shm1" */

/* Where the others find the memory of rank 0. */
typedef struct shm_invitation {
    uint64_t nonce[2];
    int32_t pid, fd;
} shm_invitation;

/* ---- geometry ---- */

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static uint64_t round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t take(uint64_t *offset, uint64_t bytes)
{
    const uint64_t at = round_up(*offset, 4096);
    *offset = at + bytes;
    return at;
}

typedef struct shm_layout {
    uint64_t flags, places, tables, slots, results, pairs;
} shm_layout;

/* Pages of a memfd that are never touched cost nothing, so the pairs may grow with the square of
 * the number of members. */
static shm_layout lay_out(ls_shm *shm)
{
    const uint64_t size = shm->transport.size;
    shm->slot_bytes = clamp((8u << 20) / size, 16 << 10, 256 << 10) & ~(uint64_t)4095;
    shm->pair_chunk_bytes =
        clamp((1u << 28) / (size * size * SHM_PAIR_CHUNKS), 1 << 10, 64 << 10) & ~(uint64_t)63;
    shm->pair_bytes = round_up(sizeof(shm_pair) + SHM_PAIR_CHUNKS * shm->pair_chunk_bytes, 4096);
    uint64_t end = sizeof(shm_control);
    shm_layout at;
    at.flags = take(&end, size * sizeof(shm_flag));
    at.places = take(&end, size * sizeof(shm_place));
    at.tables = take(&end, 2 * size * 2 * size * sizeof(uint64_t));
    at.slots = take(&end, 2 * size * shm->slot_bytes);
    at.results = take(&end, 2 * shm->slot_bytes);
    at.pairs = take(&end, size * size * shm->pair_bytes);
    shm->control_bytes = round_up(end, 4096);
    return at;
}

/* ---- mapping ---- */

static ls_status map_control(ls_shm *shm)
{
    const shm_layout at = lay_out(shm);
    if (shm->transport.rank == 0 && ftruncate(shm->fd, (off_t)shm->control_bytes) != 0) {
        return ls_fail_errno(errno, "can't make shared memory of %" PRIu64 " bytes", shm->control_bytes);
    }
    char *base =
        mmap(NULL, shm->control_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, shm->fd, 0);
    if (base == MAP_FAILED) {
        return ls_fail_errno(errno, "can't map shared memory of %" PRIu64 " bytes", shm->control_bytes);
    }
    shm->control = (shm_control *)(void *)base;
    shm->flags = (shm_flag *)(void *)(base + at.flags);
    shm->places = (shm_place *)(void *)(base + at.places);
    shm->tables = (uint64_t *)(void *)(base + at.tables);
    shm->slots = base + at.slots;
    shm->results = base + at.results;
    shm->pairs = base + at.pairs;
    return LS_OK;
}

static ls_status create_memory(ls_shm *shm, shm_invitation *invitation_out)
{
    shm->fd = memfd_create("lockstep-comm", MFD_CLOEXEC);
    if (shm->fd < 0) {
        return ls_fail_errno(errno, "can't create shared memory");
    }
    LS_TRY(map_control(shm));
    shm_control *control = shm->control;
    if (getrandom(control->nonce, sizeof control->nonce, 0) != sizeof control->nonce) {
        return ls_fail_errno(errno, "can't get a random number from the system");
    }
    control->size = shm->transport.size;
    control->magic = shm_magic;
    *invitation_out = (shm_invitation){
        .nonce = {control->nonce[0], control->nonce[1]}, .pid = (int32_t)getpid(), .fd = shm->fd};
    return LS_OK;
}

static ls_status open_memory(ls_shm *shm, const shm_invitation *invitation)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)invitation->pid, (int)invitation->fd);
    shm->fd = open(path, O_RDWR | O_CLOEXEC);
    if (shm->fd < 0) {
        return ls_fail_errno(errno, "can't open the shared memory of process %d (%s)", (int)invitation->pid,
                             path);
    }
    LS_TRY(map_control(shm));
    const shm_control *control = shm->control;
    if (control->magic != shm_magic ||
        memcmp(control->nonce, invitation->nonce, sizeof control->nonce) != 0 ||
        control->size != shm->transport.size) {
        return ls_fail(LS_ERR_MISMATCH, "%s is not the shared memory of this group", path);
    }
    return LS_OK;
}

/* ---- members ---- */

static ls_status open_pidfds(ls_shm *shm)
{
    const uint32_t size = shm->transport.size;
    shm->pidfds = malloc(size * sizeof *shm->pidfds);
    if (!shm->pidfds) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for a group of %" PRIu32 " ranks", size);
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        shm->pidfds[rank] = -1;
    }
    for (uint32_t rank = 0; rank < size; rank++) {
        const pid_t pid = shm->transport.members[rank].pid;
        if (rank == shm->transport.rank) {
            continue;
        }
        /* Without a pidfd (ranks that are threads of one process, old kernels) only the deadline
         * reveals the death of a member. */
        shm->pidfds[rank] = pid == getpid() ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);
        if (shm->pidfds[rank] < 0 && errno == ESRCH && pid != getpid()) {
            char who[LS_COMM_WHO_BYTES];
            ls_comm_member_words(&shm->transport, rank, who);
            return ls_fail(LS_ERR_RANKS_LOST, "%s died while the group was being opened", who);
        }
    }
    return LS_OK;
}

static void write_cores(shm_place *place)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        CPU_ZERO(&set);
    }
    for (size_t i = 0; i < 64 * (sizeof place->cores / sizeof place->cores[0]); i++) {
        place->cores[i / 64] |= i < CPU_SETSIZE && CPU_ISSET(i, &set) ? (uint64_t)1 << i % 64 : 0;
    }
}

static uint32_t count_cores(const ls_shm *shm)
{
    uint32_t count = 0;
    for (size_t word = 0; word < sizeof shm->places->cores / sizeof shm->places->cores[0]; word++) {
        uint64_t all = 0;
        for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
            all |= shm->places[rank].cores[word];
        }
        count += (uint32_t)__builtin_popcountll(all);
    }
    return count ? count : 1;
}

/*
 * Decides how to wait; all members must decide alike, although each knows only a part. One
 * synchronisation costs 0.1 us if every member spins on its own core, and about 5 us if they have
 * to sleep. In the second case the small method, with one synchronisation, pays up to larger sizes
 * than the direct method, with two.
 */
static void agree_on_waiting(ls_shm *shm)
{
    LS_ASSERT(shm->transport.size > 0);
    for (uint32_t rank = 0; rank < shm->transport.size; rank++) {
        const uint32_t waiters = shm->places[rank].waiters;
        shm->waiters = waiters > shm->waiters ? waiters : shm->waiters;
    }
    shm->spins_max = ls_wait_spins(shm->waiters, count_cores(shm));
    shm->spins = shm->spins_max;
    shm->small_bytes =
        clamp((256u << 10) / shm->transport.size, 1 << 10, shm->spins_max ? 8 << 10 : 32 << 10);
}

/* The first tick: after it all members have mapped the memory and know each other. */
static ls_status meet(ls_shm *shm, uint64_t deadline_ns)
{
    ls_comm_op op = {.kind = LS_COMM_BARRIER,
                     .dtype = LS_U8,
                     .peer = UINT32_MAX,
                     .site = {.file = "ls_comm_open"},
                     .deadline_ns = deadline_ns};
    op.fingerprint = ls_comm_fingerprint(&op);
    write_cores(&shm->places[shm->transport.rank]);
    shm->places[shm->transport.rank].waiters = shm->waiters;
    LS_TRY(open_pidfds(shm));
    LS_TRY(shm_arrive(shm, &op, 0, 0));
    agree_on_waiting(shm);
    return LS_OK;
}

/* ---- calls ---- */

static void destroy(ls_transport *transport)
{
    ls_shm *shm = (ls_shm *)transport;
    if (shm->control) {
        /* Members that wait for this rank see that it has left. */
        atomic_store(&shm->flags[transport->rank].has_left, 1);
        ls_word_add(&shm->control->bell, 1);
        shm_unmap_all(shm);
        munmap(shm->control, shm->control_bytes);
    }
    for (uint32_t rank = 0; shm->pidfds && rank < transport->size; rank++) {
        if (shm->pidfds[rank] >= 0) {
            close(shm->pidfds[rank]);
        }
    }
    if (shm->fd >= 0) {
        close(shm->fd);
    }
    free(shm->pidfds);
    free(shm);
}

static ls_status run(ls_transport *transport, ls_comm_op *op)
{
    ls_shm *shm = (ls_shm *)transport;
    shm_claim(shm, op);
    const ls_status status = op->kind == LS_COMM_SEND      ? shm_send(shm, op)
                             : op->kind == LS_COMM_RECEIVE ? shm_receive(shm, op)
                                                           : shm_run_collective(shm, op);
    shm->wait_ns += op->wait_ns;
    if (status == LS_OK) {
        atomic_store_explicit(&shm->places[transport->rank].is_inside, 0, memory_order_release);
    }
    return status;
}

static void abort_all(ls_transport *transport, ls_status status, const char *reason)
{
    ls_shm *shm = (ls_shm *)transport;
    (void)shm_judge(shm, ls_fail(status, "%s", reason));
}

static void add_stats(const ls_transport *transport, ls_comm_stats *stats)
{
    stats->wait_s += 1e-9 * (double)((const ls_shm *)transport)->wait_ns;
}

static ls_status split(ls_transport *transport, const ls_comm_subgroup *wanted, ls_transport **group_out);

static const ls_transport_calls shm_calls = {
    .name = "shm",
    .run = run,
    .alloc = shm_alloc,
    .release = shm_release,
    .split = split,
    .abort = abort_all,
    .stats = add_stats,
    .destroy = destroy,
};

static ls_shm *create(const ls_comm_member *members, uint32_t rank, uint32_t size, uint32_t waiters)
{
    ls_shm *shm = calloc(1, sizeof *shm);
    if (shm) {
        shm->transport = (ls_transport){.calls = &shm_calls, .members = members, .rank = rank, .size = size};
        shm->fd = -1;
        shm->waiters = waiters > size ? waiters : size;
    }
    return shm;
}

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "not enough memory for a communicator");
}

/* ---- opening: the invitation is passed through the store ---- */

static double seconds_until(uint64_t deadline_ns)
{
    const uint64_t now_ns = ls_clock_monotonic_ns();
    return deadline_ns > now_ns ? 1e-9 * (double)(deadline_ns - now_ns) : 0.0;
}

static ls_status invite_or_follow(ls_shm *shm, const ls_transport_setup *setup, uint64_t deadline_ns)
{
    char key[LS_STORE_KEY_BYTES_MAX + 1];
    shm_invitation invitation;
    size_t bytes = 0;
    snprintf(key, sizeof key, "%sshm/%" PRIu32 "/%" PRIu32, setup->key_prefix, setup->group_id,
             setup->members[0].world_rank);
    if (setup->rank == 0) {
        LS_TRY(create_memory(shm, &invitation));
        return ls_store_put(setup->store, key, &invitation, sizeof invitation);
    }
    LS_TRY(
        ls_store_get(setup->store, key, seconds_until(deadline_ns), &invitation, sizeof invitation, &bytes));
    if (bytes != sizeof invitation) {
        return ls_fail(LS_ERR_MISMATCH,
                       "the value of %s in the coordinator's store has %zu bytes instead of %zu: do the "
                       "ranks run different versions of lockstep?",
                       key, bytes, sizeof invitation);
    }
    return open_memory(shm, &invitation);
}

ls_status ls_transport_open_shm(const ls_transport_setup *setup, ls_transport **transport_out)
{
    const double timeout_s = setup->options->timeout_s > 0.0 ? setup->options->timeout_s : 60.0;
    const uint64_t deadline_ns = ls_clock_monotonic_ns() + (uint64_t)(1e9 * timeout_s);
    ls_shm *shm = create(setup->members, setup->rank, setup->size, setup->options->local_size);
    if (!shm) {
        return no_memory();
    }
    ls_status status = LS_OK;
    LS_TRY_GOTO(status, invite_or_follow(shm, setup, deadline_ns), fail);
    LS_TRY_GOTO(status, meet(shm, deadline_ns), fail);
    *transport_out = &shm->transport;
    return LS_OK;
fail:
    destroy(&shm->transport);
    return status;
}

/* ---- splitting: the invitation is in the first member's place in the parent's memory ---- */

typedef struct offer_seen {
    const shm_place *place;
    uint32_t group_id;
} offer_seen;

static bool is_offered(void *context)
{
    const offer_seen *seen = context;
    return ls_word_get(&seen->place->group) == seen->group_id;
}

static ls_status follow_first(ls_shm *parent, ls_shm *group, const ls_comm_subgroup *wanted)
{
    const uint32_t first = wanted->members[0];
    const ls_comm_op op = {.kind = LS_COMM_SPLIT, .peer = UINT32_MAX, .deadline_ns = wanted->deadline_ns};
    shm_place *place = &parent->places[first];
    offer_seen seen = {.place = place, .group_id = wanted->id};
    shm_look look;
    const ls_wait wait = shm_wait_of(parent, &op, first, &look);
    const ls_wait_result result = ls_wait_for(&place->group, is_offered, &seen, &wait);
    if (result != LS_WAIT_DONE) {
        return shm_fail_wait(&op, result, &look);
    }
    /* No nonce is needed: pid and descriptor come from memory that is known to belong to the
     * group. */
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)parent->transport.members[first].pid,
             (int)place->group_fd);
    group->fd = open(path, O_RDWR | O_CLOEXEC);
    if (group->fd < 0) {
        return ls_fail_errno(errno, "can't open the shared memory of a group (%s)", path);
    }
    return map_control(group);
}

static ls_status split(ls_transport *transport, const ls_comm_subgroup *wanted, ls_transport **group_out)
{
    const uint32_t count = wanted->count, self = wanted->self;
    ls_shm *parent = (ls_shm *)transport;
    ls_comm_member *group_members = calloc(count, sizeof *group_members);
    ls_shm *group = create(group_members, self, count, parent->waiters);
    ls_status status = LS_OK;
    shm_invitation invitation;
    if (!group_members || !group) {
        free(group_members);
        free(group);
        return no_memory();
    }
    for (uint32_t i = 0; i < count; i++) {
        group_members[i] = transport->members[wanted->members[i]];
    }
    group->parent = parent;
    if (self == 0) {
        LS_TRY_GOTO(status, create_memory(group, &invitation), fail);
        shm_place *place = &parent->places[transport->rank];
        place->group_fd = invitation.fd;
        ls_word_post(&place->group, wanted->id);
    } else {
        LS_TRY_GOTO(status, follow_first(parent, group, wanted), fail);
    }
    LS_TRY_GOTO(status, meet(group, wanted->deadline_ns), fail);
    free(group_members); /* the communicator sets its own copy */
    *group_out = &group->transport;
    return LS_OK;
fail:
    status = shm_judge(parent, status); /* the other members wait for this one */
    destroy(&group->transport);
    free(group_members);
    return status;
}
