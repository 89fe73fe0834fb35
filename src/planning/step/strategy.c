// SPDX-License-Identifier: Apache-2.0
#include "planning/step/strategy.h"

#include "base/assert.h"
#include "base/text.h"
#include "config/names.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WORD_BYTES = 64, DEGREE_MAX = 1 << 24, LIST_BYTES = 200 };

static const char *const recompute_names[] = {"none", "selective", "full", NULL};
static const char *const schedule_names[] = {"1f1b", "gpipe", "zb-h1", "zb-h2", NULL};

const char *ls_recompute_name(ls_recompute recompute)
{
    LS_ASSERT((unsigned)recompute <= LS_RECOMPUTE_FULL);
    return recompute_names[recompute];
}

const char *ls_pipeline_schedule_name(ls_pipeline_schedule schedule)
{
    LS_ASSERT((unsigned)schedule <= LS_PIPELINE_ZB_H2);
    return schedule_names[schedule];
}

/* ---- reading ---- */

typedef struct degree_key {
    const char *key, *synonym, *what;
    size_t offset;
} degree_key;

static const degree_key degree_keys[] = {
    {"tp", "tensor", "GPUs that share each matrix", offsetof(ls_strategy, tp)},
    {"pp", "pipeline", "pipeline stages", offsetof(ls_strategy, pp)},
    {"dp", "data", "copies of the model", offsetof(ls_strategy, dp)},
    {"cp", "context", "GPUs that share a sequence", offsetof(ls_strategy, cp)},
    {"ep", "expert", "GPUs that share the experts", offsetof(ls_strategy, ep)},
    {"vpp", "interleave", "virtual stages on each", offsetof(ls_strategy, vpp)},
    {"mb", "micro_batch", "sequences of a micro-batch", offsetof(ls_strategy, micro_batch)},
};

enum { DEGREE_KEY_COUNT = sizeof degree_keys / sizeof *degree_keys };

static ls_status take_degree(const degree_key *key, const char *value, ls_strategy *strategy)
{
    char *end;
    const double number = strtod(value, &end);
    int64_t *field = (int64_t *)((char *)strategy + key->offset);
    if (!value[0] || *end || number != floor(number) || number < 1.0 || number > (double)DEGREE_MAX) {
        return ls_fail(LS_ERR_INVALID, "strategy: %s (%s) is \"%s\", a whole number from 1 to %d is needed",
                       key->key, key->what, value, DEGREE_MAX);
    }
    if (*field) {
        return ls_fail(LS_ERR_INVALID, "strategy: %s is given twice", key->key);
    }
    *field = (int64_t)number;
    return LS_OK;
}

static ls_status take_choice(const char *key, const char *value, const char *const *choices, bool *has,
                             int *out)
{
    char list[LIST_BYTES] = "";
    size_t bytes = 0;
    if (*has) {
        return ls_fail(LS_ERR_INVALID, "strategy: %s is given twice", key);
    }
    for (int i = 0; choices[i]; i++) {
        if (strcasecmp(value, choices[i]) == 0) {
            *has = true;
            *out = i;
            return LS_OK;
        }
        bytes += (size_t)snprintf(list + bytes, sizeof list - bytes, "%s%s", i ? ", " : "", choices[i]);
    }
    return ls_fail(LS_ERR_INVALID, "strategy: %s is \"%s\"; allowed are %s", key, value, list);
}

static ls_status refuse_key(const char *key)
{
    static const char *const others[] = {"zero", "recompute", "sp", "schedule"};
    ls_names near;
    ls_names_begin(&near, key);
    for (size_t i = 0; i < DEGREE_KEY_COUNT; i++) {
        ls_names_offer(&near, degree_keys[i].key, degree_keys[i].key);
        ls_names_offer(&near, degree_keys[i].key, degree_keys[i].synonym);
    }
    for (size_t i = 0; i < 4; i++) {
        ls_names_offer(&near, others[i], others[i]);
    }
    return ls_fail(LS_ERR_INVALID,
                   "strategy: \"%s\" is unknown; nearest: %s. Example: "
                   "tp=8,pp=2,dp=16,cp=1,ep=1,vpp=4,mb=1,zero=1,recompute=selective,sp=1,schedule=1f1b",
                   key, ls_names_list(&near));
}

static ls_status take_word(const char *key, const char *value, ls_strategy_request *request)
{
    static const char *const zero_names[] = {"0", "1", "2", "3", NULL};
    static const char *const switch_names[] = {"0", "1", NULL};
    int choice = 0;
    if (strcmp(key, "zero") == 0) {
        return take_choice(key, value, zero_names, &request->has_zero, &request->strategy.zero);
    }
    if (strcmp(key, "recompute") == 0) {
        LS_TRY(take_choice(key, value, recompute_names, &request->has_recompute, &choice));
        request->strategy.recompute = (ls_recompute)choice;
        return LS_OK;
    }
    if (strcmp(key, "sp") == 0) {
        LS_TRY(take_choice(key, value, switch_names, &request->has_sequence_parallel, &choice));
        request->strategy.sequence_parallel = choice == 1;
        return LS_OK;
    }
    if (strcmp(key, "schedule") == 0) {
        LS_TRY(take_choice(key, value, schedule_names, &request->has_schedule, &choice));
        request->strategy.schedule = (ls_pipeline_schedule)choice;
        return LS_OK;
    }
    for (size_t i = 0; i < DEGREE_KEY_COUNT; i++) {
        if (strcmp(key, degree_keys[i].key) == 0 || strcmp(key, degree_keys[i].synonym) == 0) {
            return take_degree(&degree_keys[i], value, &request->strategy);
        }
    }
    return refuse_key(key);
}

static char *to_small(char *text)
{
    for (char *at = text; *at; at++) {
        *at = (char)tolower((unsigned char)*at);
    }
    return text;
}

ls_status ls_strategy_parse(const char *text, ls_strategy_request *request_out)
{
    ls_strategy_request request = {0};
    while (*text) {
        const size_t bytes = strcspn(text, ",");
        char word[WORD_BYTES];
        snprintf(word, sizeof word, "%.*s", (int)(bytes < sizeof word ? bytes : sizeof word - 1), text);
        char *equals = strchr(word, '=');
        if (!equals || bytes >= sizeof word) {
            return ls_fail(LS_ERR_INVALID,
                           "strategy: \"%s\" is not of the form key=value; example: tp=8,pp=2", word);
        }
        *equals = 0;
        LS_TRY(take_word(to_small(ls_text_trim(word)), ls_text_trim(equals + 1), &request));
        text += bytes + (text[bytes] == ',');
    }
    *request_out = request;
    return LS_OK;
}

bool ls_strategy_is_complete(const ls_strategy_request *request)
{
    const ls_strategy *s = &request->strategy;
    return s->tp && s->pp && s->cp && s->ep && s->micro_batch && (s->vpp || s->pp == 1) &&
           request->has_zero && request->has_recompute;
}

ls_strategy ls_strategy_resolve(const ls_strategy_request *request, int64_t gpus)
{
    LS_ASSERT(ls_strategy_is_complete(request));
    ls_strategy s = request->strategy;
    s.vpp = s.vpp ? s.vpp : 1;
    if (!s.dp) {
        const double model = (double)s.tp * (double)s.pp * (double)s.cp;
        s.dp = model > (double)gpus ? 1 : gpus / (s.tp * s.pp * s.cp);
    }
    if (!request->has_sequence_parallel) {
        s.sequence_parallel = s.tp > 1;
    }
    return s;
}

/* ---- writing ---- */

typedef struct writer {
    char *text;
    size_t bytes, used;
    const char *between; /* before the next piece, when there is one already */
} writer;

static void LS_PRINTF(2, 3) put(writer *w, const char *format, ...)
{
    if (w->used && w->used < w->bytes) {
        w->used += (size_t)snprintf(w->text + w->used, w->bytes - w->used, "%s", w->between);
    }
    if (w->used < w->bytes) {
        va_list args;
        va_start(args, format);
        w->used += (size_t)vsnprintf(w->text + w->used, w->bytes - w->used, format, args);
        va_end(args);
    }
}

static void put_degree(writer *w, const char *name, int64_t degree)
{
    if (degree > 1) {
        put(w, "%s %lld", name, (long long)degree);
    }
}

void ls_strategy_describe(const ls_strategy *s, char *text, size_t bytes)
{
    LS_ASSERT(bytes > 0);
    writer w = {.text = text, .bytes = bytes, .between = " x "};
    text[0] = 0;
    put_degree(&w, "TP", s->tp);
    put_degree(&w, "PP", s->pp);
    put_degree(&w, "CP", s->cp);
    put_degree(&w, "DP", s->dp);
    if (w.used == 0) {
        put(&w, "one GPU");
    }
    w.between = ", ";
    put_degree(&w, "experts over", s->ep);
    put(&w, "micro-batch %lld", (long long)s->micro_batch);
    put_degree(&w, "interleave", s->vpp);
    if (s->schedule != LS_PIPELINE_1F1B && s->pp > 1) {
        put(&w, "%s", ls_pipeline_schedule_name(s->schedule));
    }
    if (s->zero) {
        put(&w, "ZeRO-%d", s->zero);
    }
    if (s->recompute != LS_RECOMPUTE_NONE) {
        put(&w, "%s recompute", ls_recompute_name(s->recompute));
    }
    if (s->sequence_parallel && s->tp > 1) {
        put(&w, "sequence parallel");
    }
}

void ls_strategy_format(const ls_strategy *s, char *text, size_t bytes)
{
    LS_ASSERT(bytes > 0);
    snprintf(
        text, bytes,
        "tp=%lld,pp=%lld,dp=%lld,cp=%lld,ep=%lld,vpp=%lld,mb=%lld,zero=%d,recompute=%s,sp=%d,schedule=%s",
        (long long)s->tp, (long long)s->pp, (long long)s->dp, (long long)s->cp, (long long)s->ep,
        (long long)s->vpp, (long long)s->micro_batch, s->zero, ls_recompute_name(s->recompute),
        s->sequence_parallel, ls_pipeline_schedule_name(s->schedule));
}

/* ---- checking ---- */

/* "1, 2, 4, 8": the divisors of `value`, the middle left out when there are many. */
static void list_divisors(int64_t value, char list[LIST_BYTES])
{
    writer w = {.text = list, .bytes = LIST_BYTES, .between = ", "};
    list[0] = 0;
    for (int64_t i = 1; i <= value && w.used + 24 < LIST_BYTES; i++) {
        if (value % i == 0) {
            put(&w, "%lld", (long long)i);
        }
    }
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Both messages of a degree that must divide something: what it should divide, and what would. */
static ls_status check_divides(const char *key, int64_t degree, const char *what, int64_t value,
                               int64_t allowed_divide)
{
    if (value % degree == 0) {
        return LS_OK;
    }
    char list[LIST_BYTES];
    list_divisors(allowed_divide, list);
    return ls_fail(LS_ERR_INVALID, "strategy: %s %lld does not divide %s %lld; allowed are %s", key,
                   (long long)degree, what, (long long)value, list);
}

static ls_status check_degrees(const ls_strategy *s)
{
    for (size_t i = 0; i < DEGREE_KEY_COUNT; i++) {
        const int64_t value = *(const int64_t *)((const char *)s + degree_keys[i].offset);
        if (value < 1 || value > DEGREE_MAX) {
            return ls_fail(LS_ERR_INVALID, "strategy: %s (%s) is %lld, allowed is 1 to %d",
                           degree_keys[i].key, degree_keys[i].what, (long long)value, DEGREE_MAX);
        }
    }
    if (s->zero < 0 || s->zero > 3) {
        return ls_fail(LS_ERR_INVALID, "strategy: zero is %d, allowed is 0 to 3", s->zero);
    }
    return LS_OK;
}

static ls_status check_product(const ls_strategy *s, int64_t gpus)
{
    const double product = (double)s->tp * (double)s->pp * (double)s->cp * (double)s->dp;
    if (product == (double)gpus) {
        return LS_OK;
    }
    const double model = product / (double)s->dp;
    if (model <= (double)gpus && fmod((double)gpus, model) == 0.0) {
        return ls_fail(
            LS_ERR_INVALID,
            "strategy: tp %lld x pp %lld x cp %lld x dp %lld is %.0f, but there are %lld GPUs; dp=%.0f "
            "would fit, or leave dp out",
            (long long)s->tp, (long long)s->pp, (long long)s->cp, (long long)s->dp, product, (long long)gpus,
            (double)gpus / model);
    }
    return ls_fail(
        LS_ERR_INVALID,
        "strategy: tp %lld x pp %lld x cp %lld is %.0f, which does not divide %lld GPUs; use %.0f GPUs, or "
        "degrees whose product divides %lld",
        (long long)s->tp, (long long)s->pp, (long long)s->cp, model, (long long)gpus,
        model * fmax(1.0, floor((double)gpus / model)), (long long)gpus);
}

static ls_status check_tensor(const ls_strategy *s, const ls_shape *shape)
{
    const ls_model_config *c = &shape->config;
    int64_t allowed = common_divisor(c->heads, c->ffn);
    if (!shape->latent.kv_rank) {
        allowed = common_divisor(allowed, c->kv_heads);
    }
    if (shape->moe.experts) {
        allowed = common_divisor(allowed, shape->moe.ffn);
    }
    LS_TRY(check_divides("tp", s->tp, "the heads", c->heads, allowed));
    if (!shape->latent.kv_rank) {
        LS_TRY(check_divides("tp", s->tp, "the key-value heads", c->kv_heads, allowed));
    }
    LS_TRY(check_divides("tp", s->tp, "the MLP's width", c->ffn, allowed));
    return shape->moe.experts ? check_divides("tp", s->tp, "the experts' width", shape->moe.ffn, allowed)
                              : LS_OK;
}

bool ls_strategy_deals_out(int64_t layers, int64_t pp, int64_t vpp, bool with_ends)
{
    const int64_t fewer = layers / pp, more = (layers + pp - 1) / pp;
    return (with_ends && vpp > 1 && (layers + 2) % (pp * vpp) == 0) ||
           (vpp <= fewer && (fewer % vpp == 0 || more % vpp == 0));
}

static void list_interleavings(int64_t layers, int64_t pp, char list[LIST_BYTES])
{
    writer w = {.text = list, .bytes = LIST_BYTES, .between = ", "};
    list[0] = 0;
    for (int64_t vpp = 1; vpp <= layers / pp + 1 && w.used + 24 < LIST_BYTES; vpp++) {
        if (ls_strategy_deals_out(layers, pp, vpp, true)) {
            put(&w, "%lld", (long long)vpp);
        }
    }
}

static ls_status check_pipeline(const ls_strategy *s, const ls_shape *shape)
{
    const int64_t layers = shape->config.layers;
    if (s->pp > layers) {
        return ls_fail(LS_ERR_INVALID,
                       "strategy: pp %lld is more stages than the model has layers; allowed is 1 to %lld",
                       (long long)s->pp, (long long)layers);
    }
    if (s->vpp > 1 && s->pp == 1) {
        return ls_fail(LS_ERR_INVALID,
                       "strategy: vpp %lld needs pipeline stages to interleave: pp 2 or more, or vpp 1",
                       (long long)s->vpp);
    }
    if (!ls_strategy_deals_out(layers, s->pp, s->vpp, true)) {
        char list[LIST_BYTES];
        list_interleavings(layers, s->pp, list);
        return ls_fail(LS_ERR_INVALID,
                       "strategy: vpp %lld: the model's %lld layers cannot be distributed over pp %lld x vpp "
                       "%lld chunks; allowed are vpp %s",
                       (long long)s->vpp, (long long)layers, (long long)s->pp, (long long)s->vpp, list);
    }
    if (s->schedule != LS_PIPELINE_1F1B && s->vpp > 1) {
        return ls_fail(LS_ERR_INVALID,
                       "strategy: interleaving (vpp %lld) works only with schedule=1f1b, not %s",
                       (long long)s->vpp, ls_pipeline_schedule_name(s->schedule));
    }
    if ((s->schedule == LS_PIPELINE_ZB_H1 || s->schedule == LS_PIPELINE_ZB_H2) && s->pp == 1) {
        return ls_fail(
            LS_ERR_INVALID,
            "strategy: schedule=%s needs pp 2 or more: a single stage has no idle time (bubble) to shorten",
            ls_pipeline_schedule_name(s->schedule));
    }
    return LS_OK;
}

static ls_status check_experts(const ls_strategy *s, const ls_shape *shape)
{
    if (s->ep == 1) {
        return LS_OK;
    }
    if (!shape->moe.experts) {
        return ls_fail(LS_ERR_INVALID, "strategy: ep is %lld, but the model has no experts; allowed is 1",
                       (long long)s->ep);
    }
    const int64_t allowed = common_divisor(shape->moe.experts, s->dp * s->cp);
    LS_TRY(check_divides("ep", s->ep, "the experts", shape->moe.experts, allowed));
    return check_divides("ep", s->ep, "dp x cp, the GPUs that experts are spread over,", s->dp * s->cp,
                         allowed);
}

static ls_status check_batch(const ls_strategy *s, int64_t global_batch, int64_t length)
{
    if (global_batch < 1 || length < 1) {
        return ls_fail(LS_ERR_INVALID,
                       "a step has %lld sequences of %lld tokens: both numbers must be 1 or more",
                       (long long)global_batch, (long long)length);
    }
    LS_TRY(check_divides("cp", s->cp, "the sequence's tokens", length, length));
    const double at_once = (double)s->dp * (double)s->micro_batch;
    if (fmod((double)global_batch, at_once) == 0.0) {
        return LS_OK;
    }
    if (at_once > (double)global_batch) {
        return ls_fail(
            LS_ERR_INVALID,
            "strategy: dp %lld x micro-batch %lld is %.0f sequences at once, but a step has only %lld; use "
            "fewer copies (more tp, pp or cp), or a global batch of %.0f",
            (long long)s->dp, (long long)s->micro_batch, at_once, (long long)global_batch, at_once);
    }
    const double times = floor((double)global_batch / at_once);
    return ls_fail(LS_ERR_INVALID,
                   "strategy: the global batch %lld is not a multiple of dp %lld x micro-batch %lld = %.0f; "
                   "the nearest are %.0f and %.0f",
                   (long long)global_batch, (long long)s->dp, (long long)s->micro_batch, at_once,
                   times * at_once, (times + 1.0) * at_once);
}

ls_status ls_strategy_check(const ls_strategy *strategy, const ls_shape *shape, int64_t gpus,
                            int64_t global_batch, int64_t length)
{
    LS_TRY(check_degrees(strategy));
    LS_TRY(check_tensor(strategy, shape));
    LS_TRY(check_pipeline(strategy, shape));
    LS_TRY(check_product(strategy, gpus));
    LS_TRY(check_experts(strategy, shape));
    return check_batch(strategy, global_batch, length);
}
