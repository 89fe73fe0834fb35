// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/terminal.h"

#include <stdlib.h>
#include <string.h>

/* Fed in pieces of `piece` bytes. */
static void expect(const char *in, size_t piece, const char *out)
{
    ls_terminal terminal = {0};
    ls_text text = {0};
    for (size_t at = 0; at < strlen(in); at += piece) {
        const size_t left = strlen(in) - at;
        ls_terminal_feed(&terminal, in + at, left < piece ? left : piece, &text);
    }
    ls_terminal_end(&terminal, &text);
    assert_string_equal(ls_text_string(&text), out);
    ls_text_release(&text);
}

static void terminal_passes_colours_and_nothing_else(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"one\ntwo\tthree\r", "one\ntwo\tthree\r"},
        {"\033[1;31mred\033[0m", "\033[1;31mred\033[0m\033[0m"},
        {"\033[38:2:1:2:3mred", "\033[38:2:1:2:3mred\033[0m"},
        {"50%\r\033[K60%", "50%\r\033[K60%"},
        {"\033]52;c;aGk=\a", "\\x1b]52;c;aGk=\\x07"}, /* the clipboard */
        /* clears the screen, makes the terminal answer */
        {"\033[2J\033[6n", "\\x1b[2J\\x1b[6n"},
        {"\033P0;0|17/ab\033\\", "\\x1bP0;0|17/ab\\x1b\\"},
        {"\033c\033[?1049h", "\\x1bc\\x1b[?1049h"},
        {"\033\033[31m", "\\x1b\033[31m\033[0m"},
        {"\302\23331m", "\\xc2\\x9b31m"}, /* the same as ESC [, in one character */
        {"\303\274\342\202\254\360\237\230\200", "\303\274\342\202\254\360\237\230\200"},
        {"a\303", "a\\xc3"},
        {"a\303\033[", "a\\xc3\\x1b["},
        {"\342\202x\377", "\\xe2\\x82x\\xff"},
        {"\033[111111111111111111111111111111111111111111111m", /* longer than any colour */
         "\\x1b[111111111111111111111111111111111111111111111m"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (size_t piece = 1; piece < 8; piece++) {
            expect(cases[i].in, piece, cases[i].out);
        }
        expect(cases[i].in, 1000, cases[i].out);
    }
}

/* Whatever comes: no escape but those of colours and lines, wherever it is cut. */
static void terminal_lets_no_escape_through(void **state)
{
    (void)state;
    static const char alphabet[] = "\033[]m;0K\303\274\233\a\\x\n";
    srand(7);
    for (int round = 0; round < 2000; round++) {
        char in[64];
        ls_terminal terminal = {0};
        ls_text text = {0};
        for (size_t i = 0; i < sizeof in; i++) {
            in[i] = alphabet[(size_t)rand() % (sizeof alphabet - 1)];
        }
        for (size_t at = 0; at < sizeof in;) {
            size_t piece = 1 + (size_t)rand() % 20;
            piece = piece < sizeof in - at ? piece : sizeof in - at;
            ls_terminal_feed(&terminal, in + at, piece, &text);
            at += piece;
        }
        ls_terminal_end(&terminal, &text);
        for (const char *at = strchr(ls_text_string(&text), '\033'); at; at = strchr(at + 1, '\033')) {
            assert_int_equal(at[1], '[');
            const size_t parameters = strspn(at + 2, "0123456789;:");
            assert_true(at[2 + parameters] == 'm' || at[2 + parameters] == 'K');
        }
        assert_null(strchr(ls_text_string(&text), '\a'));
        ls_text_release(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terminal_passes_colours_and_nothing_else),
        cmocka_unit_test(terminal_lets_no_escape_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
