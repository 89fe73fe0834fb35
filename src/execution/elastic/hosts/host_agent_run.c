// SPDX-License-Identifier: Apache-2.0
/* The agent as a process of its own: a real env, and signals. */
#include "execution/elastic/hosts/host_agent_internal.h"

#include "comm/store/store_address.h"

#include <errno.h>
#include <signal.h>

static void on_process_signal(void *context)
{
    ls_host_agent **self = context;
    if (*self) {
        ls_host_agent_interrupt(*self);
    }
}

static void on_process_sigterm(void *context)
{
    ls_host_agent **self = context;
    if (*self) {
        ls_host_agent_leave(*self);
    }
}

static ls_status serve(ls_env *env, const ls_host_agent_options *options)
{
    const struct {
        int number;
        ls_env_fire fire;
    } signals[] = {{SIGINT, on_process_signal}, {SIGTERM, on_process_sigterm}, {SIGHUP, on_process_signal}};
    ls_host_agent *self = NULL;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        const int error = ls_env_signal_watch(env, signals[i].number, signals[i].fire, &self);
        if (error) {
            return ls_fail_errno(-error, "cannot set up the handling of signal %d", signals[i].number);
        }
    }
    LS_TRY(ls_host_agent_open(env, options, &self));
    ls_env_run(env);
    const ls_status status = ls_host_agent_result(self);
    ls_host_agent_close(self);
    return status;
}

ls_status ls_host_agent_run(const ls_host_agent_options *options)
{
    char address[LS_COMM_ADDRESS_BYTES];
    ls_host_agent_options numeric = *options;
    ls_env *env = NULL;
    LS_TRY(ls_store_address_numeric(options->coordinator, address, sizeof address));
    numeric.coordinator = address;
    LS_TRY(ls_env_real_create(&env));
    const ls_status status = serve(env, &numeric);
    ls_env_real_destroy(env);
    return status;
}
