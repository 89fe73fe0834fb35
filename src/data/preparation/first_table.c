// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/first_table.h"

#include <stdlib.h>

ls_status ls_first_table_put(ls_first_table *table, ls_first_place place)
{
    if (!table->slots || 2 * (table->used + 1) > table->mask + 1) {
        ls_first_table larger = {.mask = table->slots ? 2 * table->mask + 1 : 1023};
        larger.slots = calloc(larger.mask + 1, sizeof *larger.slots);
        if (!larger.slots) {
            return ls_fail(LS_ERR_MEMORY, "not enough memory for a table of %llu hashes",
                           (unsigned long long)table->used);
        }
        for (uint64_t i = 0; table->slots && i <= table->mask; i++) {
            if (table->slots[i].first) {
                *ls_first_table_find(&larger, table->slots[i].hash) = table->slots[i];
            }
        }
        larger.used = table->used;
        free(table->slots);
        *table = larger;
    }
    ls_first_place *slot = ls_first_table_find(table, place.hash);
    table->used += !slot->first;
    *slot = place;
    return LS_OK;
}
