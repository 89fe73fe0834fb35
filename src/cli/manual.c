// SPDX-License-Identifier: Apache-2.0
/* manual: writes man pages and completion scripts; the build runs it. */
#include "cli/completion.h"

#include "base/file.h"
#include "cli/command_list.h"
#include "cli/help.h"

#include <ctype.h>
#include <string.h>

/* ---- man pages ---- */

/* `bytes` of a line as man prints them: no escapes, no requests, hyphens that can be copied. */
static void append_escaped(const char *line, size_t bytes, ls_text *text)
{
    if (bytes > 0 && (line[0] == '.' || line[0] == '\'')) {
        ls_text_append(text, "\\&");
    }
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] == '\\') {
            ls_text_append(text, "\\e");
        } else if (line[i] == '-') {
            ls_text_append(text, "\\-");
        } else {
            ls_text_append_bytes(text, line + i, 1);
        }
    }
}

static void append_line(const char *line, ls_text *text)
{
    append_escaped(line, strlen(line), text);
    ls_text_append(text, "\n");
}

/* Paragraphs; lines that begin with a space are kept as they are. */
static void append_paragraphs(const char *details, const char *end, ls_text *text)
{
    bool is_literal = false;
    for (const char *line = details; line < end;) {
        const size_t bytes = strcspn(line, "\n");
        if (is_literal != (line[0] == ' ')) {
            is_literal = line[0] == ' ';
            ls_text_append(text, is_literal ? ".nf\n" : ".fi\n");
        }
        if (bytes == 0) {
            ls_text_append(text, ".PP");
        }
        append_escaped(line, bytes, text);
        ls_text_append(text, "\n");
        line += bytes + (line[bytes] == '\n');
    }
    ls_text_append(text, is_literal ? ".fi\n" : "");
}

/* The first line of the examples, or NULL. end_out: the end of the text before their title. */
static const char *find_examples(const char *details, const char **end_out)
{
    static const char *const titles[] = {"Examples:\n", "Example:\n"};
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) {
        const char *found = strstr(details, titles[i]);
        if (found) {
            const char *end = found;
            while (end > details && end[-1] == '\n') {
                end--;
            }
            *end_out = end;
            return found + strlen(titles[i]);
        }
    }
    *end_out = details + strlen(details);
    return NULL;
}

static void append_options(const ls_option_table *table, ls_text *text)
{
    ls_text line = {0};
    ls_text_append(text, table->count > 0 ? ".SH OPTIONS\n" : "");
    for (size_t i = 0; i < table->count; i++) {
        ls_text_append(text, ".TP\n.B ");
        ls_text_clear(&line);
        ls_options_append_label(&table->options[i], "--", &line);
        append_line(ls_text_string(&line), text);
        ls_text_clear(&line);
        ls_options_append_meaning(&table->options[i], &line);
        append_line(ls_text_string(&line), text);
    }
    ls_text_release(&line);
}

/* "checkpoint ls" is in lockstep-checkpoint-ls(1). */
static void append_page_name(const ls_command *command, ls_text *text)
{
    ls_text_append(text, "lockstep-");
    for (const char *at = command->name; *at; at++) {
        ls_text_append_bytes(text, *at == ' ' ? "-" : at, 1);
    }
}

static void append_title(const char *page, ls_text *text)
{
    ls_text_append(text, ".TH ");
    for (; *page; page++) {
        ls_text_printf(text, "%c", toupper((unsigned char)*page));
    }
    ls_text_printf(text, " 1 \"\" \"lockstep %s\" \"Lockstep\"\n.SH NAME\n", LS_VERSION);
}

static void append_command_page(const ls_command *command, ls_text *text)
{
    ls_text page = {0};
    const char *end = NULL, *examples = find_examples(command->details, &end);
    append_page_name(command, &page);
    append_title(ls_text_string(&page), text);
    append_escaped(ls_text_string(&page), page.bytes, text);
    ls_text_append(text, " \\- ");
    append_line(command->summary, text);
    ls_text_printf(text, ".SH SYNOPSIS\n.B lockstep %s\n", command->name);
    if (command->words[0]) {
        ls_text_append(text, ".I ");
        append_line(command->words, text);
    }
    ls_text_append(text, command->options->count > 0 ? "[options]\n" : "");
    ls_text_append(text, ".SH DESCRIPTION\n");
    append_paragraphs(command->details, end, text);
    append_options(command->options, text);
    if (examples) {
        ls_text_append(text, ".SH EXAMPLES\n");
        append_paragraphs(examples, examples + strlen(examples), text);
    }
    ls_text_append(text, ".SH SEE ALSO\n.BR lockstep (1)\n");
    ls_text_release(&page);
}

static void append_terms(const char *title, const ls_help_term *terms, ls_text *text)
{
    ls_text_printf(text, ".SH %s\n", title);
    for (; terms->term; terms++) {
        ls_text_printf(text, ".TP\n.B %s\n", terms->term);
        append_line(terms->meaning, text);
    }
}

static void append_program_page(ls_text *text)
{
    append_title("lockstep", text);
    ls_text_printf(text,
                   "lockstep \\- %s\n.SH SYNOPSIS\n.B lockstep\n.I COMMAND\n[options]\n.SH DESCRIPTION\n",
                   ls_help_tagline);
    ls_text_append(text, "Each command has a page of its own, such as\n.BR lockstep\\-train (1),\n"
                         "and explains itself with \\-\\-help.\n.SH COMMANDS\n");
    const char *group = "";
    for (size_t i = 0; i < ls_command_list_count; i++) {
        const ls_command_entry *entry = &ls_command_list[i];
        if (!entry->group) {
            continue;
        }
        if (strcmp(group, entry->group) != 0) {
            group = entry->group;
            ls_text_printf(text, ".SS %s\n", group);
        }
        ls_text_printf(text, ".TP\n.B %s\n", entry->command->name);
        append_line(entry->command->summary, text);
    }
    append_terms("EXIT STATUS", ls_help_exit_codes, text);
    append_terms("ENVIRONMENT", ls_help_variables, text);
}

/* ---- the command ---- */

/* Writes the text to DIR/NAME and empties it. */
static ls_status write_page(ls_arena *arena, const char *dir, const char *name, ls_text *text)
{
    const ls_status status =
        ls_file_write_atomic(ls_path_join(arena, dir, name), ls_text_string(text), text->bytes);
    ls_text_clear(text);
    return status;
}

static ls_status write_manual(ls_arena *arena, const char *dir, ls_text *text)
{
    const char *pages = ls_path_join(arena, dir, "man1"), *scripts = ls_path_join(arena, dir, "completions");
    LS_TRY(ls_dir_create(pages));
    LS_TRY(ls_dir_create(scripts));
    append_program_page(text);
    LS_TRY(write_page(arena, pages, "lockstep.1", text));
    for (size_t i = 0; i < ls_command_list_count; i++) {
        if (ls_command_list[i].group) {
            ls_text name = {0};
            append_page_name(ls_command_list[i].command, &name);
            ls_text_append(&name, ".1");
            append_command_page(ls_command_list[i].command, text);
            const ls_status status = write_page(arena, pages, ls_text_string(&name), text);
            ls_text_release(&name);
            LS_TRY(status);
        }
    }
    ls_completion_append_bash(text);
    LS_TRY(write_page(arena, scripts, "lockstep", text));
    ls_completion_append_zsh(text);
    return write_page(arena, scripts, "_lockstep", text);
}

static ls_status run_manual(const ls_invocation *invocation)
{
    ls_text text = {0};
    const ls_status status = write_manual(invocation->arena, invocation->words[0], &text);
    ls_text_release(&text);
    return status;
}

static const ls_option_table no_options = {0};

const ls_command ls_command_manual = {
    .name = "manual",
    LS_WORDS("DIR", 1, 1),
    .summary = "write man pages and completion scripts",
    .details = "Writes DIR/man1/*.1, DIR/completions/lockstep (bash) and DIR/completions/_lockstep (zsh).\n"
               "The build runs it, and 'cmake --install' installs the result.",
    .hidden = true,
    .options = &no_options,
    .settings_bytes = 1,
    .run = run_manual,
};
