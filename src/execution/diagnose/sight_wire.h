// SPDX-License-Identifier: Apache-2.0
/*
 * Sights as bytes: how the agent of a host tells the coordinator what its ranks do.
 *
 *   head      version, number of sights
 *   sight     header, now, process and counts; then its communicators, operations and last words, as many as there are
 *
 * Both sides are one program (cluster_wire.h), so structs travel as they are; what comes in is checked all the same: nothing is read past the end,
 * nothing may be left over, numbers are in range, and strings end and are printable.
 */
#ifndef LS_EXECUTION_DIAGNOSE_SIGHT_WIRE_H
#define LS_EXECUTION_DIAGNOSE_SIGHT_WIRE_H

#include "base/text.h"
#include "execution/diagnose/sight.h"

enum {
    LS_SIGHT_WIRE_VERSION = 1,
    LS_SIGHTS_MAX = 16, /* in one message: at most some 100 KB */
};

/* Appends `count` sights, at most LS_SIGHTS_MAX; taken_ns is left out, so that the same bytes say that nothing changed. */
void ls_sights_encode(const ls_sight *sights, uint32_t count, ls_text *bytes);

/* ranks: of the run. taken_ns goes into every sight. sights_out has LS_SIGHTS_MAX of room. Errors: LS_ERR_DATA. */
LS_MUST_CHECK ls_status ls_sights_decode(const void *data, size_t bytes, uint32_t ranks, uint64_t taken_ns,
                                         ls_sight *sights_out, uint32_t *count_out);

/* Puts all times of a sight on another host's clock: ns is added. */
void ls_sight_shift(ls_sight *sight, int64_t ns);

/* What a terminal or a JSON document can take, within `bytes`: zero-terminated, other characters become '?'; line ends stay when keep_lines. */
void ls_sight_clean(char *text, size_t bytes, bool keep_lines);

#endif
