// SPDX-License-Identifier: Apache-2.0
#include "execution/judge/judge.h"

#include "base/math.h"
#include "execution/generate/generate.h"

#include <math.h>
#include <string.h>

typedef unsigned long long ull;

/* Scored texts: places for the likeliest tokens, and rows of logits at once. */
enum { SCORED_LEAST = 512, SCORED_ROWS = 16 };

typedef struct judge {
    ls_arena *arena;
    const ls_judged_model *model;
    ls_tokenizer_scratch *scratch;
    ls_token_buffer prompt, whole; /* of the question at hand */
    ls_text_buffer text;
    ls_generator *generator;
    size_t scored_most; /* tokens that it has room for */
    uint64_t tokens_max;
} judge;

/* Adds where the question is to an error that is about its texts. */
static ls_status fail_at(ls_status status, const ls_quiz_question *q)
{
    return (status == LS_ERR_DATA || status == LS_ERR_INVALID) && q->line > 0
               ? ls_fail_within(status, "%s:%llu", q->path, (ull)q->line)
               : status;
}

static ls_status put_first(int32_t token, ls_token_buffer *ids)
{
    LS_TRY(ls_token_buffer_reserve(ids, 1));
    memmove(ids->ids + 1, ids->ids, ids->count++ * sizeof *ids->ids);
    ids->ids[0] = token;
    return LS_OK;
}

static ls_status encode(judge *j, const ls_quiz_question *q, const char *text, size_t bytes,
                        ls_token_buffer *ids)
{
    const ls_tokenizer *tokenizer = j->model->tokenizer;
    ids->count = 0;
    LS_TRY(q->is_marked ? ls_tokenizer_encode_marked(tokenizer, j->scratch, text, bytes, ids)
                        : ls_tokenizer_encode(tokenizer, j->scratch, text, bytes, false, ids));
    const bool begins = q->bos < 0 || (ids->count > 0 && ids->ids[0] == q->bos);
    return begins ? LS_OK : put_first(q->bos, ids);
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
    return put_first(token, ids);
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

/* A generator for one text of `count` tokens, at most the model's context. What the next text has
 * in common with the last is not computed again. A long context costs memory when a text needs it.
 */
static ls_status make_room(judge *j, size_t count)
{
    const size_t context = (size_t)j->model->on_device.config->context;
    if (j->generator && count <= j->scored_most) {
        return LS_OK;
    }
    ls_generator_destroy(j->generator);
    j->generator = NULL;
    j->scored_most = ls_min_u64(ls_max_u64(2 * count, SCORED_LEAST), context);
    const ls_generator_options options = {
        .slots = 1, .capacity = (int64_t)j->scored_most, .scored = SCORED_ROWS, .keeps_texts = true};
    return ls_generator_create(&j->model->on_device, &options, &j->generator);
}

typedef struct ending_score {
    double log_probability; /* sum over the tokens of the ending, natural logarithm */
    bool is_likeliest;      /* each token is the likeliest at its place */
} ending_score;

static bool add_score(void *context, int32_t token, const ls_text_scores *scores)
{
    ending_score *score = context;
    score->log_probability += scores->logprob;
    score->is_likeliest &= scores->top[0] == token;
    return true;
}

static ls_status score_ending(judge *j, const ls_quiz_question *q, size_t ending, ls_quiz_answer *answer)
{
    const char *prompt = q->prompts ? q->prompts[ending] : q->prompt;
    const char *text = ls_arena_printf(j->arena, "%s%s", prompt, q->endings[ending]);
    LS_TRY(encode(j, q, prompt, trimmed_bytes(prompt), &j->prompt));
    LS_TRY(encode(j, q, text, strlen(text), &j->whole));
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
    ending_score score = {.is_likeliest = true};
    const ls_text_request request = {.prompt = j->whole.ids + skipped,
                                     .prompt_count = j->whole.count - skipped,
                                     .scores_prompt = true,
                                     .scored_from = first - skipped,
                                     .top_count = 1,
                                     .on_token = add_score,
                                     .context = &score};
    LS_TRY(make_room(j, request.prompt_count));
    LS_TRY(ls_generator_run(j->generator, &request));
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

/* ---- written answers ---- */

enum { WRITERS_MAX = 16 };
static const uint64_t writers_bytes_max = 1 << 30; /* of keys and values, all writers together */

/* An answer under way. */
typedef struct writer {
    const ls_quiz_question *question; /* NULL: free */
    ls_quiz_answer *answer;
    int32_t before; /* the prompt's last token */
    ls_token_buffer ids;
    bool has_ended;
} writer;

typedef struct desk {
    judge *judge;
    writer writers[WRITERS_MAX];
    size_t slots;
} desk;

static bool keep_token(void *context, int32_t token, const ls_text_scores *scores)
{
    (void)scores;
    writer *w = context;
    w->ids.ids[w->ids.count++] = token;
    return true;
}

static void end_text(void *context, ls_text_end end)
{
    writer *w = context;
    w->answer->has_stopped = end == LS_TEXT_STOPPED;
    w->has_ended = true;
}

/* The text of the answer, with the space that may begin it after the prompt's last token. */
static ls_status decode_answer(judge *j, writer *w)
{
    ls_tokenizer_stream stream = {0};
    const ls_tokenizer *tokenizer = j->model->tokenizer;
    LS_TRY(ls_tokenizer_stream_next(tokenizer, &stream, w->before, true, &j->text));
    stream.pending_bytes = 0;
    j->text.bytes = 0;
    for (size_t i = 0; i < w->ids.count; i++) {
        LS_TRY(ls_tokenizer_stream_next(tokenizer, &stream, w->ids.ids[i], true, &j->text));
    }
    LS_TRY(ls_tokenizer_stream_end(&stream, &j->text));
    w->answer->text = j->text.bytes ? ls_arena_strndup(j->arena, j->text.data, j->text.bytes) : "";
    return LS_OK;
}

static ls_status encode_prompt(judge *j, const ls_quiz_question *q)
{
    LS_TRY(encode(j, q, q->prompt, strlen(q->prompt), &j->prompt));
    return j->prompt.count > 0 ? LS_OK : add_first_token(j, &j->prompt);
}

/* Opens a generator for as many texts as its memory allows, each as long as the longest prompt and
 * its answer. */
static ls_status open_desk(desk *d, const ls_quiz *quiz)
{
    judge *j = d->judge;
    const uint64_t context = (uint64_t)j->model->on_device.config->context;
    uint64_t longest = 1, slot_bytes = 0, other_bytes = 0;
    if (j->tokens_max + 1 > context) {
        return ls_fail(LS_ERR_INVALID,
                       "an answer of up to %llu tokens leaves no room for a prompt in the model's context of "
                       "%llu: give a smaller --max-tokens",
                       (ull)j->tokens_max, (ull)context);
    }
    for (size_t i = 0; i < quiz->count; i++) {
        const ls_status status = encode_prompt(j, &quiz->items[i]);
        LS_TRY(status == LS_OK ? LS_OK : fail_at(status, &quiz->items[i]));
        longest = ls_max_u64(longest, j->prompt.count);
    }
    ls_generator_options options = {
        .slots = 1, .capacity = (int64_t)ls_min_u64(longest + j->tokens_max, context), .keeps_texts = true};
    LS_TRY(ls_generator_memory(&j->model->on_device, &options, &slot_bytes, &other_bytes));
    d->slots = ls_clamp_u64(writers_bytes_max / ls_max_u64(slot_bytes, 1), 1, WRITERS_MAX);
    options.slots = (int64_t)d->slots;
    LS_TRY(ls_generator_create(&j->model->on_device, &options, &j->generator));
    for (size_t i = 0; i < d->slots; i++) {
        LS_TRY(ls_token_buffer_reserve(&d->writers[i].ids, j->tokens_max));
    }
    return LS_OK;
}

static ls_status start_writer(desk *d, writer *w, const ls_quiz_question *q, ls_quiz_answer *answer)
{
    judge *j = d->judge;
    LS_TRY(encode_prompt(j, q));
    const size_t room = (size_t)j->model->on_device.config->context - j->tokens_max;
    const size_t kept = ls_min_u64(j->prompt.count, room);
    *w = (writer){.question = q, .answer = answer, .ids = w->ids};
    w->before = j->prompt.ids[j->prompt.count - 1];
    w->ids.count = 0;
    answer->is_cut = j->prompt.count > room;
    const ls_text_request request = {.prompt = j->prompt.ids + j->prompt.count - kept,
                                     .prompt_count = kept,
                                     .count = j->tokens_max,
                                     .stops = j->model->stops,
                                     .stop_count = j->model->stop_count,
                                     .sampling = {.top_p = 1.0},
                                     .on_token = keep_token,
                                     .on_end = end_text,
                                     .context = w};
    size_t slot;
    return ls_generator_start(j->generator, &request, &slot);
}

/* Starts answers in free places, takes a step, and takes down the answers that have ended. */
static ls_status write_answers(desk *d, const ls_quiz *quiz, ls_quiz_answer *answers)
{
    for (size_t next = 0; next < quiz->count || ls_generator_texts(d->judge->generator) > 0;) {
        for (size_t i = 0; i < d->slots && next < quiz->count; i++) {
            if (!d->writers[i].question) {
                const ls_quiz_question *q = &quiz->items[next];
                const ls_status status = start_writer(d, &d->writers[i], q, &answers[next++]);
                LS_TRY(status == LS_OK ? LS_OK : fail_at(status, q));
            }
        }
        LS_TRY(ls_generator_step(d->judge->generator));
        for (size_t i = 0; i < d->slots; i++) {
            if (d->writers[i].question && d->writers[i].has_ended) {
                LS_TRY(decode_answer(d->judge, &d->writers[i]));
                d->writers[i].question = NULL;
            }
        }
    }
    return LS_OK;
}

static ls_status write_all(judge *j, const ls_quiz *quiz, ls_quiz_answer *answers)
{
    desk d = {.judge = j};
    ls_status status = open_desk(&d, quiz);
    status = status == LS_OK ? write_answers(&d, quiz, answers) : status;
    for (size_t i = 0; i < WRITERS_MAX; i++) {
        ls_token_buffer_release(&d.writers[i].ids);
    }
    return status;
}

/* ---- all questions ---- */

static ls_status score_all(judge *j, const ls_quiz *quiz, ls_quiz_answer *answers)
{
    for (size_t i = 0; i < quiz->count; i++) {
        const ls_status status = choose(j, &quiz->items[i], &answers[i]);
        LS_TRY(status == LS_OK ? LS_OK : fail_at(status, &quiz->items[i]));
    }
    return LS_OK;
}

ls_status ls_judge_answer(ls_arena *arena, const ls_judged_model *model, const ls_quiz *quiz,
                          ls_quiz_answer *answers_out)
{
    judge j = {.arena = arena, .model = model, .tokens_max = quiz->answer_tokens};
    ls_status status = ls_tokenizer_scratch_create(model->tokenizer, &j.scratch);
    if (status == LS_OK) {
        status = (quiz->items[0].endings ? score_all : write_all)(&j, quiz, answers_out);
    }
    ls_generator_destroy(j.generator);
    ls_tokenizer_scratch_destroy(j.scratch);
    ls_token_buffer_release(&j.prompt);
    ls_token_buffer_release(&j.whole);
    ls_text_buffer_release(&j.text);
    return status;
}
