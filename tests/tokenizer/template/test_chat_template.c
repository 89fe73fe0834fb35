// SPDX-License-Identifier: Apache-2.0
/* Chat templates: small ones of our own for each construct, what Python prints for them, and the limits. */
#include "test.h"

#include "tokenizer/template/chat_template.h"

#include <string.h>

static ls_text out;

static ls_status render(const char *source, const char *variables)
{
    ls_chat_template *template = NULL;
    ls_status status = ls_chat_template_open(source, strlen(source), "test", &template);
    if (status == LS_OK) {
        json_t *json = json_loads(variables, JSON_ALLOW_NUL, NULL);
        assert_non_null(json);
        status = ls_chat_template_render(template, json, &out);
        json_decref(json);
    }
    ls_chat_template_close(template);
    return status;
}

static void assert_renders(const char *source, const char *variables, const char *wanted)
{
    if (render(source, variables) != LS_OK) {
        fail_msg("%s: %s", source, ls_error_text());
    }
    assert_string_equal(ls_text_string(&out), wanted);
}

static void template_prints_a_conversation(void **state)
{
    (void)state;
    assert_renders("{%- for m in messages %}\n<{{ m.role }}>{{ m['content'] | trim }}\n{%- endfor %}",
                   "{\"messages\": [{\"role\": \"user\", \"content\": \" hi \"}]}", "<user>hi");
}

static int tear_down(void **state)
{
    (void)state;
    ls_text_release(&out);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(template_prints_a_conversation),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
