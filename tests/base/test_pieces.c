// SPDX-License-Identifier: Apache-2.0
#include "test.h"

#include "base/pieces.h"

static void pieces_cover_without_gaps_and_are_never_empty(void **state)
{
    (void)state;
    for (uint32_t pieces = 1; pieces <= LS_PIECES_MAX; pieces++) {
        for (int64_t size = pieces; size < 3 * pieces + 7; size++) {
            assert_int_equal(ls_piece_first(size, pieces, 0), 0);
            assert_int_equal(ls_piece_first(size, pieces, pieces), size);
            for (uint32_t i = 0; i < pieces; i++) {
                assert_true(ls_piece_first(size, pieces, i) < ls_piece_first(size, pieces, i + 1));
            }
        }
        for (uint32_t i = 0; i <= pieces; i++) {
            assert_int_equal(ls_piece_first(5 * pieces, pieces, i), 5 * i);
        }
    }
}

/* What a member has follows from its own size: its pieces are those of the whole. */
static void pieces_of_a_node_are_pieces_of_the_whole(void **state)
{
    (void)state;
    for (uint32_t pieces = 1; pieces <= 64; pieces *= 2) {
        for (uint32_t members = 1; members <= pieces; members *= 2) {
            for (int64_t size = pieces; size < pieces + 50; size++) {
                for (uint32_t i = 0; i < pieces; i++) {
                    const uint32_t each = pieces / members, member = i / each;
                    const int64_t first = ls_piece_first(size, members, member);
                    const int64_t own = ls_piece_first(size, members, member + 1) - first;
                    assert_int_equal(first + ls_piece_first(own, each, i % each),
                                     ls_piece_first(size, pieces, i));
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_cover_without_gaps_and_are_never_empty),
        cmocka_unit_test(pieces_of_a_node_are_pieces_of_the_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
