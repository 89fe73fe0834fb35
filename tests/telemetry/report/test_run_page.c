// SPDX-License-Identifier: Apache-2.0
/* Pages of runs from files in memory: what they say, hostile texts, notes, differences. */
#include "telemetry/record/run_dir.h"

#include "telemetry/record/run_notes.h"
#include "telemetry/report/run_page.h"

#include <math.h>

#define EVIL      "<script>alert(1)</script>\\u001b[2J\\\"'&\\u202e"
#define EVIL_NAME "<script>alert(1)</script>\033[2J\"'&"

typedef struct shown {
    ls_report_files files;
    ls_run_metrics metrics;
    ls_run_view view;
    ls_text page;
} shown;

static void put(shown *s, ls_report_file file, const char *text)
{
    ls_text_append(&s->files.texts[file], text);
}

static int set_up(void **state)
{
    static shown s;
    s = (shown){.view = {.id = "a b&c", .name = "tiny", .status = "RUNNING", .dir = "/runs/tiny"}};
    s.view.files = &s.files;
    s.view.metrics = &s.metrics;
    *state = &s;
    return 0;
}

static int tear_down(void **state)
{
    shown *s = *state;
    ls_report_files_release(&s->files);
    ls_run_metrics_release(&s->metrics);
    ls_text_release(&s->page);
    return 0;
}

static void add_points(shown *s, const char *name, uint64_t count)
{
    for (uint64_t step = 1; step <= count; step++) {
        const ls_point point = {.step = step, .value = step == 50 ? 99.0 : 2.0};
        assert_true(ls_run_metrics_add(&s->metrics, name, strlen(name), &point));
    }
}

static void assert_says(const shown *s, const char *words)
{
    if (!strstr(s->page.data, words)) {
        fail_msg("the page lacks \"%s\"", words);
    }
}

static const char *page_of(shown *s)
{
    ls_run_page_append(&s->view, true, &s->page);
    return ls_text_string(&s->page);
}

/* Steps of 2 s, but the fastest tenth of 1 s and the slowest of 4 s; 90 of 100 steps are left. */
static void run_page_tells_time_left_with_its_band(void **state)
{
    shown *s = *state;
    put(s, LS_REPORT_RUN_YAML, "name: tiny\n");
    put(s, LS_REPORT_SUMMARY, "{\"steps\": 100}");
    put(s, LS_REPORT_EVENTS, "{\"time\":1,\"event\":\"rank_started\",\"rank\":0}\n");
    for (int step = 1; step <= 10; step++) {
        ls_text_printf(&s->files.texts[LS_REPORT_METRICS], "{\"step\":%d,\"loss\":1,\"step_s\":%d}\n", step,
                       step <= 2   ? 1
                       : step <= 4 ? 4
                                   : 2);
    }
    page_of(s);
    assert_says(s, "<b>10 %</b>");
    assert_says(s, "about 3 min 18 s left");      /* 90 * 2.2 s */
    assert_says(s, "(1 min 30 s to 6 min 00 s)"); /* 90 * 1 s, 90 * 4 s */
    /* One stall outweighs all others: 80 * (22 + 9 * 1 + 291) / 20 s, and the tenth with it 146 s a step. */
    for (int step = 11; step <= 20; step++) {
        ls_text_printf(&s->files.texts[LS_REPORT_METRICS], "{\"step\":%d,\"loss\":1,\"step_s\":%d}\n", step,
                       step == 15 ? 291 : 1);
    }
    page_of(s);
    assert_says(s, "about 21 min 28 s left");
    assert_says(s, "(1 min 20 s to 3 h 14 min)");
}

static void run_page_names_the_rank_that_is_late(void **state)
{
    shown *s = *state;
    put(s, LS_REPORT_RUN_YAML, "name: tiny\n");
    put(s, LS_REPORT_EVENTS,
        "{\"time\":1,\"event\":\"rank_started\",\"rank\":0}\n"
        "{\"time\":1,\"event\":\"rank_started\",\"rank\":1}\n"
        "{\"time\":2,\"event\":\"late\",\"rank\":1,\"waited_s\":3}\n"
        "{\"time\":2,\"event\":\"late\",\"rank\":0,\"waited_s\":1}\n"
        "{\"time\":3,\"event\":\"alert\",\"kind\":\"stall\",\"text\":\"no step for 5 min\"}\n");
    page_of(s);
    assert_says(s, "Rank 1 is the one that others waited for: 1 times, 3 s in all.");
    assert_says(s, "<b>stall</b> no step for 5 min");
}

static void run_page_escapes_addresses_and_commands(void **state)
{
    shown *s = *state;
    add_points(s, "eval/acc", 3);
    put(s, LS_REPORT_RUN_YAML, "name: tiny\n");
    put(s, LS_REPORT_SUMMARY, "{\"run\":\"tiny\"}");
    s->view.dir = "/runs/it's; rm x";
    page_of(s);
    assert_says(s, "lockstep train &#39;/runs/it&#39;\\&#39;&#39;s; rm x/run.yaml&#39;");
    assert_says(s, "<h1>tiny</h1>");
    assert_says(s, "data-key=\"eval/acc\"");
    assert_says(s, "/runs/a%20b%26c/chart.svg?key=eval%2Facc");
}

static void run_page_shows_no_markup_of_others(void **state)
{
    shown *s = *state;
    s->view.id = s->view.name = s->view.status = s->view.dir = EVIL_NAME;
    add_points(s, EVIL_NAME, 2);
    put(s, LS_REPORT_RUN_YAML, "name: x # <script>alert(1)</script>\n");
    put(s, LS_REPORT_SUMMARY, "{\"run\":\"" EVIL "\",\"status\":\"" EVIL "\"}");
    put(s, LS_REPORT_NOTES, "{\"note\":\"" EVIL "\",\"tags\":[\"<b>\"]}");
    put(s, LS_REPORT_EVENTS,
        "{\"time\":1,\"event\":\"alert\",\"kind\":\"" EVIL "\",\"text\":\"" EVIL "\"}\n"
        "{\"time\":1,\"event\":\"sample\",\"step\":1,\"text\":\"" EVIL "\"}\n"
        "{\"time\":1,\"event\":\"rank_started\",\"rank\":0,\"host\":\"" EVIL "\",\"device\":\"" EVIL "\"}\n"
        "{\"time\":1e300,\"event\":\"" EVIL "\",\"" EVIL "\":\"" EVIL "\"}\n");
    const char *page = page_of(s);
    assert_null(strstr(page, "<script>"));
    assert_null(strstr(page, "<b>\"")); /* the tag */
    assert_null(strchr(page, '\033'));
    assert_null(strstr(page, "\xe2\x80\xae")); /* turns the direction of reading round */
    assert_says(s, "&lt;script&gt;alert(1)&lt;/script&gt;");
    ls_text_clear(&s->page);
    ls_run_chart_append(&s->view, 1, EVIL_NAME, &s->page);
    assert_null(strstr(ls_text_string(&s->page), "<script>"));
}

/* The highest of all points is in the picture, though 1,000 of them share 400 columns. */
static void run_chart_keeps_extremes(void **state)
{
    shown *s = *state;
    add_points(s, "loss", 1000);
    ls_run_chart_append(&s->view, 1, "loss", &s->page);
    assert_says(s, ">100</text>"); /* the axis reaches beyond 99 */
    ls_text_clear(&s->page);
    ls_run_chart_append(&s->view, 1, "none", &s->page);
    assert_says(s, "no data yet");
}

static void compare_page_shows_what_differs(void **state)
{
    (void)state;
    shown runs[2] = {0};
    json_t *all = json_pack("[{s:s,s:s,s:f},{s:s,s:s,s:f}]", "id", "a", "name", "<i>a", "loss", 1.5, "id",
                            "b", "name", "b", "loss", 1.5);
    ls_run_view views[2];
    ls_text page = {0};
    for (int i = 0; i < 2; i++) {
        ls_text_printf(&runs[i].files.texts[LS_REPORT_RUN_YAML],
                       "name: %d\ntrain: {seed: 7, optimizer: {lr: %d.0e-3}}\n", i, i + 1);
        ls_text_printf(&runs[i].files.texts[LS_REPORT_SUMMARY], "{\"code\": \"0.1.0 aa%d\"}", i);
        views[i] = (ls_run_view){.id = i ? "b" : "a",
                                 .name = i ? "b" : "<i>a",
                                 .files = &runs[i].files,
                                 .row = json_array_get(all, (size_t)i)};
    }
    ls_compare_page_append(
        &(ls_compare_view){.rows = all, .run_count = 9, .chosen = views, .chosen_count = 2}, &page);
    const char *text = ls_text_string(&page);
    assert_non_null(strstr(text, "<th scope=\"col\">train.optimizer.lr</th>"));
    assert_non_null(strstr(text, "<td class=\"w\">0.002</td>"));
    assert_null(strstr(text, "<th scope=\"col\">train.seed</th>"));
    assert_non_null(strstr(text, "<th scope=\"col\">code</th>"));
    assert_non_null(strstr(text, "<td class=\"w\">0.1.0 aa1</td>"));
    assert_null(strstr(text, "<th scope=\"col\">loss</th>"));
    assert_null(strstr(text, "<i>a"));
    assert_non_null(strstr(text, "and 7 more"));
    ls_text_release(&page);
    json_decref(all);
    for (int i = 0; i < 2; i++) {
        ls_report_files_release(&runs[i].files);
    }
}

static size_t count_words(const ls_text *text, const char *word)
{
    size_t count = 0;
    for (const char *at = ls_text_string(text); (at = strstr(at, word)); at++) {
        count++;
    }
    return count;
}

/* Files as their owner may write them, to hold up a daemon: work that grew with the square of their
 * lines took minutes. */
static void time_of_a_run_is_drawn_whatever_its_files_hold(void **state)
{
    shown *s = *state;
    for (int i = 0; i < 60000; i++) {
        ls_text_printf(&s->files.texts[LS_REPORT_TIME],
                       "{\"start\":1,\"begun\":0,\"compute\":%d,\"data\":%d,\"other\":%d}\n", 3 * i,
                       60000 - i, 60000 - i);
    }
    for (int i = 0; i < 12000; i++) {
        put(s, LS_REPORT_EVENTS, "{\"event\":\"rank_lost\",\"time\":1e5}\n{\"event\":\"recovered\"}\n");
    }
    ls_run_time_append(&s->view, &s->page);
    assert_says(s, "</svg>");
    assert_int_equal(count_words(&s->page, "stroke-dasharray"), 2000); /* pins */
    assert_int_equal(count_words(&s->page, "the step continued"), 2000);
}

static void compare_page_takes_files_of_any_content(void **state)
{
    shown *s = *state;
    enum { RUNS = 200 };
    ls_run_view views[RUNS];
    json_t *all = json_pack("[{s:s,s:s}]", "id", "a", "name", "a");
    for (int i = 0; i < 8000; i++) {
        ls_text_printf(&s->files.texts[LS_REPORT_RUN_YAML], "k%d: 1\n", i);
    }
    for (int i = 0; i < RUNS; i++) {
        views[i] = s->view;
    }
    ls_compare_page_append(
        &(ls_compare_view){.rows = all, .run_count = 1, .chosen = views, .chosen_count = RUNS}, &s->page);
    assert_says(s, "</html>");
    assert_int_equal(count_words(&s->page, "k7999"), 0); /* they are all alike */
    json_decref(all);
}

static void notes_are_kept_or_refused_whole(void **state)
{
    run_dir *run = *state;
    static const char *const wrong[] = {"{\"note\":\"x\"}",
                                        "{\"note\":1,\"tags\":[]}",
                                        "{\"note\":\"\",\"tags\":[\"a b\"]}",
                                        "{\"note\":\"\",\"tags\":[1]}",
                                        "{\"note\":\"\",\"tags\":[\"\"]}",
                                        "{\"note\":\"\",\"tags\":[],\"x\":1}"};
    json_t *good = json_pack("{s:s, s:[s]}", "note", "as <planned>", "tags", "paper");
    assert_int_equal(ls_run_notes_save(run->path, good), LS_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        json_t *notes = json_loads(wrong[i], 0, NULL);
        assert_int_equal(ls_run_notes_save(run->path, notes), LS_ERR_INVALID);
        json_decref(notes);
        json_t *read = ls_run_notes_parse(wrong[i], strlen(wrong[i]));
        assert_int_equal(json_array_size(json_object_get(read, "tags")), 0);
        json_decref(read);
    }
    const char *text = run_dir_read(run, "notes.json");
    json_t *read = ls_run_notes_parse(text, strlen(text));
    assert_true(json_equal(read, good));
    json_decref(read);
    json_decref(good);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(run_page_tells_time_left_with_its_band),
        CASE(run_page_names_the_rank_that_is_late),
        CASE(run_page_escapes_addresses_and_commands),
        CASE(run_page_shows_no_markup_of_others),
        CASE(run_chart_keeps_extremes),
        CASE(time_of_a_run_is_drawn_whatever_its_files_hold),
        cmocka_unit_test(compare_page_shows_what_differs),
        CASE(compare_page_takes_files_of_any_content),
        cmocka_unit_test_setup_teardown(notes_are_kept_or_refused_whole, run_dir_setup, run_dir_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
