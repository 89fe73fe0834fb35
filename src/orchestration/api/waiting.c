// SPDX-License-Identifier: Apache-2.0
#include "orchestration/api/api_internal.h"

#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

/* A request is told when its job ends. It also asks again after this time, because the job may have
 * ended between its question and the answer. */
#define LOOK_AGAIN_NS (5 * NS_PER_S)

static uint64_t job_of(const ls_api_exchange *exchange)
{
    return (uint64_t)json_integer_value(json_object_get(exchange->arguments, "job"));
}

static void put_on_list(ls_api_exchange *exchange)
{
    ls_api *api = exchange->api;
    exchange->look_again_ns = ls_env_now_ns(api->env) + LOOK_AGAIN_NS;
    exchange->next_waiting = api->waiting;
    exchange->waiting_here = &api->waiting;
    if (api->waiting) {
        api->waiting->waiting_here = &exchange->next_waiting;
    }
    api->waiting = exchange;
}

void ls_api_wait_forget(ls_api_exchange *exchange)
{
    if (!exchange->waiting_here) {
        return;
    }
    *exchange->waiting_here = exchange->next_waiting;
    if (exchange->next_waiting) {
        exchange->next_waiting->waiting_here = exchange->waiting_here;
    }
    exchange->waiting_here = NULL;
}

static void seen(ls_api_exchange *exchange)
{
    if (!ls_api_exchange_is_well(exchange)) {
        return;
    }
    json_t *job = exchange->asks[0].answer;
    const char *name = json_string_value(json_object_get(job, "state"));
    const bool has_ended = name && ls_job_state_is_final(ls_job_state_named(name));
    if (has_ended || ls_env_now_ns(exchange->api->env) >= exchange->wait_until_ns) {
        ls_api_exchange_json(exchange, 200, json_incref(job));
    } else {
        put_on_list(exchange);
    }
}

static void look(ls_api_exchange *exchange)
{
    ls_api_exchange_clear(exchange);
    ls_api_exchange_ask(exchange, LS_VERB_SHOW, json_pack("{s:I}", "job", (json_int_t)job_of(exchange)));
    ls_api_exchange_then(exchange, seen);
}

void ls_api_wait_begin(ls_api_exchange *exchange)
{
    const json_t *timeout = json_object_get(exchange->arguments, "timeout_s");
    const uint64_t timeout_s = timeout ? (uint64_t)json_integer_value(timeout) : 60;
    exchange->wait_until_ns = ls_env_now_ns(exchange->api->env) + timeout_s * NS_PER_S;
    look(exchange);
}

void ls_api_wait_look(ls_api *api, uint64_t job)
{
    const uint64_t now_ns = ls_env_now_ns(api->env);
    ls_api_exchange *next = NULL;
    for (ls_api_exchange *at = api->waiting; at; at = next) {
        next = at->next_waiting;
        if (job_of(at) == job || now_ns >= at->look_again_ns || now_ns >= at->wait_until_ns) {
            ls_api_wait_forget(at);
            look(at); /* its answer comes at the end of a turn, never from here */
        }
    }
}
