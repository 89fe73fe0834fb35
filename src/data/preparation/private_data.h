// SPDX-License-Identifier: Apache-2.0
/*
 * Private data in texts.
 *
 *   mail    addresses with a domain: ada@example.org
 *   phone   + and 8 to 15 digits with blanks . - / ( ) between them; (212) 555-0100 and 212-555-0100
 *   card    13 to 19 digits, in groups or not, with the check digit of Luhn's rule (ISO/IEC 7812)
 *   iban    country, length and check digits (ISO 13616), in groups or not
 *   ip      IPv4 addresses that are reachable from everywhere
 *   key     access keys by their beginnings (AKIA, sk-, ghp_, github_pat_, xoxb-, AIza, ...) and
 *           private keys between their BEGIN and END lines
 *
 * Thread-safe for separate scratches.
 */
#ifndef LS_DATA_PREPARATION_PRIVATE_DATA_H
#define LS_DATA_PREPARATION_PRIVATE_DATA_H

#include "data/preparation/step.h"
#include "data/preparation/step_scratch.h"

#include <stdint.h>

/* The kinds that a step looks for, a bit for each. place: for messages. Errors: LS_ERR_INVALID for
 * one that there is not. */
LS_MUST_CHECK ls_status ls_private_kinds(const ls_step *step, const char *place, uint32_t *kinds_out);

/* Replaces private data by [MAIL], [PHONE], [CARD], [IBAN], [IP] and [KEY]. Returns how many pieces
 * there were; the passage is left as it is if there were none. */
uint64_t ls_private_mask(uint32_t kinds, ls_step_scratch *scratch, ls_passage *passage);

#endif
