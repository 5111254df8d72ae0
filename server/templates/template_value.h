// TemplateValue: what the expressions of a template are about, with the meaning that Python gives
// them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

class TemplateResult;
class TemplateValue;
using TemplateList = std::vector<TemplateValue>;

// In the order that entries were made.
class TemplateDict {
 public:
  // Null: there is none of that name. Of equal names the first counts.
  const TemplateValue* Find(std::string_view name) const;
  void Set(std::string name, TemplateValue value);
  void Append(std::string name, TemplateValue value);
  const std::vector<std::pair<std::string, TemplateValue>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, TemplateValue>> entries_;
};

// How much a rendering may still do, so that no template and no conversation takes all time or
// memory.
class TemplateBudget {
 public:
  TemplateBudget(int64_t steps, int64_t bytes) : steps_(steps), bytes_(bytes) {}
  ~TemplateBudget();
  TemplateBudget(const TemplateBudget&) = delete;
  TemplateBudget& operator=(const TemplateBudget&) = delete;
  // Before that many bytes are made. kResourceExhausted when there is no more.
  Status Spend(size_t bytes = 0);
  // Calls of macros within each other. kInvalidArgument beyond 16; else LeaveMacro ends it.
  Status EnterMacro();
  void LeaveMacro() { --macros_; }
  // A namespace, which may hold itself or others: emptied at the end.
  std::shared_ptr<TemplateDict> KeepNamespace(TemplateDict names);

 private:
  int64_t steps_, bytes_;
  int macros_ = 0;
  std::vector<std::shared_ptr<TemplateDict>> namespaces_;
};

struct TemplateArguments {
  TemplateList positional;
  TemplateDict named;
  TemplateBudget* budget = nullptr;
  // The one at the place, or of that name; null: it is not given.
  const TemplateValue* Find(size_t place, std::string_view name) const;
};
using TemplateFunction = std::function<TemplateResult(const TemplateArguments&)>;

class TemplateValue {
 public:
  struct Undefined {
    std::string name;
  };
  struct None {};
  using Text = std::shared_ptr<const std::string>;
  using List = std::shared_ptr<const TemplateList>;
  using Dict = std::shared_ptr<const TemplateDict>;
  // Of namespace(...): what `set ns.name = ...` changes.
  using Namespace = std::shared_ptr<TemplateDict>;
  using Function = std::shared_ptr<const TemplateFunction>;

  TemplateValue() : value_(None()) {}
  TemplateValue(bool value) : value_(value) {}     // NOLINT: literals are written as they are
  TemplateValue(int64_t value) : value_(value) {}  // NOLINT
  TemplateValue(double value) : value_(value) {}   // NOLINT
  TemplateValue(std::string text)                  // NOLINT
      : value_(std::make_shared<const std::string>(std::move(text))) {}
  TemplateValue(const char* text) : TemplateValue(std::string(text)) {}  // NOLINT
  TemplateValue(TemplateList list);                                      // NOLINT
  TemplateValue(TemplateDict dict);                                      // NOLINT
  TemplateValue(Namespace names) : value_(std::move(names)) {}           // NOLINT
  // `depth`: of what it holds.
  TemplateValue(TemplateFunction function, int depth = 0)  // NOLINT
      : value_(std::make_shared<const TemplateFunction>(std::move(function))), depth_(depth + 1) {}
  static TemplateValue MakeUndefined(std::string name) {
    TemplateValue value;
    value.value_ = Undefined{std::move(name)};
    return value;
  }

  bool is_undefined() const { return std::holds_alternative<Undefined>(value_); }
  bool is_none() const { return std::holds_alternative<None>(value_); }
  // Null: it is of another kind.
  const bool* boolean() const { return std::get_if<bool>(&value_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&value_); }
  const double* real() const { return std::get_if<double>(&value_); }
  const std::string* text() const { return Pointed<Text>(); }
  const TemplateList* list() const { return Pointed<List>(); }
  const TemplateDict* dict() const { return Pointed<Dict>(); }
  TemplateDict* names() const {
    const auto* const found = std::get_if<Namespace>(&value_);
    return found == nullptr ? nullptr : found->get();
  }
  const TemplateFunction* function() const { return Pointed<Function>(); }
  const std::string& undefined_name() const { return std::get<Undefined>(value_).name; }
  // Of a whole number, a truth value counted as one, or a real number.
  std::optional<double> number() const;
  std::optional<int64_t> whole() const;

  // Levels of lists, mappings and methods within each other. What goes through values calls itself:
  // no variable may hold one that is deeper.
  static constexpr int kMostDepth = 100;
  int depth() const { return depth_; }
  // Bytes of a text, elements of a list or mapping.
  size_t size() const;

  bool IsTrue() const;
  // "a text", "a list"
  const char* KindName() const;
  // As print() writes it.
  std::string Written() const;
  // As json.dumps() writes it; `indent` below 0: in one line. kInvalidArgument for what has no JSON
  // form.
  Status AppendJson(std::string& out, int indent, int depth = 0) const;

 private:
  template <typename Pointer>
  auto Pointed() const -> const typename Pointer::element_type* {
    const auto* const found = std::get_if<Pointer>(&value_);
    return found == nullptr ? nullptr : found->get();
  }
  void AppendRepresentation(std::string& out) const;

  std::variant<Undefined, None, bool, int64_t, double, Text, List, Dict, Namespace, Function>
      value_;
  int depth_ = 0;
};

// A value, or why there is none. Made of all that values are made of.
class TemplateResult : public Result<TemplateValue> {
 public:
  using Result<TemplateValue>::Result;
  template <typename T>
  requires(std::is_constructible_v<TemplateValue, T> &&
           !std::is_base_of_v<Result<TemplateValue>, std::decay_t<T>>)
      TemplateResult(T&& value)  // NOLINT: values are returned as they are
      : Result<TemplateValue>(TemplateValue(std::forward<T>(value))) {}
};

bool AreEqual(const TemplateValue& a, const TemplateValue& b);
// a < b; kInvalidArgument for values without an order.
Result<bool> IsLess(const TemplateValue& a, const TemplateValue& b);

// Of JSON, nested less than 64 levels deep. kInvalidArgument.
TemplateResult TemplateValueOfJson(std::string_view json);

}  // namespace onnxd
