// SPDX-License-Identifier: Apache-2.0
/* The pure parts of the API: guard, table and OpenAPI, histories, Prometheus, pages. */
#include "test.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/text.h"
#include "orchestration/api/openapi.h"
#include "orchestration/api/prometheus.h"
#include "orchestration/api/request.h"
#include "orchestration/api/runs.h"
#include "orchestration/page/page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- table ---- */

static void routes_are_whole(void **state)
{
    (void)state;
    size_t count = 0;
    const ls_api_route *routes = ls_api_routes(&count);
    for (size_t i = 0; i < count; i++) {
        const ls_api_route *r = &routes[i];
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(routes[k].verb, r->verb);
        }
        assert_true((r->kind == LS_API_VERB) == (r->call < LS_VERBS));
        assert_true(r->help && r->help[0]);
        char target[128];
        snprintf(target, sizeof target, "%s", r->path);
        char *brace = strchr(target, '{');
        if (brace) { /* each name in the path has its field */
            char name[32];
            assert_int_equal(sscanf(brace, "{%31[a-z]}", name), 1);
            assert_string_equal(r->arguments[0].name, name);
            assert_true(r->arguments[0].place == LS_API_PATH && r->arguments[0].is_required);
            const char *rest = strchr(brace, '}') + 1;
            *brace = '5';
            memmove(brace + 1, rest, strlen(rest) + 1);
        }
        const ls_api_route *found = NULL;
        int code = 0;
        assert_int_equal(ls_api_route_of(r->method, target, &found, &code), LS_OK);
        assert_ptr_equal(found, r);
        for (size_t k = 0; k < r->argument_count; k++) {
            assert_true(r->arguments[k].help && r->arguments[k].type != LS_API_ANY);
            assert_true(r->arguments[k].place != LS_API_BODY || strcmp(r->method, "POST") == 0);
        }
    }
    json_t *document = ls_api_openapi();
    /* four have GET and POST */
    assert_int_equal(json_object_size(json_object_get(document, "paths")), count - 4);
    json_decref(document);
}

static void routes_are_documented(void **state)
{
    (void)state;
    static const char *const who[] = {[LS_API_OPEN] = "open",
                                      [LS_API_ANYBODY] = "any",
                                      [LS_API_OF_JOB] = "owner",
                                      [LS_API_ADMIN] = "admin"};
    ls_arena arena = {0};
    char *text = NULL;
    size_t bytes = 0, count = 0;
    assert_int_equal(ls_file_read(&arena, LS_SOURCE_DIR "/docs/orchestration.md", 1 << 20, &text, &bytes),
                     LS_OK);
    const ls_api_route *routes = ls_api_routes(&count);
    for (size_t i = 0; i < count; i++) {
        const char *row = ls_arena_printf(&arena, "| `%s %s` | %s | %s |\n", routes[i].method, routes[i].path,
                                          who[routes[i].who], routes[i].help);
        if (!strstr(text, row)) {
            fail_msg("docs/orchestration.md lacks the row\n%s", row);
        }
    }
    ls_arena_release(&arena);
}

static void unescape_takes_no_tricks(void **state)
{
    (void)state;
    char out[64];
    static const struct {
        const char *in;
        bool plus;
        const char *out; /* NULL: refused */
    } cases[] = {{"a%20b+c", true, "a b c"},    {"a+c", false, "a+c"},
                 {"%2e%2e%2F", false, "../"},   {"%", false, NULL},
                 {"%4", false, NULL},           {"%zz", false, NULL},
                 {"a%00b", false, NULL},        {"%ff", false, NULL},
                 {"%C3%BC", false, "\xc3\xbc"}, {"", true, ""}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const size_t bytes = ls_api_unescape(cases[i].in, strlen(cases[i].in), cases[i].plus, out);
        if (cases[i].out) {
            assert_int_equal(bytes, strlen(cases[i].out));
            assert_string_equal(out, cases[i].out);
        } else {
            assert_int_equal(bytes, SIZE_MAX);
        }
    }
}

/* What openapi.json allows is accepted, and what it does not allow is refused. */
static void request_keeps_to_its_schema(void **state)
{
    (void)state;
    static const struct {
        const char *method, *target, *body;
        int code;
    } cases[] = {
        {"POST", "/v1/jobs", "{\"file\":\"a\",\"directory\":\"/\",\"ranks\":4.0}", 200},
        {"POST", "/v1/jobs", "{\"file\":\"a\",\"directory\":\"/\",\"ranks\":4.5}", 400},
        {"POST", "/v1/sweeps", "{\"file\":\"a\",\"directory\":\"/\",\"set\":{}}", 400},
        {"POST", "/v1/sweeps", "{\"file\":\"a\",\"directory\":\"/\",\"set\":{\"a\":[1]}}", 200},
        {"GET", "/v1/jobs/9007199254740991", "", 200},
        {"GET", "/v1/jobs/9007199254740992", "", 400},
        {"HEAD", "/v1/jobs/1", "", 200},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const ls_api_route *route = NULL;
        ls_api_request request = {0};
        int code = 0;
        assert_int_equal(ls_api_route_of(cases[i].method, cases[i].target, &route, &code), LS_OK);
        const ls_status status = ls_api_request_parse(route, cases[i].target, cases[i].body,
                                                      strlen(cases[i].body), &request, &code);
        assert_int_equal(code, cases[i].code);
        assert_int_equal(status == LS_OK, code == 200);
        json_decref(request.arguments);
    }
    json_t *document = ls_api_openapi(), *list = NULL;
    const char *type = NULL;
    json_t *post = json_object_get(json_object_get(document, "paths"), "/v1/jobs/{job}/cancel");
    assert_int_equal(json_unpack(post, "{s:{s:{s:{s:{s:{s:s}}}}}}", "post", "requestBody", "content",
                                 "application/json", "schema", "type", &type),
                     0);
    json_t *show = json_object_get(json_object_get(document, "paths"), "/v1/jobs/{job}");
    assert_int_equal(json_unpack(show, "{s:{s:{s:{s:{s:{s:{s:{s:{s:o}}}}}}}}}", "get", "responses", "200",
                                 "content", "application/json", "schema", "properties", "state", "enum",
                                 &list),
                     0);
    assert_int_equal(json_array_size(list), LS_JOB_STATES);
    for (size_t i = 0; i < json_array_size(list); i++) {
        assert_int_not_equal(ls_job_state_named(json_string_value(json_array_get(list, i))), LS_JOB_STATES);
    }
    json_decref(document);
}

/* ---- runs ---- */

/* More runs than there is room for: those held are kept, and further requests must wait. */
static void runs_that_are_held_stay(void **state)
{
    (void)state;
    ls_api_runs *all = ls_api_runs_create(NULL, UINT64_MAX);
    ls_stored_run *held[LS_API_RUNS_MAX];
    const ls_point point = {.step = 1, .value = 4.0};
    for (uint64_t i = 0; i < LS_API_RUNS_MAX; i++) {
        held[i] = ls_api_runs_hold(all, 100 + i, 7, "/run");
        assert_non_null(held[i]);
        assert_true(ls_run_metrics_add(&held[i]->data, "loss", 4, &point));
    }
    assert_null(ls_api_runs_hold(all, 1, 7, "/run"));
    assert_ptr_equal(ls_api_runs_hold(all, 103, 7, "/run"), held[3]); /* shared */
    ls_api_runs_drop(all, held[3]);
    assert_null(ls_api_runs_hold(all, 1, 7, "/run"));
    ls_api_runs_drop(all, held[3]);
    ls_stored_run *next = ls_api_runs_hold(all, 1, 7, "/run");
    assert_ptr_equal(next, held[3]);
    assert_int_equal(next->data.count, 0);
    assert_int_equal(held[4]->data.count, 1);
    assert_null(ls_api_runs_find(all, 103));
    ls_api_runs_destroy(all);
}

/* Two users name the same folder: what was read for the one is not shown to the other. */
static void runs_are_kept_for_their_user(void **state)
{
    (void)state;
    char folder[] = "/tmp/lockstep-runs-XXXXXX", removal[64];
    assert_non_null(mkdtemp(folder));
    ls_api_runs *all = ls_api_runs_create(folder, UINT64_MAX);
    const ls_point point = {.step = 1, .value = 4.0};
    ls_stored_run *run = ls_api_runs_hold(all, 1, 1001, "/run");
    assert_true(ls_run_metrics_add(&run->data, "loss", 4, &point));
    ls_stored_run_feed(run, "metrics.jsonl")->offset = 64 << 20;
    ls_stored_run_keep(run);
    ls_api_runs_drop(all, run);
    ls_api_runs_destroy(all);
    all = ls_api_runs_create(folder, UINT64_MAX);
    assert_int_equal(ls_api_runs_hold(all, 2, 1002, "/run")->data.count, 0);
    assert_int_equal(ls_api_runs_hold(all, 3, 1001, "/run")->data.count, 1);
    ls_api_runs_destroy(all);
    snprintf(removal, sizeof removal, "rm -rf %s", folder);
    assert_int_equal(system(removal), 0);
}

/* No run needs more than a quarter of the memory, and new ones wait while those that are held need
 * all of it. */
static void runs_have_a_limit_of_memory(void **state)
{
    (void)state;
    ls_api_runs *all = ls_api_runs_create(NULL, 64 << 10);
    ls_stored_run *held[8];
    for (uint64_t i = 0; i < 8; i++) {
        held[i] = ls_api_runs_hold(all, 1 + i, 7, "/run");
        assert_true((held[i] != NULL) == (i < 6));
        for (uint64_t step = 1; held[i] && step <= 500; step++) { /* 12 KiB */
            const ls_point point = {.step = step, .value = 4.0};
            assert_true(ls_run_metrics_add(&held[i]->data, "loss", 4, &point));
        }
        assert_true(!held[i] || ls_api_runs_have_room(all, held[i]) == (i < 5));
    }
    ls_api_runs_drop(all, held[0]);
    held[6] = ls_api_runs_hold(all, 7, 7, "/run"); /* in place of the first */
    assert_non_null(held[6]);
    assert_null(ls_api_runs_find(all, 1) && ls_api_runs_find(all, 1)->data.count > 0 ? all : NULL);
    for (uint64_t step = 1; step <= 1000; step++) {
        const ls_point point = {.step = step, .value = 4.0};
        assert_true(ls_run_metrics_add(&held[6]->data, step % 2 ? "a" : "b", 1, &point));
    }
    assert_false(ls_api_runs_have_room(all, held[6])); /* more than its quarter */
    ls_api_runs_destroy(all);
}

/* ---- what is shown ---- */

static json_t *parse(const char *text)
{
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    return root;
}

static void prometheus_escapes_labels(void **state)
{
    (void)state;
    json_t *status = parse("{\"version\":\"1\",\"engine\":\"local\",\"states\":{\"QUEUED\":3},\"devices\":8,"
                           "\"devices_used\":2,\"paused\":null}");
    json_t *nodes =
        parse("{\"nodes\":[{\"node\":\"a\\\"b\\\\c\\nd\",\"state\":\"down\",\"devices\":8,\"used\":2,"
              "\"readings\":[{\"job\":7,\"account\":\"x\",\"utilization\":0.5,\"memory_bytes\":2097152,"
              "\"power_w\":300},{\"job\":null,\"account\":null,\"utilization\":null}]}]}");
    json_t *accounts = parse(
        "{\"accounts\":[{\"account\":\"x\",\"quota\":null,\"devices\":1,\"running\":1,\"waiting\":0}]}");
    json_t *usage = parse("{\"accounts\":[{\"account\":\"x\",\"allocated_h\":0.5,\"idle_h\":0.25,\"waiting_"
                          "h\":0,\"lost_h\":0,\"energy_j\":12.5}],"
                          "\"machine\":{\"energy_j\":20,\"free_energy_j\":7.5}}");
    ls_text text = {0};
    ls_prometheus_append(
        &(ls_prometheus_answers){.status = status, .nodes = nodes, .accounts = accounts, .usage = usage},
        &text);
    static const char *const lines[] = {
        "lockstep_jobs{state=\"QUEUED\"} 3\n",
        "lockstep_node_up{node=\"a\\\"b\\\\c\\nd\"} 0\n",
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"} 50\n",
        "DCGM_FI_DEV_FB_USED{gpu=\"0\"} 2\n",
        "DCGM_FI_DEV_POWER_USAGE{gpu=\"0\"} 300\n",
        "lockstep_job_info{gpu=\"0\",job=\"7\",account=\"x\"} 1\n",
        "lockstep_account_energy_joules_total{account=\"x\"} 12.5\n",
        "lockstep_free_energy_joules_total 7.5\n",
        "lockstep_paused 0\n",
        "lockstep_account_device_seconds_total{account=\"x\",kind=\"idle\"} 900\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        assert_non_null(strstr(ls_text_string(&text), lines[i]));
    }
    assert_null(strstr(ls_text_string(&text), "quota_devices{"));
    assert_null(strstr(ls_text_string(&text), "gpu=\"1\"")); /* it reports nothing, and no job has it */
    ls_text_release(&text);
    json_decref(status);
    json_decref(nodes);
    json_decref(accounts);
    json_decref(usage);
}

#define EVIL "<script>alert(1)</script>\\u001b[2J\\\"'&"

static void pages_show_no_markup_of_others(void **state)
{
    (void)state;
    json_t *all = parse(
        "{\"version\":\"" EVIL "\",\"engine\":\"" EVIL "\",\"order\":\"" EVIL "\",\"paused\":\"" EVIL "\","
        "\"nodes\":[{\"node\":\"" EVIL "\",\"kind\":\"" EVIL "\",\"state\":\"" EVIL
        "\",\"devices\":2,\"used\":1,\"jobs\":[{\"job\":5,\"name\":\"" EVIL
        "\",\"devices\":1}],\"readings\":[{\"job\":null},{\"job\":5,\"utilization\":0.5,\"power_w\":412,"
        "\"temperature_c\":null,\"throttled\":0,\"ecc_errors\":2}]}],"
        "\"sweeps\":[{\"sweep\":\"" EVIL "\",\"name\":\"" EVIL "\",\"first\":1,\"states\":{\"" EVIL
        "\":2},\"text\":\"" EVIL "\",\"metric\":\"" EVIL "\",\"best\":{\"job\":1,\"lead\":null}},{}],"
        "\"jobs\":[{\"job\":1,\"name\":\"" EVIL "\",\"state\":\"" EVIL "\",\"account\":\"" EVIL
        "\",\"priority\":\"" EVIL "\",\"why\":\"" EVIL "\"},"
        "{\"job\":2,\"name\":null,\"state\":\"FAILED\"}],"
        "\"accounts\":[{\"account\":\"" EVIL
        "\",\"budget\":5,\"month_cost\":1e9,\"allocated_h\":2,\"idle_h\":1}],"
        "\"alerts\":[{\"kind\":\"" EVIL "\",\"text\":\"" EVIL "\",\"time\":1e300,\"job\":7}]}");
    json_t *job = parse("{\"job\":1,\"name\":\"" EVIL "\",\"state\":\"QUEUED\",\"account\":\"" EVIL
                        "\",\"run_dir\":\"" EVIL "\"}");
    json_t *events = parse("{\"events\":[{\"time\":1e300,\"to\":\"" EVIL "\",\"text\":\"" EVIL
                           "\"},{\"event\":\"" EVIL "\",\"x\":\"" EVIL "\"},{}]}");
    json_t *why = parse("{\"text\":\"" EVIL "\",\"eta_s\":-5,\"blockers\":[{\"job\":3,\"name\":\"" EVIL
                        "\"}],\"counterfactuals\":[{\"text\":\"" EVIL "\"}]}");
    json_t *sweep = parse("{\"trials\":[{\"job\":1,\"values\":\"" EVIL "\",\"why\":\"" EVIL
                          "\",\"trial\":\"" EVIL "\",\"result\":1e300},{}]}");
    ls_text page = {0};
    ls_page_queue(&(ls_page_queue_answers){.status = all,
                                           .nodes = all,
                                           .jobs = all,
                                           .accounts = all,
                                           .ended = all,
                                           .usage = all,
                                           .alerts = all,
                                           .sweeps = all},
                  100.0, &page);
    ls_page_ended(all, 100.0, &page);
    static const char log[] = "a <script>\033[31m\xff\nb";
    ls_page_job(
        &(ls_page_job_answers){
            .job = job, .events = events, .why = why, .sweep = sweep, .log = log, .log_bytes = sizeof log},
        100.0, &page);
    const char *text = ls_text_string(&page);
    assert_null(strstr(text, "<script>")); /* the program's own has a source */
    assert_null(strchr(text, '\033'));
    /* half of the second cell, and what its device reports */
    assert_non_null(
        strstr(text, "50 % busy, 412 W, 2 double-bit errors</title><rect y=\"8.0\" width=\"22\""));
    assert_non_null(strstr(text, "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[2J&quot;&#39;&amp;"));
    assert_non_null(strstr(text, "a &lt;script&gt;\\x1b[31m\\xff\nb"));
    assert_int_equal(strlen(text), page.bytes);
    ls_text_release(&page);
    json_decref(all);
    json_decref(job);
    json_decref(events);
    json_decref(why);
    json_decref(sweep);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routes_are_whole),
        cmocka_unit_test(unescape_takes_no_tricks),
        cmocka_unit_test(request_keeps_to_its_schema),
        cmocka_unit_test(routes_are_documented),
        cmocka_unit_test(runs_that_are_held_stay),
        cmocka_unit_test(runs_are_kept_for_their_user),
        cmocka_unit_test(runs_have_a_limit_of_memory),
        cmocka_unit_test(prometheus_escapes_labels),
        cmocka_unit_test(pages_show_no_markup_of_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
