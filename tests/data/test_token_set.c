// SPDX-License-Identifier: Apache-2.0
/* Blocks of tokens, the cache that they go to, and reading them from a folder, ahead or not, damaged or
 * not. */
#include "data/scratch.h"

#include "data/stream/block_cache.h"
#include "data/stream/token_reader.h"
#include "storage/cache/cache.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TOKENS = 20011, DOCUMENTS_MAX = 4000 };

/* A file of tokens, drawn from a seed: some documents are one token, some longer than blocks. */
typedef struct corpus {
    uint16_t narrow[TOKENS];
    uint32_t wide[TOKENS];
    uint64_t starts[DOCUMENTS_MAX];
    ls_token_block_source from;
} corpus;

static uint64_t draw(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void make_corpus(corpus *c, uint64_t seed, uint32_t id_bytes)
{
    uint64_t state = seed, count = 0;
    for (uint64_t i = 0; i < TOKENS; i++) {
        c->wide[i] = (uint32_t)(draw(&state) % (id_bytes == 2 ? 65536 : 200000));
        c->narrow[i] = (uint16_t)c->wide[i];
    }
    for (uint64_t at = 0; at < TOKENS && count < DOCUMENTS_MAX;) {
        c->starts[count++] = at;
        at += draw(&state) % 8 == 0 ? 1000 + draw(&state) % 2000 : 1 + draw(&state) % 20;
    }
    c->from = (ls_token_block_source){.ids = id_bytes == 2 ? (const void *)c->narrow : c->wide,
                                      .id_bytes = id_bytes,
                                      .count = TOKENS,
                                      .document_starts = c->starts,
                                      .document_count = count,
                                      .uid = seed};
}

static void expected_document(const corpus *c, uint64_t at, uint64_t *begin_out, uint64_t *end_out)
{
    uint64_t i = 0;
    while (i + 1 < c->from.document_count && c->starts[i + 1] <= at) {
        i++;
    }
    *begin_out = c->starts[i];
    *end_out = i + 1 < c->from.document_count ? c->starts[i + 1] : TOKENS;
}

static void blocks_hold_ids_and_documents(void **state)
{
    (void)state;
    corpus *c = calloc(1, sizeof *c);
    for (uint32_t id_bytes = 2; id_bytes <= 4; id_bytes += 2) {
        make_corpus(c, 5, id_bytes);
        const uint32_t most = ls_token_block_ids(id_bytes);
        assert_int_equal(most, id_bytes == 2 ? 470 : 242);
        uint64_t document = 0;
        for (uint64_t index = 0; index * most < TOKENS; index++) {
            ls_token_block block;
            int32_t id = 0;
            ls_token_block_make(&c->from, index, &document, &block);
            assert_true(ls_token_block_is_good(&block, 5, index));
            assert_false(ls_token_block_is_good(&block, 5, index + 1));
            assert_false(ls_token_block_is_good(&block, 6, index));
            for (uint64_t at = index * most; at < (index + 1) * most && at < TOKENS; at++) {
                uint64_t begin, end, wanted_begin, wanted_end;
                ls_token_block_copy(&block, id_bytes, (uint32_t)(at % most), 1, &id);
                assert_int_equal(id, c->wide[at]);
                ls_token_block_document(&block, id_bytes, index, at, &begin, &end);
                expected_document(c, at, &wanted_begin, &wanted_end);
                assert_int_equal(begin, wanted_begin);
                assert_int_equal(end, wanted_end);
            }
            ((unsigned char *)&block)[8 + index % 1016] ^= 16;
            assert_false(ls_token_block_is_good(&block, 5, index));
        }
    }
    free(c);
}

static ls_token_block numbered_block(uint64_t uid, uint64_t index)
{
    const uint16_t ids[2] = {(uint16_t)index, (uint16_t)uid};
    const uint64_t starts[1] = {0};
    uint64_t document = 0;
    ls_token_block block;
    /* A file whose other blocks are not made. */
    const ls_token_block_source from = {
        .ids = ids, .id_bytes = 2, .count = 2, .document_starts = starts, .document_count = 1, .uid = uid};
    ls_token_block_make(&from, 0, &document, &block);
    const uint64_t place[2] = {uid, index};
    block.check = ls_xxh3(&block.first_begin, sizeof block - 8, ls_xxh3(place, sizeof place, 0));
    return block;
}

/* With room for 1,016 blocks, the newest of 10,000 are there, and never another one. */
static void cache_keeps_what_was_used_last(void **state)
{
    scratch *s = *state;
    const ls_cache_limits limits = {.quota_bytes = 8 << 20, .group = ""};
    ls_block_cache *cache = NULL;
    ls_token_block block;
    assert_int_equal(ls_cache_limits_write(s->folder, &limits), LS_OK);
    assert_int_equal(ls_block_cache_open(s->folder, &cache), LS_OK);
    assert_false(ls_block_cache_get(cache, 1, 0, &block));
    unsigned found = 0, newest = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        block = numbered_block(1, i);
        ls_block_cache_put(cache, 1, i, &block);
        newest += ls_block_cache_get(cache, 1, i, &block);
    }
    assert_int_equal(newest, 10000);
    for (uint64_t i = 0; i < 10000; i++) {
        if (ls_block_cache_get(cache, 1, i, &block)) {
            const ls_token_block wanted = numbered_block(1, i);
            assert_memory_equal(&block, &wanted, sizeof block);
            found++;
        }
    }
    assert_in_range(found, 700, 2048);
    /* Another process of the same folder sees them. */
    ls_block_cache *other = NULL;
    assert_int_equal(ls_block_cache_open(s->folder, &other), LS_OK);
    assert_true(ls_block_cache_get(other, 1, 9999, &block));
    assert_false(ls_block_cache_get(other, 2, 9999, &block));
    ls_block_cache_close(other);
    ls_block_cache_close(cache);
}

static void cache_works_without_a_folder(void **state)
{
    (void)state;
    ls_block_cache *cache = NULL;
    ls_token_block block = numbered_block(7, 3);
    assert_int_equal(ls_block_cache_open("", &cache), LS_OK);
    ls_block_cache_put(cache, 7, 3, &block);
    assert_true(ls_block_cache_get(cache, 7, 3, &block));
    assert_int_equal(ls_block_cache_lock(cache, 7, 3), -1);
    ls_block_cache_close(cache);
}

typedef struct set {
    corpus corpora[2];
    ls_token_shard *shards;
    size_t count;
    char folder[256];
} set;

static set *make_set(scratch *s)
{
    set *t = calloc(1, sizeof *t);
    ls_token_set_writer *writer = NULL;
    snprintf(t->folder, sizeof t->folder, "%s/set", s->folder);
    assert_int_equal(ls_token_set_begin(t->folder, &writer), LS_OK);
    for (uint32_t i = 0; i < 2; i++) {
        make_corpus(&t->corpora[i], 11 + i, 2 + 2 * i);
        ls_token_shard like = {.kind = i,
                               .field = i ? "body" : NULL,
                               .tokenizer = "0123",
                               .id_bytes = 2 + 2 * i,
                               .id_max = 199999,
                               .tokens = TOKENS,
                               .documents = t->corpora[i].from.document_count,
                               .text_bytes = 5};
        memset(like.content_hash, 'a' + (int)i, LS_SHA256_HEX_BYTES - 1);
        assert_int_equal(ls_token_set_add(writer, &like, &t->corpora[i].from), LS_OK);
    }
    assert_int_equal(ls_token_set_end(writer), LS_OK);
    ls_token_set_destroy(writer);
    const char *index = ls_path_join(&s->arena, t->folder, LS_TOKEN_SET_INDEX);
    assert_int_equal(ls_token_set_read(&s->arena, index, &t->shards, &t->count), LS_OK);
    return t;
}

static void check_read(ls_token_reader *r, const set *t, size_t shard, uint64_t first, uint64_t count)
{
    static _Thread_local int32_t ids[TOKENS];
    uint32_t largest = 0, wanted = 0;
    assert_int_equal(ls_token_reader_read(r, &t->shards[shard], first, count, ids, &largest), LS_OK);
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(ids[i], t->corpora[shard].wide[first + i]);
        wanted = t->corpora[shard].wide[first + i] > wanted ? t->corpora[shard].wide[first + i] : wanted;
    }
    assert_int_equal(largest, wanted);
}

static void reader_reads_any_range(void **state)
{
    scratch *s = *state;
    set *t = make_set(s);
    ls_token_reader *r = NULL;
    uint64_t random = 3;
    assert_int_equal(t->count, 2);
    assert_string_equal(t->shards[1].field, "body");
    assert_int_equal(ls_token_reader_open(s->folder, &r), LS_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ls_token_reader_add(r, &t->shards[i]), LS_OK);
    }
    check_read(r, t, 0, 0, TOKENS);
    for (int i = 0; i < 300; i++) {
        const uint64_t first = draw(&random) % TOKENS, most = TOKENS - first;
        const uint64_t count = 1 + draw(&random) % (most < 1500 ? most : 1500);
        const size_t shard = draw(&random) % 2;
        if (i % 3) {
            ls_token_reader_expect(r, &t->shards[shard], first, count, i % 2);
        }
        check_read(r, t, shard, first, count);
        uint64_t begin, end, wanted_begin, wanted_end;
        assert_int_equal(ls_token_reader_document(r, &t->shards[shard], first, &begin, &end), LS_OK);
        expected_document(&t->corpora[shard], first, &wanted_begin, &wanted_end);
        assert_int_equal(begin, wanted_begin);
        assert_int_equal(end, wanted_end);
    }
    ls_token_reader_close(r);
    free(t);
}

/* After windows have been timed, one of a set that will be read whole brings its group. */
static void groups_are_fetched(void **state)
{
    scratch *s = *state;
    set *t = make_set(s);
    ls_token_reader *r = NULL;
    assert_int_equal(ls_token_reader_open(s->folder, &r), LS_OK);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ls_token_reader_add(r, &t->shards[i]), LS_OK);
    }
    for (uint64_t i = 0; i < 40; i++) {
        check_read(r, t, 1, i * 242, 1);
    }
    const uint64_t asked = TOKENS / 2;
    ls_token_reader_expect(r, &t->shards[0], asked, 1, true);
    ls_token_block block;
    ls_block_cache *cache = NULL;
    assert_int_equal(ls_block_cache_open(s->folder, &cache), LS_OK);
    for (int i = 0; i < 1000 && !ls_block_cache_get(cache, t->shards[0].uid, TOKENS / 470, &block); i++) {
        usleep(10000);
    }
    ls_block_cache_close(cache);
    check_read(r, t, 0, asked, 1); /* after the thread that fetches it */
    assert_int_equal(truncate(ls_path_join(&s->arena, t->folder, t->shards[0].key), 0), 0);
    check_read(r, t, 0, 0, TOKENS);
    ls_token_reader_close(r);
    free(t);
}

static ls_token_reader *sharing_reader(scratch *s, const set *t, const char *host, const char *token,
                                       ls_block_peer *own)
{
    ls_token_reader *r = NULL;
    const char *cache = ls_path_join(&s->arena, s->folder, host);
    assert_int_equal(ls_dir_create(cache), LS_OK);
    assert_int_equal(ls_cache_limits_write(cache, &(ls_cache_limits){.quota_bytes = 64 << 20, .group = ""}),
                     LS_OK);
    assert_int_equal(ls_token_reader_open(cache, &r), LS_OK);
    assert_int_equal(ls_token_reader_add(r, &t->shards[0]), LS_OK);
    *own = (ls_block_peer){.port = 1};
    snprintf(own->host, sizeof own->host, "%s", host);
    assert_int_equal(ls_token_reader_share(r, own, token), LS_OK);
    assert_true(own->port > 1);
    return r;
}

/* One host reads all: owners keep what is theirs, and give it when the store has nothing more. */
static void hosts_share_blocks(void **state)
{
    scratch *s = *state;
    set *t = make_set(s);
    ls_block_peer hosts[4] = {0};
    ls_token_reader *a = sharing_reader(s, t, "127.0.0.1", "secret", &hosts[0]);
    ls_token_reader *b = sharing_reader(s, t, "127.0.0.2", "secret", &hosts[1]);
    ls_token_reader *stranger = sharing_reader(s, t, "127.0.0.3", "other", &hosts[2]);
    hosts[3] = (ls_block_peer){.host = "127.0.0.4"}; /* gives nothing */
    ls_token_reader_meet(a, hosts, 2);
    ls_token_reader_meet(b, hosts, 2);
    check_read(a, t, 0, 0, TOKENS);
    check_read(b, t, 0, 0, TOKENS);
    ls_token_reader *c = sharing_reader(s, t, "127.0.0.5", "secret", &hosts[3]);
    const char *path = ls_path_join(&s->arena, t->folder, t->shards[0].key);
    assert_int_equal(truncate(path, 0), 0);
    ls_token_reader_meet(c, hosts, 2);
    check_read(c, t, 0, 0, TOKENS);
    /* With another token there is no answer, and the store has nothing. */
    int32_t id;
    uint32_t largest;
    ls_token_reader_meet(stranger, hosts, 2);
    assert_int_equal(ls_token_reader_read(stranger, &t->shards[0], 0, 1, &id, &largest), LS_ERR_DATA);
    ls_token_reader_close(a);
    ls_token_reader_close(b);
    ls_token_reader_close(c);
    ls_token_reader_close(stranger);
    free(t);
}

/* An owner that takes connections and says nothing, and one that is gone. */
static void silent_hosts_are_passed_over(void **state)
{
    scratch *s = *state;
    set *t = make_set(s);
    ls_block_peer hosts[2] = {0};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 6)};
    socklen_t bytes = sizeof at;
    const int mute = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(mute, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(mute, 8), 0);
    assert_int_equal(getsockname(mute, (struct sockaddr *)&at, &bytes), 0);
    ls_token_reader *r = sharing_reader(s, t, "127.0.0.1", "secret", &hosts[0]);
    hosts[1] = (ls_block_peer){.host = "127.0.0.7", .port = ntohs(at.sin_port)};
    ls_token_reader_meet(r, &hosts[1], 1);
    check_read(r, t, 0, 0, 1000);
    check_read(r, t, 0, 1000, 1000); /* not asked again */
    close(mute);
    ls_token_reader_meet(r, &hosts[1], 1);
    check_read(r, t, 0, 0, TOKENS);
    ls_token_reader_close(r);
    free(t);
}

static void damaged_and_short_sets_are_named(void **state)
{
    scratch *s = *state;
    set *t = make_set(s);
    ls_token_reader *r = NULL;
    int32_t ids[16];
    uint32_t largest = 0;
    const char *path = ls_path_join(&s->arena, t->folder, t->shards[0].key);
    const int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "x", 1, 5 * 1024 + 100), 1);
    assert_int_equal(ls_token_reader_open("", &r), LS_OK);
    assert_int_equal(ls_token_reader_add(r, &t->shards[0]), LS_OK);
    check_read(r, t, 0, 0, 1000);
    assert_int_equal(ls_token_reader_read(r, &t->shards[0], 5 * 470, 16, ids, &largest), LS_ERR_DATA);
    assert_error_has("arrives damaged");
    assert_error_has(t->shards[0].key);
    assert_int_equal(ftruncate(fd, 10 * 1024), 0);
    assert_int_equal(ls_token_reader_read(r, &t->shards[0], 20 * 470, 16, ids, &largest), LS_ERR_DATA);
    assert_error_has(t->folder);
    close(fd);
    ls_token_reader_close(r);
    free(t);
}

static void bad_indices_are_refused(void **state)
{
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"{", "token-index.json"},
        {"[]", "token-index.json"},
        {"{\"format\": \"lockstep token set\", \"version\": 2}", "version 2"},
        {"{\"format\": \"lockstep token set\", \"version\": 1}", "'tokenizer'"},
        {"{\"format\": \"lockstep token set\", \"version\": 1, \"tokenizer\": \"x\", \"files\": []}",
         "has no files"},
        {"{\"format\": \"lockstep token set\", \"version\": 1, \"tokenizer\": \"x\", \"files\": [{\"key\": "
         "\"../a\"}]}",
         "has a part . or .."},
        {"{\"format\": \"lockstep token set\", \"version\": 1, \"tokenizer\": \"x\", \"files\": [{\"key\": "
         "\"a\", \"etag\": \"\", \"uid\": \"12\", \"content\": \"zz\"}]}",
         "'uid' or 'content'"},
    };
    scratch *s = *state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ls_token_shard *shards = NULL;
        size_t count = 0;
        const char *path = scratch_text(s, LS_TOKEN_SET_INDEX, bad[i].text);
        const ls_status status = ls_token_set_read(&s->arena, path, &shards, &count);
        assert_true(status == LS_ERR_DATA || status == LS_ERR_INVALID);
        assert_error_has(bad[i].error);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(blocks_hold_ids_and_documents),
        TEST(cache_keeps_what_was_used_last),
        TEST(cache_works_without_a_folder),
        TEST(reader_reads_any_range),
        TEST(groups_are_fetched),
        TEST(damaged_and_short_sets_are_named),
        TEST(bad_indices_are_refused),
        TEST(hosts_share_blocks),
        TEST(silent_hosts_are_passed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
