// SPDX-License-Identifier: Apache-2.0
/*
 * Judging: normal forms, patterns, intervals against values worked out elsewhere, the forms of
 * tasks, and the promise about bits: the score of an ending is that of the whole text evaluated
 * without a cache, whatever was scored before.
 */
#include "test.h"

#include "base/file.h"
#include "execution/judge/judge.h"
#include "execution/train/evaluate.h"
#include "execution/train/model_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- matching ---- */

static void answer_normalise_removes_what_does_not_matter(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"Yes.", "yes"},
        {"  The  Answer\n is: 42! ", "the answer is 42"},
        {"1,234.50", "1234.5"},
        {"$1,234.5", "1234.5"},
        {"+1234.5000", "1234.5"},
        {"-$5", "-5"},
        {"007", "7"},
        {"0.50", "0.5"},
        {".5", "0.5"},
        {"3.00", "3"},
        {"1,2", "1 2"},
        {"yes,no", "yes no"},
        {"1,000,000", "1000000"},
        {"3/4", "3/4"},
        {"5-3", "5 3"},
        {"well-known", "well known"},
        {"a/b", "a b"},
        {"don't", "dont"},
        {"", ""},
        {"...", ""},
        {"Änderung", "Änderung"},
        {"0", "0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_text text = {0};
        ls_answer_normalise(cases[i][0], strlen(cases[i][0]), &text);
        assert_string_equal(ls_text_string(&text), cases[i][1]);
        ls_text_release(&text);
    }
}

static void extractor_find_takes_the_first_group(void **state)
{
    (void)state;
    const char *text = "It is 3 + 4.\n#### 7\nand #### 8";
    size_t first = 0, bytes = 0;
    ls_extractor *extractor = NULL;
    assert_int_equal(ls_extractor_create("#### *(-?[0-9.,]+)", &extractor), LS_OK);
    assert_true(ls_extractor_find(extractor, text, strlen(text), &first, &bytes));
    assert_int_equal(bytes, 1);
    assert_int_equal(text[first], '7');
    assert_false(ls_extractor_find(extractor, "none", 4, &first, &bytes));
    ls_extractor_destroy(extractor);
    assert_int_equal(ls_extractor_create("^and", &extractor), LS_OK);
    assert_true(ls_extractor_find(extractor, text, strlen(text), &first, &bytes));
    assert_int_equal(bytes, 3);
    ls_extractor_destroy(extractor);
    assert_int_equal(ls_extractor_create("(a", &extractor), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "character 3"));
    /* A pattern that would try for ever ends without a match. */
    assert_int_equal(ls_extractor_create("(a+)+$", &extractor), LS_OK);
    char many[60];
    memset(many, 'a', sizeof many - 1);
    many[sizeof many - 2] = 'b', many[sizeof many - 1] = '\0';
    assert_false(ls_extractor_find(extractor, many, strlen(many), &first, &bytes));
    ls_extractor_destroy(extractor);
}

/* ---- proportions ---- */

static void share_interval_is_wilsons(void **state)
{
    (void)state;
    /* statsmodels.stats.proportion.proportion_confint(15, 50, method="wilson") */
    const ls_interval some = ls_share_interval(15, 50);
    assert_float_equal(some.low, 0.1910, 5e-5);
    assert_float_equal(some.high, 0.4375, 5e-5);
    const ls_interval none = ls_share_interval(0, 10), all = ls_share_interval(10, 10);
    assert_true(none.low == 0.0 && all.high == 1.0);
    assert_float_equal(none.high, 0.2775, 5e-5);
    assert_float_equal(all.low, 0.7225, 5e-5);
    assert_float_equal(ls_share_error(15, 50), 0.0654654, 1e-6);
    assert_true(ls_share_error(1, 1) == 0.0);
}

static void paired_p_value_is_mcnemars_exact(void **state)
{
    (void)state;
    /* 2 sum_{k=0}^{2} C(10, k) / 2^10 = 2 (1 + 10 + 45) / 1024 */
    assert_float_equal(ls_paired_p_value(&(ls_paired){2, 8, 100}), 112.0 / 1024.0, 1e-12);
    assert_float_equal(ls_paired_p_value(&(ls_paired){8, 2, 100}), 112.0 / 1024.0, 1e-12);
    assert_true(ls_paired_p_value(&(ls_paired){0, 0, 5}) == 1.0);
    assert_true(ls_paired_p_value(&(ls_paired){3, 3, 50}) == 1.0);
    assert_true(ls_paired_p_value(&(ls_paired){0, 5000, 5000}) >= 0.0);
    /* gained 9 / 102, lost 3 / 102: 6 / 102 +- 1.96 sqrt((12/102 - (6/102)^2) / 102) */
    const ls_interval interval = ls_paired_interval(&(ls_paired){2, 8, 100});
    assert_float_equal(interval.low, 6.0 / 102 - 1.959964 * sqrt((12.0 / 102 - 36.0 / 10404) / 102), 1e-6);
    assert_float_equal(interval.high, 6.0 / 102 + 1.959964 * sqrt((12.0 / 102 - 36.0 / 10404) / 102), 1e-6);
}

/* ---- forms of tasks ---- */

/* Reads one record as a task and returns the quiz. */
static ls_status read_one(ls_arena *arena, const char *name, const char *record, ls_quiz *quiz)
{
    char path[] = "/tmp/ls_judge_XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, record, strlen(record)) == (ssize_t)strlen(record));
    close(fd);
    const ls_status status = ls_questions_read_task(arena, name, path, 0, 0, quiz);
    unlink(path);
    return status;
}

static void read_task_makes_the_prompts_of_each_form(void **state)
{
    (void)state;
    static const struct form_case {
        const char *record, *form, *prompt, *first, *right;
    } cases[] = {
        {"{\"activity_label\": \"Sailing\", \"ctx_a\": \"A man [title] sits  down.\", \"ctx_b\": \"he\", "
         "\"endings\": [\"sleeps.\", \"[step] sails off.\"], \"label\": \"1\"}",
         "hellaswag", "Sailing: A man. sits down. He", " sleeps.", "  sails off."},
        {"{\"question\": \"Is it?\", \"choices\": {\"text\": [\"no\", \"yes\"], \"label\": [\"1\", \"2\"]}, "
         "\"answerKey\": \"2\"}",
         "arc", "Question: Is it?\nAnswer:", " no", " yes"},
        {"{\"goal\": \"Open it\", \"sol1\": \"push\", \"sol2\": \"pull\", \"label\": 0}", "piqa",
         "Question: Open it\nAnswer:", " push", " push"},
        {"{\"sentence\": \"Ann hit Bea because _ was angry.\", \"option1\": \"Ann\", \"option2\": \"Bea\", "
         "\"answer\": \"2\"}",
         "winogrande", "Ann hit Bea because Bea", " was angry.", " was angry."},
        {"{\"text\": \"one two three\"}", "lambada", "one two", " three", " three"},
        {"{\"subject\": \"x\", \"question\": \" 1 + 1? \", \"choices\": [\"1\", \"2\"], \"answer\": 1}",
         "mmlu", "1 + 1?\nA. 1\nB. 2\nAnswer:", " A", " B"},
        {"{\"context\": \"Say\", \"choices\": [\"a\", \"b\"], \"gold\": \"b\"}", "choices", "Say", " a",
         " b"},
        {"{\"question\": \"Say\", \"choices\": [\"a\", \"b\"], \"answer\": \"A\"}", "choices",
         "Question: Say\nAnswer:", " a", " a"},
    };
    ls_arena arena = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_quiz quiz = {0};
        if (read_one(&arena, "", cases[i].record, &quiz) != LS_OK) {
            fail_msg("%s", ls_error_text());
        }
        const ls_quiz_question *q = &quiz.items[0];
        assert_string_equal(quiz.form, cases[i].form);
        assert_string_equal(q->prompt, cases[i].prompt);
        assert_string_equal(q->endings[0], cases[i].first);
        assert_string_equal(q->endings[q->right], cases[i].right);
    }
    ls_quiz quiz = {0};
    assert_int_equal(read_one(&arena, "mmlu_x",
                              "{\"question\": \"?\", \"choices\": [\"1\", \"2\"], "
                              "\"answer\": \"B\"}",
                              &quiz),
                     LS_OK);
    assert_string_equal(quiz.items[0].endings[quiz.items[0].right], " B");
    ls_arena_release(&arena);
}

static void read_task_names_the_line_that_is_wrong(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"{\"sentence\": \"No gap\", \"option1\": \"a\", \"option2\": \"b\", \"answer\": \"1\"}", "a _"},
        {"{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"], \"label\": \"2\"}", "not one of the 2 choices"},
        {"{\"ctx\": \"a\", \"endings\": [\"b\", \"c\"]}", "no key `label`"},
        {"{\"ctx\": \"a\", \"endings\": [\"b\", \"\"], \"label\": 0}", "not empty"},
        {"{\"question\": \"a\", \"choices\": {\"text\": [\"b\", \"c\"], \"label\": [\"A\", \"B\"]}, "
         "\"answerKey\": \"C\"}",
         "not in choices.label"},
        {"{\"text\": \"word\"}", "two words"},
        {"{\"prompt\": \"word\"}", "no key `choices`"},
        {"[1]", "not a JSON object"},
        {"{\"text\"", "not valid JSON"},
        {"\n\n", "no records"},
    };
    ls_arena arena = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ls_quiz quiz = {0};
        assert_int_equal(read_one(&arena, "", cases[i][0], &quiz), LS_ERR_DATA);
        assert_null(quiz.items);
        if (!strstr(ls_error_text(), cases[i][1])) {
            fail_msg("no '%s' in: %s", cases[i][1], ls_error_text());
        }
    }
    ls_arena_release(&arena);
}

/* ---- scores ---- */

typedef struct model {
    ls_model_file *file;
    ls_queue *queue;
    ls_state state;
    ls_model_on_device on_device;
} model;

static void model_open(model *m, const char *name, uint32_t threads)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/tests/golden/models/%s", LS_SOURCE_DIR, name);
    assert_int_equal(ls_model_file_open_bare(path, &m->file), LS_OK);
    assert_int_equal(ls_queue_create_cpu(threads, &m->queue), LS_OK);
    assert_int_equal(ls_state_init(&m->state, m->queue, LS_F32, &m->file->layout, 0), LS_OK);
    assert_int_equal(ls_model_file_load(m->file, &m->file->layout, m->state.parameters), LS_OK);
    m->on_device = (ls_model_on_device){.queue = m->queue,
                                        .config = &m->file->config,
                                        .layout = &m->file->layout,
                                        .type = LS_F32,
                                        .weights = ls_state_weights(&m->state)};
}

static void model_close(model *m)
{
    ls_state_release(&m->state);
    ls_queue_destroy(m->queue);
    ls_model_file_close(m->file);
}

static ls_status read_tokens(void *context, uint64_t first, uint64_t count, int32_t *tokens_out)
{
    memcpy(tokens_out, (const int32_t *)context + first, (size_t)count * sizeof *tokens_out);
    return LS_OK;
}

/* The loss of all tokens but the first, evaluated at once and without a cache. */
static double loss_of(const model *m, int32_t *tokens, size_t count)
{
    ls_evaluator *evaluator = NULL;
    ls_evaluation result;
    assert_int_equal(ls_evaluator_create(&m->on_device, 1, (int64_t)count - 1, &evaluator), LS_OK);
    assert_int_equal(ls_evaluator_run(evaluator, &(ls_token_stream){read_tokens, tokens, count}, 0, &result),
                     LS_OK);
    ls_evaluator_destroy(evaluator);
    return result.loss * (double)result.tokens;
}

/* The log-probability of the text after its first token, one ending of a question with two. */
static double score_of(const model *m, ls_tokenizer *tokenizer, const char *before, const char *text)
{
    ls_arena arena = {0};
    const char *const endings[] = {before, text + 1};
    const char first[] = {text[0], '\0'};
    ls_quiz_question items[] = {{.prompt = first, .endings = endings, .ending_count = 2, .bos = -1}};
    const ls_judged_model judged = {.on_device = m->on_device, .tokenizer = tokenizer};
    ls_quiz_answer answers[1] = {0};
    assert_int_equal(ls_judge_answer(&arena, &judged, &(ls_quiz){.items = items, .count = 1}, answers),
                     LS_OK);
    const double score = answers[0].scores[1];
    ls_arena_release(&arena);
    return score;
}

static void judge_answer_scores_the_whole_text(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt2", "llama", "mistral", "qwen3"};
    ls_tokenizer *bytes = NULL;
    assert_int_equal(ls_tokenizer_create_bytes(&bytes), LS_OK);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        model one, two;
        model_open(&one, names[n], 1);
        model_open(&two, names[n], 2);
        const size_t context = (size_t)one.file->config.context, count = context < 90 ? context : 90;
        int32_t tokens[90];
        char text[91] = "";
        for (size_t i = 0; i < count; i++) {
            text[i] = (char)(1 + (i * 7 + i * i) % ((size_t)one.file->config.vocab - 1) % 127);
            tokens[i] = (int32_t)(unsigned char)text[i];
        }
        const double score = score_of(&one, bytes, "\1", text);
        assert_float_equal(-score, loss_of(&one, tokens, count), 1e-4);
        /* After another text with the same beginning, and on two threads: the same bits. */
        char other[91];
        memcpy(other, text, sizeof other);
        other[count - 12] = (char)(other[count - 12] ^ 1);
        assert_true(score_of(&two, bytes, other + 1, text) == score);
        model_close(&one);
        model_close(&two);
    }
    ls_tokenizer_destroy(bytes);
}

/* ---- counting ---- */

static void judge_count_counts_classes(void **state)
{
    (void)state;
    static const char *const endings[] = {"no", "yes"};
    double scores[4][2] = {{-1, -2}, {-3, -1}, {-1, -2}, {-4, -1}};
    ls_quiz_question items[4];
    ls_quiz_answer answers[4] = {0};
    static const size_t right[] = {0, 1, 1, 1};
    for (size_t i = 0; i < 4; i++) {
        items[i] = (ls_quiz_question){.endings = endings, .ending_count = 2, .right = right[i]};
        answers[i].scores = scores[i];
        answers[i].likeliest = scores[i][1] > scores[i][0];
    }
    ls_arena arena = {0};
    ls_verdicts v;
    ls_judge_count(&arena, &(ls_quiz){.items = items, .count = 4}, answers, NULL, &v);
    assert_int_equal(v.right_count, 3);
    assert_int_equal(v.class_count, 2);
    assert_int_equal(v.classes[0].answered, 2);
    assert_int_equal(v.classes[1].expected, 3);
    assert_int_equal(v.classes[1].right, 2);
    assert_int_equal(v.confusion[1 * 2 + 0], 1);
    assert_float_equal(v.log_probability, (-1 - 1 - 2 - 1) / 4.0, 1e-12);
    ls_verdicts other = v;
    other.right = (bool[]){true, false, true, true};
    const ls_paired paired = ls_judge_compare(&v, &other);
    assert_true(paired.lost == 1 && paired.gained == 1 && paired.count == 4);
    ls_arena_release(&arena);
}

static void judge_count_matches_texts(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"so #### 7", "#### 7.0"}, {"#### 7", "8 #### 8"}, {"#### 8", "no answer"},
        {"#### 8", "#### 8"},      {"7", "#### 7"},
    };
    ls_quiz_question items[5];
    ls_quiz_answer answers[5] = {0};
    for (size_t i = 0; i < 5; i++) {
        items[i] = (ls_quiz_question){.expected = texts[i][0]};
        answers[i].text = texts[i][1];
    }
    ls_arena arena = {0};
    ls_verdicts v;
    ls_extractor *extractor = NULL;
    assert_int_equal(ls_extractor_create("#### *(.*)", &extractor), LS_OK);
    ls_judge_count(&arena, &(ls_quiz){.items = items, .count = 5}, answers, extractor, &v);
    assert_int_equal(v.right_count, 3);
    assert_int_equal(v.exact_count, 2);
    assert_int_equal(v.found_count, 4);
    assert_int_equal(v.class_count, 3);
    assert_int_equal(v.confusion[0 * 3 + 1], 1); /* 7 answered by 8 */
    assert_int_equal(v.confusion[1 * 3 + 2], 1); /* 8 answered by something else */
    ls_extractor_destroy(extractor);
    ls_arena_release(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answer_normalise_removes_what_does_not_matter),
        cmocka_unit_test(extractor_find_takes_the_first_group),
        cmocka_unit_test(share_interval_is_wilsons),
        cmocka_unit_test(paired_p_value_is_mcnemars_exact),
        cmocka_unit_test(read_task_makes_the_prompts_of_each_form),
        cmocka_unit_test(read_task_names_the_line_that_is_wrong),
        cmocka_unit_test(judge_answer_scores_the_whole_text),
        cmocka_unit_test(judge_count_counts_classes),
        cmocka_unit_test(judge_count_matches_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
