// SPDX-License-Identifier: Apache-2.0
/* chat: a conversation with a model in the terminal. */
#include "cli/command.h"
#include "cli/models/loaded_model.h"
#include "execution/serve/answer_text.h"
#include "execution/serve/slot_plan.h"
#include "execution/train/run_recipe.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct chat_settings {
    const char *system, *template, *template_date, *tokenizer, *adapter;
    uint64_t max_tokens, context, top_k, seed, threads;
    double temperature, top_p;
} chat_settings;

static const ls_option chat_options[] = {
    LS_ROW_TEXT(chat_settings, system, "TEXT",
                "system message: what the model is told before the conversation"),
    LS_ROW_U64(chat_settings, max_tokens, "auto", 1, 1e9,
               "maximum number of tokens of an answer; auto: as many as the context has left", .letter = 'n',
               .allow_auto = true),
    LS_ROW_U64(chat_settings, context, "auto", 2, 16777216,
               "maximum number of tokens of the whole conversation; auto: the model's context length, or "
               "less if that does not fit into memory",
               .allow_auto = true),
    LS_ROWS_SAMPLING(chat_settings),
    LS_ROW_TEMPLATE(chat_settings),
    LS_ROW_TEMPLATE_DATE(chat_settings),
    LS_ROW_OTHER_TOKENIZER(chat_settings),
    LS_ROW_ADAPTER(chat_settings),
    LS_ROW_THREADS(chat_settings),
};

typedef struct chat {
    const chat_settings *settings;
    ls_loaded_model model;
    ls_slot_plan plan;
    ls_run_recipe asking;
    ls_generator *generator;
    int32_t stops[LS_MODEL_STOPS_MAX + 1];
    size_t stop_count;
    json_t *messages;
    bool is_terminal; /* a person types */
    bool is_over;
    /* the answer that is being written */
    ls_answer_text answer;
    size_t printed;
    bool is_cut;  /* it was not ended, but has as many tokens as were allowed */
    bool is_full; /* the context had no room for it */
    ls_status status;
} chat;

/* ---- an answer ---- */

static volatile sig_atomic_t is_interrupted;

static void note_interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

static void print_new(chat *c)
{
    const size_t bytes = c->answer.shown_bytes - c->printed;
    if (bytes > 0) {
        ls_text text = {0};
        ls_text_append_printable(&text, c->answer.text.data + c->printed, bytes, "\n\t");
        fputs(ls_text_string(&text), stdout);
        fflush(stdout);
        ls_text_release(&text);
        c->printed = c->answer.shown_bytes;
    }
}

static bool take_token(void *context, int32_t token, const ls_text_scores *scores)
{
    (void)scores;
    chat *c = context;
    c->status = ls_answer_text_add(&c->answer, token);
    print_new(c);
    return c->status == LS_OK && !ferror(stdout) && !is_interrupted;
}

static void take_end(void *context, ls_text_end end)
{
    chat *c = context;
    c->is_cut = end == LS_TEXT_FULL;
}

static ls_status generate_answer(chat *c, const ls_token_buffer *prompt)
{
    const chat_settings *settings = c->settings;
    const uint64_t context = (uint64_t)c->plan.options.capacity;
    const uint64_t left = prompt->count < context ? context - prompt->count : 0;
    if (left == 0 || (settings->max_tokens != LS_AUTO_U64 && settings->max_tokens > left)) {
        c->is_full = json_array_size(c->messages) > 2; /* else /reset would not help */
        return ls_fail(LS_ERR_INVALID,
                       "the conversation has %zu tokens and the context %llu, which leaves too few for an "
                       "answer: /reset begins a new conversation",
                       prompt->count, (unsigned long long)context);
    }
    const ls_text_request request = {
        .prompt = prompt->ids,
        .prompt_count = prompt->count,
        .count = settings->max_tokens == LS_AUTO_U64 ? left : settings->max_tokens,
        .stops = c->stops,
        .stop_count = c->stop_count,
        .sampling = {.temperature = settings->temperature,
                     .top_k = (uint32_t)settings->top_k,
                     .top_p = settings->top_p,
                     .seed = settings->seed},
        .on_token = take_token,
        .on_end = take_end,
        .context = c,
    };
    LS_TRY(ls_generator_run(c->generator, &request));
    LS_TRY(c->status);
    LS_TRY(ls_answer_text_end(&c->answer));
    print_new(c);
    c->is_full = c->is_cut && request.count == left;
    return LS_OK;
}

/* Answers the conversation so far, and adds the answer to it. */
static ls_status answer(chat *c)
{
    ls_token_buffer prompt = {0};
    c->answer = (ls_answer_text){.tokenizer = c->model.file->tokenizer};
    c->printed = 0;
    c->status = LS_OK;
    c->is_cut = c->is_full = false;
    is_interrupted = 0;
    signal(SIGINT, note_interrupt);
    ls_status status = ls_recipe_prompt(c->asking.recipe, &(ls_conversation){0}, c->messages, &prompt);
    status = status == LS_OK ? generate_answer(c, &prompt) : status;
    signal(SIGINT, SIG_DFL);
    if (status == LS_OK) {
        const char *text = c->answer.text.data ? c->answer.text.data : "";
        json_array_append_new(c->messages, json_pack("{s:s, s:o}", "role", "assistant", "content",
                                                     json_stringn(text, c->answer.text.bytes)));
        puts(c->is_terminal && !c->is_full ? "\n" : "");
        fflush(stdout);
        if (c->is_full) {
            fprintf(
                stderr,
                "the answer is cut: the context of %llu tokens is full; /reset begins a new conversation\n",
                (unsigned long long)c->plan.options.capacity);
        }
    }
    ls_answer_text_release(&c->answer);
    ls_token_buffer_release(&prompt);
    return status;
}

/* ---- a line ---- */

static void begin_conversation(chat *c, const char *system)
{
    json_array_clear(c->messages);
    if (system[0]) {
        json_array_append_new(c->messages, json_pack("{s:s, s:s}", "role", "system", "content", system));
    }
}

static ls_status run_command(chat *c, const char *line)
{
    static const char system[] = "/system ";
    if (strcmp(line, "/quit") == 0) {
        c->is_over = true;
    } else if (strcmp(line, "/reset") == 0) {
        begin_conversation(c, c->settings->system);
    } else if (strncmp(line, system, sizeof system - 1) == 0) {
        begin_conversation(c, line + sizeof system - 1);
    } else if (strcmp(line, "/help") == 0) {
        puts("/reset        begin a new conversation\n"
             "/system TEXT  begin a new conversation, with TEXT said to the model before it\n"
             "/quit         end, as Ctrl-D does; Ctrl-C stops an answer");
    } else {
        return ls_fail(LS_ERR_INVALID, "%.40s is not a command: /help lists the commands", line);
    }
    return LS_OK;
}

/* A line that can't be answered is taken back. */
static ls_status run_line(chat *c, const char *line)
{
    c->is_full = false;
    if (line[0] == '/') {
        return run_command(c, line);
    }
    json_t *content = json_string(line);
    if (!content) {
        return ls_fail(LS_ERR_DATA, "the line is not valid UTF-8");
    }
    const size_t count = json_array_size(c->messages);
    json_array_append_new(c->messages, json_pack("{s:s, s:o}", "role", "user", "content", content));
    const ls_status status = answer(c);
    while (status != LS_OK && json_array_size(c->messages) > count) {
        json_array_remove(c->messages, json_array_size(c->messages) - 1);
    }
    return status;
}

/* What is wrong with a line ends a program that pipes it, but a person goes on; so do both when the
 * context is full. */
static ls_status run_lines(chat *c)
{
    char *line = NULL;
    size_t room = 0;
    ls_status status = LS_OK;
    while (status == LS_OK && !c->is_over) {
        if (c->is_terminal) {
            fputs("> ", stdout);
            fflush(stdout);
        }
        if (getline(&line, &room, stdin) < 0) {
            break;
        }
        line[strcspn(line, "\n")] = '\0';
        status = line[0] ? run_line(c, line) : LS_OK;
        if ((c->is_terminal || c->is_full) && (status == LS_ERR_INVALID || status == LS_ERR_DATA)) {
            fprintf(stderr, "%s\n", ls_error_text());
            ls_error_clear();
            status = LS_OK;
        }
    }
    free(line);
    return status;
}

/* ---- the conversation ---- */

static ls_status open_chat(chat *c, ls_arena *arena)
{
    const chat_settings *settings = c->settings;
    const ls_model_file *file = c->model.file;
    const ls_model_on_device on_device = ls_loaded_model_on_device(&c->model);
    LS_TRY(ls_loaded_model_choose_tokenizer(&c->model, settings->tokenizer));
    LS_TRY(ls_run_recipe_to_ask(arena, file, settings->template, settings->template_date, &c->asking));
    LS_TRY(ls_recipe_check_template(c->asking.recipe));
    if (!ls_recipe_has_template(c->asking.recipe)) {
        return ls_fail(LS_ERR_INVALID,
                       "%s has no chat template (models that were not trained to chat usually have none): "
                       "give one with --template FILE, or use 'lockstep sample', which continues a text",
                       file->path);
    }
    LS_TRY(ls_slot_plan_make(&on_device, 1, settings->context, &c->plan));
    LS_TRY(ls_generator_create(&on_device, &c->plan.options, &c->generator));
    c->stop_count = ls_model_stops(&file->config, file->tokenizer, c->stops);
    c->stops[c->stop_count] = ls_recipe_turn_end(c->asking.recipe);
    c->stop_count += c->stops[c->stop_count] >= 0;
    return LS_OK;
}

static ls_status run_chat(const ls_invocation *invocation)
{
    const chat_settings *settings = invocation->settings;
    chat c = {.settings = settings, .is_terminal = isatty(STDIN_FILENO) == 1};
    const ls_loaded_model_options options = {
        .path = invocation->words[0], .adapter = settings->adapter, .threads = settings->threads};
    LS_TRY(ls_loaded_model_open(&c.model, &options));
    c.messages = json_array();
    ls_status status = open_chat(&c, invocation->arena);
    if (status == LS_OK) {
        begin_conversation(&c, settings->system);
        if (c.is_terminal) {
            puts("/help lists commands; Ctrl-C stops an answer, Ctrl-D ends the conversation\n");
        }
        status = run_lines(&c);
    }
    json_decref(c.messages);
    ls_generator_destroy(c.generator);
    ls_recipe_destroy(c.asking.recipe);
    ls_loaded_model_release(&c.model);
    return status;
}

const ls_command ls_command_chat = {
    .name = "chat",
    LS_WORDS("CKPT", 1, 1),
    .summary = "talk to a model in the terminal",
    .details = "CKPT is a checkpoint, a run directory (its newest checkpoint is used) or a\n"
               "Hugging Face directory, with a chat template. Each line is answered; what was\n"
               "said before is part of the prompt. Lines may also come from a pipe. The\n"
               "commands /help, /reset, /system TEXT and /quit are understood. When the context is\n"
               "full, the command says so, and answers again after /reset.\n"
               "\n"
               "Examples:\n"
               "  lockstep chat runs/mine\n"
               "  echo 'What is 3 times 4?' | lockstep chat runs/mine --temperature 0",
    LS_SETTINGS(chat_settings, chat_options),
    .run = run_chat,
};
