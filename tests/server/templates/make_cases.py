#!/usr/bin/env python3
"""Writes cases.json: templates, their variables, and what jinja2 makes of them in the environment that transformers gives
chat templates. The templates are written here in the ways that those of known model families are.

Needs jinja2. Usage: make_cases.py > cases.json"""

import json
import sys

from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """{% generation %}, which marks what an assistant wrote."""
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise ValueError(message)


def to_json(value, indent=None):
    return json.dumps(value, ensure_ascii=False, indent=indent)


ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
ENVIRONMENT.filters["tojson"] = to_json
ENVIRONMENT.globals["raise_exception"] = raise_exception

TALK = [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "What is 2 + 2?\n"},
        {"role": "assistant", "content": "<think>easy</think>\n\n4"}, {"role": "user", "content": "It's \"4\" – naïve?"}]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "a + b", "parameters": {
    "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": ["number", "null"]}}, "required": ["a"]}}}]
CALLS = [*TALK[:2], {"role": "assistant", "content": None, "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2.5}}}]},
    {"role": "tool", "name": "add", "content": "4.5"}, {"role": "user", "content": "Thanks"}]
COMMON = {"bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True}

CHATS = {
    "pairs of tags": """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}""",
    "default system": """{%- if messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\\n' + message.content | trim + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
""",
    "instructions": """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}""",
    "headers": """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start|>system<|end|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|end|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("one call at once") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start|>assistant<|end|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start|>ipython<|end|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}
""",
    "thoughts": """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool>') and message.content.endswith('</tool>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning is string %}
            {%- set reasoning = message.reasoning %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index or loop.last %}
            {{- '<think>' + reasoning.strip('\\n') + '</think>' + content.lstrip('\\n') }}
        {%- else %}
            {{- '[' + content + ']' }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}{{- '\\n' }}{%- endif %}
                {%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- '<call>{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
                {%- if tool_call.arguments is string %}{{- tool_call.arguments }}{%- else %}{{- tool_call.arguments | tojson }}{%- endif %}
                {{- '}</call>' }}
            {%- endfor %}
        {%- endif %}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<user>' }}{%- endif %}
        {{- content }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}{{- '</user>' }}{%- endif %}
    {%- else %}
        {{- '<' + message.role + '>' + content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<assistant>' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think></think>' }}
    {%- endif %}
{%- endif %}""",
    "macros": """{%- macro type_of(spec) -%}
  {%- if spec.type is string -%}{{ spec.type }}{%- elif spec.type is iterable -%}{{ spec.type | join(' | ') }}{%- else -%}any{%- endif -%}
{%- endmacro -%}
{%- for tool in tools | default([], true) %}
type {{ tool.function.name }} = (_: {
{%- for name, spec in tool.function.parameters.properties.items() %}
  {{ name }}{{ '?' if name not in tool.function.parameters.required }}: {{ type_of(spec) }}{{ ',' if not loop.last }}
{%- endfor %}
}) => any;
{% endfor %}
{% for message in messages %}
{{ message.role | title }}: {{ message.content if message.content else 'nothing' }}
{% endfor %}
{% if add_generation_prompt %}
Assistant:
{%- endif %}""",
    "marked answers": """{% for m in messages %}
{% if m.role == 'assistant' %}
{% generation %}
A: {{ m.content }}
{% endgeneration %}
{% else %}
{{ m.role[0] | upper }}: {{ m.content }}
{% endif %}
{% endfor %}""",
    "ends of turns": """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set first = messages[0]['content'] | trim + '\n\n' %}{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}{% for message in rest %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start>' + role + '\n' + (first if loop.first else '') }}{% if message['content'] is string %}{{ message['content'] | trim }}{% elif message['content'] is iterable %}{% for item in message['content'] %}{{ item['text'] }}{% endfor %}{% endif %}{{ '<end>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start>model\n' }}{% endif %}""",
}

PIECES = [
    "{{ [1, 2.0, -0.5, 1e20, 1e-7, true, none, 'it\\'s', \"a\\\"b\", '\\n\\t\\\\'] }}", "{{ {'a': [1, {'b': none}], 'c': 'é'} }}",
    "{{ 10 // 3 }} {{ -10 // 3 }} {{ 10 % -3 }} {{ 7.5 // 2 }} {{ 7.5 % 2 }} {{ 1 / 3 }} {{ 2 * 3.0 }}",
    "{{ 1 ~ 3 * 2 }} {{ 'a' ~ 1 + 1 }}", "{{ 'a' ~ -1 ~ 2 * 3 }} {{ -2|abs }} {{ 3 - -1 }}", "{{ 'abc'[1] }}{{ 'abc'[-1:] }}{{ 'abcdef'[1:5:2] }}{{ 'naïve'[::-1] }}",
    "{{ [1,2,3][5:] }}{{ [1,2,3][-2:] }}{{ [1,2,3][:-1] }}{{ [1,2,3][::2] }}{{ [1,2,3][2:0:-1] }}{{ [1, 2, 3][-9:9] }}",
    "{{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a b c'.split(none, 1) }} {{ 'x\\ny\\n'.splitlines() }}",
    "{{ '  x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xxa'.lstrip('x') }}|{{ 'axx'.rstrip('x') }}|{{ 'aXb'.lower() }}|{{ 'hello world'.title() }}|{{ 'HELLO'.capitalize() }}",
    "{{ 'abcabc'.replace('b', 'x') }} {{ 'abcabc'.replace('b', 'x', 1) }} {{ 'abc'.find('c') }} {{ 'abc'.find('z') }} {{ 'aaa'.count('a') }}",
    "{{ ','.join(['a', 'b']) }} {{ '12'.isdigit() }} {{ 'ab'.isalpha() }} {{ 'prefix'.startswith('pre') }} {{ 'a'.endswith(('b', 'a')) }}",
    "{{ x }}|{{ x is defined }}|{{ x|default('d') }}|{{ ''|default('d') }}|{{ ''|default('d', true) }}|{{ x or 'o' }}|{{ not x }}",
    "{{ [3, 1, 2]|sort }} {{ ['b', 'A', 'c']|sort }} {{ [3, 1]|sort(reverse=true) }} {{ [1, 2]|reverse|list }} {{ 'abc'|reverse }} {{ [1, 1, 2]|unique|list }}",
    "{% for k, v in {'b': 1, 'a': 2}|dictsort %}{{ k }}{{ v }}{% endfor %} {% for k, v in {'b': 1}|items %}{{ k }}{{ v }}{% endfor %} {{ {'b': 1}.keys()|list }} {{ {'b': 1}.values()|list }} {{ {'b': 1}.get('c') }}",
    "{{ ['1', '2']|map('int')|sum }} {{ [1, 2, 3]|select('odd')|list }} {{ [1, 2, 3]|reject('gt', 1)|list }} {{ ['a', 'b']|map('upper')|join }}",
    "{{ [{'n': {'m': 1}}, {'n': {'m': 2}}]|map(attribute='n.m')|list }} {{ [{'a': 1}, {}]|selectattr('a', 'defined')|list }} {{ [{'a': 1}, {'a': 0}]|rejectattr('a')|list }}",
    "{{ 'a\\nb\\n\\nc'|indent }} {{ 'a\\nb'|indent(2, true) }} {{ 3.7|int }} {{ '42'|int + 1 }} {{ 'x'|int(7) }} {{ '1.5'|float }} {{ 2.567|round(2) }}",
    "{{ [1, 2, 3]|first }}{{ [1, 2, 3]|last }}{{ 'ab'|first }}{{ [4, 9]|max }}{{ [4, 9]|min }} {{ 'ab'|length }} {{ 'naïve'|length }} {{ [1]|count }}",
    "{{ 1 is number }} {{ true is boolean }} {{ 1.5 is float }} {{ 1 is integer }} {{ 'a' in ['a'] }} {{ 1 in [1.0] }} {{ 'b' is in ['a'] }} {{ 4 is divisibleby 2 }} {{ none is none }}",
    "{{ 1 == 1.0 }} {{ '1' == 1 }} {{ [1] == [1] }} {{ {'a': 1} == {'a': 1.0} }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }} {{ 3 > 2 > 1 }} {{ true == 1 }}",
    "{% for a, b in [(1, 2), (3, 4)] %}{{ a }}-{{ b }};{% endfor %}{% for c in 'añ' %}{{ c }}.{% endfor %}{% for k in {'x': 1} %}{{ k }}{% endfor %}",
    "{% for i in range(5, 0, -2) %}{{ loop.index }}/{{ loop.length }}:{{ i }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}{{ range(3)|list }}",
    "{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% else %}none{% endfor %}{% for i in [] %}{% else %}none{% endfor %}",
    "{% set a, b = 1, 2 %}{{ a + b }}{% set c %}  x {{ a }}{% endset %}[{{ c }}]{% set d = namespace(x=1) %}{% set d.x = d.x + 1 %}{{ d.x }}{% if true %}{% set e = 5 %}{% endif %}{{ e }}",
    "{% macro f(x, y=2, z='c') %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ f(1) }} {{ f(1, z='q') }} {{ f(x=3, y=f(0)) }}",
    "{% if 0 %}a{% elif [] %}b{% elif '' %}c{% elif {} %}d{% elif none %}e{% elif 'x' %}f{% else %}g{% endif %}",
    "a\n  {% if true %}\n    b\n  {% endif %}\n  c {% if true %}d{% endif %}\n{# gone #}\n  {# gone #}\ne\n", "{%- set x = 1 -%}  \n  {{- x -}}  \n  y\n\n",
    "a {{+ 1 }} b{% raw %} {{ x }} {% if %}{% endraw %} c\n{%+ if true %} d{% endif +%}\n e", "{{ '}}' }} {{ \"{%\" }} {{ {'a': {'b': 1}}['a']['b'] }}{{ [[1, 2], [3]][0][1] }}",
    "{{ 'a' 'b' }} {{ '\\u00e9\\x41' }} {{ 1_000 }} {{ 1.5e3 }} {{ [] }}", "{{ 'x' if a is defined and a else 'y' }} {{ (1 if true else 2) + 1 }} {{ 'a' if false else 'b' if false else 'c' }}",
    "{{ messages[0].content | trim | length }} {{ messages|length }} {{ messages[-1]['role'] }} {{ messages | map(attribute='role') | join(',') }} {{ messages|selectattr('role', 'equalto', 'user')|list|length }}",
    "{{ tools|tojson }} {{ tools|tojson(indent=2) }} {{ 'é\"\\n'|tojson }} {{ [1.0, 2, none, true]|tojson }}",
]


def main():
    cases = []
    for name, text in CHATS.items():
        for variables in ({"messages": TALK}, {"messages": TALK[1:], "enable_thinking": False}, {"messages": CALLS, "tools": TOOLS}):
            cases.append((text, {**COMMON, **variables}))
    cases += [(text, {**COMMON, "messages": TALK, "tools": TOOLS}) for text in PIECES]
    out = []
    for text, variables in cases:
        try:
            out.append({"template": text, "variables": variables, "expected": ENVIRONMENT.from_string(text).render(**variables)})
        except Exception:  # whatever jinja2 refuses
            out.append({"template": text, "variables": variables, "expected": None})
    json.dump(out, sys.stdout, ensure_ascii=False, indent=1)
    print()


if __name__ == "__main__":
    main()
