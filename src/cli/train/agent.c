// SPDX-License-Identifier: Apache-2.0
/* agent: runs the ranks of one host of a run on several hosts. */
#include "cli/command.h"
#include "execution/elastic/hosts/launch.h"

#include <string.h>

typedef struct agent_settings {
    const char *coordinator, *token_file, *name;
    uint64_t slots, timeout;
} agent_settings;

static const ls_option agent_options[] = {
    LS_ROW_TEXT(agent_settings, coordinator, "HOST:PORT",
                "address at which 'lockstep train --coordinator' listens"),
    LS_ROW_TEXT(agent_settings, token_file, "FILE",
                "file with the run's secret (the one 'lockstep train' was given); -: read it from the first "
                "line of standard input; without this option the environment variable LOCKSTEP_TOKEN holds "
                "the secret itself"),
    LS_ROW_U64(agent_settings, slots, "0", 0, 256,
               "maximum number of ranks on this host; 0: all ranks that have no host yet"),
    LS_ROW_TEXT(agent_settings, name, "NAME",
                "name of this host, as written in the file that 'lockstep train --hosts' was given"),
    LS_ROW_U64(agent_settings, timeout, "60", 1, 86400,
               "maximum number of seconds to wait for 'lockstep train' to answer at --coordinator"),
};

static ls_status run_agent(const ls_invocation *invocation)
{
    const agent_settings *settings = invocation->settings;
    char token[LS_COMM_TOKEN_BYTES];
    if (!settings->coordinator[0]) {
        return ls_fail(LS_ERR_INVALID,
                       "missing --coordinator HOST:PORT, the address at which 'lockstep train' listens");
    }
    LS_TRY(ls_token_read(settings->token_file, token));
    return ls_host_agent_run(&(ls_host_agent_options){.coordinator = settings->coordinator,
                                                      .token = token,
                                                      .name = settings->name,
                                                      .slots = (uint32_t)settings->slots,
                                                      .has_starter = strcmp(settings->token_file, "-") == 0,
                                                      .timeout_s = (double)settings->timeout});
}

const ls_command ls_command_agent = {
    .name = "agent",
    LS_WORDS("", 0, 0),
    .summary = "run the ranks of this host for a run on several hosts",
    .details = "Joins the run whose 'lockstep train' listens at --coordinator: starts the ranks\n"
               "of this host, watches them, and ends with the run. 'lockstep train --hosts FILE'\n"
               "starts its agents itself.\n"
               "\n"
               "The run directory and the data are read under the same paths as on the trainer's\n"
               "host, from a shared file system or from copies. Both sides present the same\n"
               "secret token (LOCKSTEP_TOKEN or --token-file).\n"
               "\n"
               "Examples:\n"
               "  export LOCKSTEP_TOKEN=$(openssl rand -hex 16)\n"
               "      the same token on all hosts\n"
               "  lockstep agent --coordinator 10.0.0.1:4711\n"
               "      takes all ranks that have no host yet\n"
               "  lockstep agent --coordinator 10.0.0.1:4711 --slots 2\n"
               "      takes at most two ranks",
    LS_SETTINGS(agent_settings, agent_options),
    .run = run_agent,
};
