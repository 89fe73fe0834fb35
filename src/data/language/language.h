// SPDX-License-Identifier: Apache-2.0
/*
 * Language: which label a fastText classifier gives to a text.
 *
 * Reads supervised models as fastText writes them (.bin, format versions 11 and 12) and quantised
 * ones (.ftz); the file is mapped, and only its dictionary is indexed in memory. The label and its
 * probability are those of fastText's `predict` for the text on one line:
 *
 *   tokens     what is between blanks, tabs, line ends and NUL, up to the token "</s>", which is the
 *              end of the line
 *   features   each known word, the n-grams of each word (minn to maxn characters), and runs of
 *              up to wordNgrams words; the latter two by hash, modulo `bucket`
 *   hidden     mean of the input matrix's rows of all features
 *   label      softmax, hierarchical softmax or sigmoids over the output matrix times hidden
 *
 * Source of the format and of the arithmetic: fastText 0.9.2, github.com/facebookresearch/fastText.
 *
 * Thread-safe: an open model does not change, and predicting allocates nothing.
 */
#ifndef LS_DATA_LANGUAGE_LANGUAGE_H
#define LS_DATA_LANGUAGE_LANGUAGE_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct ls_language_model ls_language_model;

typedef struct ls_language {
    /* Without "__label__", zero-terminated, of the model: "en". "": no token of the text says
     * anything. */
    const char *label;
    /* 0 to 1. As in fastText, 1e-5 is added to it (with hierarchical softmax to each of its
     * factors). */
    double probability;
} ls_language;

/*
 * The file must not be changed while the model is open. Errors: LS_ERR_NOT_FOUND, LS_ERR_IO;
 * LS_ERR_DATA for a file that is no model of fastText, is truncated, or contradicts itself;
 * LS_ERR_UNSUPPORTED for word vectors (skipgram, cbow), more than 2,048 dimensions, and n-grams of
 * more than 16 words or 64 characters; LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_language_open(const char *path, ls_language_model **model_out);
void ls_language_close(ls_language_model *model); /* NULL is allowed */

/* text: UTF-8, not zero-terminated; other bytes are taken as they are. */
void ls_language_predict(const ls_language_model *model, const char *text, size_t bytes,
                         ls_language *language_out);

/* Whether the model has a label of this name, "en" or "__label__en". */
bool ls_language_knows(const ls_language_model *model, const char *label);

#endif
