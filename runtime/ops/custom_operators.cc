#include "runtime/ops/custom_operators.h"

#include <deque>
#include <limits>
#include <mutex>
#include <shared_mutex>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr TypeSet kEveryType = {0xffffffffu, 0xffffffffu, 0xffffffffu, true};

// A schema whose tables are its own. Never moved: the schema points into it.
struct Entry {
  CustomOperator description;
  std::vector<OperandRow> inputs, outputs;
  std::vector<AttributeSchema> attributes;
  OpSchema schema{};
};

struct Registry {
  std::shared_mutex mutex;
  std::deque<Entry> entries;
};

Registry& TheRegistry() {
  static Registry* registry = new Registry;
  return *registry;
}

// Names of operands that have none, for messages.
const char* OperandName(size_t position) {
  static const auto* names = [] {
    auto* all = new std::deque<std::string>;
    for (size_t i = 0; i < 64; ++i) all->push_back(std::to_string(i));
    return all;
  }();
  return (*names)[position].c_str();
}

std::vector<OperandRow> Rows(int required, int count) {
  std::vector<OperandRow> rows;
  for (int i = 0; i < count; ++i) {
    rows.push_back({OperandName(static_cast<size_t>(i)),
                    i < required ? OperandKind::kSingle : OperandKind::kOptional, -1, 0});
  }
  return rows;
}

void Complete(Entry& entry) {
  const CustomOperator& from = entry.description;
  entry.inputs = Rows(from.min_inputs, from.max_inputs);
  entry.outputs = Rows(from.min_outputs, from.max_outputs);
  for (const auto& attribute : from.attributes) {
    entry.attributes.push_back(
        {attribute.name.c_str(), attribute.kind.c_str(), attribute.required});
  }
  entry.schema = {from.domain,
                  from.name,
                  from.since_version,
                  false,
                  from.min_inputs,
                  from.max_inputs,
                  from.min_outputs,
                  from.max_outputs,
                  entry.inputs.data(),
                  static_cast<int>(entry.inputs.size()),
                  entry.outputs.data(),
                  static_cast<int>(entry.outputs.size()),
                  entry.attributes.data(),
                  static_cast<int>(entry.attributes.size()),
                  &kEveryType};
}

const Entry* Newest(const Registry& registry, std::string_view domain, std::string_view op,
                    int64_t opset) {
  const Entry* newest = nullptr;
  for (const Entry& entry : registry.entries) {
    const OpSchema& schema = entry.schema;
    if (schema.domain != domain || schema.name != op || schema.since_version > opset) continue;
    if (newest == nullptr || schema.since_version > newest->schema.since_version) newest = &entry;
  }
  return newest;
}

}  // namespace

Status RegisterCustomOperators(std::vector<CustomOperator> operators) {
  Registry& registry = TheRegistry();
  const std::unique_lock lock(registry.mutex);
  for (size_t i = 0; i < operators.size(); ++i) {
    const CustomOperator& added = operators[i];
    const auto same = [&](std::string_view domain, std::string_view name, int version) {
      return domain == added.domain && name == added.name && version == added.since_version;
    };
    bool known = FindStandardSchema(added.domain, added.name, added.since_version) != nullptr;
    for (const Entry& entry : registry.entries) {
      known |= same(entry.schema.domain, entry.schema.name, entry.schema.since_version);
    }
    for (size_t j = 0; j < i; ++j) {
      known |= same(operators[j].domain, operators[j].name, operators[j].since_version);
    }
    if (known) {
      return InvalidArgument(StrCat("operator ", added.domain, "::", added.name, " version ",
                                    added.since_version, " is there already"));
    }
  }
  for (CustomOperator& added : operators) {
    registry.entries.emplace_back().description = std::move(added);
    Complete(registry.entries.back());
  }
  return Status::Ok();
}

const OpSchema* FindCustomSchema(std::string_view domain, std::string_view op, int64_t opset) {
  Registry& registry = TheRegistry();
  const std::shared_lock lock(registry.mutex);
  const Entry* entry = Newest(registry, domain, op, opset);
  return entry == nullptr ? nullptr : &entry->schema;
}

InferenceFunction FindCustomInferenceRule(std::string_view domain, std::string_view op) {
  Registry& registry = TheRegistry();
  const std::shared_lock lock(registry.mutex);
  const Entry* entry = Newest(registry, domain, op, std::numeric_limits<int64_t>::max());
  return entry == nullptr ? nullptr : entry->description.infer;
}

}  // namespace onnxd
