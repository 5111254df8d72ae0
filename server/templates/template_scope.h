// TemplateScope: the names that a template's statements see.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "server/templates/template_value.h"

namespace onnxd {

// Of a template, a loop's round or a macro's call; one within another.
class TemplateScope {
 public:
  static constexpr int kMostDepth = 64;

  TemplateScope(TemplateBudget& budget, TemplateScope* outer)
      : budget_(budget), outer_(outer), depth_(outer == nullptr ? 0 : outer->depth_ + 1) {}

  TemplateValue Get(const std::string& name) const {
    for (const TemplateScope* scope = this; scope != nullptr; scope = scope->outer_) {
      if (const TemplateValue* const value = scope->names_.Find(name)) return *value;
    }
    return TemplateValue::MakeUndefined(name);
  }
  // In this scope alone.
  void Set(std::string name, TemplateValue value) { names_.Set(std::move(name), std::move(value)); }

  TemplateBudget& budget() const { return budget_; }
  int depth() const { return depth_; }
  TemplateScope& outermost() { return outer_ == nullptr ? *this : outer_->outermost(); }

 private:
  TemplateBudget& budget_;
  TemplateScope* const outer_;
  const int depth_;
  TemplateDict names_;
};

}  // namespace onnxd
