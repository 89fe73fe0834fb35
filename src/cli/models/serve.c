// SPDX-License-Identifier: Apache-2.0
/* serve: answers prompts and chats over HTTP. */
#include "execution/serve/serve.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/models/loaded_model.h"
#include "env/http/http_guard.h"
#include "execution/train/memory.h"

#include <stdio.h>
#include <string.h>

typedef struct serve_settings {
    const char *listen, *name, *tokenizer, *adapter, *token_file, *certificate, *key;
    uint64_t slots, context, threads;
    double grace_s;
} serve_settings;

#define FIELD(name) .offset = offsetof(serve_settings, name)
static const ls_option serve_options[] = {
    {.key = "listen",
     .letter = 'l',
     .type = LS_OPTION_STRING,
     FIELD(listen),
     .default_text = "\"127.0.0.1:8000\"",
     .value_name = "HOST:PORT",
     .value_needed = true,
     .help = "address to listen at; port 0: any free one"},
    {.key = "slots",
     .type = LS_OPTION_U64,
     FIELD(slots),
     .default_text = "auto",
     .allow_auto = true,
     .min = 1,
     .max = 256,
     .help = "number of answers that are generated at once; auto: 8, or what fits into memory"},
    {.key = "context",
     .type = LS_OPTION_U64,
     FIELD(context),
     .default_text = "auto",
     .allow_auto = true,
     .min = 2,
     .max = 16777216,
     .help = "tokens of a prompt and its answer together; auto: the model's, or what fits into memory"},
    {.key = "name",
     .type = LS_OPTION_STRING,
     FIELD(name),
     .default_text = "\"\"",
     .value_name = "NAME",
     .help = "name of the model in the API, instead of the name of its folder"},
    {.key = "token_file",
     .type = LS_OPTION_STRING,
     FIELD(token_file),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "file with the access token that clients must send; it is made if it does not exist"},
    {.key = "tls_certificate",
     .type = LS_OPTION_STRING,
     FIELD(certificate),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "certificate of the server (PEM), required to listen beyond this machine"},
    {.key = "tls_key",
     .type = LS_OPTION_STRING,
     FIELD(key),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "key of the certificate (PEM)"},
    {.key = "grace",
     .type = LS_OPTION_DURATION,
     FIELD(grace_s),
     .default_text = "10s",
     .min = 0,
     .max = 3600,
     .help = "time that answers under way have to end after SIGTERM or Ctrl-C"},
    LS_ROW_OTHER_TOKENIZER(serve_settings),
    LS_ROW_ADAPTER(serve_settings),
    LS_ROW_THREADS(serve_settings),
};
#undef FIELD
static const ls_option_table serve_table = LS_OPTIONS(serve_options);

enum {
    SLOTS = 8,
    SLOTS_LOW = 2, /* before the context gets shorter than the model's */
    CONTEXT_LOW = 2048,
    ROWS = 128,              /* of a forward pass */
    SCORED_BYTES = 32 << 20, /* logits at once, for log-probabilities */
};

/* ---- memory ---- */

typedef struct memory_plan {
    ls_generator_options options;
    uint64_t slot_bytes, other_bytes;
} memory_plan;

static uint64_t total_bytes(const memory_plan *plan)
{
    return (uint64_t)plan->options.slots * plan->slot_bytes + plan->other_bytes;
}

static ls_status measure(const ls_model_on_device *model, memory_plan *plan)
{
    return ls_generator_memory(model, &plan->options, &plan->slot_bytes, &plan->other_bytes);
}

/* What is auto gets smaller until the plan fits: fewer slots, then a shorter context, then one
 * slot. */
static ls_status plan_memory(const serve_settings *settings, const ls_model_on_device *model,
                             memory_plan *plan_out)
{
    const int64_t context = model->config->context;
    const bool free_slots = settings->slots == LS_AUTO_U64, free_context = settings->context == LS_AUTO_U64;
    const uint64_t available = ls_memory_available() / 10 * 9;
    int64_t scored = SCORED_BYTES / (4 * model->config->vocab);
    memory_plan plan = {.options = {.slots = free_slots ? SLOTS : (int64_t)settings->slots,
                                    .capacity = free_context ? context : (int64_t)settings->context,
                                    .keeps_texts = true}};
    ls_generator_options *o = &plan.options;
    if (o->capacity > context) {
        return ls_fail(LS_ERR_INVALID, "--context is %lld, but the model's context is %lld tokens",
                       (long long)o->capacity, (long long)context);
    }
    o->rows = ROWS > o->slots ? ROWS : o->slots;
    o->scored = scored > o->rows ? o->rows : scored > o->slots ? scored : o->slots;
    LS_TRY(measure(model, &plan));
    while (total_bytes(&plan) > available) {
        if (free_slots && o->slots > SLOTS_LOW) {
            o->slots--;
        } else if (free_context && o->capacity > CONTEXT_LOW) {
            o->capacity /= 2;
        } else if (free_slots && o->slots > 1) {
            o->slots--;
        } else {
            char needed[32], there[32];
            return ls_fail(LS_ERR_MEMORY,
                           "%lld slots with a context of %lld tokens need %s of memory beside the model, %s "
                           "are available: use fewer --slots or a shorter --context",
                           (long long)o->slots, (long long)o->capacity,
                           ls_memory_text(total_bytes(&plan), needed), ls_memory_text(available, there));
        }
        LS_TRY(measure(model, &plan));
    }
    *plan_out = plan;
    return LS_OK;
}

/* ---- running ---- */

typedef struct start {
    const memory_plan *plan;
    const char *name;
    const char *token_file;
} start;

static void print_started(void *context, const char *address)
{
    const start *s = context;
    char all[32], one[32];
    printf("%s at %s/v1\n", s->name, address);
    printf("%lld slots of %lld tokens: %s, %s each\n", (long long)s->plan->options.slots,
           (long long)s->plan->options.capacity, ls_memory_text(total_bytes(s->plan), all),
           ls_memory_text(s->plan->slot_bytes, one));
    if (s->token_file[0]) {
        printf("clients send the token in %s as 'Authorization: Bearer TOKEN'\n", s->token_file);
    }
    fflush(stdout);
}

/* The last part of the path: "runs/mine/" is "mine". */
static const char *name_of(ls_arena *arena, const char *path)
{
    char *name = ls_arena_strdup(arena, path);
    size_t bytes = strlen(name);
    while (bytes > 1 && name[bytes - 1] == '/') {
        name[--bytes] = '\0';
    }
    const char *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

static ls_status serve_model(const ls_invocation *invocation, ls_env *env, ls_loaded_model *model,
                             const char *token)
{
    const serve_settings *settings = invocation->settings;
    const ls_model_on_device on_device = ls_loaded_model_on_device(model);
    int32_t stops[LS_MODEL_STOPS_MAX];
    memory_plan plan;
    LS_TRY(ls_loaded_model_choose_tokenizer(model, settings->tokenizer));
    LS_TRY(plan_memory(settings, &on_device, &plan));
    ls_generator *generator = NULL;
    LS_TRY(ls_generator_create(&on_device, &plan.options, &generator));
    start started = {.plan = &plan,
                     .name = settings->name[0] ? settings->name
                                               : name_of(invocation->arena, invocation->words[0]),
                     .token_file = settings->token_file};
    const ls_status status = ls_serve_run(
        env, &(ls_serve_settings){
                 .model = {.name = started.name,
                           .tokenizer = model->file->tokenizer,
                           .vocab = model->file->config.vocab,
                           .context = plan.options.capacity},
                 .generator = generator,
                 .slots = (size_t)plan.options.slots,
                 .stops = stops,
                 .stop_count = ls_model_stops(&model->file->config, model->file->tokenizer, stops),
                 .listen = settings->listen,
                 .token = token,
                 .certificate = settings->certificate[0] ? settings->certificate : NULL,
                 .key = settings->key[0] ? settings->key : NULL,
                 .grace_s = settings->grace_s,
                 .started = print_started,
                 .context = &started,
             });
    ls_generator_destroy(generator);
    return status;
}

static ls_status serve_loaded(const ls_invocation *invocation, ls_env *env, const char *token)
{
    const serve_settings *settings = invocation->settings;
    ls_loaded_model model;
    const ls_loaded_model_options options = {
        .path = invocation->words[0], .adapter = settings->adapter, .threads = settings->threads};
    LS_TRY(ls_loaded_model_open(&model, &options));
    const ls_status status = serve_model(invocation, env, &model, token);
    ls_loaded_model_release(&model);
    return status;
}

static ls_status run_serve(const ls_invocation *invocation)
{
    const serve_settings *settings = invocation->settings;
    char token[LS_HTTP_TOKEN_BYTES + 1];
    if (settings->certificate[0] && !settings->token_file[0]) {
        return ls_fail(LS_ERR_INVALID, "--tls-certificate lets other machines in, so clients need a token: "
                                       "add --token-file FILE");
    }
    if (settings->token_file[0]) {
        LS_TRY(ls_http_token_load(settings->token_file, token));
    }
    ls_env *env = NULL;
    LS_TRY(ls_env_real_create(&env));
    const ls_status status = serve_loaded(invocation, env, settings->token_file[0] ? token : NULL);
    ls_env_real_destroy(env);
    return status;
}

const ls_command ls_command_serve = {
    .name = "serve",
    .words = "CKPT",
    .summary = "answer prompts and chats over HTTP",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used) or a\n"
               "Hugging Face directory. The API is OpenAI's: /v1/completions,\n"
               "/v1/chat/completions, /v1/models, and /health. Several clients are answered at\n"
               "once, and each gets the tokens that it would get alone. Without a token, only\n"
               "processes of the same user on the same machine are answered.\n"
               "\n"
               "Examples:\n"
               "  lockstep serve runs/mine\n"
               "  lockstep serve runs/mine --listen 127.0.0.1:0 --slots 4 --context 2048",
    .words_min = 1,
    .words_max = 1,
    .options = &serve_table,
    .settings_bytes = sizeof(serve_settings),
    .run = run_serve,
};
