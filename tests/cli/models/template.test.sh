#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# template: renders the chat template of a file, a folder and a list; refusals and wrong inputs.
. "$LS_SOURCE_DIR/tests/cli/lib.sh"

cat >chat.jinja <<'EOF'
{{- bos_token }}{% for m in messages %}
{%- if m.role not in ['user', 'assistant'] %}{{ raise_exception('Only user and assistant!') }}{% endif %}
<{{ m.role }}>{{ m.content }}{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}
{%- endfor %}{% if add_generation_prompt %}<assistant>{% endif %}
EOF
echo '{"messages": [{"role": "user", "content": "é\u0041"}], "bos_token": "^", "add_generation_prompt": true}' >input.json

expect 0 "$LOCKSTEP" template chat.jinja --input input.json
[ "$(cat "$out")" = '^<user>éA<assistant>' ] || fail "the text is $(cat "$out")"
[ "$(tail -c 1 "$out")" = '>' ] || fail "something follows the text"
[ -s "$err" ] && fail "stderr has $(cat "$err")"

# A folder: chat_template.jinja, and the special tokens of tokenizer_config.json unless the input has them.
mkdir hf
cp chat.jinja hf/chat_template.jinja
echo '{"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "other"}' >hf/tokenizer_config.json
echo '{"messages": [{"role": "assistant", "content": "x"}]}' >answer.json
expect 0 "$LOCKSTEP" template hf --input answer.json
[ "$(cat "$out")" = '<s><assistant>x</s>' ] || fail "the folder gives $(cat "$out")"
expect 0 "$LOCKSTEP" template hf/tokenizer_config.json --input answer.json
[ "$(cat "$out")" = 'other' ] || fail "the configuration gives $(cat "$out")"

# A list of named templates.
mkdir list
echo '{"chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T{{ strftime_now(\"%Y\") }}"}]}' \
    >list/tokenizer_config.json
expect 0 "$LOCKSTEP" template list --input input.json
[ "$(cat "$out")" = 'D' ] || fail "the list gives $(cat "$out")"
echo '{"template_date": "2024-02-29"}' >dated.json
expect 0 "$LOCKSTEP" template list --name tool_use --input dated.json
[ "$(cat "$out")" = 'T2024' ] || fail "the named template gives $(cat "$out")"
expect 2 "$LOCKSTEP" template list --name rag --input input.json
grep -q "no chat template named 'rag'; its names: default, tool_use" "$err" || fail "$(cat "$err")"

# Refusals: the template's own message, and nothing on stdout.
echo '{"messages": [{"role": "system", "content": "x"}]}' >system.json
expect 3 "$LOCKSTEP" template chat.jinja --input system.json
grep -q 'chat.jinja, line 2: Only user and assistant!' "$err" || fail "$(cat "$err")"
[ -s "$out" ] && fail "stdout has $(cat "$out")"
echo "{% include 'x' %}" >include.jinja
expect 2 "$LOCKSTEP" template include.jinja --input input.json
grep -q 'include.jinja, line 1: {% include %} is not supported' "$err" || fail "$(cat "$err")"
printf 'a\377' >bytes.jinja
expect 3 "$LOCKSTEP" template bytes.jinja --input input.json
grep -q 'not UTF-8' "$err" || fail "$(cat "$err")"

# Wrong calls and inputs.
expect 2 "$LOCKSTEP" template chat.jinja
grep -q -- '--input is missing' "$err" || fail "$(cat "$err")"
expect 2 "$LOCKSTEP" template nowhere.jinja --input input.json
expect 2 "$LOCKSTEP" template chat.jinja --input nowhere.json
expect 3 "$LOCKSTEP" template chat.jinja --input chat.jinja
echo '[]' >array.json
expect 3 "$LOCKSTEP" template chat.jinja --input array.json
grep -q 'one JSON object with messages' "$err" || fail "$(cat "$err")"
mkdir none
echo '{}' >none/tokenizer_config.json
expect 3 "$LOCKSTEP" template none --input input.json
grep -q 'none has no chat template' "$err" || fail "$(cat "$err")"

# What a template writes does not steer a terminal.
printf 'a\033]0;title\007b' >steers.jinja
expect 0 "$LOCKSTEP" template steers.jinja --input input.json
check "a file gets every byte" cmp "$out" steers.jinja
if has_terminals; then
    on_terminal "$LOCKSTEP" template steers.jinja --input input.json >shown
    holds shown 'a\x1b]0;title\x07b'
else
    echo "skipped: no pseudo-terminals here"
fi

finish
