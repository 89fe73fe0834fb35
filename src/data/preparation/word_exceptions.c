// SPDX-License-Identifier: Apache-2.0
#include "data/preparation/word_exceptions.h"

#include "base/assert.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 40 };

static ls_word_exceptions table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Each head with each ending of its row; "|" cuts an ending in two. */
static const struct {
    const char *heads, *tails;
} contractions[] = {
    {"ai are dare has have is was were", "n't"},
    {"ca did does do had may need ought sha wo", "n't n't|'ve"},
    {"could might must should would", "'ve n't n't|'ve"},
    {"he it she that this", "'d 'd|'ve 'll 'll|'ve 's"},
    {"how there what when where who why", "'d 'd|'ve 'll 'll|'ve 're 's 've"},
    {"i", "'d 'd|'ve 'll 'll|'ve 'm 'm|a 've"},
    {"these they those we you", "'d 'd|'ve 'll 'll|'ve 're 've"},
    {"how", "'d|'y"},
    {"let", "'s"},
    {"not", "'ve"},
    {"can", "not"},
    {"gon", "na"},
    {"got", "ta"},
    {"c'm", "on"},
};

/* Contractions that are other words without their apostrophe. */
static const char *const not_bare[] = {"hell", "ill",   "its",  "shell", "shed", "well",
                                       "were", "whore", "lets", "howdy", "cmon"};

static const char *const whole =
    "Adm. Ak. Ala. Apr. Ariz. Ark. Aug. Bros. C++ Calif. Co. Colo. Conn. Corp. D.C. Dec. Del. Dr. E.G. "
    "E.g. Feb. Fla. Ga. Gen. Gov. I.E. I.e. Ia. Id. Ill. Inc. Ind. Jan. Jr. Jul. Jun. Kan. Kans. Ky. La. "
    "Ltd. Ma'am Mar. Mass. Md. Messrs. Mich. Minn. Miss. Mo. Mont. Mr. Mrs. Ms. Mt. N.C. N.D. N.H. N.J. "
    "N.M. N.Y. Neb. Nebr. Nev. Nov. O'clock Oct. Okla. Ore. Pa. Ph.D. Prof. Rep. Rev. S.C. Sen. Sep. "
    "Sept. St. Tenn. Va. Wash. Wis. a. a.m. and/or b. c. co. d. e. e.g. f. g. h. i. i.e. j. k. l. m. "
    "ma'am n. o'clock o. p. p.m. q. r. s. t. u. v. v.s. vs. w. w/o x. y. z. \u00e4. \u00f6. \u00fc. '' 'S "
    "'cause 'cos 'coz 'cuz 'Cause 'Cos 'Coz 'Cuz 'bout 'd 'em 'll 'nuff 're 's \u2018S \u2018s "
    "doin' goin' havin' lovin' nothin' nuthin' somethin' ol' Doin' Goin' Havin' Lovin' Nothin' Nuthin' "
    "Somethin' Ol' (*_*) (-8 (-: (-; (-_-) (._.) (: (; (= (>_<) (^_^) (o: )-: ): -_- -__- ._. 0.0 0.o 0_0 "
    "0_o 8) 8-) 8-D 8D :'( :') :'-( :'-) :( :(( :((( :() :) :)) :))) :* :-( :-(( :-((( :-) :-)) :-))) "
    ":-* :-/ :-0 :-3 :-> :-D :-O :-P :-X :-] :-o :-p :-x :-| :-} :/ :0 :1 :3 :> :D :O :P :X :] :o :o) "
    ":p :x :| :} ;) ;-) ;-D ;D ;_; <.< </3 <3 <33 <333 <space> =( =) =/ =3 =D =[ =] =| >.< >.> >:( >:o "
    "><(((*> @_@ O.O O.o O_O O_o V.V V_V XD XDD [-: [: [= ]= ^_^ ^__^ ^___^ o.0 o.O o.o o_0 o_O o_o v.v "
    "v_v xD xDD \\n \\t \\\")";

static void put(const char *word, const uint8_t pieces[3])
{
    const uint64_t hash = ls_word_hash(word, strlen(word));
    size_t slot = hash % LS_EXCEPTION_SLOTS;
    if (ls_word_exception_find(&table, hash)) {
        return;
    }
    while (table.slots[slot].pieces[0]) {
        slot = (slot + 1) % LS_EXCEPTION_SLOTS;
    }
    table.slots[slot].hash = hash;
    memcpy(table.slots[slot].pieces, pieces, 3);
    table.filter[hash >> 56] |= UINT64_C(1) << (hash >> 50 & 63);
}

/* The same with `mark` in place of apostrophes, unless that is another word. */
static void put_marked(const char *word, const uint8_t pieces[3], const char *mark)
{
    char made[WORD_MAX];
    uint8_t lengths[3] = {pieces[0], pieces[1], pieces[2]};
    const size_t mark_bytes = strlen(mark);
    size_t used = 0, at = 0;
    for (int piece = 0; piece < 3; piece++) {
        for (size_t end = at + pieces[piece]; at < end; at++) {
            const bool is_mark = word[at] == '\'';
            const size_t bytes = is_mark ? mark_bytes : 1;
            LS_ASSERT(used + 4 < sizeof made);
            memcpy(made + used, is_mark ? mark : &word[at], bytes);
            used += bytes;
            lengths[piece] = (uint8_t)(lengths[piece] + bytes - 1);
        }
    }
    made[used] = '\0';
    for (size_t i = 0; i < sizeof not_bare / sizeof not_bare[0]; i++) {
        if (strcasecmp(made, not_bare[i]) == 0) {
            return;
        }
    }
    put(made, lengths);
}

static void put_forms(char *word, const uint8_t pieces[3])
{
    for (int form = 0; form < 2; form++) {
        put(word, pieces);
        put_marked(word, pieces, "\u2019");
        put_marked(word, pieces, "");
        word[0] = (char)toupper((unsigned char)word[0]);
    }
}

static void put_contraction(const char *head, int head_bytes, const char *tail, int tail_bytes)
{
    char word[WORD_MAX];
    const char *bar = memchr(tail, '|', (size_t)tail_bytes);
    const int first = bar ? (int)(bar - tail) : tail_bytes, second = bar ? tail_bytes - first - 1 : 0;
    snprintf(word, sizeof word, "%.*s%.*s%.*s", head_bytes, head, first, tail, second, bar ? bar + 1 : "");
    put_forms(word, (uint8_t[3]){(uint8_t)head_bytes, (uint8_t)first, (uint8_t)second});
}

/* Words of a list that is separated by blanks: the next one from *at on. Returns its length. */
static int next_word(const char **at, const char **word_out)
{
    *at += strspn(*at, " ");
    *word_out = *at;
    const size_t bytes = strcspn(*at, " ");
    *at += bytes;
    return (int)bytes;
}

static void fill(void)
{
    const char *head, *tail, *words;
    int head_bytes, tail_bytes;
    for (size_t i = 0; i < sizeof contractions / sizeof contractions[0]; i++) {
        for (const char *heads = contractions[i].heads; (head_bytes = next_word(&heads, &head)) > 0;) {
            for (const char *tails = contractions[i].tails; (tail_bytes = next_word(&tails, &tail)) > 0;) {
                put_contraction(head, head_bytes, tail, tail_bytes);
            }
        }
    }
    for (int hour = 1; hour <= 12; hour++) {
        for (words = "am pm a.m. p.m."; (tail_bytes = next_word(&words, &tail)) > 0;) {
            char word[WORD_MAX];
            const int digits = snprintf(word, sizeof word, "%d", hour);
            snprintf(word + digits, sizeof word - (size_t)digits, "%.*s", tail_bytes, tail);
            put(word, (uint8_t[3]){(uint8_t)digits, (uint8_t)tail_bytes, 0});
        }
    }
    for (words = whole; (head_bytes = next_word(&words, &head)) > 0;) {
        char word[WORD_MAX];
        snprintf(word, sizeof word, "%.*s", head_bytes, head);
        put(word, (uint8_t[3]){(uint8_t)head_bytes, 0, 0});
        put_marked(word, (uint8_t[3]){(uint8_t)head_bytes, 0, 0}, "\u2019");
    }
}

const ls_word_exceptions *ls_word_exceptions_get(void)
{
    pthread_once(&once, fill);
    return &table;
}
