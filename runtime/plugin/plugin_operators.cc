#include "runtime/plugin/plugin_operators.h"

#include <deque>
#include <mutex>
#include <set>

#include "runtime/base/str_cat.h"
#include "runtime/ops/custom_operators.h"
#include "runtime/plugin/plugin_host.h"
#include "runtime/plugin/plugin_kernel.h"

namespace onnxd {
namespace {

constexpr size_t kMaxOperators = 1000;
constexpr size_t kMaxAttributes = 100;
constexpr int32_t kMaxOperands = 64;

struct LoadedOperator {
  std::string plugin, domain, name;
  const OnnxdOperator* op;
};

// Every operator of every loaded plug-in. Entries are never moved or removed.
struct LoadedOperators {
  std::mutex mutex;
  std::deque<LoadedOperator> entries;

  const LoadedOperator* Find(const Node& node) {
    const std::lock_guard lock(mutex);
    for (const LoadedOperator& entry : entries) {
      if (entry.domain == node.domain && entry.name == node.op_type &&
          entry.op->since_version == node.since_version) {
        return &entry;
      }
    }
    return nullptr;
  }
};

LoadedOperators& AllOperators() {
  static LoadedOperators* all = new LoadedOperators;
  return *all;
}

Status InferLoaded(InferenceContext& context) {
  const LoadedOperator* loaded = AllOperators().Find(context.node());
  if (loaded == nullptr) return context.Fail("its plug-in is not loaded");
  return InferWithPlugin(loaded->plugin, *loaded->op, context);
}

Result<CustomOperator> Describe(const OnnxdPlugin& plugin, const OnnxdOperator* op) {
  if (op == nullptr || op->struct_size < sizeof(OnnxdOperator)) {
    return InvalidArgument("an operator's description is null or too short");
  }
  if (!IsPluginName(op->name, "_")) return InvalidArgument("an operator has no valid name");
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat("operator ", op->name, ": ", why));
  };
  const auto range = [](int32_t least, int32_t low, int32_t high) {
    return low >= least && high >= low && high <= kMaxOperands;
  };
  if (!range(0, op->min_inputs, op->max_inputs)) return fail("its input counts make no sense");
  if (!range(1, op->min_outputs, op->max_outputs)) return fail("its output counts make no sense");
  if (op->since_version < 1) return fail("since_version is below 1");
  if (op->infer == nullptr || op->compute == nullptr) return fail("infer and compute are required");
  if (op->attribute_count > kMaxAttributes ||
      (op->attribute_count > 0 && op->attributes == nullptr)) {
    return fail("its attributes make no sense");
  }
  CustomOperator described{plugin.domain,  op->name,        op->since_version, op->min_inputs,
                           op->max_inputs, op->min_outputs, op->max_outputs,   {},
                           InferLoaded};
  static const std::set<std::string> kinds = {"INT", "FLOAT", "STRING", "INTS", "FLOATS"};
  for (size_t i = 0; i < op->attribute_count; ++i) {
    const OnnxdAttribute& attribute = op->attributes[i];
    if (!IsPluginName(attribute.name, "_.") || attribute.kind == nullptr ||
        !kinds.contains(attribute.kind)) {
      return fail(StrCat("attribute ", i, " has no valid name or kind"));
    }
    described.attributes.push_back({attribute.name, attribute.kind, attribute.required != 0});
  }
  return described;
}

Status CheckDomain(const char* domain_name) {
  if (!IsPluginName(domain_name, "._-")) return InvalidArgument("its domain is no valid name");
  const std::string_view domain = domain_name;
  // Of onnxruntime's own operators and its extensions' some are not here.
  if (domain == "com.microsoft" || domain == "ai.onnx.contrib") return Status::Ok();
  if (domain.starts_with("ai.onnx") || domain.starts_with("com.microsoft") || domain == "onnxd") {
    return InvalidArgument(StrCat("domain ", domain, " is not a plug-in's"));
  }
  return Status::Ok();
}

class PluginOperatorsProvider : public ExecutionProvider {
 public:
  explicit PluginOperatorsProvider(std::string name) : name_(std::move(name)) {}

  std::string_view name() const override { return name_; }
  bool Knows(const Node& node) const override { return Find(node) != nullptr; }

  Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const override {
    const LoadedOperator* loaded = Find(info.node);
    if (loaded == nullptr) {
      return Unimplemented(StrCat("it has no operator ", info.node.op_type));
    }
    return MakePluginKernel(name_, *loaded->op, info);
  }

 private:
  const LoadedOperator* Find(const Node& node) const {
    const LoadedOperator* loaded = AllOperators().Find(node);
    return loaded != nullptr && loaded->plugin == name_ ? loaded : nullptr;
  }

  std::string name_;
};

}  // namespace

Result<std::shared_ptr<const ExecutionProvider>> RegisterPluginOperators(
    const OnnxdPlugin& plugin) {
  if (plugin.operators == nullptr || plugin.operator_count == 0 ||
      plugin.operator_count > kMaxOperators) {
    return InvalidArgument("it has no operators, or too many");
  }
  ONNXD_RETURN_IF_ERROR(CheckDomain(plugin.domain));
  std::vector<CustomOperator> operators;
  for (size_t i = 0; i < plugin.operator_count; ++i) {
    ONNXD_ASSIGN_OR_RETURN(operators.emplace_back(), Describe(plugin, plugin.operators[i]));
  }
  ONNXD_RETURN_IF_ERROR(RegisterCustomOperators(std::move(operators)));
  LoadedOperators& all = AllOperators();
  const std::lock_guard lock(all.mutex);
  for (size_t i = 0; i < plugin.operator_count; ++i) {
    const OnnxdOperator* op = plugin.operators[i];
    all.entries.push_back({plugin.name, plugin.domain, op->name, op});
  }
  return std::shared_ptr<const ExecutionProvider>(
      std::make_shared<const PluginOperatorsProvider>(plugin.name));
}

}  // namespace onnxd
