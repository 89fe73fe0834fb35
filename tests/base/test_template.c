// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/template.h"
#include "base/web.h"

#include <stdio.h>
#include <string.h>

typedef struct fixture {
    ls_arena arena;
    ls_values *values;
    ls_text text;
} fixture;

static int set_up(void **state)
{
    static fixture f;
    f = (fixture){0};
    f.values = ls_values_create(&f.arena);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    ls_text_release(&f->text);
    ls_arena_release(&f->arena);
    return 0;
}

static ls_status expand(fixture *f, const char *template, const char *other)
{
    const ls_embedded_file files[] = {
        {"page.html", template, strlen(template)}, {"other.html", other, strlen(other)}, {0}};
    ls_text_clear(&f->text);
    ls_text_append(&f->text, "kept ");
    return ls_template_append(files, "page.html", f->values, &f->text);
}

#define assert_expands(f, template, wanted)                                                                  \
    do {                                                                                                     \
        if (expand(f, template, "other") != LS_OK) {                                                         \
            fail_msg("%s: %s", template, ls_error_text());                                                   \
        }                                                                                                    \
        assert_string_equal(ls_text_string(&(f)->text), "kept " wanted);                                     \
    } while (0)

#define assert_refuses(f, template, words)                                                                   \
    do {                                                                                                     \
        assert_int_equal(expand(f, template, "{{>other.html}}"), LS_ERR_INVALID);                            \
        if (!strstr(ls_error_text(), words)) {                                                               \
            fail_msg("%s lacks %s", ls_error_text(), words);                                                 \
        }                                                                                                    \
        assert_string_equal(ls_text_string(&(f)->text), "kept ");                                            \
    } while (0)

static void template_puts_values_in(void **state)
{
    fixture *f = *state;
    ls_values_text(f->values, "name", "gpt2");
    ls_values_printf(f->values, "steps", "%d of %d", 7, 10);
    ls_values_text(f->values, "nobody", NULL);
    assert_expands(f, "", "");
    assert_expands(f, "{ } plain }}", "{ } plain }}");
    assert_expands(f, "{{name}}: {{steps}}{{nobody}}", "gpt2: 7 of 10\u2013");
    ls_values_text(f->values, "name", "llama");
    assert_expands(f, "{{name}}", "llama");
}

static void template_escapes_every_character_of_markup(void **state)
{
    fixture *f = *state;
    ls_values_text(f->values, "evil", "<b>&\"'</b>");
    ls_values_text(f->values, "tag", "{{name}} {{{evil}}}");
    assert_expands(f, "{{evil}}", "&lt;b&gt;&amp;&quot;&#39;&lt;/b&gt;");
    assert_expands(f, "<p title=\"{{evil}}\">", "<p title=\"&lt;b&gt;&amp;&quot;&#39;&lt;/b&gt;\">");
    assert_expands(f, "{{tag}}", "{{name}} {{{evil}}}");
}

static void template_shows_what_a_terminal_or_browser_would_obey(void **state)
{
    fixture *f = *state;
    ls_values_bytes(f->values, "log", "a\0b\x1b[2J\n\t\xff\u202e", 13);
    assert_expands(f, "{{log}}", "a\\x00b\\x1b[2J\n\t\\xff\\xe2\\x80\\xae");
}

static void template_keeps_markup_and_text_apart(void **state)
{
    fixture *f = *state;
    ls_text svg = {0};
    ls_text_append(&svg, "<svg/>");
    ls_values_markup(f->values, "figure", &svg);
    ls_values_text(f->values, "name", "<svg/>");
    ls_values_flag(f->values, "flag", true);
    assert_null(svg.data);
    assert_expands(f, "{{{figure}}}", "<svg/>");
    assert_refuses(f, "{{{name}}}", "page.html:1: {{name}} takes only markup");
    assert_refuses(f, "{{figure}}", "{{figure}} takes only text");
    assert_refuses(f, "{{flag}}", "{{flag}} takes only text");
}

static void template_bolds_prose_and_nothing_else(void **state)
{
    fixture *f = *state;
    ls_values_prose(f->values, "says", "**4 < 5** of <b>x</b>, **open");
    assert_expands(f, "{{says}}", "<b>4 &lt; 5</b> of &lt;b&gt;x&lt;/b&gt;, <b>open</b>");
    ls_values_text(f->values, "says", "**plain**");
    assert_expands(f, "{{says}}", "**plain**");
}

static void template_cuts_between_characters(void **state)
{
    fixture *f = *state;
    ls_values_cut(f->values, "name", "a\u00e9\u00e9", 4);
    assert_expands(f, "{{name}}", "a\u00e9\u2026");
    ls_values_cut(f->values, "name", "a\u00e9\u00e9", 5);
    assert_expands(f, "{{name}}", "a\u00e9\u00e9");
    ls_values_cut(f->values, "name", NULL, 5);
    assert_expands(f, "{{name}}", "\u2013");
}

static void template_repeats_a_section_for_each_row(void **state)
{
    fixture *f = *state;
    ls_values_text(f->values, "unit", "GiB");
    for (int i = 0; i < 3; i++) {
        ls_values *row = ls_values_add(f->values, "rows");
        ls_values_printf(row, "number", "%d", i);
        if (i == 1) {
            ls_values_text(ls_values_add(row, "inner"), "unit", "own");
        }
    }
    assert_expands(f, "{{#rows}}{{number}} {{unit}};{{/rows}}", "0 GiB;1 GiB;2 GiB;");
    assert_expands(f, "{{#rows}}{{#inner}}{{number}}{{unit}}{{/inner}}{{^inner}}-{{/inner}}{{/rows}}",
                   "-1own-");
    assert_expands(f, "{{^rows}}none{{/rows}}", "");
    assert_expands(f, "{{#others}}x{{/others}}{{^others}}none{{/others}}", "none");
}

static void template_shows_a_section_for_what_is_set(void **state)
{
    fixture *f = *state;
    ls_values_flag(f->values, "yes", true);
    ls_values_flag(f->values, "no", false);
    ls_values_text(f->values, "empty", "");
    ls_values_text(f->values, "word", "w");
    assert_expands(f, "{{#yes}}a{{/yes}}{{#no}}b{{/no}}{{#empty}}c{{/empty}}{{#word}}{{word}}{{/word}}",
                   "aw");
    assert_expands(f, "{{^yes}}a{{/yes}}{{^no}}b{{/no}}{{^empty}}c{{/empty}}{{^never}}d{{/never}}", "bcd");
    assert_expands(f, "{{#yes}}{{#yes}}a{{/yes}}b{{/yes}}", "ab");
}

static void template_drops_the_line_of_a_tag_and_its_comment(void **state)
{
    fixture *f = *state;
    ls_values_flag(f->values, "yes", true);
    assert_expands(f, "{{! {words} }}\na\n{{#yes}}\nb\n{{/yes}}\nc {{#yes}}d{{/yes}}\ne\n", "a\nb\nc d\ne\n");
    assert_expands(f, "{{>other.html}}\n{{>other.html}}!\n", "otherother!\n");
}

static void template_says_where_it_is_wrong(void **state)
{
    fixture *f = *state;
    ls_values_flag(f->values, "yes", true);
    assert_refuses(f, "a\nb {{name}}", "page.html:2: {{name}} has no value");
    assert_refuses(f, "{{#yes}}a", "page.html:1: {{yes}} is never closed");
    assert_refuses(f, "a{{/yes}}", "{{yes}} closes a section that is not open");
    assert_refuses(f, "{{#yes}}{{/no}}{{/yes}}", "{{no}} closes a section that is not open");
    assert_refuses(f, "{{yes", "is not closed by as many braces");
    assert_refuses(f, "{{{yes}}", "is not closed by as many braces");
    assert_refuses(f, "{{}}", "a name in braces has");
    assert_refuses(f, "{{Upper}}", "a name in braces has");
    assert_refuses(f, "{{a b}}", "a name in braces has");
    assert_refuses(f, "{{aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa}}", "a name in braces has 1 to 31");
    assert_refuses(f, "{{>missing.html}}", "{{missing.html}} is not the name of a file");
    assert_refuses(f, "{{>other.html}}", "other.html:1: sections and files are nested too deep");
}

static void template_of_an_unknown_name_is_refused(void **state)
{
    fixture *f = *state;
    assert_int_equal(ls_template_append(ls_web_files, "nowhere.html", f->values, &f->text), LS_ERR_INVALID);
    assert_string_equal(ls_text_string(&f->text), "");
}

/* Every page is closed, and loads nothing. */
static void web_files_are_whole_pages(void **state)
{
    (void)state;
    const char *type = NULL;
    assert_non_null(ls_web_find("/style.css", &type));
    assert_string_equal(type, "text/css; charset=utf-8");
    assert_non_null(ls_web_find("/page.js", &type));
    assert_null(ls_web_find("/run.html", &type)); /* a template is no page */
    for (const ls_embedded_file *file = ls_web_files; file->name; file++) {
        assert_null(strstr(file->text, "<script>"));
        assert_null(strstr(file->text, "innerHTML"));
        assert_null(strstr(file->text, "url("));
        assert_null(strstr(file->text, " style=\""));
        assert_null(strstr(file->text, " onclick"));
        if (strstr(file->text, "head.html}}")) {
            assert_true(strstr(file->text, "</html>") || strstr(file->text, "_foot.html}}"));
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(template_puts_values_in),
        CASE(template_escapes_every_character_of_markup),
        CASE(template_shows_what_a_terminal_or_browser_would_obey),
        CASE(template_keeps_markup_and_text_apart),
        CASE(template_bolds_prose_and_nothing_else),
        CASE(template_cuts_between_characters),
        CASE(template_repeats_a_section_for_each_row),
        CASE(template_shows_a_section_for_what_is_set),
        CASE(template_drops_the_line_of_a_tag_and_its_comment),
        CASE(template_says_where_it_is_wrong),
        CASE(template_of_an_unknown_name_is_refused),
        CASE(web_files_are_whole_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
