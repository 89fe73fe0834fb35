// SPDX-License-Identifier: Apache-2.0
/* Stores a data set as a token set that training streams (data/stream/token_set.h). */
#ifndef LS_DATA_UPLOAD_H
#define LS_DATA_UPLOAD_H

#include "base/status.h"
#include "data/dataset.h"

/*
 * Stores the tokens of all sources of a data set that is open at `address` (s3://BUCKET/PREFIX or a
 * folder), in order. tokenizer: what it was opened with; NULL: none. tell: receives a line per
 * file; may be NULL. What an interrupted call stored is not sent again. Errors: LS_ERR_UNSUPPORTED
 * for records that are not text; those of ls_token_set_add.
 */
LS_MUST_CHECK ls_status ls_dataset_upload(const ls_dataset *dataset, const ls_tokenizer *tokenizer,
                                          const char *address, void (*tell)(void *context, const char *text),
                                          void *context);

#endif
