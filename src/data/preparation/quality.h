// SPDX-License-Identifier: Apache-2.0
/*
 * Rules of quality: each judges a passage, and says by which rule it is removed; a reason of 0
 * means that it is kept. The order of the rules is datatrove's, so that reasons agree too.
 *
 * Thread-safe for separate scratches. All errors are LS_ERR_MEMORY.
 */
#ifndef LS_DATA_PREPARATION_QUALITY_H
#define LS_DATA_PREPARATION_QUALITY_H

#include "data/preparation/step.h"
#include "data/preparation/step_scratch.h"

LS_MUST_CHECK ls_status ls_gopher_judge(const ls_step *step, ls_step_scratch *scratch,
                                        const ls_passage *passage, ls_removal *removal_out);

/* The thresholds are those of the paper's table A1. */
LS_MUST_CHECK ls_status ls_repetition_judge(ls_step_scratch *scratch, const ls_passage *passage,
                                            ls_removal *removal_out);

LS_MUST_CHECK ls_status ls_fineweb_judge(const ls_step *step, ls_step_scratch *scratch,
                                         const ls_passage *passage, ls_removal *removal_out);

/* Also removes lines and citations ("[12]", "[edit]") from the passage. judges: false leaves out
 * what only decides. */
LS_MUST_CHECK ls_status ls_c4_apply(const ls_step *step, ls_step_scratch *scratch, bool judges,
                                    ls_passage *passage, ls_removal *removal_out);

/* Lines of a text as Python's splitlines cuts them: at \n, \r\n, \r, \v, \f, \x1c to \x1e, U+0085,
 * U+2028 and U+2029. */
typedef struct ls_line {
    const char *text;
    size_t bytes;
} ls_line;
/* Cuts the next line from *at on. Returns false at the end of the text. */
bool ls_line_next(const char *text, size_t bytes, size_t *at, ls_line *line_out);
/* Without blanks at its beginning, at its end. */
ls_line ls_line_strip(ls_line line, bool first, bool last);

#endif
