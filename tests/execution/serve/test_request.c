// SPDX-License-Identifier: Apache-2.0
/* Bodies of requests that a server with a tiny model can't tell apart; tests/cli/models/serve.py has the rest. */
#include "test.h"

#include "execution/serve/request.h"

#include <string.h>

/* `count` prompts of four tokens, with `more` fields. */
static ls_status read_prompts(const ls_serve_model *model, int count, const char *more)
{
    ls_text body = {0};
    ls_serve_request request;
    const char *param = NULL;
    ls_text_append(&body, "{\"prompt\": [\"abcd\"");
    for (int i = 1; i < count; i++) {
        ls_text_append(&body, ", \"abcd\"");
    }
    ls_text_printf(&body, "], %s}", more);
    const ls_status status =
        ls_serve_request_read(model, false, ls_text_string(&body), body.bytes, &request, &param);
    if (status != LS_OK) {
        assert_string_equal(param, "logprobs");
    }
    ls_serve_request_release(&request);
    ls_text_release(&body);
    return status;
}

static void request_bounds_scored_tokens(void **state)
{
    (void)state;
    ls_tokenizer *tokenizer = NULL;
    assert_int_equal(ls_tokenizer_create_bytes(&tokenizer), LS_OK);
    const ls_serve_model model = {.name = "m", .tokenizer = tokenizer, .vocab = 256, .context = 8192};
    assert_int_equal(read_prompts(&model, 50, "\"max_tokens\": 2000, \"n\": 2, \"logprobs\": 0"), LS_OK);
    assert_int_equal(read_prompts(&model, 50, "\"max_tokens\": 2001, \"n\": 2, \"logprobs\": 0"),
                     LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "200100 tokens"));
    assert_non_null(strstr(ls_error_text(), "200000"));
    assert_int_equal(read_prompts(&model, 50, "\"max_tokens\": 8000, \"n\": 2"), LS_OK); /* not scored */
    /* the likeliest tokens beside each count */
    assert_int_equal(read_prompts(&model, 50, "\"max_tokens\": 400, \"n\": 2, \"logprobs\": 5"), LS_OK);
    assert_int_equal(read_prompts(&model, 50, "\"max_tokens\": 401, \"n\": 2, \"logprobs\": 5"),
                     LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "40100 tokens, 5 for each"));
    /* with echo, the prompt of each answer counts, too */
    const char *echoed = "\"max_tokens\": 1996, \"n\": 2, \"echo\": true, \"logprobs\": 0";
    assert_int_equal(read_prompts(&model, 50, echoed), LS_OK);
    assert_int_equal(read_prompts(&model, 51, echoed), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "204000 tokens"));
    ls_tokenizer_destroy(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_bounds_scored_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
