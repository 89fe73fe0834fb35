// SPDX-License-Identifier: Apache-2.0
/*
 * Normalised text: what the step normalise writes, and the form in which dedup_exact compares.
 *
 * Thread-safe for separate scratches.
 */
#ifndef LS_DATA_PREPARATION_NORMAL_TEXT_H
#define LS_DATA_PREPARATION_NORMAL_TEXT_H

#include "base/hash.h"
#include "data/preparation/step.h"
#include "data/preparation/step_scratch.h"

/*
 * Normalises a passage. Line ends become \n; control characters other than \n and \t, and byte
 * order marks, are removed. With step->normalise.nfc, characters are composed. With .blanks, the
 * blanks of Unicode become spaces, several within a line become one, those at line ends go, several
 * empty lines become one, and the text begins and ends with something else; indentation stays.
 *
 * A passage that is normal already is left as it is. Errors: LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_normal_text(const ls_step *step, ls_step_scratch *scratch, ls_passage *passage);

/* The hash of a passage; with step->exact.normalised of its words with capitals of ASCII in lower
 * case and one space between them. */
ls_hash128 ls_exact_hash(const ls_step *step, ls_step_scratch *scratch, const ls_passage *passage);

#endif
