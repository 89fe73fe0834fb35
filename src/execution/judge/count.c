// SPDX-License-Identifier: Apache-2.0
/* Counting the answers of ls_judge_answer. */
#include "execution/judge/judge.h"

#include <math.h>
#include <string.h>

enum { LABELS_MAX = 32 }; /* generated answers are counted by class up to this many labels */

/* ---- generated answers ---- */

/* What is compared: the part that the pattern finds, or all of it. */
static bool part_of(const ls_extractor *extractor, const char *text, const char **part_out, size_t *bytes_out)
{
    size_t first = 0, bytes = strlen(text);
    const bool found = !extractor || ls_extractor_find(extractor, text, bytes, &first, &bytes);
    *part_out = text + first;
    *bytes_out = bytes;
    return found;
}

static const char *normal_form(ls_arena *arena, const char *text, size_t bytes)
{
    ls_text normal = {0};
    ls_answer_normalise(text, bytes, &normal);
    return ls_text_keep(&normal, arena);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* Equal but for white space at the ends. */
static bool is_equal(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    for (; a_bytes > 0 && is_blank(a[0]); a_bytes--) {
        a++;
    }
    for (; b_bytes > 0 && is_blank(b[0]); b_bytes--) {
        b++;
    }
    while (a_bytes > 0 && is_blank(a[a_bytes - 1])) {
        a_bytes--;
    }
    while (b_bytes > 0 && is_blank(b[b_bytes - 1])) {
        b_bytes--;
    }
    return a_bytes == b_bytes && memcmp(a, b, a_bytes) == 0;
}

typedef struct compared {
    const char *expected, *answered; /* normal forms; answered NULL: the pattern was not found */
} compared;

static compared compare_text(ls_arena *arena, const ls_quiz_question *q, const ls_quiz_answer *answer,
                             const ls_extractor *extractor, ls_verdicts *v)
{
    const char *expected, *answered;
    size_t expected_bytes, answered_bytes;
    (void)part_of(extractor, q->expected, &expected, &expected_bytes);
    const bool found = part_of(extractor, answer->text, &answered, &answered_bytes);
    const compared c = {normal_form(arena, expected, expected_bytes),
                        found ? normal_form(arena, answered, answered_bytes) : NULL};
    v->found_count += found;
    v->stopped_count += answer->has_stopped;
    v->exact_count += found && is_equal(expected, expected_bytes, answered, answered_bytes);
    return c;
}

static size_t class_of(const ls_verdicts *v, const char *label)
{
    size_t i = 0;
    while (i < v->class_count && strcmp(v->classes[i].label, label) != 0) {
        i++;
    }
    return i;
}

/* One class for each label, in the order of their first occurrence, and one for everything else;
 * none when there are many labels, or hardly fewer than questions. */
static void find_classes(ls_arena *arena, const compared *texts, ls_verdicts *v)
{
    v->classes = ls_arena_new(arena, ls_class_count, LABELS_MAX + 1);
    for (uint64_t i = 0; i < v->count; i++) {
        const size_t at = class_of(v, texts[i].expected);
        if (at == LABELS_MAX) {
            v->class_count = 0;
            return;
        }
        if (at == v->class_count) {
            v->classes[v->class_count++].label = texts[i].expected;
        }
    }
    if (v->class_count > 1 && 2 * v->class_count <= v->count) {
        v->classes[v->class_count++].label = "";
    } else {
        v->class_count = 0;
    }
}

static void add_to_class(ls_verdicts *v, size_t expected, size_t answered)
{
    v->classes[expected].expected++;
    v->classes[answered].answered++;
    v->classes[expected].right += expected == answered;
    v->confusion[expected * v->class_count + answered]++;
}

static void count_texts(ls_arena *arena, const ls_quiz *questions, const ls_quiz_answer *answers,
                        const ls_extractor *extractor, ls_verdicts *v)
{
    compared *texts = ls_arena_new(arena, compared, v->count);
    for (uint64_t i = 0; i < v->count; i++) {
        texts[i] = compare_text(arena, &questions->items[i], &answers[i], extractor, v);
        v->right[i] = texts[i].answered && strcmp(texts[i].expected, texts[i].answered) == 0;
    }
    find_classes(arena, texts, v);
    v->confusion = ls_arena_new(arena, uint64_t, v->class_count * v->class_count);
    for (uint64_t i = 0; i < v->count && v->class_count > 0; i++) {
        const size_t answered = texts[i].answered ? class_of(v, texts[i].answered) : v->class_count;
        add_to_class(v, class_of(v, texts[i].expected),
                     answered < v->class_count ? answered : v->class_count - 1);
    }
}

/* ---- scored answers ---- */

static void count_choices(ls_arena *arena, const ls_quiz *questions, const ls_quiz_answer *answers,
                          ls_verdicts *v)
{
    const ls_quiz_question *first = &questions->items[0];
    bool is_shared = first->ending_count > 1;
    double sum = 0.0;
    for (uint64_t i = 0; i < v->count; i++) {
        const ls_quiz_question *q = &questions->items[i];
        const ls_quiz_answer *a = &answers[i];
        v->right[i] = q->ending_count > 1 ? a->likeliest == q->right : a->is_greedy;
        v->by_length_count += a->likeliest_by_length == q->right;
        sum += a->scores[q->right];
        is_shared &= q->endings == first->endings;
    }
    v->log_probability = sum / (double)v->count;
    v->class_count = is_shared ? first->ending_count : 0;
    v->classes = ls_arena_new(arena, ls_class_count, v->class_count);
    v->confusion = ls_arena_new(arena, uint64_t, v->class_count * v->class_count);
    for (size_t i = 0; i < v->class_count; i++) {
        v->classes[i].label = first->endings[i];
    }
    for (uint64_t i = 0; i < v->count && is_shared; i++) {
        add_to_class(v, questions->items[i].right, answers[i].likeliest);
    }
}

void ls_judge_count(ls_arena *arena, const ls_quiz *questions, const ls_quiz_answer *answers,
                    const ls_extractor *extractor, ls_verdicts *verdicts_out)
{
    ls_verdicts v = {.count = questions->count, .log_probability = NAN};
    v.right = ls_arena_new(arena, bool, v.count);
    if (questions->items[0].endings) {
        count_choices(arena, questions, answers, &v);
    } else {
        count_texts(arena, questions, answers, extractor, &v);
    }
    for (uint64_t i = 0; i < v.count; i++) {
        v.right_count += v.right[i];
        v.cut_count += answers[i].is_cut;
    }
    *verdicts_out = v;
}

ls_paired ls_judge_compare(const ls_verdicts *first, const ls_verdicts *second)
{
    ls_paired paired = {.count = first->count};
    for (uint64_t i = 0; i < first->count; i++) {
        paired.lost += first->right[i] && !second->right[i];
        paired.gained += second->right[i] && !first->right[i];
    }
    return paired;
}
