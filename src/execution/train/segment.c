// SPDX-License-Identifier: Apache-2.0
#include "execution/train/segment.h"

#include "base/assert.h"
#include "base/clock.h"
#include "comm/transport/tree.h"
#include "model/plan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- places ---- */

enum { STATE_FLATS = 7 }; /* parameters, m, v, sums, and a snapshot of the first three */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + LS_SEGMENT_ALIGN - 1) / LS_SEGMENT_ALIGN * LS_SEGMENT_ALIGN;
}

static uint32_t crew_of(const ls_segment_plan *plan)
{
    return plan->crew > 0 ? plan->crew : 1;
}

static uint32_t groups_of(const ls_control *control)
{
    return control->group > 0 ? control->leaves / control->group : 0;
}

/* Residuals of a step, at most. */
static uint64_t residuals_of(const ls_control *control)
{
    return control->group > 0 ? ls_compression_flats(LS_COMPRESSION_TOPK, groups_of(control)) : 0;
}

/* Computes everything in the control page that follows from the plan; see the drawing in
 * segment.h. */
static ls_control place(const ls_segment_plan *plan)
{
    /* Any range of leaves needs at most the stacks of two trees, because its nodes first grow and
     * then shrink; the pieces of a leaf have one each. Buffers that are never touched take no
     * memory, so the bound may be generous. */
    const uint32_t buffers = 2 * ls_tree_buffers(plan->leaves, plan->group) + LS_SEQUENCE_CUT_MAX - 1;
    ls_control control = {
        .magic = LS_SEGMENT_MAGIC,
        .version = LS_SEGMENT_VERSION,
        .control_bytes = (uint32_t)(sizeof(ls_control) + plan->local_ranks * sizeof(ls_rank_slot)),
        .epoch = plan->epoch,
        .lease_ns = plan->lease_ns,
        .float_count = plan->float_count,
        .frozen_floats = plan->frozen_floats,
        .flat_bytes = aligned(plan->float_count * sizeof(float)),
        .text_bytes = plan->text_bytes,
        .exchange_bytes = plan->exchange_bytes,
        .leaves = plan->leaves,
        .buffers = buffers,
        .crew = crew_of(plan),
        .workers = plan->workers,
        .group = plan->group,
        .ranks = plan->ranks,
        .first_rank = plan->first_rank,
        .local_ranks = plan->local_ranks,
        .agent_pid = getpid(),
    };
    control.text_at = aligned(control.control_bytes);
    control.exchange_at = control.text_at + aligned(plan->text_bytes + 1);
    control.state_at = control.exchange_at + aligned(plan->exchange_bytes);
    /* Frozen parameters follow the trained ones, so this first area is larger than flat_bytes. */
    control.moments_at =
        control.state_at + aligned((plan->float_count + plan->frozen_floats) * sizeof(float));
    control.gradients_at =
        control.moments_at + (STATE_FLATS - 1 + 2 * residuals_of(&control)) * control.flat_bytes;
    control.workers_at = control.gradients_at + (uint64_t)plan->local_ranks * buffers * control.flat_bytes;
    control.bytes = control.workers_at + 3 * plan->workers * control.flat_bytes;
    return control;
}

/* ---- mapping ---- */

/* Maps `bytes` of fd at a multiple of LS_SEGMENT_ALIGN, so that the kernel may use huge pages. */
static ls_status map_aligned(int fd, uint64_t bytes, void **map_out)
{
    const size_t reserved = (size_t)bytes + LS_SEGMENT_ALIGN;
    char *room = mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) {
        return ls_fail_errno(
            errno, "can't reserve %llu bytes of addresses for the memory that the ranks of this host share",
            (unsigned long long)bytes);
    }
    char *at = (char *)(uintptr_t)aligned((uintptr_t)room);
    if (at > room) {
        munmap(room, (size_t)(at - room));
    }
    if (room + reserved > at + bytes) {
        munmap(at + bytes, (size_t)(room + reserved - (at + bytes)));
    }
    if (mmap(at, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        const int error = errno;
        munmap(at, (size_t)bytes);
        return ls_fail_errno(error, "can't map the memory that the ranks of this host share (%llu bytes)",
                             (unsigned long long)bytes);
    }
    *map_out = at;
    return LS_OK;
}

static void fill_pointers(ls_segment *segment)
{
    char *base = segment->map;
    ls_control *control = segment->map;
    segment->control = control;
    segment->text = base + control->text_at;
    segment->exchange = base + control->exchange_at;
    segment->parameters = (float *)(void *)(base + control->state_at);
    segment->m = (float *)(void *)(base + control->moments_at);
    segment->v = (float *)(void *)(base + control->moments_at + control->flat_bytes);
    segment->sums = (float *)(void *)(base + control->moments_at + 2 * control->flat_bytes);
    for (uint32_t i = 0; i < 3; i++) {
        segment->snapshot[i] = (float *)(void *)(base + control->moments_at + (3 + i) * control->flat_bytes);
    }
    segment->residuals =
        (float *)(void *)(base + control->moments_at + (STATE_FLATS - 1) * control->flat_bytes);
}

static ls_status create_memfd(uint64_t bytes, int *fd_out)
{
    const int fd = memfd_create("lockstep-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't make shared memory for the ranks (memfd_create)");
    }
    if (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
        const int error = errno;
        close(fd);
        return ls_fail_errno(error, "can't make %llu bytes of shared memory for the ranks",
                             (unsigned long long)bytes);
    }
    *fd_out = fd;
    return LS_OK;
}

/* The i-th local rank holds local part i. */
static ls_team first_team(const ls_segment_plan *plan)
{
    const bool as_ranks = plan->parts == 0;
    ls_team team = {.epoch = plan->epoch,
                    .cut = plan->epoch,
                    .parts = as_ranks ? plan->ranks : plan->parts,
                    .first_part = as_ranks ? plan->first_rank : plan->first_part,
                    .local_parts = as_ranks ? plan->local_ranks : plan->local_parts};
    for (uint32_t i = 0; i < team.local_parts; i++) {
        team.holder[i] = (uint16_t)i;
    }
    return team;
}

ls_status ls_segment_create(const ls_segment_plan *plan, ls_segment *segment_out)
{
    LS_ASSERT(plan->local_ranks >= 1 && plan->local_ranks <= LS_LOCAL_RANKS_MAX);
    LS_ASSERT(plan->first_rank + plan->local_ranks <= plan->ranks &&
              plan->ranks / crew_of(plan) <= plan->leaves);
    const ls_control control = place(plan);
    ls_segment segment = {.fd = -1, .bytes = control.bytes};
    LS_TRY(create_memfd(segment.bytes, &segment.fd));
    const ls_status status = map_aligned(segment.fd, segment.bytes, &segment.map);
    if (status != LS_OK) {
        close(segment.fd);
        return status;
    }
    memcpy(segment.map, &control, sizeof control);
    memcpy((char *)segment.map + control.text_at, plan->text, plan->text_bytes);
    fill_pointers(&segment);
    gethostname(segment.control->host, LS_HOST_NAME_BYTES - 1);
    const ls_team team = first_team(plan);
    LS_ASSERT(team.local_parts <= plan->local_ranks && team.parts / crew_of(plan) <= plan->leaves);
    ls_control_team(segment.control, &team);
    atomic_store(&segment.control->abort_rank, -1);
    *segment_out = segment;
    return LS_OK;
}

/* Whether this is a control page and describes a file of `bytes`. Offsets are computed again and
 * compared, so that a damaged page never becomes a wild pointer. */
static bool is_whole(const ls_control *seen, uint64_t bytes)
{
    if (seen->magic != LS_SEGMENT_MAGIC || seen->version != LS_SEGMENT_VERSION || seen->local_ranks < 1 ||
        seen->local_ranks > LS_LOCAL_RANKS_MAX || seen->crew < 1 || seen->ranks / seen->crew > seen->leaves ||
        seen->leaves > LS_LEAVES_MAX || seen->workers > LS_SEGMENT_WORKERS_MAX ||
        seen->group > seen->leaves || residuals_of(seen) > LS_RESIDUALS_MAX ||
        seen->first_rank > seen->ranks || seen->local_ranks > seen->ranks - seen->first_rank) {
        return false;
    }
    const ls_segment_plan plan = {.float_count = seen->float_count,
                                  .frozen_floats = seen->frozen_floats,
                                  .exchange_bytes = seen->exchange_bytes,
                                  .leaves = seen->leaves,
                                  .group = seen->group,
                                  .crew = seen->crew,
                                  .workers = seen->workers,
                                  .ranks = seen->ranks,
                                  .first_rank = seen->first_rank,
                                  .local_ranks = seen->local_ranks,
                                  .text_bytes = seen->text_bytes};
    const ls_control should = place(&plan);
    return seen->bytes == bytes && should.bytes == bytes && seen->control_bytes == should.control_bytes &&
           seen->text_at == should.text_at && seen->exchange_at == should.exchange_at &&
           seen->state_at == should.state_at && seen->moments_at == should.moments_at &&
           seen->gradients_at == should.gradients_at && seen->workers_at == should.workers_at &&
           seen->flat_bytes == should.flat_bytes;
}

static ls_status attach_fd(int fd, const char *path, ls_segment *segment_out)
{
    struct stat info;
    ls_control seen;
    if (fstat(fd, &info) != 0) {
        return ls_fail_errno(errno, "can't inspect the memory that the ranks of this host share, at %s",
                             path);
    }
    if (pread(fd, &seen, sizeof seen, 0) != (ssize_t)sizeof seen ||
        !is_whole(&seen, (uint64_t)info.st_size)) {
        return ls_fail(
            LS_ERR_DATA,
            "%s is not a segment of this version of lockstep (version %d): agent and ranks must run "
            "the same program",
            path, LS_SEGMENT_VERSION);
    }
    ls_segment segment = {.fd = fd, .bytes = seen.bytes};
    LS_TRY(map_aligned(fd, segment.bytes, &segment.map));
    fill_pointers(&segment);
    *segment_out = segment;
    return LS_OK;
}

ls_status ls_segment_attach(const char *path, ls_segment *segment_out)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return ls_fail_errno(errno, "can't open the memory that the ranks of this host share, at %s", path);
    }
    const ls_status status = attach_fd(fd, path, segment_out);
    if (status != LS_OK) {
        close(fd);
    }
    return status;
}

void ls_segment_release(ls_segment *segment)
{
    if (!segment->map) {
        return;
    }
    munmap(segment->map, (size_t)segment->bytes);
    close(segment->fd);
    *segment = (ls_segment){.fd = -1};
}

void ls_segment_begin_at(ls_segment *segment, uint64_t step)
{
    for (uint32_t local = 0; local < segment->control->local_ranks; local++) {
        ls_rank_slot *slot = ls_segment_slot(segment, local);
        atomic_store(&slot->finished, step);
        slot->fault = (ls_step_fault){0};
    }
    ls_control_begin_cut(segment->control, step);
    segment->control->team.first_step = segment->control->team.step = step;
    atomic_store(&segment->control->until, step);
}

float *ls_segment_gradient(const ls_segment *segment, uint32_t part, uint32_t index)
{
    const ls_control *control = segment->control;
    LS_DCHECK(part < control->local_ranks && index < control->buffers);
    const uint64_t at = (uint64_t)part * control->buffers + index;
    return (float *)(void *)((char *)segment->map + control->gradients_at + at * control->flat_bytes);
}

uint32_t ls_segment_gradient_count(const ls_segment *segment, uint32_t part)
{
    const ls_control *control = segment->control;
    const ls_team *team = &control->team;
    LS_DCHECK(part < team->local_parts);
    const ls_leaf_range leaves = ls_leaves_of_rank(control->leaves, team->parts / control->crew,
                                                   (team->first_part + part) / control->crew);
    return ls_tree_range_buffers(control->leaves, control->group, leaves) + LS_SEQUENCE_CUT_MAX - 1;
}

bool ls_segment_fits(const ls_segment *segment, const ls_layout *layout)
{
    return segment->control->float_count == (uint64_t)layout->float_count &&
           segment->control->frozen_floats == (uint64_t)(layout->parameter_floats - layout->float_count);
}

void ls_segment_state(const ls_segment *segment, uint32_t local, ls_queue *queue, const ls_layout *layout,
                      ls_state *state_out)
{
    LS_ASSERT(ls_segment_fits(segment, layout));
    *state_out = (ls_state){.queue = queue,
                            .layout = layout,
                            .borrowed = true,
                            .parameters = segment->parameters,
                            .frozen = segment->parameters + layout->float_count,
                            .m = segment->m,
                            .v = segment->v,
                            .worker_count = segment->control->workers,
                            .flat_stride = (int64_t)(segment->control->flat_bytes / sizeof(float)),
                            .groups = groups_of(segment->control),
                            .residual_count = (uint32_t)residuals_of(segment->control)};
    for (uint32_t i = 0; i < 2 * state_out->residual_count; i++) {
        state_out->residuals[i % 2][i / 2] = segment->residuals + i * state_out->flat_stride;
    }
    if (state_out->worker_count > 0) {
        /* parameters, m and v of each lie at the distances of the three above, which the undo
         * record relies on */
        LS_ASSERT(segment->m - segment->parameters == state_out->flat_stride);
        state_out->workers = (float *)(void *)((char *)segment->map + segment->control->workers_at);
    }
    if (local != LS_SEGMENT_NO_RANK) {
        state_out->gradient_count = ls_segment_gradient_count(segment, local);
        LS_ASSERT(state_out->gradient_count <= LS_GRADIENT_BUFFERS_MAX);
        for (uint32_t i = 0; i < state_out->gradient_count; i++) {
            state_out->gradients[i] = ls_segment_gradient(segment, local, i);
        }
    }
}

uint64_t ls_segment_touched_bytes(const ls_segment *segment)
{
    struct stat info;
    return fstat(segment->fd, &info) == 0 ? (uint64_t)info.st_blocks * 512 : 0;
}

/* ---- the control page ---- */

bool ls_control_abort(ls_control *control, ls_status status, int32_t rank, const char *text)
{
    LS_ASSERT(status != LS_OK);
    uint32_t unclaimed = 0;
    if (!atomic_compare_exchange_strong(&control->abort_claim, &unclaimed, (uint32_t)getpid())) {
        return false;
    }
    /* `abort` is stored after text and rank: a process that sees it can read both. `interrupt`
     * follows, so that a wait that ends because of it finds the reason. */
    snprintf(control->abort_text, LS_RANK_TEXT_BYTES, "%s", text);
    atomic_store(&control->abort_rank, rank);
    atomic_store(&control->abort_ns, ls_clock_monotonic_ns());
    atomic_store(&control->abort, (uint32_t)status);
    atomic_store(&control->interrupt, 1);
    ls_word_add(&control->orders, 1);
    ls_word_add(&control->news, 1);
    return true;
}

void ls_control_drop_claim(ls_control *control, int32_t pid)
{
    uint32_t claim = (uint32_t)pid;
    if (claim != 0 && atomic_load(&control->abort) == 0) {
        (void)atomic_compare_exchange_strong(&control->abort_claim, &claim, 0);
    }
}

ls_status ls_control_aborted(const ls_control *control)
{
    const uint32_t status = atomic_load(&control->abort);
    return status == 0 ? LS_OK : ls_fail((ls_status)status, "%s", control->abort_text);
}

void ls_control_grant(ls_control *control, uint64_t until)
{
    if (atomic_load(&control->until) < until) {
        atomic_store(&control->until, until);
        ls_word_add(&control->orders, 1);
    }
}

void ls_control_stop(ls_control *control)
{
    atomic_store(&control->stop, 1);
    ls_word_add(&control->orders, 1);
}

void ls_control_quit(ls_control *control)
{
    atomic_store(&control->quit, 1);
    ls_word_add(&control->orders, 1);
}

void ls_control_gather(ls_control *control, uint32_t count)
{
    atomic_store(&control->gather, count);
    ls_word_add(&control->orders, 1);
}

void ls_control_fence(ls_control *control, uint64_t epoch, bool hard)
{
    LS_ASSERT(epoch > atomic_load(&control->team_epoch) && epoch >= atomic_load(&control->fence));
    if (hard) {
        atomic_store(&control->hard, 1);
    }
    atomic_store(&control->fence, epoch);
    if (hard) {
        /* after the fence: a wait that ends because of it finds the fence as its reason */
        atomic_store(&control->interrupt, 1);
    }
    ls_word_add(&control->orders, 1);
}

void ls_control_fence_alone(ls_control *control)
{
    const uint64_t next = atomic_load(&control->team_epoch) + 1;
    uint64_t fence = atomic_load(&control->fence);
    if (fence >= next && atomic_load(&control->interrupt) != 0) {
        return;
    }
    atomic_store(&control->hard, 1);
    while (fence < next && !atomic_compare_exchange_weak(&control->fence, &fence, next)) {
    }
    atomic_store(&control->interrupt, 1);
    ls_word_add(&control->orders, 1);
}

void ls_control_limit(ls_control *control, uint64_t step)
{
    atomic_store(&control->limit, step);
    ls_word_add(&control->orders, 1);
}

bool ls_control_is_fenced(const ls_control *control, uint64_t finished)
{
    return atomic_load(&control->fence) > atomic_load(&control->team_epoch) &&
           (atomic_load(&control->hard) != 0 || finished >= atomic_load(&control->limit));
}

bool ls_control_is_parked(const ls_control *control, uint32_t local)
{
    return atomic_load(&control->slots[local].parked) > atomic_load(&control->team_epoch);
}

void ls_control_park(ls_control *control, uint32_t local, uint64_t team_epoch)
{
    atomic_store(&control->slots[local].parked, team_epoch + 1);
    ls_word_add(&control->news, 1);
}

bool ls_control_unpark(ls_control *control, uint32_t local, uint64_t finished)
{
    /* The rank clears its mark and then checks the fence; the agent raises the fence and then
     * checks the mark. Both in one total order, so at least one of them sees the other: either the
     * rank notices the fence, or the agent notices that the rank is no longer parked. */
    const uint64_t parked = atomic_exchange(&control->slots[local].parked, 0);
    if (!ls_control_is_fenced(control, finished)) {
        return true;
    }
    atomic_store(&control->slots[local].parked, parked);
    ls_word_add(&control->news, 1);
    return false;
}

/*
 * Copies team_spare into team, opens the fence and publishes the epoch. An agent that takes over
 * from one that died here runs it again from the start (ls_control_mend_team); every store gives
 * the same value then. The order:
 *   - team_edits is odd from before the first byte of the copy until after the last, so that
 *     readers discard a half-written team;
 *   - team_epoch comes last: a rank that sees the new epoch finds the fence's settings reset and
 *     the team complete.
 */
static void copy_spare_team(ls_control *control)
{
    atomic_thread_fence(memory_order_seq_cst);
    control->team = control->team_spare;
    atomic_fetch_add(&control->team_edits, 1);
    atomic_store(&control->limit, 0);
    atomic_store(&control->hard, 0);
    /* An abort stays in force. One that is claimed before the load below is seen there; a later one
     * sets the word itself, after this store. */
    atomic_store(&control->interrupt, 0);
    if (atomic_load(&control->abort_claim) != 0) {
        atomic_store(&control->interrupt, 1);
    }
    atomic_store(&control->team_epoch, control->team.epoch);
    ls_word_add(&control->orders, 1);
}

void ls_control_team(ls_control *control, const ls_team *team)
{
    LS_ASSERT(team->epoch > atomic_load(&control->team_epoch) || team->epoch == control->epoch);
    control->team_spare = *team;
    atomic_store(&control->team_edits, atomic_load(&control->team_edits) | 1u);
    copy_spare_team(control);
}

void ls_control_mend_team(ls_control *control)
{
    if (atomic_load(&control->team_edits) % 2 != 0 ||
        control->team.epoch > atomic_load(&control->team_epoch)) {
        atomic_store(&control->team_edits, atomic_load(&control->team_edits) | 1u);
        copy_spare_team(control);
    }
}

void ls_control_leave(ls_control *control, uint32_t local)
{
    atomic_store(&control->slots[local].leave, 1);
    ls_word_add(&control->orders, 1);
}

void ls_control_clear_slot(ls_control *control, uint32_t local)
{
    ls_rank_slot *slot = &control->slots[local];
    atomic_store(&slot->phase, LS_RANK_EMPTY);
    atomic_store(&slot->pid, 0);
    atomic_fetch_add(&slot->starts, 1);
    atomic_store(&slot->pid_start, 0);
    atomic_store(&slot->parked, 0);
    atomic_store(&slot->leave, 0);
    atomic_store(&slot->asks_to_leave, 0);
    atomic_store(&slot->gathered, atomic_load(&control->gather));
    atomic_store(&slot->alive_ns, 0);
    atomic_store(&slot->status, LS_OK);
    slot->fault = (ls_step_fault){0};
    slot->text[0] = '\0';
}

void ls_control_begin_cut(ls_control *control, uint64_t step)
{
    for (uint32_t i = 0; i < control->local_ranks; i++) {
        ls_part_marks *part = &control->parts[i];
        atomic_store(&part->entered, step);
        atomic_store(&part->begun, step);
        atomic_store(&part->done, step);
    }
}

bool ls_control_try_team(const ls_control *control, ls_team *team_out)
{
    const uint32_t before = atomic_load(&control->team_edits);
    *team_out = control->team;
    atomic_thread_fence(memory_order_seq_cst);
    return before % 2 == 0 && atomic_load(&control->team_edits) == before;
}

void ls_control_read_team(const ls_control *control, ls_team *team_out)
{
    while (!ls_control_try_team(control, team_out)) {
    }
}

void ls_control_phase(ls_control *control, uint32_t local, ls_rank_phase phase)
{
    atomic_store(&control->slots[local].alive_ns, ls_clock_monotonic_ns());
    atomic_store(&control->slots[local].phase, (uint32_t)phase);
    ls_word_add(&control->news, 1);
}

/* Wakes the trainer once per step, not once per rank: only the holder of part 0 does. */
static void tell_trainer(ls_control *control, uint32_t local)
{
    if (control->team.local_parts == 0 || control->team.holder[0] == local) {
        ls_word_add(&control->news, 1);
    }
}

void ls_control_result(ls_control *control, uint32_t local, const ls_rank_result *result)
{
    ls_rank_slot *slot = &control->slots[local];
    slot->results[result->step % LS_RANK_RESULTS] = *result;
    atomic_store(&slot->alive_ns, result->end_ns);
    atomic_store(&slot->finished, result->step + 1);
    tell_trainer(control, local);
}

void ls_control_gave_up(ls_control *control, uint32_t local, uint64_t step)
{
    atomic_store(&control->slots[local].gave_up, step + 1);
    tell_trainer(control, local);
}

const ls_rank_slot *ls_control_with_result(const ls_control *control, uint64_t step)
{
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        const ls_rank_slot *slot = &control->slots[local];
        const ls_rank_result *result = &slot->results[step % LS_RANK_RESULTS];
        if (atomic_load(&slot->finished) > step && result->step == step && result->end_ns != 0) {
            return slot;
        }
    }
    return NULL;
}

uint64_t ls_control_results_from(const ls_control *control)
{
    uint64_t from = 0;
    for (uint32_t local = 0; local < control->local_ranks; local++) {
        const uint64_t finished = atomic_load(&control->slots[local].finished);
        from = finished > from ? finished : from;
    }
    while (from > 0 && ls_control_with_result(control, from - 1)) {
        from--;
    }
    return from;
}

bool ls_control_is_consistent(const ls_control *control, uint64_t *finished_out)
{
    const uint64_t done = atomic_load(&control->parts[0].done);
    for (uint32_t i = 0; i < control->team.local_parts; i++) {
        const ls_part_marks *part = &control->parts[i];
        if (atomic_load(&part->begun) != done || atomic_load(&part->done) != done) {
            return false;
        }
    }
    *finished_out = done;
    return true;
}
