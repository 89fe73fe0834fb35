// SPDX-License-Identifier: Apache-2.0
/*
 * Tokenizer: converts text to ids and back, with the same ids as Hugging Face `tokenizers` and
 * `sentencepiece`.
 *
 *   text ──▶ split at added tokens ──▶ normalise ──▶ split into words ──▶ merge (BPE) ──▶ ids
 *
 * Supported formats:
 *   bytes             one id per byte, 0 to 255; no file
 *   tokenizer.json    Hugging Face: byte-level BPE (GPT-2, Llama 3, Qwen 2 and 3, SmolLM and
 *                     others), and BPE over characters with byte fallback (Llama 2, Mistral,
 *                     TinyLlama). Split patterns other than those of GPT-2, Llama 3, Qwen and
 *                     o200k are matched with pcre2. An unknown component is an error that names
 *                     it; nothing is silently skipped.
 *   tokenizer.model   SentencePiece: BPE models, with or without byte fallback
 *   vocab.json and merges.txt, or encoder.json and vocab.bpe
 *                     GPT-2's two files
 *   a folder          with one of these files, looked for in this order
 *
 * For valid UTF-8 the ids equal those of the other library. For invalid UTF-8 they follow what that
 * library does: with tokenizer.json and GPT-2's files each maximal invalid part first becomes
 * U+FFFD (Python's errors="replace", the only way such bytes reach Hugging Face); with
 * tokenizer.model each invalid byte becomes U+FFFD. The bytes tokenizer accepts any bytes. To
 * refuse invalid text, check it first with ls_text_check_utf8.
 *
 * Thread-safety: a tokenizer never changes after its creation. Any number of threads may encode and
 * decode with it at the same time, each with its own scratch and buffers.
 *
 * Ownership: the caller destroys what a *_create, *_load or *_finish returned. Returned strings
 * belong to the tokenizer.
 */
#ifndef LS_TOKENIZER_TOKENIZER_H
#define LS_TOKENIZER_TOKENIZER_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_tokenizer ls_tokenizer;

/* ---- creating ---- */

/* The bytes tokenizer: ids 0 to 255 are the bytes; no special tokens. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tokenizer_create_bytes(ls_tokenizer **tokenizer_out);

/*
 * Reads a file or folder (see above). The content decides about the format, not the name.
 *
 * The bos and eos tokens are those in `tokenizer_config.json` beside the file, or else in
 * `special_tokens_map.json`. Without either they come from the file itself (SentencePiece's trainer
 * settings) or from the usual names (<s>, </s>, <|begin_of_text|>, <|endoftext|>, ...).
 *
 * tokenizer_out: written on success only.
 * Errors: LS_ERR_NOT_FOUND     nothing at `path`, or a folder without any of the files
 *         LS_ERR_DATA          corrupt, truncated or contradictory (a merge of a token that does
 *                              not exist, two tokens with one id)
 *         LS_ERR_UNSUPPORTED   a component that is not supported; the text names it
 *         LS_ERR_MEMORY, LS_ERR_IO
 */
LS_MUST_CHECK ls_status ls_tokenizer_load(const char *path, ls_tokenizer **tokenizer_out);

/* Opens what a user names: the word "bytes", or a path for ls_tokenizer_load (write "./bytes" for a
 * file of that name). Errors: those of both functions. */
LS_MUST_CHECK ls_status ls_tokenizer_open(const char *name, ls_tokenizer **tokenizer_out);

/*
 * Reads a tokenizer.json or a tokenizer.model from memory; the first bytes decide which. `name` is
 * used in error texts. There is no tokenizer_config.json; otherwise like ls_tokenizer_load.
 */
LS_MUST_CHECK ls_status ls_tokenizer_parse(const void *data, size_t bytes, const char *name,
                                           ls_tokenizer **tokenizer_out);

/* NULL is allowed. */
void ls_tokenizer_destroy(ls_tokenizer *tokenizer);

/* ---- training ---- */

/*
 * Trains byte-level BPE with GPT-2's pattern: counts the words of the text, begins with the 256
 * bytes as tokens, and joins the most frequent pair of tokens until the vocabulary is full.
 *
 * The result depends only on the options and on the texts, whose order does not matter. Of pairs
 * with equal counts the one with the smaller ids comes first; so the result equals that of Hugging
 * Face's BpeTrainer. Ids are given to the special tokens first, then to the 256 bytes in the order
 * of the byte-level alphabet, then to the merges.
 */
typedef struct ls_tokenizer_train_options {
    /* From 256 + special_count to 2^20. The vocabulary is smaller if the text has too few pairs. */
    uint32_t vocab_size;
    /* Pairs that occur less often are not joined. 0: 2. */
    uint32_t min_frequency;
    /* Special tokens, borrowed during create; bos and eos are found by name. NULL and 0: only
     * "<|endoftext|>". */
    const char *const *specials;
    size_t special_count;
} ls_tokenizer_train_options;

typedef struct ls_tokenizer_trainer ls_tokenizer_trainer;

/* Errors: LS_ERR_INVALID if an option is outside its range, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tokenizer_trainer_create(const ls_tokenizer_train_options *options,
                                                    ls_tokenizer_trainer **trainer_out);
/* Counts the words of one document. No word continues from one document to the next. Memory grows
 * with the number of different words. For one thread at a time. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tokenizer_trainer_add(ls_tokenizer_trainer *trainer, const char *text,
                                                 size_t bytes);
/* Learns the merges. The caller still has to destroy the trainer. Errors: LS_ERR_DATA if no text
 * was added. */
LS_MUST_CHECK ls_status ls_tokenizer_trainer_finish(ls_tokenizer_trainer *trainer,
                                                    ls_tokenizer **tokenizer_out);
void ls_tokenizer_trainer_destroy(ls_tokenizer_trainer *trainer);

/* ---- saving ---- */

/*
 * Writes a `tokenizer.json` that Hugging Face `tokenizers` can load and that gives the same ids. If
 * the tokenizer was read from a tokenizer.json, the original bytes are written.
 *
 * Errors: LS_ERR_UNSUPPORTED for a tokenizer.model with a normalisation that a tokenizer.json
 * cannot express (copy the original instead: ls_tokenizer_source); LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *path);

/* The text of a tokenizer.json that gives the same ids, to be freed by the caller. Errors:
 * LS_ERR_UNSUPPORTED as above, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tokenizer_write_json(const ls_tokenizer *tokenizer, char **text_out,
                                                size_t *bytes_out);

/*
 * The bytes from which ls_tokenizer_parse can rebuild the tokenizer, and the usual name of such a
 * file ("tokenizer.json" or "tokenizer.model"). For tokenizers that were not read from such a file
 * this is the tokenizer.json that ls_tokenizer_save would write. data_out belongs to the tokenizer.
 */
void ls_tokenizer_source(const ls_tokenizer *tokenizer, const char **name_out, const void **data_out,
                         size_t *bytes_out);

/* ---- encoding ---- */

/* A growing list of ids. All zero: empty. Free with ls_token_buffer_release. */
typedef struct ls_token_buffer {
    int32_t *ids;
    size_t count;
    size_t capacity;
} ls_token_buffer;

/* Makes room for `count` more ids. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_token_buffer_reserve(ls_token_buffer *buffer, size_t count);
void ls_token_buffer_release(ls_token_buffer *buffer);

/* A growing text, for decoding. All zero: empty. `data` is NULL or zero-terminated; the zero is not
 * counted in `bytes`. */
typedef struct ls_text_buffer {
    char *data;
    size_t bytes;
    size_t capacity;
} ls_text_buffer;
void ls_text_buffer_release(ls_text_buffer *buffer);

/*
 * Working memory of one encoding thread: buffers and the word cache (about 2 MiB). Reuse it for
 * many calls. It can be used with its tokenizer only. Errors: LS_ERR_MEMORY.
 */
typedef struct ls_tokenizer_scratch ls_tokenizer_scratch;
LS_MUST_CHECK ls_status ls_tokenizer_scratch_create(const ls_tokenizer *tokenizer,
                                                    ls_tokenizer_scratch **scratch_out);
void ls_tokenizer_scratch_destroy(ls_tokenizer_scratch *scratch);

/*
 * Appends the ids of `text` to `ids`.
 *
 * text, bytes: any bytes, including zeros; NULL is allowed if bytes is 0. Pass whole documents: the
 *   ids of two halves are in general not the ids of the whole.
 * scratch: NULL creates one for this call, with a small cache for a short text: fine for single
 *   prompts.
 * add_special: adds what the file's post-processor adds around a text (tokenizer.json), or bos
 *   before it (tokenizer.model); nothing for other formats. Lockstep never sets it by default.
 *
 * Added tokens ("<|endoftext|>") are recognised in the text as by Hugging Face, with or without
 * add_special. Control symbols of a tokenizer.model are not recognised, as in sentencepiece.
 *
 * Errors: LS_ERR_MEMORY; LS_ERR_DATA when a text needs more work than a pattern of the file is
 * allowed. `ids` is then unchanged.
 */
LS_MUST_CHECK ls_status ls_tokenizer_encode(const ls_tokenizer *tokenizer, ls_tokenizer_scratch *scratch,
                                            const char *text, size_t bytes, bool add_special,
                                            ls_token_buffer *ids);

/*
 * ls_tokenizer_encode for a text that a chat template wrote: bos and eos in it, written as their
 * pieces, are those tokens also for a tokenizer.model. Nothing is added around the text. On error
 * `ids` may have more ids than before.
 */
LS_MUST_CHECK ls_status ls_tokenizer_encode_marked(const ls_tokenizer *tokenizer,
                                                   ls_tokenizer_scratch *scratch, const char *text,
                                                   size_t bytes, ls_token_buffer *ids);

/* ---- decoding ---- */

/*
 * Appends the text of `count` ids to `text`, as exact bytes. A text encoded without unknown tokens
 * is restored, apart from the tokenizer's own normalisation (NFC, spaces). If the ids are cut in
 * the middle of a character, the result is incomplete UTF-8, where Hugging Face would print U+FFFD.
 *
 * skip_special: leaves out special tokens (bos, eos, control symbols).
 * Errors: LS_ERR_DATA for an id outside the vocabulary, with its position; LS_ERR_MEMORY. `text` is
 * then unchanged.
 */
LS_MUST_CHECK ls_status ls_tokenizer_decode(const ls_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                            bool skip_special, ls_text_buffer *text);

/*
 * Decodes ids while they are being generated. The output always consists of whole UTF-8 characters;
 * bytes that cannot become a character any more are replaced by U+FFFD.
 *
 *   ls_tokenizer_stream stream = {0};
 *   ls_tokenizer_stream_next(tokenizer, &stream, id, true, &text);   for each id; appends 0 or more
 *                                                                    characters
 *   ls_tokenizer_stream_end(&stream, &text);                         at the end; appends U+FFFD if a
 *                                                                    character is incomplete
 *
 * To continue a prompt, first pass the prompt's ids, so that the space before the next word is
 * kept.
 */
typedef struct ls_tokenizer_stream {
    /* An incomplete character. */
    unsigned char pending[4];
    uint8_t pending_bytes;
    /* A token came before, so leading spaces belong to the text. */
    bool started;
} ls_tokenizer_stream;
LS_MUST_CHECK ls_status ls_tokenizer_stream_next(const ls_tokenizer *tokenizer, ls_tokenizer_stream *stream,
                                                 int32_t id, bool skip_special, ls_text_buffer *text);
LS_MUST_CHECK ls_status ls_tokenizer_stream_end(ls_tokenizer_stream *stream, ls_text_buffer *text);

/* ---- properties ---- */

/* The largest id + 1, including added tokens: the smallest size of an embedding table. 1 to
 * 2^24. */
uint32_t ls_tokenizer_vocab_size(const ls_tokenizer *tokenizer);

/* Ids of special tokens; -1: none. eos ends each document of a data set. */
int32_t ls_tokenizer_bos(const ls_tokenizer *tokenizer);
int32_t ls_tokenizer_eos(const ls_tokenizer *tokenizer);

/* The name of an id as its file writes it ("Ġthe", "▁the", "<0x0A>"); the bytes tokenizer uses the
 * byte-level alphabet. NULL if the id has no name or is outside the vocabulary. */
const char *ls_tokenizer_piece(const ls_tokenizer *tokenizer, int32_t id);

/* The id of such a name; -1: none. */
int32_t ls_tokenizer_id(const ls_tokenizer *tokenizer, const char *piece);

/* The kind of tokenizer, for people: "bytes", "byte-level BPE", "BPE with byte fallback" or
 * "SentencePiece BPE". */
const char *ls_tokenizer_kind(const ls_tokenizer *tokenizer);

/*
 * Identity: the SHA-256 of everything that decides about ids (the file's bytes, bos and eos), 64
 * hexadecimal digits. Equal hashes mean equal ids for every text. It is part of a token cache's key
 * and of a run's identity. Saving and loading preserves it.
 */
const char *ls_tokenizer_hash(const ls_tokenizer *tokenizer);

/*
 * Whether `text` is valid UTF-8 (no overlong forms, no surrogates, at most U+10FFFF). If not, the
 * offset of the first wrong byte is written to *offset_out, which may be NULL.
 */
bool ls_text_check_utf8(const char *text, size_t bytes, size_t *offset_out);

#endif
