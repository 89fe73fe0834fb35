// SPDX-License-Identifier: Apache-2.0
/* pull: fetches a model from a hub. */
#include "base/clock.h"
#include "base/file.h"
#include "cli/command.h"
#include "cli/registered.h"
#include "storage/hub/hub.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct pull_settings {
    const char *output, *revision, *endpoint;
    bool json;
} pull_settings;

static const ls_option pull_options[] = {
    LS_ROW_TEXT(pull_settings, output, "DIR",
                "the folder to write the model to, new or empty; without it, NAME in the current folder",
                .letter = 'o'),
    LS_ROW_TEXT_OR(pull_settings, revision, "main", NULL, "branch, tag or commit of the model"),
    LS_ROW_TEXT(
        pull_settings, endpoint, "URL",
        "address of the hub; without it, the environment variable HF_ENDPOINT, or https://huggingface.co"),
    LS_ROW_JSON(pull_settings),
};

/* ---- progress ---- */

typedef struct progress {
    const char *file;
    double began_s, shown_s;
    uint64_t first;
} progress;

static void show(void *context, const char *file, uint64_t done, uint64_t total)
{
    progress *p = context;
    const double now = ls_clock_boot_s();
    if (p->file != file) {
        *p = (progress){.file = file, .began_s = now, .shown_s = 0.0, .first = done};
    }
    const bool whole = done == total;
    if (now - p->shown_s < 0.2 && !whole) {
        return;
    }
    p->shown_s = now;
    const double seconds = now - p->began_s;
    fprintf(stderr, "\r\033[K%s: %.1f of %.1f MB, %.1f MB/s%s", file, (double)done / 1e6,
            total == UINT64_MAX ? (double)done / 1e6 : (double)total / 1e6,
            seconds > 0.0 ? (double)(done - p->first) / 1e6 / seconds : 0.0, whole ? "\n" : "");
}

/* ---- the command ---- */

static void print_result(const pull_settings *settings, const char *repository, const char *folder,
                         const ls_hub_pulled *pulled)
{
    if (settings->json) {
        json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "repository", repository,
                                   "revision", settings->revision, "commit", pulled->commit, "path", folder,
                                   "files", (json_int_t)pulled->files, "bytes", (json_int_t)pulled->bytes,
                                   "reused_bytes", (json_int_t)pulled->reused_bytes);
        json_dumpf(object, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(object);
        return;
    }
    printf("%s: %s at %.12s, %zu files, %.1f MB\n", folder, repository,
           pulled->commit[0] ? pulled->commit : settings->revision, pulled->files,
           (double)pulled->bytes / 1e6);
}

static ls_status run_pull(const ls_invocation *invocation)
{
    const pull_settings *settings = invocation->settings;
    const char *repository = invocation->words[0], *endpoint = getenv("HF_ENDPOINT");
    const char *folder = settings->output[0] ? settings->output : ls_path_basename(repository);
    endpoint = settings->endpoint[0]   ? settings->endpoint
               : endpoint && *endpoint ? endpoint
                                       : "https://huggingface.co";
    progress shown = {0};
    ls_hub_pulled pulled;
    const ls_hub_options options = {.endpoint = endpoint,
                                    .repository = repository,
                                    .revision = settings->revision,
                                    .folder = folder,
                                    .token = ls_hub_token(invocation->arena),
                                    .progress = isatty(STDERR_FILENO) ? show : NULL,
                                    .context = &shown};
    LS_TRY(ls_hub_pull(&options, invocation->arena, &pulled));
    print_result(settings, repository, folder, &pulled);
    ls_registered(invocation->arena, (ls_registry_add_options){.path = folder, .kind = LS_ENTRY_AUTO},
                  json_pack("{s:s, s:s, s:s, s:s, s:s}", "by", "pull", "endpoint", endpoint, "repository",
                            repository, "revision", settings->revision, "commit", pulled.commit));
    return LS_OK;
}

const ls_command ls_command_pull = {
    .name = "pull",
    LS_WORDS("ORG/NAME", 1, 1),
    .summary = "fetch a model from a hub",
    .details = "Fetches configuration, tokenizer, chat template and safetensors of a model, and\n"
               "checks them against the hub's list. The folder appears when it is complete; what\n"
               "an interrupted fetch got is used by the next one. For models that ask for a\n"
               "login, a token is taken from HF_TOKEN or ~/.cache/huggingface/token.\n"
               "\n"
               "Examples:\n"
               "  lockstep pull HuggingFaceTB/SmolLM2-135M\n"
               "  lockstep pull ORG/NAME -o base --revision v1.0",
    LS_SETTINGS(pull_settings, pull_options),
    .run = run_pull,
};
