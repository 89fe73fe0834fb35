// SPDX-License-Identifier: Apache-2.0
/* view: the page over run directories, without a daemon. */
#include "base/file.h"
#include "cli/command.h"
#include "env/env.h"
#include "orchestration/api/server.h"
#include "orchestration/folders/folders.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define FILES_LIMIT_NS UINT64_C(5000000000)

typedef struct view_settings {
    const char *listen, *logs;
    bool log;
} view_settings;

static const ls_option view_options[] = {
    LS_ROW_TEXT_OR(view_settings, listen, "auto", "HOST:PORT",
                   "address of this machine to listen at; port 0: any free one; auto: 127.0.0.1:7601, or the "
                   "next free port",
                   .letter = 'l', .value_needed = true),
    LS_ROW_TEXT(
        view_settings, logs, "PATTERN",
        "show each file whose name matches, such as '*.log', as a run: lines of JSON, or of name=value"),
    LS_ROW_BOOL(view_settings, log,
                "also keep metrics that programs of this user send by HTTP (POST /v1/runs/NAME/log), in "
                "DIR/NAME/logged.jsonl of the first DIR"),
};

typedef struct viewer {
    ls_env *env;
    ls_user_files *files;
    ls_folders *folders;
    ls_api *api;
} viewer;

static void stop(void *context)
{
    viewer *v = context;
    ls_env_stop(v->env, 0);
}

static void forget(void *context, void *reply_context)
{
    (void)context, (void)reply_context; /* verbs are answered at once */
}

/* Who is let in at all is the user whose folders these are. */
static bool may_read(void *context, const ls_caller *caller, uint64_t job)
{
    (void)context, (void)caller, (void)job;
    return true;
}

static ls_status open_viewer(viewer *v, const ls_invocation *invocation)
{
    const view_settings *settings = invocation->settings;
    LS_TRY(ls_folders_create(invocation->words, invocation->word_count, settings->logs, &v->folders));
    LS_TRY(ls_env_real_create(&v->env));
    LS_TRY(ls_user_files_create(v->env, FILES_LIMIT_NS, &v->files));
    const ls_api_settings api = {.env = v->env,
                                 .listen = settings->listen,
                                 .files = v->files,
                                 .metrics = ls_home_path(invocation->arena, "view"),
                                 .calls = {.context = v->folders,
                                           .call = ls_folders_call,
                                           .forget = forget,
                                           .may_read = may_read,
                                           .has_names = true,
                                           .log_folder = settings->log ? ls_folders_log_folder : NULL}};
    LS_TRY(ls_api_create(&api, &v->api));
    for (size_t i = 0; i < 2; i++) {
        const int error = ls_env_signal_watch(v->env, i == 0 ? SIGINT : SIGTERM, stop, v);
        if (error) {
            return ls_fail_errno(-error, "can't wait for signals");
        }
    }
    return LS_OK;
}

static ls_status run_view(const ls_invocation *invocation)
{
    viewer v = {0};
    const ls_status status = open_viewer(&v, invocation);
    if (status == LS_OK) {
        const size_t count = ls_folders_count(v.folders);
        printf("%zu %s at %s (Ctrl-C ends this)\n", count, count == 1 ? "run" : "runs",
               ls_api_address(v.api));
        fflush(stdout);
        (void)ls_env_run(v.env);
    }
    ls_api_destroy(v.api);
    ls_user_files_destroy(v.files);
    ls_env_real_destroy(v.env);
    ls_folders_destroy(v.folders);
    return status;
}

const ls_command ls_command_view = {
    .name = "view",
    LS_WORDS("DIR...", 1, SIZE_MAX),
    .summary = "show runs in a browser, without a daemon",
    .details = "Each DIR is a run directory, or a folder with run directories below it. Folders\n"
               "with event files of TensorBoard are runs, too. The address of the page is\n"
               "printed; runs that are training are followed as they grow, and new ones appear\n"
               "by themselves. Only processes of the same user on the same machine are answered.\n"
               "\n"
               "Examples:\n"
               "  lockstep view runs\n"
               "  lockstep view runs /data/old-runs --listen 127.0.0.1:0",
    LS_SETTINGS(view_settings, view_options),
    .run = run_view,
};
