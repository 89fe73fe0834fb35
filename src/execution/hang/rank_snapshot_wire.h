// SPDX-License-Identifier: Apache-2.0
/*
 * Rank snapshots as bytes: how the agent of a host tells the coordinator what its ranks are doing.
 *
 *   ┌───────────────────┬────────────┬────────────┬─
 *   │ version, count    │ snapshot 0 │ snapshot 1 │ ...
 *   └───────────────────┴────────────┴────────────┴─
 *   each snapshot: header, now, process, counts; then as many communicators, open operations, last
 *   operations and bytes of last words as the counts say
 *
 * Both sides are the same program (cluster_wire.h), so structs are sent as they are in memory. What
 * arrives is checked all the same: nothing is read past the end, no bytes may be left over, numbers
 * are in range, strings are terminated and printable.
 */
#ifndef LS_EXECUTION_HANG_RANK_SNAPSHOT_WIRE_H
#define LS_EXECUTION_HANG_RANK_SNAPSHOT_WIRE_H

#include "base/text.h"
#include "execution/hang/rank_snapshot.h"

enum {
    LS_RANK_SNAPSHOT_WIRE_VERSION = 1,
    LS_RANK_SNAPSHOTS_MAX = 16, /* in one message, which then has about 100 KB at most */
};

/* Appends `count` snapshots, at most LS_RANK_SNAPSHOTS_MAX. taken_ns is left out, so that equal
 * bytes mean that nothing has changed. */
void ls_rank_snapshots_encode(const ls_rank_snapshot *snapshots, uint32_t count, ls_text *bytes);

/* ranks: of the run. taken_ns is stored in every snapshot. snapshots_out has room for
 * LS_RANK_SNAPSHOTS_MAX. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_rank_snapshots_decode(const void *data, size_t bytes, uint32_t ranks,
                                                 uint64_t taken_ns, ls_rank_snapshot *snapshots_out,
                                                 uint32_t *count_out);

/* Moves all times of a snapshot to another host's clock by adding `ns`. */
void ls_rank_snapshot_shift(ls_rank_snapshot *snapshot, int64_t ns);

/* Makes `bytes` of text safe for a terminal and for JSON: terminates it and replaces all but
 * printable ASCII with '?'. keep_lines: line ends stay. */
void ls_rank_snapshot_clean(char *text, size_t bytes, bool keep_lines);

#endif
