// SPDX-License-Identifier: Apache-2.0
#include "planning/assumptions.h"

#include <stdio.h>
#include <string.h>

static void grow(ls_assumptions *list)
{
    list->capacity = list->capacity ? 2 * list->capacity : 16;
    const char **items = ls_arena_new(list->arena, const char *, list->capacity);
    if (list->count > 0) {
        memcpy(items, list->items, list->count * sizeof *items);
    }
    list->items = items;
}

const char *ls_assumptions_add(ls_assumptions *list, const char *format, ...)
{
    if (!list) {
        return NULL;
    }
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->items[i], line) == 0) {
            return list->items[i];
        }
    }
    if (list->count == list->capacity) {
        grow(list);
    }
    return list->items[list->count++] = ls_arena_strdup(list->arena, line);
}
