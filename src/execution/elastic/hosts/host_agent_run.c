// SPDX-License-Identifier: Apache-2.0
/* The agent as a process of its own: a real env, and signals. */
#include "execution/elastic/hosts/host_agent_internal.h"

#include "comm/store/store_address.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

enum { LOOK_NS = 200 * 1000 * 1000 };

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

/* A trainer reads what the agents that it starts print. If it ended before this one joined the
 * run, for example because another host could not be reached, nothing is left to wait for. */
static void look_at_starter(void *context)
{
    ls_host_agent *self = context;
    struct pollfd said = {.fd = STDERR_FILENO};
    if (self->joined) {
        return;
    }
    if (poll(&said, 1, 0) > 0 && (said.revents & (POLLERR | POLLHUP))) {
        ls_host_agent_give_up(self, LS_ERR_RANKS_LOST, -1, "the trainer that started this agent has ended");
        return;
    }
    ls_env_timer_set(self->env, LOOK_NS, look_at_starter, self);
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
    if (options->has_starter) {
        ls_env_timer_set(env, LOOK_NS, look_at_starter, self);
    }
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
