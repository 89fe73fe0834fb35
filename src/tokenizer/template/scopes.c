// SPDX-License-Identifier: Apache-2.0
/*
 * Which variable a name means.
 *
 * Jinja2 decides that when it compiles. A frame (the whole template, a body of a loop, a macro, a
 * set block, ...) has a variable of its own for each name that it uses. One that is stored in the
 * frame begins as a copy of the variable of that name outside; if there is none, with what the
 * caller gave, when it is read before it is stored or stored in an `if` only; else with nothing. So
 * a name is a slot of its frame as soon as it is parsed, and what fills the slots is known at the
 * end, when all names of the outer frames are.
 */
#include "tokenizer/template/jinja.h"

ls_jinja_slot *ls_jinja_slot_find(const ls_jinja_frame *f, ls_jv name)
{
    for (size_t i = 0; i < f->count; i++) {
        if (ls_jv_same_text(f->slots[i].name, name)) {
            return &f->slots[i];
        }
    }
    return NULL;
}

uint32_t ls_jinja_slot_of(ls_jinja *j, ls_jinja_frame *f, ls_jv name, ls_jinja_load load)
{
    ls_jinja_slot *slot = ls_jinja_slot_find(f, name);
    if (!slot) {
        f->slots = ls_jinja_grow(j, f->slots, f->count, &f->capacity, sizeof *slot);
        slot = &f->slots[f->count++];
        *slot = (ls_jinja_slot){.name = name, .load = load};
    }
    slot->load = load == LS_LOAD_PARAMETER ? load : slot->load;
    return (uint32_t)(slot - f->slots);
}

void ls_jinja_resolve(ls_jinja_frame *root)
{
    for (ls_jinja_frame *f = root; f; f = f->next) {
        for (size_t i = 0; i < f->count; i++) {
            ls_jinja_slot *slot = &f->slots[i], *found = NULL;
            const ls_jinja_frame *outer = slot->load == LS_LOAD_PARAMETER ? NULL : f->outer;
            for (; outer && !found; outer = outer->outer) {
                found = ls_jinja_slot_find(outer, slot->name);
                slot->hops += !found;
                slot->slot = found ? (uint32_t)(found - outer->slots) : 0;
            }
            slot->load = found ? LS_LOAD_ALIAS : slot->load;
            slot->function = ls_jinja_builtin_find(LS_AT_GLOBAL, slot->name);
        }
    }
}
