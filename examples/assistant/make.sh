#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes the data of this example: make.sh text | records | heldout. Each line is made of the same few words, so that a small model can
# learn them in minutes; the same command writes the same bytes everywhere. The result is free of rights (CC0).
#   text      40,000 little stories, for the base model
#   records   500 conversations, for the assistant (records.jsonl)
#   heldout   200 more that ask about other things, for measuring it (heldout.jsonl)
awk -v what="${1:-text}" '
function random(n) { seed = (seed * 16807) % 2147483647; return seed % n }
function pick(list, n) { return list[1 + random(n)] }
# Who has what, and what happens; the parts of a story and of a question.
function draw(   i) {
    name = pick(names, n_names); do other = pick(names, n_names); while (other == name)
    thing = pick(things, n_things); colour = pick(colours, n_colours); town = pick(towns, n_towns)
    do second = pick(towns, n_towns); while (second == town)
    do tint = pick(colours, n_colours); while (tint == colour)
    kind = random(4); a = 1 + random(9); b = 1 + random(9)
    if (kind == 1 && b > a) { i = a; a = b; b = i }
    if (kind == 0) {
        fact = name " has " a " " thing ". " other " gives " name " " b " more."
        question = "How many " thing " does " name " have now?"; answer = name " has " a + b " " thing " now."
    } else if (kind == 1) {
        fact = name " has " a " " thing ". " name " loses " b "."
        question = "How many " thing " does " name " have now?"; answer = name " has " a - b " " thing " now."
    } else if (kind == 2) {
        fact = "The house of " name " is " colour ". The house of " other " is " tint "."
        question = "Which colour has the house of " other "?"; answer = "The house of " other " is " tint "."
    } else {
        fact = name " lives in " town ". " other " lives in " second "."
        question = "Where does " name " live?"; answer = name " lives in " town "."
    }
}
function quoted(text) { return "\"" text "\"" }
BEGIN {
    n_names = split("Tom Ann Max Eva Ben Ida Leo Mia Sam Zoe Jon Amy Tim Lea Dan Kim Rob Sue Paul Nina", names, " ")
    n_things = split("apples pears books stones coins eggs balls cups hats keys nuts pens shells stars toys cakes", things, " ")
    n_colours = split("red blue green white black yellow brown grey", colours, " ")
    n_towns = split("Rome Paris London Berlin Oslo Vienna Madrid Lisbon Dublin Prague", towns, " ")
    seed = what == "text" ? 11 : what == "records" ? 222 : 3333
    count = what == "text" ? 40000 : what == "records" ? 500 : 200
    for (line = 0; line < count; line++) {
        draw()
        if (what == "text")
            print fact " " answer
        else
            print "{\"messages\": [{\"role\": \"user\", \"content\": " quoted(fact " " question) "}, {\"role\": \"assistant\", \"content\": " quoted(answer) "}]}"
    }
}'
