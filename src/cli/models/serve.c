// SPDX-License-Identifier: Apache-2.0
/* serve: answers prompts and chats over HTTP. */
#include "execution/serve/serve.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/models/loaded_model.h"
#include "env/http/http_guard.h"
#include "execution/serve/slot_plan.h"
#include "execution/train/memory.h"
#include "execution/train/run_recipe.h"
#include "storage/registry/serving.h"

#include <stdio.h>
#include <string.h>

typedef struct serve_settings {
    const char *listen, *name, *template, *template_date, *tokenizer, *adapter;
    const char *token_file, *tls_certificate, *tls_key;
    uint64_t slots, context, threads;
    double grace_s;
} serve_settings;

static const ls_option serve_options[] = {
    LS_ROW_TEXT_OR(serve_settings, listen, "\"127.0.0.1:8000\"", "HOST:PORT",
                   "address to listen at; port 0: any free one", .letter = 'l', .value_needed = true),
    LS_ROW_U64(serve_settings, slots, "auto", 1, 256,
               "number of answers that are generated at once; auto: 8, or fewer if 8 do not fit into memory",
               .allow_auto = true),
    LS_ROW_U64(serve_settings, context, "auto", 2, 16777216,
               "maximum number of tokens of a prompt and its answer together; auto: the model's context "
               "length, or less if that does not fit into memory",
               .allow_auto = true),
    LS_ROW_TEXT(serve_settings, name, "NAME",
                "name of the model in the API, instead of the name of its folder"),
    LS_ROW_TEXT(serve_settings, token_file, "FILE",
                "file with the access token that clients must send; if the file does not exist, it is "
                "created with a new token"),
    LS_ROW_TEXT(serve_settings, tls_certificate, "FILE",
                "certificate of the server (PEM), required to listen beyond this machine"),
    LS_ROW_TEXT(serve_settings, tls_key, "FILE", "key of the certificate (PEM)"),
    LS_ROW_DURATION(serve_settings, grace, grace_s, "10s", 0, 3600,
                    "how long the server waits, after SIGTERM or Ctrl-C, for answers under way to finish"),
    LS_ROW_TEMPLATE(serve_settings),
    LS_ROW_TEMPLATE_DATE(serve_settings),
    LS_ROW_OTHER_TOKENIZER(serve_settings),
    LS_ROW_ADAPTER(serve_settings),
    LS_ROW_THREADS(serve_settings),
};

/* What runs. */
typedef struct serving {
    const serve_settings *settings;
    ls_arena *arena;
    const char *path, *name; /* of the model */
    ls_env *env;
    const char *token; /* NULL: none */
    ls_loaded_model model;
    ls_slot_plan plan;
    ls_run_recipe chat; /* how it is asked */
    ls_generator *generator;
    ls_serving *note; /* in the registry */
} serving;

static void print_started(void *context, const char *address)
{
    serving *s = context;
    char all[32], one[32];
    printf("%s at %s/v1%s\n", s->name, address,
           ls_recipe_has_template(s->chat.recipe)
               ? ""
               : ", without chats: the model has no chat template (--template gives it one)");
    printf("%lld slots of %lld tokens: %s, %s each\n", (long long)s->plan.options.slots,
           (long long)s->plan.options.capacity, ls_memory_text(s->plan.total_bytes, all),
           ls_memory_text(s->plan.slot_bytes, one));
    if (s->token) {
        printf("clients send the token in %s as 'Authorization: Bearer TOKEN'\n", s->settings->token_file);
    }
    fflush(stdout);
    s->note = ls_serving_begin(s->settings->adapter[0] ? s->settings->adapter : s->path, address);
}

/* The last part of the path: "runs/mine/" is "mine". */
static const char *name_of(ls_arena *arena, const char *path)
{
    const char *name = ls_path_trim(arena, path), *slash = strrchr(name, '/');
    return slash && slash[1] ? slash + 1 : name;
}

static ls_status serve_open(serving *s)
{
    const serve_settings *settings = s->settings;
    const ls_model_file *file = s->model.file;
    int32_t stops[LS_MODEL_STOPS_MAX + 1];
    const size_t stop_count = ls_model_stops(&file->config, file->tokenizer, stops);
    stops[stop_count] = ls_recipe_turn_end(s->chat.recipe);
    const ls_serve_settings serve = {
        .model = {.name = s->name,
                  .tokenizer = file->tokenizer,
                  .vocab = file->config.vocab,
                  .context = s->plan.options.capacity,
                  .recipe = s->chat.recipe},
        .generator = s->generator,
        .slots = (size_t)s->plan.options.slots,
        .stops = stops,
        .stop_count = stop_count,
        .chat_stop_count = stop_count + (stops[stop_count] >= 0),
        .listen = settings->listen,
        .token = s->token,
        .certificate = settings->tls_certificate[0] ? settings->tls_certificate : NULL,
        .key = settings->tls_key[0] ? settings->tls_key : NULL,
        .grace_s = settings->grace_s,
        .started = print_started,
        .context = s,
    };
    const ls_status status = ls_serve_run(s->env, &serve);
    ls_serving_end(s->note);
    return status;
}

static ls_status serve_model(serving *s)
{
    const serve_settings *settings = s->settings;
    const ls_model_on_device on_device = ls_loaded_model_on_device(&s->model);
    LS_TRY(ls_loaded_model_choose_tokenizer(&s->model, settings->tokenizer));
    LS_TRY(ls_slot_plan_make(&on_device, settings->slots, settings->context, &s->plan));
    LS_TRY(
        ls_run_recipe_to_ask(s->arena, s->model.file, settings->template, settings->template_date, &s->chat));
    LS_TRY(ls_recipe_check_template(s->chat.recipe));
    LS_TRY(ls_generator_create(&on_device, &s->plan.options, &s->generator));
    return serve_open(s);
}

static ls_status serve_path(serving *s, const char *path)
{
    const ls_loaded_model_options options = {
        .path = path, .adapter = s->settings->adapter, .threads = s->settings->threads};
    LS_TRY(ls_loaded_model_open(&s->model, &options));
    const ls_status status = serve_model(s);
    ls_generator_destroy(s->generator);
    ls_recipe_destroy(s->chat.recipe);
    ls_loaded_model_release(&s->model);
    return status;
}

static ls_status run_serve(const ls_invocation *invocation)
{
    const serve_settings *settings = invocation->settings;
    const char *path = invocation->words[0];
    char token[LS_HTTP_TOKEN_BYTES + 1];
    serving s = {.settings = settings,
                 .arena = invocation->arena,
                 .path = path,
                 .name = settings->name[0] ? settings->name : name_of(invocation->arena, path)};
    if (settings->tls_certificate[0] && !settings->token_file[0]) {
        return ls_fail(LS_ERR_INVALID, "--tls-certificate lets other machines in, so clients need a token: "
                                       "add --token-file FILE");
    }
    if (settings->token_file[0]) {
        LS_TRY(ls_http_token_load(settings->token_file, token));
        s.token = token;
    }
    LS_TRY(ls_env_real_create(&s.env));
    const ls_status status = serve_path(&s, path);
    ls_env_real_destroy(s.env);
    return status;
}

const ls_command ls_command_serve = {
    .name = "serve",
    LS_WORDS("CKPT", 1, 1),
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
    LS_SETTINGS(serve_settings, serve_options),
    .run = run_serve,
};
