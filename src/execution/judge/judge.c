// SPDX-License-Identifier: Apache-2.0
#include "execution/judge/judge.h"

#include "base/math.h"
#include "execution/generate/generate.h"
#include "execution/judge/scorer.h"

#include <math.h>
#include <string.h>

typedef unsigned long long ull;

typedef struct judge {
    ls_arena *arena;
    const ls_judged_model *model;
    const char *path;
    ls_tokenizer_scratch *scratch;
    ls_token_buffer prompt, whole; /* of the question at hand */
    ls_scorer *scorer;             /* opened when a question needs it */
    ls_generator *generator;
    ls_token_buffer answer;
    ls_text_buffer text;
    uint64_t tokens_max;
} judge;

static ls_status encode(judge *j, const char *text, size_t bytes, ls_token_buffer *ids)
{
    ids->count = 0;
    return ls_tokenizer_encode(j->model->tokenizer, j->scratch, text, bytes, false, ids);
}

/* Puts a token before a text that begins with its ending: the one texts begin with, else the one
 * they end with. */
static ls_status add_first_token(judge *j, ls_token_buffer *ids)
{
    const int32_t bos = ls_tokenizer_bos(j->model->tokenizer);
    const int32_t token = bos >= 0 ? bos : ls_tokenizer_eos(j->model->tokenizer);
    if (token < 0) {
        return ls_fail(LS_ERR_DATA, "the prompt is empty, and the tokenizer has no token that begins a text: "
                                    "give the record a prompt");
    }
    LS_TRY(ls_token_buffer_reserve(ids, 1));
    memmove(ids->ids + 1, ids->ids, ids->count++ * sizeof *ids->ids);
    ids->ids[0] = token;
    return LS_OK;
}

/* ---- scored answers ---- */

/* White space at the end of a prompt belongs to the ending: tokenizers join it with the word. */
static size_t trimmed_bytes(const char *text)
{
    size_t bytes = strlen(text);
    while (bytes > 0 && (text[bytes - 1] == ' ' || text[bytes - 1] == '\n' || text[bytes - 1] == '\t')) {
        bytes--;
    }
    return bytes;
}

static double characters(const char *ending)
{
    uint64_t count = 0;
    for (const char *at = ending[0] == ' ' ? ending + 1 : ending; *at; at++) {
        count += ((unsigned char)*at & 0xC0) != 0x80;
    }
    return (double)ls_max_u64(count, 1);
}

static ls_status score_ending(judge *j, const ls_quiz_question *q, size_t ending, ls_quiz_answer *answer)
{
    const char *prompt = q->prompts ? q->prompts[ending] : q->prompt;
    const char *text = ls_arena_printf(j->arena, "%s%s", prompt, q->endings[ending]);
    LS_TRY(encode(j, prompt, trimmed_bytes(prompt), &j->prompt));
    LS_TRY(encode(j, text, strlen(text), &j->whole));
    size_t first = ls_min_u64(j->prompt.count, j->whole.count - 1), skipped = 0;
    if (first == 0 || j->prompt.count == 0) {
        LS_TRY(add_first_token(j, &j->whole));
        first = j->prompt.count + 1;
    }
    const size_t context = (size_t)j->model->on_device.config->context;
    if (j->whole.count > context) {
        skipped = j->whole.count - context;
        answer->is_cut = true;
    }
    if (first <= skipped) {
        return ls_fail(
            LS_ERR_DATA,
            "ending %zu has %zu tokens, which leaves no room for a prompt in the model's context of "
            "%zu: use a model with a longer context",
            ending + 1, j->whole.count - first, context);
    }
    ls_ending_score score;
    LS_TRY(ls_scorer_score(j->scorer, j->whole.ids + skipped, j->whole.count - skipped, first - skipped,
                           &score));
    if (!isfinite(score.log_probability)) {
        return ls_fail(LS_ERR_FAILED,
                       "a log-probability is not finite (%f): the model's weights hold values "
                       "that are not numbers, or so large that they overflow",
                       score.log_probability);
    }
    answer->scores[ending] = score.log_probability;
    answer->is_greedy = score.is_likeliest;
    return LS_OK;
}

static ls_status choose(judge *j, const ls_quiz_question *q, ls_quiz_answer *answer)
{
    if (!j->scorer) {
        LS_TRY(ls_scorer_create(&j->model->on_device, &j->scorer));
    }
    answer->scores = ls_arena_new(j->arena, double, q->ending_count);
    for (size_t i = 0; i < q->ending_count; i++) {
        LS_TRY(score_ending(j, q, i, answer));
        const double mean = answer->scores[i] / characters(q->endings[i]);
        const size_t best = answer->likeliest_by_length;
        answer->likeliest = answer->scores[i] > answer->scores[answer->likeliest] ? i : answer->likeliest;
        answer->likeliest_by_length = mean > answer->scores[best] / characters(q->endings[best]) ? i : best;
    }
    return LS_OK;
}

/* ---- generated answers ---- */

static bool keep_token(void *context, int32_t token, const ls_text_scores *scores)
{
    (void)scores;
    judge *j = context;
    j->answer.ids[j->answer.count++] = token;
    return true;
}

/* The text of the answer, with the space that may begin it after the prompt's last token. */
static ls_status decode_answer(judge *j, const char **text_out)
{
    ls_tokenizer_stream stream = {0};
    const ls_tokenizer *tokenizer = j->model->tokenizer;
    LS_TRY(ls_tokenizer_stream_next(tokenizer, &stream, j->prompt.ids[j->prompt.count - 1], true, &j->text));
    stream.pending_bytes = 0;
    j->text.bytes = 0;
    for (size_t i = 0; i < j->answer.count; i++) {
        LS_TRY(ls_tokenizer_stream_next(tokenizer, &stream, j->answer.ids[i], true, &j->text));
    }
    LS_TRY(ls_tokenizer_stream_end(&stream, &j->text));
    *text_out = j->text.bytes ? ls_arena_strndup(j->arena, j->text.data, j->text.bytes) : "";
    return LS_OK;
}

static ls_status check_tokens_max(const judge *j)
{
    const int64_t context = j->model->on_device.config->context;
    if (j->tokens_max + 1 > (uint64_t)context) {
        return ls_fail(LS_ERR_INVALID,
                       "an answer of up to %llu tokens leaves no room for a prompt in the model's context of "
                       "%lld: give a smaller --max-tokens",
                       (ull)j->tokens_max, (long long)context);
    }
    return LS_OK;
}

static ls_status generate(judge *j, const ls_quiz_question *q, ls_quiz_answer *answer)
{
    if (!j->generator) {
        LS_TRY(check_tokens_max(j));
        LS_TRY(ls_generator_create(&j->model->on_device, &(ls_generator_options){.slots = 1}, &j->generator));
        LS_TRY(ls_token_buffer_reserve(&j->answer, j->tokens_max));
    }
    LS_TRY(encode(j, q->prompt, strlen(q->prompt), &j->prompt));
    if (j->prompt.count == 0) {
        LS_TRY(add_first_token(j, &j->prompt));
    }
    const size_t room = (size_t)j->model->on_device.config->context - j->tokens_max;
    answer->is_cut = j->prompt.count > room;
    const size_t kept = ls_min_u64(j->prompt.count, room);
    const ls_text_request request = {.prompt = j->prompt.ids + j->prompt.count - kept,
                                     .prompt_count = kept,
                                     .count = j->tokens_max,
                                     .stops = j->model->stops,
                                     .stop_count = j->model->stop_count,
                                     .sampling = {.top_p = 1.0},
                                     .on_token = keep_token,
                                     .context = j};
    j->answer.count = 0;
    LS_TRY(ls_generator_run(j->generator, &request));
    answer->has_stopped = j->answer.count < j->tokens_max;
    return decode_answer(j, &answer->text);
}

/* ---- all questions ---- */

static ls_status answer_all(judge *j, const ls_quiz *questions, ls_quiz_answer *answers)
{
    LS_TRY(ls_tokenizer_scratch_create(j->model->tokenizer, &j->scratch));
    for (size_t i = 0; i < questions->count; i++) {
        const ls_quiz_question *q = &questions->items[i];
        const ls_status status = q->endings ? choose(j, q, &answers[i]) : generate(j, q, &answers[i]);
        if (status == LS_ERR_DATA) {
            return ls_fail_within(status, "%s:%llu", questions->path, (ull)q->line);
        }
        LS_TRY(status);
    }
    return LS_OK;
}

ls_status ls_judge_answer(ls_arena *arena, const ls_judged_model *model, const ls_quiz *questions,
                          uint64_t tokens_max, ls_quiz_answer *answers_out)
{
    judge j = {.arena = arena, .model = model, .tokens_max = tokens_max};
    const ls_status status = answer_all(&j, questions, answers_out);
    ls_generator_destroy(j.generator);
    ls_scorer_destroy(j.scorer);
    ls_tokenizer_scratch_destroy(j.scratch);
    ls_token_buffer_release(&j.prompt);
    ls_token_buffer_release(&j.whole);
    ls_token_buffer_release(&j.answer);
    ls_text_buffer_release(&j.text);
    return status;
}
