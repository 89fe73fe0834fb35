// SPDX-License-Identifier: Apache-2.0
/*
 * What ranks tell each other before an update, so that all of them make the same decision.
 *
 *   one host          each part writes its claim -> meeting -> each rank reads all claims and comes
 *                     to the same result by itself
 *   several hosts     each part writes its claim -> meeting -> the first rank of each host combines
 *                     the claims of its host, exchanges them with the other first ranks, and writes
 *                     the result to the exchange area -> meeting -> each rank reads it there
 *
 * No rank is in charge: every reader applies the same pure function (judge, the tree of losses, the
 * sum of the blocks) to the same claims, so the results have the same bits.
 *
 * A claim is written before its part reaches the meeting and never changed after it. So a process
 * that takes over a part after the meeting finds the claim complete, and computes nothing again.
 */
#include "execution/parallel/data_parallel_internal.h"

#include "base/assert.h"
#include "execution/parallel/compressed.h"
#include "execution/parallel/fetch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- verdicts ---- */

/* Names the ranks whose fingerprints differ from those of the majority. */
static ls_status fail_mismatch(const ls_exchange_claim *const *claims, uint32_t count, const char *members)
{
    uint32_t best = 0, best_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t same = 0;
        for (uint32_t k = 0; k < count; k++) {
            same += claims[k]->fingerprint == claims[i]->fingerprint;
        }
        if (same > best_count) {
            best = i;
            best_count = same;
        }
    }
    const ls_exchange_claim *most = claims[best];
    char others[512];
    size_t used = 0;
    others[0] = 0;
    for (uint32_t i = 0; i < count && used + 64 < sizeof others; i++) {
        if (claims[i]->fingerprint != most->fingerprint) {
            used += (size_t)snprintf(others + used, sizeof others - used,
                                     "%srank %u (step %llu, settings %016llx)", used > 0 ? ", " : "",
                                     claims[i]->rank, (unsigned long long)claims[i]->step + 1,
                                     (unsigned long long)claims[i]->fingerprint);
        }
    }
    return ls_fail(
        LS_ERR_MISMATCH,
        "ranks are not in the same step with the same settings: %u of %u %s (rank %u among them) have "
        "step %llu, settings %016llx; these differ: %s. All must be started from one run file by one binary",
        best_count, count, members, most->rank, (unsigned long long)most->step + 1,
        (unsigned long long)most->fingerprint, others);
}

static bool is_stop(uint32_t status)
{
    return status == LS_STOPPED || status == LS_INTERRUPTED;
}

/* The verdict on the claims, in order of precedence: the error of the lowest claim that has one, a
 * mismatch of fingerprints, a request to stop. *whose_out: the index of the claim that decided
 * it. */
static ls_status judge(const ls_exchange_claim *const *claims, uint32_t count, const char *members,
                       uint32_t *whose_out)
{
    uint32_t stopped = count;
    *whose_out = 0;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t status = claims[i]->status;
        if (status != LS_OK && !is_stop(status)) {
            *whose_out = i;
            return ls_fail((ls_status)status, "%s", claims[i]->report.text);
        }
        stopped = is_stop(status) && stopped == count ? i : stopped;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (claims[i]->fingerprint != claims[0]->fingerprint) {
            return fail_mismatch(claims, count, members);
        }
    }
    *whose_out = stopped < count ? stopped : 0;
    return stopped < count ? (ls_status)claims[stopped]->status : LS_OK;
}

static ls_status judge_ranks(ls_data_parallel *p, uint32_t *rank_out)
{
    uint32_t whose = 0;
    for (uint32_t i = 0; i < p->view.local_parts; i++) {
        p->claims[i] = ls_claim_of(p, i);
    }
    const ls_status status = judge(p->claims, p->view.local_parts, "ranks", &whose);
    *rank_out = p->claims[whose]->rank;
    p->fault = status != LS_OK ? p->claims[whose]->report.fault : (ls_step_fault){0};
    const bool is_named = status != LS_OK && !is_stop(status) && status != LS_ERR_MISMATCH && p->parts > 1;
    char name[LS_MESH_NAME_BYTES];
    return is_named ? ls_fail_within(status, "%s", ls_mesh_name(p->mesh, *rank_out, NULL, name)) : status;
}

/* ---- losses and squared sums ---- */

/* Runs the program of the gradient sum over losses and token counts, sums[i] for input i: a stack
 * machine with operands and additions. The losses are therefore added in exactly the order of the
 * gradients. */
static ls_leaf_sum node_sum_losses(const ls_node_sum *sum, const ls_leaf_sum *sums)
{
    ls_leaf_sum stack[LS_TREE_SUM_DEPTH_MAX];
    uint32_t depth = 0;
    for (uint32_t i = 0; i < sum->sum.length; i++) {
        if (sum->program[i] != LS_TREE_ADD) {
            stack[depth++] = sums[sum->program[i]];
            continue;
        }
        depth--;
        stack[depth - 1].leaves.count += stack[depth].leaves.count;
        stack[depth - 1].loss_sum += stack[depth].loss_sum;
        stack[depth - 1].tokens += stack[depth].tokens;
    }
    return stack[0];
}

/* Concatenates the sums of `count` claims: sum_count in total, in the order of leaves. */
static const ls_leaf_sum *collect_sums(const ls_data_parallel *p, const ls_exchange_claim *const *claims,
                                       uint32_t count, uint32_t sum_count)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < claims[i]->sum_count; k++) {
            LS_ASSERT(n < sum_count);
            p->leaf_sums[n++] = claims[i]->sums[k];
        }
    }
    LS_ASSERT(n == sum_count);
    return p->leaf_sums;
}

/* Strictly from left to right, continuing `sum`: splitting a range must not change the bits. */
static double add_blocks(const double *blocks, int64_t count, double sum)
{
    for (int64_t i = 0; i < count; i++) {
        sum += blocks[i];
    }
    return sum;
}

/* What compression left over of the gradients of `count` claims. */
static ls_exact_sum add_left_over(const ls_exchange_claim *const *claims, uint32_t count)
{
    ls_exact_sum sum = {0};
    for (uint32_t i = 0; i < count; i++) {
        ls_exact_sum_add(&sum, claims[i]->left_over);
    }
    return sum;
}

/* ---- one host ---- */

static ls_status conclude_alone(ls_data_parallel *p, ls_agreement *agreement_out)
{
    uint32_t rank;
    LS_TRY(judge_ranks(p, &rank));
    const ls_leaf_sum *sums = collect_sums(p, p->claims, p->view.local_parts, ls_last_stage(p)->local_count);
    const ls_leaf_sum total = node_sum_losses(&ls_last_stage(p)->whole, sums);
    *agreement_out =
        (ls_agreement){.loss_sum = total.loss_sum,
                       .tokens = total.tokens,
                       .square_sum = add_blocks(p->block_sums, p->block_count, 0.0),
                       .left_over = ls_exact_sum_value(add_left_over(p->claims, p->view.local_parts))};
    return LS_OK;
}

/* ---- several hosts ---- */

/* For the first rank of a host: exchanges records with the first ranks of the others. */
static ls_status hear_hosts(ls_data_parallel *p, const void *in, void *out, uint64_t bytes)
{
    ls_hosts_post_exchange(p->hosts, in, out, bytes);
    return ls_data_parallel_await(p, p->hosts, ls_hosts_posted(p->hosts), "the results of the other hosts");
}

/* The norm blocks of bucket `bucket` that ranks of the host own: one contiguous range. */
static ls_slice blocks_of_host(const ls_data_parallel *p, const ls_mesh_host *host, uint32_t bucket)
{
    const ls_slice first = ls_slice_of(p->layout, bucket, p->parts, host->first_rank);
    const ls_slice last = ls_slice_of(p->layout, bucket, p->parts, host->first_rank + host->rank_count - 1);
    return (ls_slice){.first_block = first.first_block,
                      .block_count = last.first_block + last.block_count - first.first_block};
}

/* Merges notes. Of all ranks one is the owner and one the checker; the others have zeros there. */
static void add_note(ls_rank_note *note, const ls_rank_note *more)
{
    static const ls_hash128 zero;
    if (memcmp(&more->owner, &zero, sizeof zero) != 0) {
        note->owner = more->owner;
    }
    if (memcmp(&more->checker, &zero, sizeof zero) != 0) {
        note->checker = more->checker;
    }
    note->weights.low += more->weights.low;
    note->weights.high += more->weights.high;
}

/* Combines the claims of this host's parts into one. */
static void claim_for_host(ls_data_parallel *p, ls_exchange_claim *claim)
{
    uint32_t rank;
    *claim = *ls_claim_of(p, 0);
    claim->note = (ls_rank_note){0};
    for (uint32_t i = 0; i < p->view.local_parts; i++) {
        add_note(&claim->note, &ls_claim_of(p, i)->note);
    }
    claim->status = judge_ranks(p, &rank);
    claim->rank = rank;
    claim->sum_count = 0;
    if (claim->status != LS_OK) {
        snprintf(claim->report.text, sizeof claim->report.text, "%s", ls_error_text());
        claim->report.fault = p->fault;
        return;
    }
    const ls_stage_sums *last = ls_last_stage(p);
    const ls_leaf_sum *sums = collect_sums(p, p->claims, p->view.local_parts, last->local_count);
    claim->sum_count = last->node_count;
    claim->left_over = add_left_over(p->claims, p->view.local_parts);
    for (uint32_t k = 0; k < last->node_count; k++) {
        claim->sums[k] = node_sum_losses(&last->node_sums[k], sums + last->node_first[k]);
    }
}

/*
 * Adds up the squared sums of all norm blocks. Floating-point sums depend on the order, so this
 * must be the order of one host: block after block in buffer order. A host owns one range of each
 * bucket, in the order of hosts, so going bucket by bucket and host by host visits the blocks in
 * that order:
 *
 *   received   host 0: | b0 | b1 | b2 |     host 1: | b0 | b1 | b2 |       (host_block_max apart)
 *   added up   h0 b0, h1 b0,  h0 b1, h1 b1,  h0 b2, h1 b2
 */
static ls_status add_blocks_of_hosts(ls_data_parallel *p, double *sum_out)
{
    const ls_mesh_host *hosts = ls_hosts_table(p->hosts);
    const uint32_t host_count = ls_hosts_count(p->hosts);
    double *own = p->host_blocks + host_count * p->host_block_max;
    uint64_t n = 0;
    for (uint32_t b = 0; b < p->bucket_count; b++) {
        const ls_slice blocks = blocks_of_host(p, &hosts[ls_hosts_self(p->hosts)], b);
        memcpy(own + n, p->block_sums + blocks.first_block, (size_t)blocks.block_count * sizeof *own);
        n += (uint64_t)blocks.block_count;
    }
    LS_TRY(hear_hosts(p, own, p->host_blocks, p->host_block_max * sizeof *own));
    memset(p->block_cursor, 0, host_count * sizeof *p->block_cursor);
    double sum = 0.0;
    for (uint32_t b = 0; b < p->bucket_count; b++) {
        for (uint32_t h = 0; h < host_count; h++) {
            const int64_t count = blocks_of_host(p, &hosts[h], b).block_count;
            sum = add_blocks(p->host_blocks + h * p->host_block_max + p->block_cursor[h], count, sum);
            p->block_cursor[h] += (uint64_t)count;
        }
    }
    *sum_out = sum;
    return LS_OK;
}

/* For the first rank of a host: exchanges claims with the other hosts and writes verdict and sums
 * to the exchange area. `agreed` is stored last: whoever sees it finds everything else complete,
 * also after this process has died. Errors of the communicator. */
static ls_status conclude_hosts(ls_data_parallel *p)
{
    ls_exchange *exchange = p->view.exchange;
    const uint32_t count = ls_hosts_count(p->hosts);
    ls_exchange_claim *own = &p->host_claims[count];
    claim_for_host(p, own);
    LS_TRY(hear_hosts(p, own, p->host_claims, sizeof *own));
    for (uint32_t h = 0; h < count; h++) {
        p->claims[h] = &p->host_claims[h];
    }
    uint32_t whose = 0;
    const ls_status status = judge(p->claims, count, "hosts", &whose);
    exchange->verdict.status = status;
    exchange->verdict.report.fault = p->claims[whose]->report.fault;
    exchange->verdict.note = (ls_rank_note){0};
    exchange->weights_differ = 0;
    for (uint32_t h = 0; h < count; h++) {
        add_note(&exchange->verdict.note, &p->claims[h]->note);
        exchange->weights_differ |= !ls_hash128_equal(p->claims[h]->note.weights, p->claims[0]->note.weights);
    }
    if (status != LS_OK) {
        snprintf(exchange->verdict.report.text, sizeof exchange->verdict.report.text, "%s", ls_error_text());
        return LS_OK;
    }
    const ls_leaf_sum total =
        node_sum_losses(&p->root, collect_sums(p, p->claims, count, p->root.sum.input_count));
    exchange->agreement.loss_sum = total.loss_sum;
    exchange->agreement.tokens = total.tokens;
    exchange->agreement.left_over = ls_exact_sum_value(add_left_over(p->claims, count));
    LS_TRY(add_blocks_of_hosts(p, &exchange->agreement.square_sum));
    atomic_store(&exchange->agreed, p->view.step + 1);
    return LS_OK;
}

/* ---- the verdict, for hosts that did not receive it ---- */

typedef struct verdict_bytes {
    ls_exchange_claim verdict;
    ls_agreement agreement;
    uint32_t weights_differ;
} verdict_bytes;
_Static_assert(sizeof(verdict_bytes) <= LS_VERDICT_BYTES, "a verdict has room");

void ls_data_parallel_read_verdict(const void *exchange, ls_step_verdict *verdict_out)
{
    const ls_exchange *from = exchange;
    const verdict_bytes bytes = {from->verdict, from->agreement, from->weights_differ};
    *verdict_out = (ls_step_verdict){.agreed = atomic_load(&from->agreed)};
    memcpy(verdict_out->bytes, &bytes, sizeof bytes);
}

/* A newer verdict of this host is never overwritten. `agreed` is stored last, as in
 * conclude_hosts. */
void ls_data_parallel_write_verdict(void *exchange, const ls_step_verdict *verdict)
{
    ls_exchange *to = exchange;
    verdict_bytes bytes;
    memcpy(&bytes, verdict->bytes, sizeof bytes);
    if (atomic_load(&to->agreed) < verdict->agreed) {
        to->verdict = bytes.verdict;
        to->agreement = bytes.agreement;
        to->weights_differ = bytes.weights_differ;
        atomic_store(&to->agreed, verdict->agreed);
    }
}

static ls_status read_conclusion(ls_data_parallel *p, ls_agreement *agreement_out)
{
    const ls_exchange *exchange = p->view.exchange;
    const ls_status status = (ls_status)exchange->verdict.status;
    if (status != LS_OK) {
        p->fault = exchange->verdict.report.fault;
        return is_stop(status) ? status : ls_fail(status, "%s", exchange->verdict.report.text);
    }
    *agreement_out = exchange->agreement;
    return LS_OK;
}

/* ---- the agreement ---- */

/* Completes the claims of this process' parts. Once a part has reached the agreement its claim is
 * final; a process that has taken the part over must not touch it, because others read it. */
static void make_claims(ls_data_parallel *p)
{
    /* those of all parts of the process are in the claim of the first; a process that continues a
     * step does not know what the one before it had left over */
    ls_exact_sum left_over = p->compressed ? ls_compressed_left_over(p->compressed) : (ls_exact_sum){0};
    if (p->compressed && p->is_resumed) {
        left_over.high = UINT64_MAX;
    }
    for (uint32_t i = 0; i < p->own_count; i++) {
        const ls_own_part *own = &p->own[i];
        ls_exchange_claim *claim = own->is_ahead ? NULL : ls_claim_of(p, own->local);
        if (claim && ls_data_parallel_computes(p, i)) {
            claim->sum_count = own->part.has_losses ? atomic_load(&own->slot->stack.depth) : 0;
            memcpy(claim->sums, own->slot->stack.nodes, claim->sum_count * sizeof *claim->sums);
            claim->left_over = left_over;
            left_over = (ls_exact_sum){0};
        }
    }
}

/* With several hosts there are two meetings: after the first one all claims of the host are
 * complete, so its first rank can combine them; after the second one its verdict is complete. */
static ls_status meet_all(ls_data_parallel *p)
{
    uint32_t last = UINT32_MAX;
    ls_flight_record *record = ls_data_parallel_record(p, LS_COMM_STEP, p->bucket_count, p->fingerprint,
                                                       (uint64_t)p->block_count, __LINE__);
    const uint64_t waited_ns = p->view.wait_ns;
    ls_status status = ls_data_parallel_meet(p, LS_MEET_AGREE, "the agreement", &last);
    if (p->hosts && status == LS_OK && p->view.local == 0) {
        status = conclude_hosts(p);
    }
    if (p->hosts && status == LS_OK) {
        status = ls_exchange_meet(&p->view, "the results of the other hosts", NULL);
    }
    ls_flight_end(record, 0, last, p->view.wait_ns - waited_ns, status);
    return status;
}

ls_status ls_data_parallel_agree(ls_data_parallel *p, ls_queue *queue, ls_agreement *agreement_out)
{
    /* All hosts had agreed before the transfers were ended. The rest of the step needs no other
     * host. */
    const bool is_agreed = p->is_broken && atomic_load(&p->view.exchange->agreed) == p->view.step + 1;
    if (!is_agreed) {
        LS_TRY(ls_data_parallel_sum_rest(p, queue));
        LS_TRY(ls_queue_wait(queue));
        make_claims(p);
        ls_fault_injection_at(p->fault_injection, LS_PHASE_CLAIM, p->view.step);
        LS_TRY(meet_all(p));
    }
    const ls_status status = p->hosts ? read_conclusion(p, agreement_out) : conclude_alone(p, agreement_out);
    if (status != LS_OK) {
        /* All ranks have the same error. They meet once more, because the next step reuses the
         * claims and given_up, and a slow rank must have read them before. */
        LS_TRY(ls_data_parallel_meet(p, LS_MEET_END, "the end of a step that was given up", NULL));
        ls_fetch_leave(p->fetch);
    }
    return status;
}

/* ---- reports ---- */

static const ls_leaf_report *first_report(const ls_exchange_claim *const *claims, uint32_t count)
{
    uint32_t i = 0;
    while (i + 1 < count && claims[i]->report.text[0] == 0) {
        i++;
    }
    return &claims[i]->report;
}

static const ls_leaf_report *report_of_ranks(const ls_data_parallel *p)
{
    for (uint32_t i = 0; i < p->view.local_parts; i++) {
        p->claims[i] = ls_claim_of(p, i);
    }
    return first_report(p->claims, p->view.local_parts);
}

static ls_status exchange_reports(ls_data_parallel *p)
{
    const uint32_t count = ls_hosts_count(p->hosts);
    ls_exchange_claim *own = &p->host_claims[count];
    own->report = *report_of_ranks(p);
    LS_TRY(hear_hosts(p, own, p->host_claims, sizeof *own));
    for (uint32_t h = 0; h < count; h++) {
        p->claims[h] = &p->host_claims[h];
    }
    p->view.exchange->verdict.report = *first_report(p->claims, count);
    return LS_OK;
}

/* The claims are reused as mailboxes: the agreement has failed or will not be used for an update,
 * so only the report in them is read from here on. */
ls_status ls_data_parallel_report(ls_data_parallel *p, ls_leaf_report *report_inout)
{
    static const char what[] = "the report on values that are not finite";
    if (p->active_count > 0) {
        ls_claim_of(p, p->active[0])->report = *report_inout;
    }
    LS_TRY(ls_data_parallel_meet(p, LS_MEET_NEXT, what, NULL));
    if (!p->hosts) {
        *report_inout = *report_of_ranks(p);
        return LS_OK;
    }
    if (p->view.local == 0) {
        LS_TRY(exchange_reports(p));
    }
    LS_TRY(ls_data_parallel_meet(p, LS_MEET_NEXT, what, NULL));
    *report_inout = p->view.exchange->verdict.report;
    return LS_OK;
}

/* ---- faults, notes, and messages between ranks ---- */

const ls_step_fault *ls_data_parallel_fault(const ls_data_parallel *p)
{
    return &p->fault;
}

void ls_data_parallel_note(ls_data_parallel *p, uint32_t index, ls_note_kind kind, ls_hash128 hash)
{
    ls_own_part *own = &p->own[index];
    ls_rank_note *note = &ls_claim_of(p, own->local)->note;
    *(kind == LS_NOTE_OWNER     ? &note->owner
      : kind == LS_NOTE_CHECKER ? &note->checker
                                : &note->weights) = hash;
    atomic_fetch_or(&own->slot->noted, 1u << kind);
}

bool ls_data_parallel_is_noted(const ls_data_parallel *p, uint32_t index, ls_note_kind kind)
{
    return atomic_load(&p->own[index].slot->noted) >> kind & 1;
}

const ls_rank_note *ls_data_parallel_note_of(const ls_data_parallel *p, uint32_t part)
{
    if (p->hosts) {
        return &p->view.exchange->verdict.note;
    }
    LS_ASSERT(part < p->view.local_parts);
    return &ls_claim_of(p, part)->note;
}

bool ls_data_parallel_weights_differ(const ls_data_parallel *p)
{
    return p->hosts && p->view.exchange->weights_differ != 0;
}

ls_rank_place ls_data_parallel_place(const ls_data_parallel *p, uint32_t part)
{
    LS_ASSERT(part < p->parts);
    if (!p->hosts) {
        return (ls_rank_place){.hosts = 1, .local = part, .local_ranks = p->parts};
    }
    const ls_mesh_host *hosts = ls_hosts_table(p->hosts);
    const uint32_t count = ls_hosts_count(p->hosts);
    uint32_t host = 0;
    while (host + 1 < count && hosts[host + 1].first_rank <= part) {
        host++;
    }
    return (ls_rank_place){.host = host,
                           .hosts = count,
                           .local = part - hosts[host].first_rank,
                           .local_ranks = hosts[host].rank_count};
}

/* For the first rank of a host: fetches the verdict text of the host of rank `from`. */
static ls_status hear_host(ls_data_parallel *p, uint32_t from)
{
    const uint32_t host = ls_data_parallel_place(p, from).host;
    ls_exchange_claim *own = &p->host_claims[ls_hosts_count(p->hosts)];
    own->report = p->view.exchange->verdict.report;
    LS_TRY(hear_hosts(p, own, p->host_claims, sizeof *own));
    p->view.exchange->verdict.report = p->host_claims[host].report;
    return LS_OK;
}

static bool runs_part(const ls_data_parallel *p, uint32_t part)
{
    for (uint32_t i = 0; i < p->own_count; i++) {
        if (p->own[i].part.number == part) {
            return true;
        }
    }
    return false;
}

/*
 * Sends `data` through the text of the verdict, piece by piece. Three meetings per piece: after the
 * first the piece is complete on the host of `from`; after the second (several hosts) on all hosts;
 * after the third all ranks have read it, and the next piece may overwrite it.
 */
ls_status ls_data_parallel_tell(ls_data_parallel *p, uint32_t from, void *data, size_t bytes)
{
    LS_ASSERT(from < p->parts);
    char *shared = p->view.exchange->verdict.report.text;
    const size_t most = sizeof p->view.exchange->verdict.report.text;
    for (size_t at = 0; at < bytes; at += most) {
        const size_t part = bytes - at < most ? bytes - at : most;
        if (runs_part(p, from)) {
            memcpy(shared, (char *)data + at, part);
        }
        LS_TRY(ls_data_parallel_meet(p, LS_MEET_NEXT, "a message of a rank", NULL));
        if (p->hosts && p->view.local == 0) {
            LS_TRY(hear_host(p, from));
        }
        if (p->hosts) {
            LS_TRY(ls_data_parallel_meet(p, LS_MEET_NEXT, "a message of a rank of another host", NULL));
        }
        memcpy((char *)data + at, shared, part);
        LS_TRY(ls_data_parallel_meet(p, LS_MEET_NEXT, "the end of a message of a rank", NULL));
    }
    return LS_OK;
}

/* ---- life ---- */

static ls_status init_hosts(ls_data_parallel *p)
{
    const ls_mesh_host *hosts = ls_hosts_table(p->hosts);
    const uint32_t count = ls_hosts_count(p->hosts);
    ls_leaf_range *nodes = calloc(LS_TREE_INPUTS_MAX, sizeof *nodes);
    if (!nodes) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the order in which gradients are summed");
    }
    uint32_t node_count = 0;
    for (uint32_t h = 0; h < count; h++) {
        const ls_host_leaves *of = ls_hosts_leaves(p->hosts, h, p->stage_count - 1);
        memcpy(nodes + node_count, of->nodes, of->node_count * sizeof *nodes);
        node_count += of->node_count;
        uint64_t blocks = 0;
        for (uint32_t b = 0; b < p->bucket_count; b++) {
            blocks += (uint64_t)blocks_of_host(p, &hosts[h], b).block_count;
        }
        p->host_block_max = blocks > p->host_block_max ? blocks : p->host_block_max;
    }
    const ls_status status = ls_node_sum_init(&p->root, p->leaf_count, 0, nodes, node_count);
    free(nodes);
    LS_TRY(status);
    p->host_claims = calloc(count + 1, sizeof *p->host_claims);
    p->host_blocks = calloc((count + 1) * p->host_block_max + 1, sizeof *p->host_blocks);
    p->block_cursor = calloc(count, sizeof *p->block_cursor);
    if (!p->host_claims || !p->host_blocks || !p->block_cursor) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the results that %u hosts report at each step",
                       count);
    }
    return LS_OK;
}

ls_status ls_agreement_init(ls_data_parallel *p)
{
    p->claims = calloc(p->parts, sizeof *p->claims);
    p->leaf_sums = calloc(LS_TREE_INPUTS_MAX, sizeof *p->leaf_sums);
    if (!p->claims || !p->leaf_sums) {
        return ls_fail(LS_ERR_MEMORY, "not enough memory for the results that %u ranks report at each step",
                       p->parts);
    }
    return p->hosts ? init_hosts(p) : LS_OK;
}

void ls_agreement_release(ls_data_parallel *p)
{
    free(p->claims);
    free(p->leaf_sums);
    free(p->root.program);
    free(p->host_claims);
    free(p->host_blocks);
    free(p->block_cursor);
}
