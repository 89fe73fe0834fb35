// SPDX-License-Identifier: Apache-2.0
/* Completion scripts. Both have the same parts: first words, second words of groups
 * ("checkpoint ls"), the options of each command, and the values of options with fixed choices. */
#include "cli/completion.h"
#include "cli/command_list.h"

#include <string.h>

/* "checkpoint" of "checkpoint ls"; the whole name of a command of one word. */
static size_t first_word_bytes(const char *name)
{
    return strcspn(name, " ");
}

/* Whether the entry is listed, and no earlier one begins with the same word. */
static bool begins_first_word(size_t index)
{
    const char *name = ls_command_list[index].command->name;
    const size_t bytes = first_word_bytes(name);
    for (size_t i = 0; i < index; i++) {
        const char *other = ls_command_list[i].command->name;
        if (first_word_bytes(other) == bytes && memcmp(other, name, bytes) == 0) {
            return false;
        }
    }
    return ls_command_list[index].group != NULL;
}

static bool is_group(size_t index)
{
    const char *name = ls_command_list[index].command->name;
    return ls_command_list[index].group && name[first_word_bytes(name)] == ' ';
}

static void append_first_words(ls_text *text)
{
    for (size_t i = 0; i < ls_command_list_count; i++) {
        if (begins_first_word(i)) {
            const char *name = ls_command_list[i].command->name;
            ls_text_append_bytes(text, name, first_word_bytes(name));
            ls_text_append(text, " ");
        }
    }
    ls_text_append(text, "help");
}

/* "ls clear verify limit" for the group that begins at `index`. */
static void append_second_words(size_t index, ls_text *text)
{
    const char *name = ls_command_list[index].command->name;
    const size_t bytes = first_word_bytes(name);
    for (size_t i = index; i < ls_command_list_count; i++) {
        const char *other = ls_command_list[i].command->name;
        if (strncmp(other, name, bytes) == 0 && other[bytes] == ' ') {
            ls_text_printf(text, "%s%s", i > index ? " " : "", other + bytes + 1);
        }
    }
}

/* "--max-tokens" for the key max_tokens. */
static void append_long_name(const ls_option *option, ls_text *text)
{
    ls_text_append(text, "--");
    for (const char *at = option->key; *at; at++) {
        ls_text_append_bytes(text, *at == '_' ? "-" : at, 1);
    }
}

/* ---- bash ---- */

static void append_bash_options(const ls_command *command, ls_text *text)
{
    ls_text_printf(text, "    '%s') options='", command->name);
    for (size_t i = 0; i < command->options->count; i++) {
        append_long_name(&command->options->options[i], text);
        ls_text_append(text, " ");
    }
    ls_text_append(text, "--help' ;;\n");
}

static void append_bash_choices(const ls_command *command, ls_text *text)
{
    for (size_t i = 0; i < command->options->count; i++) {
        const ls_option *option = &command->options->options[i];
        if (option->type == LS_OPTION_CHOICE) {
            ls_text_printf(text, "    '%s ", command->name);
            append_long_name(option, text);
            ls_text_append(text, "') choices='");
            for (size_t k = 0; option->choices[k]; k++) {
                ls_text_printf(text, "%s%s", k > 0 ? " " : "", option->choices[k]);
            }
            ls_text_append(text, "' ;;\n");
        }
    }
}

void ls_completion_append_bash(ls_text *text)
{
    ls_text_append(text, "# bash completion for lockstep; made by 'lockstep manual'\n"
                         "_lockstep()\n{\n"
                         "    local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
                         "    local first=1 words= options= choices= command\n"
                         "    COMPREPLY=()\n"
                         "    [ \"${COMP_WORDS[1]}\" = help ] && first=2\n"
                         "    command=${COMP_WORDS[first]}\n"
                         "    if [ \"$COMP_CWORD\" -eq \"$first\" ]; then\n"
                         "        words='");
    append_first_words(text);
    ls_text_append(text, "'\n    else\n        case $command in\n");
    for (size_t i = 0; i < ls_command_list_count; i++) {
        if (begins_first_word(i) && is_group(i)) {
            const char *name = ls_command_list[i].command->name;
            ls_text_printf(text, "        %.*s) words='", (int)first_word_bytes(name), name);
            append_second_words(i, text);
            ls_text_append(text, "' ;;\n");
        }
    }
    ls_text_append(text, "        esac\n"
                         "        if [ -n \"$words\" ] && [ \"$COMP_CWORD\" -gt $((first + 1)) ]; then\n"
                         "            command=\"$command ${COMP_WORDS[first+1]}\"\n"
                         "            words=\n"
                         "        fi\n"
                         "    fi\n"
                         "    if [ -n \"$words\" ]; then\n"
                         "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                         "        return\n"
                         "    fi\n"
                         "    case \"$command $previous\" in\n");
    for (size_t i = 0; i < ls_command_list_count; i++) {
        append_bash_choices(ls_command_list[i].command, text);
    }
    ls_text_append(text, "    esac\n    case $command in\n");
    for (size_t i = 0; i < ls_command_list_count; i++) {
        if (ls_command_list[i].group) {
            append_bash_options(ls_command_list[i].command, text);
        }
    }
    ls_text_append(text, "    esac\n"
                         "    if [ -n \"$choices\" ]; then\n"
                         "        COMPREPLY=($(compgen -W \"$choices\" -- \"$cur\"))\n"
                         "    elif [ \"${cur:0:1}\" = - ]; then\n"
                         "        COMPREPLY=($(compgen -W \"$options\" -- \"$cur\"))\n"
                         "    fi\n}\n"
                         "complete -o bashdefault -o default -F _lockstep lockstep\n");
}

/* ---- zsh ---- */

/* Inside '...' and the brackets of _arguments. */
static void append_zsh_quoted(const char *string, ls_text *text)
{
    for (const char *at = string; *at; at++) {
        if (*at == '\'') {
            ls_text_append(text, "'\\''");
        } else if (strchr("[]:\\", *at)) {
            ls_text_printf(text, "\\%c", *at);
        } else {
            ls_text_append_bytes(text, at, 1);
        }
    }
}

static void append_zsh_option(const ls_option *option, ls_text *text)
{
    ls_text_append(text, option->type == LS_OPTION_STRINGS ? "        '*" : "        '");
    append_long_name(option, text);
    ls_text_append(text, "[");
    append_zsh_quoted(option->help, text);
    ls_text_append(text, "]");
    if (option->type == LS_OPTION_CHOICE) {
        ls_text_append(text, ":value:(");
        for (size_t i = 0; option->choices[i]; i++) {
            ls_text_printf(text, "%s%s", i > 0 ? " " : "", option->choices[i]);
        }
        ls_text_append(text, ")");
    } else if (option->type != LS_OPTION_BOOL) {
        ls_text_append(text, ":value:_files");
    }
    ls_text_append(text, "' \\\n");
}

static void append_zsh_command(const ls_command *command, ls_text *text)
{
    ls_text_printf(text, "    '%s') _arguments \\\n", command->name);
    for (size_t i = 0; i < command->options->count; i++) {
        append_zsh_option(&command->options->options[i], text);
    }
    ls_text_append(text, "        '--help[explain the command]' '*:file:_files' ;;\n");
}

void ls_completion_append_zsh(ls_text *text)
{
    ls_text_append(text, "#compdef lockstep\n# made by 'lockstep manual'\n"
                         "local command=${words[2]}\n"
                         "local -a choices\n"
                         "if (( CURRENT == 2 )); then\n    choices=(\n");
    for (size_t i = 0; i < ls_command_list_count; i++) {
        if (begins_first_word(i)) {
            const ls_command *command = ls_command_list[i].command;
            ls_text_printf(text, "        '%.*s:", (int)first_word_bytes(command->name), command->name);
            if (is_group(i)) {
                append_second_words(i, text);
            } else {
                append_zsh_quoted(command->summary, text);
            }
            ls_text_append(text, "'\n");
        }
    }
    ls_text_append(text, "        'help:explain a command'\n    )\n"
                         "    _describe command choices\n    return\nfi\ncase $command in\n");
    for (size_t i = 0; i < ls_command_list_count; i++) {
        if (begins_first_word(i) && is_group(i)) {
            const char *name = ls_command_list[i].command->name;
            ls_text_printf(text, "    %.*s) choices=(", (int)first_word_bytes(name), name);
            append_second_words(i, text);
            ls_text_append(text, ") ;;\n");
        }
    }
    ls_text_append(text, "    help) choices=(");
    append_first_words(text);
    ls_text_append(text, ") ;;\nesac\n"
                         "if (( $#choices )); then\n"
                         "    if (( CURRENT == 3 )); then\n"
                         "        _describe command choices\n        return\n"
                         "    fi\n"
                         "    command=\"$command ${words[3]}\"\n"
                         "    shift words\n    (( CURRENT-- ))\n"
                         "fi\n"
                         "shift words\n(( CURRENT-- ))\n"
                         "case $command in\n");
    for (size_t i = 0; i < ls_command_list_count; i++) {
        if (ls_command_list[i].group) {
            append_zsh_command(ls_command_list[i].command, text);
        }
    }
    ls_text_append(text, "esac\n");
}
