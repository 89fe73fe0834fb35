// SPDX-License-Identifier: Apache-2.0
/* agent: one host of a run on several. */
#include "cli/command.h"
#include "execution/elastic/launch.h"

typedef struct agent_settings {
    const char *coordinator, *token_file, *name;
    uint64_t slots, timeout;
} agent_settings;

#define FIELD(name) .offset = offsetof(agent_settings, name)
static const ls_option agent_options[] = {
    {.key = "coordinator",
     .type = LS_OPTION_STRING,
     FIELD(coordinator),
     .default_text = "\"\"",
     .value_name = "HOST:PORT",
     .help = "where 'lockstep train --coordinator' listens"},
    {.key = "token_file",
     .type = LS_OPTION_STRING,
     FIELD(token_file),
     .default_text = "\"\"",
     .value_name = "FILE",
     .help = "the run's token, -: the first line of stdin; default: LOCKSTEP_TOKEN"},
    {.key = "slots",
     .type = LS_OPTION_U64,
     FIELD(slots),
     .default_text = "0",
     .min = 0,
     .max = 256,
     .help = "ranks this host takes at most; 0: as many as have no host yet"},
    {.key = "name",
     .type = LS_OPTION_STRING,
     FIELD(name),
     .default_text = "\"\"",
     .value_name = "NAME",
     .help = "what the run's file of hosts calls this host"},
    {.key = "timeout",
     .type = LS_OPTION_U64,
     FIELD(timeout),
     .default_text = "60",
     .min = 1,
     .max = 86400,
     .help = "seconds to wait for the coordinator"},
};
static const ls_option_table agent_table = LS_OPTIONS(agent_options);

static ls_status run_agent(const ls_invocation *invocation)
{
    const agent_settings *settings = invocation->settings;
    char token[LS_COMM_TOKEN_BYTES];
    if (!settings->coordinator[0]) {
        return ls_fail(LS_ERR_INVALID, "missing --coordinator HOST:PORT: where 'lockstep train' listens");
    }
    LS_TRY(ls_token_read(settings->token_file, token));
    return ls_host_agent_run(&(ls_host_agent_options){.coordinator = settings->coordinator,
                                                      .token = token,
                                                      .name = settings->name,
                                                      .slots = (uint32_t)settings->slots,
                                                      .timeout_s = (double)settings->timeout});
}

const ls_command ls_command_agent = {
    .name = "agent",
    .words = "",
    .summary = "one host of a run on several",
    .details =
        "Joins the run whose 'lockstep train' listens at --coordinator: starts this host's ranks, watches "
        "them, and "
        "ends with the run.\n"
        "Run directory and data are read under the trainer's paths: from a shared file system, or copies. "
        "Both sides "
        "know one token\n"
        "(LOCKSTEP_TOKEN or --token-file). 'lockstep train --hosts FILE' starts agents itself, over ssh.\n"
        "\nExamples:\n"
        "  export LOCKSTEP_TOKEN=$(openssl rand -hex 16)           the same on both sides\n"
        "  lockstep agent --coordinator 10.0.0.1:4711              as many ranks as have no host yet\n"
        "  lockstep agent --coordinator 10.0.0.1:4711 --slots 2    at most two of them",
    .words_min = 0,
    .words_max = 0,
    .options = &agent_table,
    .settings_bytes = sizeof(agent_settings),
    .run = run_agent,
};
