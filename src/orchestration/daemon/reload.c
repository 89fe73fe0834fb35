// SPDX-License-Identifier: Apache-2.0
#include "orchestration/daemon/reload.h"

#include "base/text.h"

#include <string.h>

static const char *const at_start_only[] = {
    "engine",
    "slots",
    "spot",
    "listen",
    "jobs_max",
    "idle.look",
    "tls.",
    "slurm.",
    "policy.order",
    "policy.reservations",
    "policy.half_life",
    "access.loopback",
};

static bool needs_restart(const char *key)
{
    for (size_t i = 0; i < sizeof at_start_only / sizeof at_start_only[0]; i++) {
        const char *one = at_start_only[i];
        const size_t bytes = strlen(one);
        if (strcmp(key, one) == 0 || (one[bytes - 1] == '.' && strncmp(key, one, bytes) == 0)) {
            return true;
        }
    }
    return false;
}

static bool differ(const ls_option *option, const ls_daemon_settings *a, const ls_daemon_settings *b)
{
    ls_text one = {0}, other = {0};
    ls_options_append_value(option, a, &one);
    ls_options_append_value(option, b, &other);
    const bool is_other = strcmp(ls_text_string(&one), ls_text_string(&other)) != 0;
    ls_text_release(&one);
    ls_text_release(&other);
    return is_other;
}

ls_status ls_reload_open(ls_reload *reload, const char *path)
{
    LS_TRY(ls_daemon_settings_load(path, &reload->arena, &reload->file));
    reload->begun = reload->file;
    return LS_OK;
}

void ls_reload_close(ls_reload *reload)
{
    ls_arena_release(&reload->arena);
}

ls_status ls_reload_read(ls_reload *reload, const char *path, json_t **answer_out)
{
    /* The strings of all readings stay: files are small, and readings are rare. */
    ls_daemon_settings now;
    LS_TRY(ls_daemon_settings_load(path, &reload->arena, &now));
    LS_TRY(ls_daemon_lists_check(&now));
    const ls_messenger_settings messages = ls_daemon_messenger_settings(&now);
    LS_TRY(ls_messenger_check(&messages));
    const ls_option_table *table = ls_daemon_settings_table();
    json_t *changed = json_array(), *restart = json_array();
    for (size_t i = 0; i < table->count; i++) {
        const ls_option *option = &table->options[i];
        if (needs_restart(option->key)) {
            if (differ(option, &reload->begun, &now)) {
                json_array_append_new(restart, json_string(option->key));
            }
        } else if (differ(option, &reload->file, &now)) {
            json_array_append_new(changed, json_string(option->key));
        }
    }
    reload->file = now;
    *answer_out = json_pack("{s:s, s:o, s:o}", "config", path, "changed", changed, "restart", restart);
    return LS_OK;
}
