// SPDX-License-Identifier: Apache-2.0
/*
 * The trainer of byte-level BPE (Sennrich, Haddow and Birch, "Neural machine translation of rare
 * words with subword units", 2016), in the order of Hugging Face's BpeTrainer, so that both learn
 * the same merges from the same text:
 *
 *   1. count the words, and in them the pairs of neighbouring symbols; put the pairs on a heap
 *   2. take the pair with the largest count (of equal counts, the one with the smaller ids)
 *   3. join it in all words where it occurs, and correct the counts of its neighbours; then 2.
 *
 * A heap entry holds the count at the time of its creation and the words in which the pair
 * appeared. While it waits, the count can only decrease. So an entry whose count is out of date is
 * put back with the current one, and the first entry that is up to date is the largest.
 */
#include "tokenizer/tokenizer_internal.h"

#include "base/list.h"
#include "tokenizer/unicode.h"

#include <stdlib.h>
#include <string.h>

/* Indices of words, ascending. */
typedef struct word_list {
    uint32_t *at;
    uint32_t count, capacity;
} word_list;

typedef struct pair_slot {
    /* LS_MERGE_FREE: the slot is free. */
    uint64_t pair;
    int64_t count;
    /* Words in which the pair has appeared since it was last put on the heap. */
    word_list fresh;
} pair_slot;

typedef struct pair_table {
    pair_slot *slots;
    size_t mask, used;
} pair_table;

typedef struct heap_entry {
    int64_t count;
    uint64_t pair;
    word_list words;
} heap_entry;

typedef struct word {
    uint64_t count;
    int32_t *symbols;
    uint32_t symbol_count;
} word;

typedef struct learned {
    uint64_t pair;
    int32_t id;
} learned;

struct ls_tokenizer_trainer {
    ls_arena arena;
    uint32_t vocab_size, special_count;
    int64_t min_frequency;
    char **specials;

    /* Indices of words by text. */
    ls_string_map known;
    const char **texts;
    uint32_t *text_bytes;
    uint64_t *counts;
    uint32_t word_count, word_capacity;
    ls_text_buffer valid;
};

/* The state of one call of finish. */
typedef struct learning {
    const ls_tokenizer_trainer *trainer;
    ls_arena arena;
    word *words;
    pair_table pairs;
    heap_entry *heap;
    size_t heap_count, heap_capacity;
    /* Pairs with fresh words. */
    uint64_t *arisen;
    size_t arisen_count, arisen_capacity;
    /* The raw bytes of each id. */
    const char **names;
    uint32_t *name_bytes;
    ls_string_map ids;
    uint32_t id_count;
    learned *merges;
    size_t merge_count, merge_capacity;
} learning;

static ls_status no_memory(void)
{
    return ls_fail(LS_ERR_MEMORY, "not enough memory to train a tokenizer");
}

/* ---- counting words ---- */

static ls_status check_options(const ls_tokenizer_train_options *options, size_t special_count)
{
    if (options->vocab_size < 256 + special_count || options->vocab_size > 1u << 20) {
        return ls_fail(LS_ERR_INVALID,
                       "the vocabulary size is %u; it must be at least %zu (256 bytes and %zu special "
                       "tokens) and at most %u",
                       options->vocab_size, 256 + special_count, special_count, 1u << 20);
    }
    for (size_t i = 0; i < options->special_count; i++) {
        if (options->specials[i][0] == '\0' ||
            !ls_text_check_utf8(options->specials[i], strlen(options->specials[i]), NULL)) {
            return ls_fail(LS_ERR_INVALID, "special token number %zu is empty or not UTF-8", i);
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(options->specials[i], options->specials[j]) == 0) {
                return ls_fail(LS_ERR_INVALID, "the special token \"%s\" is given twice",
                               options->specials[i]);
            }
        }
    }
    return LS_OK;
}

ls_status ls_tokenizer_trainer_create(const ls_tokenizer_train_options *options,
                                      ls_tokenizer_trainer **trainer_out)
{
    static const char *const default_specials[] = {"<|endoftext|>"};
    ls_tokenizer_train_options filled = *options;
    if (filled.special_count == 0) {
        filled.specials = default_specials;
        filled.special_count = 1;
    }
    LS_TRY(check_options(&filled, filled.special_count));
    ls_tokenizer_trainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer) {
        return no_memory();
    }
    trainer->vocab_size = filled.vocab_size;
    trainer->min_frequency = filled.min_frequency ? filled.min_frequency : 2;
    trainer->special_count = (uint32_t)filled.special_count;
    trainer->specials = ls_arena_new(&trainer->arena, char *, filled.special_count);
    for (size_t i = 0; i < filled.special_count; i++) {
        trainer->specials[i] = ls_arena_strdup(&trainer->arena, filled.specials[i]);
    }
    *trainer_out = trainer;
    return LS_OK;
}

void ls_tokenizer_trainer_destroy(ls_tokenizer_trainer *trainer)
{
    if (trainer) {
        ls_arena_release(&trainer->arena);
        ls_text_buffer_release(&trainer->valid);
        free(trainer->texts);
        free(trainer->text_bytes);
        free(trainer->counts);
        free(trainer);
    }
}

static ls_status add_word(ls_tokenizer_trainer *trainer, const char *text, size_t bytes)
{
    const int32_t known = ls_string_map_get(&trainer->known, text, bytes);
    if (known >= 0) {
        trainer->counts[known]++;
        return LS_OK;
    }
    if (trainer->word_count == INT32_MAX || bytes > UINT32_MAX / 4) {
        return ls_fail(LS_ERR_UNSUPPORTED,
                       "the training text has more than %d different words, or its word of %zu bytes is too "
                       "long; train the tokenizer on less or other text",
                       INT32_MAX, bytes);
    }
    size_t capacity[3] = {trainer->word_capacity, trainer->word_capacity, trainer->word_capacity};
    LS_TRY(ls_list_grow(&trainer->texts, trainer->word_count, &capacity[0], sizeof *trainer->texts));
    LS_TRY(
        ls_list_grow(&trainer->text_bytes, trainer->word_count, &capacity[1], sizeof *trainer->text_bytes));
    LS_TRY(ls_list_grow(&trainer->counts, trainer->word_count, &capacity[2], sizeof *trainer->counts));
    trainer->word_capacity = (uint32_t)capacity[2];
    const uint32_t index = trainer->word_count++;
    trainer->texts[index] = ls_arena_strndup(&trainer->arena, text, bytes);
    trainer->text_bytes[index] = (uint32_t)bytes;
    trainer->counts[index] = 1;
    ls_string_map_put(&trainer->known, &trainer->arena, trainer->texts[index], bytes, (int32_t)index);
    return LS_OK;
}

ls_status ls_tokenizer_trainer_add(ls_tokenizer_trainer *trainer, const char *text, size_t bytes)
{
    if (bytes > 0 && ls_utf8_valid_prefix(text, bytes) < bytes) {
        LS_TRY(ls_text_make_valid(&trainer->valid, text, bytes));
        text = trainer->valid.data;
        bytes = trainer->valid.bytes;
    }
    for (size_t at = 0; at < bytes;) {
        const size_t stop = ls_split_next(LS_PATTERN_GPT2, text, at, bytes);
        LS_TRY(add_word(trainer, text + at, stop - at));
        at = stop;
    }
    return LS_OK;
}

/* ---- counts of pairs ---- */

static size_t pair_home(const pair_table *table, uint64_t pair)
{
    size_t at = (size_t)((pair * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & table->mask;
    while (table->slots[at].pair != LS_MERGE_FREE && table->slots[at].pair != pair) {
        at = (at + 1) & table->mask;
    }
    return at;
}

static bool pair_table_resize(pair_table *table, size_t slot_count)
{
    const pair_table old = *table;
    pair_slot *slots = malloc(slot_count * sizeof *slots);
    if (!slots) {
        return false;
    }
    for (size_t i = 0; i < slot_count; i++) {
        slots[i] = (pair_slot){.pair = LS_MERGE_FREE};
    }
    *table = (pair_table){.slots = slots, .mask = slot_count - 1, .used = old.used};
    for (size_t i = 0; old.slots && i <= old.mask; i++) {
        if (old.slots[i].pair != LS_MERGE_FREE) {
            table->slots[pair_home(table, old.slots[i].pair)] = old.slots[i];
        }
    }
    free(old.slots);
    return true;
}

/* The slot of a pair, created if it does not exist; NULL: no memory. Valid until the next call. */
static pair_slot *pair_slot_of(pair_table *table, uint64_t pair)
{
    if ((!table->slots || 2 * table->used > table->mask) &&
        !pair_table_resize(table, table->slots ? 2 * (table->mask + 1) : 4096)) {
        return NULL;
    }
    pair_slot *slot = &table->slots[pair_home(table, pair)];
    if (slot->pair == LS_MERGE_FREE) {
        *slot = (pair_slot){.pair = pair};
        table->used++;
    }
    return slot;
}

/* Adds `change` to a pair's count. If it increases, the word is remembered, once. */
static ls_status change_count(learning *l, int32_t left, int32_t right, int64_t change, uint32_t word_index)
{
    pair_slot *slot = pair_slot_of(&l->pairs, ls_merge_pair(left, right));
    if (!slot) {
        return no_memory();
    }
    slot->count += change;
    word_list *fresh = &slot->fresh;
    if (change < 0 || (fresh->count > 0 && fresh->at[fresh->count - 1] == word_index)) {
        return LS_OK;
    }
    if (fresh->count == 0) {
        LS_TRY(ls_list_grow(&l->arisen, l->arisen_count, &l->arisen_capacity, sizeof *l->arisen));
        l->arisen[l->arisen_count++] = slot->pair;
    }
    if (fresh->count == fresh->capacity) {
        const uint32_t capacity = fresh->capacity ? 2 * fresh->capacity : 4;
        uint32_t *at = realloc(fresh->at, capacity * sizeof *at);
        if (!at) {
            return no_memory();
        }
        *fresh = (word_list){.at = at, .count = fresh->count, .capacity = capacity};
    }
    fresh->at[fresh->count++] = word_index;
    return LS_OK;
}

/* ---- the heap ---- */

static bool comes_first(const heap_entry *a, const heap_entry *b)
{
    return a->count > b->count || (a->count == b->count && a->pair < b->pair);
}

static ls_status push(learning *l, heap_entry entry)
{
    if (ls_list_grow(&l->heap, l->heap_count, &l->heap_capacity, sizeof *l->heap) != LS_OK) {
        free(entry.words.at);
        return LS_ERR_MEMORY;
    }
    size_t at = l->heap_count++;
    while (at > 0 && comes_first(&entry, &l->heap[(at - 1) / 2])) {
        l->heap[at] = l->heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    l->heap[at] = entry;
    return LS_OK;
}

static heap_entry pop(learning *l)
{
    const heap_entry top = l->heap[0];
    const heap_entry last = l->heap[--l->heap_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= l->heap_count) {
            break;
        }
        if (child + 1 < l->heap_count && comes_first(&l->heap[child + 1], &l->heap[child])) {
            child++;
        }
        if (!comes_first(&l->heap[child], &last)) {
            break;
        }
        l->heap[at] = l->heap[child];
        at = child;
    }
    l->heap[at] = last;
    return top;
}

/* Puts the pairs that have appeared on the heap, with their words. */
static ls_status push_arisen(learning *l)
{
    for (size_t i = 0; i < l->arisen_count; i++) {
        pair_slot *slot = &l->pairs.slots[pair_home(&l->pairs, l->arisen[i])];
        const heap_entry entry = {.count = slot->count, .pair = slot->pair, .words = slot->fresh};
        slot->fresh = (word_list){0};
        if (entry.count > 0) {
            LS_TRY(push(l, entry));
        } else {
            free(entry.words.at);
        }
    }
    l->arisen_count = 0;
    return LS_OK;
}

/* ---- learning ---- */

/* Joins a pair from left to right in one word, and corrects the counts of the neighbouring
 * pairs. */
static ls_status join_in_word(learning *l, uint32_t word_index, int32_t left, int32_t right, int32_t joined)
{
    word *w = &l->words[word_index];
    const int64_t count = (int64_t)w->count;
    uint32_t written = 0;
    for (uint32_t i = 0; i < w->symbol_count; i++) {
        if (i + 1 == w->symbol_count || w->symbols[i] != left || w->symbols[i + 1] != right) {
            w->symbols[written++] = w->symbols[i];
            continue;
        }
        if (written > 0) {
            const int32_t before = w->symbols[written - 1];
            LS_TRY(change_count(l, before, left, -count, word_index));
            LS_TRY(change_count(l, before, joined, count, word_index));
        }
        if (i + 2 < w->symbol_count) {
            const int32_t after = w->symbols[i + 2];
            LS_TRY(change_count(l, right, after, -count, word_index));
            LS_TRY(change_count(l, joined, after, count, word_index));
        }
        w->symbols[written++] = joined;
        i++;
    }
    w->symbol_count = written;
    return LS_OK;
}

/* The id of the joined text: a new one, unless another pair has given the same text before. */
static int32_t joined_id(learning *l, int32_t left, int32_t right)
{
    const uint32_t bytes = l->name_bytes[left] + l->name_bytes[right];
    char *name = ls_arena_alloc(&l->arena, bytes + 1);
    memcpy(name, l->names[left], l->name_bytes[left]);
    memcpy(name + l->name_bytes[left], l->names[right], l->name_bytes[right]);
    const int32_t known = ls_string_map_get(&l->ids, name, bytes);
    if (known >= 0) {
        return known;
    }
    const int32_t id = (int32_t)l->id_count++;
    l->names[id] = name;
    l->name_bytes[id] = bytes;
    ls_string_map_put(&l->ids, &l->arena, name, bytes, id);
    return id;
}

static ls_status apply_merge(learning *l, const heap_entry *entry)
{
    const int32_t left = (int32_t)(entry->pair >> 32), right = (int32_t)(uint32_t)entry->pair;
    const int32_t joined = joined_id(l, left, right);
    LS_TRY(ls_list_grow(&l->merges, l->merge_count, &l->merge_capacity, sizeof *l->merges));
    l->merges[l->merge_count++] = (learned){.pair = entry->pair, .id = joined};
    for (uint32_t i = 0; i < entry->words.count; i++) {
        LS_TRY(join_in_word(l, entry->words.at[i], left, right, joined));
    }
    return push_arisen(l);
}

static ls_status learn_merges(learning *l)
{
    while (l->id_count < l->trainer->vocab_size && l->heap_count > 0) {
        heap_entry entry = pop(l);
        const int64_t now = l->pairs.slots[pair_home(&l->pairs, entry.pair)].count;
        if (entry.count != now) {
            entry.count = now;
            LS_TRY(push(l, entry));
            continue;
        }
        if (now < 1 || now < l->trainer->min_frequency) {
            free(entry.words.at);
            break;
        }
        const ls_status status = apply_merge(l, &entry);
        free(entry.words.at);
        LS_TRY(status);
    }
    return LS_OK;
}

/* The ids of the 256 bytes follow those of the special tokens, in the order of the characters that
 * stand for the bytes. */
static void name_bytes(learning *l, int32_t symbol_of[256])
{
    l->id_count = l->trainer->special_count;
    for (uint32_t c = 0; c < 0x144; c++) {
        const int byte = ls_byte_level_byte(c);
        if (byte < 0) {
            continue;
        }
        char *name = ls_arena_alloc(&l->arena, 2);
        name[0] = (char)byte;
        symbol_of[byte] = (int32_t)l->id_count;
        l->names[l->id_count] = name;
        l->name_bytes[l->id_count] = 1;
        ls_string_map_put(&l->ids, &l->arena, name, 1, (int32_t)l->id_count);
        l->id_count++;
    }
}

static ls_status count_pairs(learning *l, const int32_t symbol_of[256])
{
    const ls_tokenizer_trainer *trainer = l->trainer;
    l->words = ls_arena_new(&l->arena, word, trainer->word_count);
    for (uint32_t i = 0; i < trainer->word_count; i++) {
        word *w = &l->words[i];
        *w = (word){.count = trainer->counts[i],
                    .symbols = ls_arena_new(&l->arena, int32_t, trainer->text_bytes[i]),
                    .symbol_count = trainer->text_bytes[i]};
        for (uint32_t b = 0; b < w->symbol_count; b++) {
            w->symbols[b] = symbol_of[(unsigned char)trainer->texts[i][b]];
        }
        for (uint32_t b = 0; b + 1 < w->symbol_count; b++) {
            LS_TRY(change_count(l, w->symbols[b], w->symbols[b + 1], (int64_t)w->count, i));
        }
    }
    return push_arisen(l);
}

static ls_status learn(learning *l)
{
    l->names = ls_arena_new(&l->arena, const char *, l->trainer->vocab_size);
    l->name_bytes = ls_arena_new(&l->arena, uint32_t, l->trainer->vocab_size);
    int32_t symbol_of[256];
    name_bytes(l, symbol_of);
    LS_TRY(count_pairs(l, symbol_of));
    return learn_merges(l);
}

static void learning_release(learning *l)
{
    for (size_t i = 0; i < l->heap_count; i++) {
        free(l->heap[i].words.at);
    }
    for (size_t i = 0; l->pairs.slots && i <= l->pairs.mask; i++) {
        free(l->pairs.slots[i].fresh.at);
    }
    free(l->pairs.slots);
    free(l->heap);
    free(l->arisen);
    free(l->merges);
    ls_arena_release(&l->arena);
}

/* ---- the learned tokenizer ---- */

static ls_status name_pieces(const learning *l, ls_tokenizer *tokenizer)
{
    const ls_tokenizer_trainer *trainer = l->trainer;
    ls_added_pattern *patterns = ls_arena_new(&tokenizer->arena, ls_added_pattern, trainer->special_count);
    for (uint32_t id = 0; id < l->id_count; id++) {
        if (id < trainer->special_count) {
            const char *special = trainer->specials[id];
            LS_TRY(
                ls_tokenizer_name_piece(tokenizer, (int32_t)id, special, strlen(special), "special tokens"));
            ls_piece *piece = &tokenizer->pieces[id];
            piece->flags = LS_PIECE_SPECIAL | LS_PIECE_ADDED;
            patterns[id] = (ls_added_pattern){.text = piece->text, .bytes = piece->bytes, .id = (int32_t)id};
            continue;
        }
        char *name = ls_arena_alloc(&tokenizer->arena, 2 * (size_t)l->name_bytes[id] + 1);
        const size_t bytes = ls_byte_level_encode(l->names[id], l->name_bytes[id], name);
        name[bytes] = '\0';
        if (ls_tokenizer_id(tokenizer, name) >= 0) {
            return ls_fail(LS_ERR_INVALID,
                           "the special token \"%s\" was also learned from the text as an ordinary token; "
                           "choose another name for the special token",
                           name);
        }
        LS_TRY(ls_tokenizer_name_piece(tokenizer, (int32_t)id, name, bytes, "learned tokens"));
        ls_piece *piece = &tokenizer->pieces[id];
        piece->decoded = ls_arena_strndup(&tokenizer->arena, l->names[id], l->name_bytes[id]);
        piece->decoded_bytes = l->name_bytes[id];
        ls_string_map_put(&tokenizer->model, &tokenizer->arena, piece->decoded, piece->decoded_bytes,
                          (int32_t)id);
    }
    ls_matcher_init(&tokenizer->added, &tokenizer->arena, patterns, trainer->special_count);
    return LS_OK;
}

static ls_status build(const learning *l, ls_tokenizer *tokenizer)
{
    ls_tokenizer_set_vocab_size(tokenizer, l->id_count);
    ls_string_map_init(&tokenizer->model, &tokenizer->arena, l->id_count);
    LS_TRY(name_pieces(l, tokenizer));
    ls_merge_table_init(&tokenizer->merges, &tokenizer->arena, l->merge_count);
    for (size_t i = 0; i < l->merge_count; i++) {
        const uint64_t pair = l->merges[i].pair;
        ls_merge_table_put(&tokenizer->merges, (int32_t)(pair >> 32), (int32_t)(uint32_t)pair, (uint32_t)i,
                           l->merges[i].id);
    }
    tokenizer->splitters[0] = (ls_splitter){.kind = LS_SPLITTER_PATTERN, .pattern = LS_PATTERN_GPT2};
    tokenizer->splitter_count = 1;
    ls_tokenizer_complete(tokenizer);
    ls_tokenizer_guess_specials(tokenizer);
    char *json;
    size_t bytes;
    LS_TRY(ls_tokenizer_write_json(tokenizer, &json, &bytes));
    ls_tokenizer_set_source(tokenizer, "tokenizer.json", json, bytes);
    free(json);
    return LS_OK;
}

ls_status ls_tokenizer_trainer_finish(ls_tokenizer_trainer *trainer, ls_tokenizer **tokenizer_out)
{
    if (trainer->word_count == 0) {
        return ls_fail(LS_ERR_DATA,
                       "there is no text to train a tokenizer on: give at least one file that is not empty");
    }
    learning l = {.trainer = trainer};
    ls_status status = learn(&l);
    ls_tokenizer *tokenizer = status == LS_OK ? ls_tokenizer_new(LS_TOKENIZER_BYTE_LEVEL) : NULL;
    if (status == LS_OK) {
        status = tokenizer ? build(&l, tokenizer) : LS_ERR_MEMORY;
    }
    learning_release(&l);
    if (status != LS_OK) {
        ls_tokenizer_destroy(tokenizer);
        return status;
    }
    *tokenizer_out = tokenizer;
    return LS_OK;
}
