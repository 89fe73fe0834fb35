// SPDX-License-Identifier: Apache-2.0
/*
 * Tokenizer: text to ids and back, with the ids that Hugging Face `tokenizers` and `sentencepiece` give.
 *
 *   text --added tokens split out--> pieces --normalise--> --split into words--> --merge (BPE)--> ids
 *
 * What can be read:
 *   bytes            one id per byte, 0 to 255; no file
 *   tokenizer.json   Hugging Face: byte-level BPE (GPT-2, Llama 3, Qwen 2 and 3, SmolLM and others) and BPE
 * over characters with byte fallback (Llama 2, Mistral, TinyLlama). A component that is not known is an error
 * that names it; nothing is skipped in silence. tokenizer.model  SentencePiece, BPE models, with byte
 * fallback vocab.json and merges.txt, or encoder.json and vocab.bpe: GPT-2's two files a folder         that
 * holds one of these, looked for in the order above
 *
 * Ids equal those of the peer library for every text that is valid UTF-8. Invalid UTF-8 is defined as what
 * the peer makes of it: for tokenizer.json and GPT-2's files each maximal invalid part becomes U+FFFD first
 * (Python's errors="replace", the only way such bytes reach Hugging Face); for tokenizer.model each invalid
 * byte becomes U+FFFD (what the sentencepiece library does with bytes). The bytes tokenizer takes any bytes
 * as they are. Who wants broken text refused must check it before: ls_text_check_utf8.
 *
 * Thread-safety: a tokenizer does not change once it exists; any number of threads may encode and decode with
 * it at once, each with a scratch and a buffer of its own.
 *
 * Ownership: the caller destroys what a *_create, *_load or *_finish gave it. Strings returned belong to the
 * tokenizer.
 */
#ifndef LS_DATA_TOKENIZER_H
#define LS_DATA_TOKENIZER_H

#include "base/hash.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct ls_tokenizer ls_tokenizer;

/* ------------------------------------------------------------------------------------------ making ---- */

/* The bytes tokenizer: ids 0 to 255 are the bytes, no special tokens. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tokenizer_create_bytes(ls_tokenizer **tokenizer_out);

/*
 * Reads a file or folder (see above; the content decides, not the name).
 *
 * The bos and eos tokens are taken from `tokenizer_config.json` beside the file; without it from the file
 * itself (SentencePiece's trainer settings) or by the names in use (<s>, </s>, <|begin_of_text|>,
 * <|endoftext|>, ...).
 *
 * tokenizer_out: written only on success.
 * Errors: LS_ERR_NOT_FOUND   nothing at `path`, or a folder without any of the files
 *         LS_ERR_DATA        corrupt, truncated, contradictory (merge of a token that does not exist, two
 * tokens of one id) LS_ERR_UNSUPPORTED a component we do not have; the text names it LS_ERR_MEMORY, LS_ERR_IO
 */
LS_MUST_CHECK ls_status ls_tokenizer_load(const char *path, ls_tokenizer **tokenizer_out);

/* What users name: the word "bytes", or a path as ls_tokenizer_load takes it (a file called bytes is "./bytes"). Errors: as of both. */
LS_MUST_CHECK ls_status ls_tokenizer_open(const char *name, ls_tokenizer **tokenizer_out);

/*
 * Reads a tokenizer from memory: a tokenizer.json or a tokenizer.model, told apart by the first bytes. `name`
 * goes into error texts. Without tokenizer_config.json; otherwise as ls_tokenizer_load. This is also what a
 * checkpoint's attached tokenizer is loaded with.
 */
LS_MUST_CHECK ls_status ls_tokenizer_parse(const void *data, size_t bytes, const char *name,
                                           ls_tokenizer **tokenizer_out);

/* Frees. NULL is fine. */
void ls_tokenizer_destroy(ls_tokenizer *tokenizer);

/* ---------------------------------------------------------------------------------------- training ---- */

/*
 * Byte-level BPE with GPT-2's pattern: count the words of the text, begin with the 256 bytes, then join the
 * pair that occurs most often, until the vocabulary is full.
 *
 * Deterministic: the result depends on the texts, in any order, and the options only. Of pairs with equal counts
 * the one with the smaller ids comes first, as in Hugging Face's BpeTrainer, whose result this is. Ids: the
 * special tokens, then the 256 bytes in the order of the byte-level alphabet, then the merges.
 */
typedef struct ls_tokenizer_train_options {
    uint32_t
        vocab_size; /* 256 + special_count to 2^20; fewer tokens come out when the text has no more pairs */
    uint32_t min_frequency;      /* pairs that occur less often are not joined; 0 means 2 */
    const char *const *specials; /* special tokens, borrowed during create; bos and eos are found by name */
    size_t special_count;        /* 0 with specials NULL: one, "<|endoftext|>" */
} ls_tokenizer_train_options;

typedef struct ls_tokenizer_trainer ls_tokenizer_trainer;

/* Errors: LS_ERR_INVALID for an option outside its range, LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_tokenizer_trainer_create(const ls_tokenizer_train_options *options,
                                                    ls_tokenizer_trainer **trainer_out);
/* Counts the words of one document. Texts are counted one by one: no word crosses from one to the next.
 * Memory grows with the number of different words. Errors: LS_ERR_MEMORY. One thread at a time. */
LS_MUST_CHECK ls_status ls_tokenizer_trainer_add(ls_tokenizer_trainer *trainer, const char *text,
                                                 size_t bytes);
/* Learns the merges. The trainer stays the caller's to destroy. Errors: LS_ERR_DATA when no text was added.
 */
LS_MUST_CHECK ls_status ls_tokenizer_trainer_finish(ls_tokenizer_trainer *trainer,
                                                    ls_tokenizer **tokenizer_out);
void ls_tokenizer_trainer_destroy(ls_tokenizer_trainer *trainer);

/* All of the above in one call: `count` zero-terminated texts. */
LS_MUST_CHECK ls_status ls_tokenizer_train_bpe(const char *const *texts, size_t count,
                                               const ls_tokenizer_train_options *options,
                                               ls_tokenizer **tokenizer_out);

/* ------------------------------------------------------------------------------------------ saving ---- */

/*
 * Writes a `tokenizer.json` that Hugging Face `tokenizers` loads and that encodes to the same ids. When the
 * tokenizer was read from a tokenizer.json the original bytes are written.
 *
 * Errors: LS_ERR_UNSUPPORTED for a tokenizer.model whose normalisation has no equal there (copy the original
 * instead: ls_tokenizer_source); LS_ERR_DISK, LS_ERR_IO.
 */
LS_MUST_CHECK ls_status ls_tokenizer_save(const ls_tokenizer *tokenizer, const char *path);

/*
 * The bytes the tokenizer can be rebuilt from by ls_tokenizer_parse, and the name such a file has in a model
 * folder
 * ("tokenizer.json" or "tokenizer.model"). Always there; for tokenizers that were not read from such a file
 * it is the tokenizer.json that ls_tokenizer_save would write. data_out is borrowed from the tokenizer.
 */
void ls_tokenizer_source(const ls_tokenizer *tokenizer, const char **name_out, const void **data_out,
                         size_t *bytes_out);

/* ---------------------------------------------------------------------------------------- encoding ---- */

/* A growing list of ids. Zero-initialised is empty; free with ls_token_buffer_release. Grown with realloc. */
typedef struct ls_token_buffer {
    int32_t *ids;
    size_t count;
    size_t capacity;
} ls_token_buffer;

/* Makes room for `count` ids beyond those held. Errors: LS_ERR_MEMORY. */
LS_MUST_CHECK ls_status ls_token_buffer_reserve(ls_token_buffer *buffer, size_t count);
void ls_token_buffer_release(ls_token_buffer *buffer);

/* A growing list of bytes, for decoding. `data` is zero-terminated whenever it is not NULL (the zero is not
 * counted). */
typedef struct ls_text_buffer {
    char *data;
    size_t bytes;
    size_t capacity;
} ls_text_buffer;
void ls_text_buffer_release(ls_text_buffer *buffer);

/*
 * Working memory of one encoding thread: lists of pieces and the word cache (about 2 MiB). Reuse it between
 * calls; it belongs to one tokenizer. Errors: LS_ERR_MEMORY.
 */
typedef struct ls_tokenizer_scratch ls_tokenizer_scratch;
LS_MUST_CHECK ls_status ls_tokenizer_scratch_create(const ls_tokenizer *tokenizer,
                                                    ls_tokenizer_scratch **scratch_out);
void ls_tokenizer_scratch_destroy(ls_tokenizer_scratch *scratch);

/*
 * Appends the ids of `text` to `ids`.
 *
 * text, bytes: any bytes, zeros included; NULL is allowed when bytes is 0. Give whole documents: the ids of
 * two halves are not in general the ids of the whole. scratch: NULL makes one for this call (slow: for single
 * prompts). add_special: adds what the file's post-processor adds around one text (tokenizer.json), or bos in
 * front (tokenizer.model); nothing for the other kinds. Off by default everywhere in Lockstep. Tokens that
 * were added to the vocabulary ("<|endoftext|>") are recognised in the text exactly as Hugging Face does,
 * with or without add_special; control symbols of a tokenizer.model are not, as in sentencepiece.
 *
 * Errors: LS_ERR_MEMORY; `ids` then holds what it held before.
 */
LS_MUST_CHECK ls_status ls_tokenizer_encode(const ls_tokenizer *tokenizer, ls_tokenizer_scratch *scratch,
                                            const char *text, size_t bytes, bool add_special,
                                            ls_token_buffer *ids);

/* ---------------------------------------------------------------------------------------- decoding ---- */

/*
 * Appends the text of `count` ids to `text`: exact bytes. A text encoded without unknown tokens comes back as
 * it was, apart from normalisation (NFC, spaces) that the tokenizer itself asks for. Ids cut in the middle of
 * a character give incomplete UTF-8 where Hugging Face would print U+FFFD.
 *
 * skip_special: leaves special tokens out (bos, eos, control symbols).
 * Errors: LS_ERR_DATA for an id outside the vocabulary, naming it and its position; LS_ERR_MEMORY. `text`
 * then holds what it held before.
 */
LS_MUST_CHECK ls_status ls_tokenizer_decode(const ls_tokenizer *tokenizer, const int32_t *ids, size_t count,
                                            bool skip_special, ls_text_buffer *text);

/*
 * Decoding while ids are being generated: what is returned is always whole UTF-8 characters. Bytes that can't
 * become a character any more are returned as U+FFFD.
 *
 *   ls_tokenizer_stream stream = {0};
 *   for each id:  ls_tokenizer_stream_next(tokenizer, &stream, id, true, &text)   appends 0 or more
 * characters at the end:   ls_tokenizer_stream_end(&stream, &text)                         what was waiting,
 * as U+FFFD
 *
 * A stream that continues a prompt is first fed the prompt's ids, so that the space in front of the next word
 * is known.
 */
typedef struct ls_tokenizer_stream {
    unsigned char pending[4]; /* an incomplete character */
    uint8_t pending_bytes;
    bool started; /* a token came before: spaces in front are text */
} ls_tokenizer_stream;
LS_MUST_CHECK ls_status ls_tokenizer_stream_next(const ls_tokenizer *tokenizer, ls_tokenizer_stream *stream,
                                                 int32_t id, bool skip_special, ls_text_buffer *text);
LS_MUST_CHECK ls_status ls_tokenizer_stream_end(ls_tokenizer_stream *stream, ls_text_buffer *text);

/* ----------------------------------------------------------------------------------------- looking ---- */

/* Largest id + 1, added tokens included: what an embedding table needs at least. 1 to 2^24. */
uint32_t ls_tokenizer_vocab_size(const ls_tokenizer *tokenizer);

/* Ids of the special tokens, -1 where there is none. eos is what ends a document in a dataset. */
int32_t ls_tokenizer_bos(const ls_tokenizer *tokenizer);
int32_t ls_tokenizer_eos(const ls_tokenizer *tokenizer);
int32_t ls_tokenizer_unk(const ls_tokenizer *tokenizer);

/* The name of an id as its file writes it ("Ġthe", "▁the", "<0x0A>"); the bytes tokenizer uses the byte-level
 * alphabet. NULL for an id that has none or lies outside the vocabulary. */
const char *ls_tokenizer_piece(const ls_tokenizer *tokenizer, int32_t id);

/* The id of such a name, -1 when there is none. */
int32_t ls_tokenizer_id(const ls_tokenizer *tokenizer, const char *piece);

/* True for special tokens and control symbols: those that skip_special leaves out. */
bool ls_tokenizer_is_special(const ls_tokenizer *tokenizer, int32_t id);

/* What kind it is, for people: "bytes", "byte-level BPE", "BPE with byte fallback", "SentencePiece BPE". */
const char *ls_tokenizer_kind(const ls_tokenizer *tokenizer);

/*
 * Identity: SHA-256 over everything that decides ids (the file's bytes, bos and eos), 64 hex digits. Equal
 * hashes mean equal ids for every text; it is the tokenizer's part of a token cache's key and of a run's
 * identity. Saving and loading keeps it.
 */
const char *ls_tokenizer_hash(const ls_tokenizer *tokenizer);

/*
 * Is `text` valid UTF-8 (no overlong forms, no surrogates, at most U+10FFFF)? Returns true, or false with the
 * offset of the first byte that is wrong in *offset_out (may be NULL).
 */
bool ls_text_check_utf8(const char *text, size_t bytes, size_t *offset_out);

#endif
