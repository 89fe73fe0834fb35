// SPDX-License-Identifier: Apache-2.0
/*
 * Judging: asks a model questions and counts what it got right.
 *
 * A question with endings is answered by the likeliest: the sum of the log-probabilities of its
 * tokens after the prompt, and, as a second opinion, that sum divided by the ending's characters.
 * The tokens of an ending are those of prompt and ending encoded together, less as many as the
 * prompt alone has. A question without endings is answered greedily until a stop token.
 *
 * An answer depends on the model and its own question only: the same bits in any order of the
 * questions and with any number of threads.
 */
#ifndef LS_EXECUTION_JUDGE_JUDGE_H
#define LS_EXECUTION_JUDGE_JUDGE_H

#include "execution/executor/executor.h"
#include "execution/judge/match.h"
#include "execution/judge/proportion.h"
#include "execution/judge/questions.h"
#include "tokenizer/tokenizer.h"

typedef struct ls_judged_model {
    ls_model_on_device on_device;
    const ls_tokenizer *tokenizer;
    const int32_t *stops; /* ids that end an answer */
    size_t stop_count;
} ls_judged_model;

typedef struct ls_quiz_answer {
    /* (ending_count) log-probabilities; NULL for a generated answer */
    double *scores;
    size_t likeliest;           /* index of the largest sum, the first among equals */
    size_t likeliest_by_length; /* index of the largest sum per character */
    bool is_greedy;             /* a lone ending is what greedy generation gives */
    const char *text;           /* generated, as UTF-8 */
    bool has_stopped;           /* by a stop token, not by the limit */
    bool is_cut;                /* the prompt's beginning was left out: the context is too short */
} ls_quiz_answer;

/*
 * Answers all questions. answers_out: (count), texts and scores
 * in `arena`. Errors, with path and line: LS_ERR_DATA for a question that has no token before its
 * ending, or whose ending alone fills the context; LS_ERR_MEMORY.
 */
LS_MUST_CHECK ls_status ls_judge_answer(ls_arena *arena, const ls_judged_model *model,
                                        const ls_quiz *questions, ls_quiz_answer *answers_out);

/* ---- counting ---- */

typedef struct ls_class_count {
    const char *label;
    uint64_t expected; /* questions with this label */
    uint64_t answered; /* questions answered so */
    uint64_t right;    /* both */
} ls_class_count;

typedef struct ls_verdicts {
    uint64_t count;
    bool *right;              /* (count) what accuracy counts */
    uint64_t right_count;     /* likeliest ending; normalised match; greedy ending */
    uint64_t by_length_count; /* likeliest ending per character; questions with endings only */
    uint64_t exact_count;     /* generated answers equal but for white space at the ends */
    uint64_t stopped_count;   /* generated answers that ended by a stop token */
    uint64_t found_count;     /* generated answers in which the pattern was found */
    uint64_t cut_count;
    double log_probability; /* mean over questions of that of the right ending; NAN: generated */
    /* Of one list of endings for all questions, or of generated answers with few labels; else 0.
     * The last class of generated answers is "" for all that were not expected anywhere. */
    ls_class_count *classes;
    size_t class_count;
    uint64_t *confusion; /* (class_count, class_count): expected, answered */
} ls_verdicts;

/* Counts answers. extractor: finds the answer within expected and generated texts; NULL: they are
 * compared whole. An expected text without a match is taken whole, a generated one is wrong. */
void ls_judge_count(ls_arena *arena, const ls_quiz *questions, const ls_quiz_answer *answers,
                    const ls_extractor *extractor, ls_verdicts *verdicts_out);

/* Compares two models' verdicts on the same questions. */
ls_paired ls_judge_compare(const ls_verdicts *first, const ls_verdicts *second);

#endif
