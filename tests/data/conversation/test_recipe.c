// SPDX-License-Identifier: Apache-2.0
/* Records become samples: forms, masks, stop tokens, what is refused. */
#include "test.h"

#include "data/conversation/recipe.h"
#include "data/conversation/samples.h"

#include <string.h>

/* ids: 0 <|endoftext|>, 1 the space, 2 to 95 ASCII 33 to 126, 96 the line feed, 97 <s>, 98 <e>. */
enum { BEGIN = 97, END = 98 };

static const char BOS_FIRST[] =
    "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\","
    "\"ids\":[97],\"tokens\":[\"<s>\"]}}}";

static ls_status make_tokenizer(const char *post_processor, ls_tokenizer **tokenizer_out)
{
    ls_text json = {0};
    ls_text_append(&json, "{\"version\":\"1.0\",\"added_tokens\":[");
    const struct {
        int id;
        const char *text;
    } added[] = {{0, "<|endoftext|>"}, {BEGIN, "<s>"}, {END, "<e>"}};
    for (int i = 0; i < 3; i++) {
        ls_text_printf(
            &json,
            "%s{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
            "\"normalized\":false,\"special\":true}",
            i ? "," : "", added[i].id, added[i].text);
    }
    ls_text_printf(&json,
                   "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":"
                   "false,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":%s,"
                   "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"merges\":[\"a b\"],"
                   "\"vocab\":{\"<|endoftext|>\":0,\"\xc4\xa0\":1,\"\xc4\x8a\":96,\"ab\":99",
                   post_processor);
    for (int c = 33; c < 127; c++) {
        ls_text_printf(&json, ",\"%s%c\":%d", c == '"' || c == '\\' ? "\\" : "", c, c - 31);
    }
    ls_text_append(&json, "}}}");
    const ls_status status = ls_tokenizer_parse(json.data, json.bytes, "test tokenizer", tokenizer_out);
    ls_text_release(&json);
    return status;
}

typedef struct fixture {
    ls_tokenizer *tokenizer;
    ls_recipe *recipe;
    ls_samples samples;
} fixture;

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    return make_tokenizer("null", &f->tokenizer) == LS_OK ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    ls_samples_release(&f->samples);
    ls_recipe_destroy(f->recipe);
    ls_tokenizer_destroy(f->tokenizer);
    free(f);
    return 0;
}

static const char CHAT[] = "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}<e>\n{% endfor %}"
                           "{% if add_generation_prompt %}<s>assistant\n{% endif %}";

static const int32_t stops[] = {END};

static void use(fixture *f, const char *template, ls_loss_on loss_on)
{
    const ls_recipe_options options = {
        .keys = {.text = "text"},
        .loss_on = loss_on,
        .template_source = template,
        .template_name = "t",
        .template_date = "",
        .stops = stops,
        .stop_count = 1,
        .tokenizer = f->tokenizer,
    };
    ls_recipe_destroy(f->recipe);
    f->recipe = NULL;
    assert_int_equal(ls_recipe_create(&options, &f->recipe), LS_OK);
}

static ls_status apply(fixture *f, const char *text)
{
    json_t *record = json_loads(text, 0, NULL);
    assert_non_null(record);
    ls_record_form form = LS_RECORD_TEXT;
    ls_samples_clear(&f->samples);
    ls_status status = ls_record_form_of(record, ls_recipe_keys(f->recipe), &form);
    if (status == LS_OK) {
        status = ls_recipe_apply(f->recipe, NULL, record, form, &f->samples);
    }
    json_decref(record);
    return status;
}

/* The text of all samples, each after a bar, with what is trained between brackets. */
static void expect(fixture *f, const char *record, const char *wanted)
{
    ls_text seen = {0};
    ls_text_buffer text = {0};
    size_t at = 0;
    if (apply(f, record) != LS_OK) {
        fail_msg("%s: %s", record, ls_error_text());
    }
    for (size_t i = 0; i < f->samples.count; i++) {
        bool trained = false;
        ls_text_append(&seen, "|");
        for (; at < f->samples.ends[i].ids; at++) {
            const int32_t id = f->samples.ids.ids[at], plain = ls_token_id(id);
            if (ls_token_is_trained(id) != trained) {
                trained = !trained;
                ls_text_append(&seen, trained ? "[" : "]");
            }
            text.bytes = 0;
            assert_int_equal(ls_tokenizer_decode(f->tokenizer, &plain, 1, false, &text), LS_OK);
            ls_text_append_bytes(&seen, text.data, text.bytes);
        }
        ls_text_append(&seen, trained ? "]" : "");
    }
    ls_text_buffer_release(&text);
    if (strcmp(ls_text_string(&seen), wanted) != 0) {
        fail_msg("%s gave\n%s\ninstead of\n%s", record, ls_text_string(&seen), wanted);
    }
    ls_text_release(&seen);
}

static void refuse(fixture *f, const char *record, const char *part)
{
    assert_int_equal(apply(f, record), LS_ERR_DATA);
    assert_int_equal(f->samples.count, 0);
    assert_int_equal(f->samples.ids.count, 0);
    if (!strstr(ls_error_text(), part)) {
        fail_msg("\"%s\" is not in \"%s\"", part, ls_error_text());
    }
}

#define U(text) "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text) "{\"role\":\"assistant\",\"content\":\"" text "\"}"

static void recipe_trains_answers_and_their_ends(void **state)
{
    fixture *f = *state;
    use(f, CHAT, LS_LOSS_ON_ASSISTANT);
    expect(f, "{\"messages\":[" U("hi") "," A("ho") "," U("x") "," A("y") "]}",
           "|<s>user\nhi<e>\n<s>assistant\n[ho<e>\n]<s>user\nx<e>\n<s>assistant\n[y<e>\n]");
    /* What comes after the last answer is not part of the sample. */
    expect(f, "{\"messages\":[" U("hi") "," A("ho") "," U("x") "]}",
           "|<s>user\nhi<e>\n<s>assistant\n[ho<e>\n]");
    expect(f,
           "{\"messages\":[" U("hi") ",{\"role\":\"assistant\",\"content\":\"ho\",\"weight\":0}," U(
               "x") "," A("y") "]}",
           "|<s>user\nhi<e>\n<s>assistant\nho<e>\n<s>user\nx<e>\n<s>assistant\n[y<e>\n]");
    use(f, CHAT, LS_LOSS_ON_LAST);
    expect(f, "{\"messages\":[" U("hi") "," A("ho") "," U("x") "," A("y") "]}",
           "|<s>user\nhi<e>\n<s>assistant\nho<e>\n<s>user\nx<e>\n<s>assistant\n[y<e>\n]");
    use(f, CHAT, LS_LOSS_ON_ALL);
    expect(f, "{\"messages\":[" U("hi") "," A("ho") "]}", "|[<s>user\nhi<e>\n<s>assistant\nho<e>\n]");
}

static void recipe_makes_a_sample_of_each_answer_that_is_rewritten(void **state)
{
    fixture *f = *state;
    /* Only the last answer keeps what comes before a semicolon. */
    use(f,
        "{% for m in messages %}<s>{{ m.role }}\n{% if m.role == 'assistant' and not loop.last %}"
        "{{ m.content.split(';')[-1] }}{% else %}{{ m.content }}{% endif %}<e>\n{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant\n{% endif %}",
        LS_LOSS_ON_ASSISTANT);
    expect(f, "{\"messages\":[" U("hi") "," A("t;ho") "," U("x") "," A("u;y") "]}",
           "|<s>user\nhi<e>\n<s>assistant\n[t;ho<e>\n]"
           "|<s>user\nhi<e>\n<s>assistant\nho<e>\n<s>user\nx<e>\n<s>assistant\n[u;y<e>\n]");
    /* Nothing is rewritten here, so one sample is enough. */
    expect(f, "{\"messages\":[" U("hi") "," A("ho") "," U("x") "," A("y") "]}",
           "|<s>user\nhi<e>\n<s>assistant\n[ho<e>\n]<s>user\nx<e>\n<s>assistant\n[y<e>\n]");
}

static void recipe_keeps_tokens_apart_at_a_boundary(void **state)
{
    fixture *f = *state;
    /* "ab" is one token, which would begin in the prompt and end in the answer. */
    use(f,
        "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}a{% else %}{{ m.content }}<e>{% "
        "endif %}"
        "{% endfor %}",
        LS_LOSS_ON_ASSISTANT);
    expect(f, "{\"messages\":[" U("x") "," A("b") "]}", "|xa[b<e>]");
    assert_int_equal(f->samples.ids.count, 4);
    expect(f, "{\"messages\":[" U("x") "," A("cab") "]}", "|xa[cab<e>]");
    assert_int_equal(f->samples.ids.count, 5);
}

static void recipe_forgives_white_space_after_a_prompt(void **state)
{
    fixture *f = *state;
    use(f,
        "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}<e>\n{% endfor %}"
        "{% if add_generation_prompt %} <s>assistant\n\n\n{% endif %}",
        LS_LOSS_ON_ASSISTANT);
    expect(f, "{\"messages\":[" U("hi") "," A("ho") "]}", "|<s>user\nhi<e>\n<s>assistant\n[ho<e>\n]");
    assert_true(f->samples.is_loose);
    use(f,
        "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}<e>\n{% endfor %}"
        "{% if add_generation_prompt %}<s>bot\n{% endif %}",
        LS_LOSS_ON_ASSISTANT);
    refuse(f, "{\"messages\":[" U("hi") "," A("ho") "]}", "the template ends a prompt with \"bot");
}

static void recipe_reads_every_form(void **state)
{
    fixture *f = *state;
    static const char wanted[] = "|<s>user\nhi<e>\n<s>assistant\n[ho<e>\n]";
    use(f, CHAT, LS_LOSS_ON_ASSISTANT);
    expect(f,
           "{\"conversations\":[{\"from\":\"human\",\"value\":\"hi\"},{\"from\":\"gpt\",\"value\":\"ho\"}]}",
           wanted);
    expect(f, "{\"instruction\":\"hi\",\"input\":\"\",\"output\":\"ho\"}", wanted);
    expect(f, "{\"instruction\":\"hi\",\"instances\":[{\"input\":\"\",\"output\":\"ho\"}]}", wanted);
    expect(f, "{\"question\":\"hi\",\"answer\":\"ho\"}", wanted);
    expect(f, "{\"prompt\":[" U("hi") "],\"completion\":[" A("ho") "]}", wanted);
    expect(f,
           "{\"messages\":\"[{\\\"role\\\":\\\"user\\\",\\\"content\\\":\\\"hi\\\"},{\\\"role\\\":"
           "\\\"assistant\\\","
           "\\\"content\\\":\\\"ho\\\"}]\"}",
           wanted);
    expect(f,
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"h\"},{\"type\":"
           "\"text\","
           "\"text\":\"i\"}]}," A("ho") "]}",
           wanted);
    expect(f, "{\"instruction\":\"h\",\"input\":\"i\",\"output\":\"ho\"}",
           "|<s>user\nh\ni<e>\n<s>assistant\n[ho<e>\n]");
    expect(f, "{\"instruction\":\"hi\",\"input\":-3,\"output\":7}",
           "|<s>user\nhi\n-3<e>\n<s>assistant\n[7<e>\n]");
    expect(f,
           "{\"system\":\"s\",\"conversations\":[{\"from\":\"human\",\"value\":\"hi\"},{\"from\":\"gpt\","
           "\"value\":\"ho\"}]}",
           "|<s>system\ns<e>\n<s>user\nhi<e>\n<s>assistant\n[ho<e>\n]");
    /* Strings are joined as they are, whatever the template. */
    expect(f, "{\"prompt\":\"hi \",\"completion\":\"ho\"}", "|hi [ho<|endoftext|>]");
    expect(f, "{\"prompt\":\"hi \",\"completion\":\"[{}, 2)\"}", "|hi [[{}, 2)<|endoftext|>]");
    expect(f, "{\"prompt\":\"\",\"completion\":\"ho<|endoftext|>\"}", "|[ho<|endoftext|>]");
    use(f, NULL, LS_LOSS_ON_ASSISTANT);
    expect(f, "{\"question\":\"hi\",\"answer\":\"ho\"}", "|hi\n[ho<|endoftext|>]");
    expect(f, "{\"prompt\":\"a\",\"completion\":\"b\"}", "|a[b<|endoftext|>]");
    assert_int_equal(ls_recipe_check_form(f->recipe, LS_RECORD_MESSAGES), LS_ERR_INVALID);
    assert_non_null(strstr(ls_error_text(), "data.template"));
}

static void recipe_begins_a_pair_with_one_bos(void **state)
{
    fixture *f = *state;
    ls_tokenizer_destroy(f->tokenizer);
    f->tokenizer = NULL;
    assert_int_equal(make_tokenizer(BOS_FIRST, &f->tokenizer), LS_OK);
    use(f, NULL, LS_LOSS_ON_ASSISTANT);
    expect(f, "{\"prompt\":\"hi \",\"completion\":\"ho\"}", "|<s>hi [ho<|endoftext|>]");
    expect(f, "{\"prompt\":\"<s>hi \",\"completion\":\"ho\"}", "|<s>hi [ho<|endoftext|>]");
}

static void recipe_gives_arguments_of_calls_as_objects(void **state)
{
    fixture *f = *state;
    use(f,
        "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls %}"
        "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}<e>\n{% endfor %}"
        "{% if add_generation_prompt %}<s>assistant\n{% endif %}",
        LS_LOSS_ON_ASSISTANT);
    static const char record[] = "{\"messages\":[" U(
        "hi") ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"type\":\"function\","
              "\"function\":{\"name\":\"look\",\"arguments\":\"{\\\"n\\\": "
              "5}\"}}]},{\"role\":\"tool\",\"content\":\"7\"}," A("ho") "]}";
    expect(f, record,
           "|<s>user\nhi<e>\n<s>assistant\n[look{\"n\": 5}<e>\n]<s>tool\n7<e>\n<s>assistant\n[ho<e>\n]");
    use(f, CHAT, LS_LOSS_ON_ASSISTANT);
    refuse(f, record,
           "message 2: the answer calls the tool `look`, but the template does not write tool calls");
}

static void recipe_gives_the_template_what_a_table_has_as_text(void **state)
{
    fixture *f = *state;
    use(f,
        "{{ tone }}{% for d in documents or [] %}({{ d.title }}){% endfor %}{% for m in messages %}<s>{{ "
        "m.role "
        "}}\n"
        "{{ m.content }}<e>\n{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}",
        LS_LOSS_ON_ASSISTANT);
    static const char wanted[] = "|dry(d)<s>user\nhi<e>\n<s>assistant\n[ho<e>\n]";
    expect(f,
           "{\"question\":\"hi\",\"answer\":\"ho\",\"documents\":[{\"title\":\"d\"}],"
           "\"chat_template_kwargs\":{\"tone\":\"dry\"}}",
           wanted);
    expect(f,
           "{\"question\":\"hi\",\"answer\":\"ho\",\"documents\":\"[{\\\"title\\\":\\\"d\\\"}]\","
           "\"chat_template_kwargs\":\"{\\\"tone\\\":\\\"dry\\\"}\"}",
           wanted);
    expect(f, "{\"question\":\"hi\",\"answer\":\"ho\",\"documents\":\"\",\"chat_template_kwargs\":null}",
           "|<s>user\nhi<e>\n<s>assistant\n[ho<e>\n]");
    refuse(f, "{\"question\":\"hi\",\"answer\":\"ho\",\"documents\":\"a book\"}",
           "`documents` must be a list");
    refuse(f, "{\"question\":\"hi\",\"answer\":\"ho\",\"chat_template_kwargs\":\"{tone\"}",
           "`chat_template_kwargs` must be an object");
}

static void recipe_refuses_what_cannot_be_learned(void **state)
{
    fixture *f = *state;
    use(f, CHAT, LS_LOSS_ON_ASSISTANT);
    refuse(f, "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}]}", "only a system turn");
    refuse(f, "{\"messages\":[" U("hi") "]}", "no answer of the assistant");
    refuse(f, "{\"messages\":[]}", "no messages");
    refuse(f, "{\"messages\":[" U("hi") "," A(" ") "]}", "message 2: the answer is empty");
    refuse(f, "{\"messages\":[" U("hi") ",{\"role\":\"asistant\",\"content\":\"ho\"}]}",
           "the role is \"asistant\"");
    refuse(f, "{\"messages\":[" U("hi") ",{\"content\":\"ho\"}]}", "there is no role");
    refuse(f, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}," A("ho") "]}",
           "of type image_url");
    refuse(f, "{\"messages\":[" U("hi") ",{\"role\":\"assistant\",\"content\":\"ho\",\"weight\":0}]}",
           "weight of every");
    refuse(f, "{\"messages\":[" U("hi") ",{\"role\":\"assistant\",\"content\":\"ho\",\"weight\":\"0\"}]}",
           "message 2: the weight is \"0\"; it must be the number 0");
    refuse(f, "{\"messages\":[" U("hi") ",{\"role\":\"assistant\",\"content\":\"ho\",\"weight\":false}]}",
           "the weight is false");
    refuse(f, "{\"instruction\":\"hi\",\"instances\":[]}", "no answer");
    refuse(f, "{\"instruction\":\"hi\",\"instances\":\"[{\"}", "`instances` must be a list");
    refuse(f, "{\"prompt\":\"hi\",\"completion\":\"\"}", "the completion is empty");
    refuse(f, "{\"question\":\"hi\",\"answer\":null}",
           "the value of `answer` must be a string or a whole number, and is null");
    refuse(f, "{\"question\":\"hi\",\"answer\":1.5}", "a string or a whole number");
    refuse(f, "{\"instruction\":\"hi\",\"input\":[1],\"output\":\"ho\"}", "the value of `input`");
    refuse(f, "{\"chosen\":\"a\",\"rejected\":\"b\"}", "a chosen and a rejected answer");
    refuse(f, "{\"a\":1}", "no known form");
    refuse(f, "{\"text\":\"t\",\"messages\":[" U("hi") "," A("ho") "]}", "both text and OpenAI's messages");
    use(f,
        "{% for m in messages %}{% if m.role != ['user', 'assistant'][loop.index0 % 2] %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}<e>{% endfor %}",
        LS_LOSS_ON_ASSISTANT);
    refuse(f, "{\"messages\":[" A("ho") "," U("hi") "]}", "roles must alternate");
    use(f, "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}<e>{% endif %}{% endfor %}",
        LS_LOSS_ON_ASSISTANT);
    refuse(f, "{\"messages\":[" U("hi") "," A("ho") "]}",
           "message 2 is an answer (role assistant), but the chat template writes nothing for it: use "
           "another template");
}

static void recipe_needs_an_end_that_is_trained(void **state)
{
    fixture *f = *state;
    use(f,
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}",
        LS_LOSS_ON_ASSISTANT);
    assert_int_equal(ls_recipe_turn_end(f->recipe), -1);
    refuse(f, "{\"messages\":[" U("hi") "," A("ho") "]}", "never learn to stop");
    /* A special token of the template's own becomes an end. */
    use(f,
        "{% for m in messages %}{{ m.role }}: {{ m.content }}<s>\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}",
        LS_LOSS_ON_ASSISTANT);
    assert_int_equal(ls_recipe_turn_end(f->recipe), BEGIN);
    expect(f, "{\"messages\":[" U("hi") "," A("ho") "]}", "|user: hi<s>\nassistant: [ho<s>\n]");
    /* So does one that is written only before the next message. */
    use(f,
        "{% for m in messages %}<s>{{ m.role }}\n{{ m.content }}{% if not loop.last or add_generation_prompt "
        "%}"
        "<e>\n{% endif %}{% endfor %}{% if add_generation_prompt %}<s>assistant\n{% endif %}",
        LS_LOSS_ON_ASSISTANT);
    expect(f, "{\"messages\":[" U("hi") "," A("ho") "," U("x") "," A("y") "]}",
           "|<s>user\nhi<e>\n<s>assistant\n[ho<e>]\n<s>user\nx<e>\n<s>assistant\n[y<e>]");
    use(f, CHAT, LS_LOSS_ON_ASSISTANT);
    assert_int_equal(ls_recipe_turn_end(f->recipe), -1);
}

static void recipe_hash_covers_what_decides(void **state)
{
    fixture *f = *state;
    char hash[LS_SHA256_HEX_BYTES];
    use(f, CHAT, LS_LOSS_ON_ASSISTANT);
    strcpy(hash, ls_recipe_hash(f->recipe));
    use(f, CHAT, LS_LOSS_ON_ASSISTANT);
    assert_string_equal(hash, ls_recipe_hash(f->recipe));
    use(f, CHAT, LS_LOSS_ON_LAST);
    assert_string_not_equal(hash, ls_recipe_hash(f->recipe));
    use(f, NULL, LS_LOSS_ON_ASSISTANT);
    assert_string_not_equal(hash, ls_recipe_hash(f->recipe));
}

static void recipe_with_a_broken_template_is_for_other_records(void **state)
{
    fixture *f = *state;
    use(f, "{% if %}", LS_LOSS_ON_ASSISTANT);
    expect(f, "{\"prompt\":\"a\",\"completion\":\"b\"}", "|a[b<|endoftext|>]");
    assert_int_equal(ls_recipe_check_form(f->recipe, LS_RECORD_MESSAGES), LS_ERR_DATA);
    assert_int_equal(ls_recipe_check_form(f->recipe, LS_RECORD_QUESTION), LS_ERR_DATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(recipe_trains_answers_and_their_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_makes_a_sample_of_each_answer_that_is_rewritten, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(recipe_keeps_tokens_apart_at_a_boundary, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_forgives_white_space_after_a_prompt, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_reads_every_form, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_begins_a_pair_with_one_bos, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_gives_arguments_of_calls_as_objects, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_gives_the_template_what_a_table_has_as_text, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_refuses_what_cannot_be_learned, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_needs_an_end_that_is_trained, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_hash_covers_what_decides, setup, teardown),
        cmocka_unit_test_setup_teardown(recipe_with_a_broken_template_is_for_other_records, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
