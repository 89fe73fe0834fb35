// SPDX-License-Identifier: Apache-2.0
#include "model/freeze.h"

#include "base/text.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { NEAR_NAMES = 3, PATTERN_BYTES_MAX = 512 };

/* ---- matching ---- */

/* Prefixes that families put in front of every name and that users may leave out. */
static const char *short_name(const char *name)
{
    static const char *const prefixes[] = {"model.", "transformer."};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const size_t bytes = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], bytes) == 0) {
            return name + bytes;
        }
    }
    return name;
}

/* A pattern matches a tensor's name, or the name of a part of the model that contains it:
 * "layers.0" matches all of "layers.0.*". */
static bool pattern_matches(const char *pattern, const char *name)
{
    char below[PATTERN_BYTES_MAX];
    const char *names[] = {name, short_name(name)};
    snprintf(below, sizeof below, "%s.*", pattern);
    for (size_t i = 0; i < 2; i++) {
        if (fnmatch(pattern, names[i], 0) == 0 || fnmatch(below, names[i], 0) == 0) {
            return true;
        }
    }
    return false;
}

bool ls_freeze_matches(const ls_freeze *freeze, const char *name)
{
    for (size_t i = 0; i < freeze->count; i++) {
        if (pattern_matches(freeze->patterns[i], name)) {
            return true;
        }
    }
    return false;
}

/* ---- checking ---- */

typedef struct near_part {
    const char *name; /* of a tensor, */
    size_t bytes;     /* up to a dot, or all of it */
    size_t distance;
} near_part;

static bool is_listed(const near_part *list, size_t count, const near_part *part)
{
    for (size_t i = 0; i < count; i++) {
        if (list[i].bytes == part->bytes && memcmp(list[i].name, part->name, part->bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Searches a name and its beginnings up to each dot for one nearer than *best that is not yet in
 * the list: "layer.0" is near "layers.0", and a name that contains the pattern is near it. */
static void look_at_name(const char *pattern, const char *name, const near_part *list, size_t count,
                         near_part *best)
{
    for (size_t bytes = 1; bytes <= strlen(name) && bytes < PATTERN_BYTES_MAX; bytes++) {
        char part[PATTERN_BYTES_MAX];
        near_part seen = {.name = name, .bytes = bytes};
        if ((name[bytes] != '.' && name[bytes] != '\0') || is_listed(list, count, &seen)) {
            continue;
        }
        snprintf(part, sizeof part, "%.*s", (int)bytes, name);
        const size_t distance = ls_edit_distance(pattern, part, 96);
        seen.distance = distance > 1 && strstr(part, pattern) ? 1 : distance;
        *best = seen.distance < best->distance ? seen : *best;
    }
}

static void append_near(const char *pattern, const ls_layout *layout, ls_text *text)
{
    near_part list[NEAR_NAMES];
    for (size_t k = 0; k < NEAR_NAMES; k++) {
        list[k] = (near_part){.name = "", .distance = SIZE_MAX};
        for (uint32_t i = 0; i < layout->parameter_count; i++) {
            look_at_name(pattern, short_name(layout->parameters[i].name), list, k, &list[k]);
        }
        ls_text_printf(text, "%s%.*s", k > 0 ? ", " : "", (int)list[k].bytes, list[k].name);
    }
}

static ls_status check_pattern(const char *pattern, const ls_layout *layout)
{
    if (pattern[0] == '\0' || strlen(pattern) + 3 > PATTERN_BYTES_MAX) {
        return ls_fail(LS_ERR_INVALID,
                       "train.freeze: a pattern must have 1 to %d characters, but one has %zu",
                       PATTERN_BYTES_MAX - 3, strlen(pattern));
    }
    for (uint32_t i = 0; i < layout->parameter_count; i++) {
        if (pattern_matches(pattern, layout->parameters[i].name)) {
            return LS_OK;
        }
    }
    ls_text text = {0};
    append_near(pattern, layout, &text);
    const ls_status status =
        ls_fail(LS_ERR_INVALID,
                "train.freeze: \"%s\" matches no tensor of this model; similar names: %s. A pattern is "
                "compared with the names of tensors, for example *embed* or layers.0",
                pattern, ls_text_string(&text));
    ls_text_release(&text);
    return status;
}

/* Tensors that are adjacent because one product reads them must not be separated. */
static ls_status check_groups(const ls_layout *layout)
{
    for (uint32_t i = layout->trained_count; i < layout->parameter_count; i++) {
        for (uint32_t k = 0; k < layout->trained_count; k++) {
            const ls_parameter *frozen = &layout->parameters[i], *trained = &layout->parameters[k];
            if (frozen->section == trained->section && frozen->group == trained->group) {
                return ls_fail(
                    LS_ERR_INVALID,
                    "train.freeze: %s would be frozen and %s trained, but they are one matrix: "
                    "freeze both or none (q, k and v go together, gate and up, and all experts of a layer)",
                    frozen->name, trained->name);
            }
        }
    }
    return LS_OK;
}

ls_status ls_freeze_check(const ls_freeze *freeze, const ls_layout *layout)
{
    for (size_t i = 0; i < freeze->count; i++) {
        LS_TRY(check_pattern(freeze->patterns[i], layout));
    }
    if (layout->trained_count == 0) {
        return ls_fail(LS_ERR_INVALID,
                       "train.freeze: all %u tensors of the model are frozen, so nothing would be trained; "
                       "leave at least one tensor unfrozen",
                       layout->parameter_count);
    }
    return check_groups(layout);
}
