#include "server/templates/template.h"

#include <gmock/gmock.h>

#include "runtime/base/file.h"

namespace onnxd {
namespace {

using testing::HasSubstr;

Result<std::string> Render(std::string_view text, const std::string& json = "{}") {
  auto parsed = Template::Parse(text);
  if (!parsed.ok()) return parsed.status();
  const TemplateValue variables = *TemplateValueOfJson(json);
  return (*parsed)->Render(*variables.dict());
}

std::string Rendered(std::string_view text, const std::string& json = "{}") {
  const auto rendered = Render(text, json);
  EXPECT_TRUE(rendered.ok()) << text << ": " << rendered.status().message();
  return rendered.ok() ? *rendered : "";
}

std::string Refusal(std::string_view text, const std::string& json = "{}") {
  const auto rendered = Render(text, json);
  EXPECT_FALSE(rendered.ok()) << text << ": " << *rendered;
  return std::string(rendered.status().message());
}

TEST(Template, WritesAConversation) {
  constexpr std::string_view kChat = R"({% for message in messages %}
{{- '<|' + message.role + '|>' + message['content'] | trim + eos_token }}
{% endfor %}
{% if add_generation_prompt %}
<|assistant|>
{%- endif %})";
  EXPECT_EQ(Rendered(kChat, R"({"messages": [{"role": "user", "content": " Hi "},
      {"role": "assistant", "content": "Ho"}], "eos_token": "</s>", "add_generation_prompt": true})"),
            "<|user|>Hi</s>\n<|assistant|>Ho</s>\n<|assistant|>");
}

TEST(Template, LeavesNoLineBehindAStatement) {
  EXPECT_EQ(Rendered("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(Rendered("a {%- if true -%} b {%+ endif %} c"), "ab  c");
  EXPECT_EQ(Rendered("a\n {# nothing #}\nb{{ ' ' -}}  \n c"), "a\nb c");
  EXPECT_EQ(Rendered("{% raw %}{{ x }}{% endraw %}"), "{{ x }}");
}

TEST(Template, CalculatesAsPythonDoes) {
  EXPECT_EQ(
      Rendered("{{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 }}"),
      "7 3 -4 2 3.5 8.0");
  EXPECT_EQ(Rendered("{{ 1 ~ 'a' ~ none }} {{ 'ab' * 2 }} {{ [1] + ['b'] }} {{ 1 < 2 <= 2 }}"),
            "1aNone abab [1, 'b'] True");
  EXPECT_EQ(Rendered("{{ not 1 or 'x' }} {{ 'a' in 'abc' }} {{ 'k' not in {'k': 1} }}"),
            "x True False");
  EXPECT_EQ(Rendered("{{ 'a' if false else 'b' }}{{ 'c' if false }}"), "b");
  EXPECT_EQ(Rendered("{{ [1, 2, 3, 4][1:] }} {{ 'abc'[::-1] }} {{ [1, 2][-1] }} {{ {'a': true} }}"),
            "[2, 3, 4] cba 2 {'a': True}");
}

TEST(Template, KnowsFiltersTestsAndMethods) {
  EXPECT_EQ(
      Rendered(
          "{{ [3, 1]|sort|join('-') }} {{ 'aB'|upper }} {{ x|default('d') }} {{ [1]|length }}"),
      "1-3 AB d 1");
  EXPECT_EQ(Rendered("{{ m|selectattr('r', 'equalto', 'u')|map(attribute='c')|list }}",
                     R"({"m": [{"r": "u", "c": 1}, {"r": "a", "c": 2}]})"),
            "[1]");
  EXPECT_EQ(Rendered(R"({{ {'b': [1, 'x'], 'a': none}|tojson }})"),
            R"({"b": [1, "x"], "a": null})");
  EXPECT_EQ(Rendered("{{ [1, {'a': 2}]|tojson(indent=2) }}"), "[\n  1,\n  {\n    \"a\": 2\n  }\n]");
  EXPECT_EQ(Rendered("{{ x is defined }} {{ 1 is divisibleby 1 }} {{ 'a' is string and {} is "
                     "mapping }} {{ 1 is not none }}"),
            "False True True True");
  EXPECT_EQ(Rendered("{{ ' a,b '.strip().split(',')[0] }} {{ 'abc'.startswith(('x', 'a')) }} {{ "
                     "d.get('z', 3) }} {{ d.items()|list }}",
                     R"({"d": {"k": "v"}})"),
            "a True 3 [['k', 'v']]");
}

TEST(Template, HasLoopsScopesAndMacros) {
  EXPECT_EQ(Rendered("{% for k, v in d.items() %}{{ loop.index }}{{ k }}{{ v }}{{ ',' if not "
                     "loop.last }}{% endfor %}",
                     R"({"d": {"x": 1, "a": 2}})"),
            "1x1,2a2");
  EXPECT_EQ(Rendered("{% set n = 0 %}{% for i in [1, 2] %}{% set n = i %}{% endfor %}{{ n }}"),
            "0");
  EXPECT_EQ(Rendered("{% set s = namespace(n=0) %}{% for i in [1, 2] %}{% set s.n = s.n + i %}{% "
                     "endfor %}{{ s.n }}"),
            "3");
  EXPECT_EQ(Rendered("{% for i in range(9) if i is odd %}{% if i == 5 %}{% break %}{% endif %}{{ i "
                     "}}{% endfor %}"),
            "13");
  EXPECT_EQ(
      Rendered(
          "{% for i in [] %}a{% else %}b{% endfor %}{% set t %}x{{ 1 }}{% endset %}{{ t|upper }}"),
      "bX1");
  EXPECT_EQ(
      Rendered("{% macro f(a, b='!') %}{{ a }}{{ b }}{% endmacro %}{{ f(1) }}{{ f(b=2, a=3) }}"),
      "1!32");
}

TEST(Template, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(Refusal("{{ raise_exception('roles must alternate') }}"),
            "line 1: roles must alternate");
  EXPECT_THAT(Refusal("a\n{{ x.y.z }}"), HasSubstr("line 2: 'x' is undefined"));
  EXPECT_THAT(Refusal("{{ 1 + 'a' }}"), HasSubstr("'+' between a whole number and a text"));
  EXPECT_THAT(Refusal("{{ 1|sing }}"), HasSubstr("the filter 'sing' is not there yet"));
  EXPECT_THAT(Refusal("{% include 'x' %}"), HasSubstr("the statement 'include' is not there yet"));
  EXPECT_THAT(Refusal("{% if x %}"), HasSubstr("'endif' is missing"));
  EXPECT_THAT(Refusal("{{ 1"), HasSubstr("has no end"));
  EXPECT_THAT(Refusal("{% endfor %}"), HasSubstr("'endfor' ends nothing"));
  EXPECT_THAT(Refusal("{{ f() }}"), HasSubstr("'f' is undefined"));
  EXPECT_THAT(Refusal("{{ 1 % 0 }}"), HasSubstr("division by zero"));
}

TEST(Template, TakesNoMoreTimeAndMemoryThanItMay) {
  EXPECT_THAT(Refusal("{% for i in range(1000) %}{% set x = range(100000)|list %}{% endfor %}"),
              HasSubstr("the template makes too much text"));
  EXPECT_THAT(Refusal("{% set s = namespace(t='ab') %}{% for i in range(40) %}{% set s.t = s.t + "
                      "s.t %}{% endfor %}"),
              HasSubstr("too much text"));
  EXPECT_THAT(Refusal("{% set s = namespace(t=[]) %}{% for i in range(500) %}{% set s.t = [s.t] "
                      "%}{% endfor %}"),
              HasSubstr("nested too deeply"));
  EXPECT_THAT(Refusal("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
              HasSubstr("call each other too deeply"));
  EXPECT_THAT(Refusal(std::string(5000, '{')), HasSubstr("line 1"));
  EXPECT_THAT(Refusal("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"),
              HasSubstr("nested too deeply"));
  EXPECT_EQ(Rendered("{% set s = namespace() %}{% set s.s = s %}{{ s }}"), "<a namespace>");
}

// cases.json: make_cases.py wrote what jinja2 makes of them; null where it refuses.
TEST(Template, WritesWhatJinjaWrites) {
  const auto text = ReadFile(ONNXD_SOURCE_DIR "/tests/server/templates/cases.json", 1 << 24);
  ASSERT_TRUE(text.ok()) << text.status().message();
  const TemplateValue cases = *TemplateValueOfJson(*text);
  ASSERT_GT(cases.list()->size(), 50U);
  for (const TemplateValue& one : *cases.list()) {
    const std::string& source = *one.dict()->Find("template")->text();
    const TemplateValue& expected = *one.dict()->Find("expected");
    const auto parsed = Template::Parse(source);
    const auto rendered = parsed.ok() ? (*parsed)->Render(*one.dict()->Find("variables")->dict())
                                      : Result<std::string>(parsed.status());
    EXPECT_EQ(rendered.ok(), expected.text() != nullptr)
        << source << ": " << rendered.status().message();
    if (!rendered.ok() || expected.text() == nullptr) continue;
    EXPECT_EQ(*rendered, *expected.text()) << source;
  }
}

}  // namespace
}  // namespace onnxd
